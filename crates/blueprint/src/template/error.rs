//! Why a template cannot be used, without showing any of the values it was given.

/// Why a template cannot be parsed or rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is not a template.
    #[error("template {name}:{line}: {message}")]
    Parse {
        /// What the template is called.
        name: String,
        /// The line of the fault, counted from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// It asks for a key that is not there.
    #[error("template {name}:{line}: {key:?} not found")]
    NotFound {
        /// What the template is called.
        name: String,
        /// The line of the fault, counted from 1.
        line: usize,
        /// The missing key.
        key: String,
    },
    /// Something went wrong while it was filled in.
    #[error("template {name}:{line}: {message}")]
    Render {
        /// What the template is called.
        name: String,
        /// The line of the fault, counted from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// It calls a function that no template of ours may call.
    #[error("template {name}:{line}: function {function} is not allowed: {cause}")]
    Refused {
        /// What the template is called.
        name: String,
        /// The line of the fault, counted from 1.
        line: usize,
        /// The function.
        function: String,
        /// Why not.
        cause: &'static str,
    },
    /// It is too deep, too long or makes too much output.
    #[error("template {name}:{line}: more than {limit}")]
    TooMuch {
        /// What the template is called.
        name: String,
        /// The line of the fault, counted from 1.
        line: usize,
        /// The limit, with its unit.
        limit: String,
    },
}

impl Error {
    /// The stable reason.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Parse { .. } => "TemplateInvalid",
            Self::NotFound { .. } => "TemplateKeyNotFound",
            Self::Render { .. } => "TemplateFailed",
            Self::Refused { .. } => "TemplateFunctionRefused",
            Self::TooMuch { .. } => "TemplateTooLarge",
        }
    }

    /// Whether trying the same again could help: never.
    pub fn is_retryable(&self) -> bool {
        false
    }
}
