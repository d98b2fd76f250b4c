//! Errors of Profiles.

/// The error of a Profile. No message contains a credential.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Something is missing or invalid.
    #[error("invalid profile: {cause}")]
    Invalid {
        /// The cause.
        cause: String,
    },
    /// Supported by Kanister, but not by Plimsoll.
    #[error("{what} is not supported")]
    Unsupported {
        /// The type of location or credential.
        what: String,
    },
}

impl ProfileError {
    pub(crate) fn invalid(cause: impl Into<String>) -> Self {
        Self::Invalid { cause: cause.into() }
    }

    pub(crate) fn unsupported(what: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into() }
    }

    /// Stable reason.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "InvalidProfile",
            Self::Unsupported { .. } => "Unsupported",
        }
    }

    /// Always false: the profile has to be changed.
    pub fn is_retryable(&self) -> bool {
        false
    }
}
