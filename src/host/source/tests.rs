mod definition;
mod follow;
mod infer;
mod newtype;
mod scope;
mod variants;

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

/// The scope and what it needs in one file.
fn accounts(text: &str) -> [(&str, &str); 2] {
    [("src/lib.rs", "pub mod accounts;"), ("src/accounts.rs", text)]
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

/// `user?.id: I64`, where `?` marks an `Option`, `&?` a reference to one, `??` a `Result`, and `User(id)` a variant.
fn show_access(access: &Access) -> String {
    let step = |step: &Step| match step {
        Step::Member { text, around: None } => text.clone(),
        Step::Member { text, around: Some(Around::Option) } => format!("{text}?"),
        Step::Member { text, around: Some(Around::BorrowedOption) } => format!("{text}&?"),
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
    let noun = Name::parse("", noun).unwrap();
    let sought = Sought { noun: &noun, key: Some(key), key_type, module: None, flag: "--scope-owner" };
    let definition = found(&tree).expect("the scope is there");
    Source { tree: &tree, crates: &crates(), context: &context() }
        .infer(&scope(), &definition, &sought)
        .map(|access| show_access(&access))
        .map_err(|failure| format!("{}: {failure}", failure.exit as u8))
}

fn infer_from(text: &str) -> Result<String, String> {
    infer_in(&accounts(text), "id")
}

fn follow_in(text: &str, way: &str) -> Result<String, String> {
    let user = Name::parse("", "user").unwrap();
    let sought = Sought { noun: &user, key: None, key_type: None, module: None, flag: "--scope-owner" };
    let tree = tree(&accounts(text));
    let definition = found(&tree);
    Source { tree: &tree, crates: &crates(), context: &context() }
        .follow(&scope(), definition.as_ref(), &sought, way)
        .map(|access| show_access(&access))
        .map_err(|failure| format!("{}: {failure}", failure.exit as u8))
}
