//! Serde helpers for JSON that Go programs write and read.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Unknown fields of an object.
pub type Extra = BTreeMap<String, Value>;

/// Go's `omitempty`.
pub trait Absent {
    /// Whether the field is omitted from JSON.
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

/// Deserializes `null` as the empty value: Go writes it for a nil slice, map or pointer without `omitempty`.
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// The unknown fields of a kind without a spec (Blueprint, Profile). `apiVersion` and `kind` belong to the object: kept here,
/// they would be written twice.
pub(crate) fn unknown_top_level_fields<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Extra, D::Error> {
    let mut extra = Extra::deserialize(deserializer)?;
    extra.remove("apiVersion");
    extra.remove("kind");
    Ok(extra)
}
