//! Ids that are inside a type of the host's own, such as `UserId(Uuid)`: by its only field, by a method that lends or
//! copies it, by a conversion, or as text.

use syn::Item;

use super::access::{Access, Seen, Sought, Step, Take};
use super::definition::{Definition, Field};
use super::member::{Member, MemberKind};
use super::reader::Reader;
use super::types::{Written, argument, last_segment};
use crate::failure::Result;
use crate::host::modules::is_for_tests;
use crate::key::KeyType;

/// How many types may be around an id.
const DEEPEST: usize = 4;

/// Methods that are usually called so where they give what is inside, and what the names of others start with.
const GETTERS: &[&str] = &["get", "inner", "value", "id", "uuid", "as_uuid", "to_uuid", "as_i64", "as_str"];
const PREFIXES: &[&str] = &["as_", "get_", "to_", "into_"];

impl Reader<'_> {
    /// A way that ends at a value, or at the id that is inside it.
    pub(super) fn ending(&self, steps: Vec<Step>, value: &Written, sought: &Sought) -> Result<Access> {
        Ok(match self.id_inside(value, sought.key_type, DEEPEST)? {
            Some((more, id)) => Access { steps: [steps, more].concat(), id: Some(id) },
            None => Access { steps, id: Some(self.seen(value)?) },
        })
    }

    /// The way from a value of the host's own type to the id inside it. Of several, one that fits the key.
    fn id_inside(&self, value: &Written, key: Option<KeyType>, depth: usize) -> Result<Option<(Vec<Step>, Seen)>> {
        let Some(definition) = self.definition_of(value)?.filter(|definition| depth > 0 && !definition.is_enum) else {
            return Ok(None);
        };
        let fits = |seen: &Seen| key.map_or(seen.key().is_some(), |key| seen.fits(key));
        if let Some(field) = only_field(&definition).filter(|field| field.visible) {
            let member = Member::new(MemberKind::Field, &field.name);
            let step = || Step::Member { text: member.rust(), around: None };
            let (inner, around) = self.inside(&definition.type_of(field))?;
            let seen = self.seen(&inner)?;
            if around.is_none() && fits(&seen) {
                return Ok(Some((vec![step()], seen)));
            }
            if around.is_none()
                && let Some((rest, seen)) = self.id_inside(&inner, key, depth - 1)?
            {
                return Ok(Some(([vec![step()], rest].concat(), seen)));
            }
        }
        if let Some(way) = self.getter(&definition, &fits)? {
            return Ok(Some(way));
        }
        if let Some(seen) = self.conversion(&definition, value, &fits)? {
            return Ok(Some((Vec::new(), seen)));
        }
        let may_be_text = key.is_none_or(|key| key == KeyType::Text);
        Ok(if may_be_text && self.implements(&definition, "Display")? {
            Some((vec![Step::Member { text: "to_string()".to_owned(), around: None }], Seen::String))
        } else {
            None
        })
    }

    /// A method that gives a key: one that is called so, else the only one.
    fn getter(&self, definition: &Definition, fits: &dyn Fn(&Seen) -> bool) -> Result<Option<(Vec<Step>, Seen)>> {
        let mut found = Vec::new();
        for method in definition.methods.iter().filter(|method| method.visible && is_getter(&method.name)) {
            let member = Member::new(MemberKind::Method, &method.name);
            let Some(has) = definition.find(&member) else { continue };
            let (inner, around) = self.inside(&has.value)?;
            let seen = self.seen(&inner)?;
            if around.is_none() && fits(&seen) {
                let rank = GETTERS.iter().position(|name| *name == method.name).unwrap_or(GETTERS.len());
                found.push((rank, Step::Member { text: member.rust(), around: None }, seen));
            }
        }
        let is_clear = found.len() == 1 || found.iter().any(|(rank, ..)| *rank < GETTERS.len());
        let best = found.into_iter().min_by_key(|(rank, ..)| *rank).filter(|_| is_clear);
        Ok(best.map(|(_, step, seen)| (vec![step], seen)))
    }

    /// A key that the type converts to with `From` or `Into`.
    fn conversion(
        &self,
        definition: &Definition,
        value: &Written,
        fits: &dyn Fn(&Seen) -> bool,
    ) -> Result<Option<Seen>> {
        // What is in a `Box` would have to be taken out of it.
        if self.bare_definition_of(value)?.is_none() {
            return Ok(None);
        }
        let take = if self.implements(definition, "Copy")? {
            Some(Take::Copy)
        } else if self.implements(definition, "Clone")? {
            Some(Take::Clone)
        } else {
            None
        };
        let elsewhere = self.items_that_mention(definition)?;
        let mut found = Vec::new();
        for items in [&definition.syntax.items].into_iter().chain(&elsewhere) {
            conversions(items, &definition.name, &mut |to, conversion, by_reference| {
                if let Some(take) = if by_reference { Some(Take::Borrow) } else { take } {
                    found.push((to, conversion, take));
                }
            });
        }
        // `derive_more` makes the `From` of the only field.
        let derives = definition.traits.iter().any(|name| name == "Into");
        if let (true, Some(field), Some(take)) = (derives, only_field(definition), take) {
            found.push((self.seen(&definition.type_of(field))?, Conversion::From, take));
        }
        let order = |take: &Take| [Take::Copy, Take::Borrow, Take::Clone].iter().position(|known| known == take);
        let best = found.into_iter().filter(|(to, ..)| fits(to)).min_by_key(|(.., take)| order(take));
        let seen = best.map(|(to, conversion, take)| match conversion {
            Conversion::From => Seen::From { to: Box::new(to), take },
            Conversion::Into => Seen::Into { to: Box::new(to), take },
        });
        Ok(seen.map(|seen| self.converted(value, seen)))
    }

    /// The conversion of a value, which may be behind a reference.
    fn converted(&self, value: &Written, seen: Seen) -> Seen {
        let is_reference = |written: Written| matches!(written.ty, syn::Type::Reference(_));
        if self.unalias(value).is_ok_and(is_reference) { Seen::Ref(Box::new(seen)) } else { seen }
    }
}

fn is_getter(name: &str) -> bool {
    GETTERS.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The field of a type that has nothing else in it.
fn only_field(definition: &Definition) -> Option<&Field> {
    let is_marker = |field: &&Field| last_segment(&field.ty).as_deref() == Some("PhantomData");
    let mut fields = definition.fields.iter().filter(|field| !is_marker(field));
    fields.next().filter(|_| fields.next().is_none())
}

/// The trait that converts a type.
#[derive(Clone, Copy)]
enum Conversion {
    From,
    Into,
}

/// The keys that `impl From<UserId> for Uuid` and `impl Into<Uuid> for UserId` convert to, and whether a reference does.
fn conversions(items: &[Item], name: &str, add: &mut impl FnMut(Seen, Conversion, bool)) {
    for item in items {
        match item {
            Item::Impl(block) if !is_for_tests(&block.attrs) => {
                let Some(path) = block.trait_.as_ref().map(|(path, ..)| path) else { continue };
                let whole = syn::Type::Path(syn::TypePath { attrs: Vec::new(), qself: None, path: path.clone() });
                let Some(argument) = argument(&whole) else { continue };
                let (from, to, conversion) = match last_segment(&whole).as_deref() {
                    Some("From") => (argument, &*block.self_ty, Conversion::From),
                    Some("Into") => (&*block.self_ty, argument, Conversion::Into),
                    _ => continue,
                };
                let (from, by_reference) = match from {
                    syn::Type::Reference(reference) => (&*reference.elem, true),
                    from => (from, false),
                };
                let target = match last_segment(to).as_deref() {
                    Some("i64") => Seen::I64,
                    Some("Uuid") => Seen::Uuid,
                    Some("String") => Seen::String,
                    _ => continue,
                };
                if last_segment(from).as_deref() == Some(name) {
                    add(target, conversion, by_reference);
                }
            }
            Item::Mod(module) if !is_for_tests(&module.attrs) => {
                if let Some((_, items)) = &module.content {
                    conversions(items, name, add);
                }
            }
            _ => {}
        }
    }
}
