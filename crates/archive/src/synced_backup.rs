//! From the files of a backup to its custom resources in another cluster: foreign input, of which nothing is run.

use std::collections::BTreeMap;

use jiff::Timestamp;
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{BackupPhase, TransferPhase};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::codec;

/// A Backup whose volume backups are still being made: what an interrupted sync left is taken up again.
pub const SYNCING: &str = "plimsoll.dev/syncing";

/// The content of a `velero-backup.json`.
#[derive(Debug, PartialEq)]
pub enum BackupMetadata {
    /// To be created.
    Backup(Box<Value>),
    /// Not ours to take: not ended, for example.
    Skip(String),
    /// Not what it should be.
    Malformed(String),
}

/// Reads the metadata of the backup in the directory `name`.
pub fn backup(name: &str, content: &[u8], location: &str, now: Timestamp) -> BackupMetadata {
    let raw: Value = match codec::parse_object(content) {
        Ok(raw) => raw,
        Err(error) => return BackupMetadata::Malformed(error.to_string()),
    };
    if raw["kind"] != "Backup" || raw["apiVersion"] != "velero.io/v1" {
        return BackupMetadata::Malformed("it is not a Backup of velero.io/v1".into());
    }
    if raw["metadata"]["name"] != name {
        return BackupMetadata::Malformed(format!(
            "it is in the directory of another backup: {}",
            raw["metadata"]["name"]
        ));
    }
    match synced_phase(&raw, now) {
        Ok(phase) => BackupMetadata::Backup(Box::new(record(&raw, &phase, location))),
        Err(why) => BackupMetadata::Skip(why),
    }
}

/// Only what has ended is taken: anything else would be a backup to run. What never ended and has expired is taken in order to
/// be collected.
fn synced_phase(raw: &Value, now: Timestamp) -> Result<BackupPhase, String> {
    let phase = BackupPhase::from(raw["status"]["phase"].as_str().unwrap_or_default());
    let expired = || {
        let text = raw["status"]["expiration"].as_str().unwrap_or_default();
        text.parse::<Timestamp>().is_ok_and(|expiration| expiration <= now)
    };
    match phase {
        BackupPhase::Completed | BackupPhase::PartiallyFailed | BackupPhase::Failed => Ok(phase),
        BackupPhase::WaitingForPluginOperations
        | BackupPhase::WaitingForPluginOperationsPartiallyFailed
        | BackupPhase::Finalizing
        | BackupPhase::FinalizingPartiallyFailed
            if expired() =>
        {
            Ok(BackupPhase::PartiallyFailed)
        }
        phase => Err(format!("it has not ended: {phase}")),
    }
}

fn record(raw: &Value, phase: &BackupPhase, location: &str) -> Value {
    let mut marks = texts(&raw["metadata"]["labels"]);
    marks.insert(labels::STORAGE_LOCATION.into(), labels::valid_name(location).into());
    let mut notes = texts(&raw["metadata"]["annotations"]);
    notes.insert(SYNCING.into(), "true".into());
    let mut spec = raw["spec"].as_object().cloned().unwrap_or_default();
    spec.remove("hooks");
    spec.insert("storageLocation".into(), location.into());
    let mut status = raw["status"].as_object().cloned().unwrap_or_default();
    status.insert("phase".into(), phase.as_str().into());
    // Of the object in the other cluster.
    for field in ["plimsoll", "conditions", "observedGeneration"] {
        status.remove(field);
    }
    json!({
        "apiVersion": "velero.io/v1",
        "kind": "Backup",
        "metadata": { "name": raw["metadata"]["name"], "labels": marks, "annotations": notes,
            "ownerReferences": raw["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default() },
        "spec": spec,
        "status": status,
    })
}

fn texts(value: &Value) -> Map<String, Value> {
    let fields = value.as_object().cloned().unwrap_or_default();
    fields.into_iter().filter(|(_, value)| value.is_string()).collect()
}

/// The schedules that own a backup, by name and uid. Others than schedules are not kept: they cannot be checked.
pub fn owners(backup: &Value) -> Vec<(String, String, Value)> {
    let references = backup["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let schedules = references.into_iter().filter(|reference| reference["kind"] == "Schedule");
    schedules.map(|reference| (text(&reference["name"]), text(&reference["uid"]), reference)).collect()
}

/// An object of a list file, in its text: what it becomes in memory is decided one at a time.
#[derive(Deserialize)]
pub struct ForeignRecord {
    metadata: ForeignMetadata,
    #[serde(default)]
    spec: Option<Box<RawValue>>,
    #[serde(default)]
    status: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct ForeignMetadata {
    name: String,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

impl From<ForeignRecord> for Value {
    fn from(record: ForeignRecord) -> Self {
        let parse = |text: Option<Box<RawValue>>| text.and_then(|text| serde_json::from_str::<Self>(text.get()).ok());
        let ForeignMetadata { name, labels, annotations } = record.metadata;
        json!({ "metadata": { "name": name, "labels": labels, "annotations": annotations },
            "spec": parse(record.spec), "status": parse(record.status) })
    }
}

/// A PodVolumeBackup as it belongs beside a synced backup; one that has not ended would be run by a node agent.
pub fn pod_volume_backup(raw: &Value, backup: (&str, &str), location: &str) -> Option<Value> {
    let phase = TransferPhase::from(raw["status"]["phase"].as_str().unwrap_or_default());
    if !matches!(phase, TransferPhase::Completed | TransferPhase::Failed | TransferPhase::Canceled) {
        return None;
    }
    let (backup_name, backup_uid) = backup;
    let mut marks = texts(&raw["metadata"]["labels"]);
    if marks.contains_key(labels::BACKUP_UID) {
        marks.insert(labels::BACKUP_UID.into(), backup_uid.into());
    }
    let mut spec = raw["spec"].as_object().cloned().unwrap_or_default();
    spec.insert("backupStorageLocation".into(), location.into());
    let owner = json!({ "apiVersion": "velero.io/v1", "kind": "Backup", "name": backup_name, "uid": backup_uid,
        "controller": true });
    Some(json!({
        "apiVersion": "velero.io/v1",
        "kind": "PodVolumeBackup",
        "metadata": { "name": raw["metadata"]["name"].as_str()?, "labels": marks,
            "annotations": texts(&raw["metadata"]["annotations"]), "ownerReferences": [owner] },
        "spec": spec,
        "status": raw["status"],
    }))
}

/// A VolumePluginBackup as it belongs beside a synced backup. Nothing runs one: it is only shown.
pub fn volume_plugin_backup(raw: &Value, (backup_name, backup_uid): (&str, &str)) -> Option<Value> {
    let mut marks = texts(&raw["metadata"]["labels"]);
    marks.insert(labels::BACKUP_NAME.into(), labels::valid_name(backup_name).into());
    marks.insert(labels::BACKUP_UID.into(), backup_uid.into());
    let mut spec = raw["spec"].as_object().cloned().unwrap_or_default();
    spec.insert("backup".into(), backup_name.into());
    let owner = json!({ "apiVersion": "velero.io/v1", "kind": "Backup", "name": backup_name, "uid": backup_uid,
        "controller": true });
    Some(json!({
        "apiVersion": "velero.io/v1",
        "kind": "VolumePluginBackup",
        "metadata": { "name": raw["metadata"]["name"].as_str()?, "labels": marks,
            "annotations": texts(&raw["metadata"]["annotations"]), "ownerReferences": [owner] },
        "spec": spec,
        "status": raw["status"],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(phase: &str) -> Value {
        json!({ "apiVersion": "velero.io/v1", "kind": "Backup",
            "metadata": { "name": "b", "namespace": "other", "uid": "u", "resourceVersion": "7", "finalizers": ["x"],
                "labels": { "velero.io/storage-location": "theirs", "team": "shop" },
                "ownerReferences": [{ "kind": "Schedule", "name": "s", "uid": "su" }, { "kind": "Pod", "name": "p" }] },
            "spec": { "hooks": { "resources": [{ "name": "evil" }] }, "storageLocation": "theirs", "ttl": "1h" },
            "status": { "phase": phase, "expiration": "2026-01-01T00:00:00Z", "observedGeneration": 40,
                "conditions": [{ "type": "Reconciling", "status": "True" }] } })
    }

    fn read(value: &Value, now: &str) -> BackupMetadata {
        backup("b", value.to_string().as_bytes(), "ours", now.parse().unwrap())
    }

    const BEFORE: &str = "2025-12-31T00:00:00Z";
    const AFTER: &str = "2026-01-02T00:00:00Z";

    #[test]
    fn an_ended_backup_loses_its_hooks_and_belongs_to_this_location() {
        let BackupMetadata::Backup(found) = read(&metadata("Completed"), BEFORE) else { panic!("not taken") };
        assert_eq!(found["spec"], json!({ "storageLocation": "ours", "ttl": "1h" }));
        assert_eq!(found["metadata"]["labels"], json!({ "velero.io/storage-location": "ours", "team": "shop" }));
        for left_behind in ["conditions", "observedGeneration"] {
            assert!(found["status"].get(left_behind).is_none(), "{left_behind}");
        }
        for left_behind in ["namespace", "uid", "resourceVersion", "finalizers"] {
            assert!(found["metadata"].get(left_behind).is_none(), "{left_behind}");
        }
        let owners: Vec<_> = owners(&found).into_iter().map(|(name, uid, _)| (name, uid)).collect();
        assert_eq!(owners, [("s".to_owned(), "su".to_owned())]);
    }

    #[test]
    fn only_what_has_ended_is_taken() {
        for phase in ["", "New", "Queued", "ReadyToStart", "InProgress", "Deleting", "FailedValidation", "Finalizing"] {
            assert!(matches!(read(&metadata(phase), BEFORE), BackupMetadata::Skip(_)), "{phase}");
        }
        for phase in ["Completed", "PartiallyFailed", "Failed"] {
            assert!(matches!(read(&metadata(phase), AFTER), BackupMetadata::Backup(_)), "{phase}");
        }
        let BackupMetadata::Backup(found) = read(&metadata("Finalizing"), AFTER) else {
            panic!("not taken for collection")
        };
        assert_eq!(found["status"]["phase"], "PartiallyFailed");
        assert!(matches!(read(&metadata("InProgress"), AFTER), BackupMetadata::Skip(_)));
    }

    #[test]
    fn what_is_not_a_backup_of_this_name_is_malformed() {
        let mut other = metadata("Completed");
        other["metadata"]["name"] = json!("c");
        let mut kind = metadata("Completed");
        kind["kind"] = json!("Secret");
        for value in [other, kind, json!([]), json!("x")] {
            assert!(matches!(read(&value, BEFORE), BackupMetadata::Malformed(_)), "{value}");
        }
        assert!(matches!(backup("b", b"{", "ours", Timestamp::UNIX_EPOCH), BackupMetadata::Malformed(_)));
    }

    #[test]
    fn a_transfer_is_taken_only_when_no_agent_would_run_it() {
        let transfer = |phase: &str| {
            json!({ "metadata": { "name": "t", "labels": { "velero.io/backup-uid": "theirs" } },
                "spec": { "backupStorageLocation": "theirs" }, "status": { "phase": phase } })
        };
        assert_eq!(pod_volume_backup(&transfer("New"), ("b", "u"), "ours"), None);
        let taken = pod_volume_backup(&transfer("Completed"), ("b", "u"), "ours").unwrap();
        assert_eq!(taken["spec"]["backupStorageLocation"], "ours");
        assert_eq!(taken["metadata"]["labels"]["velero.io/backup-uid"], "u");
        assert_eq!(taken["metadata"]["ownerReferences"][0]["uid"], "u");
    }
}
