//! Who owns the fields of an object: what was known of it at backup time is known again afterwards.
//!
//! The API server ignores `managedFields` in a create, and makes the `fieldManager` of the request the owner of everything in it.
//! So one manager that only ever updated is named in the create itself. Several of them, or one that applied, cost a second
//! request.

use serde_json::{Value, json};

/// The name under which we own what nobody else does.
pub(super) const OURSELVES: &str = "plimsoll";
/// The API server takes no longer names.
const LONGEST_NAME: usize = 128;

/// How ownership is given back.
#[derive(Debug, PartialEq)]
pub(super) struct Ownership {
    /// The manager named in the create.
    pub(super) manager: String,
    /// What is written afterwards, where the create cannot say it.
    pub(super) entries: Option<Value>,
}

impl Ownership {
    /// Takes the entries off an object that is about to be created.
    pub(super) fn take(object: &mut Value) -> Self {
        let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
        let entries = metadata.and_then(|metadata| metadata.remove("managedFields"));
        let ourselves = |entries| Self { manager: OURSELVES.to_owned(), entries };
        let Some(Value::Array(entries)) = entries else { return ourselves(None) };
        let mut owners = entries.iter().filter(|entry| entry.get("subresource").is_none_or(|s| s == ""));
        match (owners.next(), owners.next()) {
            (None, _) => ourselves(None),
            (Some(one), None) if is_update(one) => {
                let name = one["manager"].as_str().unwrap_or(OURSELVES).to_owned();
                Self { manager: name, entries: None }
            }
            _ => ourselves(Some(Value::Array(entries))),
        }
    }

    /// The patch that gives the created object its owners, if it needs one.
    pub(super) fn patch(&self) -> Option<Value> {
        self.entries.as_ref().map(|entries| json!({ "metadata": { "managedFields": entries } }))
    }
}

fn is_update(entry: &Value) -> bool {
    let name = entry["manager"].as_str().unwrap_or_default();
    let nameable = !name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(|c| !c.is_control());
    entry["operation"] == "Update" && nameable
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(entries: &Value) -> Ownership {
        let mut object = json!({"metadata": {"name": "x", "managedFields": entries}});
        let ownership = Ownership::take(&mut object);
        assert_eq!(object, json!({"metadata": {"name": "x"}}));
        ownership
    }

    #[test]
    fn one_manager_that_only_updated_is_named_in_the_create() {
        let status = json!({"manager": "kubelet", "operation": "Update", "subresource": "status"});
        let entries = json!([{"manager": "helm", "operation": "Update"}, status]);
        assert_eq!(taken(&entries), Ownership { manager: "helm".into(), entries: None });
    }

    #[test]
    fn one_that_applied_or_several_are_written_afterwards() {
        let applied = json!([{"manager": "kubectl", "operation": "Apply"}]);
        let several = json!([{"manager": "a", "operation": "Update"}, {"manager": "b", "operation": "Update"}]);
        for entries in [applied, several] {
            let ownership = taken(&entries);
            assert_eq!(ownership.manager, OURSELVES);
            assert_eq!(ownership.patch(), Some(json!({"metadata": {"managedFields": entries}})));
        }
    }

    #[test]
    fn what_nobody_owned_becomes_ours() {
        let ours = Ownership { manager: OURSELVES.into(), entries: None };
        assert_eq!(taken(&json!([])), ours);
        assert_eq!(taken(&json!([{"manager": "kubelet", "operation": "Update", "subresource": "status"}])), ours);
        assert_eq!(Ownership::take(&mut json!({"metadata": {}})), ours);
    }
}
