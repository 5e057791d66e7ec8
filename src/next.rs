//! What is really left to do after a run, as data. `report` words it.

use camino::{Utf8Path, Utf8PathBuf};

use crate::database::Database;
use crate::failure::Result;
use crate::host::{Host, modules};
use crate::memory::Last;
use crate::options::Options;
use crate::plan::Plan;

#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Go to the new package.
    Enter(Utf8PathBuf),
    /// Name a database for the new package.
    NameDatabase {
        package: String,
    },
    Test,
    Run,
    /// Build or run the host, which has its migrations by `migrate!` in `file`.
    Embedded {
        runs: bool,
        manifest: Option<Utf8PathBuf>,
        file: Utf8PathBuf,
    },
    /// Run the migrations in a directory.
    Migrate {
        source: Utf8PathBuf,
        creates: bool,
    },
    /// Later: drop the columns of former owners.
    DropOldOwner {
        context: String,
        columns: Vec<String>,
    },
}

pub fn steps(host: &Host, path: &Utf8Path, options: &Options, plan: &Plan, last: &Last) -> Result<Vec<Step>> {
    let migrates = !plan.migrations.is_empty();
    let mut steps = Vec::new();
    if host.is_new() {
        steps.extend((path != ".").then(|| Step::Enter(path.to_owned())));
        steps.extend(match options.database {
            Database::Sqlite => None,
            Database::Postgres => Some(Step::NameDatabase { package: host.package.clone() }),
        });
        steps.extend([Step::Test, Step::Run]);
    } else if migrates {
        steps.push(match host.mentions("migrate!")? {
            Some(file) => {
                let manifest = (path != ".").then(|| path.join("Cargo.toml"));
                Step::Embedded { runs: host.runs, manifest, file }
            }
            None => {
                let source = modules::clean(&path.join(&options.migrations));
                Step::Migrate { source, creates: last.schema.is_none() }
            }
        });
    }
    if migrates && !plan.former_owners.is_empty() {
        steps.push(Step::DropOldOwner { context: options.context.key(), columns: plan.former_owners.clone() });
    }
    Ok(steps)
}
