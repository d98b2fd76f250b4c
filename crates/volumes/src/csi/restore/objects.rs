//! The restored objects of a snapshot: claim, VolumeSnapshot and VolumeSnapshotContent, each with a name of the restore.

use plimsoll_api::labels::RESTORE_MUST_INCLUDE_ADDITIONAL_ITEMS as MUST_INCLUDE;
use plimsoll_engine::restore::action::{ItemId, RestoreActionOutput};
use serde_json::{Value, json};

use crate::csi::{
    CLASSES, CONTENTS, DRIVER_NAME, GROUP, HANDLE, RESTORE_SIZE, SNAPSHOT_NAME, SNAPSHOTS, UPLOAD_NAME, VERSION,
    annotation, secret_annotations, set_metadata, text,
};

/// A claim without its references to a volume and to an earlier snapshot.
pub(super) fn without_source(mut item: Value) -> Value {
    if let Some(spec) = item.get_mut("spec").and_then(Value::as_object_mut) {
        for field in ["volumeName", "dataSource", "dataSourceRef"] {
            spec.remove(field);
        }
    }
    for map in ["labels", "annotations"] {
        if let Some(all) = item.pointer_mut(&format!("/metadata/{map}")).and_then(Value::as_object_mut) {
            all.remove(SNAPSHOT_NAME);
            all.remove(UPLOAD_NAME);
        }
    }
    item
}

/// A claim whose data source is a snapshot.
pub(super) fn from_snapshot(item: Value, from_backup: &Value, snapshot: &str, called: &str) -> RestoreActionOutput {
    let mut item = without_source(item);
    let source = json!({ "apiGroup": GROUP, "kind": "VolumeSnapshot", "name": called });
    item["spec"]["dataSource"] = source.clone();
    item["spec"]["dataSourceRef"] = source;
    set_metadata(&mut item, "annotations", MUST_INCLUDE, "true");
    let namespace = text(from_backup, "/metadata/namespace");
    RestoreActionOutput {
        item,
        additional: vec![ItemId::namespaced(SNAPSHOTS, namespace, snapshot)],
        ..RestoreActionOutput::default()
    }
}

/// A snapshot of a content that has the same name.
pub(super) fn snapshot(
    item: &Value,
    from_backup: &Value,
    called: &str,
    target: &str,
) -> Result<RestoreActionOutput, String> {
    let content = text(from_backup, "/status/boundVolumeSnapshotContentName");
    if content.is_empty() {
        return Err("it has no content: the driver had not taken it".to_owned());
    }
    let class = text(from_backup, "/spec/volumeSnapshotClassName");
    let mut made = json!({ "apiVersion": item["apiVersion"], "kind": item["kind"],
        "metadata": { "name": called, "namespace": item["metadata"]["namespace"],
            "annotations": { HANDLE: annotation(from_backup, HANDLE), DRIVER_NAME: annotation(from_backup, DRIVER_NAME),
                RESTORE_SIZE: annotation(from_backup, RESTORE_SIZE) } },
        "spec": { "source": { "volumeSnapshotContentName": called } } });
    let class = Some(class).filter(|class| !class.is_empty());
    if let Some(class) = class {
        made["spec"]["volumeSnapshotClassName"] = json!(class);
    }
    set_metadata(&mut made, "annotations", MUST_INCLUDE, "true");
    let class = class.map(|class| ItemId::cluster(CLASSES, class));
    let additional = class.into_iter().chain([ItemId::cluster(CONTENTS, content)]).collect();
    let operation = Some(format!("{target}/{called}"));
    Ok(RestoreActionOutput { item: made, additional, operation, ..RestoreActionOutput::default() })
}

/// A content with the handle of the driver. The snapshot is retained when its objects are deleted: the backup still needs it.
pub(super) fn content(
    item: &Value,
    from_backup: &Value,
    called: &str,
    target: &str,
) -> Result<RestoreActionOutput, String> {
    let handle = text(from_backup, "/status/snapshotHandle");
    if handle.is_empty() {
        return Err("it has no handle: the driver had not taken it".to_owned());
    }
    let mut made = json!({ "apiVersion": item["apiVersion"], "kind": item["kind"], 
        "metadata": { "name": called, "annotations": secret_annotations(from_backup) },
        "spec": { "deletionPolicy": "Retain", "driver": from_backup["spec"]["driver"],
            "source": { "snapshotHandle": handle },
            "volumeSnapshotRef": { "apiVersion": VERSION, "kind": "VolumeSnapshot", "name": called, "namespace": target } } });
    if let Some(class) = from_backup.pointer("/spec/volumeSnapshotClassName") {
        made["spec"]["volumeSnapshotClassName"] = class.clone();
    }
    Ok(RestoreActionOutput::of(made))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_snapshot_and_content_find_each_other_under_the_names_of_the_restore() {
        let claim = json!({ "metadata": { "namespace": "old", "name": "c", "annotations": { SNAPSHOT_NAME: "s" } },
            "spec": { "volumeName": "v" } });
        let output = from_snapshot(claim.clone(), &claim, "s", "called");
        assert_eq!(output.item["spec"]["dataSource"]["name"], "called");
        assert!(output.item["spec"].get("volumeName").is_none() && annotation(&output.item, SNAPSHOT_NAME).is_empty());
        assert_eq!(output.additional, [ItemId::namespaced(SNAPSHOTS, "old", "s")]);
        let from = json!({ "metadata": { "namespace": "old", "name": "s" }, "spec": { "volumeSnapshotClassName": "k" },
            "status": { "boundVolumeSnapshotContentName": "content" } });
        let output = snapshot(&from, &from, "called", "new").unwrap();
        assert_eq!(output.item["metadata"]["name"], "called");
        assert_eq!(output.operation.as_deref(), Some("new/called"));
        assert_eq!(output.additional, [ItemId::cluster(CLASSES, "k"), ItemId::cluster(CONTENTS, "content")]);
        let secret = json!({ "snapshot.storage.kubernetes.io/deletion-secret-name": "rbd" });
        let from = json!({ "metadata": { "name": "content", "annotations": secret }, "status": { "snapshotHandle": "h" },
            "spec": { "driver": "d", "deletionPolicy": "Delete", "volumeSnapshotRef": { "name": "s", "namespace": "old" } } });
        let output = content(&from, &from, "called", "new").unwrap();
        assert_eq!(output.item["metadata"]["annotations"], secret);
        let spec = &output.item["spec"];
        assert_eq!((&spec["deletionPolicy"], &spec["source"]), (&json!("Retain"), &json!({ "snapshotHandle": "h" })));
        assert_eq!(spec["volumeSnapshotRef"]["namespace"], "new");
        assert_eq!(
            (&output.item["metadata"]["name"], &spec["volumeSnapshotRef"]["name"]),
            (&json!("called"), &json!("called"))
        );
    }

    #[test]
    fn what_the_driver_had_not_taken_is_refused() {
        let none = json!({ "metadata": { "namespace": "old", "name": "s" }, "spec": {} });
        assert!(snapshot(&none, &none, "called", "new").unwrap_err().contains("no content"));
        assert!(content(&none, &none, "called", "new").unwrap_err().contains("no handle"));
    }
}
