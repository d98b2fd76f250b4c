//! Role bindings, in a namespace and without: subjects move with the namespaces.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Said, list_at, text};

pub(super) fn act(item: &mut Value, mapping: &BTreeMap<String, String>) -> Said {
    for subject in list_at(item, "/subjects") {
        if let Some(target) = mapping.get(text(subject, "/namespace")) {
            subject["namespace"] = json!(target);
        }
    }
    Said::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_of_mapped_namespaces_move_and_others_stay() {
        let mapping = BTreeMap::from([("old".to_owned(), "new".to_owned())]);
        let mut binding = json!({"subjects": [
            {"kind": "ServiceAccount", "name": "a", "namespace": "old"},
            {"kind": "ServiceAccount", "name": "b", "namespace": "other"}, {"kind": "User", "name": "c"}]});
        act(&mut binding, &mapping);
        assert_eq!(binding["subjects"][0]["namespace"], "new");
        assert_eq!(binding["subjects"][1]["namespace"], "other");
        assert_eq!(binding["subjects"][2], json!({"kind": "User", "name": "c"}));
    }
}
