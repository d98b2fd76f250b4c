//! What can go wrong with a repository.

use plimsoll_store::StoreError;

/// The result of anything a repository does.
pub type Result<T, E = RepositoryError> = std::result::Result<T, E>;

/// Why a repository could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepositoryError {
    /// There is no repository at this place.
    #[error("there is no repository in {location}")]
    NotARepository {
        /// The store's name.
        location: String,
    },
    /// A new repository was asked for where one is already.
    #[error("{location} already holds a repository")]
    AlreadyInitialized {
        /// The store's name.
        location: String,
    },
    /// No key file of the repository opens with this password.
    #[error("no key of the repository in {location} opens with this password")]
    WrongPassword {
        /// The store's name.
        location: String,
    },
    /// The repository is of a kind this engine does not know.
    #[error("the repository in {location} cannot be used: {cause}")]
    Unsupported {
        /// The store's name.
        location: String,
        /// What is not known.
        cause: String,
    },
    /// A file of the repository is not what it must be.
    #[error("{what} is damaged: {cause}")]
    Corrupt {
        /// Which file or blob.
        what: String,
        /// How it shows.
        cause: String,
    },
    /// No snapshot matches.
    #[error("there is no snapshot {name:?} in {location}")]
    NoSuchSnapshot {
        /// What was asked for.
        name: String,
        /// The store's name.
        location: String,
    },
    /// More than one snapshot starts with this.
    #[error("{name:?} stands for more than one snapshot")]
    AmbiguousSnapshot {
        /// What was asked for.
        name: String,
    },
    /// The snapshot has no such file or directory.
    #[error("{path} is not in the snapshot")]
    NoSuchPath {
        /// What was asked for.
        path: String,
    },
    /// Another process holds a lock that excludes this work.
    #[error("the repository in {location} is locked by {holder}")]
    Locked {
        /// The store's name.
        location: String,
        /// Who holds the lock and since when.
        holder: String,
    },
    /// The lock could not be refreshed in time, so nothing may be written any more.
    #[error("the lock on the repository in {location} was lost: {cause}")]
    LockLost {
        /// The store's name.
        location: String,
        /// Why.
        cause: String,
    },
    /// Nothing of what was asked for could be read.
    #[error("nothing could be read of {paths}")]
    NothingToBackUp {
        /// The targets.
        paths: String,
    },
    /// A file or directory of this machine.
    #[error("{path}: {cause}")]
    Local {
        /// Its path.
        path: String,
        /// What the system said.
        cause: String,
    },
    /// Somebody asked to stop.
    #[error("cancelled")]
    Cancelled,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RepositoryError {
    /// A stable word for conditions, metric labels and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotARepository { .. } => "NotARepository",
            Self::AlreadyInitialized { .. } => "RepositoryExists",
            Self::WrongPassword { .. } => "WrongRepositoryPassword",
            Self::Unsupported { .. } => "UnsupportedRepository",
            Self::Corrupt { .. } => "RepositoryDamaged",
            Self::NoSuchSnapshot { .. } => "SnapshotNotFound",
            Self::AmbiguousSnapshot { .. } => "SnapshotAmbiguous",
            Self::NoSuchPath { .. } => "PathNotFound",
            Self::Locked { .. } => "RepositoryLocked",
            Self::LockLost { .. } => "RepositoryLockLost",
            Self::NothingToBackUp { .. } => "NothingToBackUp",
            Self::Local { .. } => "LocalFileFailed",
            Self::Cancelled => "Cancelled",
            Self::Store(error) => error.reason(),
        }
    }

    /// Whether the same call may succeed later without anybody changing anything.
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
