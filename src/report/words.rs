//! Notes and next steps in words.

use camino::{Utf8Path, Utf8PathBuf};
use serde::Serialize;

use crate::host::git::Ignored;
use crate::memory;
use crate::next::{self, Step};
use crate::note::Note;

/// A step as a person takes it.
#[derive(Debug, Serialize)]
pub struct Command {
    pub command: String,
    pub why: String,
}

pub fn step(step: &Step) -> Command {
    let (command, why) = match step {
        Step::Enter(path) => (format!("cd {}", quoted(path)), "the new package".to_owned()),
        Step::NameDatabase { package } => (
            format!("export DATABASE_URL=postgres://localhost/{package}"),
            "a database of yours whose role may create others".to_owned(),
        ),
        Step::Test => ("cargo test".to_owned(), "runs the generated tests".to_owned()),
        Step::Run { serves: false } => ("cargo run".to_owned(), "runs an example".to_owned()),
        Step::Run { serves: true } => ("cargo run".to_owned(), "serves the page, and prints its address".to_owned()),
        Step::Embedded { runs, manifest, call, file } => {
            let (command, verb) = if *runs { ("cargo run", "runs") } else { ("cargo build", "embeds") };
            let place = manifest.as_ref().map(|path| format!(" --manifest-path {}", quoted(path))).unwrap_or_default();
            (format!("{command}{place}"), format!("{verb} the new migration, by `{call}` in {file}"))
        }
        Step::Migrate { command, source, creates } => {
            let verb = if *creates { "creates" } else { "changes" };
            let source = quoted(source);
            let is_loco = matches!(command, next::Command::Loco | next::Command::LocoBinary);
            let command = match command {
                next::Command::Sqlx => format!("sqlx migrate run --source {source}"),
                next::Command::Diesel => "diesel migration run".to_owned(),
                next::Command::DieselIn => format!("diesel migration run --migration-dir {source}"),
                next::Command::Refinery => format!("refinery migrate -e DATABASE_URL -p {source}"),
                next::Command::SeaOrm => format!("sea-orm-cli migrate up -d {source}"),
                next::Command::SeaOrmBinary => format!("cargo run --manifest-path {source}/Cargo.toml"),
                next::Command::Loco => "cargo loco db migrate".to_owned(),
                next::Command::LocoBinary => "cargo run -- db migrate".to_owned(),
            };
            let place = if is_loco { "the database of its configuration" } else { "DATABASE_URL" };
            (command, format!("{verb} the tables in {place}"))
        }
        Step::Extract { scope } => (
            format!("impl axum::extract::FromRequestParts<S> for {scope}"),
            "says who is asking; 401 for nobody".to_owned(),
        ),
        Step::Mount => (
            "Router::merge(sagents::web::Web::new(conversations, coordinator, agent).router())".to_owned(),
            "serves the routes and the page".to_owned(),
        ),
        Step::RemoveExample { files, root } => {
            (format!("rm {}", files.join(" ")), format!("they are for the page; remove their lines from {root} too"))
        }
        Step::DropOldOwner { context, columns } => (
            format!("sagents update {context} --drop-old-owner"),
            format!("later, when {} is not needed any more", columns.join(", ")),
        ),
    };
    Command { command, why }
}

pub fn note(note: &Note) -> String {
    match note {
        Note::NoForeignKey { migrations, tables } => {
            let tables: Vec<_> = tables.iter().map(|table| format!("`{table}`")).collect();
            format!(
                "Conversations have no foreign key to their owner, because {migrations} has no table {}. \
                 `--owner-table` names another one, or `none`.",
                tables.join(" or ")
            )
        }
        Note::UnknownTable { migrations, table } => format!(
            "{migrations} has no table `{table}`; its key is taken to be `id`. The migration needs it to be there."
        ),
        Note::AssumedType { path, scope, rust_type } => {
            format!("The type of `{path}` in {scope} cannot be seen; it is taken to be {rust_type}.")
        }
        Note::UnknownGroupTable { migrations, table, columns: [member, group] } => format!(
            "{migrations} has no table `{table}`; its columns are taken to be `{member}` and `{group}`. \
             Reads of a group need it to be there."
        ),
        Note::NoGroupIndex { table, column } => format!(
            "No index of `{table}` starts with `{column}`: a group's list reads all of that table. \
             A migration of yours can add one."
        ),
        Note::NeverGroup { scope, owner, group } => format!(
            "Every {scope} names its {owner}, so none reads for a whole {group}: \
             make the {owner} optional, or implement `OwnerScope::group` for another type."
        ),
        Note::EmptyTablesOnly => "With `--backfill none` the migration is for empty tables; \
                                  where there are conversations it stops, with nothing changed."
            .to_owned(),
        Note::Replaced(files) => {
            format!("Emitted and not there any more, but other migrations make the same tables: {}.", list(files))
        }
        Note::NotGenerated(file) => {
            format!("`ejected` in {} names {file}, which is not a generated file.", memory::OPTIONS_FILE)
        }
        Note::InsideWorkspace(manifest) => {
            format!("The new package is inside the workspace of {manifest}: list it there under `members`.")
        }
        Note::Ignored(files) => {
            let shown: Vec<_> = files.iter().map(|Ignored { path, by }| format!("{path} ({by})")).collect();
            let lines = match files.iter().find(|file| file.path.starts_with(memory::DIRECTORY)).or(files.first()) {
                Some(file) if file.path.starts_with(memory::DIRECTORY) => {
                    format!("the lines `!{}` and `!{}**`", file.path, file.path)
                }
                other => format!("the line `!{}`", other.map_or("", |file| file.path.as_str())),
            };
            format!(
                "Git ignores {}: other clones will not have that, and `sagents check` fails there. \
                 Exclude it from that pattern, for example with {lines} at the end of .gitignore.",
                shown.join(", "),
            )
        }
        Note::FormerOwner { field, places } => format!(
            "The owner is not `{field}` any more, and edits of yours still name it: {}. \
             A statement there may compare the column of the former owner with the key of the new one.",
            places.join(", ")
        ),
        Note::LibraryPath(path) => format!(
            "Cargo.toml has sagents from {path}, which other clones of this repository don't have. \
             Remove `path` there once version {} is published.",
            env!("CARGO_PKG_VERSION")
        ),
        Note::Uncommitted(files) => format!("Merged into changes that were not committed: {}.", list(files)),
    }
}

pub fn list(files: &[Utf8PathBuf]) -> String {
    files.iter().map(|file| file.as_str()).collect::<Vec<_>>().join(", ")
}

/// A path as a shell takes it.
fn quoted(path: &Utf8Path) -> String {
    let plain = path.as_str().chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    if plain { path.to_string() } else { format!("'{}'", path.as_str().replace('\'', "'\\''")) }
}
