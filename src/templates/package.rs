//! The `main` of a new package.

use askama::Template;

use super::key::owned_key;
use super::render;
use super::sql::join;
use crate::database::{Database, Dialect as _};
use crate::names::crate_name;
use crate::options::Options;

#[derive(Template)]
#[template(path = "init/main.rs", escape = "none")]
struct Main<'a> {
    context: String,
    /// The path of the context's module: `my_app::conversations`.
    module: String,
    /// Nothing if the scope is called like something else that `main` names.
    scope_import: Option<&'a str>,
    scope: &'a str,
    group: Option<MainGroup>,
    opening: Opening,
}

/// How `main` shows a group.
struct MainGroup {
    noun: String,
    /// What a member is: `user`.
    owner: String,
    scope: String,
    /// The statement that makes the owner a member, and its parameters.
    join: String,
    owner_id: &'static str,
    group_id: &'static str,
}

/// The `main` of a new package.
pub fn main(options: &Options, package: &str) -> String {
    let outside = |path| outside(package, path);
    let context = options.context.last().camel();
    let name = &options.scope.name;
    let is_taken = MAIN_NAMES.contains(&name.as_str()) || *name == context;
    let scope_public = outside(options.scope.rust());
    let scope_type = if is_taken { &scope_public } else { name };
    let scope = match (&options.owner, &options.group) {
        (Some(owner), Some(group)) => {
            let (id, group_id) = (owned_key(owner.key), owned_key(group.key));
            format!("{scope_type} {{ {}: Some({id}), {}: Some({group_id}) }}", owner.noun.id(), group.noun.id())
        }
        (Some(owner), None) => format!("{scope_type} {{ {}: {} }}", owner.noun.id(), owned_key(owner.key)),
        (None, _) => scope_type.clone(),
    };
    let group = options.owner.as_ref().zip(options.group.as_ref()).filter(|(_, group)| group.table.is_owners);
    let group = group.map(|(owner, group)| MainGroup {
        noun: group.noun.to_string(),
        owner: owner.noun.to_string(),
        scope: format!(
            "{scope_type} {{ {}: None, {}: Some({}) }}",
            owner.noun.id(),
            group.noun.id(),
            owned_key(group.key)
        ),
        join: join(&group.table, options.database),
        owner_id: owned_key(owner.key),
        group_id: owned_key(group.key),
    });
    let scope_import = (!is_taken).then_some(scope_public.as_str());
    let opening = Opening::new(options, package);
    let module = outside(options.context.rust());
    render(&Main { context, module, scope_import, scope: &scope, group, opening })
}

/// How a `main` opens its database.
pub struct Opening {
    /// The module of the library for this database.
    pub database: &'static str,
    /// Where the database is, from the environment.
    pub url: String,
    /// A URL may hold a password, which is nobody's to see.
    pub opened: &'static str,
    /// The macro's argument; by default it looks where migrations are by default.
    pub migrations: String,
}

impl Opening {
    pub fn new(options: &Options, package: &str) -> Self {
        Self {
            database: options.database.name(),
            url: match options.database {
                Database::Sqlite => {
                    format!(r#"std::env::var("DATABASE_URL").unwrap_or_else(|_| "sqlite:{package}.db".into())"#)
                }
                Database::Postgres => format!(
                    r#"std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL, for example to postgres://localhost/{package}")?"#
                ),
            },
            opened: match options.database {
                Database::Sqlite => "opened {url} and ran its migrations",
                Database::Postgres => "opened the database and ran its migrations",
            },
            migrations: match options.migrations.as_str() {
                "migrations" => String::new(),
                other => format!("\"./{other}\""),
            },
        }
    }
}

/// A path of the library, as the binary beside it writes it.
pub fn outside(package: &str, path: String) -> String {
    match path.strip_prefix("crate::") {
        Some(rest) => format!("{}::{rest}", crate_name(package)),
        None => path,
    }
}

/// What `main` names besides the scope and the context.
const MAIN_NAMES: &[&str] = &[
    "Box",
    "Claim",
    "Coordinator",
    "Decision",
    "ListConversations",
    "Message",
    "MessagePage",
    "NewConversation",
    "Ok",
    "Result",
    "Some",
    "ToolCall",
    "ToolResult",
    "Uuid",
];
