//! The statements of a migration: where one ends, and what it does. Every dialect is tried, and a table with parts that
//! no parser knows keeps the rest.

use sqlparser::ast::{ColumnDef, CreateTable, DataType, Ident, ObjectName, Statement};
use sqlparser::dialect::{Dialect, GenericDialect, PostgreSqlDialect, SQLiteDialect};
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Span, Token, Tokenizer};

use crate::database::Database;

/// Splits at every `;` that is neither quoted nor in a comment, and leaves comments out. Bodies of triggers fall apart,
/// which does no harm: no database lets them define tables.
pub(super) fn statements(sql: &str, database: Database) -> Vec<String> {
    let mut found = vec![String::new()];
    let ended = scan(sql, database, |piece| match piece {
        Piece::Char(_, ';') => found.push(String::new()),
        Piece::Char(_, c) => found.last_mut().expect("there is always one").push(c),
        Piece::Quoted(text) => found.last_mut().expect("there is always one").push_str(text),
        Piece::Comment => found.last_mut().expect("there is always one").push(' '),
    });
    if ended.is_none() {
        return sql.split(';').map(str::to_owned).collect();
    }
    found
}

/// Hosts write for one database, and now and then copy from another.
pub(super) fn parse(sql: &str, database: Database) -> Option<Statement> {
    dialects(database).into_iter().find_map(|dialect| {
        let mut statements = Parser::parse_sql(dialect, sql).ok()?;
        if statements.len() == 1 { statements.pop() } else { None }
    })
}

fn dialects(database: Database) -> [&'static dyn Dialect; 3] {
    match database {
        Database::Sqlite => [&SQLiteDialect {}, &PostgreSqlDialect {}, &GenericDialect {}],
        Database::Postgres => [&PostgreSqlDialect {}, &SQLiteDialect {}, &GenericDialect {}],
    }
}

/// Statements that no parser knows as a whole.
pub(super) enum Unparsed {
    /// `ALTER TABLE … SET SCHEMA …`
    MoveTable {
        table: ObjectName,
        schema: Ident,
    },
    /// `SET SCHEMA '…'`
    SetSchema(Ident),
    CreateTrigger {
        name: ObjectName,
        table: ObjectName,
    },
    DropTrigger {
        name: ObjectName,
    },
}

pub(super) fn unparsed(sql: &str, database: Database) -> Option<Unparsed> {
    let [dialect, ..] = dialects(database);
    let mut parser = Parser::new(dialect).try_with_sql(sql).ok()?;
    let parser = &mut parser;
    if parser.parse_keywords(&[Keyword::ALTER, Keyword::TABLE]) {
        let _ = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
        let _ = parser.parse_keyword(Keyword::ONLY);
        let table = parser.parse_object_name(false).ok()?;
        let moves = parser.parse_keywords(&[Keyword::SET, Keyword::SCHEMA]);
        let schema = parser.parse_identifier().ok()?;
        return moves.then_some(Unparsed::MoveTable { table, schema });
    }
    if parser.parse_keywords(&[Keyword::SET, Keyword::SCHEMA]) {
        let Token::SingleQuotedString(name) = parser.next_token().token else { return None };
        return Some(Unparsed::SetSchema(Ident::with_quote('"', name)));
    }
    if parser.parse_keywords(&[Keyword::DROP, Keyword::TRIGGER]) {
        let _ = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
        return Some(Unparsed::DropTrigger { name: parser.parse_object_name(false).ok()? });
    }
    if parser.parse_keyword(Keyword::CREATE) {
        let _ = parser.parse_keywords(&[Keyword::OR, Keyword::REPLACE]);
        let _ = parser.parse_keyword(Keyword::CONSTRAINT);
        if !parser.parse_keyword(Keyword::TRIGGER) {
            return None;
        }
        let _ = parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
        let name = parser.parse_object_name(false).ok()?;
        while !parser.parse_keyword(Keyword::ON) {
            if parser.next_token().token == Token::EOF {
                return None;
            }
        }
        return Some(Unparsed::CreateTrigger { name, table: parser.parse_object_name(false).ok()? });
    }
    None
}

/// A column's definition with other names for the columns that its conditions and expressions are about. The name that
/// it starts with is left alone.
pub(super) fn rename_columns(definition: &str, database: Database, rename: impl Fn(&str) -> Option<String>) -> String {
    let [dialect, ..] = dialects(database);
    let Ok(tokens) = Tokenizer::new(dialect, definition).tokenize() else { return definition.to_owned() };
    let mut texts: Vec<_> = tokens.iter().map(ToString::to_string).collect();
    let solid: Vec<_> = tokens.iter().enumerate().filter(|(_, token)| !matches!(token, Token::Whitespace(_))).collect();
    // How deep the parentheses are, and how deep those of a foreign key's target are.
    let (mut depth, mut target) = (0, None);
    for (place, (at, token)) in solid.iter().enumerate() {
        let before: Vec<_> = solid[..place].iter().rev().map(|(_, token)| *token).take(4).collect();
        let is_function = solid.get(place + 1).is_some_and(|(_, next)| **next == Token::LParen);
        match token {
            Token::LParen => {
                depth += 1;
                target = target.or(is_target(&before).then_some(depth));
            }
            Token::RParen => {
                target = target.filter(|target| *target != depth);
                depth -= 1;
            }
            Token::Word(word) if depth > 0 && target.is_none() && !is_function && !is_type(&before) => {
                let ident = Ident { value: word.value.clone(), quote_style: word.quote_style, span: Span::empty() };
                if let Some(new) = rename(&super::spelled(&ident, database)) {
                    texts[*at] = new;
                }
            }
            _ => {}
        }
    }
    texts.concat()
}

/// Whether these tokens, the last one first, are `REFERENCES` and a table.
fn is_target(before: &[&Token]) -> bool {
    match before {
        [Token::Word(_), Token::Period, Token::Word(_), Token::Word(word), ..]
        | [Token::Word(_), Token::Word(word), ..] => word.keyword == Keyword::REFERENCES,
        _ => false,
    }
}

/// Whether a type follows these tokens, the last one first: `CAST(… AS …)` or `…::…`.
fn is_type(before: &[&Token]) -> bool {
    match before {
        [Token::DoubleColon, ..] => true,
        [Token::Word(word), ..] => word.keyword == Keyword::AS,
        _ => false,
    }
}

/// Reads a `CREATE TABLE` that cannot be parsed as a whole: its definitions one by one, and nothing of the options
/// behind the closing parenthesis.
pub(super) fn salvage(sql: &str, database: Database) -> Option<CreateTable> {
    let (head, definitions) = definitions(sql, database)?;
    let mut table: Option<CreateTable> = None;
    for definition in definitions {
        let Some(part) = salvage_definition(head, definition, database) else { continue };
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
fn salvage_definition(head: &str, definition: &str, database: Database) -> Option<CreateTable> {
    const CONSTRAINTS: [&str; 8] = ["CONSTRAINT", "PRIMARY", "UNIQUE", "FOREIGN", "CHECK", "EXCLUDE", "LIKE", "KEY"];
    let attempt = |definition: &str| match parse(&format!("{head}{definition}\n)"), database) {
        Some(Statement::CreateTable(create)) => Some(create),
        _ => None,
    };
    if let Some(whole) = attempt(definition) {
        return Some(whole);
    }
    let bare: String = bare(definition, database)?.into_iter().map(|(_, c)| c.to_ascii_uppercase()).collect();
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

/// What comes before the columns of a `CREATE TABLE`, parenthesis included, and the definitions between the commas.
fn definitions(sql: &str, database: Database) -> Option<(&str, Vec<&str>)> {
    let bare = bare(sql, database)?;
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

/// Whether a statement can concern tables or where they are. Most of a large migration is rows, which need no parser.
pub(super) fn is_definition(statement: &str) -> bool {
    starts_with(statement, &["CREATE", "ALTER", "DROP", "SET", "RESET"])
}

/// Whether a statement runs others that no parser sees.
pub(super) fn is_block(statement: &str) -> bool {
    starts_with(statement, &["DO"])
}

/// The statements of a block that may change tables: all but those that only raise an error, as the checks of our own
/// migrations do.
pub(super) fn changes_in_block(block: &str, database: Database) -> Vec<String> {
    let mut body = None;
    scan(block, database, |piece| {
        if let Piece::Quoted(text) = piece {
            body = body.or(dollar_tag(text).map(|tag| &text[tag.len()..text.len() - tag.len()]));
        }
    });
    let Some(body) = body else { return vec![block.to_owned()] };
    statements(body, database).into_iter().filter(|statement| !only_raises(statement, database)).collect()
}

/// Whether a statement of PL/pgSQL is `RAISE …`, `IF … THEN RAISE …` or the end of a block.
fn only_raises(statement: &str, database: Database) -> bool {
    let Some(bare) = bare(statement, database) else { return false };
    let bare: String = bare.into_iter().map(|(_, c)| c.to_ascii_uppercase()).collect();
    let mut words = bare.split_whitespace().skip_while(|word| *word == "BEGIN");
    match words.next() {
        None | Some("END" | "RAISE") => true,
        Some("IF") => words.find(|word| *word == "THEN").is_some() && words.next() == Some("RAISE"),
        Some(_) => false,
    }
}

fn starts_with(statement: &str, words: &[&str]) -> bool {
    let first = statement.split_whitespace().next().unwrap_or_default();
    words.iter().any(|word| first.eq_ignore_ascii_case(word))
}

/// The characters outside of quotes and comments, with their places; nothing if a quote does not end.
fn bare(sql: &str, database: Database) -> Option<Vec<(usize, char)>> {
    let mut bare = Vec::new();
    scan(sql, database, |piece| {
        if let Piece::Char(at, c) = piece {
            bare.push((at, c));
        }
    })?;
    Some(bare)
}

enum Piece<'a> {
    /// A character by itself, with its place.
    Char(usize, char),
    /// A string or a quoted name, with its quotes.
    Quoted(&'a str),
    Comment,
}

fn scan<'a>(sql: &'a str, database: Database, mut visit: impl FnMut(Piece<'a>)) -> Option<()> {
    let mut at = 0;
    while let Some(c) = sql[at..].chars().next() {
        let rest = &sql[at..];
        let comment = match c {
            '-' if rest.starts_with("--") => Some(rest.find('\n').unwrap_or(rest.len())),
            '/' if rest.starts_with("/*") => Some(comment_length(rest, database)),
            _ => None,
        };
        if let Some(length) = comment {
            visit(Piece::Comment);
            at += length;
            continue;
        }
        let quoted = match c {
            '\'' if is_escape_prefix(&sql[..at]) => Some(escaped_length(rest)?),
            // A doubled quote reads as two strings side by side, which end at the same place.
            '\'' | '"' | '`' => Some(2 + rest[1..].find(c)?),
            '$' => match dollar_tag(rest) {
                Some(tag) => Some(2 * tag.len() + rest[tag.len()..].find(tag)?),
                None => None,
            },
            _ => None,
        };
        if let Some(length) = quoted {
            visit(Piece::Quoted(&rest[..length]));
            at += length;
        } else {
            visit(Piece::Char(at, c));
            at += c.len_utf8();
        }
    }
    Some(())
}

/// Of a comment that starts here. `PostgreSQL` knows comments in comments; one that does not end takes the rest along.
fn comment_length(sql: &str, database: Database) -> usize {
    let nests = match database {
        Database::Sqlite => false,
        Database::Postgres => true,
    };
    let (mut depth, mut at) = (1, 2);
    while depth > 0 && at < sql.len() {
        let rest = &sql.as_bytes()[at..];
        at += match rest {
            [b'*', b'/', ..] => {
                depth -= 1;
                2
            }
            [b'/', b'*', ..] if nests => {
                depth += 1;
                2
            }
            _ => 1,
        };
    }
    at
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
