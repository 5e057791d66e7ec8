//! The files of a new package with a page: its server, its agent, its model and its login. They are the host's as soon as
//! they are there.

use askama::Template;

use super::key::is_uuid;
use super::package::{Opening, outside};
use super::render;
use super::sql::join;
use crate::key::KeyType;
use crate::options::{Options, ScopeOrigin, Web, is_reserved};

#[derive(Template)]
#[template(path = "init/server.rs", escape = "none")]
struct Server {
    context: String,
    /// The path of the context's module: `my_app::conversations`.
    module: String,
    /// The path of the package.
    krate: String,
    opening: Opening,
    /// The context brings a scope that everybody has.
    has_login: bool,
    members: Option<Members>,
}

/// The statement that makes users members of a group, and its parameters.
struct Members {
    noun: String,
    join: String,
    owner_ids: String,
    group_id: &'static str,
    uses_uuid: bool,
}

#[derive(Template)]
#[template(path = "init/agent.rs", escape = "none")]
struct Agent {
    context: String,
    /// The path of the context's module: `crate::conversations`.
    module: String,
}

#[derive(Template)]
#[template(path = "init/model.rs", escape = "none")]
struct Model;

#[derive(Template)]
#[template(path = "init/login.rs", escape = "none")]
struct Login {
    scope_type: String,
    /// Nothing if the scope is called like something else that the file names.
    scope_import: Option<String>,
    /// The value of the cookie, the name, and the scope.
    users: Vec<(String, String, String)>,
    /// The field that the scope of a group has no value in.
    reader: Option<String>,
    uses_uuid: bool,
}

#[derive(Template)]
#[template(path = "init/everybody.rs", escape = "none")]
struct Everybody {
    scope: String,
    scope_type: String,
}

/// The modules of a new package with a page, by name, beside `main`.
pub fn modules(options: &Options) -> Vec<(&'static str, String)> {
    let agent = Agent { context: options.context.last().camel(), module: options.context.rust() };
    let mut modules = vec![("agent", render(&agent)), ("model", render(&Model))];
    if options.scope_origin != ScopeOrigin::Context {
        modules.push(("login", login(options)));
    }
    modules
}

/// The `main` of a new package with a page.
pub fn server(options: &Options, package: &str) -> String {
    let groups = options.owner.as_ref().zip(options.group.as_ref()).filter(|(_, group)| group.table.is_owners);
    let members = groups.map(|(owner, group)| Members {
        noun: group.noun.to_string(),
        join: join(&group.table, options.database),
        owner_ids: USERS.map(|user| key(owner.key, user)).join(", "),
        group_id: key(group.key, USERS[0]),
        uses_uuid: is_uuid(owner.key) || is_uuid(group.key),
    });
    render(&Server {
        context: options.context.last().camel(),
        module: outside(package, options.context.rust()),
        krate: outside(package, "crate::".to_owned()).trim_end_matches("::").to_owned(),
        opening: Opening::new(options, package),
        has_login: options.owner.is_some(),
        members,
    })
}

fn login(options: &Options) -> String {
    let scope = &options.scope;
    let is_taken = is_reserved(&scope.name, Web::Axum) || LOGIN_NAMES.contains(&scope.name.as_str());
    let scope_type = if is_taken { scope.rust() } else { scope.name.clone() };
    let Some(owner) = &options.owner else {
        return render(&Everybody { scope: scope.rust(), scope_type: scope.name.clone() });
    };
    let field = owner.noun.id();
    let mut users: Vec<_> = USERS
        .map(|user| {
            let id = key(owner.key, user);
            let fields = match &options.group {
                Some(group) => format!("{field}: Some({id}), {}: Some({})", group.noun.id(), key(group.key, USERS[0])),
                None => format!("{field}: {id}"),
            };
            (user.id.to_owned(), user.name.to_owned(), format!("{scope_type} {{ {fields} }}"))
        })
        .into();
    let group = options.group.as_ref().filter(|group| group.table.is_owners);
    users.extend(group.map(|group| {
        let (noun, id) = (group.noun.to_string(), key(group.key, USERS[0]));
        let scope = format!("{scope_type} {{ {field}: None, {}: Some({id}) }}", group.noun.id());
        ("group".to_owned(), format!("The {noun}, which only reads"), scope)
    }));
    render(&Login {
        scope_import: (!is_taken).then(|| scope.rust()),
        scope_type,
        users,
        reader: group.map(|_| field.to_string()),
        uses_uuid: is_uuid(owner.key) || options.group.as_ref().is_some_and(|group| is_uuid(group.key)),
    })
}

#[derive(Clone, Copy)]
struct User {
    id: &'static str,
    name: &'static str,
    /// Their keys.
    number: &'static str,
    uuid: &'static str,
    text: &'static str,
}

const USERS: [User; 2] = [
    User { id: "ada", name: "Ada", number: "1", uuid: "Uuid::from_u128(1)", text: "\"ada\".to_owned()" },
    User { id: "bob", name: "Bob", number: "2", uuid: "Uuid::from_u128(2)", text: "\"bob\".to_owned()" },
];

/// The key of a user, as a value that a field may have.
fn key(kind: KeyType, user: User) -> &'static str {
    match kind {
        KeyType::Integer => user.number,
        KeyType::Uuid | KeyType::UuidText => user.uuid,
        KeyType::Text => user.text,
    }
}

/// What `login.rs` names besides the scope, and that no other generated file does.
const LOGIN_NAMES: &[&str] = &[
    "Form",
    "FromRequestParts",
    "HeaderMap",
    "Html",
    "IntoResponse",
    "Json",
    "LogIn",
    "Parts",
    "Problem",
    "Redirect",
    "Router",
    "StatusCode",
    "User",
    "Uuid",
    "Value",
];
