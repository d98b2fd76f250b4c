//! A bound claim: free of what an earlier restore left on it, and with its volume.

use futures::FutureExt;
use futures::future::BoxFuture;
use plimsoll_api::labels;
use serde_json::{Map, Value};

use super::{Answer, BackupItemAction, ItemId};
use crate::Error;

/// Named `velero.io/pv` by those who made it known.
pub(super) struct BoundClaim;

impl BackupItemAction for BoundClaim {
    fn execute<'a>(&'a self, item: &'a Value, backup: &'a Value) -> BoxFuture<'a, Result<Answer, Error>> {
        let name = backup.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        futures::future::ready(Ok(look_at(item, name))).boxed()
    }
}

fn look_at(claim: &Value, backup: &str) -> Answer {
    let volume = claim.pointer("/spec/volumeName").and_then(Value::as_str).unwrap_or_default();
    if volume.is_empty() || claim.pointer("/status/phase").and_then(Value::as_str) != Some("Bound") {
        return Answer::default();
    }
    let mut cleaned = claim.clone();
    if let Some(spec) = cleaned.get_mut("spec").and_then(Value::as_object_mut) {
        clean_spec(spec);
    }
    if let Some(all) = cleaned.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        drop_stale_labels(all, backup);
    }
    let item = (cleaned != *claim).then_some(cleaned);
    Answer { item, additional: vec![ItemId::new("persistentvolumes", None, volume)], ..Answer::default() }
}

/// A claim that is restored gets a volume of its own, not a copy of what it was once made from. Without a storage class
/// nothing is provisioned, so there the selector is what finds a volume.
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
    fn a_bound_claim_brings_its_volume_and_an_unbound_one_nothing() {
        let bound = json!({"spec": {"volumeName": "pv-1"}, "status": {"phase": "Bound"}});
        let volume = ItemId::new("persistentvolumes", None, "pv-1");
        assert_eq!(look_at(&bound, "b"), Answer { additional: vec![volume], ..Answer::default() });
        let pending = json!({"spec": {"volumeName": "pv-1", "dataSource": {}}, "status": {"phase": "Pending"}});
        assert_eq!(look_at(&pending, "b"), Answer::default());
    }

    #[test]
    fn what_an_earlier_restore_left_on_a_claim_goes() {
        let claim = json!({
            "metadata": {"labels": {"velero.io/restore-name": "r", "velero.io/backup-name": "old", "app": "x"}},
            "spec": {"volumeName": "pv", "dataSource": {"name": "s"}, "dataSourceRef": {"name": "s"}, "selector": {}},
            "status": {"phase": "Bound"},
        });
        let expected =
            json!({"metadata": {"labels": {"app": "x"}}, "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}});
        assert_eq!(look_at(&claim, "b").item, Some(expected));
    }

    #[test]
    fn this_backups_own_label_stays() {
        let mut all = json!({"velero.io/backup-name": "b"}).as_object().cloned().unwrap();
        drop_stale_labels(&mut all, "b");
        assert_eq!(all.len(), 1);
    }

    #[test]
    fn without_a_storage_class_the_selector_stays_but_for_stale_labels() {
        let claim = json!({
            "spec": {"volumeName": "pv", "storageClassName": "", "selector": {"matchLabels": {"a": "b", "velero.io/x": "y"}}},
            "status": {"phase": "Bound"},
        });
        let item = look_at(&claim, "b").item.unwrap();
        assert_eq!(item["spec"]["selector"], json!({"matchLabels": {"a": "b"}}));
    }
}
