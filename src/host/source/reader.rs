//! The reader of the host's crate, and of those that are beside it on the disk: what a name means in a module, through
//! `mod`, `use` and files. A module is read once; a name that leads to any other crate or into a macro ends there.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use camino::{Utf8Path, Utf8PathBuf};
use syn::Item;
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;

use super::Source;
use crate::failure::Result;
use crate::host::modules::{self, Found, is_for_tests};
use crate::names::Name;

/// How many re-exports and aliases are followed before the search gives up.
pub(super) const FUEL: usize = 16;

pub(super) struct Reader<'a> {
    pub(super) source: Source<'a>,
    /// Names that modules behind a `*` are known not to have, or are just being asked for.
    missing: RefCell<BTreeSet<(Home, String)>>,
    /// Modules that were read before; nothing for one that is not there.
    places: RefCell<BTreeMap<Home, Option<Place>>>,
}

/// The place of a module: its crate, as one of those that can be read, and its path there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Home {
    pub(super) krate: usize,
    pub(super) path: Vec<Name>,
}

impl Home {
    /// A module of the host's own crate.
    pub(super) fn own(path: &[Name]) -> Self {
        Self { krate: 0, path: path.to_vec() }
    }

    pub(super) fn root(krate: usize) -> Self {
        Self { krate, path: Vec::new() }
    }

    pub(super) fn child(&self, name: Name) -> Self {
        Self { krate: self.krate, path: [self.path.as_slice(), &[name]].concat() }
    }
}

/// What a name means in a module.
pub(super) enum Meaning {
    Type(Place, Box<Item>),
    Alias(Place, Box<syn::ItemType>),
    Module(Place),
    Trait(Place, Box<syn::ItemTrait>),
    /// A path into another crate.
    External(Vec<String>),
    /// Something that cannot be read, or that is no type.
    Hidden,
    /// Nothing of that name is written there, but this macro or attribute may make it.
    Made(Place, String),
    Absent,
}

/// A module with the syntax of the file that it is in.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) home: Home,
    /// How many segments of the path lead to the file; the rest are inline modules in it.
    pub(super) base: usize,
    pub(super) file: Utf8PathBuf,
    pub(super) syntax: Rc<syn::File>,
}

impl Place {
    pub(super) fn items(&self) -> &[Item] {
        let mut items = self.syntax.items.as_slice();
        for name in &self.home.path[self.base..] {
            let inline = items.iter().find_map(|item| match item {
                Item::Mod(module) if is(&module.ident, name.as_str()) => module.content.as_ref(),
                _ => None,
            });
            items = inline.map_or(&[], |(_, items)| items);
        }
        items
    }

    /// The names of the types that are written in it, and the modules below it.
    pub(super) fn declares(&self) -> (Vec<String>, Vec<Home>) {
        let (mut types, mut inner) = (Vec::new(), Vec::new());
        for item in self.items() {
            match item {
                Item::Struct(syn::ItemStruct { ident, .. })
                | Item::Enum(syn::ItemEnum { ident, .. })
                | Item::Union(syn::ItemUnion { ident, .. })
                | Item::Type(syn::ItemType { ident, .. }) => types.push(ident.unraw().to_string()),
                Item::Mod(module) if !is_for_tests(&module.attrs) => {
                    inner.extend(name_of(&module.ident).map(|name| self.home.child(name)));
                }
                _ => {}
            }
        }
        (types, inner)
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(source: Source<'a>) -> Self {
        Self { source, missing: RefCell::default(), places: RefCell::default() }
    }

    /// Follows a path that is written in the module `from`. Of variants under `cfg` it takes the first.
    pub(super) fn walk(&self, from: &Home, path: &[String], fuel: usize) -> Result<Meaning> {
        Ok(self.variants(from, path, fuel)?.swap_remove(0))
    }

    /// As [`Reader::walk`], with every variant of what the path ends at. There is at least one.
    pub(super) fn variants(&self, from: &Home, path: &[String], fuel: usize) -> Result<Vec<Meaning>> {
        let mut module = from.clone();
        let mut rest = path;
        while let [first, tail @ ..] = rest {
            match first.as_str() {
                "crate" => module.path.clear(),
                "super" => drop(module.path.pop()),
                "self" => {}
                _ => break,
            }
            rest = tail;
        }
        let relative = rest.len() == path.len();
        let Some(mut here) = self.module(&module)? else { return Ok(vec![Meaning::Absent]) };
        for (index, name) in rest.iter().enumerate() {
            let tail = &rest[index + 1..];
            if relative && index == 0 && self.neighbour(&here, name).is_some() && !self.names(&here, name)? {
                return self.outside(&here, rest, fuel);
            }
            let mut entries = self.entries(&here, name, fuel)?;
            if tail.is_empty() && entries.len() > 1 {
                return Ok(entries);
            }
            let entry = match entries.swap_remove(0) {
                Meaning::Module(inner) => {
                    here = inner;
                    continue;
                }
                Meaning::External(path) => Meaning::External([&path, tail].concat()),
                entry if tail.is_empty() => entry,
                // What a path starts with and the module does not have is another crate.
                Meaning::Absent if relative && index == 0 => Meaning::External(rest.to_vec()),
                Meaning::Absent => Meaning::Absent,
                _ => Meaning::Hidden,
            };
            return Ok(vec![entry]);
        }
        Ok(vec![Meaning::Module(here)])
    }

    /// Whether a module gives a meaning to a name itself.
    fn names(&self, place: &Place, name: &str) -> Result<bool> {
        let is_imported = imports(place.items()).iter().any(|import| import.name.as_deref() == Some(name));
        Ok(is_imported || !self.declared(place, name)?.is_empty())
    }

    /// Follows a path that starts with the name of a crate that the crate of a module depends on.
    fn outside(&self, from: &Place, path: &[String], fuel: usize) -> Result<Vec<Meaning>> {
        let known = path.split_first().and_then(|(first, rest)| Some((self.neighbour(from, first)?, rest)));
        match (known, fuel.checked_sub(1)) {
            (Some((krate, rest)), Some(fuel)) => {
                let rest = [&["crate".to_owned()], rest].concat();
                self.variants(&Home::root(krate), &rest, fuel)
            }
            _ => Ok(vec![Meaning::External(path.to_vec())]),
        }
    }

    /// The crate of this name that the crate of a module depends on, if it can be read.
    fn neighbour(&self, from: &Place, name: &str) -> Option<usize> {
        self.source.crates[from.home.krate].dependencies.get(name).copied()
    }

    /// What a name means in a module: declared there or imported by name, in every variant; else imported by `*`,
    /// or made by a macro.
    fn entries(&self, place: &Place, name: &str, fuel: usize) -> Result<Vec<Meaning>> {
        let Some(fuel) = fuel.checked_sub(1) else { return Ok(vec![Meaning::Hidden]) };
        let mut entries = self.declared(place, name)?;
        let imports = imports(place.items());
        for import in imports.iter().filter(|import| import.name.as_deref() == Some(name)) {
            // `use uuid;` would otherwise import itself.
            if import.external || import.path == [name] {
                entries.extend(self.outside(place, &import.path, fuel)?);
            } else {
                entries.extend(self.variants(&place.home, &import.path, fuel)?);
            }
        }
        if entries.len() > 1 {
            entries.retain(|entry| !matches!(entry, Meaning::Absent));
        }
        if !entries.is_empty() {
            return Ok(entries);
        }
        for import in imports.iter().filter(|import| import.name.is_none()) {
            match self.behind_glob(place, import, name, fuel)? {
                Meaning::Absent => {}
                entry => return Ok(vec![entry]),
            }
        }
        let maker = self.maker(place, name)?;
        Ok(vec![maker.map_or(Meaning::Absent, |maker| Meaning::Made(place.clone(), maker))])
    }

    /// What keeps a module from having a name in another module: its file and line, and what it is.
    pub(super) fn occupant(&self, module: &[Name], name: &Name) -> Result<Option<(Utf8PathBuf, usize, &'static str)>> {
        let Some(place) = self.module(&Home::own(module))? else { return Ok(None) };
        for item in place.items() {
            let (ident, what) = match item {
                Item::Struct(item) => (&item.ident, "a struct"),
                Item::Enum(item) => (&item.ident, "an enum"),
                Item::Union(item) => (&item.ident, "a union"),
                Item::Type(item) => (&item.ident, "a type"),
                Item::Trait(item) => (&item.ident, "a trait"),
                Item::TraitAlias(item) => (&item.ident, "a trait"),
                Item::ExternCrate(item) => (item.rename.as_ref().map_or(&item.ident, |(_, ident)| ident), "a crate"),
                Item::Use(_) if self.imports_type(&place, item, name.as_str())? => {
                    return Ok(Some((place.file.clone(), item.span().start().line, "an import")));
                }
                _ => continue,
            };
            if is(ident, name.as_str()) {
                return Ok(Some((place.file.clone(), ident.span().start().line, what)));
            }
        }
        Ok(None)
    }

    /// Whether a `use` brings in a type or a module of that name, as far as that can be seen. Functions and macros have
    /// names of their own.
    fn imports_type(&self, place: &Place, item: &Item, name: &str) -> Result<bool> {
        for import in imports(std::slice::from_ref(item)) {
            if import.name.as_deref() == Some(name) {
                let is_crate = import.external || import.path == [name];
                return Ok(is_crate || !matches!(self.walk(&place.home, &import.path, FUEL)?, Meaning::Absent));
            }
        }
        Ok(false)
    }

    fn declared(&self, place: &Place, name: &str) -> Result<Vec<Meaning>> {
        let mut entries = Vec::new();
        for item in place.items() {
            match item {
                Item::Struct(syn::ItemStruct { ident, .. })
                | Item::Enum(syn::ItemEnum { ident, .. })
                | Item::Union(syn::ItemUnion { ident, .. })
                    if is(ident, name) =>
                {
                    entries.push(Meaning::Type(place.clone(), Box::new(item.clone())));
                }
                Item::Type(alias) if is(&alias.ident, name) => {
                    entries.push(Meaning::Alias(place.clone(), Box::new(alias.clone())));
                }
                Item::Trait(item) if is(&item.ident, name) => {
                    entries.push(Meaning::Trait(place.clone(), Box::new(item.clone())));
                }
                Item::Mod(module) if is(&module.ident, name) && !is_for_tests(&module.attrs) => {
                    entries.push(self.child(place, module)?);
                }
                _ => {}
            }
        }
        Ok(entries)
    }

    fn child(&self, place: &Place, module: &syn::ItemMod) -> Result<Meaning> {
        let Some(name) = name_of(&module.ident) else { return Ok(Meaning::Hidden) };
        let home = place.home.child(name);
        if module.content.is_some() {
            return Ok(Meaning::Module(Place { home, ..place.clone() }));
        }
        // The files of a `mod b;` inside an inline module are not looked for.
        let file = self.module(&home)?.filter(|inner| inner.base == home.path.len());
        Ok(file.map_or(Meaning::Hidden, Meaning::Module))
    }

    pub(super) fn behind_glob(&self, place: &Place, import: &Import, name: &str, fuel: usize) -> Result<Meaning> {
        let target = if import.external {
            self.outside(place, &import.path, fuel)?.swap_remove(0)
        } else {
            self.walk(&place.home, &import.path, fuel)?
        };
        let inner = match target {
            Meaning::Module(inner) => inner,
            // A prelude that is imported for private use exports nothing.
            Meaning::External(_) | Meaning::Hidden if import.is_public() => return Ok(Meaning::Hidden),
            _ => return Ok(Meaning::Absent),
        };
        let key = (inner.home.clone(), name.to_owned());
        if !self.missing.borrow_mut().insert(key.clone()) {
            return Ok(Meaning::Absent);
        }
        let entry = self.entries(&inner, name, fuel)?.swap_remove(0);
        if !matches!(entry, Meaning::Absent) {
            self.missing.borrow_mut().remove(&key);
        }
        Ok(entry)
    }

    /// Whether a name that a module doesn't give a meaning itself may come from another crate by a `pub use auth::*`.
    pub(super) fn is_behind_foreign_glob(&self, root: &Home, path: &[String]) -> Result<bool> {
        let Some((name, parent)) = path.split_last() else { return Ok(false) };
        let Meaning::Module(place) = self.walk(root, parent, FUEL)? else { return Ok(false) };
        if self.names(&place, name)? {
            return Ok(false);
        }
        for import in imports(place.items()).iter().filter(|import| import.name.is_none() && import.is_public()) {
            let Some(first) = import.path.first() else { continue };
            let is_own = ["crate", "self", "super"].contains(&first.as_str()) || self.names(&place, first)?;
            if import.external || !is_own {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The files that may be modules of a crate.
    pub(super) fn sources(&self, krate: usize) -> Result<Vec<Utf8PathBuf>> {
        let directory = self.source.crates[krate].krate.root.parent().unwrap_or(Utf8Path::new(""));
        let files = self.source.tree.sources(directory)?;
        Ok(files.into_iter().filter(|file| file.extension() == Some("rs")).collect())
    }

    /// The module of the host's crate that a file is.
    pub(super) fn home_of(&self, file: &Utf8Path) -> Option<Home> {
        let Source { tree, crates, .. } = self.source;
        let krate = &crates[0].krate;
        if file == krate.root {
            return Some(Home::root(0));
        }
        let inside = file.strip_prefix(krate.root.parent()?).ok()?.with_extension("");
        let names = inside.components().map(|part| part.as_str()).filter(|part| *part != "mod");
        let names: Vec<_> = names.map(|name| Name::parse("", name).ok()).collect::<Option<_>>()?;
        match modules::find(tree, krate, &names) {
            Ok(Found::Module(module)) if module.file == file => Some(Home::own(&names)),
            _ => None,
        }
    }

    pub(super) fn module(&self, home: &Home) -> Result<Option<Place>> {
        if let Some(known) = self.places.borrow().get(home) {
            return Ok(known.clone());
        }
        // What is wrong with another crate is not for this run to report.
        let place = match self.load(home) {
            Err(_) if home.krate != 0 => None,
            place => place?,
        };
        self.places.borrow_mut().insert(home.clone(), place.clone());
        Ok(place)
    }

    fn load(&self, home: &Home) -> Result<Option<Place>> {
        let Source { tree, crates, .. } = self.source;
        let krate = &crates[home.krate].krate;
        for base in (0..=home.path.len()).rev() {
            let file = match base {
                0 => krate.root.clone(),
                _ => match modules::find(tree, krate, &home.path[..base])? {
                    Found::Module(module) => module.file,
                    Found::Inline { .. } => continue,
                    Found::Missing { .. } => return Ok(None),
                },
            };
            let text = tree.read(&file)?.unwrap_or_default();
            let syntax = Rc::new(modules::parse(&file, &text)?);
            return Ok(Some(Place { home: home.clone(), base, file, syntax }));
        }
        Ok(None)
    }
}

/// One name that a `use` brings in.
pub(super) struct Import {
    /// Nothing for `*`.
    pub(super) name: Option<String>,
    path: Vec<String>,
    /// It starts with `::`.
    external: bool,
    pub(super) visibility: syn::Visibility,
}

impl Import {
    /// What is imported, as Rust source.
    pub(super) fn shown(&self) -> String {
        let (start, path) = (if self.external { "::" } else { "" }, self.path.join("::"));
        match &self.name {
            None => format!("{start}{path}::*"),
            Some(name) if self.path.last() == Some(name) => format!("{start}{path}"),
            Some(name) => format!("{start}{path} as {name}"),
        }
    }

    fn is_public(&self) -> bool {
        !matches!(self.visibility, syn::Visibility::Inherited)
    }
}

pub(super) fn imports(items: &[Item]) -> Vec<Import> {
    let mut imports = Vec::new();
    for item in items {
        if let Item::Use(item) = item {
            let external = item.leading_colon.is_some();
            flatten(&item.tree, &[], &mut |name, path| {
                imports.push(Import { name, path, external, visibility: item.vis.clone() });
            });
        }
    }
    imports
}

fn flatten(tree: &syn::UseTree, prefix: &[String], add: &mut impl FnMut(Option<String>, Vec<String>)) {
    // `use auth::{self}` imports `auth`.
    let full = |ident: &syn::Ident| match ident.unraw().to_string() {
        name if name == "self" && !prefix.is_empty() => prefix.to_vec(),
        name => [prefix, &[name]].concat(),
    };
    match tree {
        syn::UseTree::Path(path) => flatten(&path.tree, &full(&path.ident), add),
        syn::UseTree::Name(name) => {
            let path = full(&name.ident);
            add(path.last().cloned(), path);
        }
        syn::UseTree::Rename(rename) => add(Some(rename.rename.unraw().to_string()), full(&rename.ident)),
        syn::UseTree::Glob(_) => add(None, prefix.to_vec()),
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, prefix, add)),
    }
}

pub(super) fn is(ident: &syn::Ident, name: &str) -> bool {
    ident.unraw() == name
}

pub(super) fn name_of(ident: &syn::Ident) -> Option<Name> {
    Name::parse("", &ident.unraw().to_string()).ok()
}
