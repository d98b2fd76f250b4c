//! What can be wrong with filters, selectors, modifiers and policies.

/// Why a decision could not be compiled or made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A pattern that means nothing.
    #[error("pattern {pattern:?} is invalid: {problem}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A label selector that means nothing.
    #[error("label selector is invalid at {part:?}: {problem}")]
    Selector {
        /// The part that is wrong.
        part: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Filters that contradict each other.
    #[error("{field}: {problem}")]
    Filter {
        /// The filter.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// Priorities that cannot be read.
    #[error("restore resource priorities: {0}")]
    Priorities(String),
    /// Resource modifiers that cannot be read.
    #[error("resource modifiers: {0}")]
    Modifiers(String),
    /// A resource modifier that could not be applied to an object.
    #[error("resource modifier rule {rule} on {object}: {problem}")]
    Modifier {
        /// Which rule, counted from 1.
        rule: usize,
        /// The object.
        object: String,
        /// What went wrong.
        problem: String,
    },
    /// Resource policies that cannot be read.
    #[error("resource policies: {0}")]
    Policies(String),
}

impl Error {
    /// The stable name of this error.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Pattern { .. } => "InvalidPattern",
            Self::Selector { .. } => "InvalidLabelSelector",
            Self::Filter { .. } => "InvalidFilter",
            Self::Priorities(_) => "InvalidPriorities",
            Self::Modifiers(_) => "InvalidResourceModifiers",
            Self::Modifier { .. } => "ResourceModifierFailed",
            Self::Policies(_) => "InvalidResourcePolicies",
        }
    }

    /// What is wrong in a spec stays wrong until somebody changes it.
    pub fn is_retryable(&self) -> bool {
        false
    }
}
