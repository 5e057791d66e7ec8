//! Ids that have a type of their own.

use super::*;

#[test]
fn an_id_is_found_inside_its_own_type() {
    let uuid = Some(KeyType::Uuid);
    let text = Some(KeyType::Text);
    for (definition, key, expected) in [
        ("pub struct UserId(pub Uuid);", uuid, "user_id.0: Uuid"),
        ("pub struct UserId(pub(crate) i64);", None, "user_id.0: I64"),
        ("pub struct UserId { pub value: Uuid }", uuid, "user_id.value: Uuid"),
        (
            "pub struct UserId<T = ()> { value: Uuid, of: PhantomData<T> } impl<T> UserId<T> { pub fn get(&self) -> Uuid { self.value } }",
            uuid,
            "user_id.get(): Uuid",
        ),
        ("pub struct UserId(Inner); pub struct Inner(pub Uuid);", uuid, ""),
        ("pub struct UserId(pub Inner); pub struct Inner(pub Uuid);", uuid, "user_id.0.0: Uuid"),
        (
            "pub struct UserId(Uuid); impl UserId { pub fn as_uuid(&self) -> &Uuid { &self.0 } pub fn nil() -> Self { unreachable!() } pub fn shown(&self) -> String { unreachable!() } }",
            uuid,
            "user_id.as_uuid(): Ref(Uuid)",
        ),
        (
            "pub struct UserId(Uuid); impl UserId { pub fn as_a(&self) -> Uuid { self.0 } pub fn as_b(&self) -> Uuid { self.0 } }",
            uuid,
            "",
        ),
        (
            "#[derive(Clone, Copy)] pub struct UserId(Uuid); impl From<UserId> for Uuid { fn from(id: UserId) -> Self { id.0 } }",
            uuid,
            "user_id: From { to: Uuid, take: Copy }",
        ),
        (
            "#[derive(Clone)] pub struct UserId(String); impl From<UserId> for String { fn from(id: UserId) -> Self { id.0 } }",
            text,
            "user_id: From { to: String, take: Clone }",
        ),
        (
            "pub struct UserId(String); impl From<&UserId> for String { fn from(id: &UserId) -> Self { unreachable!() } }",
            text,
            "user_id: From { to: String, take: Borrow }",
        ),
        ("pub struct UserId(String); impl From<UserId> for String { fn from(id: UserId) -> Self { id.0 } }", text, ""),
        (
            "#[derive(Clone, Copy)] pub struct UserId(Uuid); impl Into<Uuid> for UserId { fn into(self) -> Uuid { self.0 } }",
            uuid,
            "user_id: Into { to: Uuid, take: Copy }",
        ),
        (
            "pub struct UserId(Uuid); impl Into<Uuid> for &UserId { fn into(self) -> Uuid { self.0 } }",
            uuid,
            "user_id: Into { to: Uuid, take: Borrow }",
        ),
        (
            "#[derive(Clone, Copy, derive_more::Into)] pub struct UserId(i64);",
            None,
            "user_id: From { to: I64, take: Copy }",
        ),
        ("pub struct UserId(u128); impl fmt::Display for UserId {}", text, "user_id.to_string(): String"),
        ("pub struct UserId(u128); impl fmt::Display for UserId {}", uuid, ""),
        ("pub struct UserId(pub Uuid); impl fmt::Display for UserId {}", text, "user_id.to_string(): String"),
    ] {
        let source = format!("{definition} pub struct Scope {{ pub user_id: UserId }}");
        let found = infer_kind(&accounts(&source), "user", "id", key).unwrap();
        let found = if found.contains("Other") { String::new() } else { found };
        assert_eq!(found, expected, "{definition}");
    }
    let optional = "pub struct UserId(pub i64); pub struct Scope { pub user: Option<User> }
        pub struct User { id: UserId } impl User { pub fn id(&self) -> &UserId { &self.id } }";
    assert_eq!(infer_from(optional).as_deref(), Ok("user?.id().0: I64"));
}

#[test]
fn a_conversion_that_is_there_for_tests_only_is_not_used() {
    const FROM: &str = "impl From<UserId> for i64 { fn from(id: UserId) -> Self { id.0 } }";
    const SHOWN: &str = "impl fmt::Display for UserId {}";
    for (conversion, key) in [(FROM, KeyType::Integer), (SHOWN, KeyType::Text)] {
        for written in [
            format!("#[cfg(test)] {conversion}"),
            format!("#[cfg(all(test, unix))] {conversion}"),
            format!("#[cfg(test)] mod tests {{ use super::*; {conversion} }}"),
            format!("#[cfg(all(test, unix))] mod tests {{ use super::*; {conversion} }}"),
        ] {
            let source = format!(
                "#[derive(Clone)] pub struct UserId(i64); {written} pub struct Scope {{ pub user_id: UserId }}"
            );
            let found = infer_kind(&accounts(&source), "user", "id", Some(key));
            assert_eq!(found.as_deref(), Ok("user_id: Other(\"UserId\")"), "{written}");
        }
        let source = "#[derive(Clone)] pub struct UserId(i64); pub struct Scope { pub user_id: UserId }
            #[cfg(test)]
            mod tests;";
        let tests = format!("use super::*; {conversion}");
        let [root, accounts] = accounts(source);
        let found = infer_kind(&[root, accounts, ("src/accounts/tests.rs", &tests)], "user", "id", Some(key));
        assert_eq!(found.as_deref(), Ok("user_id: Other(\"UserId\")"), "{conversion}");
    }
}

#[test]
fn an_id_is_found_inside_a_type_that_a_macro_makes() {
    for (rule, call, expected) in [
        ("($name:ident) => { pub struct $name(pub Uuid); }", "UserId", "user_id.0: Uuid"),
        ("($name:ident, $inner:ty) => { pub struct $name(pub $inner); }", "UserId, i64", "user_id.0: I64"),
        ("($name:ident($inner:ty) $(,)?) => { pub struct $name(pub $inner); }", "UserId(i64),", ""),
        (
            "($(#[$meta:meta])* $name:ident $(,)?) => { $(#[$meta])* #[derive(Clone, Copy)] pub struct $name(Uuid);
             impl From<$name> for Uuid { fn from(id: $name) -> Self { id.0 } } }",
            "/// A user.\n UserId,",
            "user_id: From { to: Uuid, take: Copy }",
        ),
        (
            "() => {}; ($name:ident) => { pub struct $name(u128); impl $name { pub fn as_str(&self) -> &str { unreachable!() } } };",
            "UserId",
            "user_id.as_str(): Str",
        ),
        ("($($name:ident),*) => { $(pub struct $name(pub Uuid);)* }", "UserId, TeamId", "user_id.0: Uuid"),
        (
            "($($(#[$meta:meta])* $name:ident($inner:ty)),+ $(,)?) => { $($(#[$meta])* pub struct $name(pub $inner);)+ }",
            "TeamId(Uuid), /// A user.\n UserId(i64),",
            "",
        ),
        (
            "($($(#[$meta:meta])* $name:ident => $inner:ty;)*) => { $($(#[$meta])* pub struct $name(pub $inner);)* }",
            "TeamId => Uuid; /// A user.\n UserId => i64;",
            "user_id.0: I64",
        ),
        ("($name:ident, $($other:ident),*) => { pub struct $name(pub Uuid); }", "UserId, TeamId", ""),
        ("($name:ident) => { pub enum $name { One(i64) } }", "UserId", ""),
    ] {
        let source = format!(
            "pub mod ids {{ macro_rules! id_type {{ {rule} }} id_type!({call}); }}
             use ids::UserId; pub struct Scope {{ pub user_id: UserId }}"
        );
        let found = infer_from(&source).unwrap();
        let found = if found.contains("Other") { String::new() } else { found };
        assert_eq!(found, expected, "{rule}");
    }
}
