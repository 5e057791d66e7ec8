//! Which database a context is for: as it is given, else as the host shows it.

use std::collections::BTreeSet;

use crate::database::{Database, Dialect as _};
use crate::failure::{Failure, Result};
use crate::host::drivers::{Evidence, Product};

/// A database, and what shows that it is the host's; nothing if it was given, or is the default.
#[derive(Debug, PartialEq, Eq)]
pub struct Choice {
    pub database: Database,
    pub shown_by: Option<String>,
}

/// The first place that names one database decides. A host that shows none gets `SQLite`.
pub fn choose(given: Option<&str>, evidence: &[Evidence]) -> Result<Choice> {
    if let Some(name) = given {
        return Ok(Choice { database: Database::parse(name)?, shown_by: None });
    }
    let mut possible: Option<BTreeSet<Product>> = None;
    for Evidence { what, file, products } in evidence {
        let named: Vec<_> = match &possible {
            Some(possible) => products.intersection(possible).collect(),
            None => products.iter().collect(),
        };
        match named.as_slice() {
            [] => {}
            [product] => {
                return match product.supported() {
                    Some(database) => Ok(Choice { database, shown_by: Some(format!("{what} in {file}")) }),
                    None => Err(Failure::decision(format!(
                        "{}, and this version generates for SQLite and PostgreSQL",
                        if *file == "Cargo.toml" {
                            format!("{what} is used with MySQL here")
                        } else {
                            format!("{what} in {file} is for MySQL")
                        }
                    ))
                    .help("`--database sqlite` or `--database postgres` adds one beside it")),
                };
            }
            several => possible = Some(several.iter().map(|product| **product).collect()),
        }
    }
    let help = "choose one with `--database sqlite` or `--database postgres`";
    match evidence.iter().find(|evidence| evidence.products.len() != 1) {
        Some(Evidence { what, products, .. }) if !products.is_empty() => {
            Err(Failure::decision(format!("{what} is used with several databases here")).help(help))
        }
        Some(Evidence { what, file, .. }) => Err(Failure::decision(format!(
            "which database this is for is not known: {what} in {file} has no feature that names one, \
             and neither sqlx nor DATABASE_URL in .env does"
        ))
        .help(help)),
        None => Ok(Choice { database: Database::Sqlite, shown_by: None }),
    }
}

/// Whether the host shows a database, and whether it shows another one.
pub fn shown(evidence: &[Evidence], database: Database) -> (bool, bool) {
    let mut products = evidence.iter().flat_map(|evidence| &evidence.products).map(|product| product.supported());
    let own = products.clone().any(|product| product == Some(database));
    (own, products.any(|product| product != Some(database)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(evidence: &[(&'static str, &[Product])]) -> String {
        let evidence: Vec<_> = evidence
            .iter()
            .map(|(what, products)| Evidence { what, file: "file", products: products.iter().copied().collect() })
            .collect();
        match choose(None, &evidence) {
            Ok(Choice { database, shown_by }) => format!("{} {}", database.name(), shown_by.unwrap_or_default()),
            Err(failure) => failure.to_string().lines().next().unwrap_or_default().to_owned(),
        }
    }

    #[test]
    fn the_first_place_that_names_one_database_decides() {
        use Product::{Mysql, Postgres, Sqlite};
        for (evidence, expected) in [
            (&[] as &[(&str, &[Product])], "sqlite "),
            (&[("sqlx", &[Postgres]), ("rusqlite", &[Sqlite])], "postgres sqlx in file"),
            (&[("sea-orm", &[Postgres, Sqlite]), ("DATABASE_URL", &[Postgres])], "postgres DATABASE_URL in file"),
            (
                &[("sea-orm", &[Mysql, Postgres]), ("rusqlite", &[Sqlite])],
                "sea-orm is used with several databases here",
            ),
            (&[("sqlx", &[Mysql, Postgres, Sqlite])], "sqlx is used with several databases here"),
            (&[("diesel", &[]), ("DATABASE_URL", &[Sqlite])], "sqlite DATABASE_URL in file"),
            (
                &[("diesel", &[])],
                "which database this is for is not known: diesel in file has no feature that names one, and neither \
                 sqlx nor DATABASE_URL in .env does",
            ),
            (
                &[("sqlx", &[Mysql]), ("rusqlite", &[Sqlite])],
                "sqlx in file is for MySQL, and this version generates for SQLite and PostgreSQL",
            ),
        ] {
            assert_eq!(chosen(evidence), expected);
        }
    }
}
