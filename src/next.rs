//! What is really left to do after a run, as data. `report` words it.

use camino::{Utf8Path, Utf8PathBuf};

use crate::database::Database;
use crate::failure::Result;
use crate::host::migrations::mention::Mention;
use crate::host::migrations::{Place, Tool, is_of, resolved};
use crate::host::{Host, modules};
use crate::memory::Last;
use crate::options::{Options, ScopeOrigin, Web};
use crate::plan::Plan;
use crate::templates;

#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Go to the new package.
    Enter(Utf8PathBuf),
    /// Name a database for the new package.
    NameDatabase {
        package: String,
    },
    Test,
    Run {
        /// The new package has a page.
        serves: bool,
    },
    /// Build or run the host, which has its migrations by a call in `file`.
    Embedded {
        runs: bool,
        manifest: Option<Utf8PathBuf>,
        call: &'static str,
        file: Utf8PathBuf,
    },
    /// Run the migrations in a directory with the command of their tool.
    Migrate {
        command: Command,
        source: Utf8PathBuf,
        creates: bool,
    },
    /// Say who is asking: the scope is an extractor.
    Extract {
        scope: String,
    },
    /// Serve the routes.
    Mount,
    /// Remove what is only for the page, which is gone.
    RemoveExample {
        files: Vec<String>,
        root: Utf8PathBuf,
    },
    /// Later: drop the columns of former owners.
    DropOldOwner {
        context: String,
        columns: Vec<String>,
    },
}

/// A command that runs migrations, with the directory that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Sqlx,
    /// It finds the directory by itself.
    Diesel,
    DieselIn,
    Refinery,
    /// Of the crate that has the migrations.
    SeaOrm,
    /// The binary of that crate.
    SeaOrmBinary,
    /// Through the alias that new applications have.
    Loco,
    LocoBinary,
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
        steps.extend([Step::Test, Step::Run { serves: options.web == Web::Axum }]);
    } else if migrates {
        steps.push(match embedded(host, path, options)? {
            Some(step) => step,
            None => {
                let (command, source) = command(host, path, options)?;
                Step::Migrate { command, source, creates: last.schema.is_none() }
            }
        });
    }
    let had_web = last.resolved.as_ref().is_some_and(|before| !before.web.is_none());
    if options.web == Web::Axum && !had_web && !plan.has_page {
        let scope = options.scope.rust();
        steps.extend((options.scope_origin != ScopeOrigin::Context).then_some(Step::Extract { scope }));
        steps.push(Step::Mount);
    }
    if options.web == Web::None && had_web {
        let files = templates::example::modules(options).into_iter().map(|(name, _)| format!("src/{name}.rs"));
        let is_left = |file: &String| {
            let file = Utf8Path::new(file);
            last.files.once.contains_key(file) && host.tree.is_file(file)
        };
        let files: Vec<_> = files.filter(is_left).collect();
        let root = host.krate.root.clone();
        steps.extend((!files.is_empty()).then_some(Step::RemoveExample { files, root }));
    }
    if migrates && !plan.former_owners.is_empty() {
        steps.push(Step::DropOldOwner { context: options.context.key(), columns: plan.former_owners.clone() });
    }
    Ok(steps)
}

/// The host's own code runs its migrations, or has them in its binary.
fn embedded(host: &Host, path: &Utf8Path, options: &Options) -> Result<Option<Step>> {
    let tool = &options.found.tool;
    let manifest = (path != ".").then(|| path.join("Cargo.toml"));
    if let Tool::SeaOrm { migrator } = tool {
        let running = if host.runs && !is_loco(host) { host.mentions("Migrator::up(")? } else { None };
        let is_own = package_of(host, migrator).as_str().is_empty();
        return Ok(match running {
            Some(file) => Some(Step::Embedded { runs: true, manifest, call: "Migrator::up", file }),
            None if is_own => Some(Step::Embedded { runs: false, manifest, call: "Migrator", file: migrator.clone() }),
            None => None,
        });
    }
    let mut mentions = host.migration_mentions()?.into_iter().filter(|mention| {
        !mention.is_test && is_of(mention.call, tool) && resolved(host, mention) == options.migrations
    });
    Ok(mentions.next().map(|Mention { file, call, runs, .. }| Step::Embedded {
        runs: host.runs && runs,
        manifest,
        call: call.shown(),
        file,
    }))
}

/// The command of the tool, and the directory for it.
fn command(host: &Host, path: &Utf8Path, options: &Options) -> Result<(Command, Utf8PathBuf)> {
    let from_here = |directory: &Utf8Path| modules::clean(&path.join(directory));
    let source = from_here(&options.migrations);
    Ok(match &options.found.tool {
        Tool::Sqlx => (Command::Sqlx, source),
        Tool::Diesel if path == "." && Place::of_host(host)?.directory == options.migrations => {
            (Command::Diesel, source)
        }
        Tool::Diesel => (Command::DieselIn, source),
        Tool::Refinery => (Command::Refinery, source),
        Tool::SeaOrm { .. } if is_loco(host) => {
            let settings = host.tree.read(Utf8Path::new(".cargo/config.toml")).ok().flatten().unwrap_or_default();
            (if settings.contains("loco =") { Command::Loco } else { Command::LocoBinary }, source)
        }
        Tool::SeaOrm { migrator } => {
            let package = package_of(host, migrator);
            let is_binary = host.tree.is_file(&package.join("src/main.rs"));
            (if is_binary { Command::SeaOrmBinary } else { Command::SeaOrm }, from_here(package))
        }
    })
}

/// The directory of the package that a file is in.
fn package_of<'a>(host: &Host, file: &'a Utf8Path) -> &'a Utf8Path {
    let mut above = file.ancestors().skip(1);
    above.find(|directory| host.tree.is_file(&directory.join("Cargo.toml"))).unwrap_or(Utf8Path::new(""))
}

fn is_loco(host: &Host) -> bool {
    host.manifest.features("loco-rs").is_some()
}
