//! The definition of a type of the host: its fields and methods, and which of them the context module may use. It has
//! what is in the source; what a member's type means is for `types`.

use camino::Utf8PathBuf;
use syn::ext::IdentExt as _;
use syn::{Item, Type};

use super::macros;
use super::member::{Member, MemberKind};
use super::reader::{Meaning, Place, Reader, is_test, name_of};
use super::types::{Written, last_segment, show};
use crate::failure::Result;
use crate::host::modules;
use crate::names::Name;

#[derive(Debug, Clone)]
pub struct Definition {
    pub file: Utf8PathBuf,
    /// The module that defines it, which is where its types are resolved.
    pub module: Vec<Name>,
    /// Its name there; a re-export may have given it another.
    pub name: String,
    pub fields: Vec<Field>,
    pub methods: Vec<Method>,
    /// An enum or a union: it has no fields that every value has.
    pub is_enum: bool,
    /// The traits that it derives, or that its file implements for it.
    pub(super) traits: Vec<String>,
    /// A macro may give it methods that are not written anywhere.
    pub(super) expands: bool,
    /// What the same name means under other conditions (`cfg`).
    pub variants: Vec<Definition>,
}

#[derive(Debug, Clone)]
pub struct Field {
    /// Without `r#`; `0` in a tuple.
    pub name: String,
    pub ty: Type,
    /// Visible from the context module.
    pub visible: bool,
}

/// A method `fn name(&self) -> T`.
#[derive(Debug, Clone)]
pub struct Method {
    pub name: String,
    pub returns: Type,
    pub visible: bool,
    /// The module that its types are resolved in.
    pub module: Vec<Name>,
}

/// A member that a definition has.
pub(super) struct Has {
    pub(super) value: Written,
    pub(super) visible: bool,
}

impl Definition {
    pub(super) fn find(&self, member: &Member) -> Option<Has> {
        let (ty, module, visible) = match member.kind {
            MemberKind::Field => {
                let field = self.fields.iter().find(|field| field.name == member.name)?;
                (&field.ty, &self.module, field.visible)
            }
            MemberKind::Method => {
                let method = self.methods.iter().find(|method| method.name == member.name)?;
                (&method.returns, &method.module, method.visible)
            }
        };
        Some(Has { value: Written { ty: ty.clone(), module: module.clone() }, visible })
    }

    /// Every field and method on a line of its own.
    pub(super) fn describe(&self) -> String {
        let mark = |visible: bool| if visible { "" } else { " (private)" };
        let fields =
            self.fields.iter().map(|field| format!("\n  {}: {}{}", field.name, show(&field.ty), mark(field.visible)));
        let methods = self.methods.iter().map(|method| {
            format!("\n  fn {}(&self) -> {}{}", method.name, show(&method.returns), mark(method.visible))
        });
        let lines: String = fields.chain(methods).collect();
        match (lines.is_empty(), self.is_enum) {
            (true, true) => "it is an enum without a method that reads something".to_owned(),
            (true, false) => "it has no field, and no method that reads something".to_owned(),
            (false, _) => format!("it has{lines}"),
        }
    }
}

impl Reader<'_> {
    /// The definition of the type that a field access would reach, if it is in the crate.
    pub(super) fn definition_of(&self, written: &Written) -> Result<Option<Definition>> {
        let target = self.pointee(written)?;
        self.define(self.entry_of(&target)?)
    }

    /// The definition behind a name, through aliases.
    pub(super) fn define(&self, entry: Meaning) -> Result<Option<Definition>> {
        Ok(self.item(entry)?.map(|(place, item)| self.definition(&place, &item)))
    }

    /// The struct, enum or union behind a name, through aliases.
    pub(super) fn item(&self, entry: Meaning) -> Result<Option<(Place, Box<Item>)>> {
        match entry {
            Meaning::Type(place, item) => Ok(Some((place, item))),
            Meaning::Alias(place, alias) => {
                let target = self.unalias(&Written { ty: *alias.ty, module: place.path })?;
                match self.entry_of(&target)? {
                    Meaning::Type(place, item) => Ok(Some((place, item))),
                    _ => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }

    fn definition(&self, place: &Place, item: &Item) -> Definition {
        let (ident, attributes, fields) = match item {
            Item::Struct(item) => (&item.ident, &item.attrs, Some(&item.fields)),
            Item::Enum(item) => (&item.ident, &item.attrs, None),
            Item::Union(item) => (&item.ident, &item.attrs, None),
            _ => unreachable!("only these three define a type"),
        };
        let name = ident.unraw().to_string();
        let field = |(index, field): (usize, &syn::Field)| Field {
            name: field.ident.as_ref().map_or_else(|| index.to_string(), |ident| ident.unraw().to_string()),
            ty: field.ty.clone(),
            visible: self.sees(&field.vis, &place.path),
        };
        let mut methods = Vec::new();
        self.collect_methods(&place.syntax.items, &name, &place.path[..place.base], &mut methods);
        let mut traits = macros::derives(attributes);
        let expands = macros::may_add_methods(attributes, &traits)
            || place.items().iter().any(|item| macros::is_call_about(item, &name));
        traits.extend(traits_of(&place.syntax.items, &name));
        Definition {
            traits,
            expands,
            file: place.file.clone(),
            module: place.path.clone(),
            fields: fields.into_iter().flatten().enumerate().map(field).collect(),
            methods,
            is_enum: fields.is_none(),
            variants: Vec::new(),
            name,
        }
    }

    /// The methods of every `impl` for that name in a file, whichever of its modules it is in.
    fn collect_methods(&self, items: &[Item], name: &str, module: &[Name], methods: &mut Vec<Method>) {
        for item in items {
            match item {
                Item::Impl(block)
                    if block.trait_.is_none() && last_segment(&block.self_ty).as_deref() == Some(name) =>
                {
                    methods.extend(block.items.iter().filter_map(|item| self.method(item, module)));
                }
                Item::Mod(inner) if !is_test(&inner.attrs) => {
                    let child = inner.content.as_ref().zip(name_of(&inner.ident));
                    if let Some(((_, items), child)) = child {
                        self.collect_methods(items, name, &[module, &[child]].concat(), methods);
                    }
                }
                _ => {}
            }
        }
    }

    /// Whether the crate implements a trait for a type.
    pub(super) fn implements(&self, definition: &Definition, name: &str) -> Result<bool> {
        if definition.traits.iter().any(|found| found == name) {
            return Ok(true);
        }
        let elsewhere = self.items_that_mention(&definition.name)?;
        Ok(elsewhere.iter().any(|items| traits_of(items, &definition.name).iter().any(|found| found == name)))
    }

    /// Whether another file of the crate gives a type a method of this name.
    pub(super) fn has_method(&self, definition: &Definition, name: &str) -> Result<bool> {
        let mut methods = Vec::new();
        for items in self.items_that_mention(&definition.name)? {
            self.collect_methods(&items, &definition.name, &[], &mut methods);
        }
        Ok(methods.iter().any(|method| method.name == name))
    }

    fn items_that_mention(&self, name: &str) -> Result<Vec<Vec<Item>>> {
        let mut found = Vec::new();
        for file in self.sources()? {
            let Ok(Some(text)) = self.tree.read(&file) else { continue };
            if text.contains(name)
                && let Ok(source) = modules::parse(&file, &text)
            {
                found.push(source.items);
            }
        }
        Ok(found)
    }

    fn method(&self, item: &syn::ImplItem, module: &[Name]) -> Option<Method> {
        let syn::ImplItem::Fn(function) = item else { return None };
        let signature = &function.sig;
        let receiver = signature.receiver()?;
        let by_reference = matches!(&receiver.kind, syn::ReceiverKind::Reference(_, _, None));
        let plain = signature.inputs.len() == 1
            && signature.asyncness.is_none()
            && matches!(signature.safety, syn::Safety::Default)
            && signature.generics.params.iter().all(|param| matches!(param, syn::GenericParam::Lifetime(_)));
        let syn::ReturnType::Type(_, returns) = &signature.output else { return None };
        (by_reference && plain && !is_test(&function.attrs)).then(|| Method {
            name: signature.ident.unraw().to_string(),
            returns: (**returns).clone(),
            visible: self.sees(&function.vis, module),
            module: module.to_vec(),
        })
    }

    /// Whether the context module may use what a module declares with this visibility.
    fn sees(&self, visibility: &syn::Visibility, module: &[Name]) -> bool {
        let mut limit = module.to_vec();
        match visibility {
            syn::Visibility::Public(_) => return true,
            syn::Visibility::Inherited => {}
            syn::Visibility::Restricted(restricted) => {
                for segment in &restricted.path.segments {
                    match segment.ident.to_string().as_str() {
                        "crate" => limit.clear(),
                        "super" => drop(limit.pop()),
                        "self" => {}
                        _ => limit.extend(name_of(&segment.ident)),
                    }
                }
            }
        }
        self.context.names().starts_with(&limit)
    }
}

/// The traits that items implement for a type, whichever module they are in.
fn traits_of(items: &[Item], name: &str) -> Vec<String> {
    let mut traits = Vec::new();
    for item in items {
        match item {
            Item::Impl(block) if last_segment(&block.self_ty).as_deref() == Some(name) => {
                let path = block.trait_.as_ref().and_then(|(path, ..)| path.segments.last());
                traits.extend(path.map(|segment| segment.ident.to_string()));
            }
            Item::Mod(module) => {
                traits.extend(module.content.iter().flat_map(|(_, items)| traits_of(items, name)));
            }
            _ => {}
        }
    }
    traits
}
