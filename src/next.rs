//! What is really left to do after a run: commands, each with its reason.

use camino::Utf8Path;
use serde::Serialize;

use crate::database::Database;
use crate::failure::Result;
use crate::host::{Host, modules};
use crate::memory::Last;
use crate::options::Options;
use crate::plan::Plan;

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    pub command: String,
    pub why: String,
}

pub fn steps(host: &Host, path: &Utf8Path, options: &Options, plan: &Plan, last: &Last) -> Result<Vec<Step>> {
    let migrate = !plan.migrations.is_empty();
    let step = |command: &str, why: &str| Step { command: command.to_owned(), why: why.to_owned() };
    let mut steps = Vec::new();
    if host.is_new() {
        if path != "." {
            steps.push(step(&format!("cd {}", quoted(path)), "the new package"));
        }
        if options.database == Database::Postgres {
            let url = format!("export DATABASE_URL=postgres://localhost/{}", host.package);
            steps.push(step(&url, "a database of yours whose role may create others"));
        }
        steps.push(step("cargo test", "proves the layer"));
        steps.push(step("cargo run", "shows it at work"));
    } else if migrate {
        match host.mentions("migrate!")? {
            Some(file) => {
                let (command, verb) = if host.runs { ("cargo run", "runs") } else { ("cargo build", "embeds") };
                let manifest = path.join("Cargo.toml");
                let place = if path == "." { String::new() } else { format!(" --manifest-path {}", quoted(&manifest)) };
                let why = format!("{verb} the new migration, by `migrate!` in {file}");
                steps.push(step(&format!("{command}{place}"), &why));
            }
            None => {
                let source = modules::clean(&path.join(&options.migrations));
                steps.push(step(
                    &format!("sqlx migrate run --source {}", quoted(&source)),
                    if last.schema.is_none() {
                        "creates the tables in DATABASE_URL"
                    } else {
                        "changes the tables in DATABASE_URL"
                    },
                ));
            }
        }
    }
    if migrate && !plan.former_owners.is_empty() {
        let command = format!("sagents update {} --drop-old-owner", options.context.key());
        steps.push(step(&command, &format!("later, when {} is not needed any more", plan.former_owners.join(", "))));
    }
    Ok(steps)
}

/// A path as a shell takes it.
fn quoted(path: &Utf8Path) -> String {
    let plain = path.as_str().chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    if plain { path.to_string() } else { format!("'{}'", path.as_str().replace('\'', "'\\''")) }
}
