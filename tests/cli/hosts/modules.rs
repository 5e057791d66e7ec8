//! Where modules go, and the lines that declare them.

use insta::assert_snapshot;

use super::{PLAIN, assert_a_second_run_changes_nothing, created, lines_with};
use crate::support::Host;
use crate::transcript::without_library;

#[test]
fn a_host_with_mod_rs_files_gets_one_more() {
    let host = Host::library().file("src/lib.rs", "mod util;\n").file("src/util/mod.rs", "");
    assert_snapshot!(created(&host, PLAIN), @"
    .gitattributes
    migrations/[version]_create_sagents_persistence.down.sql
    migrations/[version]_create_sagents_persistence.up.sql
    sagents.toml
    src/accounts/mod.rs
    src/conversations/mod.rs
    src/conversations/scope.rs
    ");
    assert_snapshot!(host.read("src/lib.rs"), @"
    pub mod accounts;
    pub mod conversations;
    mod util;
    ");
}

#[test]
fn a_module_that_became_a_directory_is_found_there() {
    let host = Host::library();
    host.generate(PLAIN);
    let [flat, nested] = ["src/conversations.rs", "src/conversations/mod.rs"].map(|path| host.root().join(path));
    std::fs::rename(&flat, &nested).unwrap();
    host.generate(PLAIN);
    assert_eq!((flat.exists(), nested.exists(), host.generate("check").code), (false, true, 0));
}

#[test]
fn what_stands_on_top_of_a_file_stays_there() {
    let text = "#!/usr/bin/env run\n// Licence: none.\n\n#![forbid(unsafe_code)]\n//! A library.\n//!\n//! It does things.\n\n\
                use std::fmt;\n\n/// A thing.\npub struct Thing;\n";
    let host = Host::library().file("src/lib.rs", text);
    host.generate(&format!("{PLAIN} --create-scope"));
    assert_snapshot!(host.read("src/lib.rs"), @"
    #!/usr/bin/env run
    // Licence: none.

    #![forbid(unsafe_code)]
    //! A library.
    //!
    //! It does things.

    pub mod accounts;
    pub mod conversations;

    use std::fmt;

    /// A thing.
    pub struct Thing;
    ");
}

#[test]
fn a_mod_line_goes_to_its_place_among_others() {
    let text = "//! A library.\n\npub mod alpha;\npub mod zulu; // the last\n\n#[cfg(test)]\nmod tests;\n";
    let host = Host::library()
        .file("src/lib.rs", text)
        .file("src/alpha.rs", "")
        .file("src/zulu.rs", "")
        .file("src/tests.rs", "");
    host.generate(PLAIN);
    assert_snapshot!(host.read("src/lib.rs"), @"
    //! A library.

    pub mod accounts;
    pub mod alpha;
    pub mod conversations;
    pub mod zulu; // the last

    #[cfg(test)]
    mod tests;
    ");
}

#[test]
fn a_context_below_a_module_that_is_there_is_declared_in_it() {
    let chat = "//! Talking.\n\npub fn talk() {}\n";
    let host = Host::library().file("src/lib.rs", "pub mod chat;\n").file("src/chat.rs", chat);
    let line = "gen persistence MyApp.Chat.Conversations -s MyApp.Accounts.Scope";
    assert_snapshot!(created(&host, line), @"
    .gitattributes
    migrations/[version]_create_sagents_persistence.down.sql
    migrations/[version]_create_sagents_persistence.up.sql
    sagents.toml
    src/accounts.rs
    src/chat/conversations.rs
    src/chat/conversations/scope.rs
    ");
    assert_snapshot!(host.read("src/chat.rs"), @"
    //! Talking.

    pub mod conversations;

    pub fn talk() {}
    ");
    assert_a_second_run_changes_nothing(&host, line);
}

#[test]
fn a_parent_that_is_missing_is_created() {
    let host = Host::library();
    let line = "gen persistence crate::chat::log::conversations -s crate::chat::Scope";
    host.generate(line);
    assert_snapshot!([host.read("src/lib.rs"), host.read("src/chat.rs"), host.read("src/chat/log.rs")].join("---\n"), @"
    pub mod chat;
    ---
    //! Who is asking, and for which user.

    pub mod log;

    /// The caller, which every call takes first.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Scope {
        /// The user that the caller acts for.
        pub user_id: i64,
    }
    ---
    //! The modules of `log`.

    pub mod conversations;
    ");
    assert_a_second_run_changes_nothing(&host, line);
}

#[test]
fn without_wiring_the_lines_are_printed_and_the_hosts_files_stay() {
    let host = Host::library();
    let (manifest, root) = (host.read("Cargo.toml"), host.read("src/lib.rs"));
    let line = format!("{PLAIN} --no-wire");
    let run = host.generate(&line);
    let unwired = run.stdout.lines().skip_while(|line| !line.starts_with("Add to"));
    let unwired = unwired.take_while(|line| *line != "Next:").collect::<Vec<_>>().join("\n");
    assert_snapshot!(without_library(&unwired), @r#"
    Add to .gitattributes:
      .sagents/** linguist-generated=true

    Add to Cargo.toml:
      sagents = { version = "0.1.0", path = "[library]", features = ["sqlite"] }
      serde = { version = "1.0", features = ["derive"] }
      serde_json = "1.0"
      uuid = { version = "1.10", features = ["serde", "v7"] }
      tokio = { version = "1.40", features = ["macros", "rt-multi-thread"] } # in [dev-dependencies]

    Add to src/lib.rs:
      pub mod accounts;
      pub mod conversations;

    Note: Conversations have no foreign key to their owner, because migrations has no table `users` or `user`. `--owner-table` names another one, or `none`.

    Note: Cargo.toml has sagents from [library], which other clones of this repository don't have. Remove `path` there once version 0.1.0 is published.
    "#);
    assert_eq!((host.read("Cargo.toml"), host.read("src/lib.rs")), (manifest, root));
    assert_a_second_run_changes_nothing(&host, PLAIN);
}

#[test]
fn without_wiring_a_scope_to_add_is_printed_whole() {
    let host =
        Host::library().file("src/lib.rs", "pub mod accounts;\n").file("src/accounts.rs", "pub struct Account;\n");
    let run = host.generate(&format!("{PLAIN} --no-wire --create-scope"));
    let unwired = run.stdout.lines().skip_while(|line| !line.starts_with("Add to src/accounts.rs"));
    assert_snapshot!(unwired.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n"), @"
    Add to src/accounts.rs:
      /// The caller, which every call takes first.
      #[derive(Debug, Clone, PartialEq, Eq)]
      pub struct Scope {
          /// The user that the caller acts for.
          pub user_id: i64,
      }
    ");
    assert_a_second_run_changes_nothing(&host, PLAIN);
}

#[test]
fn without_tests_nothing_of_them_is_there() {
    let host = Host::library();
    host.generate(&format!("{PLAIN} --no-tests"));
    assert!(!host.exists("src/conversations/tests.rs"));
    assert_snapshot!(lines_with(&host, "src/conversations.rs", "test"), @"");
    assert_snapshot!(lines_with(&host, "Cargo.toml", "dev-dependencies"), @"");
    assert_a_second_run_changes_nothing(&host, PLAIN);
}

#[test]
fn two_contexts_share_a_host() {
    let host = Host::library();
    host.generate(PLAIN);
    let second = "gen persistence support_chats -t none --table-prefix support_";
    host.generate(second);
    assert_snapshot!(host.read("sagents.toml"), @r#"
    # What `sagents gen persistence` was asked for, per context. Options that are not here have their default.
    # Commit this file; a rerun starts from it.

    [contexts.conversations]
    scope = "accounts::Scope"

    [contexts.support_chats]
    owner-type = "none"
    table-prefix = "support_"
    "#);
    assert_snapshot!(host.read("src/lib.rs"), @"
    pub mod accounts;
    pub mod conversations;
    pub mod support_chats;
    ");
    assert_a_second_run_changes_nothing(&host, PLAIN);
    assert_a_second_run_changes_nothing(&host, second);
}
