//! Errors of archives.

use std::io;

/// The error of reading or writing the files of a backup.
///
/// Some errors affect one entry, the others the whole archive: see [`Error::is_entry_error`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// I/O error of the stream.
    #[error("archive I/O failed: {0}")]
    Io(#[source] io::Error),
    /// The stream ended early.
    #[error("archive is truncated")]
    Truncated,
    /// Not gzip, or a wrong gzip checksum.
    #[error("archive is not valid gzip: {0}")]
    Gzip(#[source] io::Error),
    /// An invalid tar header.
    #[error("archive is not valid tar: {0}")]
    Tar(&'static str),
    /// A path outside the archive, or a malformed one.
    #[error("unsafe path of entry {path:?}: {problem}")]
    UnsafePath {
        /// The path in the archive.
        path: String,
        /// The cause.
        problem: &'static str,
    },
    /// A link, a device or another entry that is not a regular file.
    #[error("unsupported type of entry {path:?}: {kind}, expected a regular file")]
    NotAFile {
        /// The path in the archive.
        path: String,
        /// Its type.
        kind: &'static str,
    },
    /// The archive exceeds a limit.
    #[error("archive exceeds the limit of {limit} {what}")]
    TooLarge {
        /// What is limited.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// One entry exceeds the maximum size of an object.
    #[error("entry {path:?} of {size} bytes exceeds the limit of {limit} bytes")]
    EntryTooLarge {
        /// The entry.
        path: String,
        /// The size in its header.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// An unknown format version.
    #[error("unsupported backup format version {0:?}")]
    UnknownVersion(String),
    /// A duplicate object.
    #[error("duplicate entry {path:?}")]
    Duplicate {
        /// The entry.
        path: String,
    },
    /// An entry that is not a JSON object.
    #[error("invalid JSON in entry {path:?}: {source}")]
    InvalidJson {
        /// The entry.
        path: String,
        /// The error of the parser.
        source: serde_json::Error,
    },
    /// The path and the content of an entry name different objects.
    #[error("path of entry {path:?} does not match {field} {found:?}")]
    Mismatch {
        /// The entry.
        path: String,
        /// The field that differs.
        field: &'static str,
        /// Its value.
        found: String,
    },
    /// A name that is not a valid path component.
    #[error("invalid {what} {name:?} for an archive path")]
    InvalidName {
        /// What it names.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A metadata file that cannot be encoded or decoded.
    #[error("invalid JSON in {what}: {source}")]
    Json {
        /// The file or the value.
        what: &'static str,
        /// The error of the codec.
        source: serde_json::Error,
    },
    /// The spool exceeds its limit.
    #[error("spool exceeds the limit of {limit} bytes of scratch space")]
    SpoolFull {
        /// The limit.
        limit: u64,
    },
    /// The scratch file is corrupted.
    #[error("spool is corrupted: {0}")]
    SpoolCorrupted(&'static str),
    /// Unexpected top-level directories in a backup location.
    #[error("unexpected top-level directories in backup location: {}", .0.join(", "))]
    UnexpectedDirectories(Vec<String>),
}

impl Error {
    /// The stable name of this error.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Io(_) => "ArchiveIo",
            Self::Truncated => "ArchiveTruncated",
            Self::Gzip(_) => "ArchiveNotGzip",
            Self::Tar(_) => "ArchiveNotTar",
            Self::UnsafePath { .. } => "ArchiveUnsafePath",
            Self::NotAFile { .. } => "ArchiveNotAFile",
            Self::TooLarge { .. } => "ArchiveTooLarge",
            Self::EntryTooLarge { .. } => "ArchiveEntryTooLarge",
            Self::UnknownVersion(_) => "ArchiveUnknownVersion",
            Self::Duplicate { .. } => "ArchiveDuplicateEntry",
            Self::InvalidJson { .. } => "ArchiveInvalidJson",
            Self::Mismatch { .. } => "ArchiveEntryMismatch",
            Self::InvalidName { .. } => "ArchiveInvalidName",
            Self::Json { .. } => "ArchiveInvalidMetadata",
            Self::SpoolFull { .. } => "SpoolFull",
            Self::SpoolCorrupted(_) => "SpoolCorrupted",
            Self::UnexpectedDirectories(_) => "UnexpectedDirectories",
        }
    }

    /// Whether a retry may succeed: only if the stream failed, not its content.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Io(_) | Self::Truncated)
    }

    /// Whether the error affects one entry only and the reader can continue with the next.
    pub fn is_entry_error(&self) -> bool {
        matches!(self, Self::Duplicate { .. } | Self::InvalidJson { .. } | Self::Mismatch { .. })
    }

    /// The path of the entry, if the error is about one.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::UnsafePath { path, .. }
            | Self::NotAFile { path, .. }
            | Self::EntryTooLarge { path, .. }
            | Self::Duplicate { path }
            | Self::InvalidJson { path, .. }
            | Self::Mismatch { path, .. } => Some(path),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Truncated,
            _ => Self::Io(error),
        }
    }
}
