//! Enums that are stored as text, in both databases.

/// Lets a column of a row decode as an enum, by the name that serde gives it, and binds it as `$as_stored` says.
macro_rules! text_column {
    ($($name:ident: $as_stored:ident,)+) => {$(
        const _: () = {
            use serde::Deserialize as _;
            use serde::de::IntoDeserializer as _;
            use sqlx::encode::IsNull;
            use sqlx::error::BoxDynError;
            use sqlx::{Decode, Encode, Type};

            fn parse(text: &str) -> Result<$name, BoxDynError> {
                let name: serde::de::value::StrDeserializer<'_, serde::de::value::Error> = text.into_deserializer();
                Ok($name::deserialize(name)?)
            }

            #[cfg(feature = "_sqlite")]
            impl Type<sqlx::Sqlite> for $name {
                fn type_info() -> sqlx::sqlite::SqliteTypeInfo {
                    <str as Type<sqlx::Sqlite>>::type_info()
                }
            }

            #[cfg(feature = "_sqlite")]
            impl Encode<'_, sqlx::Sqlite> for $name {
                fn encode_by_ref(&self, arguments: &mut sqlx::sqlite::SqliteArgumentsBuffer) -> Result<IsNull, BoxDynError> {
                    Encode::<sqlx::Sqlite>::encode(self.$as_stored(), arguments)
                }
            }

            #[cfg(feature = "_sqlite")]
            impl Decode<'_, sqlx::Sqlite> for $name {
                fn decode(value: sqlx::sqlite::SqliteValueRef<'_>) -> Result<Self, BoxDynError> {
                    parse(<&str as Decode<sqlx::Sqlite>>::decode(value)?)
                }
            }

            #[cfg(feature = "postgres")]
            impl Type<sqlx::Postgres> for $name {
                fn type_info() -> sqlx::postgres::PgTypeInfo {
                    <str as Type<sqlx::Postgres>>::type_info()
                }

                fn compatible(column: &sqlx::postgres::PgTypeInfo) -> bool {
                    <str as Type<sqlx::Postgres>>::compatible(column)
                }
            }

            #[cfg(feature = "postgres")]
            impl Encode<'_, sqlx::Postgres> for $name {
                fn encode_by_ref(&self, buffer: &mut sqlx::postgres::PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
                    Encode::<sqlx::Postgres>::encode(self.$as_stored(), buffer)
                }
            }

            #[cfg(feature = "postgres")]
            impl Decode<'_, sqlx::Postgres> for $name {
                fn decode(value: sqlx::postgres::PgValueRef<'_>) -> Result<Self, BoxDynError> {
                    parse(<&str as Decode<sqlx::Postgres>>::decode(value)?)
                }
            }
        };
    )+};
}

use crate::{ContentType, Delivery, Role, RunStatus, ToolStatus};

text_column! {
    ContentType: as_str,
    Delivery: as_stored,
    Role: as_str,
    RunStatus: as_str,
    ToolStatus: as_str,
}
