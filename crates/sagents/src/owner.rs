//! Owners of conversations, and how they're read from an application's scope.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::{Error, Result};

/// The value of an owner column: what identifies a user, a team, an account.
///
/// A key binds itself in a query of the feature's database, as the integer, UUID or text that it is. A UUID that your
/// tables store as text is a [`Key::Text`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// An integer of any size.
    Integer(i64),
    /// A UUID.
    Uuid(Uuid),
    /// Text.
    Text(String),
}

impl From<i32> for Key {
    fn from(key: i32) -> Self {
        Self::Integer(key.into())
    }
}

impl From<u32> for Key {
    fn from(key: u32) -> Self {
        Self::Integer(key.into())
    }
}

impl From<i64> for Key {
    fn from(key: i64) -> Self {
        Self::Integer(key)
    }
}

impl From<Uuid> for Key {
    fn from(key: Uuid) -> Self {
        Self::Uuid(key)
    }
}

impl From<&str> for Key {
    fn from(key: &str) -> Self {
        Self::Text(key.to_owned())
    }
}

impl From<String> for Key {
    fn from(key: String) -> Self {
        Self::Text(key)
    }
}

impl<T> From<&T> for Key
where
    T: Clone + Into<Key>,
{
    fn from(key: &T) -> Self {
        key.clone().into()
    }
}

/// The owner of a conversation. Every statement has its key as a parameter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    kind: Cow<'static, str>,
    key: Key,
}

impl Owner {
    /// An owner of this kind, for example `Owner::new("user", 42)`. The kind is only stored, in the column `scope`.
    pub fn new(kind: impl Into<Cow<'static, str>>, key: impl Into<Key>) -> Self {
        Self { kind: kind.into(), key: key.into() }
    }

    /// The owner of every conversation in tables without owners.
    #[must_use]
    pub fn none() -> Self {
        Self::new("none", 0)
    }

    /// The value of the owner column.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The value of the column `scope`, for example `{"type": "user", "id": 42}`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match &self.key {
            _ if self.kind == "none" => json!({ "type": self.kind }),
            Key::Integer(id) => json!({ "type": self.kind, "id": id }),
            Key::Uuid(id) => json!({ "type": self.kind, "id": id }),
            Key::Text(id) => json!({ "type": self.kind, "id": id }),
        }
    }
}

/// Whose rows a call may read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Reach {
    /// The rows of one owner.
    Owner(Owner),
    /// The rows of all members of a group. Every statement looks the membership up.
    Group(Key),
}

/// A caller: implement it for the type that your application calls its scope.
///
/// Writes need an [owner](Self::owner). Reads accept what the caller may [reach](Self::reach). References, [`Arc`]s and
/// `dyn OwnerScope` are callers, too, and so is an [`Owner`].
///
/// ```
/// use sagents::{Owner, OwnerScope, Result};
///
/// struct Scope {
///     user_id: i64,
/// }
///
/// impl OwnerScope for Scope {
///     fn owner(&self) -> Result<Owner> {
///         Ok(Owner::new("user", self.user_id))
///     }
/// }
/// ```
pub trait OwnerScope: Send + Sync {
    /// The owner whose rows the call may read and write.
    ///
    /// # Errors
    ///
    /// [`Error::NoOwner`] if the caller has no owner.
    fn owner(&self) -> Result<Owner>;

    /// The group whose members' rows the call may read if it has no owner.
    ///
    /// # Errors
    ///
    /// [`Error::NoOwner`] if the caller has no group.
    fn group(&self) -> Result<Key> {
        Err(Error::NoOwner)
    }

    /// Whose rows the call may read: the owner's, or else those of the group's members.
    ///
    /// # Errors
    ///
    /// [`Error::NoOwner`] if the caller has neither.
    fn reach(&self) -> Result<Reach> {
        match self.owner() {
            Ok(owner) => Ok(Reach::Owner(owner)),
            Err(Error::NoOwner) => self.group().map(Reach::Group),
            Err(error) => Err(error),
        }
    }
}

impl OwnerScope for Owner {
    fn owner(&self) -> Result<Owner> {
        Ok(self.clone())
    }
}

impl OwnerScope for Reach {
    fn owner(&self) -> Result<Owner> {
        match self {
            Self::Owner(owner) => Ok(owner.clone()),
            Self::Group(_) => Err(Error::NoOwner),
        }
    }

    fn group(&self) -> Result<Key> {
        match self {
            Self::Owner(_) => Err(Error::NoOwner),
            Self::Group(key) => Ok(key.clone()),
        }
    }
}

impl<T: OwnerScope + ?Sized> OwnerScope for &T {
    fn owner(&self) -> Result<Owner> {
        T::owner(self)
    }

    fn group(&self) -> Result<Key> {
        T::group(self)
    }

    fn reach(&self) -> Result<Reach> {
        T::reach(self)
    }
}

impl<T: OwnerScope + ?Sized> OwnerScope for Arc<T> {
    fn owner(&self) -> Result<Owner> {
        T::owner(self)
    }

    fn group(&self) -> Result<Key> {
        T::group(self)
    }

    fn reach(&self) -> Result<Reach> {
        T::reach(self)
    }
}

#[cfg(any(feature = "_sqlite", feature = "postgres"))]
mod database {
    use sqlx::encode::IsNull;
    use sqlx::error::BoxDynError;
    use sqlx::{Database, Decode, Encode, Type, TypeInfo as _, ValueRef as _};
    use uuid::Uuid;

    use super::Key;

    impl<DB: Database> Type<DB> for Key
    where
        i64: Type<DB>,
    {
        fn type_info() -> DB::TypeInfo {
            <i64 as Type<DB>>::type_info()
        }

        fn compatible(_: &DB::TypeInfo) -> bool {
            true
        }
    }

    impl<'q, DB: Database> Encode<'q, DB> for Key
    where
        i64: Encode<'q, DB> + Type<DB>,
        Uuid: Encode<'q, DB> + Type<DB>,
        String: Encode<'q, DB> + Type<DB>,
    {
        fn encode_by_ref(&self, arguments: &mut DB::ArgumentBuffer) -> Result<IsNull, BoxDynError> {
            match self {
                Self::Integer(key) => key.encode_by_ref(arguments),
                Self::Uuid(key) => key.encode_by_ref(arguments),
                Self::Text(key) => key.encode_by_ref(arguments),
            }
        }

        fn produces(&self) -> Option<DB::TypeInfo> {
            Some(match self {
                Self::Integer(_) => <i64 as Type<DB>>::type_info(),
                Self::Uuid(_) => <Uuid as Type<DB>>::type_info(),
                Self::Text(_) => <String as Type<DB>>::type_info(),
            })
        }
    }

    #[cfg(feature = "_sqlite")]
    impl Decode<'_, sqlx::Sqlite> for Key {
        fn decode(value: sqlx::sqlite::SqliteValueRef<'_>) -> Result<Self, BoxDynError> {
            let kind = value.type_info().name().to_owned();
            match kind.as_str() {
                "INTEGER" => Ok(Self::Integer(<i64 as Decode<sqlx::Sqlite>>::decode(value)?)),
                "BLOB" => Ok(Self::Uuid(<Uuid as Decode<sqlx::Sqlite>>::decode(value)?)),
                "TEXT" => Ok(Self::Text(<String as Decode<sqlx::Sqlite>>::decode(value)?)),
                other => Err(format!("a key of the type {other}").into()),
            }
        }
    }

    #[cfg(feature = "postgres")]
    impl Decode<'_, sqlx::Postgres> for Key {
        fn decode(value: sqlx::postgres::PgValueRef<'_>) -> Result<Self, BoxDynError> {
            let kind = value.type_info().name().to_owned();
            match kind.as_str() {
                "INT2" => Ok(Self::Integer(<i16 as Decode<sqlx::Postgres>>::decode(value)?.into())),
                "INT4" => Ok(Self::Integer(<i32 as Decode<sqlx::Postgres>>::decode(value)?.into())),
                "INT8" => Ok(Self::Integer(<i64 as Decode<sqlx::Postgres>>::decode(value)?)),
                "UUID" => Ok(Self::Uuid(<Uuid as Decode<sqlx::Postgres>>::decode(value)?)),
                _ => Ok(Self::Text(<String as Decode<sqlx::Postgres>>::decode(value)?)),
            }
        }
    }
}
