//! What can be wrong with an archive.

use std::io;

/// Why a backup's files could not be written or read.
///
/// Some errors condemn one entry, the others the whole archive: see [`Error::is_entry`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The other end of the stream failed.
    #[error("{0}")]
    Io(#[source] io::Error),
    /// The stream ended in the middle.
    #[error("the archive is truncated")]
    Truncated,
    /// Not gzip, or gzip that does not add up.
    #[error("the archive is not valid gzip: {0}")]
    Gzip(#[source] io::Error),
    /// A tar header that is none.
    #[error("the archive is not a valid tar: {0}")]
    Tar(&'static str),
    /// A path that leads out of the archive, or nowhere.
    #[error("entry {path:?} has an unsafe path: {problem}")]
    UnsafePath {
        /// The path as written.
        path: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A link, a device or another thing that is not a file.
    #[error("entry {path:?} is a {kind}, only regular files belong in a backup")]
    NotAFile {
        /// The path as written.
        path: String,
        /// What it is.
        kind: &'static str,
    },
    /// More than the reader was told to take.
    #[error("the archive exceeds the limit of {limit} {what}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// One entry is larger than an object can be.
    #[error("entry {path:?} of {size} bytes exceeds the limit of {limit} bytes")]
    EntryTooLarge {
        /// The entry.
        path: String,
        /// Its size by its header.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// A format this program does not know.
    #[error("backup format version {0:?} is not supported")]
    UnknownVersion(String),
    /// The same object twice.
    #[error("entry {path:?} is in the archive more than once")]
    Duplicate {
        /// The entry.
        path: String,
    },
    /// An entry that is not a JSON object.
    #[error("entry {path:?} is not a valid object: {source}")]
    InvalidJson {
        /// The entry.
        path: String,
        /// What the parser said.
        source: serde_json::Error,
    },
    /// An entry whose content is another object than its path says.
    #[error("entry {path:?} says {field} {found:?} inside")]
    Mismatch {
        /// The entry.
        path: String,
        /// The field that disagrees.
        field: &'static str,
        /// What is inside.
        found: String,
    },
    /// A name that cannot be a path component.
    #[error("{what} {name:?} cannot be part of an archive path")]
    BadName {
        /// What it names.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A value that does not become, or does not come from, JSON.
    #[error("{what}: {source}")]
    Json {
        /// The file or the value.
        what: &'static str,
        /// What the codec said.
        source: serde_json::Error,
    },
    /// The scratch file would outgrow its limit.
    #[error("the spool needs more than its limit of {limit} bytes of scratch space")]
    SpoolFull {
        /// The limit.
        limit: u64,
    },
    /// The scratch file does not hold what was written to it.
    #[error("the spool is damaged: {0}")]
    SpoolDamaged(&'static str),
    /// A directory that does not belong into a backup location.
    #[error("backup location has unexpected top-level directories: {}", .0.join(", "))]
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
            Self::BadName { .. } => "ArchiveBadName",
            Self::Json { .. } => "ArchiveInvalidMetadata",
            Self::SpoolFull { .. } => "SpoolFull",
            Self::SpoolDamaged(_) => "SpoolDamaged",
            Self::UnexpectedDirectories(_) => "UnexpectedDirectories",
        }
    }

    /// Whether the same call may succeed later: only where the stream, not its content, failed.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Io(_) | Self::Truncated)
    }

    /// Whether only one entry is lost and the reader can go on with the next.
    pub fn is_entry(&self) -> bool {
        matches!(self, Self::Duplicate { .. } | Self::InvalidJson { .. } | Self::Mismatch { .. })
    }

    /// The entry this is about.
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
