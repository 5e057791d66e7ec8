//! Types that a simple macro of the host's own makes, such as `id_type!(UserId);`: its rule is filled in with what the
//! call names. Anything beyond plain fragments is left unseen.

use std::collections::BTreeMap;
use std::rc::Rc;

use proc_macro2::{Group, TokenStream, TokenTree};
use syn::Item;

use super::definition::Definition;
use super::macros::mentions;
use super::reader::{Place, Reader, is};
use crate::failure::Result;

/// What the fragments of a call are.
type Fragments = BTreeMap<String, TokenStream>;

impl Reader<'_> {
    /// The definition of a type that is not written in a module, if a call there makes it in a way that can be followed.
    pub(super) fn made(&self, place: &Place, name: &str) -> Result<Option<Definition>> {
        for item in place.items() {
            let Item::Macro(syn::ItemMacro { ident: None, mac, .. }) = item else { continue };
            let Some(called) = mac.path.segments.last().filter(|_| mentions(&mac.tokens, name)) else { continue };
            let Some(rules) = self.rules(place, &called.ident.to_string())? else { continue };
            let Some(file) = expand(rules, &mac.tokens, name).and_then(|tokens| syn::parse2(tokens).ok()) else {
                continue;
            };
            let place = Place { base: place.home.path.len(), syntax: Rc::new(file), ..place.clone() };
            let made = place.items().iter().find(|item| matches!(item, Item::Struct(item) if is(&item.ident, name)));
            if let Some(item) = made {
                return Ok(Some(self.definition(&place, item)));
            }
        }
        Ok(None)
    }
}

/// What the first rule that fits a call makes of it. Of a list of types, only the one of this name is made.
fn expand(rules: TokenStream, call: &TokenStream, name: &str) -> Option<TokenStream> {
    let mut rules = rules.into_iter().filter(|token| !is_punct(Some(token), ';'));
    while let Some(TokenTree::Group(pattern)) = rules.next() {
        let is_arrow = is_punct(rules.next().as_ref(), '=') && is_punct(rules.next().as_ref(), '>');
        let Some(TokenTree::Group(body)) = rules.next().filter(|_| is_arrow) else { return None };
        if let Some(fragments) = fragments(pattern.stream(), call.clone(), name) {
            return fill(body.stream(), &fragments);
        }
    }
    None
}

/// The fragments of a call that fits a pattern of plain ones.
fn fragments(pattern: TokenStream, call: TokenStream, wanted: &str) -> Option<Fragments> {
    let (pattern, call): (Vec<_>, Vec<_>) = (pattern.into_iter().collect(), call.into_iter().collect());
    let mut found = Fragments::new();
    let (mut at, mut next) = (0, 0);
    while let Some(token) = pattern.get(at) {
        match (is_punct(Some(token), '$'), pattern.get(at + 1)) {
            (true, Some(TokenTree::Ident(name))) => {
                at += 4;
                let end = match pattern.get(at - 1) {
                    Some(TokenTree::Ident(kind)) if kind == "ident" => next + 1,
                    _ => (next..call.len()).find(|index| same(pattern.get(at), &call[*index])).unwrap_or(call.len()),
                };
                found.insert(name.to_string(), call.get(next..end)?.iter().cloned().collect());
                next = end;
            }
            (true, Some(TokenTree::Group(repeated))) if is_list(repeated) => {
                let separator = pattern.get(at + 2).filter(|token| !is_operator(Some(token)));
                // Nothing that counts is behind it.
                let behind = pattern.get(at + if separator.is_some() { 4 } else { 3 }..)?;
                (behind.is_empty() || is_punct(behind.first(), '$')).then_some(())?;
                found.extend(listed(repeated, separator, call.get(next..)?, wanted)?);
                return Some(found);
            }
            // Attributes, or a comma at the end: whatever of them is there.
            (true, Some(TokenTree::Group(repeated))) => {
                let first = repeated.stream().into_iter().next();
                at += if is_operator(pattern.get(at + 2)) { 3 } else { 4 };
                while call.get(next).is_some_and(|token| same(first.as_ref(), token)) {
                    next += if is_punct(first.as_ref(), '#') { 2 } else { 1 };
                }
            }
            _ => {
                same(Some(token), call.get(next)?).then_some(())?;
                (at, next) = (at + 1, next + 1);
            }
        }
    }
    (next == call.len()).then_some(found)
}

/// Whether what a pattern repeats has fragments of its own, which are no attributes.
fn is_list(repeated: &Group) -> bool {
    let tokens: Vec<_> = repeated.stream().into_iter().collect();
    let mut pairs = tokens.windows(2);
    pairs.any(|pair| is_punct(pair.first(), '$') && matches!(pair.last(), Some(TokenTree::Ident(_))))
}

/// The fragments of the only item of a list that mentions a name.
fn listed(repeated: &Group, separator: Option<&TokenTree>, call: &[TokenTree], wanted: &str) -> Option<Fragments> {
    // What ends an item is a separator, or the last token of what is repeated.
    let last = repeated.stream().into_iter().last();
    let end = separator.or(last.as_ref())?;
    let items = call.split(|token| same(Some(end), token));
    let mut items = items.map(|item| item.iter().cloned().collect()).filter(|item| mentions(item, wanted));
    let mut item: TokenStream = items.next().filter(|_| items.next().is_none())?;
    if separator.is_none() {
        item.extend([end.clone()]);
    }
    fragments(repeated.stream(), item, wanted)
}

/// A rule's body with the fragments in it. Repeated attributes are left out. Of anything else that is repeated there is
/// one, see [`listed`].
fn fill(body: TokenStream, fragments: &Fragments) -> Option<TokenStream> {
    let body: Vec<_> = body.into_iter().collect();
    let mut filled = TokenStream::new();
    let mut at = 0;
    while let Some(token) = body.get(at) {
        at += 1;
        match (token, body.get(at)) {
            (dollar, Some(TokenTree::Ident(name))) if is_punct(Some(dollar), '$') => {
                match fragments.get(&name.to_string()) {
                    Some(fragment) => filled.extend(fragment.clone()),
                    None if name == "crate" => filled.extend([TokenTree::Ident(name.clone())]),
                    None => return None,
                }
                at += 1;
            }
            (dollar, Some(TokenTree::Group(repeated))) if is_punct(Some(dollar), '$') => {
                if !is_punct(repeated.stream().into_iter().next().as_ref(), '#') {
                    filled.extend(fill(repeated.stream(), fragments)?);
                }
                at += if is_operator(body.get(at + 1)) { 2 } else { 3 };
            }
            (TokenTree::Group(group), _) => {
                let inner = Group::new(group.delimiter(), fill(group.stream(), fragments)?);
                filled.extend([TokenTree::Group(inner)]);
            }
            (token, _) => filled.extend([token.clone()]),
        }
    }
    Some(filled)
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

fn is_operator(token: Option<&TokenTree>) -> bool {
    ['*', '+', '?'].into_iter().any(|operator| is_punct(token, operator))
}

fn same(one: Option<&TokenTree>, other: &TokenTree) -> bool {
    one.is_some_and(|one| one.to_string() == other.to_string())
}
