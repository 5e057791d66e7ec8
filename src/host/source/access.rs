//! The way from a scope to the id of its owner, or of another kind that is asked for: a chain of steps, each of which
//! is what a person would write in Rust.

use crate::key::KeyType;
use crate::names::{Name, TypePath};

/// How an id is read: a chain of steps from the scope to the id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    pub steps: Vec<Step>,
    /// The id's Rust type, if it could be seen; without the `Option` or `Result` that its step has around it.
    pub id: Option<Seen>,
}

impl Access {
    /// A way of one field.
    pub fn field(name: &Name, around: Option<Around>) -> Self {
        Self { steps: vec![Step::Member { text: name.rust(), around }], id: None }
    }

    /// As `--scope-owner` writes it. A variant is written like a field.
    pub fn shown(&self) -> String {
        let parts = self.steps.iter().map(|step| match step {
            Step::Member { text, .. } => text.clone(),
            Step::Variant { name, field, .. } => format!("{name}.{field}"),
            Step::Kind { member, variant, .. } => format!("{member}.{variant}"),
        });
        parts.collect::<Vec<_>>().join(".")
    }

    /// Whether a scope may have no such id.
    pub fn is_optional(&self) -> bool {
        self.steps.iter().any(|step| match step {
            Step::Member { around, .. } => around.is_some(),
            Step::Variant { is_only, is_optional, .. } => *is_optional || !is_only,
            Step::Kind { .. } => true,
        })
    }

    /// The enums that the steps name, beside the scope itself.
    pub fn enums(&self) -> impl Iterator<Item = &TypePath> {
        self.steps.iter().filter_map(|step| match step {
            Step::Variant { of, .. } => of.as_ref(),
            Step::Kind { of, .. } => Some(of),
            Step::Member { .. } => None,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// To a field or through a method.
    Member {
        /// As Rust source: `user`, `0`, `user_id()`, `r#type`.
        text: String,
        /// What the value there is inside of.
        around: Option<Around>,
    },
    /// Into a field of one variant of an enum. No other variant has the id.
    Variant {
        /// The enum; nothing for the scope itself.
        of: Option<TypePath>,
        name: String,
        /// Without `r#`; `0` in a tuple.
        field: String,
        /// How many fields the variant has.
        fields: usize,
        /// What the field's value is called from there on.
        binding: String,
        /// The value is in an `Option`.
        is_optional: bool,
        /// The enum has no other variant.
        is_only: bool,
    },
    /// To nowhere: the scope has the id that the next step names only if this member is this variant.
    Kind {
        /// As Rust source: `kind`, `r#type`, `kind()`.
        member: String,
        of: TypePath,
        variant: String,
        /// The member is an `Option`.
        is_optional: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Around {
    Option,
    /// A reference to an `Option`, which can only lend what is in it.
    BorrowedOption,
    Result,
}

/// The type of an id as the source has it, as far as generated code can read it.
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
    /// A type of the host's that converts with `From`.
    From {
        /// To this one.
        to: Box<Seen>,
        take: Take,
    },
    /// As `From`, by an `Into` that is written by hand.
    Into {
        to: Box<Seen>,
        take: Take,
    },
    /// Anything else, as in the source.
    Other(String),
}

/// How a value is given away that is still needed where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    Copy,
    Clone,
    Borrow,
}

impl Seen {
    /// The type that a created scope has for a key.
    pub fn of(key: KeyType) -> Self {
        match key {
            KeyType::Integer => Self::I64,
            KeyType::Uuid | KeyType::UuidText => Self::Uuid,
            KeyType::Text => Self::String,
        }
    }

    /// The key that the type can hold. Whether a UUID is stored as text is not known there.
    pub fn key(&self) -> Option<KeyType> {
        match self {
            Self::I64 | Self::SmallInt => Some(KeyType::Integer),
            Self::Uuid => Some(KeyType::Uuid),
            Self::String | Self::Str => Some(KeyType::Text),
            Self::Ref(inner) => inner.key(),
            Self::From { to, .. } | Self::Into { to, .. } => to.key(),
            Self::Other(_) => None,
        }
    }

    /// Whether an id of this type can be a key.
    pub fn fits(&self, key: KeyType) -> bool {
        self.key().is_some_and(|held| held.rust_type() == key.rust_type())
    }
}

/// Whom to look for in a scope: the owner, or any other kind that has a name and a key.
#[derive(Debug, Clone, Copy)]
pub struct Sought<'a> {
    /// What it is called: `user`.
    pub noun: &'a Name,
    /// The key column of its table, if that is known.
    pub key: Option<&'a str>,
    /// The type of that key, if it is known. An id that is inside a type of the host's is read as this.
    pub key_type: Option<KeyType>,
    /// Its Rust type, if a person named it.
    pub module: Option<&'a TypePath>,
    /// The flag that gives the way by hand: `--scope-owner`.
    pub flag: &'static str,
}

impl Sought<'_> {
    /// What the id is called in its own type, if it is called like the key.
    pub(super) fn key_name(&self) -> &str {
        self.key.unwrap_or("id")
    }

    /// Whether a type or a variant is called like it.
    pub(super) fn is_called(&self, name: &str) -> bool {
        name == self.noun.camel() || self.module.is_some_and(|module| module.name == name)
    }
}
