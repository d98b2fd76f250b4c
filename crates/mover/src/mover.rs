//! The trait of all movers, and the session of a job.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_progress::Task;
use plimsoll_repository::MemoryLimit;

use crate::job::{Backup, Job, Maintenance, MoverKind, Repository, Restore, Verify};
use crate::outcome::{
    BackupOutcome, EnsureOutcome, LockInfo, MaintenanceOutcome, RestoreOutcome, SnapshotInfo, VerifyOutcome,
};
use crate::private_directory::PrivateDirectory;
use crate::{Cancel, MoverError, Result, sandbox};

/// What a restore preserves besides contents, modes, owners, file times and symbolic links, which every mover preserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent properties")]
pub struct Fidelity {
    /// Hard links.
    pub hard_links: bool,
    /// Extended attributes.
    pub attributes: bool,
    /// Named pipes and devices.
    pub special_files: bool,
    /// Names that are not UTF-8.
    pub any_name: bool,
    /// The times of directories. Without it they have the time of the newest file inside.
    pub directory_times: bool,
    /// Snapshots of empty volumes.
    pub empty_snapshots: bool,
}

impl Fidelity {
    /// What a restic repository preserves. It has no snapshots without files: restic fails with "snapshot is empty".
    pub(crate) const OF_RESTIC_FORMAT: Self = Self {
        hard_links: true,
        attributes: true,
        special_files: true,
        any_name: true,
        directory_times: true,
        empty_snapshots: false,
    };
}

/// Moves a volume's data into a repository and back.
///
/// The calls block, and report to the session's task: the meters Bytes and Files, and the current item. The task is the
/// caller's to end.
///
/// # Cancel safety
/// After `Session::cancel` was set a call returns [`MoverError::Cancelled`] within five seconds. Stored data stays and is
/// used by the next backup; an interrupted restore is resumed by running it again.
pub trait Mover: std::fmt::Debug + Send + Sync {
    /// The kind of this mover.
    fn kind(&self) -> MoverKind;
    /// What a restore preserves.
    fn fidelity(&self) -> Fidelity;
    /// Backs up a directory.
    fn backup(&self, backup: &Backup, session: &Session) -> Result<BackupOutcome>;
    /// Restores a snapshot into a directory.
    fn restore(&self, restore: &Restore, session: &Session) -> Result<RestoreOutcome>;
    /// Opens the repository or initializes it. Requires the Lease.
    fn ensure(&self, session: &Session) -> Result<EnsureOutcome>;
    /// Lists all snapshots.
    fn snapshots(&self, session: &Session) -> Result<Vec<SnapshotInfo>>;
    /// Forgets these snapshots and no others. Succeeds for snapshots that do not exist.
    fn forget(&self, snapshots: &[String], session: &Session) -> Result<usize>;
    /// Frees the space that no snapshot uses.
    fn maintain(&self, maintenance: Maintenance, session: &Session) -> Result<MaintenanceOutcome>;
    /// Verifies snapshots. Damage is part of the outcome.
    fn verify(&self, verify: &Verify, session: &Session) -> Result<VerifyOutcome>;
    /// Lists all locks, if the format has locks.
    fn locks(&self, session: &Session) -> Result<Vec<LockInfo>>;
    /// Removes these locks.
    fn unlock(&self, locks: &[String], session: &Session) -> Result<usize>;
}

/// The mover of this kind.
pub fn mover(kind: MoverKind) -> Box<dyn Mover> {
    match kind {
        MoverKind::BuiltIn => Box::new(crate::builtin::BuiltIn),
        MoverKind::Restic => Box::new(crate::restic::Restic),
        MoverKind::Kopia => Box::new(crate::kopia::Kopia),
    }
}

/// The environment of a job: the repository, a task to report to, and a cancel flag.
#[derive(Debug)]
pub struct Session {
    pub(crate) repository: Repository,
    pub(crate) program: Option<PathBuf>,
    pub(crate) cache: Option<PathBuf>,
    pub(crate) interval: Duration,
    pub(crate) memory: MemoryLimit,
    /// The number of the attempt, from 1.
    pub(crate) attempt: u64,
    pub(crate) task: Task,
    pub(crate) cancel: Cancel,
    pub(crate) guard: Vec<OsString>,
    /// The paths that programs may write to; all if it is empty.
    pub(crate) writable_paths: Vec<PathBuf>,
    pub(crate) private: PrivateDirectory,
    pub(crate) scratch: PrivateDirectory,
}

impl Session {
    /// Creates a session for one job. `guard` is the command that starts a program guarded: see [`crate::guard`].
    pub fn new(job: &Job, task: Task, cancel: Cancel, guard: Vec<OsString>) -> Result<Self> {
        let (private, scratch) = (PrivateDirectory::in_memory()?, PrivateDirectory::on_disk()?);
        if let Some(cache) = &job.cache {
            // A sandboxed program cannot create it.
            let created = std::fs::create_dir_all(cache);
            created.map_err(|error| MoverError::local(format!("create directory {}", cache.display()), &error))?;
        }
        let writable_paths = sandbox::writable_paths(job, &[private.path().to_owned(), scratch.path().to_owned()]);
        Ok(Self {
            repository: repository_for(job.kind, job.repository.clone()),
            program: job.program.clone(),
            cache: job.cache.clone(),
            interval: job.interval(),
            attempt: job.epoch,
            memory: MemoryLimit { bytes: job.memory, operations: job.sharing },
            task,
            cancel,
            guard,
            writable_paths,
            private,
            scratch,
        })
    }

    /// The repository's name in messages.
    pub(crate) fn name(&self) -> String {
        self.repository.location.name()
    }

    pub(crate) fn check_cancel(&self) -> Result<()> {
        if self.cancel.is_cancelled() { Err(MoverError::Cancelled) } else { Ok(()) }
    }
}

/// The repository as this mover accesses it. Probes must use the same settings as the program.
fn repository_for(kind: MoverKind, repository: Repository) -> Repository {
    match kind {
        MoverKind::BuiltIn => repository,
        MoverKind::Restic | MoverKind::Kopia => {
            Repository { location: repository.location.without_customer_key(), password: repository.password }
        }
    }
}

/// Rejects a missing volume: every program reports that differently.
pub(crate) fn require_directory(path: &Path) -> Result<()> {
    let failed = |cause: String| MoverError::Volume { path: path.display().to_string(), cause };
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(failed("not a directory".into())),
        Err(error) => Err(failed(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Probe;
    use crate::{RepositoryLocation, Secret};

    #[test]
    fn only_the_built_in_mover_uses_the_customer_key() {
        let mut location =
            RepositoryLocation { provider: "aws".into(), bucket: "b".into(), ..RepositoryLocation::default() };
        location.config.insert("customerKeyEncryptionFile".into(), "/no/such/key".into());
        location.config.insert("region".into(), "eu-west-1".into());
        let opened = |kind| {
            let repository = Repository { location: location.clone(), password: Secret::new("p") };
            Probe::open(&repository_for(kind, repository).location).map(drop)
        };
        let error = opened(MoverKind::BuiltIn).expect_err("the key file is read");
        assert!(error.to_string().contains("/no/such/key"), "{error}");
        assert_eq!([MoverKind::Restic, MoverKind::Kopia].map(opened), [Ok(()), Ok(())]);
    }
}
