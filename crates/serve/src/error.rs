//! What can go wrong.

use plimsoll_api::client_error::client_error_text;

/// Why something could not be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another address")]
    Listen {
        /// Where.
        address: std::net::SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The API server refused or failed.
    #[error("cannot {what}: {}", client_error_text(source))]
    Api {
        /// What was tried.
        what: String,
        /// Why not.
        #[source]
        source: Box<kube::Error>,
    },
    /// The token in the Secret is of no use.
    #[error(
        "secret {0} has no token of at least 16 characters under the key \"token\": delete it, and a new one is made"
    )]
    BadToken(String),
    /// What is asked for cannot be done.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    pub(crate) fn api(what: impl Into<String>, source: kube::Error) -> Self {
        Self::Api { what: what.into(), source: Box::new(source) }
    }

    /// The stable reason.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Listen { .. } => "ListenFailed",
            Self::Api { .. } => "ApiFailed",
            Self::BadToken(_) => "TokenUnusable",
            Self::Refused(_) => "Refused",
        }
    }

    /// Whether another attempt may succeed.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Api { .. })
    }
}
