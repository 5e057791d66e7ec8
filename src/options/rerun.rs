//! What of the recorded options still holds in a rerun. What describes an owner or a group belongs to its type, and the way
//! to them belongs to the scope: when one of these changes, what is not given again is inferred again.

use serde::Serialize;

use super::{Backfill, DEFAULT_OWNER, NO_GROUP, NO_OWNER, Options, Resolved};
use crate::database::{Database, Dialect as _};
use crate::failure::{Failure, Result};
use crate::given::Given;
use crate::host::Host;
use crate::host::migrations::Catalog;
use crate::memory::Last;
use crate::names::{ModulePath, TypePath};
use crate::schema::transition;

/// The options that a run starts from.
#[derive(Debug)]
pub struct Carried {
    /// Those given now, over the recorded ones that still hold.
    pub given: Given,
    /// Whether `--backfill` was given now.
    pub has_new_backfill: bool,
    pub dropped: Vec<Dropped>,
}

/// A recorded option that does not hold any longer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// As in `sagents.toml`: `scope-owner`.
    pub option: &'static str,
    pub value: String,
    /// What it described: the former owner type, or the former scope.
    pub described: String,
}

/// The options that describe an owner or a group of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Description {
    Field,
    Module,
    Table,
    Id,
    ScopeOwner,
    GroupField,
    GroupTable,
    ScopeGroup,
}

impl Description {
    const ALL: [Self; 8] = [
        Self::Field,
        Self::Module,
        Self::Table,
        Self::Id,
        Self::ScopeOwner,
        Self::GroupField,
        Self::GroupTable,
        Self::ScopeGroup,
    ];

    /// What it describes.
    fn subjects(self) -> &'static [Kind] {
        match self {
            Self::Field | Self::Module | Self::Table | Self::Id => &[Kind::Owner],
            Self::ScopeOwner => &[Kind::Owner, Kind::Scope],
            // Which owners are in which group.
            Self::GroupField | Self::GroupTable => &[Kind::Group, Kind::Owner],
            Self::ScopeGroup => &[Kind::Group, Kind::Scope],
        }
    }

    /// As in `sagents.toml`.
    fn name(self) -> &'static str {
        match self {
            Self::Field => "owner-field",
            Self::Module => "owner-module",
            Self::Table => "owner-table",
            Self::Id => "owner-id",
            Self::ScopeOwner => "scope-owner",
            Self::GroupField => "group-field",
            Self::GroupTable => "group-table",
            Self::ScopeGroup => "scope-group",
        }
    }

    fn given(self, given: &mut Given) -> &mut Option<String> {
        match self {
            Self::Field => &mut given.owner_field,
            Self::Module => &mut given.owner_module,
            Self::Table => &mut given.owner_table,
            Self::Id => &mut given.owner_id,
            Self::ScopeOwner => &mut given.scope_owner,
            Self::GroupField => &mut given.group_field,
            Self::GroupTable => &mut given.group_table,
            Self::ScopeGroup => &mut given.scope_group,
        }
    }

    fn resolved(self, resolved: &Resolved) -> Option<&String> {
        match self {
            Self::Field => resolved.owner_field.as_ref(),
            Self::Module => resolved.owner_module.as_ref(),
            Self::Table => resolved.owner_table.as_ref(),
            Self::Id => resolved.owner_id.as_ref(),
            Self::ScopeOwner => resolved.scope_owner.as_ref(),
            Self::GroupField => resolved.group_field.as_ref(),
            Self::GroupTable => resolved.group_table.as_ref(),
            Self::ScopeGroup => resolved.scope_group.as_ref(),
        }
    }
}

pub fn carry(now: &Given, recorded: Option<&Given>, last: Option<&Resolved>, host: &Host) -> Carried {
    let has_new_backfill = now.backfill.is_some();
    let Some(recorded) = recorded else { return Carried { given: now.clone(), has_new_backfill, dropped: Vec::new() } };
    let owner = Subject {
        kind: Kind::Owner,
        before: last.map_or_else(|| owner_type(recorded), |last| last.owner_type.clone()),
        recorded: owner_type(recorded),
        now: now.owner_type.clone().unwrap_or_else(|| owner_type(recorded)),
    };
    let scope = |given: &Given| given.scope.as_deref().map(|scope| canonical(scope, host)).unwrap_or_default();
    let scope = Subject {
        kind: Kind::Scope,
        before: last.map_or_else(|| scope(recorded), |last| last.scope.clone()),
        recorded: scope(recorded),
        now: if now.scope.is_some() { scope(now) } else { scope(recorded) },
    };
    let (mut kept, mut now) = (recorded.clone(), now.clone());
    let mut dropped = Vec::new();
    if now.group_type.is_none() && is_no_group_of(&kept, &owner) {
        let (option, described) = ("group-type", owner.described());
        dropped.extend(kept.group_type.take().map(|value| Dropped { option, value, described }));
    }
    let group = Subject {
        kind: Kind::Group,
        before: last
            .map_or_else(|| group_type(recorded), |last| last.group_type.clone().unwrap_or(NO_GROUP.to_owned())),
        recorded: group_type(recorded),
        now: group_type(&now.over(&kept)),
    };
    let subjects = [group, owner, scope];
    for option in Description::ALL {
        if option.given(&mut now).is_some() {
            continue;
        }
        let value = option.given(&mut kept);
        let is_old = value.as_ref().is_some_and(|value| {
            let value = if option == Description::Module { canonical(value, host) } else { value.clone() };
            last.is_some_and(|last| option.resolved(last) == Some(&value))
        });
        let mut described = subjects.iter().filter(|subject| option.subjects().contains(&subject.kind));
        if let Some(subject) = described.find(|subject| subject.drops(is_old)) {
            let described = subject.described();
            dropped.extend(value.take().map(|value| Dropped { option: option.name(), value, described }));
        }
    }
    Carried { given: now.over(&kept), has_new_backfill, dropped }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Owner,
    Scope,
    Group,
}

/// Something that other options describe: as the last run had it, as `sagents.toml` has it, and as it is from now on.
struct Subject {
    kind: Kind,
    before: String,
    recorded: String,
    now: String,
}

impl Subject {
    /// Whether a recorded option described the former one. In a file that was edited by hand, only those options did
    /// that are what they were.
    fn drops(&self, is_old: bool) -> bool {
        self.before != self.now && (self.recorded == self.before || is_old)
    }

    /// What it was.
    fn described(&self) -> String {
        match self.kind {
            Kind::Owner | Kind::Group => format!("the {}", self.before),
            Kind::Scope => self.before.clone(),
        }
    }
}

/// Whether the recorded group cannot be one of the new owner: there is no owner, or it is the group itself.
fn is_no_group_of(recorded: &Given, owner: &Subject) -> bool {
    let group = recorded.group_type.as_deref().filter(|group| *group != NO_GROUP);
    owner.before != owner.now && group.is_some_and(|group| [NO_OWNER, group].contains(&owner.now.as_str()))
}

fn group_type(given: &Given) -> String {
    given.group_type.clone().unwrap_or_else(|| NO_GROUP.to_owned())
}

fn owner_type(given: &Given) -> String {
    given.owner_type.clone().unwrap_or_else(|| DEFAULT_OWNER.to_owned())
}

/// A type in one notation. What cannot be read is refused later, with a reason.
fn canonical(ty: &str, host: &Host) -> String {
    TypePath::parse("", ty, &host.package, &host.manifest.dependency_crates())
        .map_or_else(|_| ty.to_owned(), |ty| ty.rust())
}

/// The expression for a change of owner. One that was used for an earlier change is not used again.
pub(super) fn backfill(
    carried: &Carried,
    options: &Options,
    catalog: &Catalog,
    last: &Last,
) -> Result<Option<Backfill>> {
    let Some(text) = carried.given.backfill.clone() else { return Ok(None) };
    let Some(before) = &last.resolved else {
        // What is recorded was used for a change that is not remembered any more.
        if !carried.has_new_backfill {
            return Ok(Some(Backfill { text, is_used_now: false }));
        }
        if text == NO_BACKFILL {
            return Ok(None);
        }
        return Err(Failure::usage("--backfill: .sagents/ does not record who the owner was, so it does not change")
            .help(
                "leave --backfill out if this is the first run; if it is not, restore .sagents/ from version control",
            ));
    };
    let now = options.resolved();
    let is_known = before.backfill.as_ref() == Some(&text);
    let changes = !before.has_owner_of(&now);
    // Owners of the same kind may have other ids there.
    let moves = (&before.owner_field, before.owner_reading()) != (&now.owner_field, now.owner_reading());
    match (changes, is_known) {
        (true, true) if !carried.has_new_backfill => Ok(None),
        (true, _) if text == NO_BACKFILL => Ok(Some(Backfill { text, is_used_now: true })),
        (false, true) => Ok(Some(Backfill { text, is_used_now: false })),
        (false, false) if text == NO_BACKFILL => Ok(None),
        _ if changes || moves => {
            let conversations = last.schema.as_ref().and_then(|recorded| recorded.schema.tables.first());
            transition::check_backfill(&text, options.database, conversations, catalog)?;
            Ok(Some(Backfill { text, is_used_now: true }))
        }
        (false, false) if before.backfill.as_deref() == Some(NO_BACKFILL) => Err(Failure::usage(
            "--backfill: the owner does not change in this run; when it did, `--backfill none` was given",
        )
        .help("take back what that run changed, with version control, and run it again with this expression")),
        _ => Err(Failure::usage("--backfill: the owner does not change in this run")
            .help("give it together with the option that changes the owner, for example `--owner-type team`")),
    }
}

/// A change of owner without `--backfill` would be found out by its migration, where there are conversations.
pub fn refuse_unknown_owners(options: &Options, last: &Last) -> Result<()> {
    let (Some(owner), Some(before)) = (&options.owner, &last.resolved) else { return Ok(()) };
    if options.allows_only_empty_tables() {
        return Ok(());
    }
    let now = options.resolved();
    let same_type = before.owner_type == now.owner_type;
    let example = match (&before.owner_table, &before.owner_key, &before.owner_field, &owner.table) {
        // The table may have got another name.
        (_, _, Some(former), _) if same_type && before.owner_id == now.owner_id => {
            Some(format!("conversation.{former}"))
        }
        (Some(table), Some(key), Some(former), _) => {
            Some(format!("(SELECT {} FROM {table} WHERE {table}.{key} = conversation.{former})", owner.field))
        }
        (_, _, _, Some(table)) => Some(format!("(SELECT {} FROM {} LIMIT 1)", table.key, table.shown())),
        (_, _, _, None) => None,
    };
    let example = example.map(|example| format!(", for example `--backfill '{example}'`")).unwrap_or_default();
    let shown = |of: &Resolved| {
        let details = [&of.owner_table, &of.owner_key, &of.owner_id].into_iter().flatten().filter(|_| same_type);
        let details: Vec<_> = details.map(String::as_str).collect();
        if details.is_empty() { of.owner_type.clone() } else { format!("{} ({})", of.owner_type, details.join(", ")) }
    };
    Err(Failure::decision(format!(
        "the owner changes from {} to {}, and the {} of the conversations that are there is not known",
        shown(before),
        shown(&now),
        owner.field
    ))
    .help(format!(
        "give it as an SQL expression with --backfill{example}; or, if there are none yet, `--backfill none`: \
         where there are some, the migration then stops with nothing changed"
    )))
}

/// For `--backfill`: the tables are empty, or the migration may stop.
pub(super) const NO_BACKFILL: &str = "none";

/// Rows do not move from one database to another by generating code.
pub fn refuse_other_database(context: &ModulePath, given: &Given, last: &Last) -> Result<()> {
    let (Some(before), Some(now)) = (&last.resolved, &given.database) else { return Ok(()) };
    let before = before.database;
    if before == Database::parse(now)? {
        return Ok(());
    }
    let key = context.key();
    Err(Failure::decision(format!(
        "--database: `{key}` is generated for {}, and its rows would stay there",
        before.name()
    ))
    .help(format!(
        "generate another context with `--database {now}`, copy the rows, and remove `{key}` when it is empty"
    )))
}

/// The same options mean something else than they did, because the host changed: a person decides which it is.
pub fn refuse_other_inference(options: &Options, given: &Given, last: &Last) -> Result<()> {
    let Some(before) = &last.resolved else { return Ok(()) };
    let now = options.resolved();
    // What was read for another owner or another group says nothing about this one.
    if before.owner_type != now.owner_type {
        return Ok(());
    }
    let same_group = (&before.group_type, &before.group_field) == (&now.group_type, &now.group_field);
    let group_table = |resolved: &Resolved| resolved.group_table.clone().filter(|_| same_group);
    let database = |resolved: &Resolved| Some(resolved.database.name().to_owned());
    for (name, before, now, given) in [
        ("owner-id", before.owner_id.clone(), now.owner_id.clone(), &given.owner_id),
        ("owner-table", before.owner_table.clone(), now.owner_table.clone(), &given.owner_table),
        ("group-table", group_table(before), group_table(&now), &given.group_table),
        ("database", database(before), database(&now), &given.database),
    ] {
        if let (None, Some(before), Some(now)) = (given, before, now)
            && before != now
        {
            return Err(Failure::decision(format!(
                "--{name}: it was not given and was read from the project as `{before}`; now the project has `{now}`"
            ))
            .help(format!("give it: `--{name} {before}` keeps it, `--{name} {now}` changes it")));
        }
    }
    refuse_other_members(before, &now)
}

/// Whom a group reads depends on the column that names its members, which no flag does.
fn refuse_other_members(before: &Resolved, now: &Resolved) -> Result<()> {
    let table = |of: &Resolved| (of.group_type.clone(), of.group_table.clone());
    match (&before.group_member, &now.group_member, &now.group_table) {
        (Some(former), Some(member), Some(name)) if former != member && table(before) == table(now) => {
            let owner = &now.owner_type;
            Err(Failure::decision(format!(
                "`{name}` named the {owner} of a group as `{former}`, and would now name it as `{member}`"
            ))
            .help(format!(
                "with --group-table, name a view that calls it `{owner}_id`; \
                 or, if `{member}` is right, take the group away first with `--group-type none`"
            )))
        }
        _ => Ok(()),
    }
}
