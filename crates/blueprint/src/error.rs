//! Why a phase did not end well. Texts name the object, and never a secret.

use plimsoll_api::client_error::client_error_text;

use crate::output::OutputError;
use crate::place::ProfileError;
use crate::template;

/// Why a phase did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The API server refused or did not answer.
    #[error("failed to {what}: {}", client_error_text(source))]
    Api {
        /// Verb and object.
        what: String,
        /// What the client saw.
        #[source]
        source: Box<kube::Error>,
    },
    /// Object storage refused or did not answer.
    #[error(transparent)]
    Store(#[from] plimsoll_store::StoreError),
    /// The profile cannot be used.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A template cannot be filled in.
    #[error(transparent)]
    Template(#[from] template::Error),
    /// What a command printed cannot be used.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// An argument is missing or cannot be used.
    #[error("argument {argument}: {cause}")]
    Argument {
        /// The argument.
        argument: String,
        /// What is wrong with it.
        cause: String,
    },
    /// Something that is needed is not there.
    #[error("{0}")]
    Missing(String),
    /// A command failed.
    #[error("{what} failed: {detail}")]
    Command {
        /// The command and where it ran.
        what: String,
        /// How it ended, and its last lines.
        detail: String,
    },
    /// A pod did not come to run, or ended badly.
    #[error("pod {pod} {detail}")]
    Pod {
        /// `namespace/name`.
        pod: String,
        /// What is wrong with it.
        detail: String,
    },
    /// A snapshot will not come about by itself.
    #[error("{snapshot} cannot be made ready: {detail}; it is still there: look at it, then delete it")]
    Snapshot {
        /// Kind, namespace and name.
        snapshot: String,
        /// What the snapshot controller or the driver said.
        detail: String,
    },
    /// It took too long.
    #[error("{what} did not end within {limit:?}")]
    TimedOut {
        /// What was waited for.
        what: String,
        /// For how long.
        limit: std::time::Duration,
    },
    /// This program cannot do it.
    #[error("{0}")]
    Unsupported(String),
    /// The server was stopped while it ran, and nobody can tell what was done.
    #[error(
        "Interrupted: the server was stopped while the phase ran, and it cannot be told whether it was carried out ({0})"
    )]
    Interrupted(String),
    /// Cancelled by its user.
    #[error("Cancelled")]
    Cancelled,
    /// The process that runs it may have no further effect, or cannot remember it.
    #[error("{0}")]
    Host(String),
}

impl Error {
    /// Wraps a client error with what was being done.
    pub fn api(what: impl Into<String>, source: kube::Error) -> Self {
        Self::Api { what: what.into(), source: Box::new(source) }
    }

    /// An argument that cannot be used.
    pub fn argument(argument: impl Into<String>, cause: impl Into<String>) -> Self {
        Self::Argument { argument: argument.into(), cause: cause.into() }
    }

    /// A stable word for conditions, metrics and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Api { .. } => "ApiServerRefused",
            Self::Store(error) => error.reason(),
            Self::Profile(error) => error.reason(),
            Self::Template(error) => error.reason(),
            Self::Output(error) => error.reason(),
            Self::Argument { .. } => "ArgumentInvalid",
            Self::Missing(_) => "ObjectMissing",
            Self::Command { .. } => "CommandFailed",
            Self::Pod { .. } => "PodFailed",
            Self::Snapshot { .. } => "SnapshotFailed",
            Self::TimedOut { .. } => "TimedOut",
            Self::Unsupported(_) => "Unsupported",
            Self::Interrupted(_) => "Interrupted",
            Self::Cancelled => "Cancelled",
            Self::Host(_) => "LeadershipLost",
        }
    }

    /// Whether the same call may succeed later without anybody's help.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => status.code == 429 || status.code >= 500,
                kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => true,
                _ => false,
            },
            Self::Store(error) => error.is_retryable(),
            _ => false,
        }
    }

    /// The API server's status code, where it answered.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            _ => None,
        }
    }
}
