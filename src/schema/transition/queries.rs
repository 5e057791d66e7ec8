//! The queries in a backfill that stand for a value. One that finds several rows is an error on `PostgreSQL`; `SQLite`
//! takes the first row, so a conversation would go to an owner that nobody chose.

use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, FunctionArguments, GroupByExpr, LimitClause, Query, Select, SelectItem, SetExpr, Spanned as _, Visit as _,
    Visitor,
};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan};

use super::backfill;
use crate::database::Database;

/// The queries of an expression that may find several rows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Queries<'a> {
    /// By themselves: whether one finds several rows for a conversation can be asked.
    pub outer: Vec<&'a str>,
    /// In other queries, whose rows they may depend on.
    pub inner: Vec<&'a str>,
}

impl<'a> Queries<'a> {
    /// Empty if the text is not an expression.
    pub fn of(text: &'a str, database: Database) -> Self {
        let (Ok(expression), Ok(tokens)) = (backfill::parse(text, database), backfill::tokens(text, database)) else {
            return Self::default();
        };
        let mut finder = Finder { depth: 0, found: Vec::new() };
        let _ = expression.visit(&mut finder);
        let mut queries = Self::default();
        for (depth, start) in finder.found {
            match in_parentheses(text, &tokens, start) {
                Some(query) if depth == 0 => queries.outer.push(query),
                // One that is not found cannot be asked about either.
                query => queries.inner.push(query.unwrap_or(text)),
            }
        }
        queries
    }
}

/// Collects where queries start that stand for a value, and how many queries are around each.
struct Finder {
    depth: usize,
    found: Vec<(usize, Location)>,
}

impl Visitor for Finder {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        if let Expr::Subquery(query) = expression
            && !finds_one_row(query)
        {
            self.found.push((self.depth, query.span().start));
        }
        ControlFlow::Continue(())
    }
}

/// Whether a query cannot find several rows, whatever is in the tables.
fn finds_one_row(query: &Query) -> bool {
    let is_limited = match &query.limit_clause {
        Some(LimitClause::LimitOffset { limit: Some(limit), .. } | LimitClause::OffsetCommaLimit { limit, .. }) => {
            limit.to_string() == "1"
        }
        Some(LimitClause::LimitOffset { limit: None, .. }) | None => false,
    };
    is_limited || matches!(&*query.body, SetExpr::Select(select) if select.from.is_empty() || is_aggregated(select))
}

/// Whether a query computes its value from all of its rows: `SELECT min(id) FROM teams`.
fn is_aggregated(select: &Select) -> bool {
    const AGGREGATES: [&str; 6] = ["avg", "count", "max", "min", "sum", "total"];
    let is_grouped = !matches!(&select.group_by, GroupByExpr::Expressions(columns, _) if columns.is_empty());
    let [SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }] = &*select.projection else {
        return false;
    };
    let Expr::Function(function) = value else { return false };
    let name = function.name.to_string().to_lowercase();
    // With two arguments, `min` and `max` are about one row.
    let has_one = matches!(&function.args, FunctionArguments::List(list) if list.args.len() == 1);
    !is_grouped && has_one && function.over.is_none() && AGGREGATES.contains(&&*name)
}

/// The text from a token up to the parenthesis that closes around it.
fn in_parentheses<'a>(text: &'a str, tokens: &[TokenWithSpan], start: Location) -> Option<&'a str> {
    let first = tokens.iter().position(|token| token.span.start == start)?;
    let mut depth = 0;
    let end = tokens[first..].iter().find(|token| {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        depth < 0
    })?;
    Some(text[offset(text, start)..offset(text, end.span.start)].trim_end())
}

/// Where in a text a line and a column are. Columns are characters.
fn offset(text: &str, location: Location) -> usize {
    let (mut line, mut column) = (1, 1);
    for (at, c) in text.char_indices() {
        if (line, column) == (location.line, location.column) {
            return at;
        }
        (line, column) = if c == '\n' { (line + 1, 1) } else { (line, column + 1) };
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_found(text: &str, outer: &[&str], inner: &[&str]) {
        let expected = Queries { outer: outer.to_vec(), inner: inner.to_vec() };
        assert_eq!(Queries::of(text, Database::Sqlite), expected, "{text}");
    }

    #[test]
    fn queries_that_may_find_several_rows_are_found_as_they_are_written() {
        let query = "select  id\nFROM teams t\n WHERE t.n = 'é)' AND (t.a = 1)";
        let (limited, union) = (format!("{query} LIMIT 2"), format!("{query} UNION {query}"));
        let named = "WITH a AS (SELECT 1) SELECT b.id FROM b";
        assert_found(&format!("( {query}\n)"), &[query], &[]);
        assert_found(&format!("coalesce(({query}), ({limited}), 1)"), &[query, &limited], &[]);
        assert_found(&format!("CASE WHEN 1 = 1 THEN ({named}) END"), &[named], &[]);
        assert_found(&format!("(({union}))"), &[&union], &[]);
        assert_found("conversation.user_id", &[], &[]);
    }

    #[test]
    fn queries_that_find_one_row_at_most_are_no_matter() {
        for query in [
            "SELECT id FROM teams ORDER BY id LIMIT 1",
            "SELECT id FROM teams LIMIT 2, 1",
            "SELECT MAX(id) FROM teams WHERE n > 1",
            "SELECT count(*) AS n FROM teams",
            "SELECT conversation.user_id",
        ] {
            assert_found(&format!("({query})"), &[], &[]);
        }
        for query in [
            "SELECT max(id) FROM teams GROUP BY n",
            "SELECT max(id) OVER () FROM teams",
            "SELECT max(id, 1) FROM teams",
            "SELECT lower(id) FROM teams",
            "SELECT max(id) FROM teams UNION SELECT 1",
            "SELECT id FROM teams LIMIT 1 + 1",
            "SELECT id FROM teams LIMIT 1, 2",
        ] {
            assert_found(&format!("({query})"), &[query], &[]);
        }
    }

    #[test]
    fn queries_in_queries_are_told_apart() {
        let inner = "SELECT m.team_id FROM memberships m WHERE m.member = conversation.user_id";
        for outer in [
            format!("SELECT t.id FROM teams t WHERE t.id = ({inner})"),
            format!("SELECT t.id FROM teams t WHERE EXISTS (SELECT 1 FROM a WHERE a.id = ({inner}))"),
            format!("SELECT t.id FROM (SELECT ({inner}) AS id) AS t"),
        ] {
            assert_found(&format!("({outer})"), &[&outer], &[inner]);
        }
        assert_found(&format!("conversation.user_id IN ({inner})"), &[], &[]);
    }
}
