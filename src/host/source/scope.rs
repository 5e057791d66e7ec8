//! What the generated code asks of a scope beside the way to its owner: it is `pub`, has no parameters, and is `Send` and
//! `Sync`. As far as the source shows; what it does not show is left to the compiler.

use std::collections::BTreeSet;

use syn::{Item, Type, TypeParamBound, Visibility};

use super::reader::{FUEL, Home, Meaning, Place, Reader};
use super::types::{Written, arguments, last_segment, show};
use crate::failure::{Failure, Result};
use crate::names::TypePath;

impl Reader<'_> {
    pub(super) fn check_scope(&self, scope: &TypePath, place: &Place, item: &Item) -> Result<()> {
        let (ident, visibility, generics) = match item {
            Item::Struct(item) => (&item.ident, &item.vis, &item.generics),
            Item::Enum(item) => (&item.ident, &item.vis, &item.generics),
            Item::Union(item) => (&item.ident, &item.vis, &item.generics),
            _ => return Ok(()),
        };
        let file = &place.file;
        if !generics.params.is_empty() {
            return Err(Failure::usage(format!("--scope: `{ident}` in {file} has parameters"))
                .help("name a type without generic parameters or lifetimes"));
        }
        if !matches!(visibility, Visibility::Public(_)) {
            return Err(Failure::decision(format!(
                "--scope: `{ident}` in {file} is not `pub`, but it is a part of public traits of the generated code"
            ))
            .help(format!("make `{ident}` itself `pub`; the module that it is in may stay private")));
        }
        if !is_declared_safe(place, item)
            && let Some((field, holds)) = self.bound_part(place, item, Needs::Both, &mut BTreeSet::new())?
        {
            return Err(Failure::decision(format!(
                "--scope: `{}` in {file} is not `Send` and `Sync`, which sessions need: `{field}` holds `{holds}`",
                scope.rust()
            ))
            .help(
                "use types that threads can share, such as `Arc` and `Mutex`, or name a type without it with --scope",
            ));
        }
        Ok(())
    }

    /// The first part of a type that keeps it on its thread, and what of that part does so.
    fn bound_part(
        &self,
        place: &Place,
        item: &Item,
        needs: Needs,
        seen: &mut Visited,
    ) -> Result<Option<(String, String)>> {
        for (name, ty) in parts(item) {
            let written = Written { ty: ty.clone(), home: place.home.clone() };
            if let Some(holds) = self.bound(&written, needs, seen)? {
                return Ok(Some((name, holds)));
            }
        }
        Ok(None)
    }

    /// What keeps a type on its thread. Nothing if the source does not show it.
    fn bound(&self, written: &Written, needs: Needs, seen: &mut Visited) -> Result<Option<String>> {
        let written = self.unalias(written)?;
        match &written.ty {
            Type::Ptr(_) => Ok(Some(show(&written.ty))),
            Type::Reference(reference) => self.bound(&written.part(&reference.elem), Needs::Both, seen),
            Type::Array(array) => self.bound(&written.part(&array.elem), needs, seen),
            Type::Slice(slice) => self.bound(&written.part(&slice.elem), needs, seen),
            Type::Tuple(tuple) => self.any_bound(&written, tuple.elems.iter(), needs, seen),
            Type::TraitObject(object) => {
                let is_bound = self.lacks(&object.bounds.iter().collect::<Vec<_>>(), &written.home, needs)?;
                Ok(is_bound.then(|| show(&written.ty)))
            }
            Type::Path(_) => match self.entry_of(&written)? {
                Meaning::Type(place, item) => {
                    let name = last_segment(&written.ty).unwrap_or_default();
                    if is_declared_safe(&place, &item) || !seen.insert((place.home.clone(), name, needs)) {
                        return Ok(None);
                    }
                    Ok(self.bound_part(&place, &item, needs, seen)?.map(|(_, holds)| holds))
                }
                Meaning::External(path) => self.bound_outside(&written, &path, needs, seen),
                // A name that every module has.
                Meaning::Absent | Meaning::Made(..) => {
                    self.bound_outside(&written, &Vec::from_iter(last_segment(&written.ty)), needs, seen)
                }
                _ => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// A type of another crate: those of the standard library are known.
    fn bound_outside(
        &self,
        written: &Written,
        path: &[String],
        needs: Needs,
        seen: &mut Visited,
    ) -> Result<Option<String>> {
        let (name, modules) = path.split_last().map_or(("", path), |(name, modules)| (name.as_str(), modules));
        let is_standard = modules.first().is_none_or(|krate| ["std", "core", "alloc"].contains(&krate.as_str()));
        let inner = match (modules.last().map(String::as_str), name) {
            (Some("rc") | None, "Rc")
            | (Some("rc"), "Weak")
            | (Some("cell"), "Ref" | "RefMut")
            | (Some("ptr") | None, "NonNull") => return Ok(Some(show(&written.ty))),
            (Some("sync"), "MutexGuard" | "RwLockReadGuard" | "RwLockWriteGuard") if is_standard => {
                return Ok(Some(show(&written.ty)));
            }
            (Some("cell") | None, "Cell" | "RefCell" | "UnsafeCell")
            | (Some("cell" | "unsync"), "OnceCell" | "LazyCell" | "Lazy")
            | (Some("mpsc"), "Receiver")
                if needs == Needs::Both && (is_standard || modules.last().is_some_and(|module| module == "unsync")) =>
            {
                return Ok(Some(show(&written.ty)));
            }
            // It makes `Sync` what is only `Send`.
            (_, "Mutex") => Needs::Send,
            (_, "Arc") => Needs::Both,
            _ if is_standard => needs,
            _ => return Ok(None),
        };
        self.any_bound(written, arguments(&written.ty).into_iter(), inner, seen)
    }

    fn any_bound<'t>(
        &self,
        written: &Written,
        types: impl Iterator<Item = &'t Type>,
        needs: Needs,
        seen: &mut Visited,
    ) -> Result<Option<String>> {
        for ty in types {
            if let Some(holds) = self.bound(&written.part(ty), needs, seen)? {
                return Ok(Some(holds));
            }
        }
        Ok(None)
    }

    /// Whether a trait object lacks what is needed: it has no `Send` or `Sync`, and every trait is one that is known.
    fn lacks(&self, bounds: &[&TypeParamBound], home: &Home, needs: Needs) -> Result<bool> {
        let mut open: Vec<_> = bounds.iter().map(|bound| ((*bound).clone(), home.clone())).collect();
        let (mut is_send, mut is_sync) = (false, needs == Needs::Send);
        let mut fuel = FUEL;
        while let Some((bound, home)) = open.pop() {
            let TypeParamBound::Trait(bound) = bound else { continue };
            let ty = Type::Path(syn::TypePath { attrs: Vec::new(), qself: None, path: bound.path });
            let name = last_segment(&ty).unwrap_or_default();
            match self.entry_of(&Written { ty, home })? {
                _ if name == "Send" => is_send = true,
                _ if name == "Sync" => is_sync = true,
                Meaning::Trait(place, item) if fuel > 0 => {
                    fuel -= 1;
                    open.extend(item.supertraits.iter().map(|bound| (bound.clone(), place.home.clone())));
                }
                _ if STAYING.contains(&name.as_str()) => {}
                _ => return Ok(false),
            }
        }
        Ok(!is_send || !is_sync)
    }
}

/// Traits of the standard library whose objects are neither `Send` nor `Sync` by themselves.
const STAYING: &[&str] = &[
    "Any", "AsMut", "AsRef", "Debug", "Display", "Error", "Fn", "FnMut", "FnOnce", "Future", "Iterator", "Read",
    "Write",
];

/// What the place of a type asks of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Needs {
    Send,
    /// `Send` and `Sync`.
    Both,
}

/// The types that were looked into already, so that one inside itself is no endless search.
type Visited = BTreeSet<(Home, String, Needs)>;

/// Everything that a value may hold, by name.
fn parts(item: &Item) -> Vec<(String, &Type)> {
    match item {
        Item::Struct(item) => fields("", &item.fields),
        Item::Enum(item) => {
            item.variants.iter().flat_map(|variant| fields(&format!("{}.", variant.ident), &variant.fields)).collect()
        }
        _ => Vec::new(),
    }
}

fn fields<'f>(prefix: &str, fields: &'f syn::Fields) -> Vec<(String, &'f Type)> {
    let part = |(index, field): (usize, &'f syn::Field)| {
        let name = field.ident.as_ref().map_or_else(|| index.to_string(), ToString::to_string);
        (format!("{prefix}{name}"), &field.ty)
    };
    fields.iter().enumerate().map(part).collect()
}

/// Its author promises with `unsafe impl` what the compiler does not see.
fn is_declared_safe(place: &Place, item: &Item) -> bool {
    let (Item::Struct(syn::ItemStruct { ident, .. }) | Item::Enum(syn::ItemEnum { ident, .. })) = item else {
        return true;
    };
    place.syntax.items.iter().any(|item| match item {
        Item::Impl(block) => {
            block.unsafety.is_some() && last_segment(&block.self_ty).is_some_and(|name| ident == &name)
        }
        _ => false,
    })
}
