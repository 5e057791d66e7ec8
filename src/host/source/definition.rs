//! The definition of a type of the host: its fields and methods, and which of them the context module may use. It tells
//! what stands in the source; what a member's type means is for `types`.

use camino::Utf8PathBuf;
use syn::ext::IdentExt as _;
use syn::{Item, Type};

use super::member::{Kind, Member};
use super::reader::{Entry, Place, Reader, is_test, name_of};
use super::types::{Written, last_segment, show};
use crate::failure::Result;
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
    pub generic: bool,
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
            Kind::Field => {
                let field = self.fields.iter().find(|field| field.name == member.name)?;
                (&field.ty, &self.module, field.visible)
            }
            Kind::Method => {
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
    pub(super) fn define(&self, entry: Entry) -> Result<Option<Definition>> {
        match entry {
            Entry::Type(place, item) => Ok(Some(self.definition(&place, &item))),
            Entry::Alias(place, alias) => {
                let target = self.unalias(&Written { ty: *alias.ty, module: place.path })?;
                match self.entry_of(&target)? {
                    Entry::Type(place, item) => Ok(Some(self.definition(&place, &item))),
                    _ => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }

    fn definition(&self, place: &Place, item: &Item) -> Definition {
        let (ident, generics, fields) = match item {
            Item::Struct(item) => (&item.ident, &item.generics, Some(&item.fields)),
            Item::Enum(item) => (&item.ident, &item.generics, None),
            Item::Union(item) => (&item.ident, &item.generics, None),
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
        Definition {
            file: place.file.clone(),
            module: place.path.clone(),
            fields: fields.into_iter().flatten().enumerate().map(field).collect(),
            methods,
            is_enum: fields.is_none(),
            generic: !generics.params.is_empty(),
            name,
        }
    }

    /// The methods of every `impl` for that name in a file, whichever of its modules it stands in.
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
