{%- match owner %}
{%- when Some(owner) %}
//! Who is asking: how the owner of conversations is read from [`{{ scope_name }}`].

use serde_json::{Value, json};
{%- if owner.uses_uuid %}
use uuid::Uuid;
{%- endif %}

{% if owner.is_optional %}use super::{Error, Result};{% else %}use super::Result;{% endif %}
{%- for import in imports %}
use {{ import }};
{%- endfor %}

/// The {{ owner.link }} that owns a conversation. Every statement has it as a parameter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    {{ owner.field }}: {{ owner.rust_type }},
}

impl Owner {
    /// For implementations of [`OwnerScope`].
    pub(crate) fn new({{ owner.field }}: {% if owner.is_text %}impl Into<String>{% else %}{{ owner.rust_type }}{% endif %}) -> Self {
        Self { {{ owner.field }}{% if owner.is_text %}: {{ owner.field }}.into(){% endif %} }
    }

    /// The value of the column `{{ owner.field }}`.
    pub(super) fn id(&self) -> {{ owner.bound_type }} {
        {{ owner.bound }}
    }

    /// The value of the column `scope`.
    pub(super) fn to_json(&self) -> Value {
        json!({ "type": "{{ owner.noun }}", "id": self.{{ owner.field }} })
    }
}

/// A caller. Implement it for every type that a call may be made with.
pub trait OwnerScope: Sync {
    /// The owner whose rows the call may reach.
    ///
    /// # Errors
    ///
    /// [`NoOwner`](super::Error::NoOwner) if the caller is no {{ owner.noun }}.
    fn owner(&self) -> Result<Owner>;
}

impl OwnerScope for {{ scope_name }} {
    fn owner(&self) -> Result<Owner> {
{%- for line in owner.read %}
        {{ line }}
{%- endfor %}
        Ok(Owner::new({{ owner.read_value }}))
    }
}
{%- when None %}
{%- if is_own %}
//! Who is asking. Conversations have no owner here: [`{{ scope_name }}`] reaches all of them.
{%- else %}
//! Who is asking. Conversations have no owner here: whoever has a [`{{ scope_name }}`] reaches all of
//! them.
{%- endif %}

use serde_json::{Value, json};

use super::Result;
{%- for import in imports %}
use {{ import }};
{%- endfor %}

{%- if is_own %}

/// The scope of every call. Calls take it all the same, so that an application which gets owners later
/// has a place for them everywhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct {{ scope_name }};
{%- endif %}

/// The owner of every conversation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner;

impl Owner {
    /// The value of the column `scope`.
    #[allow(clippy::unused_self, reason = "the same call as with an owner")]
    pub(super) fn to_json(&self) -> Value {
        json!({ "type": "none" })
    }
}

/// A caller. Implement it for every type that a call may be made with.
pub trait OwnerScope: Sync {
    /// The owner whose rows the call may reach.
    ///
    /// # Errors
    ///
    /// An implementation may refuse a caller.
    fn owner(&self) -> Result<Owner>;
}

impl OwnerScope for {{ scope_name }} {
    fn owner(&self) -> Result<Owner> {
        Ok(Owner)
    }
}
{%- endmatch %}

impl OwnerScope for Owner {
    fn owner(&self) -> Result<Owner> {
        Ok(self.clone())
    }
}
