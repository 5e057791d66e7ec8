//! Looks in a scope for the id of somebody: by the names of fields and methods, in the variants of an enum, and where a
//! kind stands beside an id. Nothing is guessed; where several could be meant, a person decides with a flag.

use super::access::{Access, Around, Sought, Step};
use super::definition::{Case, Definition, Field, Has};
use super::member::{Member, MemberKind};
use super::reader::Reader;
use super::types::{Written, last_segment, show};
use crate::failure::{Failure, Result};
use crate::names::{Name, TypePath};

impl Reader<'_> {
    /// In this order: a field named like the id; a field named like the owner, or of its type, that has an id; methods
    /// of the same names; all of these with `current_`; the scope itself, if it is the owner; the owner's variant of an
    /// enum; an `id` beside a kind that has the owner's variant; such an enum in a field.
    pub(super) fn infer(&self, scope: &TypePath, definition: &Definition, sought: &Sought) -> Result<Access> {
        if let Some(access) = self.by_member(definition, sought)? {
            return Ok(access);
        }
        if sought.is_called(&scope.name)
            && let Some(access) = self.id(definition, sought)?
        {
            return Ok(access);
        }
        if let Some(access) = self.by_variant(definition, None, sought)? {
            return Ok(access);
        }
        if let Some(access) = self.by_kind(scope, definition, sought)? {
            return Ok(access);
        }
        if let Some(access) = self.by_variant_of_a_field(scope, definition, sought)? {
            return Ok(access);
        }
        Err(self.undecided(scope, definition, sought)?)
    }

    fn by_member(&self, definition: &Definition, sought: &Sought) -> Result<Option<Access>> {
        for prefix in ["", "current_"] {
            for kind in [MemberKind::Field, MemberKind::Method] {
                let id = Member::new(kind, format!("{prefix}{}", sought.field));
                if let Some(access) = self.direct(definition, &id, sought)? {
                    return Ok(Some(access));
                }
                let holder = Member::new(kind, format!("{prefix}{}", sought.noun));
                if let Some(access) = self.through(definition, &holder, sought)? {
                    return Ok(Some(access));
                }
                if prefix.is_empty()
                    && kind == MemberKind::Field
                    && let Some(holder) = self.only_field_of_owner(definition, sought)?
                    && let Some(access) = self.through(definition, &holder, sought)?
                {
                    return Ok(Some(access));
                }
            }
        }
        Ok(None)
    }

    /// A member that is the id itself.
    fn direct(&self, definition: &Definition, id: &Member, sought: &Sought) -> Result<Option<Access>> {
        let Some(found) = definition.find(id).filter(|found| found.visible) else { return Ok(None) };
        let (step, value) = self.read(id, &found)?;
        self.ending(vec![step], &value, sought).map(Some)
    }

    /// A member whose type has the id.
    fn through(&self, definition: &Definition, holder: &Member, sought: &Sought) -> Result<Option<Access>> {
        let Some(found) = definition.find(holder).filter(|found| found.visible) else { return Ok(None) };
        let (step, value) = self.read(holder, &found)?;
        let Some(inner) = self.definition_of(&value)? else { return Ok(None) };
        let mut access = self.id(&inner, sought)?;
        if let Some(access) = &mut access {
            access.steps.insert(0, step);
        }
        Ok(access)
    }

    /// The id of the owner's own type. The key comes first: the table's foreign key will name it.
    fn id(&self, definition: &Definition, sought: &Sought) -> Result<Option<Access>> {
        for kind in [MemberKind::Field, MemberKind::Method] {
            for name in [sought.key, "id", sought.field.as_str()] {
                if let Some(access) = self.direct(definition, &Member::new(kind, name), sought)? {
                    return Ok(Some(access));
                }
            }
        }
        Ok(None)
    }

    /// The field that is of the owner's type whatever it is called. Of two, either may be the owner; and a field that
    /// has the owner's name, though it could not be read, is not passed over for another.
    fn only_field_of_owner(&self, definition: &Definition, sought: &Sought) -> Result<Option<Member>> {
        let mut found = Vec::new();
        for field in &definition.fields {
            if field.name == sought.noun.as_str() {
                return Ok(None);
            }
            if self.is_of_owner(&definition.type_of(field), sought)? {
                found.push(&field.name);
            }
        }
        Ok(if let [name] = found[..] { Some(Member::new(MemberKind::Field, name)) } else { None })
    }

    fn is_of_owner(&self, value: &Written, sought: &Sought) -> Result<bool> {
        let (value, _) = self.inside(value)?;
        Ok(last_segment(&self.pointee(&value)?.ty).is_some_and(|name| sought.is_called(&name)))
    }

    /// The variant of an enum that is called like the owner; else the only one that has the owner in it.
    fn by_variant(&self, definition: &Definition, of: Option<&TypePath>, sought: &Sought) -> Result<Option<Access>> {
        let called = definition.cases.iter().find(|case| sought.is_called(&case.name));
        let cases = called.map_or(definition.cases.as_slice(), std::slice::from_ref);
        let mut found = Vec::new();
        for case in cases {
            for field in self.fields_of_owner(definition, case, sought)? {
                found.extend(self.in_variant(definition, of, case, field, sought)?);
            }
        }
        Ok(if found.len() == 1 { found.pop() } else { None })
    }

    /// The fields of a variant that may be the owner or its id: by name, else by type, else whatever is in a variant that
    /// is called like the owner.
    fn fields_of_owner<'c>(&self, definition: &Definition, case: &'c Case, sought: &Sought) -> Result<Vec<&'c Field>> {
        let named = |names: &[&str]| case.fields.iter().find(|field| names.contains(&field.name.as_str()));
        if !case.is_certain {
            return Ok(Vec::new());
        }
        if let Some(field) = named(&[sought.field.as_str()]).or_else(|| named(&[sought.noun.as_str()])) {
            return Ok(vec![field]);
        }
        let id_type = format!("{}Id", sought.noun.camel());
        let mut typed = Vec::new();
        for field in &case.fields {
            let value = definition.type_of(field);
            let is_id = last_segment(&self.inside(&value)?.0.ty).is_some_and(|name| name == id_type);
            if is_id || self.is_of_owner(&value, sought)? {
                typed.push(field);
            }
        }
        if !typed.is_empty() || !sought.is_called(&case.name) {
            return Ok(typed);
        }
        Ok(match (named(&[sought.key]).or_else(|| named(&["id"])), case.fields.as_slice()) {
            (Some(field), _) | (None, [field]) => vec![field],
            _ => Vec::new(),
        })
    }

    /// The way through a field of a variant.
    fn in_variant(
        &self,
        definition: &Definition,
        of: Option<&TypePath>,
        case: &Case,
        field: &Field,
        sought: &Sought,
    ) -> Result<Option<Access>> {
        let (value, around) = self.inside(&definition.type_of(field))?;
        if around == Some(Around::Result) {
            return Ok(None);
        }
        let is_owner = self.is_of_owner(&value, sought)?;
        let way = match self.definition_of(&value)? {
            Some(holder) if is_owner || !holder.is_like_an_id() => self.id(&holder, sought)?.map(|way| (way, true)),
            None if is_owner => None,
            _ => Some((self.ending(Vec::new(), &value, sought)?, false)),
        };
        let Some((rest, is_holder)) = way else { return Ok(None) };
        let binding = match (Name::parse("", &field.name), is_holder) {
            (Ok(name), _) => name.rust(),
            (Err(_), true) => sought.noun.rust(),
            (Err(_), false) => "id".to_owned(),
        };
        let step = Step::Variant {
            of: of.cloned(),
            name: case.name.clone(),
            field: field.name.clone(),
            fields: case.fields.len(),
            binding,
            is_optional: around.is_some(),
            is_only: definition.cases.len() == 1 && !definition.is_open,
        };
        Ok(Some(Access { steps: [vec![step], rest.steps].concat(), id: rest.id }))
    }

    /// A kind and an id: `{ kind: ScopeKind, id: i64 }`. The owner's kind is the variant that is called like it.
    fn by_kind(&self, scope: &TypePath, definition: &Definition, sought: &Sought) -> Result<Option<Access>> {
        for (member, id) in kinds(definition) {
            let Some(found) = definition.find(&member).filter(|found| found.visible) else { continue };
            let (value, around) = self.inside(&found.value)?;
            let Some((kind, of)) = self.choice(scope, &value)?.filter(|_| around != Some(Around::Result)) else {
                continue;
            };
            let is_owner = |case: &&Case| case.is_certain && case.fields.is_empty() && sought.is_called(&case.name);
            let Some(case) = kind.cases.iter().find(is_owner) else { continue };
            for id in id {
                if let Some(mut access) = self.direct(definition, &id, sought)? {
                    let variant = case.name.clone();
                    let step = Step::Kind { member: member.rust(), of, variant, is_optional: around.is_some() };
                    access.steps.insert(0, step);
                    return Ok(Some(access));
                }
            }
        }
        Ok(None)
    }

    /// An enum in a field or behind a method, one of whose variants is the owner: `{ actor: Actor }`.
    fn by_variant_of_a_field(
        &self,
        scope: &TypePath,
        definition: &Definition,
        sought: &Sought,
    ) -> Result<Option<Access>> {
        let fields = definition.fields.iter().map(|field| Member::new(MemberKind::Field, &field.name));
        let methods = definition.methods.iter().map(|method| Member::new(MemberKind::Method, &method.name));
        let mut found = Vec::new();
        for member in fields.chain(methods) {
            let Some(has) = definition.find(&member).filter(|has| has.visible) else { continue };
            let (step, value) = self.read(&member, &has)?;
            // A variant is borrowed, and nothing borrows what a method gives away.
            if member.kind == MemberKind::Method && !matches!(value.ty, syn::Type::Reference(_)) {
                continue;
            }
            let Some((choice, of)) = self.choice(scope, &value)? else { continue };
            if let Some(mut access) = self.by_variant(&choice, Some(&of), sought)? {
                access.steps.insert(0, step);
                found.push(access);
            }
        }
        Ok(if found.len() == 1 { found.pop() } else { None })
    }

    /// The enum that a value is, and a path by which generated code can name it.
    fn choice(&self, scope: &TypePath, value: &Written) -> Result<Option<(Definition, TypePath)>> {
        let Some(choice) = self.bare_definition_of(value)?.filter(|choice| choice.is_enum) else { return Ok(None) };
        Ok(self.path_to(&choice, scope)?.map(|path| (choice, path)))
    }

    pub(super) fn read(&self, member: &Member, found: &Has) -> Result<(Step, Written)> {
        let (value, around) = self.inside(&found.value)?;
        Ok((Step::Member { text: member.rust(), around }, value))
    }

    fn undecided(&self, scope: &TypePath, definition: &Definition, sought: &Sought) -> Result<Failure> {
        let Sought { noun, field, key, flag, .. } = sought;
        let looked_for = if definition.is_enum {
            format!("a variant `{}` with an id or a {noun}, and for a method `{field}` or `{noun}`", noun.camel())
        } else {
            format!("a field or method `{field}`, and for a field or method `{noun}` whose type has a visible `{key}`")
        };
        let kinds = kinds(definition);
        let anyone = kinds.into_iter().find_map(|(member, ids)| {
            let id = ids.into_iter().find(|id| definition.find(id).is_some())?;
            let kind = show(&definition.find(&member)?.value.ty);
            Some(format!(
                "\na scope of `{}` and `{}` may be any kind of owner, and `{kind}` is no enum with a variant `{}` that can be read",
                member.name,
                id.name,
                noun.camel()
            ))
        });
        let what = format!(
            "it is not clear how the id of the {noun} is read from `{}` in {}: {}\nlooked for {looked_for}{}",
            scope.rust(),
            definition.file,
            definition.describe(),
            anyone.as_deref().unwrap_or_default(),
        );
        // An id that may be anybody's is not to be taken for the owner's.
        let example = if anyone.is_some() { None } else { self.example(definition, sought)? };
        Ok(Failure::decision(what).help(match example {
            Some(example) => format!("give it with `{flag}`, for example `{flag} {example}`"),
            None => {
                format!("give it with `{flag}`, or add `pub fn {field}(&self)` to `{}` in that file", definition.name)
            }
        }))
    }

    /// A way that a person may mean: into the owner, to something that can be a key.
    fn example(&self, definition: &Definition, sought: &Sought) -> Result<Option<String>> {
        let visible = |name: &str| definition.fields.iter().find(|field| field.visible && field.name == name);
        if let Some(holder) = visible(sought.noun.as_str()) {
            let (value, _) = self.inside(&definition.type_of(holder))?;
            let name = Member::new(MemberKind::Field, &holder.name).rust();
            let Some(inner) = self.definition_of(&value)? else { return Ok(Some(format!("{name}.{}", sought.key))) };
            return Ok(self.key_of(&inner)?.map(|key| format!("{name}.{key}")));
        }
        Ok(visible("id").map(|_| "id".to_owned()))
    }

    /// The first member of a type that the context can see and that can be a key.
    pub(super) fn key_of(&self, definition: &Definition) -> Result<Option<String>> {
        let fields = definition.fields.iter().map(|field| Member::new(MemberKind::Field, &field.name));
        let methods = definition.methods.iter().map(|method| Member::new(MemberKind::Method, &method.name));
        let members: Vec<_> = fields.chain(methods).collect();
        for is_likely in [true, false] {
            for member in members.iter().filter(|member| is_likely == member.name.ends_with("id")) {
                let Some(has) = definition.find(member).filter(|has| has.visible) else { continue };
                let (_, value) = self.read(member, &has)?;
                if self.seen(&value)?.key().is_some() {
                    return Ok(Some(member.rust()));
                }
            }
        }
        Ok(None)
    }
}

/// The members that may be a kind of owner, each with those that may be its id: `kind` and `id`, `owner_type` and
/// `owner_id`.
fn kinds(definition: &Definition) -> Vec<(Member, Vec<Member>)> {
    let mut kinds = Vec::new();
    let fields = definition.fields.iter().map(|field| (MemberKind::Field, &field.name));
    let methods = definition.methods.iter().map(|method| (MemberKind::Method, &method.name));
    for (kind, name) in fields.chain(methods) {
        let stem = ["type", "kind"].into_iter().find_map(|suffix| name.strip_suffix(suffix));
        let Some(stem) = stem.filter(|stem| stem.is_empty() || stem.ends_with('_')) else { continue };
        let mut ids = vec![format!("{stem}id")];
        ids.extend((!stem.is_empty()).then(|| "id".to_owned()));
        let ids = ids.iter().flat_map(|id| [MemberKind::Field, MemberKind::Method].map(|kind| Member::new(kind, id)));
        kinds.push((Member::new(kind, name), ids.collect()));
    }
    kinds
}
