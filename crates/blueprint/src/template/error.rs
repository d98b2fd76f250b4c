//! Errors of templates. Messages never contain parameter values.

/// The error of parsing or rendering a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A syntax error.
    #[error("template {name}:{line}: {message}")]
    Parse {
        /// The name of the template.
        name: String,
        /// The line, from 1.
        line: usize,
        /// The cause.
        message: String,
    },
    /// A missing key.
    #[error("template {name}:{line}: {key:?} not found")]
    NotFound {
        /// The name of the template.
        name: String,
        /// The line, from 1.
        line: usize,
        /// The missing key.
        key: String,
    },
    /// An evaluation error.
    #[error("template {name}:{line}: {message}")]
    Render {
        /// The name of the template.
        name: String,
        /// The line, from 1.
        line: usize,
        /// The cause.
        message: String,
    },
    /// A function that templates may not call.
    #[error("template {name}:{line}: function {function} is not allowed: {cause}")]
    Refused {
        /// The name of the template.
        name: String,
        /// The line, from 1.
        line: usize,
        /// The function.
        function: String,
        /// The cause.
        cause: &'static str,
    },
    /// A limit is exceeded.
    #[error("template {name}:{line}: exceeds the limit of {limit}")]
    TooMuch {
        /// The name of the template.
        name: String,
        /// The line, from 1.
        line: usize,
        /// The limit, with its unit.
        limit: String,
    },
}

impl Error {
    /// Stable reason.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Parse { .. } => "TemplateInvalid",
            Self::NotFound { .. } => "TemplateKeyNotFound",
            Self::Render { .. } => "TemplateFailed",
            Self::Refused { .. } => "TemplateFunctionRefused",
            Self::TooMuch { .. } => "TemplateTooLarge",
        }
    }

    /// Always false: the template has to be changed.
    pub fn is_retryable(&self) -> bool {
        false
    }
}
