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
    assert_snapshot!(lines_with(&host, "src/conversations/scope.rs", "user.id"), @"Ok(Owner::new(self.user.id))");
    assert_eq!(host.read("src/accounts.rs"), source);
}

#[test]
fn a_scope_is_created_in_a_new_file() {
    let host = Host::library();
    host.generate("gen persistence conversations -s accounts::Scope -t team --owner-id uuid");
    assert_snapshot!(host.read("src/accounts.rs"), @"
    //! Who is asking, and for which team.

    /// On whose behalf a call is made. What belongs to the team is reached through one.
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

    /// On whose behalf a call is made. What belongs to the user is reached through one.
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
    pub mod sagents;

    pub struct Scope {
        pub user_id: Option<uuid::Uuid>,
    }
    ");
    let created = Host::library();
    created.generate("gen persistence conversations -s crate::Scope");
    assert_snapshot!(created.read("src/lib.rs"), @"
    pub mod conversations;
    pub mod sagents;

    /// On whose behalf a call is made. What belongs to the user is reached through one.
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

    /// On whose behalf a call is made.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Scope;
    ");
}

#[test]
fn without_an_owner_a_context_brings_its_scope() {
    let host = Host::library().file("src/lib.rs", "pub struct Thing;\n");
    let line = "gen persistence conversations --owner-type none";
    host.generate(line);
    assert_snapshot!(host.read("src/conversations/scope.rs"), @r#"
    //! Who is asking. Conversations have no owner here: [`Everyone`] reaches all of them.

    use serde_json::{Value, json};

    use super::Result;

    /// The scope of every call. Calls take it all the same, so that an application which gets owners later
    /// has a place for them everywhere.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct Everyone;

    /// The owner of every conversation.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub struct Owner;

    impl Owner {
        /// Whether all callers share one owner: then nobody has to sign in.
        pub const IS_SHARED: bool = true;

        /// The value of the column `scope`.
        #[allow(clippy::unused_self, reason = "the same call as with an owner")]
        pub(super) fn to_json(&self) -> Value {
            json!({ "type": "none" })
        }
    }

    /// Whose rows a call may read.
    pub type Reach = Owner;

    /// A caller. Implement it for every type that a call may be made with. References, [`Arc`]s and
    /// `dyn OwnerScope` are callers too.
    ///
    /// [`Arc`]: std::sync::Arc
    pub trait OwnerScope: Send + Sync {
        /// The owner whose rows the call may reach.
        ///
        /// # Errors
        ///
        /// An implementation may refuse a caller.
        fn owner(&self) -> Result<Owner>;

        /// Whose rows the call may read.
        ///
        /// # Errors
        ///
        /// As [`owner`](Self::owner).
        fn reach(&self) -> Result<Reach> {
            self.owner()
        }
    }

    impl OwnerScope for Everyone {
        fn owner(&self) -> Result<Owner> {
            Ok(Owner)
        }
    }

    impl OwnerScope for Owner {
        fn owner(&self) -> Result<Owner> {
            Ok(self.clone())
        }
    }

    impl<T: OwnerScope + ?Sized> OwnerScope for &T {
        fn owner(&self) -> Result<Owner> {
            T::owner(self)
        }

        fn reach(&self) -> Result<Reach> {
            T::reach(self)
        }
    }

    impl<T: OwnerScope + ?Sized> OwnerScope for std::sync::Arc<T> {
        fn owner(&self) -> Result<Owner> {
            T::owner(self)
        }

        fn reach(&self) -> Result<Reach> {
            T::reach(self)
        }
    }
    "#);
    assert_eq!(
        lines_with(&host, "src/conversations/states.rs", "Everyone"),
        "use super::Everyone;\ntype Scope = Everyone;"
    );
    assert!(!host.read("sagents.toml").contains("\nscope ="));
    assert_a_second_run_changes_nothing(&host, line);
    assert_a_second_run_changes_nothing(&host, "update");
    // An owner that comes needs a scope that knows it.
    let refused = host.sagents("gen persistence conversations --owner-type user");
    assert!(refused.code == 2 && refused.stderr.contains("--scope is missing"), "{}", refused.stderr);
}
