//! Writes the tarball.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::item_path::{ItemPath, check_component};
use crate::Error;

/// Options of a [`Writer`].
#[derive(Debug, Clone, Copy)]
pub struct WriterOptions {
    /// Gzip level, 0 to 9. Objects are repetitive text: level 1 is several times as fast as level 6 and a few percent larger.
    pub level: u32,
    /// Modification time of all entries, in Unix seconds; the current time if unset. With a fixed time, equal items give
    /// equal bytes.
    pub modified_time: Option<u64>,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self { level: 1, modified_time: None }
    }
}

/// Counts of what has been written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteCounts {
    /// Objects.
    pub items: u64,
    /// Bytes of these objects, without copies.
    pub bytes: u64,
    /// Tar entries: two for each object, and the version.
    pub entries: u64,
}

/// Writes objects one after another, on the caller's thread. It buffers only the window of the compressor.
///
/// # Guarantees
/// The bytes of an object are written unchanged. A name that is not a valid path component is an error, and nothing of the
/// object is written. Without [`Writer::finish`] the output is not a valid archive.
pub struct Writer<W: Write> {
    tar: tar::Builder<GzEncoder<W>>,
    modified_time: u64,
    path: String,
    counts: WriteCounts,
}

impl<W: Write> Writer<W> {
    /// A writer with default options; writes the format version first.
    pub fn new(out: W) -> Result<Self, Error> {
        Self::with_options(out, WriterOptions::default())
    }

    /// As [`Writer::new`].
    pub fn with_options(out: W, options: WriterOptions) -> Result<Self, Error> {
        let tar = tar::Builder::new(GzEncoder::new(out, Compression::new(options.level.min(9))));
        let modified_time = options.modified_time.unwrap_or_else(current_unix_time);
        let mut writer = Self { tar, modified_time, path: String::new(), counts: WriteCounts::default() };
        let version = format!("{}\n", super::FORMAT_VERSION);
        super::VERSION_PATH.clone_into(&mut writer.path);
        writer.append_entry(version.as_bytes())?;
        Ok(writer)
    }

    /// Adds an object under both of its paths. `version` is the API version of `json`, such as `v1`.
    pub fn append_object(
        &mut self,
        group_resource: &str,
        version: &str,
        namespace: Option<&str>,
        name: &str,
        json: &[u8],
    ) -> Result<(), Error> {
        let path = ItemPath { group_resource, namespace, name };
        path.check()?;
        check_component("version", version)?;
        path.write(None, &mut self.path);
        self.append_entry(json)?;
        path.write(Some(&format!("{version}-preferredversion")), &mut self.path);
        self.append_entry(json)?;
        self.counts.items += 1;
        self.counts.bytes += json.len() as u64;
        Ok(())
    }

    /// Counts of what has been written.
    pub fn counts(&self) -> WriteCounts {
        self.counts
    }

    /// Finishes the archive and returns the output, not flushed.
    pub fn finish(self) -> Result<W, Error> {
        Ok(self.tar.into_inner()?.finish()?)
    }

    fn append_entry(&mut self, content: &[u8]) -> Result<(), Error> {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(self.modified_time);
        header.set_size(content.len() as u64);
        self.tar.append_data(&mut header, &self.path, content)?;
        self.counts.entries += 1;
        Ok(())
    }
}

impl<W: Write> std::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("counts", &self.counts).finish_non_exhaustive()
    }
}

fn current_unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}
