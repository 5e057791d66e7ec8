//! Which paths the context can name: every module on the way, and every re-export, must be visible from there.

use syn::{Item, Visibility};

use super::definition::Definition;
use super::reader::{FUEL, Home, Meaning, Place, Reader, imports, is};
use crate::failure::{Failure, Result};
use crate::names::{Name, TypePath};

/// What on a path cannot be seen.
struct Private {
    /// `mod extractor` or `use` of a type.
    what: String,
    /// The line that would make it visible.
    wanted: String,
    place: Place,
}

impl Reader<'_> {
    /// Refuses a path that the context cannot name.
    pub(super) fn check_reach(&self, ty: &TypePath) -> Result<()> {
        let Some(Private { what, wanted, place }) = self.private(ty)? else { return Ok(()) };
        let (path, file, context) = (ty.rust(), &place.file, self.source.context.rust());
        let failure =
            Failure::decision(format!("--scope: `{path}` cannot be named in `{context}`: {what} in {file} is private"));
        let visible = match self.meaning(ty)?.map(|meaning| self.define(meaning)).transpose()?.flatten() {
            Some(definition) => self.path_to(&definition, ty)?,
            None => None,
        };
        Err(failure.help(match visible {
            Some(other) => format!("name it as it is visible there, with `--scope {}`", other.rust()),
            None => format!("write `{wanted};` in {file}, or re-export `{}` from a module that is visible", ty.name),
        }))
    }

    /// A path by which the context can name a type: where it is defined, beside the scope, or where it is re-exported,
    /// above its own module or at the root of another crate.
    pub(super) fn path_to(&self, definition: &Definition, near: &TypePath) -> Result<Option<TypePath>> {
        let Home { krate, path } = &definition.home;
        let outer = self.source.crates[0].dependencies.iter().find(|(_, index)| *index == krate);
        let name = outer.and_then(|(name, _)| Name::parse("", name).ok());
        let above = (0..=path.len()).rev().map(|length| TypePath {
            krate: name.clone(),
            modules: path[..length].to_vec(),
            name: definition.name.clone(),
        });
        let beside = TypePath { name: definition.name.clone(), ..near.clone() };
        if !definition.visible {
            return Ok(None);
        }
        let is_reachable = *krate == 0 || name.is_some();
        let mut candidates: Vec<_> = above.filter(|_| is_reachable).collect();
        candidates.insert(candidates.len().min(1), beside);
        let outside = self.source.crates[0].dependencies.keys().filter_map(|name| Name::parse("", name).ok());
        candidates.extend(outside.map(|krate| TypePath {
            krate: Some(krate),
            modules: Vec::new(),
            name: definition.name.clone(),
        }));
        for candidate in candidates {
            let Some(meaning) = self.meaning(&candidate)? else { continue };
            let same = self
                .define(meaning)?
                .is_some_and(|found| found.home == definition.home && found.name == definition.name);
            if same && self.private(&candidate)?.is_none() {
                return Ok(Some(candidate));
            }
        }
        Ok(None)
    }

    /// Where the walk to a type starts, and the path from there. Nothing if its crate cannot be read.
    pub(super) fn path_of(&self, ty: &TypePath) -> Option<(Home, Vec<String>)> {
        let krate = match &ty.krate {
            Some(name) => *self.source.crates[0].dependencies.get(name.as_str())?,
            None => 0,
        };
        let modules = ty.modules.iter().map(|module| module.as_str().to_owned());
        let path = ["crate".to_owned()].into_iter().chain(modules).chain([ty.name.clone()]);
        Some((Home::root(krate), path.collect()))
    }

    fn meaning(&self, ty: &TypePath) -> Result<Option<Meaning>> {
        let Some((root, path)) = self.path_of(ty) else { return Ok(None) };
        self.walk(&root, &path, FUEL).map(Some)
    }

    /// The first part of a path that the context cannot see: a module or an import. A type itself is judged elsewhere.
    fn private(&self, ty: &TypePath) -> Result<Option<Private>> {
        let Some((root, path)) = self.path_of(ty) else { return Ok(None) };
        let Some(mut here) = self.module(&root)? else { return Ok(None) };
        for name in &path[1..] {
            let declared: Vec<_> = self.declarations(&here, name)?;
            let is_seen = declared.iter().any(|(visibility, _)| self.sees(visibility, &here.home));
            if let (false, Some((_, private))) = (is_seen, declared.into_iter().next()) {
                return Ok(Some(private));
            }
            match self.walk(&here.home, &["self".to_owned(), name.clone()], FUEL)? {
                Meaning::Module(inner) => here = inner,
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    /// The `mod` and `use` lines that give a module a name, with their visibility.
    fn declarations(&self, place: &Place, name: &str) -> Result<Vec<(Visibility, Private)>> {
        let mut found = Vec::new();
        let mut add = |visibility: &Visibility, what: String, wanted: String| {
            found.push((visibility.clone(), Private { what, wanted, place: place.clone() }));
        };
        for item in place.items() {
            match item {
                Item::Mod(module) if is(&module.ident, name) => {
                    add(&module.vis, format!("`mod {name}`"), format!("pub(crate) mod {name}"));
                }
                Item::Struct(syn::ItemStruct { ident, .. })
                | Item::Enum(syn::ItemEnum { ident, .. })
                | Item::Union(syn::ItemUnion { ident, .. })
                | Item::Type(syn::ItemType { ident, .. })
                    if is(ident, name) =>
                {
                    return Ok(Vec::new());
                }
                _ => {}
            }
        }
        let imports = imports(place.items());
        for import in imports.iter().filter(|import| import.name.as_deref() == Some(name)) {
            add(&import.visibility, format!("the import of `{name}`"), format!("pub(crate) use {}", import.shown()));
        }
        if found.is_empty() {
            for import in imports.iter().filter(|import| import.name.is_none()) {
                if !matches!(self.behind_glob(place, import, name, FUEL)?, Meaning::Absent) {
                    let wanted = format!("pub(crate) use {}", import.shown());
                    let private = Private { what: format!("the import of `{name}`"), wanted, place: place.clone() };
                    found.push((import.visibility.clone(), private));
                }
            }
        }
        Ok(found)
    }
}
