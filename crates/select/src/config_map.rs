//! What the YAML documents in ConfigMaps have in common. The errors are causes: the caller says which document it is.

use std::collections::BTreeMap;

/// The document of a ConfigMap, which must have exactly one key.
pub(crate) fn single_document(data: &BTreeMap<String, String>) -> Result<&str, String> {
    match data.values().collect::<Vec<_>>().as_slice() {
        [text] => Ok(text),
        keys => Err(format!("the ConfigMap must have exactly one key, found {}", keys.len())),
    }
}

/// Rejects documents of another version than `v1`.
pub(crate) fn require_version_1(version: &str) -> Result<(), String> {
    if version == "v1" { Ok(()) } else { Err(format!("unsupported version {version:?}, expected \"v1\"")) }
}
