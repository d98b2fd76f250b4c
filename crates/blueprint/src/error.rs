//! Errors of phases. Messages name the object and never contain a secret.

use plimsoll_api::client_error::client_error_text;

use crate::output::OutputError;
use crate::profile::ProfileError;
use crate::template;

/// The error of a phase.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An API call failed.
    #[error("failed to {what}: {}", client_error_text(source))]
    Api {
        /// Verb and object.
        what: String,
        /// The error of the client.
        #[source]
        source: Box<kube::Error>,
    },
    /// Object storage failed.
    #[error(transparent)]
    Store(#[from] plimsoll_store::StoreError),
    /// The profile is invalid.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A template cannot be rendered.
    #[error(transparent)]
    Template(#[from] template::Error),
    /// The output of a command is invalid.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// An argument is missing or invalid.
    #[error("invalid argument {argument}: {cause}")]
    Argument {
        /// The argument.
        argument: String,
        /// The cause.
        cause: String,
    },
    /// A required object does not exist.
    #[error("{0}")]
    Missing(String),
    /// A command failed.
    #[error("{what} failed: {detail}")]
    Command {
        /// The command and its container.
        what: String,
        /// The exit code and the last lines of output.
        detail: String,
    },
    /// A pod did not start, or failed.
    #[error("pod {pod} {detail}")]
    Pod {
        /// `namespace/name`.
        pod: String,
        /// The cause.
        detail: String,
    },
    /// A snapshot failed permanently.
    #[error("failed to create {snapshot}: {detail}; inspect it with `kubectl describe`, then delete it")]
    Snapshot {
        /// Kind, namespace and name.
        snapshot: String,
        /// The error of the snapshot-controller or the driver.
        detail: String,
    },
    /// A wait timed out.
    #[error("timed out waiting for {what} after {limit:?}")]
    TimedOut {
        /// What was waited for.
        what: String,
        /// The timeout.
        limit: std::time::Duration,
    },
    /// Not supported.
    #[error("{0}")]
    Unsupported(String),
    /// The server stopped while the phase was running, and the result is unknown.
    #[error("interrupted: the server stopped while the phase was running, and its result is unknown ({0})")]
    Interrupted(String),
    /// Cancelled by the user.
    #[error("Cancelled")]
    Cancelled,
    /// The process has lost leadership, or cannot store its state.
    #[error("{0}")]
    Host(String),
}

impl Error {
    /// Wraps an API error with the attempted action.
    pub fn api(what: impl Into<String>, source: kube::Error) -> Self {
        Self::Api { what: what.into(), source: Box::new(source) }
    }

    /// An invalid argument.
    pub fn argument(argument: impl Into<String>, cause: impl Into<String>) -> Self {
        Self::Argument { argument: argument.into(), cause: cause.into() }
    }

    /// Stable reason for conditions, metrics and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Api { .. } => "ApiRequestFailed",
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

    /// Whether a retry may succeed.
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

    /// The status code of the API server, if it responded.
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
