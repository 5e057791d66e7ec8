//! How the id of an owner is found in a scope's fields and methods.

use super::*;

#[test]
fn the_id_is_read_from_the_field_of_the_owners_name() {
    for (field, seen) in [
        ("user_id: i64", "user_id: I64"),
        ("user_id: i32", "user_id: SmallInt"),
        ("user_id: u64", "user_id: Other(\"u64\")"),
        ("user_id: uuid::Uuid", "user_id: Uuid"),
        ("user_id: Option<Uuid>", "user_id?: Uuid"),
        ("user_id: std::option::Option<String>", "user_id?: String"),
        ("user_id: &'static str", "user_id: Str"),
        ("user_id: std::borrow::Cow<'static, str>", "user_id: Str"),
        ("user_id: &'static Uuid", "user_id: Ref(Uuid)"),
        ("user_id: Vec< u8 >", "user_id: Other(\"Vec< u8 >\")"),
        ("name: String, pub(crate) user_id: i64", "user_id: I64"),
    ] {
        let source = format!("pub struct Scope {{ pub {field} }}");
        assert_eq!(infer_from(&source).as_deref(), Ok(seen), "{field}");
    }
}

#[test]
fn the_id_is_read_through_the_owner() {
    const USER: &str = "pub struct User { pub name: String, pub id: i64 }";
    for (field, expected) in [
        ("user: User", "user.id: I64"),
        ("user: Option<User>", "user?.id: I64"),
        ("user: Option<std::sync::Arc<User>>", "user?.id: I64"),
        ("user: Box<User>", "user.id: I64"),
        ("user: &'static User", "user.id: I64"),
        ("current_user: User", "current_user.id: I64"),
    ] {
        let source = format!("{USER} pub struct Scope {{ pub {field} }}");
        assert_eq!(infer_from(&source).as_deref(), Ok(expected), "{field}");
    }
}

#[test]
fn a_field_of_the_owners_type_is_not_the_owner_by_that() {
    for fields in ["pub who: User", "pub author: User, editor: User", "user: User, pub admin: User"] {
        let source = format!("pub struct User {{ pub id: i64 }} pub struct Scope {{ {fields} }}");
        assert!(infer_from(&source).unwrap_err().starts_with("5: it is not clear"), "{fields}");
    }
    let source = "pub struct User { pub id: i64 } pub struct Scope { pub user: User, pub admin: User }";
    assert_eq!(infer_from(source).as_deref(), Ok("user.id: I64"));
}

#[test]
fn of_two_ways_none_is_chosen() {
    const TYPES: &str = "pub struct User { pub id: i64 } pub struct Both { pub id: i64, pub user_id: i64 }
        pub enum Kind { User } pub enum Actor { User(i64), Job } use ext::Hidden;";
    for (scope, ways) in [
        ("struct Scope { pub user_id: i64, pub user: User }", "`user_id` and `user.id`"),
        ("struct Scope { pub user_id: i64, pub user: Hidden }", "`user_id` and `user.id`"),
        ("struct Scope { pub user: User, pub current_user: User }", "`user.id` and `current_user.id`"),
        ("struct Scope { pub user_id: i64, pub kind: Kind, pub id: i64 }", "`user_id` and `kind.User.id`"),
        ("struct Scope { pub user_id: i64, pub actor: Actor }", "`user_id` and `actor.User.0`"),
        ("struct Scope { pub actor: Actor, pub subject: Actor }", "`actor.User.0` and `subject.User.0`"),
        (
            "struct Scope { pub user_id: i64 } impl Scope { pub fn user_id(&self) -> i64 { unreachable!() } }",
            "`user_id` and `user_id()`",
        ),
        (
            "enum Scope { User(i64), Nobody } impl Scope { pub fn user_id(&self) -> Option<i64> { None } }",
            "`user_id()` and `User.0`",
        ),
        ("enum Scope { User { user_id: i64, id: i64 }, Nobody }", "`User.user_id` and `User.id`"),
    ] {
        let error = infer_from(&format!("{TYPES} pub {scope}")).unwrap_err();
        let what = "`crate::accounts::Scope` in src/accounts.rs has several ways to the id of the user";
        assert!(error.starts_with(&format!("5: {what}: {ways}\nhelp: ")), "{error}");
    }
    // Which of its ids is the key, its table says.
    let files = accounts("pub struct User { pub id: i64, pub user_id: i64 } pub struct Scope { pub user: User }");
    for (key, expected) in [("id", Ok("user.id: I64")), ("user_id", Ok("user.user_id: I64"))] {
        assert_eq!(infer_in(&files, key).as_deref().map_err(drop), expected);
    }
    assert!(infer_in(&files, "uuid").unwrap_err().contains("`user.id` and `user.user_id`"));
}

#[test]
fn private_fields_are_read_by_methods() {
    let id = "pub struct Scope { user_id: i64 } impl Scope { pub fn user_id(&self) -> i64 { self.user_id } }";
    assert_eq!(infer_from(id).as_deref(), Ok("user_id(): I64"));
    let user = "pub struct User { id: Uuid } impl User { pub const fn id(&self) -> &Uuid { &self.id } }
        pub struct Scope { user: Option<User> }
        mod reading { impl super::Scope { pub fn user(&self) -> Option<&super::User> { self.user.as_ref() } } }";
    assert_eq!(infer_from(user).as_deref(), Ok("user()?.id(): Ref(Uuid)"));
    let choice = "pub enum Scope { User, Nobody } impl Scope { pub fn user_id(&self) -> Option<i64> { None } }";
    assert_eq!(infer_from(choice).as_deref(), Ok("user_id()?: I64"));
}

#[test]
fn an_option_that_a_method_lends_is_known_as_borrowed() {
    const USER: &str = "pub struct User { pub id: i64 } pub type Key = Option<String>;";
    for (method, expected) in [
        ("user(&self) -> &Option<User>", "user()&?.id: I64"),
        ("user(&self) -> Option<&User>", "user()?.id: I64"),
        ("user_id(&self) -> &Option<String>", "user_id()&?: String"),
        ("user_id(&self) -> &Key", "user_id()&?: String"),
        ("user_id(&self) -> Option<String>", "user_id()?: String"),
    ] {
        let source = format!("{USER} pub struct Scope; impl Scope {{ pub fn {method} {{ unreachable!() }} }}");
        assert_eq!(infer_from(&source).as_deref(), Ok(expected), "{method}");
    }
}

#[test]
fn only_plain_methods_count() {
    for method in [
        "fn user_id(&self) -> i64",
        "pub async fn user_id(&self) -> i64",
        "pub fn user_id(self) -> i64",
        "pub fn user_id(&mut self) -> i64",
        "pub fn user_id<T>(&self) -> T",
        "pub fn user_id(&self, now: u8) -> i64",
        "pub unsafe fn user_id(&self) -> i64",
        "pub fn user_id(&self)",
        "#[cfg(test)] pub fn user_id(&self) -> i64",
    ] {
        let source = format!("pub struct Scope; impl Scope {{ {method} {{ unreachable!() }} }}");
        assert!(infer_from(&source).is_err(), "{method}");
    }
}

#[test]
fn methods_that_are_there_for_tests_only_do_not_count() {
    const METHOD: &str = "impl super::Scope { pub fn user_id(&self) -> i64 { unreachable!() } }";
    for written in [
        "#[cfg(test)] impl Scope { pub fn user_id(&self) -> i64 { unreachable!() } }".to_owned(),
        "#[cfg(all(test, unix))] impl Scope { pub fn user_id(&self) -> i64 { unreachable!() } }".to_owned(),
        "impl Scope { #[cfg(all(test, unix))] pub fn user_id(&self) -> i64 { unreachable!() } }".to_owned(),
        format!("#[cfg(test)] mod tests {{ {METHOD} }}"),
        format!("#[cfg(all(test, unix))] mod tests {{ {METHOD} }}"),
    ] {
        let source = format!("pub struct User {{ pub id: i64 }} pub struct Scope {{ user: User }} {written}");
        assert!(infer_from(&source).is_err(), "{written}");
    }
    let both =
        format!("pub struct Scope {{ user: i64 }} #[cfg(any(test, feature = \"id\"))] mod reading {{ {METHOD} }}");
    assert_eq!(infer_from(&both).as_deref(), Ok("user_id(): I64"));
}

#[test]
fn a_method_may_fail() {
    let result = "pub struct Scope; impl Scope { pub fn user_id(&self) -> Result<Uuid, AuthError> { unreachable!() } }";
    assert_eq!(infer_from(result).as_deref(), Ok("user_id()??: Uuid"));
    let alias = "pub type Result<T> = std::result::Result<T, Error>; pub struct User { pub id: i64 } pub struct Scope;
        impl Scope { pub fn user(&self) -> Result<&User> { unreachable!() } }";
    assert_eq!(infer_from(alias).as_deref(), Ok("user()??.id: I64"));
}

#[test]
fn a_scope_that_may_hold_anyone_needs_a_decision() {
    let source = "pub struct Scope { pub r#type: Kind, pub id: i64, token: Vec<u8> }
        impl Scope { pub fn label(&self) -> &str { unreachable!() } }";
    assert_eq!(
        infer_from(source).unwrap_err(),
        "5: it is not clear how the id of the user is read from `crate::accounts::Scope` in src/accounts.rs: it has
  type: Kind
  id: i64
  token: Vec<u8> (private)
  fn label(&self) -> &str
looked for a field or method `user_id`, and for a field or method `user` whose type has a visible `id`
a scope of `type` and `id` may be any kind of owner, and `Kind` is no enum with a variant `User` that can be read
help: give it with `--scope-owner`, or add `pub fn user_id(&self)` to `Scope` in that file"
    );
}

#[test]
fn an_owner_that_cannot_be_read_needs_a_decision() {
    let source = "use entities::User; pub struct Scope { pub user: User }";
    assert!(infer_from(source).unwrap_err().contains("--scope-owner user.id"));
}

#[test]
fn a_scope_that_is_the_owner_has_the_id_itself() {
    let tree = tree(&[("src/lib.rs", "mod accounts;"), ("src/accounts.rs", "pub struct User { pub id: i64 }")]);
    let scope = TypePath::parse("--scope", "accounts::User", "my_app", &[]).unwrap();
    let (crates, context) = (crates(), context());
    let source = Source { tree: &tree, crates: &crates, context: &context };
    let Lookup::Found(definition) = source.lookup(&scope).unwrap() else { panic!("not found") };
    let user = Name::parse("", "user").unwrap();
    let sought = Sought { noun: &user, key: None, key_type: None, module: None, flag: "--scope-owner" };
    let access = source.infer(&scope, &definition, &sought).unwrap();
    assert_eq!(show_access(&access), "id: I64");
}
