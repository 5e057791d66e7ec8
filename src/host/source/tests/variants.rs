//! Owners that are one of several kinds.

use super::*;

#[test]
fn the_owner_is_a_variant_of_an_enum() {
    const USER: &str = "pub struct User { pub id: i64, name: String } pub struct UserId(pub Uuid);";
    for (variants, expected) in [
        ("User(i64), Organization(i64), Anonymous", "[Self::User.0 as id]: I64"),
        ("User(User), Anonymous", "[Self::User.0 as user].id: I64"),
        ("User(Box<User>), Anonymous", "[Self::User.0 as user].id: I64"),
        ("User(Option<User>), Anonymous", "[Self::User.0 as user?].id: I64"),
        ("Organization { id: i64 }, User { id: String }", "[Self::User.id as id]: String"),
        ("User { user_id: i32, name: String }, Anonymous", "[Self::User.user_id as user_id of several]: SmallInt"),
        ("User { name: String, r#type: UserId }, Anonymous", "[Self::User.type as r#type of several].0: Uuid"),
        ("User(Role, UserId), Anonymous", "[Self::User.1 as id of several].0: Uuid"),
        ("User(i64)", "[Self::User.0 as id only]: I64"),
        ("Authenticated(User), Anonymous", "[Self::Authenticated.0 as user].id: I64"),
        ("Session { user_id: i64, token: String }, Anonymous", "[Self::Session.user_id as user_id of several]: I64"),
        ("Admin(User), Member(User)", ""),
        ("User(i64, i64), Anonymous", ""),
        ("User, Anonymous", ""),
        ("#[cfg(users)] User(i64), Anonymous", ""),
        ("User(ext::User), Member(User)", ""),
    ] {
        let source = format!("{USER} pub enum Scope {{ {variants} }}");
        assert_eq!(infer_from(&source).unwrap_or_default(), expected, "{variants}");
    }
}

#[test]
fn the_owner_is_a_variant_of_an_enum_in_a_field() {
    let actor = "pub enum Actor { User(i64), System }";
    for (scope, expected) in [
        ("pub struct Scope { pub actor: Actor }", "actor.[crate::accounts::Actor::User.0 as id]: I64"),
        ("pub struct Scope { pub actor: Option<Actor> }", "actor?.[crate::accounts::Actor::User.0 as id]: I64"),
        (
            "pub struct Scope { actor: Actor } impl Scope { pub fn actor(&self) -> &Actor { &self.actor } }",
            "actor().[crate::accounts::Actor::User.0 as id]: I64",
        ),
        ("pub struct Scope { actor: Actor } impl Scope { pub fn actor(&self) -> Actor { unreachable!() } }", ""),
        ("pub struct Scope { pub actor: Actor, pub subject: Actor }", ""),
        ("pub struct Scope { pub actor: Box<Actor> }", ""),
    ] {
        assert_eq!(infer_from(&format!("{actor} {scope}")).unwrap_or_default(), expected, "{scope}");
    }
}

#[test]
fn the_owner_is_a_kind_with_an_id() {
    let kind = "pub enum ScopeKind { User, Organization } mod inner { pub enum Hidden { User } } enum Private { User }";
    for (scope, expected) in [
        ("pub kind: ScopeKind, pub id: i64", "[kind is crate::accounts::ScopeKind::User].id: I64"),
        ("pub r#type: ScopeKind, pub id: Uuid", "[r#type is crate::accounts::ScopeKind::User].id: Uuid"),
        ("pub kind: Option<ScopeKind>, pub id: Option<i64>", "[kind? is crate::accounts::ScopeKind::User].id?: I64"),
        (
            "pub owner_type: ScopeKind, pub owner_id: i64, pub id: i64",
            "[owner_type is crate::accounts::ScopeKind::User].owner_id: I64",
        ),
        ("pub owner_type: ScopeKind, pub id: i64", ""),
        ("pub kind: inner::Hidden, pub id: i64", ""),
        ("pub kind: Private, pub id: i64", ""),
        ("pub kind: String, pub id: i64", ""),
        ("kind: ScopeKind, pub id: i64", ""),
        ("pub prototype: ScopeKind, pub id: i64", ""),
    ] {
        let source = format!("{kind} pub struct Scope {{ {scope} }}");
        assert_eq!(infer_from(&source).unwrap_or_default(), expected, "{scope}");
    }
}

#[test]
fn any_kind_is_found_in_the_same_scope() {
    for text in [
        "pub enum Scope { User(i64), Organization(i64) }",
        "pub enum ScopeKind { User, Organization } pub struct Scope { pub kind: ScopeKind, pub id: i64 }",
        "pub struct User { pub id: i64 } pub struct Organization { pub id: i64 }
         pub struct Scope { pub user: Option<User>, pub organization: Option<Organization> }",
        "pub struct Scope { pub user_id: i64, pub organization_id: Option<i64> }",
    ] {
        let files = accounts(text);
        let user = infer_kind(&files, "user", "id", None).unwrap();
        let organization = infer_kind(&files, "organization", "id", None).unwrap();
        assert!(user.to_lowercase().contains("user") && !user.to_lowercase().contains("organization"), "{user}");
        assert!(organization.to_lowercase().contains("organization"), "{organization}");
    }
}

#[test]
fn an_enum_without_the_owners_variant_needs_a_decision() {
    assert_eq!(
        infer_from("pub enum Scope { Member { id: i64, role: Role }, Service(String), Nobody }").unwrap_err(),
        "5: it is not clear how the id of the user is read from `crate::accounts::Scope` in src/accounts.rs: it has
  Member { id: i64, role: Role }
  Service(String)
  Nobody
looked for a variant `User` with an id or a user, and for a method `user_id` or `user`
help: give it with `--scope-owner`, or add `pub fn user_id(&self)` to `Scope` in that file"
    );
}
