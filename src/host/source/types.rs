//! Types as they are written: what an `Option`, a reference, a pointer or an alias of the crate has inside, and what of
//! it can be an id. Only well-known names have a meaning here; any other type is kept as its text.

use syn::Type;
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;

use super::access::{Around, Seen};
use super::reader::{FUEL, Home, Meaning, Reader};
use crate::failure::Result;

/// A type and the module in which its names mean something.
#[derive(Debug, Clone)]
pub(super) struct Written {
    pub(super) ty: Type,
    pub(super) home: Home,
}

impl Written {
    pub(super) fn part(&self, ty: &Type) -> Self {
        Self { ty: ty.clone(), home: self.home.clone() }
    }
}

impl Reader<'_> {
    pub(super) fn seen(&self, written: &Written) -> Result<Seen> {
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
            Meaning::External(path) => path.last().cloned(),
            Meaning::Absent | Meaning::Hidden | Meaning::Made(..) => last_segment(&written.ty),
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

    /// What is in an `Option` or a `Result`, also behind a reference, and which of them there was.
    pub(super) fn inside(&self, written: &Written) -> Result<(Written, Option<Around>)> {
        let written = self.unalias(written)?;
        let bare = match &written.ty {
            Type::Reference(reference) => self.unalias(&written.part(&reference.elem))?,
            _ => written.clone(),
        };
        let is_borrowed = matches!(written.ty, Type::Reference(_));
        let around = match last_segment(&bare.ty).as_deref() {
            Some("Option") if is_borrowed => Some(Around::BorrowedOption),
            Some("Option") => Some(Around::Option),
            // One behind a reference cannot be taken apart without its error.
            Some("Result") if !is_borrowed => Some(Around::Result),
            _ => None,
        };
        Ok(match argument(&bare.ty).filter(|_| around.is_some()) {
            Some(inner) => (bare.part(inner), around),
            None => (written, None),
        })
    }

    /// The type behind references and the pointers that a field access looks through.
    pub(super) fn pointee(&self, written: &Written) -> Result<Written> {
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

    /// Looks through aliases of the crate and through parentheses.
    pub(super) fn unalias(&self, written: &Written) -> Result<Written> {
        let mut here = written.clone();
        for _ in 0..FUEL {
            here = match &here.ty {
                Type::Paren(paren) => here.part(&paren.elem),
                Type::Group(group) => here.part(&group.elem),
                _ => match self.entry_of(&here)? {
                    Meaning::Alias(place, alias) if alias.generics.params.is_empty() => {
                        Written { ty: *alias.ty, home: place.home }
                    }
                    _ => break,
                },
            };
        }
        Ok(here)
    }

    pub(super) fn entry_of(&self, written: &Written) -> Result<Meaning> {
        match &written.ty {
            Type::Path(path) if path.qself.is_none() => {
                let names: Vec<_> =
                    path.path.segments.iter().map(|segment| segment.ident.unraw().to_string()).collect();
                if path.path.leading_colon.is_some() {
                    return Ok(Meaning::External(names));
                }
                self.walk(&written.home, &names, FUEL)
            }
            _ => Ok(Meaning::Hidden),
        }
    }
}

pub(super) fn last_segment(ty: &Type) -> Option<String> {
    match ty {
        Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.unraw().to_string()),
        _ => None,
    }
}

/// `T` of `Option<T>`, `str` of `Cow<'a, str>`.
pub(super) fn argument(ty: &Type) -> Option<&Type> {
    arguments(ty).into_iter().next()
}

pub(super) fn arguments(ty: &Type) -> Vec<&Type> {
    let Type::Path(path) = ty else { return Vec::new() };
    let Some(syn::PathArguments::AngleBracketed(arguments)) = path.path.segments.last().map(|last| &last.arguments)
    else {
        return Vec::new();
    };
    let types = arguments.args.iter().filter_map(|argument| match argument {
        syn::GenericArgument::Type(ty) => Some(ty),
        _ => None,
    });
    types.collect()
}

/// A type as it is written in the source.
pub(super) fn show(ty: &Type) -> String {
    let text = ty.span().source_text().unwrap_or_else(|| "_".to_owned());
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
