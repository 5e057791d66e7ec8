//! What the files of a context call it, its scope and other types of the host.

use crate::names::{Name, TypePath};
use crate::options::{Options, ScopeOrigin, Web, is_reserved};

#[derive(Debug)]
pub struct Names<'a> {
    /// The context's type: `Conversations`.
    pub context: String,
    /// The scope's type, and what a file imports to name it so.
    pub scope: String,
    pub scope_import: Option<String>,
    /// The context brings the scope's type.
    pub is_own: bool,
    scope_type: &'a TypePath,
    web: Web,
}

impl<'a> Names<'a> {
    pub fn new(options: &'a Options) -> Self {
        let Options { context, scope, scope_origin, web, .. } = options;
        let context = context.last().camel();
        let is_hidden = is_reserved(&scope.name, *web) || scope.name == context;
        let is_own = *scope_origin == ScopeOrigin::Context;
        // One that the context brings is beside every file that names it.
        let name = if is_hidden && !is_own { scope.rust() } else { scope.name.clone() };
        let scope_import = match scope_origin {
            ScopeOrigin::Context => Some(format!("super::{name}")),
            ScopeOrigin::Host | ScopeOrigin::Created => (!is_hidden).then(|| scope.rust()),
        };
        Self { context, scope: name, scope_import, is_own, scope_type: scope, web: *web }
    }

    /// Whether a type may go by its bare name.
    pub fn is_free(&self, ty: &TypePath) -> bool {
        !is_reserved(&ty.name, self.web) && ty.name != self.context && ty.name != self.scope_type.name
    }

    pub fn of(&self, ty: &TypePath) -> String {
        if self.is_free(ty) { ty.name.clone() } else { ty.rust() }
    }
}

/// By its first letter, which is right for nearly every noun that owns something.
pub fn article(noun: &Name) -> &'static str {
    let is_vowel = noun.as_str().starts_with(['a', 'e', 'i', 'o']);
    if is_vowel { "an" } else { "a" }
}
