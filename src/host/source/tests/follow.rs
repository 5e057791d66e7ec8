//! Ways to an id that are given.

use super::*;

#[test]
fn a_given_way_is_followed_with_its_options() {
    let source = "pub struct Scope { pub user: Option<User>, pub r#type: Id } pub struct Id(pub i64);
        #[derive(Clone, getset::Getters)]
        pub struct User { pub id: Id, session: ext::Session }
        impl Scope { pub fn current_user(&self) -> &User { unreachable!() } }
        impl User { pub fn session(&self) -> &ext::Session { unreachable!() } }";
    for (text, expected) in [
        ("user.id", "user?.id: Other(\"Id\")"),
        ("user.id.0", "user?.id.0: I64"),
        ("current_user().id", "current_user().id: Other(\"Id\")"),
        ("r#type.0", "r#type.0: I64"),
        (" type . 0 ", "r#type.0: I64"),
        ("user.session().user.id", "user?.session().user.id"),
        ("user.derived()", "user?.derived()"),
    ] {
        assert_eq!(follow_in(source, text).as_deref(), Ok(expected), "{text}");
    }
    assert_eq!(follow_in("pub struct Scope(pub Option<i64>);", "0").as_deref(), Ok("0?: I64"));
    assert_eq!(follow_in("pub use auth::Scope;", "user.id").as_deref(), Ok("user.id"));
}

#[test]
fn what_could_be_inferred_can_be_given() {
    let kind = "pub enum Kind { User } pub struct Scope { pub kind: Kind, pub id: i64, pub user_id: i64 }";
    assert_eq!(follow_in(kind, "kind.User.id").as_deref(), Ok("[kind is crate::accounts::Kind::User].id: I64"));
    let id = "#[derive(Clone, Copy)] pub struct UserId(Uuid);
        impl From<UserId> for Uuid { fn from(id: UserId) -> Self { id.0 } }
        pub struct Scope { pub user_id: UserId, pub current_user_id: UserId }";
    for way in ["user_id", "current_user_id"] {
        assert_eq!(follow_in(id, way), Ok(format!("{way}: From {{ to: Uuid, take: Copy }}")));
    }
}

#[test]
fn a_way_that_the_scope_does_not_have_is_refused_with_what_it_has() {
    let source = "pub struct Scope { user: User, pub team: Team } pub struct Team { id: i64 }";
    let missing = follow_in(source, "usr.id").unwrap_err();
    assert_eq!(
        missing,
        "2: --scope-owner: `crate::accounts::Scope` in src/accounts.rs has no field `usr`; it has
  user: User (private)
  team: Team
help: name one of these, or add `pub fn owner_id(&self)` to `Scope` in that file"
    );
    assert!(
        follow_in(source, "user.id")
            .unwrap_err()
            .contains("`user` of `crate::accounts::Scope` in src/accounts.rs cannot be seen")
    );
    assert!(follow_in(source, "team.id").unwrap_err().contains("`id` of `Team`"));
    assert!(follow_in(source, "user_id()").unwrap_err().contains("no method `user_id()`"));
}

const KEYS: &str = "pub struct Scope {
        pub number: i64, pub short: Option<u16>, pub uuid: Uuid, pub text: String, pub slice: &'static str,
        pub shared: Arc<str>, pub large: u64, pub foreign: ext::Key, pub own: Own, pub shown: Shown, pub behind: Behind,
    }
    #[derive(Clone, Copy, Debug, Serialize)] pub struct Own(pub i64);
    impl HasKey for Own { fn key(&self) -> i64 { self.0 } }
    pub struct Shown(i64);
    impl fmt::Display for Shown {}
    pub struct Behind(i64);
    impl std::ops::Deref for Behind {}";

#[test]
fn methods_of_known_types_lead_to_known_types() {
    for (text, expected) in [
        ("number.to_string()", "number.to_string(): String"),
        ("number.clone()", "number.clone(): I64"),
        ("short.to_string()", "short?.to_string(): String"),
        ("uuid.to_string()", "uuid.to_string(): String"),
        ("uuid.simple().to_string()", "uuid.simple().to_string(): String"),
        ("text.as_str()", "text.as_str(): Str"),
        ("text.trim().to_lowercase()", "text.trim().to_lowercase(): String"),
        ("slice.to_owned()", "slice.to_owned(): String"),
        ("shared.clone()", "shared.clone(): Str"),
        ("large.to_string()", "large.to_string(): String"),
        ("foreign.0", "foreign.0"),
        ("foreign.key()", "foreign.key()"),
        ("foreign.to_string()", "foreign.to_string(): String"),
        ("own.clone().0", "own.clone().0: I64"),
        ("shown.to_string()", "shown.to_string(): String"),
        ("behind.key()", "behind.key()"),
    ] {
        assert_eq!(follow_in(KEYS, text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn methods_that_a_known_type_cannot_have_are_refused() {
    for text in [
        "number.id()",
        "number.0",
        "short.id",
        "uuid.0",
        "uuid.id()",
        "text.id()",
        "slice.as_str()",
        "large.0",
        "own.key()",
        "own.to_string()",
        "shown.clone()",
        "number.to_string().id()",
    ] {
        let message = follow_in(KEYS, text).unwrap_err();
        assert!(message.starts_with("2: --scope-owner: "), "{text}: {message}");
    }
}

#[test]
fn a_way_that_is_no_chain_of_accesses_is_refused() {
    for text in [
        "",
        ".",
        "user.",
        "user..id",
        "user?.id",
        "user.id(1)",
        "user id",
        "0()",
        "a::b",
        "ü",
        "user.id; drop()",
        "1a",
        "self.id",
        "00",
    ] {
        let message = follow_in("pub use auth::Scope;", text).unwrap_err();
        assert!(message.starts_with("2: --scope-owner: "), "{text}: {message}");
    }
}
