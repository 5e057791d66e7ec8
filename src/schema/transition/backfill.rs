//! The expression that `--backfill` gives. It becomes a part of a statement, so it must be one expression and nothing
//! else. The row that gets its owner is called `conversation` in it; a column without that name could be one of another
//! table, and rows would go to somebody else's.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, GroupByExpr, Ident, OrderBy, Query, Select, SetExpr, TableFactor, TableWithJoins, Visit, Visitor,
};
use sqlparser::dialect::{Dialect, PostgreSqlDialect, SQLiteDialect};
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, TokenizerError, Whitespace};

use super::queries::Queries;
use crate::database::Database;
use crate::failure::{Failure, Result};
use crate::host::migrations::{Catalog, TableName};
use crate::names;
use crate::schema::{Column, Table};

/// What the row that gets an owner is called in the expression.
pub const ROW: &str = "conversation";

/// Refuses what is not exactly one SQL expression, or leaves open which table a column belongs to. The `conversations`
/// are the table as it is before the change, the `catalog` has the host's own tables.
pub fn check(text: &str, database: Database, conversations: Option<&Table>, catalog: &Catalog) -> Result<()> {
    let expression = check_form(text, database)?;
    if let Some(conversations) = conversations {
        check_columns(text, &expression, conversations, catalog)?;
    }
    check_queries(text, database)
}

fn check_form(text: &str, database: Database) -> Result<Expr> {
    let refuse = |what: &str| Err(refusal(text, what));
    if text.trim().is_empty() {
        return refuse("it is empty");
    }
    if let Some(odd) = text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
        return refuse(&format!("it contains {}", names::show(odd)));
    }
    let tokens = match tokens(text, database) {
        Ok(tokens) => tokens,
        Err(error) => return refuse(&error.to_string()),
    };
    for (place, token) in tokens.iter().enumerate() {
        match &token.token {
            Token::SemiColon => return refuse("it contains a `;`"),
            Token::Whitespace(Whitespace::SingleLineComment { .. } | Whitespace::MultiLineComment(_)) => {
                return refuse("it contains a comment");
            }
            Token::Placeholder(_) => return refuse("it contains a parameter"),
            Token::Colon | Token::AtSign
                if tokens.get(place + 1).is_some_and(|next| matches!(next.token, Token::Word(_))) =>
            {
                return refuse("it contains a parameter");
            }
            _ => {}
        }
    }
    parse(text, database).or_else(|reason| refuse(&reason))
}

/// `SQLite` takes the first row that a query finds. A migration asks whether there are more, but not of a query that
/// another one may evaluate for each of its rows.
fn check_queries(text: &str, database: Database) -> Result<()> {
    match (database, Queries::of(text, database).inner.first()) {
        (Database::Sqlite, Some(query)) => {
            let what = "could find several rows, and SQLite would take the first one";
            Err(Failure::usage(format!("--backfill: `({query})`, inside of another query, {what}"))
                .help("join its tables in the other query, or choose a row with `ORDER BY … LIMIT 1`"))
        }
        (Database::Sqlite, None) | (Database::Postgres, _) => Ok(()),
    }
}

/// Whether an expression stands in parentheses already.
pub(super) fn is_enclosed(text: &str, database: Database) -> bool {
    matches!(parse(text, database), Ok(Expr::Nested(_) | Expr::Subquery(_)))
}

pub(super) fn tokens(text: &str, database: Database) -> Result<Vec<TokenWithSpan>, TokenizerError> {
    Tokenizer::new(&*dialect(database), text).tokenize_with_location()
}

pub(super) fn parse(text: &str, database: Database) -> Result<Expr, String> {
    let dialect = dialect(database);
    let mut parser = Parser::new(&*dialect).try_with_sql(text).map_err(|error| error.to_string())?;
    let expression = parser.parse_expr().map_err(|error| error.to_string())?;
    let next = parser.next_token();
    if next.token == Token::EOF { Ok(expression) } else { Err(format!("`{next}` is too much")) }
}

fn dialect(database: Database) -> Box<dyn Dialect> {
    match database {
        Database::Sqlite => Box::new(SQLiteDialect {}),
        Database::Postgres => Box::new(PostgreSqlDialect {}),
    }
}

fn refusal(text: &str, what: &str) -> Failure {
    let what = what.trim_start_matches("sql parser error: ");
    let failure = Failure::usage(format!("--backfill: `{}` is not one SQL expression: {what}", names::printable(text)));
    let is_query = text.trim_start().get(..6).is_some_and(|word| word.eq_ignore_ascii_case("select"));
    failure.help(if is_query {
        "put the query in parentheses: `(SELECT …)`"
    } else {
        "give an expression on a row of the conversations, for example \
         `(SELECT team_id FROM users WHERE users.id = conversation.user_id)`"
    })
}

fn check_columns(text: &str, expression: &Expr, conversations: &Table, catalog: &Catalog) -> Result<()> {
    let mut reader = Reader {
        conversations,
        catalog,
        scopes: Vec::new(),
        named: Vec::new(),
        lists: BTreeSet::new(),
        findings: Vec::new(),
    };
    let _ = expression.visit(&mut reader);
    let Some(first) = reader.findings.first() else { return Ok(()) };
    let what = format!("--backfill: {}", first.what);
    Err(Failure::usage(what).help(match &first.help {
        Some(help) => help.clone(),
        None => format!("write `{}`", corrected(text, &reader.findings)),
    }))
}

/// The text with every ambiguous column named in full.
fn corrected(text: &str, findings: &[Finding]) -> String {
    let inserted: BTreeMap<_, _> =
        findings.iter().filter_map(|found| Some((found.at?, found.correction.as_ref()?))).collect();
    let (mut line, mut column) = (1, 1);
    let mut corrected = String::new();
    let mut replaced = 0;
    for c in text.chars() {
        if let Some(Correction { qualifier, replaces }) = inserted.get(&(line, column)) {
            corrected.push_str(qualifier);
            corrected.push('.');
            replaced = *replaces;
        }
        if replaced > 0 {
            replaced -= 1;
        } else {
            corrected.push(c);
        }
        (line, column) = if c == '\n' { (line + 1, 1) } else { (line, column + 1) };
    }
    corrected
}

/// Something in the expression that could mean something else.
struct Finding {
    what: String,
    /// What to do, where that is not to write the corrected text.
    help: Option<String>,
    at: Option<(u64, u64)>,
    correction: Option<Correction>,
}

/// What to write before a column.
struct Correction {
    qualifier: String,
    /// How many characters go: those of another qualifier with its dot.
    replaces: usize,
}

/// A table that a query reads.
struct Source<'a> {
    name: String,
    /// Its columns; nothing if they are not known.
    columns: Option<Vec<&'a str>>,
}

impl Source<'_> {
    /// Whether it may have a column.
    fn may_have(&self, name: &str) -> bool {
        let has = |columns: &Vec<&str>| columns.iter().any(|column| column.eq_ignore_ascii_case(name));
        self.columns.as_ref().is_none_or(has)
    }
}

struct Reader<'a> {
    conversations: &'a Table,
    catalog: &'a Catalog,
    /// The tables of the queries around, the innermost last.
    scopes: Vec<Vec<Source<'a>>>,
    /// What `WITH` names in the queries around: it takes the place of a table.
    named: Vec<Vec<String>>,
    /// Where columns stand in what a query selects or sorts by: there, a name of the query's own tables means theirs.
    lists: BTreeSet<(u64, u64)>,
    findings: Vec<Finding>,
}

impl<'a> Reader<'a> {
    fn sources(&self, body: &SetExpr) -> Vec<Source<'a>> {
        match body {
            SetExpr::Select(select) => select.from.iter().flat_map(|table| self.joined(table)).collect(),
            SetExpr::SetOperation { left, right, .. } => {
                self.sources(left).into_iter().chain(self.sources(right)).collect()
            }
            SetExpr::Query(query) => self.sources(&query.body),
            _ => Vec::new(),
        }
    }

    fn joined(&self, table: &TableWithJoins) -> Vec<Source<'a>> {
        let factors = std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation));
        factors.flat_map(|factor| self.source(factor)).collect()
    }

    fn source(&self, factor: &TableFactor) -> Vec<Source<'a>> {
        match factor {
            TableFactor::Table { name, alias, args: None, .. } => {
                let mut parts = name.0.iter().rev().filter_map(|part| part.as_ident()).map(|ident| ident.value.clone());
                let table = parts.next().unwrap_or_default();
                let schema = parts.next().filter(|schema| !["public", "main"].contains(&schema.as_str()));
                let is_named = self.named.iter().flatten().any(|name| name.eq_ignore_ascii_case(&table));
                let is_renamed = alias.as_ref().is_some_and(|alias| !alias.columns.is_empty());
                let known = self.catalog.find(&TableName { schema, table: table.clone() });
                let known = known.filter(|table| table.is_complete);
                let known = known.map(|table| table.columns.iter().map(|column| column.name.as_str()).collect());
                let own = table.eq_ignore_ascii_case(&self.conversations.name);
                let own = own.then(|| self.conversations.columns.iter().map(|column| column.name.as_str()).collect());
                let columns = if is_named || is_renamed { None } else { own.or(known) };
                vec![Source { name: alias.as_ref().map_or(table, |alias| alias.name.value.clone()), columns }]
            }
            TableFactor::NestedJoin { table_with_joins, .. } => self.joined(table_with_joins),
            TableFactor::Derived { alias: Some(alias), .. } => {
                vec![Source { name: alias.name.value.clone(), columns: None }]
            }
            _ => vec![Source { name: String::new(), columns: None }],
        }
    }

    /// The conversation's column of that name. Names without quotes are the same in any case.
    fn column(&self, name: &str) -> Option<&'a Column> {
        self.conversations.columns.iter().find(|column| column.name.eq_ignore_ascii_case(name))
    }

    /// A column without a table.
    fn bare(&mut self, ident: &Ident, compared: Option<Side>) {
        let name = &ident.value;
        let Some(column) = self.column(name) else { return };
        let sources =
            || self.scopes.iter().rev().enumerate().flat_map(|(depth, scope)| scope.iter().map(move |s| (depth, s)));
        let Some((depth, source)) = sources().find(|(_, source)| source.may_have(name)) else { return };
        let at = place(ident.span.start);
        let is_owner = column.retired || self.conversations.primary_key.columns.first() == Some(&column.name);
        let in_list = depth == 0 && self.lists.contains(&at);
        // Where a query lists a column of its table, that is what it means; a key of the owner is worth a question.
        if in_list && !is_owner {
            return;
        }
        let of_row = match compared {
            Some(Side::Row) => false,
            Some(Side::Table) => true,
            None => is_owner && !in_list,
        };
        let other = if source.name.is_empty() { "what it selects from" } else { &source.name };
        let qualifier = if of_row || source.name.is_empty() { ROW.to_owned() } else { source.name.clone() };
        self.findings.push(Finding {
            what: format!("`{name}` could be a column of `{other}` or of the conversation"),
            help: None,
            at: Some(at),
            correction: Some(Correction { qualifier, replaces: 0 }),
        });
    }

    /// A column with its table.
    fn qualified(&mut self, parts: &[Ident]) {
        let [qualifier, column] = parts else { return };
        let is_source = self.scopes.iter().flatten().any(|source| source.name.eq_ignore_ascii_case(&qualifier.value));
        if is_source {
            return;
        }
        if qualifier.value.eq_ignore_ascii_case(&self.conversations.name) {
            let quotes = if qualifier.quote_style.is_some() { 2 } else { 0 };
            self.findings.push(Finding {
                what: format!("the row of the conversation is called `{ROW}`, not `{}`", qualifier.value),
                help: None,
                at: Some(place(qualifier.span.start)),
                correction: Some(Correction {
                    qualifier: ROW.to_owned(),
                    replaces: qualifier.value.chars().count() + quotes + 1,
                }),
            });
        } else if is_row(qualifier) && self.column(&column.value).is_none() {
            let columns: Vec<_> = self.conversations.columns.iter().map(|column| column.name.as_str()).collect();
            self.findings.push(Finding {
                what: format!("the conversation has no column `{}`", column.value),
                help: Some(format!("it has {}", columns.join(", "))),
                at: None,
                correction: None,
            });
        }
    }

    /// Notes the columns in a list, those of queries inside of it aside.
    fn note_list(&mut self, list: &impl Visit) {
        let mut bare = Bare { depth: 0, places: BTreeSet::new() };
        let _ = list.visit(&mut bare);
        self.lists.extend(bare.places);
    }
}

/// What a column is compared with: one of the conversation, or one of a table.
#[derive(Clone, Copy)]
enum Side {
    Row,
    Table,
}

fn side(expression: &Expr) -> Option<Side> {
    match expression {
        Expr::CompoundIdentifier(parts) => {
            Some(if parts.first().is_some_and(is_row) { Side::Row } else { Side::Table })
        }
        _ => None,
    }
}

fn is_row(qualifier: &Ident) -> bool {
    qualifier.value.eq_ignore_ascii_case(ROW)
}

impl Visitor for Reader<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let named = query.with.iter().flat_map(|with| &with.cte_tables).map(|table| table.alias.name.value.clone());
        self.named.push(named.collect());
        let sources = self.sources(&query.body);
        if let Some(source) = sources.iter().find(|source| source.name.eq_ignore_ascii_case(ROW)) {
            self.findings.push(Finding {
                what: format!(
                    "`{}` is the row that gets its owner, and a table of that name would hide it",
                    source.name
                ),
                help: Some(format!("give the table another name there: `FROM {} AS c`", source.name)),
                at: None,
                correction: None,
            });
        }
        self.scopes.push(sources);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.scopes.pop();
        self.named.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        self.note_list(&select.projection);
        ControlFlow::Continue(())
    }

    fn pre_visit_order_by(&mut self, order_by: &OrderBy) -> ControlFlow<()> {
        self.note_list(order_by);
        ControlFlow::Continue(())
    }

    fn pre_visit_group_by(&mut self, group_by: &GroupByExpr) -> ControlFlow<()> {
        self.note_list(group_by);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        match expression {
            Expr::BinaryOp { left, right, .. } => {
                for (one, other) in [(left, right), (right, left)] {
                    if let Expr::Identifier(ident) = &**one {
                        self.bare(ident, side(other));
                    }
                }
            }
            Expr::Identifier(ident) => {
                let at = Some(place(ident.span.start));
                if !self.findings.iter().any(|found| found.at == at) {
                    self.bare(ident, None);
                }
            }
            Expr::CompoundIdentifier(parts) => self.qualified(parts),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Collects where columns without a table stand.
struct Bare {
    depth: usize,
    places: BTreeSet<(u64, u64)>,
}

impl Visitor for Bare {
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
        if let (Expr::Identifier(ident), 0) = (expression, self.depth) {
            self.places.insert(place(ident.span.start));
        }
        ControlFlow::Continue(())
    }
}

fn place(location: Location) -> (u64, u64) {
    (location.line, location.column)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::names::TablePrefix;
    use crate::schema::{Kind, LONGEST_SUFFIX, OwnerColumn, schema};

    /// The conversations of users, in a host with users and their accounts.
    fn checked(text: &str, database: Database) -> Result<()> {
        let owner = OwnerColumn { name: "user_id".to_owned(), kind: Kind::BigInteger, references: None };
        let schema = schema(&TablePrefix::parse("sagents_", LONGEST_SUFFIX, 63).unwrap(), &owner, false);
        let mut catalog = Catalog::new(database);
        catalog.apply("CREATE TABLE users (id BIGINT PRIMARY KEY, team_id BIGINT);");
        catalog.apply("CREATE TABLE accounts (id BIGINT PRIMARY KEY, user_id BIGINT, created_at TEXT);");
        catalog.apply("CREATE TABLE copies AS SELECT * FROM accounts;");
        catalog.apply("CREATE TABLE notes (user_id BIGINT REFERENCES users) ODD;");
        catalog.apply("CREATE TABLE altered (id BIGINT);");
        catalog.apply("DO $$ BEGIN ALTER TABLE altered ADD COLUMN user_id BIGINT; END $$;");
        check(text, database, schema.tables.first(), &catalog)
    }

    fn refused(text: &str, database: Database) -> String {
        checked(text, database).expect_err(text).to_string()
    }

    #[test]
    fn an_expression_is_accepted() {
        for text in [
            "7",
            "user_id",
            "conversation.user_id",
            "Conversation.USER_ID",
            "(SELECT team_id FROM users WHERE users.id = user_id)",
            "(SELECT team_id FROM users WHERE users.id = conversation.user_id)",
            "(SELECT id FROM accounts WHERE accounts.user_id = conversation.user_id ORDER BY created_at, id LIMIT 1)",
            "(SELECT u.team_id FROM users u JOIN accounts a ON a.user_id = u.id WHERE a.id = conversation.user_id)",
            "coalesce((SELECT t.id FROM teams AS t WHERE t.name = 'it''s; -- one'), conversation.user_id)",
            "CASE WHEN user_id < 10 THEN 1 ELSE 2 END",
            "json_extract(scope, '$.id')",
        ] {
            for database in [Database::Sqlite, Database::Postgres] {
                checked(text, database).unwrap();
            }
        }
        checked("unhex(printf('%032x', user_id))", Database::Sqlite).unwrap();
        checked("x'00112233445566778899aabbccddeeff'", Database::Sqlite).unwrap();
        checked("(scope->>'id')::bigint", Database::Postgres).unwrap();
        checked("(scope @> '{}')::int", Database::Postgres).unwrap();
        checked("md5(user_id::text)::uuid", Database::Postgres).unwrap();
    }

    #[test]
    fn what_is_no_single_expression_is_refused() {
        for text in [
            "",
            "  ",
            "1;",
            "1; DROP TABLE users",
            "1 -- one",
            "1 /* one */",
            "$1",
            "?1",
            ":owner",
            "@owner",
            "1, 2",
            "1)",
            "(1",
            "1 WHERE 1 = 1",
            "'open",
            "SELECT 1",
            "1\u{0}",
            "user_id = ",
        ] {
            refused(text, Database::Sqlite);
            if text != "@owner" {
                refused(text, Database::Postgres);
            }
        }
    }

    #[test]
    fn the_message_says_what_is_wrong_and_what_is_right() {
        insta::assert_snapshot!(refused("1; DROP TABLE users", Database::Sqlite), @r#"
        --backfill: `1; DROP TABLE users` is not one SQL expression: it contains a `;`
        help: give an expression on a row of the conversations, for example `(SELECT team_id FROM users WHERE users.id = conversation.user_id)`
        "#);
        insta::assert_snapshot!(refused("SELECT id FROM teams", Database::Postgres), @r#"
        --backfill: `SELECT id FROM teams` is not one SQL expression: `id` is too much
        help: put the query in parentheses: `(SELECT …)`
        "#);
        insta::assert_snapshot!(refused("1 2", Database::Postgres), @r#"
        --backfill: `1 2` is not one SQL expression: `2` is too much
        help: give an expression on a row of the conversations, for example `(SELECT team_id FROM users WHERE users.id = conversation.user_id)`
        "#);
    }

    /// A bare column binds to the innermost table that has one of that name.
    #[test]
    fn a_column_that_could_be_of_another_table_is_refused_with_the_corrected_text() {
        for database in [Database::Sqlite, Database::Postgres] {
            let corrected = |text: &str| {
                let message = refused(text, database);
                message.split_once("\nhelp: write `").expect(&message).1.trim_end_matches('`').to_owned()
            };
            for (text, expected) in [
                (
                    "(SELECT id FROM accounts WHERE accounts.user_id = user_id ORDER BY created_at LIMIT 1)",
                    "(SELECT id FROM accounts WHERE accounts.user_id = conversation.user_id ORDER BY created_at LIMIT 1)",
                ),
                (
                    "(SELECT id FROM accounts a WHERE user_id = a.user_id)",
                    "(SELECT id FROM accounts a WHERE conversation.user_id = a.user_id)",
                ),
                (
                    "(SELECT team_id FROM users WHERE id = conversation.user_id)",
                    "(SELECT team_id FROM users WHERE users.id = conversation.user_id)",
                ),
                ("(SELECT user_id FROM accounts LIMIT 1)", "(SELECT accounts.user_id FROM accounts LIMIT 1)"),
                // A table that no migration makes may have anything.
                (
                    "(SELECT t.id FROM elsewhere AS t WHERE t.key = user_id)",
                    "(SELECT t.id FROM elsewhere AS t WHERE t.key = conversation.user_id)",
                ),
                (
                    "(SELECT max(t.n) FROM (SELECT 1 AS n) AS t\n WHERE t.n = user_id)",
                    "(SELECT max(t.n) FROM (SELECT 1 AS n) AS t\n WHERE t.n = conversation.user_id)",
                ),
                (
                    "(WITH users AS (SELECT 1 AS user_id) SELECT 2 FROM users WHERE users.user_id = user_id)",
                    "(WITH users AS (SELECT 1 AS user_id) SELECT 2 FROM users WHERE users.user_id = conversation.user_id)",
                ),
                (
                    "(SELECT 1 FROM users WHERE EXISTS (SELECT 1 FROM accounts WHERE accounts.id = user_id))",
                    "(SELECT 1 FROM users WHERE EXISTS (SELECT 1 FROM accounts WHERE accounts.id = conversation.user_id))",
                ),
                // No database minds the case of a name.
                (
                    "(SELECT id FROM accounts WHERE accounts.user_id = USER_ID)",
                    "(SELECT id FROM accounts WHERE accounts.user_id = conversation.USER_ID)",
                ),
                // A query without a table reads those around it.
                (
                    "(SELECT id FROM accounts WHERE accounts.user_id = (SELECT user_id))",
                    "(SELECT id FROM accounts WHERE accounts.user_id = (SELECT conversation.user_id))",
                ),
                (
                    "(WITH users AS (SELECT 1 AS user_id) SELECT 2 FROM users AS u WHERE u.user_id = user_id)",
                    "(WITH users AS (SELECT 1 AS user_id) SELECT 2 FROM users AS u WHERE u.user_id = conversation.user_id)",
                ),
                (
                    "(WITH users AS (SELECT 1 AS n) SELECT (SELECT max(2) FROM users WHERE users.n = user_id))",
                    "(WITH users AS (SELECT 1 AS n) SELECT (SELECT max(2) FROM users WHERE users.n = conversation.user_id))",
                ),
                (
                    "(SELECT 1 FROM users AS u (user_id) WHERE u.user_id = user_id)",
                    "(SELECT 1 FROM users AS u (user_id) WHERE u.user_id = conversation.user_id)",
                ),
                // Tables that have more columns than a migration names.
                (
                    "(SELECT id FROM copies WHERE copies.id = user_id)",
                    "(SELECT id FROM copies WHERE copies.id = conversation.user_id)",
                ),
                (
                    "(SELECT id FROM altered WHERE altered.id = user_id)",
                    "(SELECT id FROM altered WHERE altered.id = conversation.user_id)",
                ),
                ("sagents_conversations.user_id + 1", "conversation.user_id + 1"),
                ("\"sagents_conversations\".user_id", "conversation.user_id"),
            ] {
                assert_eq!(corrected(text), expected);
                checked(expected, database).unwrap();
            }
        }
    }

    #[test]
    fn a_query_in_a_query_is_refused_where_only_its_first_row_would_count() {
        let text = "(SELECT u.team_id FROM users u WHERE u.id = \
                    (SELECT a.id FROM accounts a WHERE a.user_id = conversation.user_id))";
        insta::assert_snapshot!(refused(text, Database::Sqlite), @"
        --backfill: `(SELECT a.id FROM accounts a WHERE a.user_id = conversation.user_id)`, inside of another query, could find several rows, and SQLite would take the first one
        help: join its tables in the other query, or choose a row with `ORDER BY … LIMIT 1`
        ");
        checked(text, Database::Postgres).unwrap();
        let chosen = text.replace("user_id))", "user_id ORDER BY a.id LIMIT 1))");
        checked(&chosen, Database::Sqlite).unwrap();
    }

    #[test]
    fn a_table_that_hides_the_row_and_a_column_that_it_lacks_are_refused() {
        insta::assert_snapshot!(refused("(SELECT id FROM conversation WHERE conversation.a = 1)", Database::Sqlite), @"
        --backfill: `conversation` is the row that gets its owner, and a table of that name would hide it
        help: give the table another name there: `FROM conversation AS c`
        ");
        insta::assert_snapshot!(refused("conversation.team_id", Database::Sqlite), @"
        --backfill: the conversation has no column `team_id`
        help: it has user_id, id, title, scope, metadata, interrupted, next_sequence, inserted_at, updated_at, last_change, last_removal, archived_at
        ");
        insta::assert_snapshot!(refused("(SELECT id FROM accounts WHERE accounts.user_id = user_id)", Database::Sqlite), @"
        --backfill: `user_id` could be a column of `accounts` or of the conversation
        help: write `(SELECT id FROM accounts WHERE accounts.user_id = conversation.user_id)`
        ");
    }
}
