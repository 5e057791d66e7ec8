//! Values that belong to the process and are never stored.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// At most one value of each type: a client, a channel, a cache. Clones share the values.
///
/// In a session, [`change_extensions`](super::session::AgentSession::change_extensions) changes them
/// without a save.
#[derive(Clone, Default)]
pub struct Extensions {
    values: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
}

impl Extensions {
    /// Replaces the value of the same type.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        drop(self.values.insert(TypeId::of::<T>(), Arc::new(value)));
    }

    /// The value of type `T`, if one was inserted.
    #[must_use]
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.values.get(&TypeId::of::<T>())?.downcast_ref()
    }

    /// Removes the value of type `T`. Clones keep theirs.
    pub fn remove<T: Send + Sync + 'static>(&mut self) {
        drop(self.values.remove(&TypeId::of::<T>()));
    }

    /// Adds the values of `other`, which replace those of the same type.
    pub fn extend(&mut self, other: Self) {
        self.values.extend(other.values);
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extensions").field("values", &self.values.len()).finish()
    }
}
