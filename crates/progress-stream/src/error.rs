//! Errors of the transport.

use plimsoll_api::client_error::client_error_text;
use plimsoll_http_server::ListenError;

/// Why progress could not be served or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The API server refused or failed.
    #[error("failed to {action}: {}", client_error_text(source))]
    Api {
        /// The request, as a verb and its object.
        action: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// The Secret holds no valid token.
    #[error(
        "secret {0} has no valid token: the key \"token\" needs at least 16 characters; delete the secret to create a new one"
    )]
    InvalidToken(String),
    /// The API server did not answer in time.
    #[error("failed to read secret {0}: no answer from the API server")]
    NoAnswer(String),
}

impl Error {
    /// A failed request to the API server.
    pub fn api(action: impl Into<String>, source: kube::Error) -> Self {
        Self::Api { action: action.into(), source: Box::new(source) }
    }

    /// The stable reason.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Listen(_) => "ListenFailed",
            Self::Api { .. } => "ApiFailed",
            Self::InvalidToken(_) => "InvalidToken",
            Self::NoAnswer(_) => "NoAnswer",
        }
    }

    /// Whether another attempt may succeed.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Api { .. } | Self::NoAnswer(_))
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn an_error_of_the_api_server_is_shown_by_its_message() {
        let status = Status::failure("secrets \"plimsoll-dashboard\" is forbidden", "Forbidden").with_code(403);
        let error = Error::api("read secret plimsoll-dashboard", kube::Error::Api(status.boxed()));
        let text = "failed to read secret plimsoll-dashboard: Error from server (Forbidden): secrets \"plimsoll-dashboard\" is forbidden";
        assert_eq!(error.to_string(), text);
    }
}
