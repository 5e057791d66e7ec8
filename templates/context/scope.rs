{%- match owner %}
{%- when Some(owner) %}
//! Who is asking: how the owner of conversations is read from [`{{ scope_name }}`].
{%- if let Some(group) = group %}
//!
//! A scope with {{ owner.article }} {{ owner.noun }} reads and writes what that {{ owner.noun }} has. One without
//! reads what the members of its {{ group.noun }} have, and writes nothing. Who is a member is looked
//! up by every call.
{%- endif %}

use serde_json::{Value, json};
{%- if uses_uuid %}
use uuid::Uuid;
{%- endif %}

{% if owner.is_optional || group.is_some() %}use super::{Error, Result};{% else %}use super::Result;{% endif %}
{%- for import in imports %}
use {{ import }};
{%- endfor %}

/// The {{ owner.link }} that owns a conversation. Every statement has it as a parameter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    {{ owner.field }}: {{ owner.rust_type }},
}

impl Owner {
    /// Whether all callers share one owner: then nobody has to sign in.
    pub const IS_SHARED: bool = false;

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
{%- if let Some(group) = group %}

/// The {{ group.noun }} whose members own conversations.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Group {
    {{ group.field }}: {{ group.rust_type }},
}

impl Group {
    /// For implementations of [`OwnerScope`].
    pub(crate) fn new({{ group.field }}: {% if group.is_text %}impl Into<String>{% else %}{{ group.rust_type }}{% endif %}) -> Self {
        Self { {{ group.field }}{% if group.is_text %}: {{ group.field }}.into(){% endif %} }
    }

    /// The value of the column `{{ group.field }}`.
    pub(super) fn id(&self) -> {{ group.bound_type }} {
        {{ group.bound }}
    }
}

/// Whose rows a call may read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Those of one {{ owner.noun }}.
    Owner(Owner),
    /// Those of all members of {{ group.article }} {{ group.noun }}.
    Group(Group),
    /// Those of one member of {{ group.article }} {{ group.noun }}; see [`OwnerScope::member`].
    Member(Group, Owner),
}
{%- else %}

/// Whose rows a call may read.
pub type Reach = Owner;
{%- endif %}

/// A caller. Implement it for every type that a call may be made with. References, [`Arc`]s and
/// `dyn OwnerScope` are callers too.
///
/// [`Arc`]: std::sync::Arc
pub trait OwnerScope: Send + Sync {
    /// The owner whose rows the call may reach.
    ///
    /// # Errors
    ///
    /// [`NoOwner`](super::Error::NoOwner) if the caller is no {{ owner.noun }}.
    fn owner(&self) -> Result<Owner>;
{%- if let Some(group) = group %}

    /// The {{ group.noun }} whose members' rows the call may read if it has no owner.
    ///
    /// # Errors
    ///
    /// [`NoOwner`](super::Error::NoOwner) if the caller is no {{ group.noun }} either.
    fn group(&self) -> Result<Group> {
        Err(Error::NoOwner)
    }

    /// Whose rows the call may read: the owner's, else those of the group's members.
    ///
    /// # Errors
    ///
    /// [`NoOwner`](super::Error::NoOwner) if the caller has neither.
    fn reach(&self) -> Result<Reach> {
        match self.owner() {
            Ok(owner) => Ok(Reach::Owner(owner)),
            Err(Error::NoOwner) => self.group().map(Reach::Group),
            Err(error) => Err(error),
        }
    }

    /// This caller, narrowed to one {{ owner.noun }}: a caller that reads only what that {{ owner.noun }} has.
    /// A group needs it where several members have a conversation with the same id
    /// ([`SeveralOwners`](super::Error::SeveralOwners)).
    ///
    /// Each call looks up whether the {{ owner.noun }} is a member of the {{ group.noun }}, and returns
    /// [`NotFound`](super::Error::NotFound) if not.
    ///
    /// # Errors
    ///
    /// [`NotFound`](super::Error::NotFound) if this caller reaches another {{ owner.noun }} only, and the
    /// errors of [`reach`](Self::reach).
    fn member(&self, owner: Owner) -> Result<Reach> {
        match self.reach()? {
            Reach::Group(group) => Ok(Reach::Member(group, owner)),
            Reach::Owner(own) if own == owner => Ok(Reach::Owner(own)),
            Reach::Member(group, own) if own == owner => Ok(Reach::Member(group, own)),
            Reach::Owner(_) | Reach::Member(..) => Err(Error::NotFound),
        }
    }
{%- else %}

    /// Whose rows the call may read.
    ///
    /// # Errors
    ///
    /// As [`owner`](Self::owner).
    fn reach(&self) -> Result<Reach> {
        self.owner()
    }
{%- endif %}
}

impl OwnerScope for {{ scope_name }} {
    fn owner(&self) -> Result<Owner> {
{%- for line in owner.read %}
        {{ line }}
{%- endfor %}
        Ok(Owner::new({{ owner.read_value }}))
    }
{%- if let Some(group) = group %}
{%- if let Some(value) = group.read_value %}

    fn group(&self) -> Result<Group> {
{%- for line in group.read %}
        {{ line }}
{%- endfor %}
        Ok(Group::new({{ value }}))
    }
{%- endif %}
{%- endif %}
}
{%- when None %}
{%- if is_own %}
//! Who is asking. Conversations have no owner here: [`{{ scope_name }}`] reaches all of them.
{%- else %}
//! Who is asking. Conversations have no owner here: any [`{{ scope_name }}`] reaches all of them.
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
    /// Whether all callers share one owner: then nobody has to sign in.
    pub const IS_SHARED: bool = true;

    /// The value of the column `scope`.
    #[allow(clippy::unused_self, reason = "the same call as with an owner")]
    pub(super) fn to_json(&self) -> Value {
        json!({ "type": "none" })
    }
}

/// Whose rows a call may read.
pub type Reach = Owner;

/// A caller. Implement it for every type that a call may be made with. References, [`Arc`]s and
/// `dyn OwnerScope` are callers too.
///
/// [`Arc`]: std::sync::Arc
pub trait OwnerScope: Send + Sync {
    /// The owner whose rows the call may reach.
    ///
    /// # Errors
    ///
    /// An implementation may refuse a caller.
    fn owner(&self) -> Result<Owner>;

    /// Whose rows the call may read.
    ///
    /// # Errors
    ///
    /// As [`owner`](Self::owner).
    fn reach(&self) -> Result<Reach> {
        self.owner()
    }
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
{%- if group.is_some() %}

impl OwnerScope for Group {
    fn owner(&self) -> Result<Owner> {
        Err(Error::NoOwner)
    }

    fn group(&self) -> Result<Group> {
        Ok(self.clone())
    }
}

impl OwnerScope for Reach {
    fn owner(&self) -> Result<Owner> {
        match self {
            Self::Owner(owner) => Ok(owner.clone()),
            Self::Group(_) | Self::Member(..) => Err(Error::NoOwner),
        }
    }

    fn group(&self) -> Result<Group> {
        match self {
            Self::Group(group) => Ok(group.clone()),
            Self::Owner(_) | Self::Member(..) => Err(Error::NoOwner),
        }
    }

    fn reach(&self) -> Result<Reach> {
        Ok(self.clone())
    }
}
{%- endif %}

impl<T: OwnerScope + ?Sized> OwnerScope for &T {
    fn owner(&self) -> Result<Owner> {
        T::owner(self)
    }
{%- if group.is_some() %}

    fn group(&self) -> Result<Group> {
        T::group(self)
    }
{%- endif %}

    fn reach(&self) -> Result<Reach> {
        T::reach(self)
    }
}

impl<T: OwnerScope + ?Sized> OwnerScope for std::sync::Arc<T> {
    fn owner(&self) -> Result<Owner> {
        T::owner(self)
    }
{%- if group.is_some() %}

    fn group(&self) -> Result<Group> {
        T::group(self)
    }
{%- endif %}

    fn reach(&self) -> Result<Reach> {
        T::reach(self)
    }
}
