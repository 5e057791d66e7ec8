//! The tables of a context, and the migration of this run: the one that creates them, or the one that makes them what
//! they should be.

use camino::Utf8PathBuf;

use super::Start;
use crate::chain::Link;
use crate::failure::{Failure, Result};
use crate::host::migrations::content_digest;
use crate::memory::Emitted;
use crate::options::{self, Options, Resolved};
use crate::schema::transition::{Wish, additions, taken, transition};
use crate::schema::{self, Schema, sql};

/// The tables after all migrations.
#[derive(Debug, Default)]
pub struct Tables {
    pub schema: Schema,
    /// What the newest migration calls them.
    pub name: Option<String>,
    /// Every emitted migration, those of this run included.
    pub emitted: Vec<Emitted>,
    /// The migration of this run, its scripts by path.
    pub new: Vec<(Utf8PathBuf, String)>,
    /// Scripts that a project without memory has already.
    pub adopted: Vec<(Utf8PathBuf, String)>,
    /// It is for empty tables only: the new owners are not known.
    pub lacks_backfill: bool,
    /// Emitted once, and replaced by migrations of the host's own that make the same tables.
    pub replaced: Vec<Utf8PathBuf>,
}

impl Tables {
    /// The columns of former owners, which are still there.
    pub fn former_owners(&self) -> Vec<String> {
        let conversations = self.schema.tables.first().into_iter().flat_map(|table| &table.columns);
        conversations.filter(|column| column.retired).map(|column| column.name.clone()).collect()
    }
}

pub fn tables(options: &Options, krate: &str, start: Start) -> Result<Tables> {
    let wanted = schema::schema(&options.prefix, &options.owner_column(), options.group.is_some());
    match &start.last.schema {
        Some(recorded) => change(options, krate, start, &recorded.schema, &wanted),
        None => create(options, krate, start, wanted),
    }
}

/// The first migration.
fn create(options: &Options, krate: &str, start: Start, schema: Schema) -> Result<Tables> {
    let database = options.database;
    let link = Link::new(krate, &options.context, None, &schema);
    let (up, down) = (sql::create(&schema, database), sql::drop(&schema, database));
    let adopted = adopt(options, start, [&up, &format!("{link}{up}"), &down]);
    if adopted.iter().any(|(_, text)| *text != down) {
        let is_linked = adopted.iter().any(|(_, text)| text.contains(&link.to_string()));
        let emitted = adopted.iter().map(|(path, text)| emitted(path, text)).collect();
        let name = is_linked.then_some(link.to);
        return Ok(Tables { schema, name, emitted, adopted, ..Tables::default() });
    }
    refuse_tables_of_others(options, start, &schema)?;
    let prefix = options.prefix.as_str();
    let subject = if prefix.is_empty() { format!("{}_", options.context.last()) } else { prefix.to_owned() };
    let name = format!("create_{}persistence", with_underscore(&subject));
    let new = scripts(options, start, &name, format!("{link}{up}"), down)?;
    let emitted = new.iter().map(|(path, text)| emitted(path, text)).collect();
    Ok(Tables { schema, name: Some(link.to), emitted, new, ..Tables::default() })
}

/// A project that lost its memory: the migration that a first run would write is there, under whatever version.
fn adopt(options: &Options, start: Start, texts: [&String; 3]) -> Vec<(Utf8PathBuf, String)> {
    let found = options.found.scripts.iter().filter(|_| start.recorded);
    let found = found.filter(|script| texts.contains(&&script.sql()));
    found.map(|script| (options.migrations.join(&script.name), script.text.replace("\r\n", "\n"))).collect()
}

/// Tables are made from the start only where there are none.
fn refuse_tables_of_others(options: &Options, start: Start, schema: &Schema) -> Result<()> {
    let (directory, key, catalog) = (&options.migrations, options.context.key(), &options.found.catalog);
    // A context that is known had tables, and they may have rows.
    if let Some(before) = &start.last.resolved
        && before.table_prefix != options.prefix.as_str()
    {
        return Err(Failure::decision(format!(
            "--table-prefix: the tables of `{key}` are not recorded any more, so they cannot be renamed from `{}*`",
            before.table_prefix
        ))
        .help(format!("run this with `--table-prefix {}` first, then with the new one", before.table_prefix)));
    }
    let Some(table) = schema.tables.iter().find_map(|table| Some((table, catalog.table(&table.name)?))) else {
        return Ok(());
    };
    let (table, there) = table;
    let what = format!("the migrations in {directory} make a table `{}` already", table.name);
    let is_ours = table.columns.iter().filter(|column| there.column(&column.name).is_some()).count() > 2;
    Err(Failure::decision(what).help(if start.recorded || is_ours {
        "these are tables of sagents, and .sagents/ does not record them: restore .sagents/ from version control"
            .to_owned()
    } else {
        "choose other names with --table-prefix".to_owned()
    }))
}

/// The migration that makes the tables what they should be, if they are not.
fn change(options: &Options, krate: &str, start: Start, before: &Schema, wanted: &Schema) -> Result<Tables> {
    let (last, database, catalog) = (start.last, options.database, &options.found.catalog);
    let additions = additions(before, catalog);
    let taken = taken(before, catalog);
    let mut tables = Tables {
        schema: before.clone(),
        name: last.files.tables.clone(),
        emitted: start.chain.emitted.clone(),
        replaced: start.chain.replaced.clone(),
        ..Tables::default()
    };
    let reading = last.resolved.as_ref().and_then(Resolved::owner_reading);
    let wish = Wish {
        backfill: options.backfill_now(),
        drop_old_owner: start.drop_old_owner,
        owner_types: [
            last.resolved.as_ref().map(|before| before.owner_type.as_str()),
            options.owner.as_ref().map(|owner| owner.noun.as_str()),
        ],
        reading: reading.as_ref(),
        additions: &additions,
        taken: &taken,
    };
    let transition = transition(before, wanted, &wish)?;
    let up = transition.up(database);
    if up.is_empty() {
        // The tables may still differ from what is wanted: by columns that are retired, or by what no database shows.
        return Ok(tables);
    }
    transition.refuse_obstacles(catalog, database)?;
    if transition.lacks_backfill() {
        options::refuse_unknown_owners(options, last)?;
    }
    tables.schema = transition.schema().clone();
    tables.lacks_backfill = transition.lacks_backfill();
    let link = Link::new(krate, &options.context, tables.name.as_deref(), &tables.schema);
    let (up, down) = (format!("{link}{up}"), transition.down(database));
    tables.new = scripts(options, start, &transition.name(), up, down)?;
    tables.emitted.extend(tables.new.iter().map(|(path, text)| emitted(path, text)));
    tables.name = Some(link.to);
    Ok(tables)
}

/// A new migration's scripts, in the style of the host's.
fn scripts(
    options: &Options,
    start: Start,
    name: &str,
    up: String,
    down: String,
) -> Result<Vec<(Utf8PathBuf, String)>> {
    let scripts = options.found.new_scripts(start.now, name, up, down)?;
    Ok(scripts.into_iter().map(|(file, text)| (options.migrations.join(file), text)).collect())
}

fn emitted(path: &Utf8PathBuf, text: &str) -> Emitted {
    Emitted { file: path.clone(), digest: content_digest(path, text) }
}

fn with_underscore(subject: &str) -> String {
    if subject.ends_with('_') { subject.to_owned() } else { format!("{subject}_") }
}
