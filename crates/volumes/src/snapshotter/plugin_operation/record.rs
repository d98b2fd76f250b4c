//! The record that the server creates: a VolumePluginBackup or VolumePluginRestore.

use plimsoll_api::labels;
use serde_json::{Value, json};

use super::{PluginOperation, RecordSubject};
use crate::snapshotter::records::{RecordKind, is_kept};
use crate::volume_job::name_prefix;

impl PluginOperation {
    /// Whether a record is one that an earlier server created for this operation.
    pub(super) fn is_ours(&self, record: &Value) -> bool {
        let label = match self.records.record_kind {
            RecordKind::Backup => labels::BACKUP_UID,
            RecordKind::Restore => labels::RESTORE_UID,
        };
        let note = |key: &str| record.pointer("/metadata/annotations").and_then(|notes| notes.get(key)).cloned();
        let same = record.pointer("/metadata/labels").and_then(|all| all.get(label))
            == Some(&json!(self.record_subject.parent_uid));
        is_kept(record) && same && note(labels::MANAGED_BY_SERVER) == Some(json!(self.record_subject.volume))
    }

    fn spec(&self) -> Value {
        let RecordSubject { backup, volume, snapshot, .. } = &self.record_subject;
        match self.records.record_kind {
            RecordKind::Backup => json!({ "volume": volume, "backup": backup, "plugin": self.snapshotter.name() }),
            RecordKind::Restore => {
                json!({ "snapshotID": snapshot, "backup": backup, "plugin": self.snapshotter.name() })
            }
        }
    }

    pub(super) fn record_labels(&self) -> Value {
        let RecordSubject { parent, parent_uid, backup, .. } = &self.record_subject;
        let backup_name = labels::valid_name(backup);
        match self.records.record_kind {
            RecordKind::Backup => json!({ labels::BACKUP_NAME: backup_name, labels::BACKUP_UID: parent_uid }),
            RecordKind::Restore => json!({ labels::BACKUP_NAME: backup_name, labels::RESTORE_UID: parent_uid,
                labels::RESTORE_NAME: labels::valid_name(parent) }),
        }
    }

    pub(super) fn record(&self, name: &str, status: &Value) -> Value {
        let mut status = status.clone();
        if self.records.record_kind == RecordKind::Restore {
            status["volumeID"] = json!(self.record_subject.volume);
        }
        json!({
            "apiVersion": "velero.io/v1",
            "kind": self.records.record_kind.kind(),
            "metadata": { "name": name, "labels": self.record_labels(), "ownerReferences": [self.record_subject.owner],
                "annotations": { labels::MANAGED_BY_SERVER: self.record_subject.volume, labels::SNAPSHOT_LOCATION: self.record_subject.location } },
            "spec": self.spec(),
            "status": status,
        })
    }

    pub(super) fn new_name(&self) -> String {
        format!("{}-{:05x}", name_prefix(&self.record_subject.parent), rand::random::<u32>() & 0xf_ffff)
    }
}
