//! RoleBindings and ClusterRoleBindings: namespaces of subjects are mapped.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{ActionEffect, list_at, text};

pub(super) fn apply(item: &mut Value, mapping: &BTreeMap<String, String>) -> ActionEffect {
    for subject in list_at(item, "/subjects") {
        if let Some(target) = mapping.get(text(subject, "/namespace")) {
            subject["namespace"] = json!(target);
        }
    }
    ActionEffect::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_of_subjects_are_mapped() {
        let mapping = BTreeMap::from([("old".to_owned(), "new".to_owned())]);
        let mut binding = json!({"subjects": [
            {"kind": "ServiceAccount", "name": "a", "namespace": "old"},
            {"kind": "ServiceAccount", "name": "b", "namespace": "other"}, {"kind": "User", "name": "c"}]});
        apply(&mut binding, &mapping);
        assert_eq!(binding["subjects"][0]["namespace"], "new");
        assert_eq!(binding["subjects"][1]["namespace"], "other");
        assert_eq!(binding["subjects"][2], json!({"kind": "User", "name": "c"}));
    }
}
