//! The crates that generated code needs, as edits of the host's Cargo.toml and crate root.

use super::Part;
use super::edit::Edit;
use crate::database::Database;
use crate::failure::{Failure, Result};
use crate::host::Host;
use crate::host::manifest::{LIBRARY, Need, Shared, Wiring};
use crate::options::{Options, Web};

/// `has_page`: the package is made to be run, with a page.
pub fn manifest(options: &Options, host: &Host, has_page: bool) -> Result<Part> {
    if host.package == LIBRARY {
        let what = format!("Cargo.toml: this package is called `{LIBRARY}`, as the library that generated code names");
        return Err(Failure::usage(what).help("give it another name"));
    }
    host.manifest.refuse_old_rust()?;
    let mut needs = needs(options, host);
    if has_page {
        needs.extend(needs_of_page());
    }
    if options.web == Web::Axum {
        // The scope is an extractor of the axum that the library's routes are for.
        host.manifest.refuse_old_crate(&need("axum", "0.8", "0.8.0", &[]))?;
    }
    let Wiring { text, lines, workspace } = host.manifest.with(&needs)?;
    let mut part = Part::default();
    if !lines.is_empty() || workspace.is_some() {
        host.refuse_unresolvable(&text, workspace.as_ref().map(|shared| shared.text.as_str()))?;
    }
    // Nothing else edits these files.
    if !lines.is_empty() {
        part.edits.push(Edit::new("Cargo.toml", lines, move |_| Ok(Some(text.clone()))));
    }
    if let Some(Shared { path, text, line }) = workspace {
        part.edits.push(Edit::new(host.relative(&path), vec![line], move |_| Ok(Some(text.clone()))));
    }
    if let Some(name) = host.manifest.library_name() {
        part.edits.push(Edit::external_crate(&host.krate.root, format!("extern crate {name} as {LIBRARY};")));
    }
    Ok(part)
}

fn need(name: &'static str, version: &'static str, minimum: &'static str, features: &'static [&'static str]) -> Need {
    Need { name, version, minimum, features, source: Vec::new(), dev: false }
}

/// The crates that the files of a new package with a page name.
fn needs_of_page() -> [Need; 5] {
    [
        need("axum", "0.8", "0.8.0", &["form", "http1", "json", "tokio"]),
        need("futures-util", "0.3", "0.3.0", &[]),
        need("tokio", "1.40", "1.40.0", &["net", "signal", "time"]),
        need("tracing", "0.1", "0.1.0", &[]),
        need("tracing-subscriber", "0.3", "0.3.0", &[]),
    ]
}

/// The crates that the generated code names.
fn needs(options: &Options, host: &Host) -> Vec<Need> {
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    let features: &[_] = match (options.database, options.web, host.is_new()) {
        (Database::Sqlite, Web::None, _) => &["sqlite"],
        (Database::Sqlite, Web::Axum, false) => &["axum", "sqlite"],
        (Database::Sqlite, Web::Axum, true) => &["axum", "openai", "sqlite"],
        (Database::Postgres, Web::None, _) => &["postgres"],
        (Database::Postgres, Web::Axum, false) => &["axum", "postgres"],
        (Database::Postgres, Web::Axum, true) => &["axum", "openai", "postgres"],
    };
    let library = need(LIBRARY, VERSION, VERSION, features);
    let mut needs = vec![
        Need { source: options.library.source(), ..library },
        need("serde", "1.0", "1.0.0", &["derive"]),
        need("serde_json", "1.0", "1.0.0", &[]),
        need("uuid", "1.10", "1.10.0", &["serde", "v7"]),
    ];
    let tokio = need("tokio", "1.40", "1.40.0", &["macros", "rt-multi-thread"]);
    if host.is_new() {
        let sqlx: &[_] = match options.database {
            Database::Sqlite => &["macros", "migrate", "runtime-tokio", "sqlite"],
            Database::Postgres => &["macros", "migrate", "postgres", "runtime-tokio"],
        };
        needs.extend([tokio, need("sqlx", "0.9", "0.9.0", sqlx)]);
    } else if options.tests {
        needs.push(Need { dev: true, ..tokio });
    }
    needs
}
