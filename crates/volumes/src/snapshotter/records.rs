//! VolumePluginBackups and VolumePluginRestores: those that plugins make, and those that are kept on their behalf.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use plimsoll_api::labels;
use plimsoll_engine::Error;
use plimsoll_operations::{LeaderClient, WatchBackoff};
use serde_json::{Value, json};
use tracing::debug;

/// Which way the data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    Backup,
    Restore,
}

impl RecordKind {
    pub fn kind(self) -> &'static str {
        match self {
            Self::Backup => "VolumePluginBackup",
            Self::Restore => "VolumePluginRestore",
        }
    }
}

/// The records of one kind, from a watch that ends when this is dropped.
pub struct Records {
    leader: LeaderClient,
    pub record_kind: RecordKind,
    api: Api<DynamicObject>,
    seen: WatchedRecords,
    driver: tokio::task::JoinHandle<()>,
}

type WatchedRecords = Arc<Mutex<HashMap<String, Value>>>;

fn lock(seen: &WatchedRecords) -> MutexGuard<'_, HashMap<String, Value>> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Records {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The records of a kind that a server serves.
pub fn api(leader: &LeaderClient, record_kind: RecordKind) -> Api<DynamicObject> {
    let resource = kube::api::ApiResource::from_gvk(&GroupVersionKind::gvk("velero.io", "v1", record_kind.kind()));
    Api::namespaced_with(leader.client.clone(), &leader.namespace, &resource)
}

/// Text at a place of an object.
pub fn text<'a>(value: &'a Value, place: &str) -> &'a str {
    value.pointer(place).and_then(Value::as_str).unwrap_or_default()
}

/// Whether the server keeps it, and not a plugin.
pub fn is_kept(record: &Value) -> bool {
    record.pointer("/metadata/annotations").is_some_and(|notes| notes.get(labels::MANAGED_BY_SERVER).is_some())
}

/// Whether the work that a record is about has ended, however the plugin spells it.
pub fn has_ended(record: &Value) -> bool {
    let phases = ["Completed", "Failed", "Canceled", "Cancelled"];
    let stamped = !text(record, "/status/completionTimestamp").is_empty();
    stamped || phases.iter().any(|phase| phase.eq_ignore_ascii_case(text(record, "/status/phase")))
}

/// Whether it ended badly.
pub fn has_failed(record: &Value) -> bool {
    let phase = text(record, "/status/phase");
    ["Failed", "Canceled", "Cancelled", "Error"].iter().any(|bad| bad.eq_ignore_ascii_case(phase))
}

/// Whether an object can have this name.
pub fn is_object_name(name: &str) -> bool {
    let label = |label: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty() && label.chars().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

impl Records {
    /// Lists the records and watches them.
    pub fn start(leader: &LeaderClient, record_kind: RecordKind) -> Self {
        let (api, seen) = (api(leader, record_kind), WatchedRecords::default());
        let driver = tokio::spawn(drive(api.clone(), Arc::clone(&seen)));
        Self { leader: leader.clone(), record_kind, api, seen, driver }
    }

    /// A record that the watch has reported.
    pub fn find(&self, wanted: impl Fn(&Value) -> bool) -> Option<Value> {
        lock(&self.seen).values().find(|record| wanted(record)).cloned()
    }

    /// All of them, as they are now.
    pub async fn list(&self) -> Result<Vec<Value>, Error> {
        let all = self.api.list(&kube::api::ListParams::default()).await;
        let all = all.map_err(|e| Error::api(format!("list {}s", self.record_kind.kind()), e))?;
        Ok(all.items.iter().map(|record| json!(record)).collect())
    }

    /// The one of this name, as it is now.
    pub async fn get(&self, name: &str) -> Result<Option<Value>, Error> {
        let found = self.api.get_opt(name).await;
        let found = found.map_err(|e| Error::api(format!("read {} {name}", self.record_kind.kind()), e))?;
        Ok(found.map(|record| json!(record)))
    }

    /// Creates a record; `None` if it exists.
    pub async fn create(&self, record: &Value) -> Result<Option<Value>, Error> {
        self.leader.fence.check()?;
        let what = || format!("create {} {}", self.record_kind.kind(), text(record, "/metadata/name"));
        let typed: DynamicObject = serde_json::from_value(record.clone())
            .map_err(|error| Error::InvalidResponse { what: what(), detail: error.to_string() })?;
        match self.api.create(&PostParams::default(), &typed).await {
            Ok(made) => Ok(Some(json!(made))),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            Err(error) => Err(Error::api(what(), error)),
        }
    }

    /// Changes one; nothing if it is gone.
    pub async fn patch(&self, name: &str, patch: &Value) -> Result<Option<Value>, Error> {
        self.leader.fence.check()?;
        match self.api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(record) => Ok(Some(json!(record))),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(Error::api(format!("write {} {name}", self.record_kind.kind()), error)),
        }
    }

    /// Deletes one.
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        self.leader.fence.check()?;
        lock(&self.seen).remove(name);
        match self.api.delete(name, &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(Error::api(format!("delete {} {name}", self.record_kind.kind()), error)),
        }
    }
}

async fn drive(api: Api<DynamicObject>, seen: WatchedRecords) {
    let mut events = watcher(api, watcher::Config::default()).backoff(WatchBackoff::default()).boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Apply(record) | watcher::Event::InitApply(record)) => {
                lock(&seen).insert(record.name_any(), json!(record));
            }
            Ok(watcher::Event::Delete(record)) => {
                lock(&seen).remove(&record.name_any());
            }
            Ok(watcher::Event::Init) => lock(&seen).clear(),
            Ok(watcher::Event::InitDone) => {}
            Err(error) => debug!("watching the records of plugins: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_word_for_the_end_is_understood() {
        for (status, ended, failed) in [
            (json!({"phase": "Completed"}), true, false),
            (json!({"phase": "canceled"}), true, true),
            (json!({"phase": "Uploading", "completionTimestamp": "2026-01-01T00:00:00Z"}), true, false),
            (json!({"phase": "Failed"}), true, true),
            (json!({"phase": "Uploading"}), false, false),
            (json!({}), false, false),
        ] {
            let record = json!({ "status": status });
            assert_eq!((has_ended(&record), has_failed(&record)), (ended, failed), "{record}");
        }
    }

    #[test]
    fn not_every_snapshot_id_is_an_object_name() {
        for (id, is) in
            [("snap-0123", true), ("b-v.x", true), ("arn:aws:x", false), ("A", false), ("a/b", false), ("", false)]
        {
            assert_eq!(is_object_name(id), is, "{id}");
        }
    }
}
