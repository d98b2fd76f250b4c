//! Errors outside of requests.

use std::{io, path::Path, path::PathBuf};

/// The API cannot be opened or served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database cannot be used; another process may have it open.
    #[error("cannot open the database {path}")]
    Database {
        /// The database's file.
        path: PathBuf,
        /// The error of the database.
        #[source]
        source: Box<redb::Error>,
    },
    /// A file or directory cannot be used.
    #[error("cannot use {path}")]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The HTTPS server cannot listen.
    #[error("cannot listen for connections")]
    Listen(#[source] io::Error),
    /// Certificate or key cannot be created or read.
    #[error("cannot set up the certificate of the HTTPS server: {0}")]
    Certificate(String),
    /// The system does not permit namespaces and mounts.
    #[error("cannot run pods: cannot create namespaces and mounts: {0}")]
    Sandbox(String),
    /// The API rejected one of its initial objects.
    #[error("cannot set up the embedded API: {0}")]
    Setup(String),
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
            Self::Setup(_) => "SetupRefused",
        }
    }

    /// Whether a retry can help: another process may release the database or the port.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Database { .. } | Self::Listen(_))
    }
}
