//! Tables that map error texts of restic and kopia to errors, and the texts that both have: they are Go programs with the same
//! storage libraries.

use std::path::Path;

use crate::MoverError;

/// The disk is full.
pub(crate) const NO_SPACE: &[&str] = &["no space left on device", "disk quota exceeded"];

/// S3 rejects the credentials.
pub(crate) const ACCESS_DENIED: &[&str] =
    &["Access Denied", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"];

/// A read or write of a disk failed.
pub(crate) const DISK_ERROR: &str = "input/output error";

/// The store does not respond.
pub(crate) const UNREACHABLE: &[&str] = &[
    "connection refused",
    "no such host",
    "i/o timeout",
    "connection reset",
    "no route to host",
    "network is unreachable",
    "TLS handshake timeout",
    "context deadline exceeded",
    DISK_ERROR,
];

/// The output of a program before it failed.
pub(crate) struct ErrorText<'a> {
    /// The whole text.
    pub text: &'a str,
    /// The part of it that an error shows.
    pub cause: String,
    /// The repository's name.
    pub repository: &'a str,
    /// The target directory of a restore.
    pub volume: Option<&'a Path>,
}

/// Lists of texts, and the error that each of the texts means.
pub(crate) type ErrorRow = (&'static [&'static [&'static str]], fn(&ErrorText<'_>) -> MoverError);

impl ErrorText<'_> {
    /// The error of the first row with a text that occurs in this one.
    pub(crate) fn classify(&self, table: &[ErrorRow]) -> Option<MoverError> {
        let is_in_row = |(lists, _): &&ErrorRow| lists.iter().any(|patterns| contains_any(self.text, patterns));
        table.iter().find(is_in_row).map(|(_, error)| error(self))
    }

    fn repository(&self) -> String {
        self.repository.to_owned()
    }
}

/// Whether a text contains one of these patterns.
fn contains_any(text: &str, patterns: &[&str]) -> bool {
    patterns.iter().any(|pattern| text.contains(pattern))
}

pub(crate) fn wrong_password(failed: &ErrorText<'_>) -> MoverError {
    MoverError::WrongPassword { repository: failed.repository() }
}

pub(crate) fn repository_not_found(failed: &ErrorText<'_>) -> MoverError {
    MoverError::RepositoryNotFound { repository: failed.repository() }
}

pub(crate) fn unreachable(failed: &ErrorText<'_>) -> MoverError {
    MoverError::Unreachable { repository: failed.repository(), cause: failed.cause.clone() }
}

pub(crate) fn credentials_rejected(failed: &ErrorText<'_>) -> MoverError {
    MoverError::CredentialsRejected { repository: failed.repository(), cause: failed.cause.clone() }
}

/// The error for a full disk: the volume's during a restore, otherwise the repository's.
pub(crate) fn no_space(failed: &ErrorText<'_>) -> MoverError {
    match failed.volume {
        Some(volume) => MoverError::VolumeFull { path: volume.display().to_string() },
        None => MoverError::RepositoryFull { repository: failed.repository() },
    }
}
