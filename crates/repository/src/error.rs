//! Errors of a repository.

use plimsoll_store::StoreError;

/// The result of a repository operation.
pub type Result<T, E = RepositoryError> = std::result::Result<T, E>;

/// An error of a repository operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepositoryError {
    /// There is no repository at the location.
    #[error("repository not found in {location}")]
    NotFound {
        /// The store's name.
        location: String,
    },
    /// The location already has a repository.
    #[error("failed to initialize a repository in {location}: it already has one")]
    AlreadyInitialized {
        /// The store's name.
        location: String,
    },
    /// The password matches no key file of the repository.
    #[error("failed to open the repository in {location}: wrong password")]
    WrongPassword {
        /// The store's name.
        location: String,
    },
    /// The engine does not support the repository.
    #[error("unsupported repository in {location}: {cause}")]
    Unsupported {
        /// The store's name.
        location: String,
        /// What is not supported.
        cause: String,
    },
    /// A file or blob of the repository is damaged.
    #[error("{what} is damaged: {cause}")]
    Corrupt {
        /// The file or blob.
        what: String,
        /// What is wrong with it.
        cause: String,
    },
    /// No snapshot matches.
    #[error("snapshot {name:?} not found in {location}")]
    SnapshotNotFound {
        /// The requested ID.
        name: String,
        /// The store's name.
        location: String,
    },
    /// More than one snapshot has this prefix.
    #[error("ambiguous snapshot ID {name:?}: it matches more than one snapshot")]
    AmbiguousSnapshot {
        /// The requested ID.
        name: String,
    },
    /// The snapshot has no such file or directory.
    #[error("path {path} not found in the snapshot")]
    PathNotFound {
        /// The requested path.
        path: String,
    },
    /// Another process holds a conflicting lock.
    #[error("the repository in {location} is locked by {holder}")]
    Locked {
        /// The store's name.
        location: String,
        /// The lock's holder and time.
        holder: String,
    },
    /// The lock was not refreshed in time, so nothing may be written any more.
    #[error("lost the lock of the repository in {location}: {cause}")]
    LockLost {
        /// The store's name.
        location: String,
        /// The cause.
        cause: String,
    },
    /// No file of the targets could be read.
    #[error("failed to back up {paths}: no file can be read")]
    NothingToBackUp {
        /// The targets.
        paths: String,
    },
    /// An operation on a local file or directory failed.
    #[error("failed to access {path}: {cause}")]
    Local {
        /// Its path.
        path: String,
        /// The system's error.
        cause: String,
    },
    /// The operation was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RepositoryError {
    /// A stable reason for conditions, metric labels and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "RepositoryNotFound",
            Self::AlreadyInitialized { .. } => "RepositoryExists",
            Self::WrongPassword { .. } => "WrongRepositoryPassword",
            Self::Unsupported { .. } => "UnsupportedRepository",
            Self::Corrupt { .. } => "RepositoryDamaged",
            Self::SnapshotNotFound { .. } => "SnapshotNotFound",
            Self::AmbiguousSnapshot { .. } => "SnapshotAmbiguous",
            Self::PathNotFound { .. } => "PathNotFound",
            Self::Locked { .. } => "RepositoryLocked",
            Self::LockLost { .. } => "RepositoryLockLost",
            Self::NothingToBackUp { .. } => "NothingToBackUp",
            Self::Local { .. } => "LocalFileError",
            Self::Cancelled => "Cancelled",
            Self::Store(error) => error.reason(),
        }
    }

    /// Whether the same call may succeed later without a change of the configuration.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Locked { .. } | Self::LockLost { .. } => true,
            Self::Store(error) => error.is_retryable(),
            _ => false,
        }
    }

    pub(crate) fn corrupt(what: impl Into<String>, cause: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into(), cause: cause.into() }
    }

    pub(crate) fn local(path: &std::path::Path, cause: &impl ToString) -> Self {
        Self::Local { path: path.display().to_string(), cause: cause.to_string() }
    }
}
