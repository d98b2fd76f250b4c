//! PersistentVolumeClaims: removes annotations of the old binding and adds the volume.

use serde_json::Value;

use super::super::action::{AdditionalResources, ItemId};
use super::{ActionEffect, remove_keys, text};

const VOLUMES: &str = "persistentvolumes";
pub(super) const ADDS: AdditionalResources = AdditionalResources::Only(&[VOLUMES]);

const BINDING_ANNOTATIONS: [&str; 7] = [
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
    "volume.kubernetes.io/selected-node",
    "velero.io/volume-snapshot-name",
    "velero.io/data-upload-name",
];

pub(super) fn apply(item: &mut Value, from_backup: &Value) -> ActionEffect {
    remove_keys(item, "/metadata", "annotations", &BINDING_ANNOTATIONS);
    // The status says whether it was bound; the item has no status any more.
    let volume = text(from_backup, "/spec/volumeName");
    let bound = text(from_backup, "/status/phase") == "Bound" && !volume.is_empty();
    let additional = bound.then(|| ItemId::cluster(VOLUMES, volume));
    ActionEffect { additional: additional.into_iter().collect(), skip: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn annotations_of_the_old_binding_are_removed() {
        let mut annotations: serde_json::Map<String, Value> =
            BINDING_ANNOTATIONS.map(|key| (key.to_owned(), json!("x"))).into_iter().collect();
        annotations.insert("mine".into(), json!("kept"));
        let mut claim = json!({"metadata": {"annotations": annotations}});
        apply(&mut claim, &Value::Null);
        assert_eq!(claim, json!({"metadata": {"annotations": {"mine": "kept"}}}));
    }

    #[test]
    fn a_bound_claim_adds_its_volume() {
        let cases = [
            (json!({"spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}}), true),
            (json!({"spec": {"volumeName": "pv"}, "status": {"phase": "Lost"}}), false),
            (json!({"spec": {}, "status": {"phase": "Bound"}}), false),
        ];
        for (from_backup, adds_volume) in cases {
            let effect = apply(&mut json!({}), &from_backup);
            let wanted: &[ItemId] = if adds_volume { &[ItemId::cluster(VOLUMES, "pv")] } else { &[] };
            assert_eq!(effect.additional, wanted, "{from_backup}");
        }
    }
}
