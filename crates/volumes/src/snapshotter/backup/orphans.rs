//! Snapshots whose names are unknown: an earlier server or the plugin failed between the call and the result.

use jiff::Timestamp;
use plimsoll_engine::ports::Effect;
use plimsoll_engine::{Error, RetryPolicy};
use plimsoll_plugin::Error as PluginError;
use serde_json::Value;

use super::SnapshotBackup;
use crate::snapshotter::earlier::{EarlierRequest, named};
use crate::snapshotter::records::{is_kept, text};

impl SnapshotBackup {
    /// The snapshot that an earlier server took of this volume: the one in the journal, or the one that the plugin's own record
    /// names. A snapshot that may exist without a known name is reported.
    pub(super) async fn taken_earlier(&self, volume: &str, namespace: &str) -> Result<Option<EarlierRequest>, Error> {
        let known = self.context.earlier().take_named(volume);
        let mut found = known;
        let open = self.context.earlier().take_open(volume);
        for request in open {
            match self.find_snapshot(volume).await?.filter(|_| found.is_none()) {
                Some(id) => {
                    self.context.job.journal.record_result(request.intent, named(&id)).await?;
                    found = Some(EarlierRequest { name: Some(id), ..request });
                }
                None => self.report_orphan(&request, volume, namespace).await?,
            }
        }
        Ok(found)
    }

    /// Finds the result of a call whose answer was lost in the plugin's own record. A snapshot that may exist without a known name
    /// is reported.
    pub(super) async fn resolve_unknown_outcome(
        &self,
        error: PluginError,
        volume: &str,
        namespace: &str,
    ) -> Result<Result<String, PluginError>, Error> {
        Ok(if let Some(id) = self.find_snapshot(volume).await? {
            self.warn(
                namespace,
                format!("snapshot {id} of volume {volume} exists according to the plugin's own record: {error}"),
            );
            Ok(id)
        } else {
            self.warn(namespace, self.possible_orphan("a plugin that could not answer was", volume));
            Err(error)
        })
    }

    fn possible_orphan(&self, requester: &str, volume: &str) -> String {
        format!(
            "{requester} asked for a snapshot of volume {volume}, and its name is not known: it may exist, with the tags \
             velero.io/backup={} and velero.io/pv={volume}, and belong to no backup",
            self.context.job.subject.name
        )
    }

    async fn find_snapshot(&self, volume: &str) -> Result<Option<String>, Error> {
        let records = self.context.records();
        let all = RetryPolicy::default().run(&self.context.job.subject.task, || records.list()).await?;
        let meant = |record: &&Value| {
            let made = text(record, "/metadata/creationTimestamp").parse::<Timestamp>();
            !is_kept(record)
                && text(record, "/spec/backup") == self.context.job.subject.name
                && text(record, "/spec/volume") == volume
                && made.is_ok_and(|made| made >= self.context.job.created)
        };
        let id = all.iter().find(meant).map(|record| text(record, "/status/snapshotID").to_owned());
        Ok(id.filter(|id| !id.is_empty()))
    }

    async fn report_orphan(&self, request: &EarlierRequest, volume: &str, namespace: &str) -> Result<(), Error> {
        self.warn(namespace, self.possible_orphan("a server that died had", volume));
        self.context.job.journal.record_result(request.intent, "possible orphan".to_owned()).await
    }

    /// Deletes snapshots of an earlier attempt whose volumes are no longer part of the backup.
    pub(super) async fn delete_orphans(&self) -> Result<(), Error> {
        let (named, open) = self.context.earlier().take_remaining();
        for request in named {
            let Effect::Snapshot { location, volume, .. } = &request.effect else { continue };
            let id = request.name.clone().unwrap_or_default();
            let gone = match self.context.locations.by_name(location).await? {
                Ok(snapshotter) => snapshotter.delete_snapshot(&id).await.map_err(|error| error.to_string()),
                Err(why) => Err(why),
            };
            if let Err(why) = gone {
                let line =
                    format!("snapshot {id} of volume {volume} belongs to no backup and cannot be deleted: {why}");
                self.warn("", line);
            }
            self.context.job.journal.record_result(request.intent, "not needed".to_owned()).await?;
        }
        for request in open {
            let Effect::Snapshot { volume, .. } = &request.effect else { continue };
            self.report_orphan(&request, volume, "").await?;
        }
        Ok(())
    }
}
