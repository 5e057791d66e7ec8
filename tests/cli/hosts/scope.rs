//! Scopes that are there, that are created, and that a context brings.

use insta::assert_snapshot;

use super::{PLAIN, assert_a_second_run_changes_nothing, lines_with};
use crate::support::{FULL, Host};

#[test]
fn the_owner_is_read_through_the_hosts_own_types() {
    let source =
        "pub struct User {\n    pub name: String,\n    pub id: i64,\n}\n\npub struct Scope {\n    pub user: User,\n}\n";
    let host = Host::library().file("src/lib.rs", "pub mod accounts;\n").file("src/accounts.rs", source);
    host.generate(FULL);
    assert_snapshot!(lines_with(&host, "src/conversations/scope.rs", "user.id"), @r#"Ok(Owner::new("user", self.user.id))"#);
    assert_eq!(host.read("src/accounts.rs"), source);
}

#[test]
fn a_scope_is_created_in_a_new_file() {
    let host = Host::library();
    host.generate("gen persistence conversations -s accounts::Scope -t team --owner-id uuid");
    assert_snapshot!(host.read("src/accounts.rs"), @"
    //! Who is asking, and for which team.

    /// The caller, which every call takes first.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Scope {
        /// The team that the caller acts for.
        pub team_id: uuid::Uuid,
    }
    ");
}

#[test]
fn a_scope_is_added_to_a_module_that_is_there() {
    let host = Host::library()
        .file("src/lib.rs", "pub mod accounts;\n")
        .file("src/accounts.rs", "//! Accounts.\n\npub struct Account;\n");
    host.generate(&format!("{PLAIN} --create-scope"));
    assert_snapshot!(host.read("src/accounts.rs"), @"
    //! Accounts.

    pub struct Account;

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
fn a_scope_may_be_at_the_crates_root() {
    let text = "pub struct Scope {\n    pub user_id: Option<uuid::Uuid>,\n}\n";
    let host = Host::library().file("src/lib.rs", text);
    host.generate("gen persistence conversations -s MyApp.Scope");
    assert_snapshot!(host.read("src/lib.rs"), @"
    pub mod conversations;

    pub struct Scope {
        pub user_id: Option<uuid::Uuid>,
    }
    ");
    let created = Host::library();
    created.generate("gen persistence conversations -s crate::Scope");
    assert_snapshot!(created.read("src/lib.rs"), @"
    pub mod conversations;

    /// The caller, which every call takes first.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Scope {
        /// The user that the caller acts for.
        pub user_id: i64,
    }
    ");
}

#[test]
fn a_scope_that_names_no_owner_is_enough_without_one() {
    let host = Host::library();
    host.generate("gen persistence conversations -s accounts::Scope -t none");
    assert_snapshot!(host.read("src/accounts.rs"), @"
    //! Who is asking, and for the application.

    /// The caller.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Scope;
    ");
}

#[test]
fn without_an_owner_a_context_brings_its_scope() {
    let host = Host::library().file("src/lib.rs", "pub struct Thing;\n");
    let line = "gen persistence conversations --owner-type none";
    host.generate(line);
    assert_snapshot!(host.read("src/conversations/scope.rs"), @"
    //! Conversations have no owner: every scope reads and writes all of them.

    use sagents::{Owner, OwnerScope, Result};

    /// Everybody.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Everyone;

    impl OwnerScope for Everyone {
        fn owner(&self) -> Result<Owner> {
            Ok(Owner::none())
        }
    }
    ");
    assert!(!host.read("sagents.toml").contains("\nscope ="));
    assert_a_second_run_changes_nothing(&host, line);
    assert_a_second_run_changes_nothing(&host, "update");
    // An owner that comes needs a scope that knows it.
    let refused = host.sagents("gen persistence conversations --owner-type user");
    assert!(refused.code == 2 && refused.stderr.contains("--scope is missing"), "{}", refused.stderr);
}
