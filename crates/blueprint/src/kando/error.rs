//! Why data cannot be moved.

use plimsoll_store::StoreError;

use crate::place::ProfileError;

/// The result of the commands.
pub type Result<T> = std::result::Result<T, KandoError>;

/// Why a command failed. No text here holds a credential.
#[derive(Debug, thiserror::Error)]
pub enum KandoError {
    /// The Profile cannot be used.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// Kanister has this, this program does not.
    #[error("{what} is not supported")]
    Unsupported {
        /// The option, command or kind.
        what: String,
    },
    /// The path names nothing in a bucket.
    #[error("path {path:?} cannot be used: {cause}")]
    InvalidPath {
        /// The path.
        path: String,
        /// What is wrong with it.
        cause: &'static str,
    },
    /// The key of an output has characters that Kanister does not allow.
    #[error("output key {key:?} may only have letters, digits and underscores")]
    InvalidKey {
        /// The key.
        key: String,
    },
    /// The location failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// This side of the pipe failed.
    #[error("failed to {what}")]
    Local {
        /// What was tried.
        what: String,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// The location gave fewer or more bytes than the object has.
    #[error("{path} has {expected} bytes, but {found} came")]
    Truncated {
        /// The path.
        path: String,
        /// The object's size.
        expected: u64,
        /// What came.
        found: u64,
    },
}

impl KandoError {
    pub(crate) fn local(what: impl Into<String>, source: std::io::Error) -> Self {
        Self::Local { what: what.into(), source }
    }

    /// The stable reason.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Profile(error) => error.reason(),
            Self::Unsupported { .. } => "Unsupported",
            Self::InvalidPath { .. } => "InvalidPath",
            Self::InvalidKey { .. } => "InvalidOutputKey",
            Self::Store(error) => error.reason(),
            Self::Local { .. } => "LocalFailure",
            Self::Truncated { .. } => "TruncatedObject",
        }
    }

    /// Whether the same command may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable(),
            Self::Truncated { .. } => true,
            _ => false,
        }
    }
}
