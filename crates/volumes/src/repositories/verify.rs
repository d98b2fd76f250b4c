//! Verifies the volume data of a backup: the snapshots that its files name, in their repositories.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_api::velero::v1::PodVolumeBackup;
use plimsoll_archive::layout;
use plimsoll_archive::volume_info::BackupVolumeInfo;
use plimsoll_engine::{Error, RetryPolicy, read_backup_list};
use plimsoll_mover::{Damage, MoverError, MoverKind, Outcome, SnapshotInfo, Verify, VerifyOutcome, Work};
use plimsoll_operations::CancellationToken;
use plimsoll_progress::Task;
use plimsoll_store::Store;
use serde::{Deserialize, Serialize};

use super::Repositories;
use super::access::{self, RepositoryKey, from_mover_error, repository_name};
use super::check::find_location;
use super::forget::by_repository;

/// The snapshots of a backup, by repository.
pub type BackupSnapshots = BTreeMap<RepositoryKey, Vec<String>>;

/// Something that is missing or damaged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Problem {
    /// What it is.
    pub text: String,
    /// The other backups that cannot be restored completely because of it, as far as their snapshots name them.
    pub also_affects: Vec<String>,
}

/// The result of verifying the volume data of a backup.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct VerifiedVolumes {
    /// The number of snapshots.
    pub snapshots: u64,
    /// The number of bytes that were read, as far as it is known.
    pub bytes_read: u64,
    /// What is missing or damaged.
    pub problems: Vec<Problem>,
    /// The number of all problems; only the first thousand of a repository are listed.
    pub problem_count: u64,
    /// Damage that affects no restore.
    pub warnings: Vec<String>,
}

/// The snapshots that a backup in a location needs for a restore.
pub async fn snapshots_of(store: &Store, location: &str, backup: &str) -> Result<BackupSnapshots, Error> {
    let transfers: Vec<PodVolumeBackup> = read_backup_list(store, &layout::backup_pod_volume_backups(backup)).await?;
    let volumes: Vec<BackupVolumeInfo> = read_backup_list(store, &layout::backup_volume_info(backup)).await?;
    let mut found = by_repository(&transfers, location);
    for volume in volumes {
        let Some(moved) = volume.snapshot.snapshot_data_movement_info else { continue };
        // Velero moves with kopia only.
        let kind = if moved.uploader_type == "restic" { MoverKind::BuiltIn } else { MoverKind::Kopia };
        let key = RepositoryKey::new(volume.volume.pvc_namespace, location, kind);
        if !moved.snapshot_handle.is_empty() {
            found.entry(key).or_default().push(moved.snapshot_handle);
        }
    }
    Ok(found)
}

/// Verifies snapshots of a backup, and reads this percentage of their data. Damage is part of the result.
pub async fn verify_snapshots(
    repositories: &Repositories,
    backup: &str,
    snapshots: BackupSnapshots,
    percent: u8,
    task: &Task,
    cancel: &CancellationToken,
) -> Result<VerifiedVolumes, Error> {
    let mut verified = VerifiedVolumes::default();
    for (key, ids) in snapshots {
        let name = repository_name(&key);
        let step = task.child(format!("repository {name}"));
        verified.snapshots += ids.len() as u64;
        let run = || verify_in(repositories, &key, &ids, percent, &step, cancel);
        if let Some(outcome) = RetryPolicy::default().run(&step, run).await? {
            let owners = owners(repositories, &key, &outcome.damage, &step, cancel).await;
            verified.add(&name, backup, outcome, &owners);
        } else {
            let text = format!("repository {name} not found, with {} snapshots of this backup", ids.len());
            verified.problems.push(Problem { text, also_affects: Vec::new() });
            verified.problem_count += 1;
        }
        step.finish();
    }
    Ok(verified)
}

impl VerifiedVolumes {
    /// Adds the result of a repository. Damage that no verified snapshot needs is not in it.
    fn add(&mut self, repository: &str, backup: &str, outcome: VerifyOutcome, owners: &BTreeMap<String, String>) {
        self.bytes_read += outcome.bytes_read.unwrap_or(0);
        self.problem_count += outcome.damage_count;
        self.warnings.extend(outcome.warnings.into_iter().map(|text| format!("repository {repository}: {text}")));
        self.problems.extend(outcome.damage.into_iter().map(|damage| {
            let affected: BTreeSet<&String> = damage.snapshots.iter().filter_map(|id| owners.get(id)).collect();
            let others = affected.into_iter().filter(|owner| *owner != backup).cloned();
            Problem { text: format!("repository {repository}: {}", damage.text), also_affects: others.collect() }
        }));
    }
}

/// Verifies snapshots of one repository. `None` if there is no such repository.
async fn verify_in(
    repositories: &Repositories,
    key: &RepositoryKey,
    ids: &[String],
    percent: u8,
    task: &Task,
    cancel: &CancellationToken,
) -> Result<Option<VerifyOutcome>, Error> {
    let work = Work::Verify(Verify { snapshots: ids.to_vec(), percent });
    match run(repositories, key, work, task, cancel).await {
        Ok(Outcome::Verified(outcome)) => Ok(Some(outcome)),
        Ok(_) | Err(RunError::Mover(MoverError::RepositoryNotFound { .. })) => Ok(None),
        Err(RunError::Mover(error)) => Err(from_mover_error(&error)),
        Err(RunError::Other(error)) => Err(error),
    }
}

/// The backups that the snapshots of a repository belong to. Best effort: it only names further backups.
async fn owners(
    repositories: &Repositories,
    key: &RepositoryKey,
    damage: &[Damage],
    task: &Task,
    cancel: &CancellationToken,
) -> BTreeMap<String, String> {
    if damage.is_empty() {
        return BTreeMap::new();
    }
    let owner = |snapshot: SnapshotInfo| Some((snapshot.id, snapshot.tags.get("backup")?.clone()));
    match run(repositories, key, Work::Snapshots, task, cancel).await {
        Ok(Outcome::Snapshots(snapshots)) => snapshots.into_iter().filter_map(owner).collect(),
        _ => BTreeMap::new(),
    }
}

enum RunError {
    Mover(MoverError),
    Other(Error),
}

async fn run(
    repositories: &Repositories,
    key: &RepositoryKey,
    work: Work,
    task: &Task,
    cancel: &CancellationToken,
) -> Result<Outcome, RunError> {
    let leader = &repositories.leader;
    let location = find_location(repositories, &key.location).await.map_err(RunError::Other)?;
    let opened = access::open(&leader.client, &leader.namespace, &location, key).await.map_err(RunError::Other)?;
    repositories.run_long_mover(key, opened, work, task, cancel).await.map_err(RunError::Mover)
}
