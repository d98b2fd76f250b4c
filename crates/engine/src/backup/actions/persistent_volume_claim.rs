//! PersistentVolumeClaims: removes labels of earlier restores and adds the volume.

use futures::FutureExt;
use futures::future::BoxFuture;
use plimsoll_api::labels;
use serde_json::{Map, Value};

use super::{BackupActionOutput, BackupItemAction, ItemId};
use crate::Error;

/// Velero calls this action `velero.io/pv`.
pub(super) struct PersistentVolumeClaimAction;

impl BackupItemAction for PersistentVolumeClaimAction {
    fn execute<'a>(&'a self, item: &'a Value, backup: &'a Value) -> BoxFuture<'a, Result<BackupActionOutput, Error>> {
        let name = backup.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        futures::future::ready(Ok(clean_claim(item, name))).boxed()
    }
}

fn clean_claim(claim: &Value, backup: &str) -> BackupActionOutput {
    let volume = claim.pointer("/spec/volumeName").and_then(Value::as_str).unwrap_or_default();
    if volume.is_empty() || claim.pointer("/status/phase").and_then(Value::as_str) != Some("Bound") {
        return BackupActionOutput::default();
    }
    let mut cleaned = claim.clone();
    if let Some(spec) = cleaned.get_mut("spec").and_then(Value::as_object_mut) {
        clean_spec(spec);
    }
    if let Some(all) = cleaned.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        drop_stale_labels(all, backup);
    }
    let item = (cleaned != *claim).then_some(cleaned);
    BackupActionOutput {
        item,
        additional: vec![ItemId::new("persistentvolumes", None, volume)],
        ..BackupActionOutput::default()
    }
}

/// A restored claim gets a volume of its own, not a copy of its data source. Without a storage class the selector finds the
/// volume, so it stays.
fn clean_spec(spec: &mut Map<String, Value>) {
    spec.remove("dataSource");
    spec.remove("dataSourceRef");
    if spec.get("storageClassName").and_then(Value::as_str) != Some("") {
        spec.remove("selector");
    }
    if let Some(matched) =
        spec.get_mut("selector").and_then(|s| s.get_mut("matchLabels")).and_then(Value::as_object_mut)
    {
        matched.retain(|key, _| !key.starts_with("velero.io/"));
    }
}

fn drop_stale_labels(all: &mut Map<String, Value>, backup: &str) {
    let another = |value: &Value| value.as_str() != Some(backup);
    all.retain(|key, value| match key.as_str() {
        labels::RESTORE_NAME | "velero.io/volume-snapshot-name" => false,
        labels::BACKUP_NAME => !another(value),
        _ => true,
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_bound_claim_adds_its_volume() {
        let bound = json!({"spec": {"volumeName": "pv-1"}, "status": {"phase": "Bound"}});
        let volume = ItemId::new("persistentvolumes", None, "pv-1");
        assert_eq!(
            clean_claim(&bound, "b"),
            BackupActionOutput { additional: vec![volume], ..BackupActionOutput::default() }
        );
        let pending = json!({"spec": {"volumeName": "pv-1", "dataSource": {}}, "status": {"phase": "Pending"}});
        assert_eq!(clean_claim(&pending, "b"), BackupActionOutput::default());
    }

    #[test]
    fn labels_of_an_earlier_restore_are_removed() {
        let claim = json!({
            "metadata": {"labels": {"velero.io/restore-name": "r", "velero.io/backup-name": "old", "app": "x"}},
            "spec": {"volumeName": "pv", "dataSource": {"name": "s"}, "dataSourceRef": {"name": "s"}, "selector": {}},
            "status": {"phase": "Bound"},
        });
        let expected =
            json!({"metadata": {"labels": {"app": "x"}}, "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}});
        assert_eq!(clean_claim(&claim, "b").item, Some(expected));
    }

    #[test]
    fn the_label_of_this_backup_stays() {
        let mut all = json!({"velero.io/backup-name": "b"}).as_object().cloned().unwrap();
        drop_stale_labels(&mut all, "b");
        assert_eq!(all.len(), 1);
    }

    #[test]
    fn without_a_storage_class_the_selector_stays() {
        let claim = json!({
            "spec": {"volumeName": "pv", "storageClassName": "", "selector": {"matchLabels": {"a": "b", "velero.io/x": "y"}}},
            "status": {"phase": "Bound"},
        });
        let item = clean_claim(&claim, "b").item.unwrap();
        assert_eq!(item["spec"]["selector"], json!({"matchLabels": {"a": "b"}}));
    }
}
