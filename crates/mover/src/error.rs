//! What can go wrong with a transfer. The errors cross a process boundary, so they are plain data.

use plimsoll_repository::RepositoryError;
use plimsoll_store::StoreError;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// The result of anything a mover does.
pub type Result<T, E = MoverError> = std::result::Result<T, E>;

/// Why a mover could not do what it was asked to. No variant ever holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum MoverError {
    /// Somebody asked to stop.
    #[error("cancelled")]
    Cancelled,
    /// The program is not installed.
    #[error("{program} is not installed where the mover runs: {cause}")]
    MissingProgram {
        /// What was looked for.
        program: String,
        /// What the system said.
        cause: String,
    },
    /// The program is older than what can be used.
    #[error("{program} {version} is too old: {least} or later is needed")]
    ProgramTooOld {
        /// Which program.
        program: String,
        /// The version found.
        version: String,
        /// The oldest one that can be used.
        least: String,
    },
    /// The program can be used, but not for this repository.
    #[error(
        "{program} {version} cannot read {repository}, a repository of version {format}: install {program} {least} or later \
         where the mover runs, or let the built-in mover do it (--uploader-type built-in)"
    )]
    ProgramOlderThanRepository {
        /// Which program.
        program: String,
        /// The version found.
        version: String,
        /// The oldest one that reads it.
        least: String,
        /// Where it is.
        repository: String,
        /// The version of its format.
        format: u32,
    },
    /// The location cannot be used as it is.
    #[error("the repository's location is not usable: {cause}")]
    InvalidLocation {
        /// Which setting, and why.
        cause: String,
    },
    /// There is no repository.
    #[error("there is no repository in {repository}")]
    NoRepository {
        /// Where it should be.
        repository: String,
    },
    /// The password is not the repository's.
    #[error("the Secret's password does not open repository {repository}")]
    WrongPassword {
        /// Where it is.
        repository: String,
    },
    /// Somebody else works on the repository.
    #[error("repository {repository} is locked: {holder}")]
    Locked {
        /// Where it is.
        repository: String,
        /// Who holds the lock, as far as it is known.
        holder: String,
    },
    /// The store behind the repository does not answer.
    #[error("repository {repository} cannot be reached: {cause}")]
    Unreachable {
        /// Where it is.
        repository: String,
        /// What the store or the system said.
        cause: String,
    },
    /// The store behind the repository refuses the credentials.
    #[error("repository {repository} refuses the credentials: {cause}")]
    Refused {
        /// Where it is.
        repository: String,
        /// What the store said.
        cause: String,
    },
    /// The store behind the repository is full.
    #[error("no space is left for repository {repository}")]
    RepositoryFull {
        /// Where it is.
        repository: String,
    },
    /// The repository is not what it must be.
    #[error("repository {repository} is damaged: {cause}")]
    Damaged {
        /// Where it is.
        repository: String,
        /// How it shows.
        cause: String,
    },
    /// The repository is of a kind that the built-in engine cannot work on.
    #[error(
        "the built-in mover cannot use repository {repository} like this: {cause}; or let restic move the volumes \
         (--uploader-type restic)"
    )]
    Unsupported {
        /// Where it is.
        repository: String,
        /// What it cannot, and what may be done about it.
        cause: String,
    },
    /// Two were made at the same place at the same time.
    #[error(
        "{repository} was initialised twice at the same time ({found}): nothing was written; remove it, unless another \
         cluster has begun to use it, and try again"
    )]
    InitialisedTwice {
        /// Where it is.
        repository: String,
        /// What was found.
        found: String,
    },
    /// An initialisation has begun and not ended.
    #[error("{repository} holds keys but no config: another initialisation is at work, or was interrupted {age} s ago")]
    HalfInitialised {
        /// Where it is.
        repository: String,
        /// How old the newest key is.
        age: u64,
    },
    /// The repository has no such snapshot.
    #[error("there is no snapshot {snapshot} in repository {repository}")]
    NoSnapshot {
        /// What was asked for.
        snapshot: String,
        /// Where it should be.
        repository: String,
    },
    /// The volume cannot be used.
    #[error("volume {path} cannot be used: {cause}")]
    Volume {
        /// Its directory.
        path: String,
        /// What the system said.
        cause: String,
    },
    /// The volume that is restored into is full.
    #[error("no space is left in volume {path}")]
    VolumeFull {
        /// Its directory.
        path: String,
    },
    /// The program failed for a reason that has no name of its own.
    #[error("{program} failed ({how}): {message}")]
    ProgramFailed {
        /// Which program.
        program: String,
        /// Its exit code or signal.
        how: String,
        /// Its last words.
        message: String,
    },
    /// The program said something that cannot be understood.
    #[error("{program} answered what cannot be understood: {answer}")]
    Answer {
        /// Which program.
        program: String,
        /// The answer, cut.
        answer: String,
    },
    /// The job cannot be carried out as it is written.
    #[error("the mover's job is not usable: {cause}")]
    InvalidJob {
        /// What is wrong with it.
        cause: String,
    },
    /// A file, a pipe or a process of this machine.
    #[error("{what}: {cause}")]
    Local {
        /// What was tried.
        what: String,
        /// What the system said.
        cause: String,
    },
    /// The mover's process ended without a verdict.
    #[error("the mover's process ended without a verdict ({how}): {last}")]
    Died {
        /// Its exit code or signal.
        how: String,
        /// The last line of its log.
        last: String,
    },
    /// The mover's process wrote something that is neither a frame nor a verdict.
    #[error("the mover's process wrote what is neither a frame nor a verdict: {line:?}")]
    Garbage {
        /// The line, cut.
        line: String,
    },
}

impl MoverError {
    /// A stable word for conditions, metric labels and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Cancelled => "Cancelled",
            Self::MissingProgram { .. } => "MoverProgramMissing",
            Self::ProgramTooOld { .. } | Self::ProgramOlderThanRepository { .. } => "MoverProgramTooOld",
            Self::InvalidLocation { .. } => "InvalidStorageLocation",
            Self::NoRepository { .. } => "NotARepository",
            Self::WrongPassword { .. } => "WrongRepositoryPassword",
            Self::Locked { .. } => "RepositoryLocked",
            Self::Unreachable { .. } => "RepositoryUnreachable",
            Self::Refused { .. } => "RepositoryCredentialsRejected",
            Self::RepositoryFull { .. } => "RepositoryFull",
            Self::Damaged { .. } => "RepositoryDamaged",
            Self::Unsupported { .. } => "UnsupportedRepository",
            Self::InitialisedTwice { .. } => "RepositoryInitialisedTwice",
            Self::HalfInitialised { .. } => "RepositoryHalfInitialised",
            Self::NoSnapshot { .. } => "SnapshotNotFound",
            Self::Volume { .. } => "VolumeUnusable",
            Self::VolumeFull { .. } => "VolumeFull",
            Self::ProgramFailed { .. } => "MoverProgramFailed",
            Self::Answer { .. } => "MoverProgramAnswer",
            Self::InvalidJob { .. } => "InvalidMoverJob",
            Self::Local { .. } => "LocalFailure",
            Self::Died { .. } => "MoverDied",
            Self::Garbage { .. } => "MoverGarbage",
        }
    }

    /// Whether the same job may succeed later without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Locked { .. } | Self::Unreachable { .. } | Self::HalfInitialised { .. } | Self::Died { .. }
        )
    }

    pub(crate) fn local(what: impl Into<String>, cause: &impl ToString) -> Self {
        Self::Local { what: what.into(), cause: cause.to_string() }
    }

    /// A store's error, about the repository called `name`.
    pub(crate) fn of_store(error: &StoreError, name: &str) -> Self {
        let (repository, cause) = (name.to_owned(), error.to_string());
        match error {
            StoreError::InvalidLocation { .. } | StoreError::InvalidKey { .. } | StoreError::Unsupported { .. } => {
                Self::InvalidLocation { cause }
            }
            StoreError::Unauthenticated { .. } | StoreError::PermissionDenied { .. } => {
                Self::Refused { repository, cause }
            }
            StoreError::NoSpace { .. } => Self::RepositoryFull { repository },
            StoreError::NotFound { .. } => Self::NoRepository { repository },
            _ => Self::Unreachable { repository, cause },
        }
    }

    /// The engine's error, about the repository called `name`.
    pub(crate) fn of_engine(error: &RepositoryError, name: &str) -> Self {
        let (repository, cause) = (name.to_owned(), error.to_string());
        match error {
            RepositoryError::Cancelled => Self::Cancelled,
            RepositoryError::NotARepository { .. } => Self::NoRepository { repository },
            RepositoryError::WrongPassword { .. } => Self::WrongPassword { repository },
            RepositoryError::Locked { holder, .. } => Self::Locked { repository, holder: holder.clone() },
            RepositoryError::NoSuchSnapshot { name: snapshot, .. } => {
                Self::NoSnapshot { snapshot: snapshot.clone(), repository }
            }
            RepositoryError::AmbiguousSnapshot { .. } | RepositoryError::NoSuchPath { .. } => {
                Self::InvalidJob { cause }
            }
            RepositoryError::Unsupported { cause, .. } => Self::Unsupported { repository, cause: cause.clone() },
            RepositoryError::NothingToBackUp { paths } => {
                Self::Volume { path: paths.clone(), cause: "nothing in it can be read".into() }
            }
            RepositoryError::Local { path, cause } if is_full(cause) => Self::VolumeFull { path: path.clone() },
            RepositoryError::Local { path, cause } => Self::Volume { path: path.clone(), cause: cause.clone() },
            RepositoryError::Store(error) => Self::of_store(error, name),
            RepositoryError::LockLost { .. } => Self::Unreachable { repository, cause },
            _ => Self::Damaged { repository, cause },
        }
    }
}

/// Whether this is what the system says when nothing more can be written: there is no room, or somebody's quota is used up.
pub(crate) fn is_full(cause: &str) -> bool {
    [Errno::NOSPC, Errno::DQUOT].iter().any(|error| cause.contains(&format!("(os error {})", error.raw_os_error())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_damage_is_called_damage() {
        let text = String::from;
        for (error, reason) in [
            (RepositoryError::Corrupt { what: text("index"), cause: text("its seal is broken") }, "RepositoryDamaged"),
            (RepositoryError::Unsupported { location: text("r"), cause: text("version 3") }, "UnsupportedRepository"),
            (RepositoryError::AmbiguousSnapshot { name: text("ab") }, "InvalidMoverJob"),
            (RepositoryError::NoSuchPath { path: text("/a") }, "InvalidMoverJob"),
            (RepositoryError::NothingToBackUp { paths: text("/v") }, "VolumeUnusable"),
        ] {
            let error = MoverError::of_engine(&error, "r");
            assert_eq!((error.reason(), error.is_retryable()), (reason, false), "{error}");
        }
    }

    #[test]
    fn a_quota_that_is_used_up_is_a_full_volume_like_a_full_disk() {
        let reason = |number: i32| {
            let cause = format!("write: {}", std::io::Error::from_raw_os_error(number));
            MoverError::of_engine(&RepositoryError::Local { path: "/v".into(), cause }, "r").reason()
        };
        assert_eq!([28, 122, 5, 128].map(reason), ["VolumeFull", "VolumeFull", "VolumeUnusable", "VolumeUnusable"]);
    }
}
