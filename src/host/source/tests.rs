use super::*;
use crate::host::modules::ModuleStyle;
use crate::key::KeyType;
use crate::names::Name;

const CONTEXT: &str = "conversations";

fn tree(files: &[(&str, &str)]) -> Tree {
    let mut tree = Tree::new("/nonexistent");
    for (path, text) in files {
        tree.overlay(*path, *text);
    }
    tree
}

fn crates() -> Vec<Readable> {
    let krate = Crate { root: "src/lib.rs".into(), library: true, style: ModuleStyle::Flat };
    vec![Readable { krate, dependencies: BTreeMap::new() }]
}

fn context() -> ModulePath {
    ModulePath::parse_context(CONTEXT, "my_app").unwrap()
}

fn scope() -> TypePath {
    TypePath::parse("--scope", "crate::accounts::Scope", "my_app", &[]).unwrap()
}

fn looked_up(tree: &Tree) -> Lookup {
    Source { tree, crates: &crates(), context: &context() }.lookup(&scope()).unwrap()
}

fn found(tree: &Tree) -> Option<Definition> {
    match looked_up(tree) {
        Lookup::Found(definition) => Some(definition),
        Lookup::Absent | Lookup::Opaque | Lookup::Made(_) => None,
    }
}

fn show_lookup(files: &[(&str, &str)]) -> &'static str {
    match looked_up(&tree(files)) {
        Lookup::Found(_) => "found",
        Lookup::Absent => "absent",
        Lookup::Opaque => "opaque",
        Lookup::Made(_) => "made",
    }
}

/// `user?.id: I64`, where `?` marks an `Option`, `??` a `Result`, and `User(id)` a variant.
fn show_access(access: &Access) -> String {
    let step = |step: &Step| match step {
        Step::Member { text, around: None } => text.clone(),
        Step::Member { text, around: Some(Around::Option) } => format!("{text}?"),
        Step::Member { text, around: Some(Around::Result) } => format!("{text}??"),
        Step::Variant { of, name, field, fields, binding, is_optional, is_only } => {
            let of = of.as_ref().map_or("Self".to_owned(), TypePath::rust);
            let mark = [(*is_optional, "?"), (*is_only, " only"), (*fields > 1, " of several")];
            let mark: String = mark.iter().filter(|(is_so, _)| *is_so).map(|(_, mark)| *mark).collect();
            format!("[{of}::{name}.{field} as {binding}{mark}]")
        }
        Step::Kind { member, of, variant, is_optional } => {
            format!("[{member}{} is {}::{variant}]", if *is_optional { "?" } else { "" }, of.rust())
        }
    };
    let steps = access.steps.iter().map(step).collect::<Vec<_>>().join(".");
    access.id.as_ref().map_or(steps.clone(), |id| format!("{steps}: {id:?}"))
}

fn infer_in(files: &[(&str, &str)], key: &str) -> Result<String, String> {
    infer_kind(files, "user", key, None)
}

/// How the id of any kind of owner is read.
fn infer_kind(files: &[(&str, &str)], noun: &str, key: &str, key_type: Option<KeyType>) -> Result<String, String> {
    let tree = tree(files);
    let name = |text| Name::parse("", text).unwrap();
    let (noun, field) = (name(noun), name(&format!("{noun}_id")));
    let sought = Sought { noun: &noun, field: &field, key, key_type, module: None, flag: "--scope-owner" };
    let definition = found(&tree).expect("the scope is there");
    Source { tree: &tree, crates: &crates(), context: &context() }
        .infer(&scope(), &definition, &sought)
        .map(|access| show_access(&access))
        .map_err(|failure| format!("{}: {failure}", failure.exit as u8))
}

/// The scope and what it needs in one file, `src/accounts.rs`.
fn infer_from(accounts: &str) -> Result<String, String> {
    infer_in(&[("src/lib.rs", "pub mod accounts;"), ("src/accounts.rs", accounts)], "id")
}

fn follow_in(accounts: &str, text: &str) -> Result<String, String> {
    let tree = tree(&[("src/lib.rs", "pub mod accounts;"), ("src/accounts.rs", accounts)]);
    let definition = found(&tree);
    Source { tree: &tree, crates: &crates(), context: &context() }
        .follow(&scope(), definition.as_ref(), "--scope-owner", text)
        .map(|access| show_access(&access))
        .map_err(|failure| format!("{}: {failure}", failure.exit as u8))
}

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
        ("who: User", "who.id: I64"),
        ("current_user: User", "current_user.id: I64"),
    ] {
        let source = format!("{USER} pub struct Scope {{ pub {field} }}");
        assert_eq!(infer_from(&source).as_deref(), Ok(expected), "{field}");
    }
}

#[test]
fn of_two_fields_of_the_owners_type_none_is_chosen() {
    let source = "pub struct User { pub id: i64 } pub struct Scope { pub author: User, editor: User }";
    assert!(infer_from(source).unwrap_err().starts_with("5: "));
    let source = "pub struct User { pub id: i64 } pub struct Scope { user: User, pub admin: User }";
    assert!(infer_from(source).unwrap_err().starts_with("5: "));
}

#[test]
fn private_fields_are_read_by_methods() {
    let id = "pub struct Scope { user_id: i64 } impl Scope { pub fn user_id(&self) -> i64 { self.user_id } }";
    assert_eq!(infer_from(id).as_deref(), Ok("user_id(): I64"));
    let user = "pub struct User { id: Uuid } impl User { pub const fn id(&self) -> &Uuid { &self.id } }
        pub struct Scope { user: Option<User> }
        mod reading { impl super::Scope { pub fn user(&self) -> Option<&super::User> { self.user.as_ref() } } }";
    assert_eq!(infer_from(user).as_deref(), Ok("user()?.id(): Ref(Uuid)"));
    let choice = "pub enum Scope { User(i64), Nobody } impl Scope { pub fn user_id(&self) -> Option<i64> { None } }";
    assert_eq!(infer_from(choice).as_deref(), Ok("user_id()?: I64"));
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
        let source = format!("pub struct Scope; impl Scope {{ {method} {{ todo!() }} }}");
        assert!(infer_from(&source).is_err(), "{method}");
    }
}

#[test]
fn the_owner_is_a_variant_of_an_enum() {
    const USER: &str = "pub struct User { pub id: i64, name: String } pub struct UserId(pub Uuid);";
    for (variants, expected) in [
        ("User(i64), Organization(i64), Anonymous", "[Self::User.0 as id]: I64"),
        ("User(User), Anonymous", "[Self::User.0 as user].id: I64"),
        ("User(Box<User>), Anonymous", "[Self::User.0 as user].id: I64"),
        ("User(Option<User>), Anonymous", "[Self::User.0 as user?].id: I64"),
        ("Organization { id: i64 }, User { id: String }", "[Self::User.id as id]: String"),
        ("User { user_id: i32, id: i64 }, Anonymous", "[Self::User.user_id as user_id of several]: SmallInt"),
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
        ("pub struct Scope { actor: Actor } impl Scope { pub fn actor(&self) -> Actor { todo!() } }", ""),
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
    for accounts in [
        "pub enum Scope { User(i64), Organization(i64) }",
        "pub enum ScopeKind { User, Organization } pub struct Scope { pub kind: ScopeKind, pub id: i64 }",
        "pub struct User { pub id: i64 } pub struct Organization { pub id: i64 }
         pub struct Scope { pub user: Option<User>, pub organization: Option<Organization> }",
        "pub struct Scope { pub user_id: i64, pub organization_id: Option<i64> }",
    ] {
        let files = [("src/lib.rs", "pub mod accounts;"), ("src/accounts.rs", accounts)];
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
            "pub struct UserId(Uuid); impl UserId { pub fn as_uuid(&self) -> &Uuid { &self.0 } pub fn nil() -> Self { todo!() } pub fn shown(&self) -> String { todo!() } }",
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
            "pub struct UserId(String); impl From<&UserId> for String { fn from(id: &UserId) -> Self { todo!() } }",
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
        let files = [("src/lib.rs", "pub mod accounts;"), ("src/accounts.rs", &source)];
        let found = infer_kind(&files, "user", "id", key).unwrap();
        let found = if found.contains("Other") { String::new() } else { found };
        assert_eq!(found, expected, "{definition}");
    }
    let optional = "pub struct UserId(pub i64); pub struct Scope { pub user: Option<User> }
        pub struct User { id: UserId } impl User { pub fn id(&self) -> &UserId { &self.id } }";
    assert_eq!(infer_from(optional).as_deref(), Ok("user?.id().0: I64"));
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
            "() => {}; ($name:ident) => { pub struct $name(u128); impl $name { pub fn as_str(&self) -> &str { todo!() } } };",
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

#[test]
fn a_method_may_fail() {
    let result = "pub struct Scope; impl Scope { pub fn user_id(&self) -> Result<Uuid, AuthError> { todo!() } }";
    assert_eq!(infer_from(result).as_deref(), Ok("user_id()??: Uuid"));
    let alias = "pub type Result<T> = std::result::Result<T, Error>; pub struct User { pub id: i64 } pub struct Scope;
        impl Scope { pub fn user(&self) -> Result<&User> { todo!() } }";
    assert_eq!(infer_from(alias).as_deref(), Ok("user()??.id: I64"));
}

#[test]
fn a_scope_that_may_hold_anyone_needs_a_decision() {
    let source = "pub struct Scope { pub r#type: Kind, pub id: i64, token: Vec<u8> }
        impl Scope { pub fn label(&self) -> &str { todo!() } }";
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
    let (user, user_id) = (Name::parse("", "user").unwrap(), Name::parse("", "user_id").unwrap());
    let sought =
        Sought { noun: &user, field: &user_id, key: "id", key_type: None, module: None, flag: "--scope-owner" };
    let access = source.infer(&scope, &definition, &sought).unwrap();
    assert_eq!(show_access(&access), "id: I64");
}

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
        let source = format!("type Loop = {endless}; pub struct Scope {{ pub user: Loop, pub user_id: Loop }}");
        assert!(infer_from(&source).is_ok_and(|access| access.contains("Other")), "{endless}");
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
    for (accounts, expected) in [
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
        let files = [("src/lib.rs", "pub mod accounts;"), ("src/accounts.rs", accounts)];
        assert_eq!(show_lookup(&files), expected, "{accounts}");
    }
    assert_eq!(show_lookup(&[("src/lib.rs", "")]), "absent");
    assert_eq!(show_lookup(&[("src/lib.rs", "pub mod accounts { pub struct Scope; }")]), "found");
    let external = TypePath::parse("--scope", "auth::Scope", "my_app", &["auth".to_owned()]).unwrap();
    let source = Source { tree: &tree(&[]), crates: &crates(), context: &context() };
    assert!(matches!(source.lookup(&external).unwrap(), Lookup::Opaque));
}

/// What is wrong with a scope in `src/accounts.rs`, if anything is.
fn checked(accounts: &str) -> Option<String> {
    let tree = tree(&[("src/lib.rs", "pub mod accounts;"), ("src/accounts.rs", accounts)]);
    let source = Source { tree: &tree, crates: &crates(), context: &context() };
    source.check_scope(&scope()).err().map(|failure| failure.what)
}

#[test]
fn what_keeps_a_scope_on_its_thread_is_named() {
    for (field, holds) in [
        ("std::rc::Rc<str>", "std::rc::Rc<str>"),
        ("Option<Vec<(u8, rc::Weak<u8>)>>", "rc::Weak<u8>"),
        ("Shared", "std::rc::Rc<u8>"),
        ("Inner", "Cell<u8>"),
        ("[Choice; 2]", "*const u8"),
        ("Arc<Cell<u8>>", "Cell<u8>"),
        ("std::sync::Mutex<std::rc::Rc<u8>>", "std::rc::Rc<u8>"),
        ("std::sync::RwLock<Cell<u8>>", "Cell<u8>"),
        ("&'static Cell<u8>", "Cell<u8>"),
        ("std::sync::MutexGuard<'static, u8>", "std::sync::MutexGuard<'static, u8>"),
        ("std::sync::mpsc::Receiver<u8>", "std::sync::mpsc::Receiver<u8>"),
        ("once_cell::unsync::OnceCell<u8>", "once_cell::unsync::OnceCell<u8>"),
        ("Box<dyn Fn() + Send>", "dyn Fn() + Send"),
        ("Box<dyn Store>", "dyn Store"),
    ] {
        let source = format!("{HELD} pub struct Scope {{ pub user_id: i64, held: {field} }}");
        let expected = format!(
            "--scope: `crate::accounts::Scope` in src/accounts.rs is not `Send` and `Sync`, which sessions need: \
             `held` holds `{holds}`"
        );
        assert_eq!(checked(&source), Some(expected), "{field}");
    }
    let choice = "pub enum Scope { User(i64), Nobody { reason: std::rc::Rc<str> } }";
    assert!(checked(choice).unwrap().ends_with("`Nobody.reason` holds `std::rc::Rc<str>`"));
}

#[test]
fn what_threads_can_share_is_no_fault_of_a_scope() {
    for field in [
        "Arc<std::sync::Mutex<Cell<u8>>>",
        "tokio::sync::OnceCell<u8>",
        "tokio::sync::MutexGuard<'static, u8>",
        "std::sync::OnceLock<u8>",
        "Box<dyn Fn() + Send + Sync>",
        "Box<dyn SharedStore>",
        "Box<dyn auth::Store>",
        "auth::Holder<Cell<u8>>",
        "Promised",
        "Tree",
        "fn(*const u8)",
        "PhantomData<fn() -> u8>",
    ] {
        let source = format!("{HELD} pub struct Scope {{ pub user_id: i64, held: {field} }}");
        assert_eq!(checked(&source), None, "{field}");
    }
}

const HELD: &str = "use std::{cell::Cell, rc, sync::Arc};
    type Shared = std::rc::Rc<u8>;
    struct Inner { seen: Cell<u8> }
    enum Choice { One, Two(*const u8) }
    struct Promised(*const u8);
    unsafe impl Send for Promised {}
    unsafe impl Sync for Promised {}
    struct Tree { children: Vec<Tree> }
    trait Store: std::fmt::Debug {}
    trait SharedStore: Store + Threaded {}
    trait Threaded: Send + Sync {}";

#[test]
fn a_scope_is_public_and_has_no_parameters() {
    assert_eq!(checked("mod inner { pub struct Scope; } pub(crate) use inner::Scope;"), None);
    assert_eq!(checked("pub struct Scope;"), None);
    for hidden in [
        "pub(crate) struct Scope;",
        "struct Scope;",
        "pub(super) enum Scope {}",
        "pub type Scope = Session; struct Session;",
        "#[cfg(a)] pub struct Scope; #[cfg(not(a))] pub(crate) struct Scope;",
    ] {
        assert!(checked(hidden).is_some_and(|what| what.contains("is not `pub`")), "{hidden}");
    }
    assert!(checked("pub struct Scope<T>(T);").is_some_and(|what| what.contains("has parameters")));
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
    assert_eq!(show_lookup(&[("src/lib.rs", "pub mod accounts;"), ("src/accounts.rs", elsewhere)]), "opaque");
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

#[test]
fn a_given_way_is_followed_with_its_options() {
    let source = "pub struct Scope { pub user: Option<User>, pub r#type: Id } pub struct Id(pub i64);
        #[derive(Clone, getset::Getters)]
        pub struct User { pub id: Id, session: ext::Session }
        impl Scope { pub fn current_user(&self) -> &User { todo!() } }
        impl User { pub fn session(&self) -> &ext::Session { todo!() } }";
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
