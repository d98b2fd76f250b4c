//! The Backup object while its backup runs: location, first status, last status.

use std::sync::OnceLock;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use plimsoll_api::go::GoDuration;
use plimsoll_api::labels;
use plimsoll_api::velero::v1::BackupSpec;
use plimsoll_archive::proof::ProofKey;
use plimsoll_engine::backup::{BackupObject, BackupResults};
use plimsoll_engine::item_operations::ItemOperationCounts;
use plimsoll_engine::{Error, RetryPolicy, kill};
use plimsoll_operations::Job;
use plimsoll_select::resource_policies::ResourcePolicies;
use plimsoll_store::Store;
use plimsoll_volumes::fs_backup::all_by_default;
use plimsoll_volumes::snapshotter;
use plimsoll_volumes::storage_location::LocationLookup;
use serde_json::{Value, json};

use super::BackupController;
use super::ending::{finalized, metadata};
use crate::{completion, proof_key, resource_policy};

/// The Backup object of a job.
pub(super) struct JobBackup<'a> {
    job: &'a Job<BackupController>,
    /// The name of the location, once it is open.
    location: OnceLock<String>,
}

impl<'a> JobBackup<'a> {
    pub(super) fn new(job: &'a Job<BackupController>) -> Self {
        Self { job, location: OnceLock::new() }
    }
}

impl BackupObject for JobBackup<'_> {
    fn open_location(&self) -> BoxFuture<'_, Result<Store, Error>> {
        Box::pin(async {
            let storage = &self.job.context.storage;
            match storage.find(self.job.subject.spec.storage_location.as_deref()).await? {
                LocationLookup::Usable(found) => {
                    let store = storage.open(&found).await?;
                    let _ = self.location.set(found.name_any());
                    Ok(store)
                }
                LocationLookup::Unusable(why) | LocationLookup::Unchecked(why) => Err(Error::Selection(why)),
            }
        })
    }

    fn begin(&self) -> BoxFuture<'_, Result<Value, Error>> {
        Box::pin(begin(self.job, self.location.get().map_or("", String::as_str)))
    }

    fn resource_policies(&self) -> BoxFuture<'_, Result<Option<ResourcePolicies>, Error>> {
        Box::pin(async {
            let reference = self.job.subject.spec.resource_policy.as_ref();
            resource_policy::backup_policies(&self.job.context, reference).await?.map_err(Error::Selection)
        })
    }

    fn show_waiting(&self, counts: ItemOperationCounts, failed: bool) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(completion::show_waiting(self.job, counts, failed))
    }

    fn proof_key(&self) -> BoxFuture<'_, Result<ProofKey, Error>> {
        Box::pin(proof_key::find_or_create(&self.job.context.leader))
    }

    fn show_finalizing(&self, failed: bool) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(completion::show_finalizing(self.job, failed))
    }

    fn finalized_metadata(&self, left: &Value, failed: bool) -> Value {
        finalized(left, failed, Timestamp::now())
    }

    fn metadata(&self, begun: &Value, results: &BackupResults) -> Value {
        metadata(begun, &self.job.tree.snapshot(), results)
    }
}

/// The first write: phase, times and defaults. Every attempt repeats it with the same result.
async fn begin(job: &Job<BackupController>, location: &str) -> Result<Value, Error> {
    let backup = &job.subject;
    let started = backup.status.as_ref().and_then(|status| status.start_timestamp.clone());
    let started = started.map_or_else(Timestamp::now, |time| time.0);
    let ttl = backup.spec.ttl.as_ref().and_then(GoDuration::as_std).filter(|ttl| !ttl.is_zero());
    let ttl = ttl.unwrap_or(job.context.settings.default_ttl);
    let expires = started.saturating_add(SignedDuration::try_from(ttl).unwrap_or(SignedDuration::MAX));
    let choose = || snapshotter::choose(&job.context.snapshots, &backup.spec);
    let snapshot_locations =
        RetryPolicy::default().run(&job.tree.root(), choose).await?.map_err(Error::Selection)?.names();
    let patch = json!({
        "metadata": {
            "labels": { labels::STORAGE_LOCATION: labels::valid_name(location) },
            "annotations": source_cluster(job).await?,
        },
        "spec": defaults(&backup.spec, location, ttl, &snapshot_locations, job.context.settings.default_volumes_to_fs_backup),
        "status": {
            "phase": "InProgress",
            "queuePosition": null,
            "version": 1,
            "formatVersion": "1.1.0",
            "startTimestamp": format!("{started:.0}"),
            "expiration": format!("{:.0}", expires.unwrap_or(Timestamp::MAX)),
        },
    });
    kill::point("status.begin.before");
    let begun = job.patch_subject(&patch).await?;
    kill::point("status.begin.after");
    Ok(begun)
}

/// The defaults that are written into the spec, for readers of the backup.
fn defaults(
    spec: &BackupSpec,
    location: &str,
    ttl: Duration,
    snapshot_locations: &[String],
    all_volumes: bool,
) -> Value {
    let namespaces = &spec.included_namespaces;
    let namespaces = if namespaces.is_empty() { &vec!["*".into()] } else { namespaces };
    let or = |given: &Option<GoDuration>, default: u64| {
        let given = given.clone().filter(|given| given.as_std().is_some_and(|duration| !duration.is_zero()));
        given.unwrap_or_else(|| GoDuration::from_secs(default)).to_string()
    };
    let mut spec_defaults = json!({
        "storageLocation": location,
        "ttl": GoDuration::from(ttl).to_string(),
        "includedNamespaces": namespaces,
        "csiSnapshotTimeout": or(&spec.csi_snapshot_timeout, 10 * 60),
        "itemOperationTimeout": or(&spec.item_operation_timeout, 4 * 60 * 60),
        "defaultVolumesToFsBackup": all_by_default(spec, all_volumes),
        "snapshotMoveData": spec.snapshot_move_data.unwrap_or(false),
    });
    if !snapshot_locations.is_empty() {
        spec_defaults["volumeSnapshotLocations"] = json!(snapshot_locations);
    }
    spec_defaults
}

/// Annotations with the version of the source cluster.
async fn source_cluster(job: &Job<BackupController>) -> Result<Value, Error> {
    let root = job.tree.root();
    let version = RetryPolicy::default().run(&root, || job.context.leader.cluster.get("/version")).await?;
    let version: Value = version.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    Ok(json!({
        labels::SOURCE_CLUSTER_K8S_GIT_VERSION: version["gitVersion"],
        labels::SOURCE_CLUSTER_K8S_MAJOR: version["major"],
        labels::SOURCE_CLUSTER_K8S_MINOR: version["minor"],
        labels::RESOURCE_TIMEOUT: "10m0s",
    }))
}
