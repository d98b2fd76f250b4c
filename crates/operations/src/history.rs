//! What earlier runs of the same operation showed, in a ConfigMap of its own: it outlives the backups that it speaks of.
//!
//! One record for each schedule, or each selection: backups of a schedule share one, and so do manual backups, restores and ActionSets
//! whose specs select the same. It is only an estimate: without it everything works, and nothing fails because of it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use plimsoll_api::labels::SCHEDULE_NAME;
use plimsoll_engine::Error;
use plimsoll_progress::{Earlier, History, RunRecord, Snapshot};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tracing::debug;

use crate::leader_client::LeaderClient;

/// The label of these records.
pub const HISTORY_LABEL: &str = "plimsoll.dev/history";
/// The annotation that says when a record was written last.
const WRITTEN: &str = "plimsoll.dev/history-written";
/// The key of the runs.
const RUNS: &str = "runs";
/// So many records are kept; the one that was written the longest ago goes.
const MAX_RECORDS: usize = 200;

/// The record of one operation.
pub struct HistoryRecord {
    leader: LeaderClient,
    name: String,
    verb: &'static str,
    history: Mutex<History>,
    exists: bool,
}

impl HistoryRecord {
    /// Reads the record that the subject shares with earlier ones.
    pub async fn open(leader: &LeaderClient, verb: &'static str, subject: &Value) -> Self {
        let name = record_name(verb, subject);
        let found = leader.api::<ConfigMap>().get_opt(&name).await.unwrap_or_else(|error| {
            debug!("ConfigMap {name}: {error}; the time left is estimated without earlier runs");
            None
        });
        let text = found.as_ref().and_then(|record| record.data.as_ref()).and_then(|data| data.get(RUNS));
        let history = text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        Self { leader: leader.clone(), name, verb, history: Mutex::new(history), exists: found.is_some() }
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the next run can expect.
    pub fn earlier(&self) -> Earlier {
        self.history().earlier()
    }

    /// The size of a volume when it was last transferred, by the uid of its claim.
    pub fn size(&self, claim: &str) -> Option<u64> {
        self.history().size(claim)
    }

    /// Notes the size of a volume that was transferred.
    pub fn set_size(&self, claim: &str, bytes: u64) {
        self.history().set_size(claim, bytes);
    }

    /// Adds a run that ended well, and writes the record. Best effort.
    pub(crate) async fn add(&self, snapshot: &Snapshot) {
        let Some(run) = RunRecord::of(snapshot) else { return };
        self.history().add(run);
        if let Err(error) = self.write().await {
            debug!("ConfigMap {}: {error}; the next run has one estimate less", self.name);
        }
    }

    async fn write(&self) -> Result<(), Error> {
        self.leader.fence.check()?;
        let text = serde_json::to_string(&*self.history()).unwrap_or_default();
        let (api, name) = (self.leader.api::<ConfigMap>(), &self.name);
        let written = [(WRITTEN.to_owned(), format!("{:.0}", jiff::Timestamp::now()))];
        if self.exists {
            let patch = json!({ "metadata": { "annotations": { (WRITTEN): written[0].1 } }, "data": { (RUNS): text } });
            let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
            return patched.map(|_| ()).map_err(|e| Error::api(format!("write ConfigMap {name}"), e));
        }
        remove_oldest(&self.leader, &api).await?;
        let record = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                labels: Some([(HISTORY_LABEL.to_owned(), self.verb.to_owned())].into()),
                annotations: Some(written.into()),
                ..ObjectMeta::default()
            },
            data: Some([(RUNS.to_owned(), text)].into()),
            ..ConfigMap::default()
        };
        match api.create(&PostParams::default(), &record).await {
            // Another run of the same has ended meanwhile; the next one adds to its record.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            answer => answer.map(|_| ()).map_err(|e| Error::api(format!("create ConfigMap {name}"), e)),
        }
    }
}

/// Makes room for a new record.
async fn remove_oldest(leader: &LeaderClient, api: &Api<ConfigMap>) -> Result<(), Error> {
    let all = api.list_metadata(&ListParams::default().labels(HISTORY_LABEL)).await;
    let mut all = all.map_err(|e| Error::api("list the records of earlier runs", e))?.items;
    all.sort_by_cached_key(|record| record.annotations().get(WRITTEN).cloned());
    let excess = (all.len() + 1).saturating_sub(MAX_RECORDS);
    for record in all.iter().take(excess) {
        leader.delete::<ConfigMap>(&record.name_any()).await?;
    }
    Ok(())
}

/// The name of the record that subjects share which do the same: the schedule, and a hash of what the spec selects.
fn record_name(verb: &str, subject: &Value) -> String {
    let schedule = subject.pointer("/metadata/labels").and_then(|labels| labels.get(SCHEDULE_NAME));
    let what = json!([verb, schedule, selection(subject)]).to_string();
    let hash = hex::encode(Sha256::digest(what.as_bytes()));
    format!("plimsoll-history-{verb}-{}", &hash[..16])
}

/// What a spec selects: without what differs from one run to the next and does not change the work.
fn selection(subject: &Value) -> Value {
    let mut spec = subject["spec"].clone();
    let Some(fields) = spec.as_object_mut() else { return spec };
    fields.remove("ttl");
    fields.remove("cancel");
    if let Some(backup) = fields.get("backupName").and_then(Value::as_str).map(without_time) {
        fields.insert("backupName".to_owned(), json!(backup));
    }
    for action in fields.get_mut("actions").and_then(Value::as_array_mut).into_iter().flatten() {
        let keep = ["name", "blueprint", "object"].map(|field| (field.to_owned(), action[field].clone()));
        *action = Value::Object(keep.into_iter().collect());
    }
    spec
}

/// The name of a backup without the time that a schedule appends: `daily-20260102030405` is another run of `daily`.
fn without_time(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((schedule, time)) if time.len() == 14 && time.bytes().all(|byte| byte.is_ascii_digit()) => schedule,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backup(name: &str, labels: &Value, spec: &Value) -> String {
        let metadata = json!({ "name": name, "uid": name, "labels": labels });
        record_name("backup", &json!({ "metadata": metadata, "spec": spec }))
    }

    #[test]
    fn backups_of_a_schedule_share_a_record_and_manual_ones_that_select_the_same_share_another() {
        let (daily, none) = (json!({ SCHEDULE_NAME: "daily" }), json!({}));
        let shop = json!({ "includedNamespaces": ["shop"], "ttl": "24h0m0s" });
        let longer = json!({ "includedNamespaces": ["shop"], "ttl": "720h0m0s" });
        let other = json!({ "includedNamespaces": ["bank"], "ttl": "24h0m0s" });
        assert_eq!(backup("daily-1", &daily, &shop), backup("daily-2", &daily, &longer));
        assert_eq!(backup("a", &none, &shop), backup("b", &none, &shop));
        assert_ne!(backup("a", &none, &shop), backup("daily-1", &daily, &shop));
        assert_ne!(backup("a", &none, &shop), backup("a", &none, &other));
    }

    #[test]
    fn restores_of_any_backup_of_a_schedule_share_a_record() {
        let restore = |backup: &str| record_name("restore", &json!({ "spec": { "backupName": backup } }));
        assert_eq!(restore("daily-20260102030405"), restore("daily-20260103030405"));
        assert_ne!(restore("daily-20260102030405"), restore("weekly-20260102030405"));
    }

    #[test]
    fn action_sets_that_do_the_same_share_a_record_whatever_their_artifacts() {
        let set = |object: &str, artifact: &str| {
            let action = json!({ "name": "backup", "blueprint": "mysql", "object": { "name": object },
                "artifacts": { "dump": { "keyValue": { "path": artifact } } } });
            record_name("run", &json!({ "spec": { "actions": [action] } }))
        };
        assert_eq!(set("db", "a"), set("db", "b"));
        assert_ne!(set("db", "a"), set("other", "a"));
    }
}
