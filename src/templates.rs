//! One askama struct per template, with fields ready to print. Decisions are made here, layout in `templates/`.

use askama::Template;
use camino::Utf8PathBuf;

use crate::database::{Database, Dialect};
use crate::host::source::{Access, Seen};
use crate::key::KeyType;
use crate::options::{Options, Owner, RESERVED_TYPES};

/// How generated tests make the tables.
#[derive(Debug)]
pub enum Tables {
    /// By the migration, relative to the package.
    Script(Utf8PathBuf),
    /// By the tables as they are now: migrations that changed them need the host's own tables and rows.
    Text(String),
}

/// The words that every template of a context uses.
#[derive(Debug)]
pub struct Words {
    database: Database,
    /// The context's type: `Conversations`.
    context: String,
    /// The context's module: `conversations`.
    module: String,
    /// As Rust source: `my_app::conversations`.
    public_path: String,
    /// Other crates can reach it, so what it does not use itself is no dead code.
    public: bool,
    tests: bool,
    prefix: String,
    conversations: String,
    agent_states: String,
    display_messages: String,
    /// The scope's type as scope.rs names it, with what it imports for that.
    scope_name: String,
    scope_import: Option<String>,
    /// From outside of the crate: `my_app::accounts::Scope`.
    scope_public: String,
    scope_example: String,
    owner: Option<OwnerWords>,
    owner_and: String,
    c_owner_and: String,
    s_owner_and: String,
    m_owner_and: String,
    owner_first: String,
    owner_value: &'static str,
    bind_owner: &'static str,
    take_owner: &'static str,
    owner_arg: &'static str,
    owner_param: &'static str,
    owner_json: &'static str,
    dialect: Dialect,
    /// What only the tests say: how the tables are made, each as a Rust expression, the owner's table, whose conversation
    /// it is that housekeeping leaves, and a tenant by hand.
    migrations: Vec<String>,
    stand_in: Option<StandIn>,
    other: &'static str,
    bind_alice: &'static str,
}

#[derive(Debug)]
struct OwnerWords {
    noun: String,
    field: String,
    column: String,
    /// With a link, if there is a type to link to.
    link: String,
    rust_type: &'static str,
    /// The type as it is bound to a statement and read from a row, and the attribute that a model needs for that.
    key_type: &'static str,
    row_attribute: String,
    /// The same for a model that is read from a row by hand, and how it is read there.
    state_attribute: String,
    from_row: String,
    bound_type: &'static str,
    bound: String,
    /// The least key there is.
    least: &'static str,
    borrow: &'static str,
    uses_uuid: bool,
    super_imports: &'static str,
    /// The statements that read the owner's id from a scope, and the id.
    read: Vec<String>,
    read_value: String,
    new_type: &'static str,
    new_field: String,
    test_type: &'static str,
    alice: &'static str,
    bob: &'static str,
}

impl Words {
    pub fn new(options: &Options, public: bool, krate: &str, tables: &Tables) -> Self {
        let Options {
            context,
            scope,
            create_scope: _,
            owner,
            prefix,
            database,
            migrations: _,
            tests,
            wire: _,
            sqlx_name: _,
            backfill: _,
            found: _,
            notes: _,
        } = options;
        let table = |suffix: &str| database.quote(&format!("{}{suffix}", prefix.as_str()));
        let column = owner.as_ref().map(|owner| database.quote(owner.field.as_str()));
        let if_owner = |text: &'static str, otherwise: &'static str| if owner.is_some() { text } else { otherwise };
        let with_column = |text: fn(&str) -> String| column.as_deref().map(text).unwrap_or_default();
        let hidden = RESERVED_TYPES.contains(&scope.name.as_str()) || scope.name == context.last().camel();
        let outside = |path: String| match path.strip_prefix("crate::") {
            Some(rest) => format!("{krate}::{rest}"),
            None => path,
        };
        Self {
            database: *database,
            dialect: Dialect::of(*database),
            context: context.last().camel(),
            module: context.last().to_string(),
            public_path: outside(context.rust()),
            public,
            tests: *tests,
            prefix: prefix.as_str().to_owned(),
            conversations: table("conversations"),
            agent_states: table("agent_states"),
            display_messages: table("display_messages"),
            scope_name: if hidden { scope.rust() } else { scope.name.clone() },
            scope_import: (!hidden).then(|| scope.rust()),
            scope_public: outside(scope.rust()),
            scope_example: match owner {
                Some(owner) => format!(r#"{{"type": "{}", "id": {}}}"#, owner.noun, example(owner.key)),
                None => r#"{"type": "none"}"#.to_owned(),
            },
            owner: owner.as_ref().map(|owner| OwnerWords::new(owner, *database)),
            owner_and: with_column(|column| format!("{column} = $0 AND ")),
            c_owner_and: with_column(|column| format!("c.{column} = $0 AND ")),
            s_owner_and: with_column(|column| format!("s.{column} = $0 AND ")),
            m_owner_and: with_column(|column| format!("m.{column} = $0 AND ")),
            owner_first: with_column(|column| format!("{column}, ")),
            owner_value: if_owner("$0, ", ""),
            bind_owner: if_owner("\n.bind(owner.id())", ""),
            take_owner: if_owner("let owner = scope.owner()?;", "scope.owner()?;"),
            owner_arg: if_owner("&owner, ", ""),
            owner_param: if_owner("owner: &Owner,", ""),
            owner_json: if_owner("owner.to_json()", "Owner::to_json()"),
            migrations: match tables {
                Tables::Script(script) => {
                    vec![format!(r#"include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/{script}"))"#)]
                }
                Tables::Text(text) => vec![format!("r#\"\n{text}\"#")],
            },
            stand_in: owner.as_ref().and_then(|owner| stand_in(owner, *database)),
            other: if_owner("bob", "alice"),
            bind_alice: if_owner("\n.bind(alice().id())", ""),
        }
    }

    /// The value that `updated_at` gets. Where writers do not take their time in turn, it never goes back.
    fn latest(&self, parameter: &str) -> String {
        match self.database {
            Database::Sqlite => parameter.to_owned(),
            Database::Postgres => format!("greatest(updated_at, {parameter})"),
        }
    }
}

impl OwnerWords {
    fn new(owner: &Owner, database: Database) -> Self {
        let Owner { noun, field, key, table: _, access, module: _, link } = owner;
        let field = field.as_str();
        let (read, value) = read_owner(access, *key);
        let optional = access.steps.iter().any(|step| step.optional);
        let rust_type = key.rust_type();
        let key_type = match (key, database) {
            (KeyType::UuidText, Database::Sqlite) => "uuid::fmt::Hyphenated",
            (KeyType::UuidText, Database::Postgres) => "String",
            _ => rust_type,
        };
        let row_attribute = match key {
            KeyType::UuidText => format!("#[sqlx(try_from = \"{key_type}\")]\n"),
            _ => String::new(),
        };
        Self {
            noun: noun.to_string(),
            field: field.to_owned(),
            column: database.quote(field),
            link: link.as_ref().map_or_else(|| noun.to_string(), |link| format!("[{noun}]({})", link.rust())),
            rust_type,
            key_type,
            state_attribute: match database {
                Database::Sqlite => row_attribute.clone(),
                Database::Postgres => String::new(),
            },
            row_attribute,
            from_row: match key {
                KeyType::UuidText => format!(
                    "Uuid::try_parse(row.try_get(\"{field}\")?).map_err(|error| sqlx::Error::Decode(error.into()))?"
                ),
                _ => format!("row.try_get(\"{field}\")?"),
            },
            bound_type: if *key == KeyType::Text { "&str" } else { key_type },
            bound: match (key, database) {
                (KeyType::Text, _) => format!("&self.{field}"),
                (KeyType::UuidText, Database::Sqlite) => format!("self.{field}.hyphenated()"),
                (KeyType::UuidText, Database::Postgres) => format!("self.{field}.to_string()"),
                (KeyType::Integer | KeyType::Uuid, _) => format!("self.{field}"),
            },
            least: match (key, database) {
                (KeyType::Integer, _) => "i64::MIN",
                (KeyType::Text, _) | (KeyType::UuidText, Database::Postgres) => "String::new()",
                (KeyType::Uuid, _) => "Uuid::nil()",
                (KeyType::UuidText, Database::Sqlite) => "Uuid::nil().hyphenated()",
            },
            borrow: if key_type == "String" { "&" } else { "" },
            uses_uuid: matches!(key, KeyType::Uuid | KeyType::UuidText),
            super_imports: if optional { "{Error, Result}" } else { "Result" },
            read,
            read_value: value,
            new_type: if *key == KeyType::Text { "impl Into<String>" } else { rust_type },
            new_field: if *key == KeyType::Text { format!("{field}: {field}.into()") } else { field.to_owned() },
            test_type: if *key == KeyType::Text { "&str" } else { rust_type },
            alice: match key {
                KeyType::Integer => "1",
                KeyType::Uuid | KeyType::UuidText => "Uuid::from_u128(1)",
                KeyType::Text => "\"alice\"",
            },
            bob: match key {
                KeyType::Integer => "2",
                KeyType::Uuid | KeyType::UuidText => "Uuid::from_u128(2)",
                KeyType::Text => "\"bob\"",
            },
        }
    }
}

/// The statements that read an owner's id from `self`, and the expression of the id. What is absent on the way ends the
/// call with `NoOwner`.
fn read_owner(access: &Access, key: KeyType) -> (Vec<String>, String) {
    let (last, way) = access.steps.split_last().expect("an access has at least one step");
    let is_call = |text: &str| text.ends_with("()");
    let mut statements = Vec::new();
    let mut place = "self".to_owned();
    for step in way {
        place = format!("{place}.{}", step.text);
        if step.optional {
            let name = step.text.trim_end_matches("()");
            let name = if name.starts_with(|c: char| c.is_ascii_digit()) { "owner" } else { name };
            let borrow = if is_call(&step.text) { "" } else { ".as_ref()" };
            statements.push(format!("let {name} = {place}{borrow}.ok_or(Error::NoOwner)?;"));
            name.clone_into(&mut place);
        }
    }
    place = format!("{place}.{}", last.text);
    let call = is_call(&last.text);
    let assumed = match key {
        KeyType::Integer => Seen::I64,
        KeyType::Uuid | KeyType::UuidText => Seen::Uuid,
        KeyType::Text => Seen::String,
    };
    let seen = access.id.as_ref().unwrap_or(&assumed);
    if last.optional {
        let borrow = match seen {
            Seen::String if !call => ".clone()",
            Seen::Str if !call => ".as_deref()",
            _ => "",
        };
        place = format!("{place}{borrow}.ok_or(Error::NoOwner)?");
    }
    let owned = call || last.optional;
    (statements, convert(&place, seen, owned))
}

/// An expression of a type that was seen, as the type that is stored.
fn convert(place: &str, seen: &Seen, owned: bool) -> String {
    match seen {
        Seen::I64 | Seen::Uuid | Seen::Other(_) => place.to_owned(),
        Seen::SmallInt => format!("i64::from({place})"),
        Seen::String if owned => place.to_owned(),
        Seen::String => format!("{place}.clone()"),
        Seen::Str => format!("{place}.to_string()"),
        Seen::Ref(inner) => match **inner {
            Seen::String => format!("{place}.clone()"),
            Seen::Str => format!("{place}.to_string()"),
            _ => convert(&format!("*{place}"), inner, owned),
        },
    }
}

fn example(key: KeyType) -> &'static str {
    match key {
        KeyType::Integer => "123",
        KeyType::Uuid | KeyType::UuidText => r#""01890a5d-…""#,
        KeyType::Text => r#""alice""#,
    }
}

/// The owner's table in generated tests, where the host's own migrations do not run.
#[derive(Debug)]
struct StandIn {
    create: String,
    insert: String,
}

#[derive(Template)]
#[template(path = "rust/conversation.rs", escape = "none")]
struct Conversation<'a> {
    w: &'a Words,
}

#[derive(Template)]
#[template(path = "rust/display_message.rs", escape = "none")]
struct DisplayMessage<'a> {
    w: &'a Words,
}

#[derive(Template)]
#[template(path = "rust/scope.rs", escape = "none")]
struct Scope<'a> {
    w: &'a Words,
}

/// Templates with blocks that every database fills in its own way.
macro_rules! extended {
    ($($base:ident: $sqlite:literal, $postgres:literal;)*) => {
        $(
            mod $base {
                use super::{Database, Template, Words, render};

                #[derive(Template)]
                #[template(path = $sqlite, escape = "none")]
                #[allow(dead_code, reason = "not every template needs a word")]
                struct Sqlite<'a> {
                    w: &'a Words,
                }

                #[derive(Template)]
                #[template(path = $postgres, escape = "none")]
                #[allow(dead_code, reason = "not every template needs a word")]
                struct Postgres<'a> {
                    w: &'a Words,
                }

                pub(super) fn text(w: &Words) -> String {
                    match w.database {
                        Database::Sqlite => render(&Sqlite { w }),
                        Database::Postgres => render(&Postgres { w }),
                    }
                }
            }
        )*
    };
}

extended! {
    agent_state: "rust/sqlite/agent_state.rs", "rust/postgres/agent_state.rs";
    context_module: "rust/sqlite/context.rs", "rust/postgres/context.rs";
    messages: "rust/sqlite/messages.rs", "rust/postgres/messages.rs";
    sessions: "rust/sqlite/sessions.rs", "rust/postgres/sessions.rs";
    states: "rust/sqlite/states.rs", "rust/postgres/states.rs";
    tests_module: "rust/sqlite/tests.rs", "rust/postgres/tests.rs";
    tool_calls: "rust/sqlite/tool_calls.rs", "rust/postgres/tool_calls.rs";
    values: "rust/sqlite/values.rs", "rust/postgres/values.rs";
}

#[derive(Template)]
#[template(path = "init/main.rs", escape = "none")]
struct Main<'a> {
    w: &'a Words,
    /// Nothing if the scope is called like something else that `main` names.
    scope_import: Option<&'a str>,
    scope: &'a str,
    uses_uuid: bool,
    /// Where the database is, from the environment.
    url: String,
    /// A URL may hold a password, which is nobody's to see.
    opened: &'static str,
    /// The macro's argument; by default it looks where migrations are by default.
    migrations: String,
}

/// The module itself, without a name, and the modules below it: `scope`, `store`, `store/messages`.
pub type Files = Vec<(Option<&'static str>, String)>;

macro_rules! plain {
    ($module:literal, $($name:literal),*) => {
        vec![
            (None, include_str!(concat!("../templates/runtime/", $module, ".rs")).to_owned()),
            $((Some($name), include_str!(concat!("../templates/runtime/", $name, ".rs")).to_owned()),)*
        ]
    };
}

/// The agent runtime, which is the same in every host: plain Rust that this package tests in place.
pub fn runtime() -> Files {
    plain!(
        "sagents",
        "display",
        "json",
        "message",
        "persistence",
        "runtime",
        "serializer",
        "session",
        "session/coordinator",
        "session/event",
        "session/handle",
        "session/keeper",
        "session/ledger",
        "session/options",
        "session/registry",
        "state",
        "todo"
    )
}

/// A context.
pub fn context(words: &Words) -> Files {
    let w = words;
    let mut files = vec![
        (None, context_module::text(w)),
        (Some("agent_state"), agent_state::text(w)),
        (Some("conversation"), render(&Conversation { w })),
        (Some("display_message"), render(&DisplayMessage { w })),
        (Some("messages"), messages::text(w)),
        (Some("scope"), render(&Scope { w })),
        (Some("sessions"), sessions::text(w)),
        (Some("states"), states::text(w)),
        (Some("tool_calls"), tool_calls::text(w)),
        (Some("values"), values::text(w)),
    ];
    if w.tests {
        files.push((Some("tests"), tests_module::text(w)));
    }
    for (_, text) in &mut files {
        *text = number_parameters(text, w.owner.is_some());
    }
    files
}

/// The `main` of a new package.
pub fn main(options: &Options, words: &Words, package: &str) -> String {
    let name = &options.scope.name;
    let taken = MAIN_NAMES.contains(&name.as_str()) || *name == words.context;
    let scope_type = if taken { &words.scope_public } else { name };
    let scope = match &options.owner {
        Some(owner) => {
            let id = match owner.key {
                KeyType::Integer => "1",
                KeyType::Uuid | KeyType::UuidText => "Uuid::from_u128(1)",
                KeyType::Text => "\"alice\".to_owned()",
            };
            format!("{scope_type} {{ {}: {id} }}", owner.field)
        }
        None => scope_type.clone(),
    };
    let uses_uuid = options.owner.as_ref().is_some_and(|owner| matches!(owner.key, KeyType::Uuid | KeyType::UuidText));
    let migrations = match options.migrations.as_str() {
        "migrations" => String::new(),
        other => format!("\"./{other}\""),
    };
    let scope_import = (!taken).then_some(words.scope_public.as_str());
    let opened = match options.database {
        Database::Sqlite => "opened {url} and ran its migrations",
        Database::Postgres => "opened the database and ran its migrations",
    };
    let url = match options.database {
        Database::Sqlite => {
            format!(r#"std::env::var("DATABASE_URL").unwrap_or_else(|_| "sqlite:{package}.db".into())"#)
        }
        Database::Postgres => format!(
            r#"std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL, for example to postgres://localhost/{package}")?"#
        ),
    };
    render(&Main { w: words, scope_import, scope: &scope, uses_uuid, url, opened, migrations })
}

/// What `main` names besides the scope and the context.
const MAIN_NAMES: &[&str] =
    &["Box", "ListConversations", "MessagePage", "NewConversation", "NewDisplayMessage", "Result", "Role", "Uuid"];

/// The scope type that is created when the host has none.
pub fn scope_type(options: &Options, public: bool) -> String {
    let name = &options.scope.name;
    let allow = if public { "" } else { "#[allow(dead_code, reason = \"for the application to use\")]\n" };
    match &options.owner {
        Some(owner) => {
            let noun = &owner.noun;
            let ty = if matches!(owner.key, KeyType::Uuid | KeyType::UuidText) {
                "uuid::Uuid"
            } else {
                owner.key.rust_type()
            };
            format!(
                "/// On whose behalf a call is made. What belongs to the {noun} is reached through one.\n\
                 #[derive(Debug, Clone, PartialEq, Eq)]\n{allow}pub struct {name} {{\n    \
                 /// The {noun} that the caller acts for.\n    pub {}: {ty},\n}}\n",
                owner.field
            )
        }
        None => format!(
            "/// On whose behalf a call is made.\n#[derive(Debug, Clone, PartialEq, Eq)]\n{allow}pub struct {name};\n"
        ),
    }
}

fn stand_in(owner: &Owner, database: Database) -> Option<StandIn> {
    let table = owner.table.as_ref()?;
    let (name, key) = (database.quote(&table.name), database.quote(&table.key));
    let schema = table.schema.as_ref().map(|schema| database.quote(schema));
    let name = schema.as_ref().map_or_else(|| name.clone(), |schema| format!("{schema}.{name}"));
    let make_schema = schema.map(|schema| format!("CREATE SCHEMA IF NOT EXISTS {schema}; ")).unwrap_or_default();
    let kind = database.column_type(owner.key.column());
    Some(StandIn {
        create: format!("{make_schema}CREATE TABLE {name} ({key} {kind} NOT NULL PRIMARY KEY)"),
        insert: format!("INSERT INTO {name} ({key}) VALUES ($0)"),
    })
}

/// Templates number the parameters of a statement behind the owner, which is `$0`. With an owner everything moves up by
/// one; without one `$0` is not there.
fn number_parameters(text: &str, owner: bool) -> String {
    if !owner {
        return text.to_owned();
    }
    let mut pieces = text.split('$');
    let mut numbered = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let digits = piece.find(|c: char| !c.is_ascii_digit()).unwrap_or(piece.len());
        numbered.push('$');
        match piece[..digits].parse::<u32>() {
            Ok(number) => numbered.push_str(&(number + 1).to_string()),
            Err(_) => numbered.push_str(&piece[..digits]),
        }
        numbered.push_str(&piece[digits..]);
    }
    numbered
}

/// rustfmt stumbles over spaces at the end of a line, which an empty expression may leave.
fn render(template: &impl Template) -> String {
    let text = template.render().expect("a template writes to a string, which does not fail");
    text.split('\n').map(str::trim_end).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::source::Step;

    fn access(steps: &[(&str, bool)], id: Seen) -> Access {
        let steps = steps.iter().map(|&(text, optional)| Step { text: text.to_owned(), optional }).collect();
        Access { steps, id: Some(id) }
    }

    #[test]
    fn parameters_start_with_the_owner_if_there_is_one() {
        assert_eq!(number_parameters("a = $0 AND b = $1 AND c = $10", true), "a = $1 AND b = $2 AND c = $11");
        assert_eq!(number_parameters("b = $1", false), "b = $1");
    }

    #[test]
    fn an_owner_is_read_through_whatever_is_on_the_way() {
        let cases = [
            (access(&[("user", false), ("id", false)], Seen::I64), KeyType::Integer, "", "self.user.id"),
            (
                access(&[("user", true), ("id", false)], Seen::SmallInt),
                KeyType::Integer,
                "let user = self.user.as_ref().ok_or(Error::NoOwner)?;",
                "i64::from(user.id)",
            ),
            (
                access(&[("user_id", true)], Seen::String),
                KeyType::Text,
                "",
                "self.user_id.clone().ok_or(Error::NoOwner)?",
            ),
            (access(&[("user_id()", false)], Seen::Str), KeyType::Text, "", "self.user_id().to_string()"),
            (access(&[("id()", false)], Seen::Ref(Box::new(Seen::Uuid))), KeyType::Uuid, "", "*self.id()"),
            (
                access(&[("user()", true), ("id", false)], Seen::Uuid),
                KeyType::Uuid,
                "let user = self.user().ok_or(Error::NoOwner)?;",
                "user.id",
            ),
        ];
        for (access, id, statements, value) in cases {
            assert_eq!(read_owner(&access, id), (statements.lines().map(str::to_owned).collect(), value.to_owned()));
        }
    }
}
