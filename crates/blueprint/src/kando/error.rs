//! Errors of `kando` commands.

use plimsoll_store::StoreError;

use crate::profile::ProfileError;

/// The result of a command.
pub type Result<T> = std::result::Result<T, KandoError>;

/// The error of a command. No message contains a credential.
#[derive(Debug, thiserror::Error)]
pub enum KandoError {
    /// The Profile is invalid.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// Supported by Kanister, but not by Plimsoll.
    #[error("{what} is not supported")]
    Unsupported {
        /// The option, command or type.
        what: String,
    },
    /// An invalid path.
    #[error("invalid path {path:?}: {cause}")]
    InvalidPath {
        /// The path.
        path: String,
        /// The cause.
        cause: &'static str,
    },
    /// An output key with characters that Kanister does not allow.
    #[error("invalid output key {key:?}: only letters, digits and underscores are allowed")]
    InvalidKey {
        /// The key.
        key: String,
    },
    /// The location failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A local I/O error.
    #[error("failed to {what}")]
    Local {
        /// The attempted action.
        what: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// `--kopia-snapshot` is missing or is not the output of a push.
    #[error(
        "--kopia-snapshot has to be the output of a push, such as {{\"id\":\"…\"}}: use the kopiaSnapshot of the artifact"
    )]
    InvalidSnapshot,
    /// There is no program kopia.
    #[error(
        "kopia is not in this image: use an image with kopia, or the annotation plimsoll.dev/own-kando: \"true\" in podAnnotations"
    )]
    KopiaMissing,
    /// kopia failed.
    #[error("kopia failed: {cause}")]
    Kopia {
        /// The last line that it wrote.
        cause: String,
    },
    /// The store returned fewer or more bytes than the object has.
    #[error("truncated download of {path}: expected {expected} bytes, received {found}")]
    Truncated {
        /// The path.
        path: String,
        /// The size of the object.
        expected: u64,
        /// The received bytes.
        found: u64,
    },
}

impl KandoError {
    pub(crate) fn local(what: impl Into<String>, source: std::io::Error) -> Self {
        Self::Local { what: what.into(), source }
    }

    pub(crate) fn kopia(cause: impl Into<String>) -> Self {
        Self::Kopia { cause: cause.into() }
    }

    /// Stable reason.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Profile(error) => error.reason(),
            Self::Unsupported { .. } => "Unsupported",
            Self::InvalidPath { .. } => "InvalidPath",
            Self::InvalidKey { .. } => "InvalidOutputKey",
            Self::Store(error) => error.reason(),
            Self::Local { .. } => "LocalFailure",
            Self::InvalidSnapshot => "InvalidSnapshot",
            Self::KopiaMissing => "ProgramMissing",
            Self::Kopia { .. } => "KopiaFailed",
            Self::Truncated { .. } => "TruncatedObject",
        }
    }

    /// Whether a retry may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable(),
            Self::Truncated { .. } => true,
            _ => false,
        }
    }
}
