//! Why a Profile cannot be used.

/// Why a Profile cannot be used. No text here holds a credential.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Something in it is missing or wrong.
    #[error("the profile cannot be used: {cause}")]
    Invalid {
        /// What is wrong with it.
        cause: String,
    },
    /// Kanister has this, this program does not.
    #[error("{what} is not supported")]
    Unsupported {
        /// The kind of place or credential.
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

    /// The stable reason.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "InvalidProfile",
            Self::Unsupported { .. } => "Unsupported",
        }
    }

    /// Somebody has to change the profile first.
    pub fn is_retryable(&self) -> bool {
        false
    }
}
