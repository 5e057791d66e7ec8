//! The crates that generated code needs, as edits of the host's Cargo.toml and crate root.

use super::Part;
use super::edit::Edit;
use crate::database::Database;
use crate::failure::Result;
use crate::host::Host;
use crate::host::manifest::{Need, Wiring};
use crate::options::{Options, Web};
use crate::time_crate::TimeCrate;

/// `has_page`: the package is made to be run, with a page.
pub fn manifest(options: &Options, host: &Host, has_page: bool) -> Result<Part> {
    let mut needs = needs(options, host)?;
    if has_page {
        needs.extend(needs_of_page());
    }
    let Wiring { text, lines } = host.manifest.with(&needs)?;
    let mut part = Part::default();
    if !lines.is_empty() {
        // Nothing else edits Cargo.toml.
        part.edits.push(Edit::new("Cargo.toml", lines, move |_| Ok(Some(text.clone()))));
    }
    if let Some(name) = &options.sqlx_name {
        part.edits.push(Edit::external_crate(&host.krate.root, format!("extern crate {name} as sqlx;")));
    }
    Ok(part)
}

/// The crates that the files of a new package with a page name.
fn needs_of_page() -> [Need; 4] {
    let need = |name, version, minimum, features| Need { name, version, minimum, features, dev: false };
    [
        need("async-openai", "0.43", "0.43.0", &["byot", "chat-completion", "rustls-no-provider"]),
        need("rustls", "0.23", "0.23.0", &["ring", "std", "tls12"]),
        need("tokio", "1.40", "1.40.0", &["net", "signal"]),
        need("tracing-subscriber", "0.3", "0.3.0", &[]),
    ]
}

/// The crates that the generated code names.
fn needs(options: &Options, host: &Host) -> Result<Vec<Need>> {
    let need = |name, version, minimum, features| Need { name, version, minimum, features, dev: false };
    // sqlx 0.9 needs Rust 1.94.
    let is_old = host.manifest.rust_version().is_some_and(|version| (version.major, version.minor) < (1, 94));
    let sqlx = if is_old { "0.8" } else { "0.9" };
    let oldest_sqlx = options.database.oldest_sqlx();
    let time = match options.time_crate {
        TimeCrate::Chrono => need("chrono", "0.4", "0.4.31", &["clock", "serde", "std"] as &[_]),
        TimeCrate::Time => need("time", "0.3.36", "0.3.36", &["formatting", "parsing", "std"]),
    };
    match options.database {
        Database::Sqlite => {
            host.manifest.refuse_second_sqlite(host.manifest.sqlx_to_use(oldest_sqlx)?.unwrap_or(sqlx))?;
        }
        Database::Postgres => {}
    }
    let mut needs = vec![
        time,
        need("serde", "1.0", "1.0.0", &["derive"]),
        need("serde_json", "1.0", "1.0.0", &["float_roundtrip"]),
        need(
            "sqlx",
            sqlx,
            oldest_sqlx,
            match (options.database, options.time_crate) {
                (Database::Sqlite, TimeCrate::Chrono) => {
                    &["chrono", "derive", "json", "runtime-tokio", "sqlite", "uuid"]
                }
                (Database::Sqlite, TimeCrate::Time) => &["derive", "json", "runtime-tokio", "sqlite", "time", "uuid"],
                (Database::Postgres, TimeCrate::Chrono) => {
                    &["chrono", "derive", "json", "postgres", "runtime-tokio", "uuid"]
                }
                (Database::Postgres, TimeCrate::Time) => {
                    &["derive", "json", "postgres", "runtime-tokio", "time", "uuid"]
                }
            },
        ),
        need("thiserror", "2.0", "1.0.0", &[]),
        need("tracing", "0.1", "0.1.0", &[]),
        need("uuid", "1.10", "1.10.0", &["serde", "v7"]),
    ];
    if options.sea_orm {
        let features: &[_] = match options.database {
            Database::Sqlite => &["sqlx-sqlite"],
            Database::Postgres => &["sqlx-postgres"],
        };
        needs.push(need("sea-orm", "1.1", "0.12.0", features));
    }
    if options.web == Web::Axum {
        needs.push(need("axum", "0.8", "0.8.0", &["json", "original-uri", "query", "tokio"]));
        needs.push(need("futures-util", "0.3", "0.3.0", &[]));
    }
    let tokio: &[_] = match options.web {
        Web::None => &["rt", "sync", "time"],
        Web::Axum => &["macros", "rt", "sync", "time"],
    };
    if host.is_new() {
        needs.push(need("tokio", "1.40", "1.40.0", &["macros", "rt-multi-thread"]));
        needs.push(need("tokio", "1.40", "1.40.0", tokio));
        needs.push(need("sqlx", sqlx, oldest_sqlx, &["macros", "migrate"]));
    } else {
        needs.push(need("tokio", "1.40", "1.40.0", tokio));
        if options.tests {
            let dev = need("tokio", "1.40", "1.40.0", &["macros", "rt-multi-thread"]);
            needs.push(Need { dev: true, ..dev });
        }
    }
    Ok(needs)
}
