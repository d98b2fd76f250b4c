//! Objects as the bytes that the API server sent: the type of an item of a list, and the metadata that filters need.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;

use super::Resource;

/// Adds apiVersion and kind to an item of a LIST, as in a GET.
///
/// API servers write the type first and leave it out of the items of built-in kinds, so the first key decides.
pub fn add_type_meta(item: &Bytes, resource: &Resource) -> Bytes {
    let typed = item.starts_with(b"{\"apiVersion\"") || item.starts_with(b"{\"kind\"");
    let Some(body) = item.strip_prefix(b"{").filter(|_| !typed) else { return item.clone() };
    let head = format!("{{\"apiVersion\":\"{}\",\"kind\":\"{}\",", resource.api_version(), resource.kind);
    Bytes::from([head.as_bytes(), body].concat())
}

/// The metadata that filters need, read without parsing the rest.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ItemMeta {
    /// Name.
    pub name: String,
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: Option<String>,
    /// Labels.
    pub labels: Option<BTreeMap<String, String>>,
    /// Set while the object is being deleted.
    pub deletion_timestamp: Option<String>,
}

impl ItemMeta {
    /// Reads it from an object's JSON.
    pub fn of(object: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Object {
            #[serde(default)]
            metadata: ItemMeta,
        }
        serde_json::from_slice::<Object>(object).map(|object| object.metadata)
    }

    /// `namespace/name`, or the name alone.
    pub fn path(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::resource::pods;
    use super::*;

    #[test]
    fn an_item_of_a_built_in_list_gets_apiversion_and_kind() {
        let item = Bytes::from_static(br#"{"metadata":{"name":"a"},"spec":{"x":1.0}}"#);
        assert_eq!(
            add_type_meta(&item, &pods()),
            Bytes::from_static(br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"x":1.0}}"#)
        );
    }

    #[test]
    fn an_item_with_apiversion_and_kind_is_unchanged() {
        let item = Bytes::from_static(br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#);
        assert_eq!(add_type_meta(&item, &pods()), item);
    }
}
