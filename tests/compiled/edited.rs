//! A host that edited every generated file, and whose owner changes then.

use crate::documents;
use crate::support::manifest;
use crate::workspace::{Workspace, add_tests};

#[test]
fn owners_change_in_a_host_that_edited_every_generated_file() {
    let workspace = Workspace::new("edited", &["edited"]);
    let host = &workspace.host;
    for (path, text) in [
        ("Cargo.toml", manifest("edited", "2024", "").as_str()),
        ("src/lib.rs", "pub mod accounts;\n"),
        ("src/accounts.rs", include_str!("hosts/edited/accounts.rs")),
        ("migrations/0001_accounts.up.sql", include_str!("hosts/edited/accounts.up.sql")),
        ("migrations/0001_accounts.down.sql", "DROP TABLE memberships;\nDROP TABLE users;\nDROP TABLE teams;\n"),
    ] {
        host.write(&format!("edited/{path}"), text);
    }
    workspace.generate("edited", "gen persistence conversations --scope Edited.Accounts.Scope --scope-owner user.id");
    let mut edits = Vec::new();
    for section in ["A column on conversations", "A column on display messages", "A call of your own"] {
        edits.extend(documents::apply(host, "edited", "docs/customizing.md", section));
    }
    for (path, old, new) in EDITS {
        let text = host.read(path);
        assert!(text.contains(old), "{path} has no {old:?}");
        host.write(path, &text.replace(old, new));
    }
    let tests = host.read(TESTS);
    let (before, rest) = tests.split_once(REMOVED).unwrap();
    let (_, after) = rest.split_once("#[tokio::test]\n").unwrap();
    host.write(TESTS, &format!("{before}#[tokio::test]\n{after}"));
    let generated = host.files().into_keys().filter(|path| path.starts_with("edited/src/conversations"));
    let generated: Vec<_> = generated.collect();
    for path in &generated {
        host.write(path, &format!("{}\n// Edited by its owner.\n", host.read(path)));
    }

    // A bare `user_id` would be that of the membership, and the first one would get every conversation.
    let backfill = |user: &str| {
        let query = "SELECT team_id FROM memberships WHERE memberships.user_id";
        let backfill = format!("({query} = {user} ORDER BY joined_at LIMIT 1)");
        host.sagents_in("edited", &["gen", "persistence", "conversations", "-t", "team", "--backfill", &backfill])
    };
    assert_eq!(backfill("user_id").code, 2);
    let run = backfill("conversation.user_id");
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    for (path, _, new) in EDITS {
        assert!(host.read(path).contains(new), "{path} lost {new:?}");
    }
    for edit in edits {
        let text = host.read(&format!("edited/{}", edit.path));
        for added in edit.hunks.iter().flat_map(|hunk| hunk.new.lines().filter(|line| !hunk.old.contains(line))) {
            let added = added.replace("user_id", "team_id");
            assert!(text.contains(&added), "{} lost {added:?}", edit.path);
        }
    }
    assert!(!host.read(TESTS).contains(REMOVED));
    for path in &generated {
        assert!(host.read(path).ends_with("\n// Edited by its owner.\n"), "{path}");
    }
    // The host's own statements follow by hand; the report named them.
    for file in ["counts", "projects", "ratings"] {
        assert!(run.stdout.contains(&format!("src/conversations/{file}.rs")), "{}", run.stdout);
        let path = format!("edited/src/conversations/{file}.rs");
        host.write(&path, &host.read(&path).replace("user_id", "team_id"));
    }
    add_tests(host, "edited", "edited", &[("test.rs", include_str!("hosts/edited/test.rs"))]);
    workspace.test(&workspace.build());
    assert_eq!(host.sagents_in("edited", &["check"]).code, 0);
}

const TESTS: &str = "edited/src/conversations/tests.rs";

/// A test that the host removes.
const REMOVED: &str = "#[tokio::test]\nasync fn lists_have_pages() -> Result<()> {\n";

/// A renamed local, a new method, a reformatted function and the import of a removed test.
const EDITS: &[(&str, &str, &str)] = &[
    ("edited/src/conversations.rs", "changes_title", "sets_title"),
    (
        "edited/src/conversations.rs",
        "    /// Creates a conversation. Repeating",
        "    /// For statements of the application's own.\n    #[must_use]\n    pub fn database(&self) -> &SqlitePool {\n        \
         self.store.pool()\n    }\n\n    /// Creates a conversation. Repeating",
    ),
    (
        "edited/src/conversations.rs",
        "        self.store\n            .clear_display_messages(scope, conversation_id)\n            .await\n",
        "        let store = &self.store;\n        store.clear_display_messages(scope, conversation_id).await\n",
    ),
    (TESTS, "    ConversationOrder, Error,", "    Error,"),
];
