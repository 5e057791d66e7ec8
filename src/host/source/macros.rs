//! What macros may make: they are not expanded, so a type that is not written in a module may still come from one there.

use heck::ToSnakeCase as _;
use proc_macro2::{TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{Attribute, Item, Meta, Token};

use super::reader::{Place, Reader};
use crate::failure::Result;
use crate::host::modules;

impl Reader<'_> {
    /// The macro call or attribute of a module that may make a type of this name, with its place.
    pub(super) fn maker(&self, place: &Place, name: &str) -> Result<Option<String>> {
        // Types only: whatever else has a name is not asked for.
        if !name.starts_with(|c: char| c.is_ascii_uppercase()) {
            return Ok(None);
        }
        for item in place.items() {
            let line = |span: proc_macro2::Span| format!("{}:{}", place.file, span.start().line);
            if let Item::Macro(syn::ItemMacro { ident: None, mac, .. }) = item
                && self.may_make(place, mac, name)?
            {
                let called = mac.path.segments.iter().map(|segment| segment.ident.to_string()).collect::<Vec<_>>();
                return Ok(Some(format!("`{}!` in {}", called.join("::"), line(mac.path.span()))));
            }
            if let Some(attribute) = attributes(item).iter().find(|attribute| names(attribute, name)) {
                return Ok(Some(format!("an attribute in {}", line(attribute.span()))));
            }
        }
        Ok(None)
    }

    /// A call may make what it mentions. Else the macro decides: one of the crate by what it mentions itself, any other
    /// unless it is known to make no type.
    fn may_make(&self, place: &Place, mac: &syn::Macro, name: &str) -> Result<bool> {
        if mentions(&mac.tokens, name) {
            return Ok(true);
        }
        let Some(called) = mac.path.segments.last().map(|segment| segment.ident.to_string()) else { return Ok(false) };
        Ok(match self.rules(place, &called)? {
            Some(rules) => mentions(&rules, name),
            None => !NO_TYPES.contains(&called.as_str()),
        })
    }

    /// The rules of a macro of the crate.
    pub(super) fn rules(&self, place: &Place, called: &str) -> Result<Option<TokenStream>> {
        if let Some(rules) = rules_in(&place.syntax.items, called) {
            return Ok(Some(rules));
        }
        for file in self.sources(place.home.krate)? {
            let Ok(Some(text)) = self.source.tree.read(&file) else { continue };
            if text.contains("macro_rules!")
                && let Ok(source) = modules::parse(&file, &text)
                && let Some(rules) = rules_in(&source.items, called)
            {
                return Ok(Some(rules));
            }
        }
        Ok(None)
    }
}

/// Macros that are called where items are and make no type, or only types that the call names.
const NO_TYPES: &[&str] = &[
    "allow_tables_to_appear_in_same_query",
    "assert_impl_all",
    "assert_not_impl_any",
    "assert_obj_safe",
    "bitflags",
    "compile_error",
    "const_assert",
    "const_assert_eq",
    "global_asm",
    "i18n",
    "joinable",
    "lazy_static",
    "setup_scaffolding",
    "table",
    "task_local",
    "thread_local",
];

fn rules_in(items: &[Item], called: &str) -> Option<TokenStream> {
    items.iter().find_map(|item| match item {
        Item::Macro(syn::ItemMacro { ident: Some(ident), mac, .. }) if ident == called => Some(mac.tokens.clone()),
        Item::Mod(module) => rules_in(&module.content.as_ref()?.1, called),
        _ => None,
    })
}

/// Whether an attribute may make a type of this name: it is called after it, or mentions it. `MakeScope` is called after
/// `Scope`.
fn names(attribute: &Attribute, name: &str) -> bool {
    let words = |name: &str| format!("_{}_", name.to_snake_case());
    let is_called_so = |path: &syn::Path| {
        path.segments.last().is_some_and(|segment| words(&segment.ident.to_string()).contains(&words(name)))
    };
    match &attribute.meta {
        Meta::NameValue(_) => false,
        Meta::Path(path) => is_called_so(path),
        Meta::List(list) if list.path.is_ident("derive") => derived(attribute).iter().any(is_called_so),
        Meta::List(list) => is_called_so(&list.path) || mentions(&list.tokens, name),
    }
}

/// The names of the traits that attributes derive.
pub(super) fn derives(attributes: &[Attribute]) -> Vec<String> {
    let paths = attributes.iter().filter(|attribute| attribute.path().is_ident("derive")).flat_map(derived);
    paths.filter_map(|path| Some(path.segments.last()?.ident.to_string())).collect()
}

fn derived(attribute: &Attribute) -> Vec<syn::Path> {
    let paths = attribute.parse_args_with(Punctuated::<syn::Path, Token![,]>::parse_terminated);
    paths.into_iter().flatten().collect()
}

/// Whether derives or other attributes of a type may give it methods of its own.
pub(super) fn may_add_methods(attributes: &[Attribute], derives: &[String]) -> bool {
    let is_known = |attribute: &Attribute| NO_METHODS.iter().any(|name| attribute.path().is_ident(name));
    derives.iter().any(|name| !TRAITS_ONLY.contains(&name.as_str())) || !attributes.iter().all(is_known)
}

/// Whether an item is a call of a macro that mentions a name.
pub(super) fn is_call_about(item: &Item, name: &str) -> bool {
    matches!(item, Item::Macro(syn::ItemMacro { ident: None, mac, .. }) if mentions(&mac.tokens, name))
}

/// Attributes that add nothing to a type.
const NO_METHODS: &[&str] = &[
    "allow",
    "cfg",
    "deny",
    "deprecated",
    "derive",
    "diesel",
    "doc",
    "error",
    "expect",
    "must_use",
    "non_exhaustive",
    "repr",
    "schema",
    "serde",
    "sqlx",
    "validate",
    "warn",
];

/// Derives that implement traits and nothing else.
const TRAITS_ONLY: &[&str] = &[
    "AsChangeset",
    "Clone",
    "Copy",
    "Debug",
    "Decode",
    "Default",
    "Deserialize",
    "Display",
    "Encode",
    "Eq",
    "Error",
    "From",
    "FromRow",
    "FromStr",
    "Hash",
    "Identifiable",
    "Insertable",
    "Into",
    "JsonSchema",
    "Ord",
    "PartialEq",
    "PartialOrd",
    "Queryable",
    "Selectable",
    "Serialize",
    "ToSchema",
    "Type",
    "Validate",
];

/// Whether a word is among tokens, also inside a string.
pub(super) fn mentions(tokens: &TokenStream, name: &str) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == name,
        TokenTree::Group(group) => mentions(&group.stream(), name),
        TokenTree::Literal(literal) => {
            literal.to_string().split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
        }
        TokenTree::Punct(_) => false,
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        _ => &[],
    }
}
