//! Values that live with the process and are never stored.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// One value of each type: a client, a channel, a cache. Clones share the values.
#[derive(Clone, Default)]
pub struct Runtime {
    values: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
}

impl Runtime {
    /// Puts a value in the place of its type.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.values.insert(TypeId::of::<T>(), Arc::new(value));
    }

    /// The value of a type, if there is one.
    #[must_use]
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.values.get(&TypeId::of::<T>())?.downcast_ref()
    }

    /// Takes the value of a type out.
    pub fn remove<T: Send + Sync + 'static>(&mut self) {
        self.values.remove(&TypeId::of::<T>());
    }

    /// Takes the values of another one; where both have a type, the other's wins.
    pub fn extend(&mut self, other: Self) {
        self.values.extend(other.values);
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("values", &self.values.len())
            .finish()
    }
}
