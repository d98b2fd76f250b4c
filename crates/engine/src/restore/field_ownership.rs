//! Field ownership: restores the `managedFields` of the backup.
//!
//! The API server ignores `managedFields` in a create, and makes the `fieldManager` of the request the owner of all fields. So
//! a single manager with operation Update is named in the create. Several managers, or one with operation Apply, need a second
//! request.

use serde_json::{Value, json};

/// Our field manager, for objects without another one.
pub(super) const FIELD_MANAGER: &str = "plimsoll";
/// Limit of the API server.
const MAX_MANAGER_LENGTH: usize = 128;

/// How field ownership is restored.
#[derive(Debug, PartialEq)]
pub(super) struct FieldOwnership {
    /// The manager named in the create.
    pub(super) manager: String,
    /// The entries that a second request writes, if the create cannot set them.
    pub(super) entries: Option<Value>,
}

impl FieldOwnership {
    /// Removes the entries from an object that is about to be created.
    pub(super) fn remove_from(object: &mut Value) -> Self {
        let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
        let entries = metadata.and_then(|metadata| metadata.remove("managedFields"));
        let own_manager = |entries| Self { manager: FIELD_MANAGER.to_owned(), entries };
        let Some(Value::Array(entries)) = entries else { return own_manager(None) };
        let mut owners = entries.iter().filter(|entry| entry.get("subresource").is_none_or(|s| s == ""));
        match (owners.next(), owners.next()) {
            (None, _) => own_manager(None),
            (Some(one), None) if is_update(one) => {
                let name = one["manager"].as_str().unwrap_or(FIELD_MANAGER).to_owned();
                Self { manager: name, entries: None }
            }
            _ => own_manager(Some(Value::Array(entries))),
        }
    }

    /// The patch that restores the entries after the create, if it is needed.
    pub(super) fn patch(&self) -> Option<Value> {
        self.entries.as_ref().map(|entries| json!({ "metadata": { "managedFields": entries } }))
    }
}

fn is_update(entry: &Value) -> bool {
    let name = entry["manager"].as_str().unwrap_or_default();
    let is_valid_name = !name.is_empty() && name.len() <= MAX_MANAGER_LENGTH && name.chars().all(|c| !c.is_control());
    entry["operation"] == "Update" && is_valid_name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(entries: &Value) -> FieldOwnership {
        let mut object = json!({"metadata": {"name": "x", "managedFields": entries}});
        let ownership = FieldOwnership::remove_from(&mut object);
        assert_eq!(object, json!({"metadata": {"name": "x"}}));
        ownership
    }

    #[test]
    fn a_single_manager_with_update_is_named_in_the_create() {
        let status = json!({"manager": "kubelet", "operation": "Update", "subresource": "status"});
        let entries = json!([{"manager": "helm", "operation": "Update"}, status]);
        assert_eq!(taken(&entries), FieldOwnership { manager: "helm".into(), entries: None });
    }

    #[test]
    fn apply_or_several_managers_need_a_patch() {
        let applied = json!([{"manager": "kubectl", "operation": "Apply"}]);
        let several = json!([{"manager": "a", "operation": "Update"}, {"manager": "b", "operation": "Update"}]);
        for entries in [applied, several] {
            let ownership = taken(&entries);
            assert_eq!(ownership.manager, FIELD_MANAGER);
            assert_eq!(ownership.patch(), Some(json!({"metadata": {"managedFields": entries}})));
        }
    }

    #[test]
    fn objects_without_managers_get_our_field_manager() {
        let ours = FieldOwnership { manager: FIELD_MANAGER.into(), entries: None };
        assert_eq!(taken(&json!([])), ours);
        assert_eq!(taken(&json!([{"manager": "kubelet", "operation": "Update", "subresource": "status"}])), ours);
        assert_eq!(FieldOwnership::remove_from(&mut json!({"metadata": {}})), ours);
    }
}
