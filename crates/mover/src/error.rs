//! Errors of a mover. They cross a process boundary, so they are plain data.

use plimsoll_repository::RepositoryError;
use plimsoll_store::StoreError;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// The result of a mover operation.
pub type Result<T, E = MoverError> = std::result::Result<T, E>;

/// An error of a mover. No variant contains a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum MoverError {
    /// The job was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The program is not installed.
    #[error("program {program} not found: {cause}")]
    ProgramNotFound {
        /// The program's name.
        program: String,
        /// The system's error.
        cause: String,
    },
    /// The program is older than the oldest supported version.
    #[error("{program} {version} is too old: {minimum} or later is required")]
    ProgramTooOld {
        /// The program's name.
        program: String,
        /// The installed version.
        version: String,
        /// The oldest supported version.
        minimum: String,
    },
    /// The program is supported but cannot read this repository.
    #[error(
        "{program} {version} cannot read repository {repository} of format version {format}: install {program} {minimum} or \
         later, or use the built-in mover (--uploader-type built-in)"
    )]
    ProgramOlderThanRepository {
        /// The program's name.
        program: String,
        /// The installed version.
        version: String,
        /// The oldest version that can read the repository.
        minimum: String,
        /// The repository's location.
        repository: String,
        /// The repository's format version.
        format: u32,
    },
    /// The settings of the location are invalid.
    #[error("invalid repository location: {cause}")]
    InvalidLocation {
        /// Which setting, and why.
        cause: String,
    },
    /// There is no repository at the location.
    #[error("repository {repository} not found")]
    RepositoryNotFound {
        /// The repository's location.
        repository: String,
    },
    /// The password does not open the repository.
    #[error("failed to open repository {repository}: wrong password in the Secret")]
    WrongPassword {
        /// The repository's location.
        repository: String,
    },
    /// Another process holds a conflicting lock.
    #[error("repository {repository} is locked: {holder}")]
    Locked {
        /// The repository's location.
        repository: String,
        /// The lock's holder, if it is known.
        holder: String,
    },
    /// The store of the repository does not respond.
    #[error("repository {repository} is unreachable: {cause}")]
    Unreachable {
        /// The repository's location.
        repository: String,
        /// The error of the store or the system.
        cause: String,
    },
    /// The store of the repository rejects the credentials.
    #[error("credentials rejected for repository {repository}: {cause}")]
    CredentialsRejected {
        /// The repository's location.
        repository: String,
        /// The store's error.
        cause: String,
    },
    /// The store of the repository is full.
    #[error("failed to write to repository {repository}: no space left")]
    RepositoryFull {
        /// The repository's location.
        repository: String,
    },
    /// The content of the repository is invalid.
    #[error("repository {repository} is damaged: {cause}")]
    Damaged {
        /// The repository's location.
        repository: String,
        /// What is invalid.
        cause: String,
    },
    /// The built-in engine does not support the repository.
    #[error(
        "repository {repository} is not supported by the built-in mover: {cause}; or use restic (--uploader-type restic)"
    )]
    Unsupported {
        /// The repository's location.
        repository: String,
        /// What is not supported, and how to change it.
        cause: String,
    },
    /// Two initializations of the repository ran at the same time.
    #[error(
        "repository {repository} was initialized twice at the same time ({found}); nothing was written: remove it, unless \
         another cluster uses it, and retry"
    )]
    InitConflict {
        /// The repository's location.
        repository: String,
        /// What was found.
        found: String,
    },
    /// An initialization has started and not finished.
    #[error(
        "repository {repository} has keys but no config: another initialization is running or was interrupted {age} s ago"
    )]
    InitIncomplete {
        /// The repository's location.
        repository: String,
        /// The age of the newest key in seconds.
        age: u64,
    },
    /// The repository has no such snapshot.
    #[error("snapshot {snapshot} not found in repository {repository}")]
    SnapshotNotFound {
        /// The requested snapshot.
        snapshot: String,
        /// The repository's location.
        repository: String,
    },
    /// The volume cannot be read or written.
    #[error("failed to access volume {path}: {cause}")]
    Volume {
        /// Its directory.
        path: String,
        /// The system's error.
        cause: String,
    },
    /// The target volume of a restore is full.
    #[error("failed to write to volume {path}: no space left")]
    VolumeFull {
        /// Its directory.
        path: String,
    },
    /// The program failed with an error that has no variant of its own.
    #[error("{program} failed ({status}): {message}")]
    ProgramFailed {
        /// The program's name.
        program: String,
        /// Its exit code or signal.
        status: String,
        /// The end of its standard error.
        message: String,
    },
    /// The program's output cannot be parsed.
    #[error("unexpected output from {program}: {output}")]
    UnexpectedOutput {
        /// The program's name.
        program: String,
        /// The output, truncated.
        output: String,
    },
    /// The job is invalid.
    #[error("invalid mover job: {cause}")]
    InvalidJob {
        /// What is wrong with it.
        cause: String,
    },
    /// An operation on a local file, pipe or process failed.
    #[error("failed to {action}: {cause}")]
    Local {
        /// The operation, in the infinitive.
        action: String,
        /// The system's error.
        cause: String,
    },
    /// The mover process exited without a result.
    #[error("mover process exited without a result ({status}): {last_log_line}")]
    ProcessDied {
        /// Its exit code or signal.
        status: String,
        /// The last line of its log.
        last_log_line: String,
    },
    /// The mover process wrote a line that is neither a frame nor a result.
    #[error("mover protocol error: unexpected line {line:?}")]
    Protocol {
        /// The line, truncated.
        line: String,
    },
}

impl MoverError {
    /// A stable reason for conditions, metric labels and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Cancelled => "Cancelled",
            Self::ProgramNotFound { .. } => "MoverProgramMissing",
            Self::ProgramTooOld { .. } | Self::ProgramOlderThanRepository { .. } => "MoverProgramTooOld",
            Self::InvalidLocation { .. } => "InvalidStorageLocation",
            Self::RepositoryNotFound { .. } => "RepositoryNotFound",
            Self::WrongPassword { .. } => "WrongRepositoryPassword",
            Self::Locked { .. } => "RepositoryLocked",
            Self::Unreachable { .. } => "RepositoryUnreachable",
            Self::CredentialsRejected { .. } => "RepositoryCredentialsRejected",
            Self::RepositoryFull { .. } => "RepositoryFull",
            Self::Damaged { .. } => "RepositoryDamaged",
            Self::Unsupported { .. } => "UnsupportedRepository",
            Self::InitConflict { .. } => "RepositoryInitConflict",
            Self::InitIncomplete { .. } => "RepositoryInitIncomplete",
            Self::SnapshotNotFound { .. } => "SnapshotNotFound",
            Self::Volume { .. } => "VolumeUnusable",
            Self::VolumeFull { .. } => "VolumeFull",
            Self::ProgramFailed { .. } => "MoverProgramFailed",
            Self::UnexpectedOutput { .. } => "MoverProgramOutputInvalid",
            Self::InvalidJob { .. } => "InvalidMoverJob",
            Self::Local { .. } => "LocalFailure",
            Self::ProcessDied { .. } => "MoverDied",
            Self::Protocol { .. } => "MoverProtocolError",
        }
    }

    /// Whether the same job may succeed later without a change of the configuration.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Locked { .. } | Self::Unreachable { .. } | Self::InitIncomplete { .. } | Self::ProcessDied { .. }
        )
    }

    pub(crate) fn local(action: impl Into<String>, cause: &impl ToString) -> Self {
        Self::Local { action: action.into(), cause: cause.to_string() }
    }

    /// Converts a store's error. `name` identifies the repository.
    pub(crate) fn from_store(error: &StoreError, name: &str) -> Self {
        let (repository, cause) = (name.to_owned(), error.to_string());
        match error {
            StoreError::InvalidLocation { .. } | StoreError::InvalidKey { .. } | StoreError::Unsupported { .. } => {
                Self::InvalidLocation { cause }
            }
            StoreError::Unauthenticated { .. } | StoreError::PermissionDenied { .. } => {
                Self::CredentialsRejected { repository, cause }
            }
            StoreError::NoSpace { .. } => Self::RepositoryFull { repository },
            StoreError::NotFound { .. } => Self::RepositoryNotFound { repository },
            _ => Self::Unreachable { repository, cause },
        }
    }

    /// Converts an error of the built-in engine. `name` identifies the repository.
    pub(crate) fn from_repository(error: &RepositoryError, name: &str) -> Self {
        let (repository, cause) = (name.to_owned(), error.to_string());
        match error {
            RepositoryError::Cancelled => Self::Cancelled,
            RepositoryError::NotFound { .. } => Self::RepositoryNotFound { repository },
            RepositoryError::WrongPassword { .. } => Self::WrongPassword { repository },
            RepositoryError::Locked { holder, .. } => Self::Locked { repository, holder: holder.clone() },
            RepositoryError::SnapshotNotFound { name: snapshot, .. } => {
                Self::SnapshotNotFound { snapshot: snapshot.clone(), repository }
            }
            RepositoryError::AmbiguousSnapshot { .. } | RepositoryError::PathNotFound { .. } => {
                Self::InvalidJob { cause }
            }
            RepositoryError::Unsupported { cause, .. } => Self::Unsupported { repository, cause: cause.clone() },
            RepositoryError::NothingToBackUp { paths } => {
                Self::Volume { path: paths.clone(), cause: "no file in it can be read".into() }
            }
            RepositoryError::Local { path, cause } if is_full(cause) => Self::VolumeFull { path: path.clone() },
            RepositoryError::Local { path, cause } => Self::Volume { path: path.clone(), cause: cause.clone() },
            RepositoryError::Store(error) => Self::from_store(error, name),
            RepositoryError::LockLost { .. } => Self::Unreachable { repository, cause },
            _ => Self::Damaged { repository, cause },
        }
    }
}

/// Whether a system error text means that no space is left: the disk is full or a quota is exhausted.
pub(crate) fn is_full(cause: &str) -> bool {
    [Errno::NOSPC, Errno::DQUOT].iter().any(|error| cause.contains(&format!("(os error {})", error.raw_os_error())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_corruption_is_reported_as_damage() {
        let text = String::from;
        for (error, reason) in [
            (
                RepositoryError::Corrupt { what: text("index"), cause: text("MAC verification failed") },
                "RepositoryDamaged",
            ),
            (RepositoryError::Unsupported { location: text("r"), cause: text("version 3") }, "UnsupportedRepository"),
            (RepositoryError::AmbiguousSnapshot { name: text("ab") }, "InvalidMoverJob"),
            (RepositoryError::PathNotFound { path: text("/a") }, "InvalidMoverJob"),
            (RepositoryError::NothingToBackUp { paths: text("/v") }, "VolumeUnusable"),
        ] {
            let error = MoverError::from_repository(&error, "r");
            assert_eq!((error.reason(), error.is_retryable()), (reason, false), "{error}");
        }
    }

    #[test]
    fn an_exhausted_quota_is_a_full_volume() {
        let reason = |number: i32| {
            let cause = format!("write: {}", std::io::Error::from_raw_os_error(number));
            MoverError::from_repository(&RepositoryError::Local { path: "/v".into(), cause }, "r").reason()
        };
        assert_eq!([28, 122, 5, 128].map(reason), ["VolumeFull", "VolumeFull", "VolumeUnusable", "VolumeUnusable"]);
    }
}
