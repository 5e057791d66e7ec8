//! The statements of a migration: where one ends, and what it says. Every dialect is tried, and a table with parts that
//! no parser knows keeps the rest.

use sqlparser::ast::{ColumnDef, CreateTable, DataType, Ident, Statement};
use sqlparser::dialect::{Dialect, GenericDialect, PostgreSqlDialect, SQLiteDialect};
use sqlparser::parser::Parser;

/// Splits at every `;` that is neither quoted nor in a comment. Bodies of triggers fall apart, which does no harm: no
/// database lets them define tables.
pub(super) fn statements(sql: &str) -> Vec<&str> {
    let mut start = 0;
    let mut found = Vec::new();
    let ended = scan(sql, |at, c| {
        if c == ';' {
            found.push(&sql[start..at]);
            start = at + 1;
        }
    });
    if ended.is_none() {
        return sql.split(';').collect();
    }
    found.push(&sql[start..]);
    found
}

/// Hosts write for one database, and their SQL does not say which.
pub(super) fn parse(sql: &str) -> Option<Statement> {
    let dialects: [&dyn Dialect; 3] = [&SQLiteDialect {}, &PostgreSqlDialect {}, &GenericDialect {}];
    dialects.into_iter().find_map(|dialect| {
        let mut statements = Parser::parse_sql(dialect, sql).ok()?;
        if statements.len() == 1 { statements.pop() } else { None }
    })
}

/// Reads a `CREATE TABLE` that cannot be parsed as a whole: its definitions one by one, and nothing of the options
/// behind the closing parenthesis.
pub(super) fn salvage(sql: &str) -> Option<CreateTable> {
    let (head, definitions) = definitions(sql)?;
    let mut table: Option<CreateTable> = None;
    for definition in definitions {
        let Some(part) = salvage_definition(head, definition) else { continue };
        match &mut table {
            None => table = Some(part),
            Some(table) => {
                table.columns.extend(part.columns);
                table.constraints.extend(part.constraints);
            }
        }
    }
    table
}

/// Parses a single definition; a column's is cut at its end, word by word, until the rest is known.
fn salvage_definition(head: &str, definition: &str) -> Option<CreateTable> {
    const CONSTRAINTS: [&str; 8] = ["CONSTRAINT", "PRIMARY", "UNIQUE", "FOREIGN", "CHECK", "EXCLUDE", "LIKE", "KEY"];
    let attempt = |definition: &str| match parse(&format!("{head}{definition}\n)")) {
        Some(Statement::CreateTable(create)) => Some(create),
        _ => None,
    };
    if let Some(whole) = attempt(definition) {
        return Some(whole);
    }
    let bare: String = bare(definition)?.into_iter().map(|(_, c)| c.to_ascii_uppercase()).collect();
    if bare.split_whitespace().next().is_some_and(|word| CONSTRAINTS.contains(&word)) {
        return None;
    }
    let mut cuts = definition.rmatch_indices(char::is_whitespace);
    let (cut, mut create) = cuts.find_map(|(at, _)| Some((at, attempt(&definition[..at])?)))?;
    let lost = definition[cut..].to_uppercase();
    let lost: Vec<_> = lost.split_whitespace().collect();
    let column = create.columns.first_mut()?;
    if column.options.is_empty() {
        extend_type(column, &lost);
    }
    if lost.windows(2).any(|words| words == ["PRIMARY", "KEY"]) {
        let key = format!("PRIMARY KEY ({})", column.name);
        create.constraints.extend(attempt(&key)?.constraints);
    }
    Some(create)
}

/// `SQLite` takes any words for a type: `UNSIGNED BIG INT`.
fn extend_type(column: &mut ColumnDef, words: &[&str]) {
    const OPTIONS: [&str; 10] =
        ["PRIMARY", "NOT", "NULL", "UNIQUE", "DEFAULT", "CHECK", "REFERENCES", "COLLATE", "GENERATED", "CONSTRAINT"];
    let more = words.iter().copied().take_while(|word| !OPTIONS.contains(word));
    let declared = more.fold(column.data_type.to_string(), |declared, word| declared + " " + word);
    column.data_type = DataType::Custom(Ident::new(declared).into(), Vec::new());
}

/// What stands before the columns of a `CREATE TABLE`, parenthesis included, and the definitions between the commas.
fn definitions(sql: &str) -> Option<(&str, Vec<&str>)> {
    let bare = bare(sql)?;
    let open = bare.iter().find(|(_, c)| *c == '(')?.0;
    let mut depth = 0;
    let mut start = open + 1;
    let mut found = Vec::new();
    for (at, c) in bare.into_iter().filter(|(at, _)| *at >= open) {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && c == ',') {
            found.push(sql[start..at].trim());
            start = at + 1;
        }
        if depth == 0 {
            return Some((&sql[..=open], found));
        }
    }
    None
}

/// Whether a statement can concern a table's definition. Most of a large migration is rows, which need no parser.
pub(super) fn is_definition(statement: &str) -> bool {
    let mut words = String::new();
    // A quote that does not end comes after the first word, if it is there at all.
    let _ = scan(statement, |_, c| words.push(c.to_ascii_uppercase()));
    matches!(words.split_whitespace().next(), Some("CREATE" | "ALTER" | "DROP"))
}

/// The characters outside of quotes and comments, with their places; nothing if a quote or comment does not end.
fn bare(sql: &str) -> Option<Vec<(usize, char)>> {
    let mut bare = Vec::new();
    scan(sql, |at, c| bare.push((at, c)))?;
    Some(bare)
}

fn scan(sql: &str, mut visit: impl FnMut(usize, char)) -> Option<()> {
    let mut at = 0;
    while let Some(c) = sql[at..].chars().next() {
        let rest = &sql[at..];
        at += match c {
            '\'' if is_escape_prefix(&sql[..at]) => escaped_length(rest)?,
            // A doubled quote reads as two strings side by side, which end at the same place.
            '\'' | '"' | '`' => 2 + rest[1..].find(c)?,
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => 4 + rest[2..].find("*/")?,
            '$' if dollar_tag(rest).is_some() => {
                let tag = dollar_tag(rest)?;
                2 * tag.len() + rest[tag.len()..].find(tag)?
            }
            _ => {
                visit(at, c);
                c.len_utf8()
            }
        };
    }
    Some(())
}

/// Whether a string that follows is an `E'…'` of `PostgreSQL`, where `\'` is a quote.
fn is_escape_prefix(before: &str) -> bool {
    let mut back = before.chars().rev();
    matches!(back.next(), Some('e' | 'E')) && !back.next().is_some_and(|c| c.is_alphanumeric() || c == '_')
}

fn escaped_length(string: &str) -> Option<usize> {
    let mut chars = string.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '\'' if string[at + 1..].starts_with('\'') => drop(chars.next()),
            '\'' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// `$$` or `$body$` at the start of the text.
fn dollar_tag(text: &str) -> Option<&str> {
    let end = 1 + text.strip_prefix('$')?.find('$')?;
    let tag = &text[1..end];
    let is_tag = tag.chars().all(|c| c.is_alphanumeric() || c == '_') && !tag.starts_with(|c: char| c.is_ascii_digit());
    is_tag.then_some(&text[..=end])
}
