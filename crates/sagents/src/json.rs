//! JSON straight between text and types. Objects are read key by key, with the path of every error,
//! and written with the keys that this version does not know.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

use super::serializer::ReadError;

/// How many objects and arrays of a free-form value may contain each other. With the levels around
/// it, such a value stays below the 128 levels that `serde_json` reads.
pub(super) const MAX_DEPTH: usize = 100;

/// The place of a value. It is written out only for an error.
#[derive(Clone, Copy)]
pub(super) enum Path<'a> {
    Root(&'a str),
    Key(&'a Self, &'a str),
    Index(&'a Self, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(path) | Self::Key(Self::Root(""), path) => f.write_str(path),
            Self::Key(parent, key) => write!(f, "{parent}.{key}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// A type that is read from an object, an array or a string.
pub(super) trait FromJson: Sized {
    const EXPECTED: &'static str;

    fn from_object<'de, A: MapAccess<'de>>(fields: Fields<'_, A>) -> Result<Self, A::Error> {
        Err(fields.at.unexpected(Self::EXPECTED, "an object"))
    }

    fn from_list<'de, A: SeqAccess<'de>>(at: Reader<'_>, _items: A) -> Result<Self, A::Error> {
        Err(at.unexpected(Self::EXPECTED, "an array"))
    }

    fn from_text<E: de::Error>(at: Reader<'_>, _text: &str) -> Result<Self, E> {
        Err(at.unexpected(Self::EXPECTED, "a string"))
    }
}

impl FromJson for String {
    const EXPECTED: &'static str = "a string";

    fn from_text<E: de::Error>(_at: Reader<'_>, text: &str) -> Result<Self, E> {
        Ok(text.to_owned())
    }
}

impl<T: FromJson> FromJson for Vec<T> {
    const EXPECTED: &'static str = "an array";

    fn from_list<'de, A: SeqAccess<'de>>(at: Reader<'_>, mut items: A) -> Result<Self, A::Error> {
        let mut list = Self::new();
        loop {
            let at = at.index(list.len());
            match items.next_element_seed(at.typed())? {
                Some(item) => list.push(at.required(item)?),
                None => return Ok(list),
            }
        }
    }
}

/// Reads a text.
pub(super) fn from_slice<T: FromJson>(path: Path<'_>, bytes: &[u8]) -> Result<T, ReadError> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = read(path, &mut json);
    let value = value.map_err(|(error, damage)| damage.unwrap_or_else(|| invalid(path, error)))?;
    json.end().map_err(|error| invalid(path, error))?;
    Ok(value)
}

/// Reads a tree of values.
pub(super) fn from_value<T: FromJson>(path: Path<'_>, value: Value) -> Result<T, ReadError> {
    // As deep as a text may be.
    if !fits(&value, 127) {
        return Err(invalid(path, "recursion limit exceeded"));
    }
    let value = read(path, value);
    value.map_err(|(error, damage)| damage.unwrap_or_else(|| invalid(path, error)))
}

/// For implementations of `Deserialize`.
pub(super) fn deserialize<'de, T: FromJson, D: Deserializer<'de>>(name: &str, deserializer: D) -> Result<T, D::Error> {
    read(Path::Root(name), deserializer).map_err(|(error, _)| error)
}

fn read<'de, T: FromJson, D: Deserializer<'de>>(
    path: Path<'_>,
    deserializer: D,
) -> Result<T, (D::Error, Option<ReadError>)> {
    let damage = Cell::new(None);
    let at = Reader { path, damage: &damage };
    let value = at.typed().deserialize(deserializer);
    let value = value.and_then(|value| at.required(value));
    value.map_err(|error| (error, damage.take()))
}

fn invalid(path: Path<'_>, error: impl fmt::Display) -> ReadError {
    ReadError::damaged(&path.to_string(), format!("invalid JSON: {error}"))
}

/// Where the reader is, and where it puts an error with its path: an error of serde is only text.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    path: Path<'a>,
    damage: &'a Cell<Option<ReadError>>,
}

impl Reader<'_> {
    fn key<'a>(&'a self, key: &'a str) -> Reader<'a> {
        Reader { path: Path::Key(&self.path, key), damage: self.damage }
    }

    fn index(&self, index: usize) -> Reader<'_> {
        Reader { path: Path::Index(&self.path, index), damage: self.damage }
    }

    pub(super) fn damaged<E: de::Error>(self, reason: impl Into<String>) -> E {
        let damage = ReadError::damaged(&self.path.to_string(), reason);
        let error = E::custom(&damage);
        self.damage.set(Some(damage));
        error
    }

    pub(super) fn unexpected<E: de::Error>(self, expected: &str, found: &str) -> E {
        self.damaged(format!("expected {expected}, found {found}"))
    }

    fn required<T: FromJson, E: de::Error>(self, value: Option<T>) -> Result<T, E> {
        value.ok_or_else(|| self.unexpected(T::EXPECTED, "null"))
    }
}

impl<'a> Reader<'a> {
    fn typed<T>(self) -> Typed<'a, T> {
        Typed { at: self, kind: PhantomData }
    }
}

/// Reads a value of type `T`, or null.
struct Typed<'a, T> {
    at: Reader<'a>,
    kind: PhantomData<T>,
}

impl<'de, T: FromJson> DeserializeSeed<'de> for Typed<'_, T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: FromJson> Visitor<'de> for Typed<'_, T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Option<T>, E> {
        Err(self.at.unexpected(T::EXPECTED, "a boolean"))
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Option<T>, E> {
        Err(self.at.unexpected(T::EXPECTED, "a number"))
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Option<T>, E> {
        Err(self.at.unexpected(T::EXPECTED, "a number"))
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Option<T>, E> {
        Err(self.at.unexpected(T::EXPECTED, "a number"))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Option<T>, E> {
        T::from_text(self.at, text).map(Some)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Option<T>, A::Error> {
        T::from_list(self.at, items).map(Some)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Option<T>, A::Error> {
        let (at, rest) = (self.at, Map::new());
        T::from_object(Fields { at, map, rest }).map(Some)
    }
}

/// An object that is read key by key. After [`next_key`](Self::next_key), one of the other calls
/// reads the value. Unless they say otherwise, a null is the same as no value and stays in the rest,
/// so that it is written again.
pub(super) struct Fields<'a, A> {
    pub at: Reader<'a>,
    map: A,
    /// The keys that this version does not know.
    pub rest: Map<String, Value>,
}

impl<'de, A: MapAccess<'de>> Fields<'_, A> {
    pub(super) fn next_key(&mut self) -> Result<Option<Cow<'de, str>>, A::Error> {
        self.map.next_key_seed(Key)
    }

    /// Any value, also null.
    pub(super) fn value(&mut self) -> Result<Value, A::Error> {
        self.map.next_value()
    }

    /// A value that is not read.
    pub(super) fn skip(&mut self) -> Result<(), A::Error> {
        self.map.next_value::<de::IgnoredAny>().map(drop)
    }

    /// Keeps the value in the rest.
    pub(super) fn keep(&mut self, key: Cow<'de, str>) -> Result<(), A::Error> {
        let value = self.value()?;
        drop(self.rest.insert(key.into_owned(), value));
        Ok(())
    }

    /// A value, not null.
    pub(super) fn required<T: FromJson>(&mut self, key: &str) -> Result<Option<T>, A::Error> {
        let at = self.at.key(key);
        let value = self.map.next_value_seed(at.typed())?;
        at.required(value).map(Some)
    }

    pub(super) fn optional<T: FromJson>(&mut self, key: &str) -> Result<Option<T>, A::Error> {
        let value = self.map.next_value_seed(self.at.key(key).typed())?;
        if value.is_none() {
            drop(self.rest.insert(key.to_owned(), Value::Null));
        }
        Ok(value)
    }

    pub(super) fn bool(&mut self, key: &str) -> Result<bool, A::Error> {
        match self.present(key)? {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(value),
            Some(other) => Err(self.unexpected(key, "a boolean", &other)),
        }
    }

    pub(super) fn optional_object(&mut self, key: &str) -> Result<Option<Map<String, Value>>, A::Error> {
        match self.present(key)? {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(other) => Err(self.unexpected(key, "an object", &other)),
        }
    }

    /// An empty array stays in the rest, so that it is written again.
    pub(super) fn list<T: FromJson>(&mut self, key: &str) -> Result<Vec<T>, A::Error> {
        let Some(list) = self.optional::<Vec<T>>(key)? else {
            return Ok(Vec::new());
        };
        if list.is_empty() {
            drop(self.rest.insert(key.to_owned(), Value::Array(Vec::new())));
        }
        Ok(list)
    }

    /// The value of a key that has to be there.
    pub(super) fn found<T: FromJson>(&self, key: &str, value: Option<T>) -> Result<T, A::Error> {
        value.ok_or_else(|| self.at.key(key).unexpected(T::EXPECTED, "nothing"))
    }

    pub(super) fn unexpected(&self, key: &str, expected: &str, found: &Value) -> A::Error {
        self.at.key(key).unexpected(expected, kind(found))
    }

    fn present(&mut self, key: &str) -> Result<Option<Value>, A::Error> {
        let value = self.value()?;
        if value.is_null() {
            drop(self.rest.insert(key.to_owned(), Value::Null));
            return Ok(None);
        }
        Ok(Some(value))
    }
}

/// A key, which is copied only if it has escapes.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E: de::Error>(self, key: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(key))
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(key.to_owned()))
    }

    fn visit_string<E: de::Error>(self, key: String) -> Result<Self::Value, E> {
        Ok(Cow::Owned(key))
    }
}

/// What a value is, in words.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// An object that is written key by key. The keys that this version does not know come last.
pub(super) struct Object<'a, M> {
    map: M,
    extra: &'a Map<String, Value>,
    /// Filled only if there is something in `extra`.
    written: Vec<&'static str>,
}

impl<'a, M: SerializeMap> Object<'a, M> {
    pub(super) fn new<S>(serializer: S, extra: &'a Map<String, Value>) -> Result<Self, M::Error>
    where
        S: Serializer<SerializeMap = M, Error = M::Error>,
    {
        Ok(Self { map: serializer.serialize_map(None)?, extra, written: Vec::new() })
    }

    pub(super) fn set(&mut self, key: &'static str, value: &(impl Serialize + ?Sized)) -> Result<(), M::Error> {
        if !self.extra.is_empty() {
            self.written.push(key);
        }
        self.map.serialize_entry(key, value)
    }

    /// Leaves the key out if there is no value.
    pub(super) fn set_some(&mut self, key: &'static str, value: Option<&impl Serialize>) -> Result<(), M::Error> {
        match value {
            Some(value) => self.set(key, value),
            None => Ok(()),
        }
    }

    /// Leaves the key out if the list is empty.
    pub(super) fn set_list(&mut self, key: &'static str, items: &[impl Serialize]) -> Result<(), M::Error> {
        match items {
            [] => Ok(()),
            items => self.set(key, items),
        }
    }

    pub(super) fn end(mut self) -> Result<M::Ok, M::Error> {
        for (key, value) in self.extra {
            if !self.written.contains(&key.as_str()) {
                self.map.serialize_entry(key, value)?;
            }
        }
        self.map.end()
    }
}

/// The path of a value, if it is nested deeper than [`MAX_DEPTH`].
pub(super) fn too_deep(path: Path<'_>, value: &Value) -> Option<String> {
    (!fits(value, MAX_DEPTH)).then(|| path.to_string())
}

/// The path of the first value in an object that is nested deeper than [`MAX_DEPTH`].
pub(super) fn too_deep_in(path: Path<'_>, map: &Map<String, Value>) -> Option<String> {
    map.iter().find_map(|(key, value)| too_deep(Path::Key(&path, key), value))
}

/// The path that `find` returns for the first item with one.
pub(super) fn too_deep_item<'a, T: 'a>(
    path: Path<'_>,
    items: impl IntoIterator<Item = &'a T>,
    find: impl Fn(&T, Path<'_>) -> Option<String>,
) -> Option<String> {
    let mut items = items.into_iter().enumerate();
    items.find_map(|(index, item)| find(item, Path::Index(&path, index)))
}

/// Whether at most `depth` arrays and objects contain each other. It recurses no deeper than that.
fn fits(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => depth > 0 && items.iter().all(|item| fits(item, depth - 1)),
        Value::Object(map) => depth > 0 && map.values().all(|item| fits(item, depth - 1)),
        _ => true,
    }
}
