//! The files of a context.

use super::Files;
use super::fixtures::{Tables, Tests};
use super::key::example;
use super::names::Names;
use super::scope::OwnerScope;
use super::store::Store;
use super::web::Routes;
use crate::database::Database;
use crate::options::{Options, Web};

/// The texts of a context's files.
#[derive(Debug)]
pub struct Context {
    database: Database,
    api: Api,
    models: Models,
    scope: OwnerScope,
    store: Store,
    /// Nothing without `--web`.
    routes: Option<Routes>,
    /// Nothing with `--no-tests`.
    tests: Option<Tests>,
}

impl Context {
    /// `openai`: the package has a model that is asked through `async-openai`.
    pub fn new(options: &Options, public: bool, openai: bool, tables: &Tables) -> Self {
        let names = Names::new(options);
        let has_routes = options.web == Web::Axum;
        Self {
            database: options.database,
            api: Api {
                context: names.context.clone(),
                public,
                sea_orm: options.sea_orm,
                tests: options.tests,
                web: has_routes,
                scope_name: names.scope.clone(),
                scope_import: names.scope_import.clone(),
            },
            models: Models::new(options),
            scope: OwnerScope::new(options, &names),
            store: Store::new(options),
            routes: has_routes.then(|| Routes::new(&names, options.tests, openai)),
            tests: options.tests.then(|| Tests::new(options, &names, tables)),
        }
    }

    pub fn files(&self) -> Files {
        let Self { database, api, models, scope, store, routes, tests } = self;
        let mut files = vec![
            (None, api.context()),
            (Some("branches"), api.branches()),
            (Some("changes"), api.changes()),
            (Some("conversation"), models.conversation()),
            (Some("display_message"), models.display_message()),
            (Some("exports"), api.exports()),
            (Some("messages"), api.messages()),
            (Some("page"), include_str!("../../templates/context/page.rs").to_owned()),
            (Some("runs"), api.runs()),
            (Some("scope"), scope.text()),
            (Some("sessions"), api.sessions()),
            (Some("states"), api.states()),
            (Some("tool_calls"), api.tool_calls()),
            (Some("usage"), api.usage()),
            (Some("values"), include_str!("../../templates/context/values.rs").to_owned()),
        ];
        files.extend(store.files(*database));
        files.extend(routes.iter().flat_map(Routes::files));
        files.extend(tests.iter().flat_map(|tests| tests.files(*database)));
        files
    }
}

templates! {
    Api {
        /// The context's type: `Conversations`.
        context: String,
        /// Other crates can reach it, so what it does not use itself is no dead code.
        public: bool,
        sea_orm: bool,
        tests: bool,
        web: bool,
        /// The scope's type, and what a file imports to name it so.
        scope_name: String,
        scope_import: Option<String>,
    }
    context: "context/context.rs",
    branches: "context/branches.rs",
    messages: "context/messages.rs",
    changes: "context/changes.rs",
    exports: "context/exports.rs",
    runs: "context/runs.rs",
    sessions: "context/sessions.rs",
    states: "context/states.rs",
    tool_calls: "context/tool_calls.rs",
    usage: "context/usage.rs",
}

templates! {
    Models {
        prefix: String,
        owner: Option<OwnerField>,
        /// What the column `scope` holds.
        scope_example: String,
    }
    conversation: "context/conversation.rs",
    display_message: "context/display_message.rs",
}

impl Models {
    fn new(options: &Options) -> Self {
        let owner = options.owner.as_ref();
        Self {
            prefix: options.prefix.as_str().to_owned(),
            owner: owner.map(|owner| OwnerField {
                noun: owner.noun.to_string(),
                field: owner.field.to_string(),
                rust_type: owner.key.rust_type(),
            }),
            scope_example: match owner {
                Some(owner) => format!(r#"{{"type": "{}", "id": {}}}"#, owner.noun, example(owner.key)),
                None => r#"{"type": "none"}"#.to_owned(),
            },
        }
    }
}

#[derive(Debug)]
struct OwnerField {
    noun: String,
    field: String,
    rust_type: &'static str,
}
