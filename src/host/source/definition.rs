//! The definition of a type of the host: its fields, variants and methods, and which of them the context module may use.
//! It has what is in the source; what a member's type means is for `types`.

use std::rc::Rc;

use camino::Utf8PathBuf;
use syn::ext::IdentExt as _;
use syn::{Item, Type};

use super::macros;
use super::member::{Member, MemberKind};
use super::reader::{Home, Meaning, Place, Reader, name_of};
use super::types::{Written, last_segment, show};
use crate::failure::Result;
use crate::host::modules::{self, is_for_tests};

#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about the type")]
pub struct Definition {
    pub file: Utf8PathBuf,
    /// The module that defines it, which is where its types are resolved.
    pub(super) home: Home,
    /// Its name there; a re-export may have given it another.
    pub name: String,
    pub fields: Vec<Field>,
    pub methods: Vec<Method>,
    /// An enum or a union: it has no fields that every value has.
    pub is_enum: bool,
    /// Visible from the context module, if its own module is.
    pub(super) visible: bool,
    /// The variants of an enum.
    pub cases: Vec<Case>,
    /// An enum of another crate that may get more variants.
    pub(super) is_open: bool,
    /// The traits that it derives, or that its file implements for it.
    pub(super) traits: Vec<String>,
    /// A macro may give it methods that are not written anywhere.
    pub(super) expands: bool,
    /// What is written beside it.
    pub(super) syntax: Rc<syn::File>,
    /// What the same name means under other conditions (`cfg`).
    pub variants: Vec<Definition>,
}

/// A variant of an enum.
#[derive(Debug, Clone)]
pub struct Case {
    pub name: String,
    pub fields: Vec<Field>,
    /// It can be matched by its name and its fields, whatever the features of the crate.
    pub(super) is_certain: bool,
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
    pub(super) home: Home,
}

/// A member that a definition has.
pub(super) struct Has {
    pub(super) value: Written,
    pub(super) visible: bool,
}

impl Definition {
    pub(super) fn find(&self, member: &Member) -> Option<Has> {
        let (ty, home, visible) = match member.kind {
            MemberKind::Field => {
                let field = self.fields.iter().find(|field| field.name == member.name)?;
                (&field.ty, &self.home, field.visible)
            }
            MemberKind::Method => {
                let method = self.methods.iter().find(|method| method.name == member.name)?;
                (&method.returns, &method.home, method.visible)
            }
        };
        Some(Has { value: Written { ty: ty.clone(), home: home.clone() }, visible })
    }

    /// Whether a type is there for an id: `UserId`, `Id<User>`, or anything that wraps one value.
    pub(super) fn is_like_an_id(&self) -> bool {
        let is_tuple = self.fields.first().is_some_and(|field| field.name == "0");
        is_tuple || ["Id", "ID", "Key", "Uuid"].iter().any(|suffix| self.name.ends_with(suffix))
    }

    /// The type of a field, where it means something.
    pub(super) fn type_of(&self, field: &Field) -> Written {
        Written { ty: field.ty.clone(), home: self.home.clone() }
    }

    /// Every field, variant and method on a line of its own.
    pub(super) fn describe(&self) -> String {
        let mark = |visible: bool| if visible { "" } else { " (private)" };
        let fields =
            self.fields.iter().map(|field| format!("\n  {}: {}{}", field.name, show(&field.ty), mark(field.visible)));
        let methods = self.methods.iter().map(|method| {
            format!("\n  fn {}(&self) -> {}{}", method.name, show(&method.returns), mark(method.visible))
        });
        let cases = self.cases.iter().map(|case| format!("\n  {}", case.describe()));
        let lines: String = fields.chain(cases).chain(methods).collect();
        match (lines.is_empty(), self.is_enum) {
            (true, true) => "it has no variant, and no method that reads something".to_owned(),
            (true, false) => "it has no field, and no method that reads something".to_owned(),
            (false, _) => format!("it has{lines}"),
        }
    }
}

impl Case {
    /// As in the source: `User(i64)`, `Organization { id: i64 }`.
    fn describe(&self) -> String {
        let fields = |each: fn(&Field) -> String| self.fields.iter().map(each).collect::<Vec<_>>().join(", ");
        match self.fields.first() {
            None => self.name.clone(),
            Some(first) if first.name == "0" => format!("{}({})", self.name, fields(|field| show(&field.ty))),
            Some(_) => {
                format!("{} {{ {} }}", self.name, fields(|field| format!("{}: {}", field.name, show(&field.ty))))
            }
        }
    }
}

impl Reader<'_> {
    /// The definition of the type that a field access would reach, if it is in the crate.
    pub(super) fn definition_of(&self, written: &Written) -> Result<Option<Definition>> {
        self.definition_at(&self.pointee(written)?)
    }

    /// The definition of a type as it is written, also of one that a macro of the crate makes.
    fn definition_at(&self, written: &Written) -> Result<Option<Definition>> {
        match (self.entry_of(written)?, last_segment(&written.ty)) {
            (Meaning::Made(place, _), Some(name)) => self.made(&place, &name),
            (entry, _) => self.define(entry),
        }
    }

    /// As [`Reader::definition_of`], without looking into a `Box` or the like.
    pub(super) fn bare_definition_of(&self, written: &Written) -> Result<Option<Definition>> {
        let mut here = self.unalias(written)?;
        if let Type::Reference(reference) = &here.ty {
            here = self.unalias(&here.part(&reference.elem))?;
        }
        self.definition_at(&here)
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
                let target = self.unalias(&Written { ty: *alias.ty, home: place.home })?;
                match self.entry_of(&target)? {
                    Meaning::Type(place, item) => Ok(Some((place, item))),
                    _ => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }

    /// Whether a name means a type of another crate, also through aliases.
    pub(super) fn is_foreign(&self, entry: Meaning) -> Result<bool> {
        Ok(match entry {
            Meaning::External(_) => true,
            Meaning::Type(place, _) => place.home.krate != 0,
            Meaning::Alias(place, alias) => {
                let target = self.unalias(&Written { ty: *alias.ty, home: place.home })?;
                match self.entry_of(&target)? {
                    Meaning::Alias(..) => false,
                    entry => self.is_foreign(entry)?,
                }
            }
            _ => false,
        })
    }

    pub(super) fn definition(&self, place: &Place, item: &Item) -> Definition {
        let (ident, visibility, attributes, fields) = match item {
            Item::Struct(item) => (&item.ident, &item.vis, &item.attrs, Some(&item.fields)),
            Item::Enum(item) => (&item.ident, &item.vis, &item.attrs, None),
            Item::Union(item) => (&item.ident, &item.vis, &item.attrs, None),
            _ => unreachable!("only these three define a type"),
        };
        let name = ident.unraw().to_string();
        let field = |(index, field): (usize, &syn::Field)| Field {
            name: field.ident.as_ref().map_or_else(|| index.to_string(), |ident| ident.unraw().to_string()),
            ty: field.ty.clone(),
            visible: self.sees(&field.vis, &place.home),
        };
        let is_foreign = place.home.krate != 0;
        let case = |variant: &syn::Variant| Case {
            name: variant.ident.unraw().to_string(),
            // Where an enum is visible, so is what is in its variants.
            fields: variant.fields.iter().enumerate().map(|pair| Field { visible: true, ..field(pair) }).collect(),
            is_certain: !(has(&variant.attrs, "cfg") || is_foreign && has(&variant.attrs, "non_exhaustive")),
        };
        let cases = match item {
            Item::Enum(item) => item.variants.iter().map(case).collect(),
            _ => Vec::new(),
        };
        let mut methods = Vec::new();
        let file = Home { path: place.home.path[..place.base].to_vec(), ..place.home };
        self.collect_methods(&place.syntax.items, &name, &file, &mut methods);
        let mut traits = macros::derives(attributes);
        let expands = macros::may_add_methods(attributes, &traits)
            || place.items().iter().any(|item| macros::is_call_about(item, &name));
        traits.extend(traits_of(&place.syntax.items, &name));
        Definition {
            traits,
            expands,
            syntax: Rc::clone(&place.syntax),
            file: place.file.clone(),
            home: place.home.clone(),
            fields: fields.into_iter().flatten().enumerate().map(field).collect(),
            methods,
            is_enum: fields.is_none(),
            visible: self.sees(visibility, &place.home),
            cases,
            is_open: is_foreign && has(attributes, "non_exhaustive"),
            variants: Vec::new(),
            name,
        }
    }

    /// The methods of every `impl` for that name in a file, whichever of its modules it is in.
    fn collect_methods(&self, items: &[Item], name: &str, home: &Home, methods: &mut Vec<Method>) {
        for item in items {
            match item {
                Item::Impl(block)
                    if block.trait_.is_none()
                        && last_segment(&block.self_ty).as_deref() == Some(name)
                        && !is_for_tests(&block.attrs) =>
                {
                    methods.extend(block.items.iter().filter_map(|item| self.method(item, home)));
                }
                Item::Mod(inner) if !is_for_tests(&inner.attrs) => {
                    let child = inner.content.as_ref().zip(name_of(&inner.ident));
                    if let Some(((_, items), child)) = child {
                        self.collect_methods(items, name, &home.child(child), methods);
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
        let elsewhere = self.items_that_mention(definition)?;
        Ok(elsewhere.iter().any(|items| traits_of(items, &definition.name).iter().any(|found| found == name)))
    }

    /// The module of the host's crate that implements a trait for a type, if its file isn't one of these.
    pub(super) fn implementation(
        &self,
        definition: &Definition,
        name: &str,
        except: &[Utf8PathBuf],
    ) -> Result<Option<Utf8PathBuf>> {
        for file in self.sources(0)?.into_iter().filter(|file| !except.contains(file)) {
            let Ok(Some(text)) = self.source.tree.read(&file) else { continue };
            if !text.contains(&format!("{name} for ")) {
                continue;
            }
            let (Some(home), Ok(syntax)) = (self.home_of(&file), modules::parse(&file, &text)) else { continue };
            for item in &syntax.items {
                let Item::Impl(block) = item else { continue };
                let last = block.trait_.as_ref().and_then(|(path, ..)| path.segments.last());
                if last.is_none_or(|last| last.ident != name) || is_for_tests(&block.attrs) {
                    continue;
                }
                let found = self.definition_of(&Written { ty: (*block.self_ty).clone(), home: home.clone() })?;
                if found.is_some_and(|found| found.home == definition.home && found.name == definition.name) {
                    return Ok(Some(file));
                }
            }
        }
        Ok(None)
    }

    /// Whether another file of the crate gives a type a method of this name.
    pub(super) fn has_method(&self, definition: &Definition, name: &str) -> Result<bool> {
        let mut methods = Vec::new();
        for items in self.items_that_mention(definition)? {
            self.collect_methods(&items, &definition.name, &Home::root(definition.home.krate), &mut methods);
        }
        Ok(methods.iter().any(|method| method.name == name))
    }

    /// The items of every file of a type's crate that has its name, and is not for tests only.
    pub(super) fn items_that_mention(&self, definition: &Definition) -> Result<Vec<Vec<Item>>> {
        let (mut mentions, mut for_tests) = (Vec::new(), Vec::new());
        for file in self.sources(definition.home.krate)? {
            let Ok(Some(text)) = self.source.tree.read(&file) else { continue };
            for_tests.extend(modules::test_modules(&text));
            if text.contains(&definition.name) {
                mentions.push((file, text));
            }
        }
        mentions.retain(|(file, _)| !modules::is_in_any(file, &for_tests));
        Ok(mentions.iter().filter_map(|(file, text)| Some(modules::parse(file, text).ok()?.items)).collect())
    }

    fn method(&self, item: &syn::ImplItem, home: &Home) -> Option<Method> {
        let syn::ImplItem::Fn(function) = item else { return None };
        let signature = &function.sig;
        let receiver = signature.receiver()?;
        let by_reference = matches!(&receiver.kind, syn::ReceiverKind::Reference(_, _, None));
        let plain = signature.inputs.len() == 1
            && signature.asyncness.is_none()
            && matches!(signature.safety, syn::Safety::Default)
            && signature.generics.params.iter().all(|param| matches!(param, syn::GenericParam::Lifetime(_)));
        let syn::ReturnType::Type(_, returns) = &signature.output else { return None };
        (by_reference && plain && !is_for_tests(&function.attrs)).then(|| Method {
            name: signature.ident.unraw().to_string(),
            returns: (**returns).clone(),
            visible: self.sees(&function.vis, home),
            home: home.clone(),
        })
    }

    /// Whether the context module may use what a module declares with this visibility.
    pub(super) fn sees(&self, visibility: &syn::Visibility, home: &Home) -> bool {
        let mut limit = home.path.clone();
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
        home.krate == 0 && self.source.context.names().starts_with(&limit)
    }
}

fn has(attributes: &[syn::Attribute], name: &str) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident(name))
}

/// The traits that items implement for a type, whichever module they are in.
fn traits_of(items: &[Item], name: &str) -> Vec<String> {
    let mut traits = Vec::new();
    for item in items {
        match item {
            Item::Impl(block)
                if last_segment(&block.self_ty).as_deref() == Some(name) && !is_for_tests(&block.attrs) =>
            {
                let path = block.trait_.as_ref().and_then(|(path, ..)| path.segments.last());
                traits.extend(path.map(|segment| segment.ident.to_string()));
            }
            Item::Mod(module) if !is_for_tests(&module.attrs) => {
                traits.extend(module.content.iter().flat_map(|(_, items)| traits_of(items, name)));
            }
            _ => {}
        }
    }
    traits
}
