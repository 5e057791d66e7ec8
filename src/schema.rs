//! The tables, as the library describes them, and what the generator remembers of their owners.

pub mod transition;

pub use sagents::schema::*;

use crate::database::Dialect as _;
use crate::names::TablePrefix;

/// The tables of a context.
pub fn schema(prefix: &TablePrefix, owner: &OwnerColumn, has_group: bool) -> Schema {
    Schema::new(prefix.as_str(), owner, has_group)
}

/// Whether two keys are the same, with the default schema or without.
pub fn is_same_key(one: &OwnerKey, other: &OwnerKey) -> bool {
    let place = |key: &OwnerKey| {
        let default = Database::Postgres.default_schema();
        (key.schema.clone().filter(|schema| Some(schema.as_str()) != default), key.table.clone(), key.column.clone())
    };
    place(one) == place(other)
}

/// Whose rows are in the tables.
pub trait Ownership {
    /// The table that the owner's foreign key references, or referenced last.
    fn owner_table(&self) -> Option<OwnerKey>;

    fn foreign_key_to_owner(&self) -> Option<&ForeignKey>;

    /// The columns of former owners, the last one first, with whose keys they hold.
    fn former_owners(&self) -> impl Iterator<Item = (&Column, &OwnerIds)>;

    /// Whether conversations have no owner.
    fn has_no_owner(&self) -> bool;
}

impl Ownership for Schema {
    fn owner_table(&self) -> Option<OwnerKey> {
        let owner = self.owner()?;
        let referenced = self.foreign_key_to_owner().and_then(|key| {
            let [column] = key.references.as_slice() else { return None };
            Some(OwnerKey { schema: key.schema.clone(), table: key.table.clone(), column: column.clone() })
        });
        referenced.or_else(|| owner.holds.as_ref().and_then(|ids| ids.table.clone()))
    }

    fn foreign_key_to_owner(&self) -> Option<&ForeignKey> {
        let owner = self.owner()?;
        self.tables.first()?.foreign_keys.iter().find(|key| key.columns == [owner.name.as_str()])
    }

    fn former_owners(&self) -> impl Iterator<Item = (&Column, &OwnerIds)> {
        let conversations = self.tables.first().into_iter().flat_map(|table| &table.columns);
        conversations.filter(|column| column.retired).filter_map(|column| Some((column, column.holds.as_ref()?)))
    }

    fn has_no_owner(&self) -> bool {
        self.owner().is_some_and(|owner| is_nobody(&owner.name))
    }
}

/// Whether a column is that of tables without owners.
pub fn is_nobody(column: &str) -> bool {
    column == OwnerColumn::none().name
}
