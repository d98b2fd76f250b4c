//! Error texts that restic and kopia have in common: both are Go programs with the same storage libraries.

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

/// Whether a text contains one of these patterns.
pub(crate) fn contains_any(text: &str, patterns: &[&str]) -> bool {
    patterns.iter().any(|pattern| text.contains(pattern))
}

/// The error for a full disk: the volume's during a restore, otherwise the repository's.
pub(crate) fn no_space(volume: Option<&Path>, repository: &str) -> MoverError {
    match volume {
        Some(volume) => MoverError::VolumeFull { path: volume.display().to_string() },
        None => MoverError::RepositoryFull { repository: repository.to_owned() },
    }
}
