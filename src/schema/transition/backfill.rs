//! The expression that `--backfill` gives. It becomes a part of a statement, so it must be one expression and nothing
//! else; whether it makes sense, the database tells.

use sqlparser::ast::Expr;
use sqlparser::dialect::{Dialect, PostgreSqlDialect, SQLiteDialect};
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, Tokenizer, Whitespace};

use crate::database::Database;
use crate::failure::{Failure, Result};
use crate::names;

/// Refuses what is not exactly one SQL expression.
pub fn check(text: &str, database: Database) -> Result<()> {
    let refuse = |what: &str| Err(refusal(text, what));
    if text.trim().is_empty() {
        return refuse("it is empty");
    }
    if let Some(odd) = text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
        return refuse(&format!("it contains {}", names::show(odd)));
    }
    let tokens = match Tokenizer::new(&*dialect(database), text).tokenize() {
        Ok(tokens) => tokens,
        Err(error) => return refuse(&error.to_string()),
    };
    for (place, token) in tokens.iter().enumerate() {
        match token {
            Token::SemiColon => return refuse("it contains a `;`"),
            Token::Whitespace(Whitespace::SingleLineComment { .. } | Whitespace::MultiLineComment(_)) => {
                return refuse("it contains a comment");
            }
            Token::Placeholder(_) => return refuse("it contains a parameter"),
            Token::Colon | Token::AtSign if matches!(tokens.get(place + 1), Some(Token::Word(_))) => {
                return refuse("it contains a parameter");
            }
            _ => {}
        }
    }
    match parse(text, database) {
        Ok(_) => Ok(()),
        Err(reason) => refuse(&reason),
    }
}

/// Whether an expression stands in parentheses already.
pub(super) fn is_enclosed(text: &str, database: Database) -> bool {
    matches!(parse(text, database), Ok(Expr::Nested(_) | Expr::Subquery(_)))
}

fn parse(text: &str, database: Database) -> Result<Expr, String> {
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
         `(SELECT team_id FROM users WHERE users.id = user_id)`"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str, database: Database) -> String {
        check(text, database).expect_err(text).to_string()
    }

    #[test]
    fn an_expression_is_accepted() {
        for text in [
            "7",
            "user_id",
            "(SELECT team_id FROM users WHERE users.id = user_id)",
            "coalesce((SELECT t.id FROM teams AS t WHERE t.name = 'it''s; -- one'), sagents_conversations.user_id)",
            "CASE WHEN user_id < 10 THEN 1 ELSE 2 END",
            "json_extract(scope, '$.id')",
        ] {
            for database in [Database::Sqlite, Database::Postgres] {
                check(text, database).unwrap();
            }
        }
        check("unhex(printf('%032x', user_id))", Database::Sqlite).unwrap();
        check("x'00112233445566778899aabbccddeeff'", Database::Sqlite).unwrap();
        check("(scope->>'id')::bigint", Database::Postgres).unwrap();
        check("(scope @> '{}')::int", Database::Postgres).unwrap();
        check("md5(user_id::text)::uuid", Database::Postgres).unwrap();
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
        help: give an expression on a row of the conversations, for example `(SELECT team_id FROM users WHERE users.id = user_id)`
        "#);
        insta::assert_snapshot!(refused("SELECT id FROM teams", Database::Postgres), @r#"
        --backfill: `SELECT id FROM teams` is not one SQL expression: `id` is too much
        help: put the query in parentheses: `(SELECT …)`
        "#);
        insta::assert_snapshot!(refused("1 2", Database::Postgres), @r#"
        --backfill: `1 2` is not one SQL expression: `2` is too much
        help: give an expression on a row of the conversations, for example `(SELECT team_id FROM users WHERE users.id = user_id)`
        "#);
    }
}
