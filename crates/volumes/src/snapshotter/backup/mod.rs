//! Snapshots of a backup with volume snapshotters.
//!
//! ```text
//!  volume ── choice ──▶ candidate (a plugin that supports it) ──▶ take ──▶ results
//!                                                                  │
//!                                              orphans ◀── the answer is unknown
//! ```

mod candidate;
mod combined;
mod orphans;
mod results;
mod take;

pub use combined::CombinedVolumeBackup;

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use plimsoll_archive::volume_info::{BackupVolumeInfo, VolumeSnapshot};
use plimsoll_engine::cluster::{ItemMeta, collection_path};
use plimsoll_engine::item_filter::ItemFilter;
use plimsoll_engine::{Error, RetryPolicy};
use plimsoll_select::resource_policies::{ResourcePolicies, VolumeProperties};
use serde_json::Value;

use super::context::{SnapshotContext, SnapshotJob};
use super::locations::ChosenLocations;
use super::pending::PendingSnapshot;
use super::records::{RecordKind, text};
use crate::fs_backup::{ClaimInfo, claims_of, skipped};
use crate::snapshot_choice::{SnapshotChoice, snapshot_choice};

/// Maximum number of snapshots that are taken at a time.
const MAX_CONCURRENT_SNAPSHOTS: usize = 4;

/// Parameters of the snapshots of a backup.
pub struct SnapshotBackupParameters {
    /// The Backup.
    pub job: SnapshotJob,
    /// The Backup's own labels: tags of its snapshots.
    pub labels: BTreeMap<String, String>,
    /// `snapshotVolumes`.
    pub wanted: Option<bool>,
    /// Its volume policies.
    pub policies: Option<ResourcePolicies>,
    /// The snapshot locations it uses.
    pub locations: ChosenLocations,
    /// The Backup's filters.
    pub item_filter: Arc<ItemFilter>,
}

/// Takes snapshots with volume snapshotters.
pub struct SnapshotBackup {
    context: Arc<SnapshotContext>,
    labels: BTreeMap<String, String>,
    wanted: Option<bool>,
    policies: Option<ResourcePolicies>,
    locations: ChosenLocations,
    item_filter: Arc<ItemFilter>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// PersistentVolumes of the backup.
    volumes: Vec<Value>,
    /// Processed volumes.
    processed: HashSet<String>,
    /// Locations that were reported as unusable.
    reported_locations: HashSet<String>,
    taken: Vec<TakenSnapshot>,
    infos: Vec<BackupVolumeInfo>,
    errors: Vec<(String, String)>,
    warnings: Vec<(String, String)>,
}

/// A snapshot that was requested.
#[derive(Clone)]
struct TakenSnapshot {
    snapshot: VolumeSnapshot,
    claim_info: ClaimInfo,
    started: Timestamp,
    moving: Arc<PendingSnapshot>,
}

impl SnapshotBackup {
    /// Takes the snapshots of one backup.
    pub fn new(parameters: SnapshotBackupParameters) -> Self {
        let SnapshotBackupParameters { job, labels, wanted, policies, locations, item_filter } = parameters;
        let context = Arc::new(SnapshotContext::new(job, RecordKind::Backup));
        Self { context, labels, wanted, policies, locations, item_filter, state: Mutex::default() }
    }

    /// What its snapshots share.
    pub fn context(&self) -> &Arc<SnapshotContext> {
        &self.context
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, namespace: &str, line: String) {
        self.state().errors.push((namespace.to_owned(), line));
    }

    fn warn(&self, namespace: &str, line: String) {
        self.state().warnings.push((namespace.to_owned(), line));
    }

    /// Whether no snapshot can be taken.
    fn is_idle(&self) -> bool {
        let by_policy = self.policies.as_ref().is_some_and(ResourcePolicies::has_volume_policies);
        self.locations.0.is_empty() && self.wanted != Some(true) && !by_policy
    }

    async fn read(&self, plural: &str, namespace: Option<&str>, name: &str) -> Result<Option<Value>, Error> {
        let path = format!("{}/{name}", collection_path("v1", plural, namespace));
        let get = || self.context.job.services.leader.cluster.get(&path);
        let found = RetryPolicy::default().run(&self.context.job.subject.task, get).await?;
        Ok(found.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// Takes snapshots of the volumes of a frozen pod, except those with file-system backup.
    async fn back_up_pod(&self, pod: &Value, is_backed_up: impl Fn(&str) -> bool) -> Result<(), Error> {
        if self.is_idle() {
            return Ok(());
        }
        let namespace = text(pod, "/metadata/namespace");
        for name in claims_of(pod) {
            if is_backed_up(&format!("{namespace}/{name}")) {
                continue;
            }
            let Some(claim) = self.read("persistentvolumeclaims", Some(namespace), &name).await? else { continue };
            let Some(volume) = self.read("persistentvolumes", None, text(&claim, "/spec/volumeName")).await? else {
                continue;
            };
            if self.is_in_backup(&claim, &volume) {
                self.back_up_volume(&volume, Some(&claim)).await?;
            }
        }
        Ok(())
    }

    /// Whether a claim, and through it its volume, is a part of the backup.
    fn is_in_backup(&self, claim: &Value, volume: &Value) -> bool {
        let adds = |resource: &str, object: &Value| {
            let meta: Result<ItemMeta, _> = ItemMeta::of(object.to_string().as_bytes());
            meta.is_ok_and(|meta| self.item_filter.includes_additional_item(resource, &meta))
        };
        adds("persistentvolumeclaims", claim) && adds("persistentvolumes", volume)
    }

    /// Takes snapshots of all volumes of the backup that are not handled otherwise.
    async fn back_up_remaining(&self, is_backed_up: impl Fn(&str) -> bool) -> Result<(), Error> {
        let volumes = std::mem::take(&mut self.state().volumes);
        if !self.is_idle() {
            let left = volumes.into_iter().filter(|volume| {
                let claim = ["/spec/claimRef/namespace", "/spec/claimRef/name"].map(|place| text(volume, place));
                !is_backed_up(&claim.join("/"))
            });
            let takes: Vec<_> = left.map(|volume| async move { self.take_claimed(&volume).await }).collect();
            stream::iter(takes).buffer_unordered(MAX_CONCURRENT_SNAPSHOTS).try_collect::<()>().await?;
        }
        self.delete_orphans().await
    }

    async fn take_claimed(&self, volume: &Value) -> Result<(), Error> {
        let (namespace, name) = (text(volume, "/spec/claimRef/namespace"), text(volume, "/spec/claimRef/name"));
        let claim = match name {
            "" => None,
            name => self.read("persistentvolumeclaims", Some(namespace), name).await?,
        };
        self.back_up_volume(volume, claim.as_ref()).await
    }

    /// Takes a snapshot of one volume, if it is requested and a volume snapshotter supports it.
    async fn back_up_volume(&self, volume: &Value, claim: Option<&Value>) -> Result<(), Error> {
        let name = text(volume, "/metadata/name").to_owned();
        if !self.state().processed.insert(name.clone()) {
            return Ok(());
        }
        let claim_info = ClaimInfo::of_volume(volume);
        let policies = self.policies.as_ref().filter(|policies| policies.has_volume_policies());
        let policy =
            policies.and_then(|policies| policies.action(&VolumeProperties::of_persistent_volume(volume, claim)));
        let explicit = match snapshot_choice(self.wanted, policy.map(|action| action.kind)) {
            SnapshotChoice::Take { explicit } => explicit,
            SnapshotChoice::Leave => return Ok(()),
            SnapshotChoice::Skip => {
                self.state().infos.push(skipped(&claim_info, "skipped due to policy"));
                return Ok(());
            }
        };
        let Some(candidate) = self.find_plugin(volume, explicit).await? else {
            if explicit {
                let line = format!("no snapshot of volume {name}: no plugin of a VolumeSnapshotLocation supports it");
                self.warn(&claim_info.namespace, line);
            }
            return Ok(());
        };
        match self.snapshot(&name, volume, &candidate, &claim_info).await {
            Ok(()) => Ok(()),
            Err(error @ Error::Plugin { .. }) => {
                self.error(&claim_info.namespace, format!("snapshot of volume {name}: {error}"));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
