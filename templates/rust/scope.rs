{%- match w.owner %}
{%- when Some(owner) %}
//! Whose conversations: how the owner is read from [`{{ w.scope_name }}`].

use serde_json::{Value, json};
{%- if owner.uses_uuid %}
use uuid::Uuid;
{%- endif %}

use super::{{ owner.super_imports }};
{%- if let Some(import) = w.scope_import %}
use {{ import }};
{%- endif %}

/// The {{ owner.link }} that owns a conversation.
///
/// Every statement carries it, and only a scope makes one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    {{ owner.field }}: {{ owner.rust_type }},
}

impl Owner {
    /// For scopes: whoever implements [`OwnerScope`] says who owns.
    pub(crate) fn new({{ owner.field }}: {{ owner.new_type }}) -> Self {
        Self { {{ owner.new_field }} }
    }

    /// The value of the `{{ owner.field }}` column.
    pub(super) fn id(&self) -> {{ owner.bound_type }} {
        {{ owner.bound }}
    }

    /// What the `scope` column says of a conversation's creator.
    pub(super) fn to_json(&self) -> Value {
        json!({ "type": "{{ owner.noun }}", "id": self.{{ owner.field }} })
    }
}

/// Says on whose behalf a call is made. Implement it for every type that may stand for a caller.
pub trait OwnerScope {
    /// The owner whose rows the call may reach.
    ///
    /// # Errors
    ///
    /// [`NoOwner`](super::Error::NoOwner) if the caller acts for no {{ owner.noun }}.
    fn owner(&self) -> Result<Owner>;
}

impl OwnerScope for {{ w.scope_name }} {
    fn owner(&self) -> Result<Owner> {
{%- for line in owner.read %}
        {{ line }}
{%- endfor %}
        Ok(Owner::new({{ owner.read_value }}))
    }
}

/// An owner that was read from a scope speaks for itself.
impl OwnerScope for Owner {
    fn owner(&self) -> Result<Owner> {
        Ok(self.clone())
    }
}
{%- when None %}
//! Who may reach conversations: here everyone who has a [`{{ w.scope_name }}`].

use serde_json::{Value, json};

use super::Result;
{%- if let Some(import) = w.scope_import %}
use {{ import }};
{%- endif %}

/// The owner of every conversation: the application itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner;

impl Owner {
    /// What the `scope` column says of a conversation's creator.
    pub(super) fn to_json() -> Value {
        json!({ "type": "none" })
    }
}

/// Says on whose behalf a call is made. Implement it for every type that may stand for a caller.
pub trait OwnerScope {
    /// The owner whose rows the call may reach.
    ///
    /// # Errors
    ///
    /// An implementation may refuse a caller.
    fn owner(&self) -> Result<Owner>;
}

impl OwnerScope for {{ w.scope_name }} {
    fn owner(&self) -> Result<Owner> {
        Ok(Owner)
    }
}

/// An owner that was read from a scope speaks for itself.
impl OwnerScope for Owner {
    fn owner(&self) -> Result<Owner> {
        Ok(Owner)
    }
}
{%- endmatch %}
