//! What a run assumed or met that its user should know, as data. `report` words it.

use camino::Utf8PathBuf;

use crate::host::git::Ignored;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// The tables that the owner was looked for in are not there.
    NoForeignKey { migrations: Utf8PathBuf, tables: Vec<String> },
    /// The owner's table was named, and no migration makes it.
    UnknownTable { migrations: Utf8PathBuf, table: String },
    /// The type of the owner's id in the scope cannot be read.
    AssumedType { path: String, scope: String, rust_type: &'static str },
    /// The group's table was named, and no migration makes it.
    UnknownGroupTable { migrations: Utf8PathBuf, table: String, columns: [String; 2] },
    /// No index of the group's table starts with the group.
    NoGroupIndex { table: String, column: String },
    /// A scope always has an owner, so it never reads as a group.
    NeverGroup { scope: String, owner: String, group: String },
    /// The owner changes with `--backfill none`.
    EmptyTablesOnly,
    /// Emitted migrations that are gone, while others make the same tables.
    Replaced(Vec<Utf8PathBuf>),
    /// A file under `ejected` that is not generated.
    NotGenerated(Utf8PathBuf),
    /// The new package is inside the workspace of this Cargo.toml.
    InsideWorkspace(Utf8PathBuf),
    /// Files that other clones do not get.
    Ignored(Vec<Ignored>),
    /// Lines of edited files that name the column of the former owner.
    FormerOwner { field: String, places: Vec<String> },
    /// Cargo.toml has the library from a directory outside of the repository.
    LibraryPath(Utf8PathBuf),
    /// Files that had changes which were not committed, and were merged into.
    Uncommitted(Vec<Utf8PathBuf>),
}
