//! How JSON written by Go is read, and how ours is written so that Go reads the same.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Fields an object carries that its type does not declare.
pub type Extra = BTreeMap<String, Value>;

/// Whether a field would be left out by Go's `omitempty`.
pub trait Absent {
    /// True when nothing is there to write.
    fn is_absent(&self) -> bool;
}

impl<T> Absent for Option<T> {
    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

impl<T> Absent for Vec<T> {
    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

impl<K, V> Absent for BTreeMap<K, V> {
    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

pub(crate) fn is_absent<T: Absent>(field: &T) -> bool {
    field.is_absent()
}

/// Reads `null` as the empty value: Go writes it for every nil slice, map and pointer that lacks `omitempty`.
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Collects the undeclared fields of a kind whose fields sit at the top level (Blueprint, Profile). `apiVersion` and `kind`
/// are there too and belong to the object: kept here, they would be written twice.
pub(crate) fn undeclared_at_top<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Extra, D::Error> {
    let mut extra = Extra::deserialize(deserializer)?;
    extra.remove("apiVersion");
    extra.remove("kind");
    Ok(extra)
}
