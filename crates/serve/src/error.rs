//! Errors of the dashboard.

/// Why something could not be served or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The listener or a request to the API server failed.
    #[error(transparent)]
    Transport(#[from] plimsoll_progress_stream::Error),
    /// The state of the operation does not allow the action.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    pub(crate) fn api(action: impl Into<String>, source: kube::Error) -> Self {
        Self::Transport(plimsoll_progress_stream::Error::api(action, source))
    }

    /// The stable reason.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Transport(error) => error.reason(),
            Self::Refused(_) => "Refused",
        }
    }

    /// Whether another attempt may succeed.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Transport(error) if error.is_retryable())
    }
}
