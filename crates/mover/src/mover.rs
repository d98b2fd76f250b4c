//! The one trait, and what every mover gets to work with.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_progress::Task;

use crate::job::{Backup, Job, Kind, Repository, Restore};
use crate::outcome::{BackupOutcome, Ensured, LockInfo, RestoreOutcome, SnapshotInfo};
use crate::private::PrivateDirectory;
use crate::{Cancel, MoverError, Result, confine};

/// What a restore brings back beside contents, modes, owners, times of files and symbolic links, which every mover keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own that a user may ask")]
pub struct Fidelity {
    /// Two names of one file stay two names of one file.
    pub hard_links: bool,
    /// Extended attributes.
    pub attributes: bool,
    /// Named pipes and devices.
    pub special_files: bool,
    /// Names that are not UTF-8.
    pub any_name: bool,
    /// The times of directories; without it they are as new as the newest file inside.
    pub directory_times: bool,
    /// A volume without files becomes a snapshot.
    pub empty_snapshots: bool,
}

/// Moves a volume's data into a repository and back.
///
/// The calls block, and report to the session's task: the meters Bytes and Files, and the current item. The task is the
/// caller's to end.
///
/// # Cancel safety
/// After `Session::cancel` was raised a call returns [`MoverError::Cancelled`] within five seconds. What was stored stays
/// and is used by the next backup; a restore is taken up by doing it again.
pub trait Mover: std::fmt::Debug + Send + Sync {
    /// Which one it is.
    fn kind(&self) -> Kind;
    /// What it keeps.
    fn fidelity(&self) -> Fidelity;
    /// Backs up a directory.
    fn backup(&self, backup: &Backup, session: &Session) -> Result<BackupOutcome>;
    /// Restores a snapshot into a directory.
    fn restore(&self, restore: &Restore, session: &Session) -> Result<RestoreOutcome>;
    /// Opens the repository, or makes it. Only under the Lease.
    fn ensure(&self, session: &Session) -> Result<Ensured>;
    /// All snapshots.
    fn snapshots(&self, session: &Session) -> Result<Vec<SnapshotInfo>>;
    /// Forgets these snapshots and no others. One that is gone already is no error.
    fn forget(&self, snapshots: &[String], session: &Session) -> Result<usize>;
    /// All locks, where the format has any.
    fn locks(&self, session: &Session) -> Result<Vec<LockInfo>>;
    /// Removes these locks.
    fn unlock(&self, locks: &[String], session: &Session) -> Result<usize>;
}

/// The mover of this kind.
pub fn mover(kind: Kind) -> Box<dyn Mover> {
    match kind {
        Kind::BuiltIn => Box::new(crate::builtin::BuiltIn),
        Kind::Restic => Box::new(crate::restic::Restic),
        Kind::Kopia => Box::new(crate::kopia::Kopia),
    }
}

/// What a mover works with: the repository, a task to report to, and a way to be stopped.
#[derive(Debug)]
pub struct Session {
    pub(crate) repository: Repository,
    pub(crate) program: Option<PathBuf>,
    pub(crate) cache: Option<PathBuf>,
    pub(crate) interval: Duration,
    pub(crate) task: Task,
    pub(crate) cancel: Cancel,
    pub(crate) guard: Vec<OsString>,
    /// Where programs may write; everywhere if it is empty.
    pub(crate) writes: Vec<PathBuf>,
    pub(crate) private: PrivateDirectory,
    pub(crate) scratch: PrivateDirectory,
}

impl Session {
    /// A session for one job. `guard` is the command that starts a program guarded: see [`crate::guard`].
    pub fn new(job: &Job, task: Task, cancel: Cancel, guard: Vec<OsString>) -> Result<Self> {
        let (private, scratch) = (PrivateDirectory::in_memory()?, PrivateDirectory::on_disk()?);
        if let Some(cache) = &job.cache {
            // Somebody who may write only where something is cannot make it.
            let made = std::fs::create_dir_all(cache);
            made.map_err(|error| MoverError::local(format!("make {}", cache.display()), &error))?;
        }
        let writes = confine::places(job, &[private.path().to_owned(), scratch.path().to_owned()]);
        Ok(Self {
            repository: seen_by(job.kind, job.repository.clone()),
            program: job.program.clone(),
            cache: job.cache.clone(),
            interval: job.interval(),
            task,
            cancel,
            guard,
            writes,
            private,
            scratch,
        })
    }

    /// How messages call the repository.
    pub(crate) fn name(&self) -> String {
        self.repository.place.name()
    }

    pub(crate) fn check_cancel(&self) -> Result<()> {
        if self.cancel.is_cancelled() { Err(MoverError::Cancelled) } else { Ok(()) }
    }
}

/// A repository as the one who moves the data sees it: whoever looks at it beside a program must look in the same way.
fn seen_by(kind: Kind, repository: Repository) -> Repository {
    match kind {
        Kind::BuiltIn => repository,
        Kind::Restic | Kind::Kopia => {
            Repository { place: repository.place.without_customer_key(), password: repository.password }
        }
    }
}

/// Refuses a volume that is not there: its program would say so in many ways.
pub(crate) fn require_directory(path: &Path) -> Result<()> {
    let unusable = |cause: String| MoverError::Volume { path: path.display().to_string(), cause };
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(unusable("it is not a directory".into())),
        Err(error) => Err(unusable(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Probe;
    use crate::{Place, Secret};

    #[test]
    fn only_the_built_in_mover_looks_at_a_store_with_the_customers_own_key() {
        let mut place = Place { provider: "aws".into(), bucket: "b".into(), ..Place::default() };
        place.config.insert("customerKeyEncryptionFile".into(), "/no/such/key".into());
        place.config.insert("region".into(), "eu-west-1".into());
        let opened = |kind| {
            let repository = Repository { place: place.clone(), password: Secret::new("p") };
            Probe::open(&seen_by(kind, repository).place).map(drop)
        };
        let error = opened(Kind::BuiltIn).expect_err("the key is asked for");
        assert!(error.to_string().contains("/no/such/key"), "{error}");
        assert_eq!([Kind::Restic, Kind::Kopia].map(opened), [Ok(()), Ok(())]);
    }
}
