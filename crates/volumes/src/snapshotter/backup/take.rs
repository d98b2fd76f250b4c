//! Takes the snapshot of one volume: intent, call of the plugin, result, record.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use plimsoll_archive::volume_info::VolumeSnapshot;
use plimsoll_engine::ports::Effect;
use plimsoll_engine::{Error, kill};
use plimsoll_plugin::SnapshotProgressQuery;
use serde_json::Value;

use super::candidate::Candidate;
use super::results::snapshot_entry;
use super::{SnapshotBackup, TakenSnapshot};
use crate::fs_backup::ClaimInfo;
use crate::snapshotter::locations::plugin_error;
use crate::snapshotter::pending::PendingSnapshot;
use crate::snapshotter::plugin_operation::PluginOperation;
use crate::snapshotter::zone;

impl SnapshotBackup {
    fn tags(&self, volume: &str) -> BTreeMap<String, String> {
        let mut tags = self.labels.clone();
        tags.insert("velero.io/backup".into(), self.context.job.subject.name.clone());
        tags.insert("velero.io/pv".into(), volume.to_owned());
        tags
    }

    /// Takes a snapshot of a volume, unless an earlier server did.
    pub(super) async fn snapshot(
        &self,
        name: &str,
        volume: &Value,
        candidate: &Candidate,
        claim_info: &ClaimInfo,
    ) -> Result<(), Error> {
        let task = self.context.start_task(name);
        let (snapshotter, zone) = (&candidate.snapshotter, zone::of(volume));
        let facts = match snapshotter.volume_info(&candidate.handle, &zone).await {
            Ok(facts) => facts,
            Err(error) => {
                task.fail(error.to_string());
                return Err(plugin_error(&error));
            }
        };
        let subject = SnapshotProgressQuery {
            volume: candidate.handle.clone(),
            tags: self.tags(name),
            ..SnapshotProgressQuery::default()
        };
        let mut live = PluginOperation::new(
            self.context.records(),
            self.context.record_subject(name, &candidate.location, ""),
            Arc::clone(snapshotter),
            subject,
            task,
        );
        let effect = Effect::Snapshot {
            location: candidate.location.clone(),
            volume: name.to_owned(),
            handle: candidate.handle.clone(),
            volume_type: facts.volume_type,
            zone,
            iops: facts.iops,
        };
        let started = Timestamp::now();
        let earlier = self.taken_earlier(name, &claim_info.namespace).await?;
        live.begin().await?;
        let (effect, answer) = if let Some(request) = earlier {
            (request.effect, Ok(request.name.unwrap_or_default()))
        } else {
            let answer = self.create_snapshot(&effect, &mut live, &claim_info.namespace).await?;
            (effect, answer)
        };
        self.record(effect, answer, live, claim_info, started).await
    }

    /// Calls the plugin. The call is never repeated: its result is in the journal before anything relies on it.
    async fn create_snapshot(
        &self,
        effect: &Effect,
        live: &mut PluginOperation,
        namespace: &str,
    ) -> Result<Result<String, String>, Error> {
        let Effect::Snapshot { volume, handle, zone, .. } = effect else { return Ok(Err(String::new())) };
        let job = &self.context.job;
        job.services.leader.fence.check()?;
        let intent = job.journal.record_intent(effect.clone()).await?;
        kill::point("snapshot.create.before");
        let (snapshotter, tags) = (Arc::clone(&live.snapshotter), self.tags(volume));
        let answer = tokio::select! {
            biased;
            answer = snapshotter.create_snapshot(handle, zone, &tags, job.limit) => answer,
            never = live.follow() => match never {},
        };
        kill::point("snapshot.create.after");
        let answer = match answer {
            Err(error) if error.outcome_unknown() => self.resolve_unknown_outcome(error, volume, namespace).await?,
            answer => answer,
        };
        let answer = self.context.record_answer(intent, answer).await?;
        kill::point("snapshot.recorded.after");
        Ok(answer)
    }

    /// Records the result of a call, and keeps track of the snapshot while it is still in progress.
    async fn record(
        &self,
        effect: Effect,
        answer: Result<String, String>,
        mut live: PluginOperation,
        claim_info: &ClaimInfo,
        started: Timestamp,
    ) -> Result<(), Error> {
        let mut snapshot = snapshot_entry(&self.context.job.subject, effect, &answer);
        let id = match answer {
            Ok(id) => id,
            Err(why) => {
                let name = &snapshot.spec.persistent_volume_name;
                self.error(&claim_info.namespace, format!("snapshot of volume {name}: {why}"));
                live.end(&Err(why)).await?;
                self.add_taken(snapshot, claim_info, started, live);
                return Ok(());
            }
        };
        live.set_snapshot_name(&id).await?;
        let ended = live.end_if_ended().await?;
        if let Some(Err(why)) = &ended {
            let name = &snapshot.spec.persistent_volume_name;
            self.error(&claim_info.namespace, format!("snapshot {id} of volume {name}: {why}"));
            snapshot.status.phase = "Failed".into();
        }
        let (plugin, name) = (live.snapshotter.name().to_owned(), snapshot.spec.persistent_volume_name.clone());
        let moving = self.add_taken(snapshot, claim_info, started, live);
        if ended.is_none() {
            self.context.track(&plugin, &name, &id, moving);
        }
        Ok(())
    }

    fn add_taken(
        &self,
        snapshot: VolumeSnapshot,
        claim_info: &ClaimInfo,
        started: Timestamp,
        live: PluginOperation,
    ) -> Arc<PendingSnapshot> {
        let moving = Arc::new(PendingSnapshot::new(live));
        let taken = TakenSnapshot { snapshot, claim_info: claim_info.clone(), started, moving: Arc::clone(&moving) };
        self.state().taken.push(taken);
        moving
    }
}
