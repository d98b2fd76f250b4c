//! What can go wrong outside of requests.

use std::{io, path::Path, path::PathBuf};

/// Why the API cannot be opened or served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database cannot be used; another process may have it open.
    #[error("cannot open the database {path}")]
    Database {
        /// The database's file.
        path: PathBuf,
        /// What the database says.
        #[source]
        source: Box<redb::Error>,
    },
    /// A file or directory cannot be used.
    #[error("cannot use {path}")]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The listener cannot be set up.
    #[error("cannot listen for connections")]
    Listen(#[source] io::Error),
    /// Certificate or key cannot be made or read.
    #[error("cannot set up the certificate of the listener: {0}")]
    Certificate(String),
    /// Namespaces and mounts are not to be had.
    #[error("pods cannot be run: the system refuses their namespaces and mounts: {0}")]
    Sandbox(String),
    /// The API refused its own set-up.
    #[error("the local API cannot be set up: {0}")]
    Refused(String),
}

impl Error {
    pub(crate) fn database(path: &Path, source: impl Into<redb::Error>) -> Self {
        Self::Database { path: path.to_owned(), source: Box::new(source.into()) }
    }

    pub(crate) fn file(path: &Path, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), source }
    }

    /// The stable name of this error.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Database { .. } => "DatabaseUnavailable",
            Self::File { .. } => "FileUnavailable",
            Self::Listen(_) => "ListenFailed",
            Self::Certificate(_) => "CertificateFailed",
            Self::Sandbox(_) => "SandboxRefused",
            Self::Refused(_) => "SetupRefused",
        }
    }

    /// Whether trying again can help: another process may let go of the database or the port.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Database { .. } | Self::Listen(_))
    }
}
