//! Errors that end an operation. The failure of a single item is an outcome, not an error.

use plimsoll_api::client_error::client_error_text;
use thiserror::Error;

/// A request that was not sent, because this process no longer leads.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct FencedRequest(pub String);

/// Why an operation failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A request to the API server failed.
    #[error("failed to {what}: {}", client_error_text(source))]
    Api {
        /// Verb and object, e.g. "list pods in namespace shop".
        what: String,
        /// The error of the client.
        #[source]
        source: Box<kube::Error>,
    },
    /// A response is not what the API promises.
    #[error("failed to {what}: invalid response: {detail}")]
    InvalidResponse {
        /// Verb and object.
        what: String,
        /// The defect.
        detail: String,
    },
    /// A request to object storage failed.
    #[error(transparent)]
    Store(#[from] plimsoll_store::StoreError),
    /// The archive is damaged or malicious.
    #[error("backup archive {name}: {source}")]
    Archive {
        /// Key of the archive in its location.
        name: String,
        /// The defect.
        #[source]
        source: plimsoll_archive::Error,
    },
    /// The scratch directory could not be written or read.
    #[error("scratch file {path}: {source}")]
    Scratch {
        /// The file.
        path: String,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// Invalid filters.
    #[error("{0}")]
    Selection(String),
    /// The location has another backup of this name.
    #[error(
        "backup {name} already exists in location {location} with another uid ({found}); choose another name or delete that backup first"
    )]
    BackupExists {
        /// The backup.
        name: String,
        /// The location.
        location: String,
        /// The uid of the other backup.
        found: String,
    },
    /// Files of an unfinished backup that this cluster did not write.
    #[error(
        "location {location} has files of an unfinished backup {name} of another cluster; choose another name or remove the files"
    )]
    UnfinishedBackupExists {
        /// The backup.
        name: String,
        /// The location.
        location: String,
    },
    /// The API server cannot call an admission webhook.
    #[error("failed to {what}: the API server cannot call admission webhook {webhook:?}: {detail}")]
    Webhook {
        /// Verb and object.
        what: String,
        /// The webhook.
        webhook: String,
        /// The message of the API server.
        detail: String,
    },
    /// A transfer of volume data failed, or its repository could not be opened.
    #[error("{message}")]
    Volumes {
        /// The reason of the mover.
        reason: &'static str,
        /// The message, with the repository or volume.
        message: String,
        /// Whether a retry may succeed.
        retryable: bool,
    },
    /// A plugin failed.
    #[error("{message}")]
    Plugin {
        /// A stable reason.
        reason: &'static str,
        /// The message, with the name of the plugin.
        message: String,
    },
    /// Cancelled by the user.
    #[error("cancelled")]
    Cancelled,
    /// This process lost leadership and must have no further effects.
    #[error("lost leadership ({0}); the new leader resumes this operation")]
    Fenced(String),
    /// The work panicked: a defect of this program.
    #[error("internal error in {what}: {message}; this is a defect of Plimsoll, please report it with the log")]
    Panicked {
        /// The operation.
        what: String,
        /// The message of the panic.
        message: String,
    },
    /// The journal is missing or cannot be read.
    #[error("journal of {operation} is lost: {detail}")]
    JournalLost {
        /// The operation.
        operation: String,
        /// The details.
        detail: String,
    },
    /// A record of an operation has a format that this program does not know.
    #[error(
        "{what} has version {version}, this server reads up to {known}; start a server of the newer version to finish it"
    )]
    NewerRecord {
        /// The record.
        what: String,
        /// Its version.
        version: String,
        /// The newest version that this program reads.
        known: u32,
    },
}

impl Error {
    /// Wraps an error of the client. `what` is the verb and the object.
    pub fn api(what: impl Into<String>, source: kube::Error) -> Self {
        if let kube::Error::Service(inner) = &source
            && let Some(FencedRequest(why)) = inner.downcast_ref()
        {
            return Self::Fenced(why.clone());
        }
        Self::Api { what: what.into(), source: Box::new(source) }
    }

    /// Wraps an input/output error on a scratch file.
    pub fn scratch(path: &std::path::Path, source: std::io::Error) -> Self {
        Self::Scratch { path: path.display().to_string(), source }
    }

    /// A stable reason for conditions, metrics and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Api { .. } => "ApiRequestFailed",
            Self::InvalidResponse { .. } => "InvalidApiResponse",
            Self::Store(error) => error.reason(),
            Self::Archive { source, .. } => source.reason(),
            Self::Scratch { .. } => "ScratchFailed",
            Self::Selection(_) => "SelectionInvalid",
            Self::BackupExists { .. } => "BackupExists",
            Self::UnfinishedBackupExists { .. } => "UnfinishedBackupExists",
            Self::Webhook { .. } => "WebhookUnavailable",
            Self::Volumes { reason, .. } | Self::Plugin { reason, .. } => reason,
            Self::Cancelled => "Cancelled",
            Self::Fenced(_) => "LeadershipLost",
            Self::Panicked { .. } => "InternalError",
            Self::JournalLost { .. } => "JournalLost",
            Self::NewerRecord { .. } => "RecordVersionUnknown",
        }
    }

    /// Whether a retry may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Api { source, .. } => api_error_is_retryable(source),
            Self::Store(error) => error.is_retryable(),
            Self::Volumes { retryable, .. } => *retryable,
            _ => false,
        }
    }

    /// The Status of the API server's response, if there was one.
    pub fn status(&self) -> Option<&kube::core::Status> {
        match self {
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            _ => None,
        }
    }

    /// The status code of the API server's response, if there was one.
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
