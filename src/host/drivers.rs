//! What shows the database of a host: the crates that talk to one, and the URL in `.env`. Only schemes of URLs are read,
//! never what is behind them.

use std::collections::BTreeSet;

use camino::Utf8Path;

use super::Host;
use super::manifest::Sqlx;
use crate::database::Database;
use crate::tree::Tree;

/// A database, supported or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Product {
    Sqlite,
    Postgres,
    Mysql,
}

impl Product {
    pub fn supported(self) -> Option<Database> {
        match self {
            Self::Sqlite => Some(Database::Sqlite),
            Self::Postgres => Some(Database::Postgres),
            Self::Mysql => None,
        }
    }
}

/// One place that names databases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// A crate, or `DATABASE_URL`.
    pub what: &'static str,
    pub file: &'static str,
    pub products: BTreeSet<Product>,
}

/// Every place that names databases, the one that counts most first. A crate that is there may name none.
pub fn evidence(host: &Host, sqlx: &Sqlx) -> Vec<Evidence> {
    let of_sqlx = [(sqlx.sqlite, Product::Sqlite), (sqlx.postgres, Product::Postgres), (sqlx.mysql, Product::Mysql)];
    let of_sqlx: BTreeSet<_> = of_sqlx.into_iter().filter_map(|(has, product)| has.then_some(product)).collect();
    let mut evidence = Vec::new();
    // Without a feature for a database it talks to none.
    if !of_sqlx.is_empty() {
        evidence.push(Evidence { what: "sqlx", file: "Cargo.toml", products: of_sqlx });
    }
    for (what, crates) in CRATES {
        let features = crates.iter().filter_map(|(name, products)| Some((host.manifest.features(name)?, *products)));
        let products: Vec<BTreeSet<_>> = features
            .map(|(features, products)| {
                let named = products.iter().filter(|(feature, _)| feature.is_empty() || features.contains(*feature));
                named.map(|(_, product)| *product).collect()
            })
            .collect();
        if !products.is_empty() {
            let products = products.into_iter().flatten().collect();
            evidence.push(Evidence { what, file: "Cargo.toml", products });
        }
    }
    let workspace = Tree::new(host.boundary.clone());
    for (what, file, tree, product) in [
        ("DATABASE_URL", ".env", &host.tree, of_environment as fn(&str) -> Option<Product>),
        ("DATABASE_URL", ".env", &workspace, of_environment),
        ("uri", "config/development.yaml", &host.tree, of_loco),
    ] {
        // What cannot be read is no evidence.
        let text = tree.read(Utf8Path::new(file)).ok().flatten();
        if let Some(product) = text.as_deref().and_then(product) {
            evidence.push(Evidence { what, file, products: BTreeSet::from([product]) });
        }
    }
    evidence
}

/// The crates beside sqlx that talk to a database, as one kind each, with the features that name it; an empty one is
/// always on.
const CRATES: &[(&str, &[(&str, Features)])] = &[
    ("sea-orm", &[("sea-orm", SEA_ORM), ("sea-orm-migration", SEA_ORM)]),
    ("diesel", &[("diesel", DIESEL), ("diesel-async", DIESEL)]),
    ("tokio-postgres", &[("tokio-postgres", POSTGRES), ("postgres", POSTGRES), ("deadpool-postgres", POSTGRES)]),
    ("rusqlite", &[("rusqlite", SQLITE), ("tokio-rusqlite", SQLITE)]),
    ("mysql", &[("mysql", MYSQL), ("mysql_async", MYSQL)]),
];

type Features = &'static [(&'static str, Product)];

const SEA_ORM: Features =
    &[("sqlx-sqlite", Product::Sqlite), ("sqlx-postgres", Product::Postgres), ("sqlx-mysql", Product::Mysql)];
const DIESEL: Features = &[
    ("sqlite", Product::Sqlite),
    ("postgres", Product::Postgres),
    ("postgres_backend", Product::Postgres),
    ("mysql", Product::Mysql),
    ("mysql_backend", Product::Mysql),
];
const POSTGRES: Features = &[("", Product::Postgres)];
const SQLITE: Features = &[("", Product::Sqlite)];
const MYSQL: Features = &[("", Product::Mysql)];

/// What `DATABASE_URL` in a `.env` is for; the last line counts.
fn of_environment(text: &str) -> Option<Product> {
    let lines = text.lines().map(str::trim).map(|line| line.strip_prefix("export ").unwrap_or(line).trim_start());
    let mut values = lines.filter_map(|line| line.strip_prefix("DATABASE_URL")?.trim_start().strip_prefix('='));
    of_url(values.next_back()?.trim().trim_matches(['"', '\'']))
}

/// What the `uri` in the configuration of a Loco application is for. The URL may be inside of an expression.
fn of_loco(text: &str) -> Option<Product> {
    let line = text.lines().map(str::trim).find_map(|line| line.strip_prefix("uri:"))?;
    line.split(|c: char| c.is_whitespace() || "\"'{}(),=".contains(c)).find_map(of_scheme)
}

fn of_url(url: &str) -> Option<Product> {
    let is_file = || [".db", ".sqlite", ".sqlite3"].iter().any(|end| url.ends_with(end)) && !url.contains("://");
    of_scheme(url).or_else(|| is_file().then_some(Product::Sqlite))
}

fn of_scheme(url: &str) -> Option<Product> {
    match url.split_once(':')?.0.to_ascii_lowercase().as_str() {
        "postgres" | "postgresql" => Some(Product::Postgres),
        "sqlite" | "file" => Some(Product::Sqlite),
        "mysql" | "mariadb" => Some(Product::Mysql),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_of_a_url_names_the_database() {
        for (text, expected) in [
            ("DATABASE_URL=postgres://localhost/app", Some(Product::Postgres)),
            ("# DATABASE_URL=mysql://x\nexport DATABASE_URL = \"postgresql://u:p@h/d\"\n", Some(Product::Postgres)),
            ("DATABASE_URL='sqlite:app.db?mode=rwc'", Some(Product::Sqlite)),
            ("DATABASE_URL=./data/app.sqlite3", Some(Product::Sqlite)),
            ("DATABASE_URL=mysql://localhost/app", Some(Product::Mysql)),
            ("DATABASE_URL=mysql://x\nDATABASE_URL=sqlite::memory:", Some(Product::Sqlite)),
            ("DATABASE_URL=$OTHER\n", None),
            ("TEST_DATABASE_URL=postgres://localhost/app\nDATABASE_URLS=mysql://x", None),
        ] {
            assert_eq!(of_environment(text), expected, "{text}");
        }
    }

    #[test]
    fn the_configuration_of_loco_has_its_url_in_an_expression() {
        let text = "database:\n  # Database connection URI\n  \
                    uri: {{ get_env(name=\"DATABASE_URL\", default=\"postgres://loco:loco@localhost:5432/app\") }}\n";
        assert_eq!(of_loco(text), Some(Product::Postgres));
        assert_eq!(of_loco("  uri: sqlite://app.sqlite?mode=rwc\n"), Some(Product::Sqlite));
    }
}
