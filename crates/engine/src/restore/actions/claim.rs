//! Claims: marks of the binding they had, and the volume they were bound to.

use serde_json::Value;

use super::super::action::{Adds, Identifier};
use super::{Said, remove_keys, text};

const VOLUMES: &str = "persistentvolumes";
pub(super) const ADDS: Adds = Adds::These(&[VOLUMES]);

const STALE: [&str; 7] = [
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
    "volume.kubernetes.io/selected-node",
    "velero.io/volume-snapshot-name",
    "velero.io/data-upload-name",
];

pub(super) fn act(item: &mut Value, from_backup: &Value) -> Said {
    remove_keys(item, "/metadata", "annotations", &STALE);
    // Whether it was bound stands in the status, which the item has lost.
    let volume = text(from_backup, "/spec/volumeName");
    let bound = text(from_backup, "/status/phase") == "Bound" && !volume.is_empty();
    let additional = bound.then(|| Identifier::cluster(VOLUMES, volume));
    Said { additional: additional.into_iter().collect(), skip: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn marks_of_the_old_binding_go_and_other_annotations_stay() {
        let mut annotations: serde_json::Map<String, Value> =
            STALE.map(|key| (key.to_owned(), json!("x"))).into_iter().collect();
        annotations.insert("mine".into(), json!("kept"));
        let mut claim = json!({"metadata": {"annotations": annotations}});
        act(&mut claim, &Value::Null);
        assert_eq!(claim, json!({"metadata": {"annotations": {"mine": "kept"}}}));
    }

    #[test]
    fn a_bound_claim_asks_for_its_volume() {
        let cases = [
            (json!({"spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}}), true),
            (json!({"spec": {"volumeName": "pv"}, "status": {"phase": "Lost"}}), false),
            (json!({"spec": {}, "status": {"phase": "Bound"}}), false),
        ];
        for (from_backup, asks) in cases {
            let said = act(&mut json!({}), &from_backup);
            let wanted: &[Identifier] = if asks { &[Identifier::cluster(VOLUMES, "pv")] } else { &[] };
            assert_eq!(said.additional, wanted, "{from_backup}");
        }
    }
}
