//! The log of one operation: spooled compressed in the scratch directory, uploaded at its end.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;

use crate::Error;

/// How grave a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// For the record.
    Info,
    /// Somebody should look at it; nothing is missing.
    Warning,
    /// Something is missing.
    Error,
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// An operation's own log, in the line format of Velero's (`time=… level=… msg=…`), because people grep for it.
///
/// A line that cannot be written is dropped: a full scratch disk is found, and reported, by the spool.
pub struct OperationLog {
    path: PathBuf,
    file: Mutex<GzEncoder<File>>,
}

impl OperationLog {
    /// Creates it at `path`, replacing what an earlier attempt left.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let file = File::create(path).map_err(|e| Error::scratch(path, e))?;
        Ok(Self { path: path.to_owned(), file: Mutex::new(GzEncoder::new(file, Compression::fast())) })
    }

    /// Writes one line.
    pub fn line(&self, level: Level, message: &str) {
        let line = format!("time=\"{:.0}\" level={} msg={message:?}\n", Timestamp::now(), level.as_str());
        if let Ok(mut file) = self.file.lock() {
            let _ = file.write_all(line.as_bytes());
        }
    }

    /// Writes one line for the record.
    pub fn info(&self, message: impl AsRef<str>) {
        self.line(Level::Info, message.as_ref());
    }

    /// Ends the file and says where it is.
    pub fn finish(self) -> Result<PathBuf, Error> {
        let Self { path, file } = self;
        let encoder = file.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        encoder.finish().map_err(|e| Error::scratch(&path, e))?;
        Ok(path)
    }
}
