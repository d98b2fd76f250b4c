//! One record for each operation: the plugin's own if it creates one, else ours.

use jiff::Timestamp;
use plimsoll_api::labels;
use plimsoll_engine::{Error, RetryPolicy};
use serde_json::{Value, json};
use tracing::debug;

use super::{PluginOperation, RecordOwner, RecordSubject, now};
use crate::snapshotter::records::{RecordKind, is_kept, is_object_name, text};

impl PluginOperation {
    /// The plugin's own record, if there is one. It replaces ours.
    pub(super) async fn find_plugin_record(&mut self) -> Option<Value> {
        if let RecordOwner::Plugin(name) = self.record_owner.clone() {
            if let Some(found) = self.records.find(|record| text(record, "/metadata/name") == name) {
                return Some(found);
            }
            // The watch may be listing them again.
            match self.records.get(&name).await {
                Ok(None) => self.recreate_record().await,
                Ok(found) => return found,
                Err(error) => {
                    debug!("record {name}: {error}");
                    return Some(json!({}));
                }
            }
        }
        let found = self.records.find(|record| self.is_plugin_record(record))?;
        self.adopt_plugin_record(&found).await;
        Some(found)
    }

    /// Creates our record again after the plugin's own was deleted: its work may go on.
    async fn recreate_record(&mut self) {
        self.task.hint("the plugin's own record was deleted");
        let id = &self.subject.snapshot;
        let named = self.records.record_kind == RecordKind::Backup && is_object_name(id);
        let name = if named { id.clone() } else { self.new_name() };
        let mut status = json!({ "phase": "InProgress", "startTimestamp": now() });
        if self.records.record_kind == RecordKind::Backup && !id.is_empty() {
            status["snapshotID"] = json!(id);
        }
        match self.records.create(&self.record(&name, &status)).await {
            Ok(Some(_)) => (self.record_owner, self.written) = (RecordOwner::Server(name), Value::Null),
            // The plugin has created it again. The next poll finds it.
            Ok(None) => {}
            Err(error) => debug!("record {name}: {error}"),
        }
    }

    /// Whether a record is the plugin's own record of this operation.
    fn is_plugin_record(&self, record: &Value) -> bool {
        if is_kept(record) {
            return false;
        }
        let RecordSubject { backup, volume, snapshot, since, parent, .. } = &self.record_subject;
        let made = text(record, "/metadata/creationTimestamp").parse::<Timestamp>();
        let fresh = made.is_ok_and(|made| made >= *since);
        match self.records.record_kind {
            RecordKind::Backup => {
                let named =
                    !self.subject.snapshot.is_empty() && text(record, "/metadata/name") == self.subject.snapshot;
                let meant = text(record, "/spec/backup") == backup && text(record, "/spec/volume") == volume;
                named || (meant && fresh)
            }
            RecordKind::Restore => {
                let labelled = record.pointer("/metadata/labels").and_then(|all| all.get(labels::RESTORE_NAME));
                let ours = labelled.is_some_and(|name| *name == labels::valid_name(parent));
                text(record, "/spec/snapshotID") == snapshot && (ours || (labelled.is_none() && fresh))
            }
        }
    }

    /// Makes the plugin's record a part of the backup or restore, and deletes ours.
    async fn adopt_plugin_record(&mut self, theirs: &Value) {
        let name = text(theirs, "/metadata/name").to_owned();
        let mut patch = json!({ "metadata": { "labels": self.record_labels(), "ownerReferences": [self.record_subject.owner],
            "annotations": { labels::SNAPSHOT_LOCATION: self.record_subject.location } } });
        if self.records.record_kind == RecordKind::Restore && text(theirs, "/spec/backup").is_empty() {
            patch["spec"] = json!({ "backup": self.record_subject.backup });
        }
        let mut status = json!({});
        if text(theirs, "/status/startTimestamp").is_empty() {
            status["startTimestamp"] = json!(now());
        }
        if self.records.record_kind == RecordKind::Restore && text(theirs, "/status/volumeID").is_empty() {
            status["volumeID"] = json!(self.record_subject.volume);
        }
        patch["status"] = status;
        if let Err(error) = self.records.patch(&name, &patch).await {
            debug!("record {name}: {error}");
            return;
        }
        if let RecordOwner::Server(own) = std::mem::replace(&mut self.record_owner, RecordOwner::Plugin(name))
            && let Err(error) = self.records.remove(&own).await
        {
            debug!("record {own}: {error}");
        }
    }

    /// Sets the name of the snapshot. The record gets the same name if that is a valid object name.
    pub async fn set_snapshot_name(&mut self, snapshot: &str) -> Result<(), Error> {
        snapshot.clone_into(&mut self.subject.snapshot);
        self.written = Value::Null;
        if self.find_plugin_record().await.is_some() {
            return Ok(());
        }
        if !is_object_name(snapshot) {
            self.write(&json!({ "snapshotID": snapshot })).await;
            return Ok(());
        }
        let read = || self.records.get(snapshot);
        let named = RetryPolicy::default().run(&self.task, read).await?;
        let named = named.filter(|_| self.record_owner != RecordOwner::Server(snapshot.to_owned()));
        match (named, self.record_owner.clone()) {
            (Some(theirs), _) if !is_kept(&theirs) => self.adopt_plugin_record(&theirs).await,
            (_, RecordOwner::Server(name)) if name == snapshot => self.write(&json!({ "snapshotID": snapshot })).await,
            (_, RecordOwner::Server(name)) => self.rename(&name, snapshot).await?,
            _ => {}
        }
        Ok(())
    }

    async fn rename(&mut self, from: &str, to: &str) -> Result<(), Error> {
        let before = RetryPolicy::default().run(&self.task, || self.records.get(from)).await?.unwrap_or_default();
        let mut status = before.get("status").filter(|status| status.is_object()).cloned().unwrap_or_else(|| json!({}));
        status["snapshotID"] = json!(to);
        let record = self.record(to, &status);
        if RetryPolicy::default().run(&self.task, || self.records.create(&record)).await?.is_none() {
            self.records.patch(to, &json!({ "metadata": record["metadata"], "status": status })).await?;
        }
        self.record_owner = RecordOwner::Server(to.to_owned());
        RetryPolicy::default().run(&self.task, || self.records.remove(from)).await
    }
}
