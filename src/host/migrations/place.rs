//! Where a host's own tool looks for migrations, and which tool that is: by what the code names, by the crates that it
//! depends on, and by what is there.

use camino::{Utf8Path, Utf8PathBuf};
use toml_edit::{DocumentMut, Item};

use super::file::Tool;
use super::mention::{Call, Mention};
use super::migrator::Migrator;
use crate::failure::{Failure, Result};
use crate::host::{Host, modules};
use crate::tree::FileKind;

/// A directory of migrations, relative to the package, with what runs them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub directory: Utf8PathBuf,
    pub tool: Tool,
}

/// Where most tools look.
pub const DEFAULT_DIRECTORY: &str = "migrations";

impl Place {
    /// Where the host has its migrations, or would have them.
    pub fn of_host(host: &Host) -> Result<Self> {
        let mentions = host.migration_mentions()?;
        if let Some(directory) = named(host, &mentions, &Tool::Sqlx)? {
            return Ok(Self { directory, tool: Tool::Sqlx });
        }
        if let Some(migrator) = migrator(host)? {
            let directory = Migrator::directory(&migrator);
            return Ok(Self { directory, tool: Tool::SeaOrm { migrator } });
        }
        let (directory, tool) = if let Some(directory) = of_diesel(host, &mentions)? {
            (directory, Tool::Diesel)
        } else if host.manifest.features("refinery").is_some() {
            (named(host, &mentions, &Tool::Refinery)?.unwrap_or(DEFAULT_DIRECTORY.into()), Tool::Refinery)
        } else {
            (DEFAULT_DIRECTORY.into(), Tool::Sqlx)
        };
        let tool = Tool::seen(&host.tree, &directory)?.unwrap_or(tool);
        Ok(Self { directory, tool })
    }

    /// A directory that was named. What is there shows the tool; if nothing is, it is the one that the host has.
    pub fn named(directory: Utf8PathBuf, host: &Host) -> Result<Self> {
        let inside = ["mod.rs", "lib.rs", "src/lib.rs"].map(|file| directory.join(file));
        for file in inside.into_iter().chain([format!("{directory}.rs").into()]) {
            let text = host.tree.read(&file).ok().flatten();
            if text.is_some_and(|text| Migrator::read(&text).is_some()) {
                return Ok(Self { directory: Migrator::directory(&file), tool: Tool::SeaOrm { migrator: file } });
            }
        }
        let tool = match Tool::seen(&host.tree, &directory)? {
            Some(tool) => tool,
            None => match Self::of_host(host)?.tool {
                // A list of migrations is where it is.
                Tool::SeaOrm { .. } => Tool::Sqlx,
                tool => tool,
            },
        };
        Ok(Self { directory, tool })
    }
}

/// Whether a call is one of a tool's.
pub fn is_of(call: Call, tool: &Tool) -> bool {
    match tool {
        Tool::Sqlx => matches!(call, Call::Migrate | Call::Migrator | Call::Test),
        Tool::Diesel | Tool::Refinery => call == Call::EmbedMigrations,
        Tool::SeaOrm { .. } => false,
    }
}

/// The directory that a call names, relative to the package.
pub fn resolved(host: &Host, mention: &Mention) -> Utf8PathBuf {
    let Some(written) = &mention.directory else {
        return match mention.call {
            Call::EmbedMigrations => DEFAULT_DIRECTORY.into(),
            Call::Migrate | Call::Migrator | Call::Test => {
                setting(host, Utf8Path::new("sqlx.toml"), "migrate", "migrations-dir")
                    .unwrap_or(DEFAULT_DIRECTORY.into())
            }
        };
    };
    let written = Utf8Path::new(written.trim_start_matches('/').trim_end_matches('/'));
    let from_package = modules::clean(written);
    if mention.call != Call::Migrator || host.tree.kind(&from_package) == FileKind::Directory {
        return from_package;
    }
    // A program that runs in a workspace's directory names it from there.
    match above(host)
        .map(|up| modules::clean(&up.join(written)))
        .find(|path| host.tree.kind(path) == FileKind::Directory)
    {
        Some(path) => path,
        None => from_package,
    }
}

/// The directory that calls of a tool name. Code that is for tests counts only if nothing else does.
fn named(host: &Host, mentions: &[Mention], tool: &Tool) -> Result<Option<Utf8PathBuf>> {
    for is_test in [false, true] {
        let calls = mentions.iter().filter(|mention| mention.is_test == is_test && is_of(mention.call, tool));
        let mut places: Vec<_> = calls.map(|mention| (resolved(host, mention), mention)).collect();
        places.dedup_by(|one, other| one.0 == other.0);
        match places.as_slice() {
            [] => {}
            [(directory, _)] => return Ok(Some(directory.clone())),
            several => {
                let shown: Vec<_> =
                    several.iter().map(|(directory, mention)| format!("{directory} ({})", mention.file)).collect();
                return Err(Failure::decision(format!(
                    "this project names several directories of migrations: {}",
                    shown.join(", ")
                ))
                .help("choose one with --migrations"));
            }
        }
    }
    Ok(None)
}

/// The directory of diesel's migrations, if the host uses it.
fn of_diesel(host: &Host, mentions: &[Mention]) -> Result<Option<Utf8PathBuf>> {
    let is_used = host.manifest.features("diesel").is_some();
    // Those of a workspace are not for members that do not use it.
    let mut settings = above(host).take(if is_used { usize::MAX } else { 1 });
    let settings = settings.find(|up| host.tree.is_file(&up.join("diesel.toml")));
    if settings.is_none() && !is_used {
        return Ok(None);
    }
    if host.manifest.features("diesel_migrations").is_some()
        && let Some(mention) = mentions.iter().find(|mention| mention.call == Call::EmbedMigrations)
        && mention.directory.is_some()
    {
        return named(host, mentions, &Tool::Diesel);
    }
    if let Some(up) = settings {
        let given = setting(host, &up.join("diesel.toml"), "migrations_directory", "dir");
        return Ok(Some(match given {
            // `diesel setup` may have written where it was then.
            Some(path) if path.is_absolute() => {
                path.strip_prefix(host.tree.root()).map_or(up.join(DEFAULT_DIRECTORY), Utf8Path::to_owned)
            }
            Some(path) => modules::clean(&up.join(path)),
            None => up.join(DEFAULT_DIRECTORY),
        }));
    }
    let found =
        above(host).map(|up| up.join(DEFAULT_DIRECTORY)).find(|path| host.tree.kind(path) == FileKind::Directory);
    Ok(Some(found.unwrap_or(DEFAULT_DIRECTORY.into())))
}

/// The file with the host's `Migrator`.
fn migrator(host: &Host) -> Result<Option<Utf8PathBuf>> {
    let mut found = Vec::new();
    for root in &host.migrators {
        for file in host.tree.sources(root.parent().unwrap_or(Utf8Path::new("")))? {
            let text = if file.extension() == Some("rs") { host.tree.read(&file).ok().flatten() } else { None };
            if text.is_some_and(|text| Migrator::read(&text).is_some()) && !found.contains(&file) {
                found.push(file);
            }
        }
    }
    match found.as_slice() {
        [] => Ok(None),
        [file] => Ok(Some(file.clone())),
        several => {
            let shown: Vec<_> = several.iter().map(|file| file.as_str()).collect();
            Err(Failure::decision(format!("this project has several migrators: {}", shown.join(", ")))
                .help("name the directory of one with --migrations"))
        }
    }
}

/// The package's directory, and those above it in its workspace.
fn above(host: &Host) -> impl Iterator<Item = Utf8PathBuf> {
    let inside = host.tree.root().strip_prefix(&host.boundary).map_or(0, |inside| inside.components().count());
    (0..=inside).map(|levels| std::iter::repeat_n("..", levels).collect())
}

/// A path in a file of settings.
fn setting(host: &Host, file: &Utf8Path, table: &str, key: &str) -> Option<Utf8PathBuf> {
    let text = host.tree.read(file).ok().flatten()?;
    let document = text.parse::<DocumentMut>().ok()?;
    Some(Utf8PathBuf::from(document.get(table)?.get(key).and_then(Item::as_str)?))
}
