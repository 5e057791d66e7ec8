{% match owner -%}
{% when Some(owner) -%}
//! How the owner of conversations is read from [`{{ scope_name }}`].
{%- if let Some(group) = group %}
//!
//! A scope with {{ owner.article }} {{ owner.noun }} reads and writes that {{ owner.noun }}'s conversations. One without reads those of
//! its {{ group.noun }}'s members.
{%- endif %}

use sagents::{ {% if names_error %}Error, {% endif %}{% if names_key %}Key, {% endif %}Owner, OwnerScope, Result };
{%- if names_uuid %}
use uuid::Uuid;
{%- endif %}
{% for import in imports %}
use {{ import }};
{%- endfor %}

impl OwnerScope for {{ scope_name }} {
    /// The {{ owner.link }} that owns the conversations.
    fn owner(&self) -> Result<Owner> {
{%- for statement in owner.read %}
        {{ statement }}
{%- endfor %}
        Ok(Owner::new("{{ owner.noun }}", {{ owner.read_value }}))
    }
{%- if let Some(group) = group %}
{%- if let Some(value) = group.read_value %}

    /// The {{ group.noun }} whose members' conversations a scope without {{ owner.article }} {{ owner.noun }} reads.
    fn group(&self) -> Result<Key> {
{%- for statement in group.read %}
        {{ statement }}
{%- endfor %}
        Ok(Key::from({{ value }}))
    }
{%- endif %}
{%- endif %}
}
{%- when None -%}
//! Conversations have no owner: every scope reads and writes all of them.

use sagents::{Owner, OwnerScope, Result};
{%- if is_own %}

/// Everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct {{ scope_name }};
{%- else %}
{% for import in imports %}
use {{ import }};
{%- endfor %}
{%- endif %}

impl OwnerScope for {{ scope_name }} {
    fn owner(&self) -> Result<Owner> {
        Ok(Owner::none())
    }
}
{%- endmatch %}
