//! What can stop an operation as a whole. What befalls a single item is an outcome, not an error.

use plimsoll_api::client_error::client_error_text;
use thiserror::Error;

/// Why an operation could not go on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The API server refused or did not answer.
    #[error("failed to {what}: {}", client_error_text(source))]
    Api {
        /// Verb and object, e.g. "list pods in namespace shop".
        what: String,
        /// What the client saw.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server's answer was not what its API promises.
    #[error("failed to {what}: the answer is not valid: {detail}")]
    Answer {
        /// Verb and object.
        what: String,
        /// What is wrong with it.
        detail: String,
    },
    /// Object storage refused or did not answer.
    #[error(transparent)]
    Store(#[from] plimsoll_store::StoreError),
    /// The archive is broken, or hostile.
    #[error("backup archive {name}: {source}")]
    Archive {
        /// The archive's key in its location.
        name: String,
        /// What is wrong with it.
        #[source]
        source: plimsoll_archive::Error,
    },
    /// The scratch directory could not be written or read.
    #[error("scratch file {path}: {source}")]
    Scratch {
        /// The file.
        path: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Filters that cannot be applied.
    #[error("{0}")]
    Selection(String),
    /// Somebody else's backup of this name is in the location.
    #[error(
        "backup {name} exists already in location {location}, with another uid ({found}): choose another name, or delete that one first"
    )]
    Exists {
        /// The backup.
        name: String,
        /// The location.
        location: String,
        /// The other's uid.
        found: String,
    },
    /// Files of an unfinished backup that we have not written.
    #[error(
        "files of an unfinished backup {name} that is not ours lie in location {location}: another cluster may be writing it; choose another name, or remove them"
    )]
    Occupied {
        /// The backup.
        name: String,
        /// The location.
        location: String,
    },
    /// An admission webhook that the API server cannot reach.
    #[error("failed to {what}: the API server cannot call admission webhook {webhook:?}: {detail}")]
    Webhook {
        /// Verb and object.
        what: String,
        /// The webhook.
        webhook: String,
        /// What the API server said.
        detail: String,
    },
    /// Volume data could not be moved, or its repository not be opened.
    #[error("{message}")]
    Volumes {
        /// The mover's own word for it.
        reason: &'static str,
        /// What happened to which repository or volume.
        message: String,
        /// Whether the same may succeed later.
        retryable: bool,
    },
    /// A plugin failed.
    #[error("{message}")]
    Plugin {
        /// A stable word for what happened.
        reason: &'static str,
        /// In words, with the plugin's name.
        message: String,
    },
    /// Cancelled by its user.
    #[error("cancelled")]
    Cancelled,
    /// This process no longer leads, so it may have no further effect.
    #[error("this server no longer leads ({0}); whoever leads now goes on with it")]
    Fenced(String),
    /// The journal is gone or cannot be read.
    #[error("the journal of {operation} is lost: {detail}")]
    JournalLost {
        /// The operation.
        operation: String,
        /// What was found.
        detail: String,
    },
}

impl Error {
    /// Wraps a client error with what was being done.
    pub fn api(what: impl Into<String>, source: kube::Error) -> Self {
        Self::Api { what: what.into(), source: Box::new(source) }
    }

    /// Wraps an input/output error on a scratch file.
    pub fn scratch(path: &std::path::Path, source: std::io::Error) -> Self {
        Self::Scratch { path: path.display().to_string(), source }
    }

    /// A stable word for conditions, metrics and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Api { .. } => "ApiRequestFailed",
            Self::Answer { .. } => "ApiServerAnswerInvalid",
            Self::Store(error) => error.reason(),
            Self::Archive { source, .. } => source.reason(),
            Self::Scratch { .. } => "ScratchFailed",
            Self::Selection(_) => "SelectionInvalid",
            Self::Exists { .. } => "BackupExists",
            Self::Occupied { .. } => "NameOccupied",
            Self::Webhook { .. } => "WebhookUnavailable",
            Self::Volumes { reason, .. } | Self::Plugin { reason, .. } => reason,
            Self::Cancelled => "Cancelled",
            Self::Fenced(_) => "LeadershipLost",
            Self::JournalLost { .. } => "JournalLost",
        }
    }

    /// Whether the same call may succeed later without anybody's help.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Api { source, .. } => api_error_is_retryable(source),
            Self::Store(error) => error.is_retryable(),
            Self::Volumes { retryable, .. } => *retryable,
            _ => false,
        }
    }

    /// What the API server answered, where it did.
    pub fn status(&self) -> Option<&kube::core::Status> {
        match self {
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            _ => None,
        }
    }

    /// The API server's status code, where it answered.
    pub fn code(&self) -> Option<u16> {
        self.status().map(|status| status.code)
    }
}

fn api_error_is_retryable(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => true,
        _ => false,
    }
}
