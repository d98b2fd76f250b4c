//! Errors of filters, label selectors, resource modifiers and resource policies.

/// The error of compiling or applying filters, modifiers or policies.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An invalid pattern.
    #[error("invalid pattern {pattern:?}: {problem}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// The cause.
        problem: String,
    },
    /// An invalid label selector.
    #[error("invalid label selector at {part:?}: {problem}")]
    Selector {
        /// The invalid part.
        part: String,
        /// The cause.
        problem: String,
    },
    /// Contradictory filters.
    #[error("invalid {field}: {problem}")]
    Filter {
        /// The filter.
        field: &'static str,
        /// The cause.
        problem: String,
    },
    /// Invalid restore priorities.
    #[error("invalid restore resource priorities: {0}")]
    RestorePriorities(String),
    /// Invalid resource modifiers.
    #[error("invalid resource modifiers: {0}")]
    ResourceModifiers(String),
    /// A resource modifier that could not be applied to an object.
    #[error("failed to apply resource modifier rule {rule} to {object}: {problem}")]
    Modifier {
        /// Number of the rule, from 1.
        rule: usize,
        /// The object.
        object: String,
        /// The cause.
        problem: String,
    },
    /// Invalid resource policies.
    #[error("invalid resource policies: {0}")]
    ResourcePolicies(String),
}

impl Error {
    /// The stable name of this error.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Pattern { .. } => "InvalidPattern",
            Self::Selector { .. } => "InvalidLabelSelector",
            Self::Filter { .. } => "InvalidFilter",
            Self::RestorePriorities(_) => "InvalidPriorities",
            Self::ResourceModifiers(_) => "InvalidResourceModifiers",
            Self::Modifier { .. } => "ResourceModifierFailed",
            Self::ResourcePolicies(_) => "InvalidResourcePolicies",
        }
    }

    /// Always false: the spec has to be changed.
    pub fn is_retryable(&self) -> bool {
        false
    }
}
