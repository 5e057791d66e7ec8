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
    /// The only way to an id that a scope has. Where two fit, they may lead to two people, such as the one who acts and
    /// the one who is acted for.
    pub(super) fn infer(&self, scope: &TypePath, definition: &Definition, sought: &Sought) -> Result<Access> {
        match self.ways(scope, definition, sought)?.as_slice() {
            [] | [Access { id: None, .. }] => Err(self.undecided(scope, definition, sought)?),
            [way] => Ok(way.clone()),
            several => Err(ambiguous(scope, definition, several, sought)),
        }
    }

    /// By these rules: a field or method named like the id; one named like the owner, whose type has an id; both also
    /// with `current_`; the id of a scope that is the owner itself; the owner's variant of an enum; an `id` beside a kind
    /// that has the owner's variant; such an enum in a field. No rule goes before another.
    pub(super) fn ways(&self, scope: &TypePath, definition: &Definition, sought: &Sought) -> Result<Vec<Access>> {
        let mut ways = self.by_member(definition, sought)?;
        if sought.is_called(&scope.name) {
            ways.extend(self.ids(definition, sought)?);
        }
        ways.extend(self.by_variant(definition, None, sought)?);
        ways.extend(self.by_kind(scope, definition, sought)?);
        ways.extend(self.by_variant_of_a_field(scope, definition, sought)?);
        let mut found: Vec<Access> = Vec::new();
        for way in ways {
            if found.iter().all(|other| other.shown() != way.shown()) {
                found.push(way);
            }
        }
        Ok(found)
    }

    fn by_member(&self, definition: &Definition, sought: &Sought) -> Result<Vec<Access>> {
        let mut found = Vec::new();
        for prefix in ["", "current_"] {
            for kind in [MemberKind::Field, MemberKind::Method] {
                let id = Member::new(kind, format!("{prefix}{}", sought.noun.id()));
                found.extend(self.direct(definition, &id, sought)?);
                let holder = Member::new(kind, format!("{prefix}{}", sought.noun));
                found.extend(self.through(definition, &holder, sought)?);
            }
        }
        Ok(found)
    }

    /// A member that is the id itself.
    fn direct(&self, definition: &Definition, id: &Member, sought: &Sought) -> Result<Option<Access>> {
        let Some(found) = definition.find(id).filter(|found| found.visible) else { return Ok(None) };
        let (step, value) = self.read(id, &found)?;
        self.ending(vec![step], &value, sought).map(Some)
    }

    /// The ids of a member whose type has some.
    fn through(&self, definition: &Definition, holder: &Member, sought: &Sought) -> Result<Vec<Access>> {
        let Some(found) = definition.find(holder).filter(|found| found.visible) else { return Ok(Vec::new()) };
        let (step, value) = self.read(holder, &found)?;
        let Some(inner) = self.definition_of(&value)? else {
            // What cannot be read may have an id as well.
            let is_hidden = self.seen(&value)?.key().is_none();
            let key = Step::Member { text: sought.key_name().to_owned(), around: None };
            return Ok(is_hidden.then(|| Access { steps: vec![step, key], id: None }).into_iter().collect());
        };
        let mut ways = self.ids(&inner, sought)?;
        for way in &mut ways {
            way.steps.insert(0, step.clone());
        }
        Ok(ways)
    }

    /// What may be the id in the owner's own type: what is called like the key, which the foreign key will name; else
    /// `id` or `user_id`.
    fn ids(&self, definition: &Definition, sought: &Sought) -> Result<Vec<Access>> {
        let called = |name: &str| -> Result<Vec<Access>> {
            let members = [MemberKind::Field, MemberKind::Method].map(|kind| Member::new(kind, name));
            members.iter().filter_map(|member| self.direct(definition, member, sought).transpose()).collect()
        };
        let key = sought.key.map_or(Ok(Vec::new()), called)?;
        Ok(if key.is_empty() { [called("id")?, called(sought.noun.id().as_str())?].concat() } else { key })
    }

    fn is_of_owner(&self, value: &Written, sought: &Sought) -> Result<bool> {
        let (value, _) = self.inside(value)?;
        Ok(last_segment(&self.pointee(&value)?.ty).is_some_and(|name| sought.is_called(&name)))
    }

    /// The ids in the variant of an enum that is called like the owner; else in the only one that has the owner in it.
    fn by_variant(&self, definition: &Definition, of: Option<&TypePath>, sought: &Sought) -> Result<Vec<Access>> {
        let called = definition.cases.iter().find(|case| sought.is_called(&case.name));
        let cases = called.map_or(definition.cases.as_slice(), std::slice::from_ref);
        let mut found: Vec<Vec<Access>> = Vec::new();
        for case in cases {
            let mut ways = Vec::new();
            for field in self.fields_of_owner(definition, case, sought)? {
                ways.extend(self.in_variant(definition, of, case, field, sought)?);
            }
            if !ways.is_empty() {
                found.push(ways);
            }
        }
        Ok(if found.len() == 1 { found.remove(0) } else { Vec::new() })
    }

    /// The fields of a variant that may be the owner or its id, by name or by type; else the only one of a variant that
    /// is called like the owner.
    fn fields_of_owner<'c>(&self, definition: &Definition, case: &'c Case, sought: &Sought) -> Result<Vec<&'c Field>> {
        if !case.is_certain {
            return Ok(Vec::new());
        }
        let is_called = sought.is_called(&case.name);
        let (id, id_type) = (sought.noun.id(), format!("{}Id", sought.noun.camel()));
        let mut found = Vec::new();
        for field in &case.fields {
            let value = definition.type_of(field);
            let is_named = [sought.noun.as_str(), id.as_str()].contains(&field.name.as_str())
                || is_called && [sought.key_name(), "id"].contains(&field.name.as_str());
            let is_id = last_segment(&self.inside(&value)?.0.ty).is_some_and(|name| name == id_type);
            if is_named || is_id || self.is_of_owner(&value, sought)? {
                found.push(field);
            }
        }
        Ok(match (found.is_empty(), case.fields.as_slice()) {
            (true, [field]) if is_called => vec![field],
            _ => found,
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
    ) -> Result<Vec<Access>> {
        let (value, around) = self.inside(&definition.type_of(field))?;
        if around == Some(Around::Result) {
            return Ok(Vec::new());
        }
        let is_owner = self.is_of_owner(&value, sought)?;
        let (ways, is_holder) = match self.definition_of(&value)? {
            Some(holder) if is_owner || !holder.is_like_an_id() => (self.ids(&holder, sought)?, true),
            None if is_owner => (Vec::new(), true),
            _ => (vec![self.ending(Vec::new(), &value, sought)?], false),
        };
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
        let entered = |way: Access| Access { steps: [vec![step.clone()], way.steps].concat(), id: way.id };
        Ok(ways.into_iter().map(entered).collect())
    }

    /// A kind and an id: `{ kind: ScopeKind, id: i64 }`. The owner's kind is the variant that is called like it.
    fn by_kind(&self, scope: &TypePath, definition: &Definition, sought: &Sought) -> Result<Vec<Access>> {
        let mut ways = Vec::new();
        for (member, ids) in kinds(definition) {
            let Some(found) = definition.find(&member).filter(|found| found.visible) else { continue };
            let (value, around) = self.inside(&found.value)?;
            let Some((kind, of)) = self.choice(scope, &value)?.filter(|_| around != Some(Around::Result)) else {
                continue;
            };
            let is_owner = |case: &&Case| case.is_certain && case.fields.is_empty() && sought.is_called(&case.name);
            let Some(case) = kind.cases.iter().find(is_owner) else { continue };
            let (member, variant) = (member.rust(), case.name.clone());
            let step = Step::Kind { member, of, variant, is_optional: around.is_some() };
            for id in ids {
                let way = self.direct(definition, &id, sought)?;
                ways.extend(way.map(|way| Access { steps: [vec![step.clone()], way.steps].concat(), id: way.id }));
            }
        }
        Ok(ways)
    }

    /// An enum in a field or behind a method, one of whose variants is the owner: `{ actor: Actor }`.
    fn by_variant_of_a_field(&self, scope: &TypePath, definition: &Definition, sought: &Sought) -> Result<Vec<Access>> {
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
            for mut way in self.by_variant(&choice, Some(&of), sought)? {
                way.steps.insert(0, step.clone());
                found.push(way);
            }
        }
        Ok(found)
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
        let Sought { noun, flag, .. } = sought;
        let (field, key) = (noun.id(), sought.key_name());
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
            let Some(inner) = self.definition_of(&value)? else {
                return Ok(Some(format!("{name}.{}", sought.key_name())));
            };
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

/// Several ways fit, and only a person knows whose id each of them is.
fn ambiguous(scope: &TypePath, definition: &Definition, ways: &[Access], sought: &Sought) -> Failure {
    let Sought { noun, flag, .. } = sought;
    let shown: Vec<_> = ways.iter().map(Access::shown).collect();
    let each = |text: &dyn Fn(&String) -> String, word: &str| shown.iter().map(text).collect::<Vec<_>>().join(word);
    Failure::decision(format!(
        "`{}` in {} has several ways to the id of the {noun}: {}",
        scope.rust(),
        definition.file,
        each(&|way| format!("`{way}`"), " and ")
    ))
    .help(format!("choose one: {}", each(&|way| format!("`{flag} {way}`"), " or ")))
}

/// The members that may be a kind of owner, each with those that may be its id: `kind` and `id`, `owner_type` and
/// `owner_id`.
fn kinds(definition: &Definition) -> Vec<(Member, [Member; 2])> {
    let mut kinds = Vec::new();
    let fields = definition.fields.iter().map(|field| (MemberKind::Field, &field.name));
    let methods = definition.methods.iter().map(|method| (MemberKind::Method, &method.name));
    for (kind, name) in fields.chain(methods) {
        let stem = ["type", "kind"].into_iter().find_map(|suffix| name.strip_suffix(suffix));
        let Some(stem) = stem.filter(|stem| stem.is_empty() || stem.ends_with('_')) else { continue };
        let ids = [MemberKind::Field, MemberKind::Method].map(|kind| Member::new(kind, format!("{stem}id")));
        kinds.push((Member::new(kind, name), ids));
    }
    kinds
}
