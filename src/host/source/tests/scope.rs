//! What a scope must be.

use super::*;

/// What is wrong with a scope in `src/accounts.rs`, if anything is.
fn checked(text: &str) -> Option<String> {
    let tree = tree(&accounts(text));
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
