//! The source of the host's scope type: what it holds, and how the owner's id is read from it. Types are followed
//! through re-exports, aliases and files of the host's own crate; what another crate or a macro makes is left unseen.
//! Nothing is guessed: where the source does not settle whose rows a scope may see, a person decides with a flag.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use camino::Utf8PathBuf;
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{Item, Type};

use crate::failure::{Failure, Result};
use crate::host::modules::{self, Crate, Found};
use crate::names::{ModulePath, Name, TypePath};
use crate::tree::Tree;

/// What is known of a type of the host's own crate.
#[derive(Debug, Clone)]
pub enum Lookup {
    /// The module exists and defines the type.
    Found(Definition),
    /// The type is not there; its module may or may not exist.
    Absent,
    /// Something of that name comes from another crate or a macro, and its source cannot be read.
    Opaque,
}

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

/// The type of the owner's id, as generated code stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdType {
    I64,
    Uuid,
    Text,
}

/// How the owner's id is read: a chain of accesses from the scope to the id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    pub steps: Vec<Step>,
    /// The id's Rust type, if it could be seen; without the `Option` that its step tells of.
    pub id: Option<Seen>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// As Rust source: `user`, `0`, `user_id()`, `r#type`.
    pub text: String,
    /// The value there is an `Option`.
    pub optional: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    I64,
    /// An integer that converts to `i64` with `From`.
    SmallInt,
    Uuid,
    String,
    /// `&str`, `Box<str>`, `Arc<str>`, `Cow<str>`.
    Str,
    /// A reference to one of the others: `&Uuid`.
    Ref(Box<Seen>),
    /// Anything else, as in the source.
    Other(String),
}

/// Whom to look for in a scope.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    pub noun: &'a Name,
    pub field: &'a Name,
    /// The key column of the owner's table, usually `id`.
    pub key: &'a str,
    /// `--owner-module`, if it was given.
    pub module: Option<&'a TypePath>,
}

/// Finds the definition of a type, as code in `context` sees it.
pub fn lookup(tree: &Tree, krate: &Crate, ty: &TypePath, context: &ModulePath) -> Result<Lookup> {
    if ty.krate.is_some() {
        return Ok(Lookup::Opaque);
    }
    let reader = Reader::new(tree, krate, context);
    let mut path = vec!["crate".to_owned()];
    path.extend(ty.modules.iter().map(|module| module.as_str().to_owned()));
    path.push(ty.name.clone());
    match reader.walk(&[], &path, FUEL)? {
        Entry::Absent | Entry::Module(_) => Ok(Lookup::Absent),
        entry => Ok(reader.define(entry)?.map_or(Lookup::Opaque, Lookup::Found)),
    }
}

/// Infers how the owner's id is read from the scope. In this order: a field named like the owner field; a field named
/// like the owner type, or of that type, that has an id; methods of the same names; all of these with `current_`; the
/// scope itself, if it is the owner.
pub fn infer(
    tree: &Tree,
    krate: &Crate,
    scope: &TypePath,
    definition: &Definition,
    owner: &Owner,
    context: &ModulePath,
) -> Result<Access> {
    let reader = Reader::new(tree, krate, context);
    for prefix in ["", "current_"] {
        for kind in [Kind::Field, Kind::Method] {
            let id = Member::new(kind, format!("{prefix}{}", owner.field));
            if let Some(access) = reader.direct(definition, &id)? {
                return Ok(access);
            }
            let holder = Member::new(kind, format!("{prefix}{}", owner.noun));
            if let Some(access) = reader.through(definition, &holder, owner)? {
                return Ok(access);
            }
            if prefix.is_empty()
                && kind == Kind::Field
                && let Some(holder) = reader.only_field_of_owner(definition, owner)?
                && let Some(access) = reader.through(definition, &holder, owner)?
            {
                return Ok(access);
            }
        }
    }
    if is_owner(&scope.name, owner)
        && let Some(access) = reader.id(definition, owner)?
    {
        return Ok(access);
    }
    Err(undecided(scope, definition, owner))
}

/// Reads `--scope-owner`: `user.id`, `user_id()`, `user.id.0`. Types are followed as far as they can be seen, so that
/// an `Option` on the way is known. Without a definition nothing is checked.
pub fn follow(
    tree: &Tree,
    krate: &Crate,
    scope: &TypePath,
    definition: Option<&Definition>,
    text: &str,
    context: &ModulePath,
) -> Result<Access> {
    let reader = Reader::new(tree, krate, context);
    let mut here = definition.cloned();
    let mut shown = scope.rust();
    let mut access = Access { steps: Vec::new(), id: None };
    for member in members(text)? {
        let known = here.as_ref().and_then(|definition| Some((definition, definition.find(&member)?)));
        let Some((definition, found)) = known else {
            // A method further on may come from a trait or a derive; a field can only stand in the definition.
            if let Some(definition) = here.take()
                && (access.steps.is_empty() || member.kind == Kind::Field)
            {
                return Err(no_such_member(&shown, &definition, &member));
            }
            access.steps.push(Step { text: member.rust(), optional: false });
            access.id = None;
            continue;
        };
        if !found.visible {
            return Err(hidden_member(&shown, definition, &member, context));
        }
        let (step, value) = reader.read(&member, &found)?;
        access.steps.push(step);
        access.id = Some(reader.seen(&value)?);
        here = reader.definition_of(&value)?;
        shown = here.as_ref().map(|definition| definition.name.clone()).unwrap_or_default();
    }
    Ok(access)
}

/// How many re-exports and aliases are followed before the search gives up.
const FUEL: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Field,
    Method,
}

/// An access by name, as a person or a rule asks for it.
struct Member {
    kind: Kind,
    name: String,
}

impl Member {
    fn new(kind: Kind, name: impl Into<String>) -> Self {
        Self { kind, name: name.into() }
    }

    fn rust(&self) -> String {
        let name = Name::parse("", &self.name).map_or_else(|_| self.name.clone(), |name| name.rust());
        match self.kind {
            Kind::Field => name,
            Kind::Method => name + "()",
        }
    }
}

/// A type and the module in which its names mean something.
#[derive(Debug, Clone)]
struct Written {
    ty: Type,
    module: Vec<Name>,
}

impl Written {
    fn part(&self, ty: &Type) -> Self {
        Self { ty: ty.clone(), module: self.module.clone() }
    }
}

/// A member that a definition has.
struct Has {
    value: Written,
    visible: bool,
}

impl Definition {
    fn find(&self, member: &Member) -> Option<Has> {
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
    fn describe(&self) -> String {
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

/// A module of the host's crate, with the syntax of the file that it is in.
#[derive(Clone)]
struct Place {
    path: Vec<Name>,
    /// How many segments of the path lead to the file; the rest are inline modules in it.
    base: usize,
    file: Utf8PathBuf,
    syntax: Rc<syn::File>,
}

impl Place {
    fn items(&self) -> &[Item] {
        let mut items = self.syntax.items.as_slice();
        for name in &self.path[self.base..] {
            let inline = items.iter().find_map(|item| match item {
                Item::Mod(module) if is(&module.ident, name.as_str()) => module.content.as_ref(),
                _ => None,
            });
            items = inline.map_or(&[], |(_, items)| items);
        }
        items
    }
}

/// What a name stands for in a module.
enum Entry {
    Type(Place, Box<Item>),
    Alias(Place, Box<syn::ItemType>),
    Module(Place),
    /// A path into another crate.
    External(Vec<String>),
    /// Something that is made by a macro, or that is no type.
    Hidden,
    Absent,
}

struct Reader<'a> {
    tree: &'a Tree,
    krate: &'a Crate,
    context: &'a ModulePath,
    /// Names that modules behind a `*` are known not to have, or are just being asked for.
    missing: RefCell<BTreeSet<(Vec<Name>, String)>>,
    /// Modules that were read before; nothing for one that is not there.
    places: RefCell<BTreeMap<Vec<Name>, Option<Place>>>,
}

impl<'a> Reader<'a> {
    fn new(tree: &'a Tree, krate: &'a Crate, context: &'a ModulePath) -> Self {
        Self { tree, krate, context, missing: RefCell::default(), places: RefCell::default() }
    }

    /// A member that is the id itself.
    fn direct(&self, definition: &Definition, id: &Member) -> Result<Option<Access>> {
        let Some(found) = definition.find(id).filter(|found| found.visible) else { return Ok(None) };
        let (step, value) = self.read(id, &found)?;
        Ok(Some(Access { steps: vec![step], id: Some(self.seen(&value)?) }))
    }

    /// A member whose type has the id.
    fn through(&self, definition: &Definition, holder: &Member, owner: &Owner) -> Result<Option<Access>> {
        let Some(found) = definition.find(holder).filter(|found| found.visible) else { return Ok(None) };
        let (step, value) = self.read(holder, &found)?;
        let Some(inner) = self.definition_of(&value)? else { return Ok(None) };
        let mut access = self.id(&inner, owner)?;
        if let Some(access) = &mut access {
            access.steps.insert(0, step);
        }
        Ok(access)
    }

    /// The id of the owner's own type. The key comes first: the table's foreign key will name it.
    fn id(&self, definition: &Definition, owner: &Owner) -> Result<Option<Access>> {
        for kind in [Kind::Field, Kind::Method] {
            for name in [owner.key, "id", owner.field.as_str()] {
                if let Some(access) = self.direct(definition, &Member::new(kind, name))? {
                    return Ok(Some(access));
                }
            }
        }
        Ok(None)
    }

    /// The field that is of the owner's type whatever it is called. Of two, nobody knows which owns; and a field that
    /// has the owner's name, though it could not be read, is not passed over for another.
    fn only_field_of_owner(&self, definition: &Definition, owner: &Owner) -> Result<Option<Member>> {
        let mut found = Vec::new();
        for field in &definition.fields {
            if field.name == owner.noun.as_str() {
                return Ok(None);
            }
            let (value, _) = self.option(&Written { ty: field.ty.clone(), module: definition.module.clone() })?;
            if last_segment(&self.pointee(&value)?.ty).is_some_and(|name| is_owner(&name, owner)) {
                found.push(&field.name);
            }
        }
        Ok(if let [name] = found[..] { Some(Member::new(Kind::Field, name)) } else { None })
    }

    fn read(&self, member: &Member, found: &Has) -> Result<(Step, Written)> {
        let (value, optional) = self.option(&found.value)?;
        Ok((Step { text: member.rust(), optional }, value))
    }

    fn seen(&self, written: &Written) -> Result<Seen> {
        let written = self.unalias(written)?;
        if let Type::Reference(reference) = &written.ty {
            if last_segment(&reference.elem).as_deref() == Some("str") {
                return Ok(Seen::Str);
            }
            let inner = self.unalias(&written.part(&reference.elem))?;
            return Ok(match &inner.ty {
                Type::Reference(_) => Seen::Other(show(&written.ty)),
                _ => Seen::Ref(Box::new(self.seen(&inner)?)),
            });
        }
        let name = match self.entry_of(&written)? {
            Entry::External(path) => path.last().cloned(),
            Entry::Absent | Entry::Hidden => last_segment(&written.ty),
            // A type of the host's own, whatever its name.
            _ => None,
        };
        Ok(match name.as_deref() {
            Some("i64") => Seen::I64,
            Some("i32" | "u32" | "i16" | "u16" | "i8" | "u8") => Seen::SmallInt,
            Some("Uuid") => Seen::Uuid,
            Some("String") => Seen::String,
            Some("Box" | "Arc" | "Rc" | "Cow")
                if argument(&written.ty).and_then(last_segment).as_deref() == Some("str") =>
            {
                Seen::Str
            }
            _ => Seen::Other(show(&written.ty)),
        })
    }

    /// What is in an `Option`, also behind a reference, and whether there was one.
    fn option(&self, written: &Written) -> Result<(Written, bool)> {
        let written = self.unalias(written)?;
        let bare = match &written.ty {
            Type::Reference(reference) => self.unalias(&written.part(&reference.elem))?,
            _ => written.clone(),
        };
        match argument(&bare.ty) {
            Some(inner) if last_segment(&bare.ty).as_deref() == Some("Option") => Ok((bare.part(inner), true)),
            _ => Ok((written, false)),
        }
    }

    /// The type behind references and the pointers that a field access looks through.
    fn pointee(&self, written: &Written) -> Result<Written> {
        let mut here = self.unalias(written)?;
        for _ in 0..FUEL {
            let inner = match &here.ty {
                Type::Reference(reference) => Some(&*reference.elem),
                ty if matches!(last_segment(ty).as_deref(), Some("Box" | "Arc" | "Rc")) => argument(ty),
                _ => None,
            };
            match inner {
                Some(inner) => here = self.unalias(&here.part(inner))?,
                None => break,
            }
        }
        Ok(here)
    }

    /// The definition of the type that a field access would reach, if it is in the crate.
    fn definition_of(&self, written: &Written) -> Result<Option<Definition>> {
        let target = self.pointee(written)?;
        self.define(self.entry_of(&target)?)
    }

    /// Looks through aliases of the crate and through parentheses.
    fn unalias(&self, written: &Written) -> Result<Written> {
        let mut here = written.clone();
        for _ in 0..FUEL {
            here = match &here.ty {
                Type::Paren(paren) => here.part(&paren.elem),
                Type::Group(group) => here.part(&group.elem),
                _ => match self.entry_of(&here)? {
                    Entry::Alias(place, alias) if alias.generics.params.is_empty() => {
                        Written { ty: *alias.ty, module: place.path }
                    }
                    _ => break,
                },
            };
        }
        Ok(here)
    }

    fn entry_of(&self, written: &Written) -> Result<Entry> {
        match &written.ty {
            Type::Path(path) if path.qself.is_none() => {
                let names: Vec<_> =
                    path.path.segments.iter().map(|segment| segment.ident.unraw().to_string()).collect();
                if path.path.leading_colon.is_some() {
                    return Ok(Entry::External(names));
                }
                self.walk(&written.module, &names, FUEL)
            }
            _ => Ok(Entry::Hidden),
        }
    }

    /// The definition behind a name, through aliases.
    fn define(&self, entry: Entry) -> Result<Option<Definition>> {
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

    /// Follows a path that is written in the module `from`.
    fn walk(&self, from: &[Name], path: &[String], fuel: usize) -> Result<Entry> {
        let mut module = from.to_vec();
        let mut rest = path;
        while let [first, tail @ ..] = rest {
            match first.as_str() {
                "crate" => module.clear(),
                "super" => drop(module.pop()),
                "self" => {}
                _ => break,
            }
            rest = tail;
        }
        let relative = rest.len() == path.len();
        let Some(mut here) = self.module(&module)? else { return Ok(Entry::Absent) };
        for (index, name) in rest.iter().enumerate() {
            let tail = &rest[index + 1..];
            match self.entry(&here, name, fuel)? {
                Entry::Module(inner) => here = inner,
                Entry::External(path) => return Ok(Entry::External([&path, tail].concat())),
                entry if tail.is_empty() => return Ok(entry),
                // What a path starts with and the module does not have is another crate.
                Entry::Absent if relative && index == 0 => return Ok(Entry::External(rest.to_vec())),
                Entry::Absent => return Ok(Entry::Absent),
                _ => return Ok(Entry::Hidden),
            }
        }
        Ok(Entry::Module(here))
    }

    /// What a name stands for in a module: declared there, imported by name, by `*`, or made by a macro.
    fn entry(&self, place: &Place, name: &str, fuel: usize) -> Result<Entry> {
        let Some(fuel) = fuel.checked_sub(1) else { return Ok(Entry::Hidden) };
        if let Some(entry) = self.declared(place, name)? {
            return Ok(entry);
        }
        let imports = imports(place.items());
        if let Some(import) = imports.iter().find(|import| import.name.as_deref() == Some(name)) {
            // `use uuid;` would otherwise import itself.
            if import.external || import.path == [name] {
                return Ok(Entry::External(import.path.clone()));
            }
            return self.walk(&place.path, &import.path, fuel);
        }
        for import in imports.iter().filter(|import| import.name.is_none()) {
            match self.behind_glob(place, import, name, fuel)? {
                Entry::Absent => {}
                entry => return Ok(entry),
            }
        }
        Ok(if place.items().iter().any(|item| may_make(item, name)) { Entry::Hidden } else { Entry::Absent })
    }

    fn declared(&self, place: &Place, name: &str) -> Result<Option<Entry>> {
        for item in place.items() {
            match item {
                Item::Struct(syn::ItemStruct { ident, .. })
                | Item::Enum(syn::ItemEnum { ident, .. })
                | Item::Union(syn::ItemUnion { ident, .. })
                    if is(ident, name) =>
                {
                    return Ok(Some(Entry::Type(place.clone(), Box::new(item.clone()))));
                }
                Item::Type(alias) if is(&alias.ident, name) => {
                    return Ok(Some(Entry::Alias(place.clone(), Box::new(alias.clone()))));
                }
                Item::Trait(item) if is(&item.ident, name) => return Ok(Some(Entry::Hidden)),
                Item::Mod(module) if is(&module.ident, name) && !is_test(&module.attrs) => {
                    return self.child(place, module).map(Some);
                }
                _ => {}
            }
        }
        Ok(None)
    }

    fn child(&self, place: &Place, module: &syn::ItemMod) -> Result<Entry> {
        let Some(name) = name_of(&module.ident) else { return Ok(Entry::Hidden) };
        let path = [place.path.as_slice(), &[name]].concat();
        if module.content.is_some() {
            return Ok(Entry::Module(Place { path, ..place.clone() }));
        }
        // The files of a `mod b;` inside an inline module are not looked for.
        let file = self.module(&path)?.filter(|inner| inner.base == path.len());
        Ok(file.map_or(Entry::Hidden, Entry::Module))
    }

    fn behind_glob(&self, place: &Place, import: &Import, name: &str, fuel: usize) -> Result<Entry> {
        let target = if import.external { Entry::Hidden } else { self.walk(&place.path, &import.path, fuel)? };
        let inner = match target {
            Entry::Module(inner) => inner,
            // A prelude that is imported for private use exports nothing.
            Entry::External(_) | Entry::Hidden if import.public => return Ok(Entry::Hidden),
            _ => return Ok(Entry::Absent),
        };
        let key = (inner.path.clone(), name.to_owned());
        if !self.missing.borrow_mut().insert(key.clone()) {
            return Ok(Entry::Absent);
        }
        let entry = self.entry(&inner, name, fuel)?;
        if !matches!(entry, Entry::Absent) {
            self.missing.borrow_mut().remove(&key);
        }
        Ok(entry)
    }

    fn module(&self, path: &[Name]) -> Result<Option<Place>> {
        if let Some(known) = self.places.borrow().get(path) {
            return Ok(known.clone());
        }
        let place = self.load(path)?;
        self.places.borrow_mut().insert(path.to_vec(), place.clone());
        Ok(place)
    }

    fn load(&self, path: &[Name]) -> Result<Option<Place>> {
        for base in (0..=path.len()).rev() {
            let file = match base {
                0 => self.krate.root.clone(),
                _ => match modules::find(self.tree, self.krate, &path[..base])? {
                    Found::Module(module) => module.file,
                    Found::Inline { .. } => continue,
                    Found::Missing { .. } => return Ok(None),
                },
            };
            let text = self.tree.read(&file)?.unwrap_or_default();
            let syntax = Rc::new(modules::parse(&file, &text)?);
            return Ok(Some(Place { path: path.to_vec(), base, file, syntax }));
        }
        Ok(None)
    }
}

/// One name that a `use` brings in.
struct Import {
    /// Nothing for `*`.
    name: Option<String>,
    path: Vec<String>,
    /// It starts with `::`.
    external: bool,
    public: bool,
}

fn imports(items: &[Item]) -> Vec<Import> {
    let mut imports = Vec::new();
    for item in items {
        if let Item::Use(item) = item {
            let external = item.leading_colon.is_some();
            let public = !matches!(item.vis, syn::Visibility::Inherited);
            flatten(&item.tree, &[], &mut |name, path| imports.push(Import { name, path, external, public }));
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

/// Whether a macro call could define the name: it mentions it, or includes a file.
fn may_make(item: &Item, name: &str) -> bool {
    let Item::Macro(syn::ItemMacro { ident: None, mac, .. }) = item else { return false };
    let tokens = mac.tokens.to_string();
    let mut words = tokens.split(|c: char| !c.is_alphanumeric() && c != '_');
    mac.path.is_ident("include") || words.any(|word| word == name)
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        _ => false,
    })
}

fn is(ident: &syn::Ident, name: &str) -> bool {
    ident.unraw() == name
}

fn name_of(ident: &syn::Ident) -> Option<Name> {
    Name::parse("", &ident.unraw().to_string()).ok()
}

fn is_owner(type_name: &str, owner: &Owner) -> bool {
    type_name == owner.noun.camel() || owner.module.is_some_and(|module| module.name == type_name)
}

fn last_segment(ty: &Type) -> Option<String> {
    match ty {
        Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.unraw().to_string()),
        _ => None,
    }
}

/// `T` of `Option<T>`, `str` of `Cow<'a, str>`.
fn argument(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let syn::PathArguments::AngleBracketed(arguments) = &path.path.segments.last()?.arguments else { return None };
    arguments.args.iter().find_map(|argument| match argument {
        syn::GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

/// A type as it stands in the source.
fn show(ty: &Type) -> String {
    let text = ty.span().source_text().unwrap_or_else(|| "_".to_owned());
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The accesses that `--scope-owner` names.
fn members(text: &str) -> Result<Vec<Member>> {
    text.split('.').map(|part| member(part.trim()).ok_or_else(|| malformed(text, part))).collect()
}

fn member(part: &str) -> Option<Member> {
    let (kind, name) = match part.strip_suffix("()") {
        Some(name) => (Kind::Method, name),
        None => (Kind::Field, part),
    };
    let is_index = kind == Kind::Field && name.parse::<u16>().is_ok_and(|index| index.to_string() == name);
    let name = name.strip_prefix("r#").unwrap_or(name);
    // These stand for places, also when they are written raw.
    let is_place = ["self", "Self", "super", "crate", "_"].contains(&name);
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !is_place;
    (is_index || is_name).then(|| Member::new(kind, name))
}

fn malformed(text: &str, part: &str) -> Failure {
    let what = if part.trim().is_empty() {
        format!("--scope-owner: `{}` has an empty part", text.escape_debug())
    } else {
        let part = part.trim().escape_debug();
        format!(
            "--scope-owner: `{part}` in `{}` is neither a field nor a method without arguments",
            text.escape_debug()
        )
    };
    Failure::usage(what).help(
        "write the accesses from the scope to the id, for example `user.id` or `user_id()`; \
         an `Option` on the way needs no `?`",
    )
}

fn no_such_member(shown: &str, definition: &Definition, member: &Member) -> Failure {
    let kind = if member.kind == Kind::Field { "field" } else { "method" };
    let what = format!(
        "--scope-owner: `{shown}` in {} has no {kind} `{}`; {}",
        definition.file,
        member.rust(),
        definition.describe()
    );
    Failure::usage(what).help(format!(
        "name one of these, or add `pub fn {}(&self)` to `{}` in that file",
        if member.kind == Kind::Method { &member.name } else { "owner_id" },
        definition.name
    ))
}

fn hidden_member(shown: &str, definition: &Definition, member: &Member, context: &ModulePath) -> Failure {
    let member = member.rust();
    let context = context.rust();
    let what = format!(
        "--scope-owner: `{member}` of `{shown}` in {} cannot be seen from `{context}`; {}",
        definition.file,
        definition.describe()
    );
    Failure::usage(what).help(format!("make `{member}` visible with `pub(crate)`, or name another"))
}

fn undecided(scope: &TypePath, definition: &Definition, owner: &Owner) -> Failure {
    let Owner { noun: owner_type, field: owner_field, key, .. } = owner;
    let has = |name: &str| definition.fields.iter().any(|field| field.name == name);
    let anyone = ["type", "kind", "owner_type"].into_iter().find(|name| has(name)).filter(|_| has("id"));
    let anyone = anyone.map(|kind| format!("\na scope of `{kind}` and `id` may stand for any kind of owner"));
    let what = format!(
        "cannot tell how the id of the {owner_type} is read from `{}` in {}: {}\n\
         looked for a field or method `{owner_field}`, \
         and for a field or method `{owner_type}` whose type has a visible `{key}`{}",
        scope.rust(),
        definition.file,
        definition.describe(),
        anyone.unwrap_or_default(),
    );
    let holder = definition.fields.iter().find(|field| field.visible && field.name == owner_type.as_str());
    let example = match holder {
        Some(holder) => format!("{}.{key}", Member::new(Kind::Field, &holder.name).rust()),
        None if definition.fields.iter().any(|field| field.visible && field.name == "id") => "id".to_owned(),
        None => {
            return Failure::decision(what).help(format!(
                "say how with `--scope-owner`, or add `pub fn {owner_field}(&self)` to `{}` in that file",
                definition.name
            ));
        }
    };
    Failure::decision(what).help(format!("say how with `--scope-owner`, for example `--scope-owner {example}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: &str = "conversations";

    fn tree(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::new("/nonexistent");
        for (path, text) in files {
            tree.lay(*path, *text);
        }
        tree
    }

    fn krate() -> Crate {
        Crate { root: "src/lib.rs".into(), library: true, style: modules::Style::Flat }
    }

    fn context() -> ModulePath {
        ModulePath::parse_context(CONTEXT, "my_app").unwrap()
    }

    fn scope() -> TypePath {
        TypePath::parse("--scope", "crate::accounts::Scope", "my_app", &[]).unwrap()
    }

    fn found(tree: &Tree) -> Option<Definition> {
        match lookup(tree, &krate(), &scope(), &context()).unwrap() {
            Lookup::Found(definition) => Some(definition),
            Lookup::Absent | Lookup::Opaque => None,
        }
    }

    fn show_lookup(files: &[(&str, &str)]) -> &'static str {
        match lookup(&tree(files), &krate(), &scope(), &context()).unwrap() {
            Lookup::Found(_) => "found",
            Lookup::Absent => "absent",
            Lookup::Opaque => "opaque",
        }
    }

    /// `user?.id: I64`, where `?` marks an `Option`.
    fn show_access(access: &Access) -> String {
        let step = |step: &Step| format!("{}{}", step.text, if step.optional { "?" } else { "" });
        let steps = access.steps.iter().map(step).collect::<Vec<_>>().join(".");
        access.id.as_ref().map_or(steps.clone(), |id| format!("{steps}: {id:?}"))
    }

    fn infer_in(files: &[(&str, &str)], key: &str) -> Result<String, String> {
        let tree = tree(files);
        let name = |text| Name::parse("", text).unwrap();
        let (owner_type, owner_field) = (name("user"), name("user_id"));
        let owner = Owner { noun: &owner_type, field: &owner_field, key, module: None };
        let definition = found(&tree).expect("the scope is there");
        infer(&tree, &krate(), &scope(), &definition, &owner, &context())
            .map(|access| show_access(&access))
            .map_err(|failure| format!("{}: {failure}", failure.exit as u8))
    }

    /// The scope and what it needs in one file, `src/accounts.rs`.
    fn infer_from(accounts: &str) -> Result<String, String> {
        infer_in(&[("src/lib.rs", "pub mod accounts;"), ("src/accounts.rs", accounts)], "id")
    }

    fn follow_in(accounts: &str, text: &str) -> Result<String, String> {
        let tree = tree(&[("src/lib.rs", "pub mod accounts;"), ("src/accounts.rs", accounts)]);
        let definition = found(&tree);
        follow(&tree, &krate(), &scope(), definition.as_ref(), text, &context())
            .map(|access| show_access(&access))
            .map_err(|failure| format!("{}: {failure}", failure.exit as u8))
    }

    #[test]
    fn the_id_is_read_from_the_field_of_the_owners_name() {
        for (field, seen) in [
            ("user_id: i64", "user_id: I64"),
            ("user_id: i32", "user_id: SmallInt"),
            ("user_id: u64", "user_id: Other(\"u64\")"),
            ("user_id: uuid::Uuid", "user_id: Uuid"),
            ("user_id: Option<Uuid>", "user_id?: Uuid"),
            ("user_id: std::option::Option<String>", "user_id?: String"),
            ("user_id: &'static str", "user_id: Str"),
            ("user_id: std::borrow::Cow<'static, str>", "user_id: Str"),
            ("user_id: &'static Uuid", "user_id: Ref(Uuid)"),
            ("user_id: Vec< u8 >", "user_id: Other(\"Vec< u8 >\")"),
            ("name: String, pub(crate) user_id: i64", "user_id: I64"),
        ] {
            let source = format!("pub struct Scope {{ pub {field} }}");
            assert_eq!(infer_from(&source).as_deref(), Ok(seen), "{field}");
        }
    }

    #[test]
    fn the_id_is_read_through_the_owner() {
        const USER: &str = "pub struct User { pub name: String, pub id: i64 }";
        for (field, expected) in [
            ("user: User", "user.id: I64"),
            ("user: Option<User>", "user?.id: I64"),
            ("user: Option<std::sync::Arc<User>>", "user?.id: I64"),
            ("user: Box<User>", "user.id: I64"),
            ("user: &'static User", "user.id: I64"),
            ("who: User", "who.id: I64"),
            ("current_user: User", "current_user.id: I64"),
        ] {
            let source = format!("{USER} pub struct Scope {{ pub {field} }}");
            assert_eq!(infer_from(&source).as_deref(), Ok(expected), "{field}");
        }
    }

    #[test]
    fn of_two_fields_of_the_owners_type_none_is_chosen() {
        let source = "pub struct User { pub id: i64 } pub struct Scope { pub author: User, editor: User }";
        assert!(infer_from(source).unwrap_err().starts_with("5: "));
        let source = "pub struct User { pub id: i64 } pub struct Scope { user: User, pub admin: User }";
        assert!(infer_from(source).unwrap_err().starts_with("5: "));
    }

    #[test]
    fn private_fields_are_read_by_methods() {
        let id = "pub struct Scope { user_id: i64 } impl Scope { pub fn user_id(&self) -> i64 { self.user_id } }";
        assert_eq!(infer_from(id).as_deref(), Ok("user_id(): I64"));
        let user = "pub struct User { id: Uuid } impl User { pub const fn id(&self) -> &Uuid { &self.id } }
            pub struct Scope { user: Option<User> }
            mod reading { impl super::Scope { pub fn user(&self) -> Option<&super::User> { self.user.as_ref() } } }";
        assert_eq!(infer_from(user).as_deref(), Ok("user()?.id(): Ref(Uuid)"));
        let choice =
            "pub enum Scope { User(i64), Nobody } impl Scope { pub fn user_id(&self) -> Option<i64> { None } }";
        assert_eq!(infer_from(choice).as_deref(), Ok("user_id()?: I64"));
    }

    #[test]
    fn only_plain_methods_count() {
        for method in [
            "fn user_id(&self) -> i64",
            "pub async fn user_id(&self) -> i64",
            "pub fn user_id(self) -> i64",
            "pub fn user_id(&mut self) -> i64",
            "pub fn user_id<T>(&self) -> T",
            "pub fn user_id(&self, now: u8) -> i64",
            "pub unsafe fn user_id(&self) -> i64",
            "pub fn user_id(&self)",
            "#[cfg(test)] pub fn user_id(&self) -> i64",
        ] {
            let source = format!("pub struct Scope; impl Scope {{ {method} {{ todo!() }} }}");
            assert!(infer_from(&source).is_err(), "{method}");
        }
    }

    #[test]
    fn a_scope_that_may_hold_anyone_needs_a_decision() {
        let source = "pub struct Scope { pub r#type: Kind, pub id: i64, token: Vec<u8> }
            impl Scope { pub fn label(&self) -> &str { todo!() } }";
        assert_eq!(
            infer_from(source).unwrap_err(),
            "5: cannot tell how the id of the user is read from `crate::accounts::Scope` in src/accounts.rs: it has
  type: Kind
  id: i64
  token: Vec<u8> (private)
  fn label(&self) -> &str
looked for a field or method `user_id`, and for a field or method `user` whose type has a visible `id`
a scope of `type` and `id` may stand for any kind of owner
help: say how with `--scope-owner`, for example `--scope-owner id`"
        );
    }

    #[test]
    fn an_owner_that_cannot_be_read_needs_a_decision() {
        let source = "use entities::User; pub struct Scope { pub user: User }";
        assert!(infer_from(source).unwrap_err().contains("--scope-owner user.id"));
    }

    #[test]
    fn a_scope_that_is_the_owner_has_the_id_itself() {
        let tree = tree(&[("src/lib.rs", "mod accounts;"), ("src/accounts.rs", "pub struct User { pub id: i64 }")]);
        let scope = TypePath::parse("--scope", "accounts::User", "my_app", &[]).unwrap();
        let Lookup::Found(definition) = lookup(&tree, &krate(), &scope, &context()).unwrap() else {
            panic!("not found")
        };
        let (user, user_id) = (Name::parse("", "user").unwrap(), Name::parse("", "user_id").unwrap());
        let owner = Owner { noun: &user, field: &user_id, key: "id", module: None };
        let access = infer(&tree, &krate(), &scope, &definition, &owner, &context()).unwrap();
        assert_eq!(show_access(&access), "id: I64");
    }

    #[test]
    fn the_owner_is_found_in_another_file_by_its_key() {
        let files = [
            ("src/lib.rs", "pub mod accounts; mod users;"),
            (
                "src/accounts.rs",
                "use crate::users::{self, model::Person as User};\npub struct Scope { pub user: User }",
            ),
            (
                "src/users.rs",
                "pub mod model { use uuid::Uuid as Key; pub struct Person { pub id: i64, pub user_id: Key } }",
            ),
        ];
        assert_eq!(infer_in(&files, "user_id").as_deref(), Ok("user.user_id: Uuid"));
        assert_eq!(infer_in(&files, "id").as_deref(), Ok("user.id: I64"));
    }

    #[test]
    fn aliases_are_looked_through() {
        let files = [
            ("src/lib.rs", "pub mod accounts; mod ids;"),
            (
                "src/ids.rs",
                "pub type UserId = Raw; type Raw = i64; pub type Maybe = Option<UserId>; pub type Loop = Loop;",
            ),
            ("src/accounts.rs", "pub type Scope = Session; struct Session { pub user_id: crate::ids::Maybe }"),
        ];
        assert_eq!(infer_in(&files, "id").as_deref(), Ok("user_id?: I64"));
        let newtype = "pub struct UserId(pub i64); pub struct Scope { pub user_id: UserId }";
        assert_eq!(infer_from(newtype).as_deref(), Ok("user_id: Other(\"UserId\")"));
        for endless in ["Loop", "&'static Loop", "Box<Loop>", "Option<Loop>", "(Loop)"] {
            let source = format!("type Loop = {endless}; pub struct Scope {{ pub user: Loop, pub user_id: Loop }}");
            assert!(infer_from(&source).is_ok_and(|access| access.contains("Other")), "{endless}");
        }
    }

    #[test]
    fn re_exports_lead_to_the_definition() {
        for accounts in [
            "mod scope; pub use self::scope::Scope;",
            "mod scope; pub use scope::{Other, Scope};",
            "mod scope; pub use scope::*;",
            "mod scope; pub use crate::accounts::scope::Scope as Scope;",
            "mod scope; pub use scope::Session as Scope;",
            "mod scope; mod again { pub use super::scope::Scope; pub use super::*; } pub use again::*;",
        ] {
            let files = [
                ("src/lib.rs", "pub mod accounts;"),
                ("src/accounts.rs", accounts),
                (
                    "src/accounts/scope.rs",
                    "pub struct Scope { pub user_id: i64 }\r\npub struct Session { pub user_id: i64 }",
                ),
            ];
            assert_eq!(infer_in(&files, "id").as_deref(), Ok("user_id: I64"), "{accounts}");
        }
    }

    #[test]
    fn a_type_that_is_nowhere_is_absent_and_one_from_elsewhere_is_opaque() {
        for (accounts, expected) in [
            ("pub struct Scope;", "found"),
            ("pub struct Other; use sqlx::prelude::*; macro_rules! scope { () => { struct Scope; } }", "absent"),
            ("pub use auth::Scope;", "opaque"),
            ("pub use ::auth::*;", "opaque"),
            ("pub type Scope = auth::Session<User>;", "opaque"),
            ("define_scope! { Scope { user_id: i64 } }", "opaque"),
            ("include!(\"generated.rs\");", "opaque"),
            ("pub trait Scope {}", "opaque"),
            ("mod a { pub use super::b::*; } mod b { pub use super::a::*; } pub use a::*;", "absent"),
            ("mod a { mod b; pub use b::Scope; } pub use a::*;", "opaque"),
            ("pub use self::b::Scope; mod b { pub use super::Scope; }", "opaque"),
        ] {
            let files = [("src/lib.rs", "pub mod accounts;"), ("src/accounts.rs", accounts)];
            assert_eq!(show_lookup(&files), expected, "{accounts}");
        }
        assert_eq!(show_lookup(&[("src/lib.rs", "")]), "absent");
        assert_eq!(show_lookup(&[("src/lib.rs", "pub mod accounts { pub struct Scope; }")]), "found");
        let external = TypePath::parse("--scope", "auth::Scope", "my_app", &["auth".to_owned()]).unwrap();
        assert!(matches!(lookup(&tree(&[]), &krate(), &external, &context()).unwrap(), Lookup::Opaque));
    }

    #[test]
    fn visibility_is_that_of_the_context() {
        for (context, expected) in
            [("accounts::chat", "abc"), ("conversations", "ac"), ("accounts::inner::chat", "abcd")]
        {
            let source = "pub mod inner { pub struct Scope { pub a: u8, pub(super) b: u8, pub(crate) c: u8, d: u8 } }
                pub use inner::Scope;";
            let tree = tree(&[("src/lib.rs", "mod accounts;"), ("src/accounts.rs", source)]);
            let context = ModulePath::parse_context(context, "my_app").unwrap();
            let Lookup::Found(found) = lookup(&tree, &krate(), &scope(), &context).unwrap() else {
                panic!("not found")
            };
            let visible: String =
                found.fields.iter().filter(|field| field.visible).map(|field| field.name.as_str()).collect();
            assert_eq!(visible, expected);
        }
    }

    #[test]
    fn a_given_way_is_followed_with_its_options() {
        let source = "pub struct Scope { pub user: Option<User>, pub r#type: Id } pub struct Id(pub i64);
            pub struct User { pub id: Id, session: ext::Session }
            impl Scope { pub fn current_user(&self) -> &User { todo!() } }
            impl User { pub fn session(&self) -> &ext::Session { todo!() } }";
        for (text, expected) in [
            ("user.id", "user?.id: Other(\"Id\")"),
            ("user.id.0", "user?.id.0: I64"),
            ("current_user().id", "current_user().id: Other(\"Id\")"),
            ("r#type.0", "r#type.0: I64"),
            (" type . 0 ", "r#type.0: I64"),
            ("user.session().user.id", "user?.session().user.id"),
            ("user.derived()", "user?.derived()"),
        ] {
            assert_eq!(follow_in(source, text).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(follow_in("pub struct Scope(pub Option<i64>);", "0").as_deref(), Ok("0?: I64"));
        assert_eq!(follow_in("pub use auth::Scope;", "user.id").as_deref(), Ok("user.id"));
    }

    #[test]
    fn a_way_that_the_scope_does_not_have_is_refused_with_what_it_has() {
        let source = "pub struct Scope { user: User, pub team: Team } pub struct Team { id: i64 }";
        let missing = follow_in(source, "usr.id").unwrap_err();
        assert_eq!(
            missing,
            "2: --scope-owner: `crate::accounts::Scope` in src/accounts.rs has no field `usr`; it has
  user: User (private)
  team: Team
help: name one of these, or add `pub fn owner_id(&self)` to `Scope` in that file"
        );
        assert!(
            follow_in(source, "user.id")
                .unwrap_err()
                .contains("`user` of `crate::accounts::Scope` in src/accounts.rs cannot be seen")
        );
        assert!(follow_in(source, "team.id").unwrap_err().contains("`id` of `Team`"));
        assert!(follow_in(source, "user_id()").unwrap_err().contains("no method `user_id()`"));
    }

    #[test]
    fn a_way_that_is_no_chain_of_accesses_is_refused() {
        for text in [
            "",
            ".",
            "user.",
            "user..id",
            "user?.id",
            "user.id(1)",
            "user id",
            "0()",
            "a::b",
            "ü",
            "user.id; drop()",
            "1a",
            "self.id",
            "00",
        ] {
            let message = follow_in("pub use auth::Scope;", text).unwrap_err();
            assert!(message.starts_with("2: --scope-owner: "), "{text}: {message}");
        }
    }
}
