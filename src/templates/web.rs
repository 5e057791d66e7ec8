//! The routes and the page of a context.

use super::Files;
use super::names::Names;

templates! {
    Routes {
        /// The context's type.
        context: String,
        tests: bool,
        /// Whether the package has a model that is asked through `async-openai`.
        openai: bool,
        /// The scope's type, and what a file imports to name it so.
        scope_name: String,
        scope_import: Option<String>,
        /// The context brings the scope's type.
        is_own: bool,
    }
    web: "web/web.rs",
    agent: "web/agent.rs",
    events: "web/events.rs",
    openai: "web/openai.rs",
    runner: "web/runner.rs",
}

impl Routes {
    pub fn new(names: &Names, tests: bool, openai: bool) -> Self {
        let Names { context, scope, scope_import, is_own, .. } = names;
        Self {
            context: context.clone(),
            tests,
            openai,
            scope_name: scope.clone(),
            scope_import: scope_import.clone(),
            is_own: *is_own,
        }
    }

    pub fn files(&self) -> Files {
        macro_rules! plain {
            ($($name:literal: $path:literal,)*) => {
                [$((Some($name), include_str!(concat!("../../templates/web/", $path)).to_owned()),)*]
            };
        }

        let mut files = vec![
            (Some("web"), self.web()),
            (Some("web/agent"), self.agent()),
            (Some("web/events"), self.events()),
            (Some("web/runner"), self.runner()),
        ];
        files.extend(plain! {
            "web/body": "body.rs",
            "web/conversations": "conversations.rs",
            "web/export": "export.rs",
            "web/guard": "guard.rs",
            "web/hosts": "hosts.rs",
            "web/input": "input.rs",
            "web/limits": "limits.rs",
            "web/messages": "messages.rs",
            "web/page": "page.rs",
            "web/problem": "problem.rs",
            "web/runs": "runs.rs",
            "web/streams": "streams.rs",
            "web/assets/api.js": "assets/api.js",
            "web/assets/app.css": "assets/app.css",
            "web/assets/app.js": "assets/app.js",
            "web/assets/chat.js": "assets/chat.js",
            "web/assets/composer.js": "assets/composer.js",
            "web/assets/conversation.js": "assets/conversation.js",
            "web/assets/dialog.js": "assets/dialog.js",
            "web/assets/dom.js": "assets/dom.js",
            "web/assets/icon.svg": "assets/icon.svg",
            "web/assets/index.html": "assets/index.html",
            "web/assets/inline.js": "assets/inline.js",
            "web/assets/list.js": "assets/list.js",
            "web/assets/markdown.js": "assets/markdown.js",
            "web/assets/message.js": "assets/message.js",
            "web/assets/outbox.js": "assets/outbox.js",
            "web/assets/panel.js": "assets/panel.js",
            "web/assets/stream.js": "assets/stream.js",
            "web/assets/tool.js": "assets/tool.js",
        });
        if self.openai {
            files.push((Some("web/openai"), self.openai()));
            if self.tests {
                files.extend(plain! { "web/openai/tests": "openai_tests.rs", });
            }
        }
        files
    }
}
