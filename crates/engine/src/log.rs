//! The log of an operation: spooled in the scratch directory, compressed and uploaded when the operation ends.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;

use crate::Error;

/// Log level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Information.
    Info,
    /// Nothing is missing, but it should be checked.
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

/// The log of an operation, in the line format of Velero (`time=… level=… msg=…`).
///
/// It is spooled as text, so that [`tail`] can read it while it grows, and compressed once it is complete. A line that cannot
/// be written is dropped: the spool detects and reports a full scratch disk.
pub struct OperationLog {
    path: PathBuf,
    text: PathBuf,
    file: Mutex<File>,
}

/// Name of the text file, beside the compressed file.
const TEXT_FILE: &str = "log.txt";

impl OperationLog {
    /// Creates the log at `path` and replaces that of an earlier attempt.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let text = path.with_file_name(TEXT_FILE);
        let file = File::options().create(true).truncate(true).read(true).write(true).open(&text);
        let file = file.map_err(|e| Error::scratch(&text, e))?;
        Ok(Self { path: path.to_owned(), text, file: Mutex::new(file) })
    }

    /// Opens the log at `path` again, after its lines so far.
    pub(crate) fn reopen(path: &Path) -> Result<Self, Error> {
        let text = path.with_file_name(TEXT_FILE);
        let file = File::options().read(true).append(true).open(&text).map_err(|e| Error::scratch(&text, e))?;
        Ok(Self { path: path.to_owned(), text, file: Mutex::new(file) })
    }

    /// Writes one line.
    pub fn line(&self, level: Level, message: &str) {
        let line = format!("time=\"{:.0}\" level={} msg={message:?}\n", Timestamp::now(), level.as_str());
        if let Ok(mut file) = self.file.lock() {
            let _ = file.write_all(line.as_bytes());
        }
    }

    /// Writes one line of level info.
    pub fn info(&self, message: impl AsRef<str>) {
        self.line(Level::Info, message.as_ref());
    }

    /// Compresses the file and returns its path.
    pub fn finish(self) -> Result<PathBuf, Error> {
        let Self { path, text, file } = self;
        let mut file = file.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.rewind().map_err(|e| Error::scratch(&text, e))?;
        compress(&mut file, &path).map_err(|e| Error::scratch(&path, e))?;
        Ok(path)
    }
}

fn compress(text: &mut File, path: &Path) -> std::io::Result<()> {
    let mut packed = GzEncoder::new(File::create(path)?, Compression::fast());
    std::io::copy(text, &mut packed)?;
    packed.finish()?;
    Ok(())
}

/// The end of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Offset of the text in the log.
    pub offset: u64,
    /// Whole lines.
    pub text: String,
}

/// The end of the log that is being written in a scratch directory: whole lines, at most `max_bytes`.
pub fn tail(scratch: &Path, max_bytes: u64) -> Option<Tail> {
    let mut file = File::open(scratch.join(TEXT_FILE)).ok()?;
    let start = file.metadata().ok()?.len().saturating_sub(max_bytes);
    file.seek(SeekFrom::Start(start)).ok()?;
    let mut bytes = Vec::new();
    file.take(max_bytes).read_to_end(&mut bytes).ok()?;
    let begin = if start == 0 { 0 } else { bytes.iter().position(|byte| *byte == b'\n')? + 1 };
    let end = bytes.iter().rposition(|byte| *byte == b'\n')? + 1;
    let text = String::from_utf8(bytes.get(begin..end)?.to_vec()).ok()?;
    Some(Tail { offset: start + begin as u64, text })
}
