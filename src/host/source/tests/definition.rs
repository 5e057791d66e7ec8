//! Where a type is defined, and what of it can be seen.

use super::*;

#[test]
fn the_owner_is_found_in_another_file_by_its_key() {
    let files = [
        ("src/lib.rs", "pub mod accounts; mod users;"),
        ("src/accounts.rs", "use crate::users::{self, model::Person as User};\npub struct Scope { pub user: User }"),
        (
            "src/users.rs",
            "pub mod model { use uuid::Uuid as Key; pub struct Person { pub id: i64, pub user_id: Key } }",
        ),
    ];
    assert_eq!(infer_in(&files, "user_id").as_deref(), Ok("user.user_id: Uuid"));
    assert_eq!(infer_in(&files, "id").as_deref(), Ok("user.id: I64"));
}

#[test]
fn aliases_are_looked_through() {
    let files = [
        ("src/lib.rs", "pub mod accounts; mod ids;"),
        ("src/ids.rs", "pub type UserId = Raw; type Raw = i64; pub type Maybe = Option<UserId>; pub type Loop = Loop;"),
        ("src/accounts.rs", "pub type Scope = Session; struct Session { pub user_id: crate::ids::Maybe }"),
    ];
    assert_eq!(infer_in(&files, "id").as_deref(), Ok("user_id?: I64"));
    let newtype = "pub struct UserId(pub i64); pub struct Scope { pub user_id: UserId }";
    assert_eq!(infer_from(newtype).as_deref(), Ok("user_id.0: I64"));
    for endless in ["Loop", "&'static Loop", "Box<Loop>", "Option<Loop>", "(Loop)"] {
        let source = |fields: &str| format!("type Loop = {endless}; pub struct Scope {{ {fields} }}");
        assert!(infer_from(&source("pub user_id: Loop")).is_ok_and(|access| access.contains("Other")), "{endless}");
        assert!(infer_from(&source("pub user: Loop")).is_err(), "{endless}");
    }
}

#[test]
fn re_exports_lead_to_the_definition() {
    for accounts in [
        "mod scope; pub use self::scope::Scope;",
        "mod scope; pub use scope::{Other, Scope};",
        "mod scope; pub use scope::*;",
        "mod scope; pub use crate::accounts::scope::Scope as Scope;",
        "mod scope; pub use scope::Session as Scope;",
        "mod scope; mod again { pub use super::scope::Scope; pub use super::*; } pub use again::*;",
    ] {
        let files = [
            ("src/lib.rs", "pub mod accounts;"),
            ("src/accounts.rs", accounts),
            (
                "src/accounts/scope.rs",
                "pub struct Scope { pub user_id: i64 }\r\npub struct Session { pub user_id: i64 }",
            ),
        ];
        assert_eq!(infer_in(&files, "id").as_deref(), Ok("user_id: I64"), "{accounts}");
    }
}

#[test]
fn a_type_that_is_nowhere_is_absent_and_one_from_elsewhere_is_opaque() {
    for (text, expected) in [
        ("pub struct Scope;", "found"),
        ("pub struct Other; use sqlx::prelude::*; macro_rules! scope { () => { struct Scope; } }", "absent"),
        ("pub use auth::Scope;", "opaque"),
        ("pub use ::auth::*;", "opaque"),
        ("pub type Scope = auth::Session<User>;", "opaque"),
        ("define_scope! { Scope { user_id: i64 } }", "made"),
        ("include!(\"generated.rs\");", "made"),
        ("macro_rules! scope { () => { pub struct Scope; } } scope! {}", "made"),
        ("mod macros { macro_rules! user { () => { pub struct User; } } } user!();", "absent"),
        ("auth::scope!();", "made"),
        ("thread_local! { static SEEN: u8 = 1; }", "absent"),
        ("mod inner { auth::scope!(); } pub use inner::*;", "made"),
        ("#[derive(Debug, auth::MakeScope)] pub struct User;", "made"),
        ("#[auth::scope] pub struct User;", "made"),
        ("#[session(name = \"Scope\")] pub struct User;", "made"),
        ("#[derive(Debug)] /// No Scope.\n pub struct Scoped; #[instrument(skip(scope))] fn scope() {}", "absent"),
        ("pub trait Scope {}", "opaque"),
        ("mod a { pub use super::b::*; } mod b { pub use super::a::*; } pub use a::*;", "absent"),
        ("mod a { mod b; pub use b::Scope; } pub use a::*;", "opaque"),
        ("pub use self::b::Scope; mod b { pub use super::Scope; }", "opaque"),
    ] {
        assert_eq!(show_lookup(&accounts(text)), expected, "{text}");
    }
    assert_eq!(show_lookup(&[("src/lib.rs", "")]), "absent");
    assert_eq!(show_lookup(&[("src/lib.rs", "pub mod accounts { pub struct Scope; }")]), "found");
    let external = TypePath::parse("--scope", "auth::Scope", "my_app", &["auth".to_owned()]).unwrap();
    let source = Source { tree: &tree(&[]), crates: &crates(), context: &context() };
    assert!(matches!(source.lookup(&external).unwrap(), Lookup::Opaque));
}

#[test]
fn variants_of_a_scope_have_one_way_to_the_owner() {
    let variants = |one: &str, other: &str| {
        format!("#[cfg(a)] pub struct Scope {{ pub {one} }} #[cfg(not(a))] pub struct Scope {{ pub {other} }}")
    };
    let same = variants("team: u8, pub user_id: i64", "user_id: i64");
    assert_eq!(infer_from(&same).as_deref(), Ok("user_id: I64"));
    assert_eq!(follow_in(&same, "user_id").as_deref(), Ok("user_id: I64"));
    let imported = "#[cfg(a)] mod one { pub struct Scope { pub user_id: i64 } } #[cfg(a)] pub use one::Scope;
        #[cfg(not(a))] mod other { pub struct Scope { pub user_id: String } } #[cfg(not(a))] pub use other::Scope;";
    for (source, ways) in [
        (variants("user_id: i64", "current_user_id: i64"), "`user_id` or `current_user_id`"),
        (variants("user_id: i64", "user_id: Option<i64>"), "`user_id` of different types"),
        (imported.to_owned(), "`user_id` of different types"),
    ] {
        let message = infer_from(&source).unwrap_err();
        assert!(message.starts_with("5: ") && message.contains(ways), "{message}");
    }
    let missing = variants("user_id: i64, pub who: i64", "user_id: i64");
    assert!(follow_in(&missing, "who").unwrap_err().contains("has no field `who`"));
    let elsewhere = "#[cfg(a)] pub struct Scope { pub user_id: i64 } #[cfg(not(a))] pub use auth::Scope;";
    assert_eq!(show_lookup(&accounts(elsewhere)), "opaque");
}

#[test]
fn visibility_is_that_of_the_context() {
    for (context, expected) in [("accounts::chat", "abc"), ("conversations", "ac"), ("accounts::inner::chat", "abcd")] {
        let source = "pub mod inner { pub struct Scope { pub a: u8, pub(super) b: u8, pub(crate) c: u8, d: u8 } }
            pub use inner::Scope;";
        let tree = tree(&[("src/lib.rs", "mod accounts;"), ("src/accounts.rs", source)]);
        let context = ModulePath::parse_context(context, "my_app").unwrap();
        let source = Source { tree: &tree, crates: &crates(), context: &context };
        let Lookup::Found(found) = source.lookup(&scope()).unwrap() else { panic!("not found") };
        let visible: String =
            found.fields.iter().filter(|field| field.visible).map(|field| field.name.as_str()).collect();
        assert_eq!(visible, expected);
    }
}
