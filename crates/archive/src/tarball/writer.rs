//! Writes the tarball.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::path::{ItemPath, check_component};
use crate::Error;

/// How to write.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Gzip level, 0 to 9. Objects are repetitive text: level 1 is several times as fast as 6 for a few percent more.
    pub level: u32,
    /// The time all entries carry, in seconds; the time of the writer's start if absent. Fix it, and equal items give
    /// equal bytes.
    pub modified: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self { level: 1, modified: None }
    }
}

/// What has been written so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Objects.
    pub items: u64,
    /// Bytes of those objects, once each.
    pub bytes: u64,
    /// Entries of the tar: two for each object, and the version.
    pub entries: u64,
}

/// Packs objects, one after another, on the caller's thread. What it holds is the compressor's window.
///
/// # Guarantees
/// The bytes of an object are written as given. A name that would make an unsafe path is an error, and nothing of that
/// item is written. Without [`Writer::finish`] the output is not a valid archive.
pub struct Writer<W: Write> {
    tar: tar::Builder<GzEncoder<W>>,
    modified: u64,
    path: String,
    counts: Counts,
}

impl<W: Write> Writer<W> {
    /// A writer with default options; writes the version at once.
    pub fn new(out: W) -> Result<Self, Error> {
        Self::with_options(out, Options::default())
    }

    /// As [`Writer::new`].
    pub fn with_options(out: W, options: Options) -> Result<Self, Error> {
        let tar = tar::Builder::new(GzEncoder::new(out, Compression::new(options.level.min(9))));
        let modified = options.modified.unwrap_or_else(now);
        let mut writer = Self { tar, modified, path: String::new(), counts: Counts::default() };
        let version = format!("{}\n", super::FORMAT_VERSION);
        super::VERSION_PATH.clone_into(&mut writer.path);
        writer.append(version.as_bytes())?;
        Ok(writer)
    }

    /// Adds an object, at both of its paths. `version` is the API version, `v1`, that `json` was read as.
    pub fn item(
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
        self.append(json)?;
        path.write(Some(&format!("{version}-preferredversion")), &mut self.path);
        self.append(json)?;
        self.counts.items += 1;
        self.counts.bytes += json.len() as u64;
        Ok(())
    }

    /// What has been written so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Ends the archive and gives the output back; it is not flushed.
    pub fn finish(self) -> Result<W, Error> {
        Ok(self.tar.into_inner()?.finish()?)
    }

    fn append(&mut self, content: &[u8]) -> Result<(), Error> {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(self.modified);
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

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}
