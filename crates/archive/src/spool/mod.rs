//! The selected objects of a restore: compressed blocks in one scratch file, and a small row in memory for each object.
//!
//! ```text
//!  scratch file    [compressed, raw length][zstd block][compressed, raw length][zstd block]…
//!  block, raw      [name length][name][object] [name length][name][object] …
//!  row, in memory  block · offset · length · resource · namespace · prefix of the name
//! ```
//! A row and the prefix of its name take at most [`MAX_ROW_BYTES`] bytes. The file is unlinked: a process that is killed leaves
//! no data behind, which matters for Secrets.

mod rows;
mod sealed_spool;

use std::fs::File;
use std::io::Write;
use std::path::Path;

pub use rows::{MAX_ROW_BYTES, RowView};
use rows::{NameTable, Row};
pub use sealed_spool::{SealedSpool, SpooledObject};

use crate::Error;

/// Large enough to compress well, small enough to decompress for one object.
const BLOCK_BYTES: usize = 256 * 1024;
/// The two lengths before a block.
const BLOCK_HEADER: usize = 8;
const COMPRESSION_LEVEL: i32 = 1;

/// A spool that is being written.
pub struct Spool {
    file: File,
    limit: u64,
    written: u64,
    block: Vec<u8>,
    compressor: zstd::bulk::Compressor<'static>,
    rows: Vec<Row>,
    names: NameTable,
}

impl Spool {
    /// Creates an empty spool in a scratch directory, with at most `limit` bytes on disk.
    pub fn create(directory: &Path, limit: u64) -> Result<Self, Error> {
        Ok(Self {
            file: tempfile::tempfile_in(directory)?,
            limit,
            written: 0,
            block: Vec::with_capacity(BLOCK_BYTES),
            compressor: zstd::bulk::Compressor::new(COMPRESSION_LEVEL)?,
            rows: Vec::new(),
            names: NameTable::default(),
        })
    }

    /// Adds an object. A block that would exceed the limit is not written.
    pub fn append(
        &mut self,
        group_resource: &str,
        namespace: Option<&str>,
        name: &str,
        json: &[u8],
    ) -> Result<(), Error> {
        let too_long = |what| Error::InvalidName { what, name: name.to_owned() };
        let name_length = u16::try_from(name.len()).map_err(|_| too_long("name"))?;
        let length = u32::try_from(json.len()).map_err(|_| too_long("object of"))?;
        if !self.block.is_empty() && self.block.len() + json.len() > BLOCK_BYTES {
            self.flush_block()?;
        }
        // A block is at most one full block and one object, whose lengths fit.
        let start = u32::try_from(self.block.len()).map_err(|_| Error::SpoolCorrupted("a block is too long"))?;
        self.block.extend_from_slice(&name_length.to_le_bytes());
        self.block.extend_from_slice(name.as_bytes());
        self.block.extend_from_slice(json);
        let mut row = self.names.row(group_resource, namespace, name)?;
        (row.block, row.start, row.length) = (self.written, start, length);
        self.rows.push(row);
        Ok(())
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Bytes on disk so far.
    pub fn bytes_written(&self) -> u64 {
        self.written
    }

    /// Finishes the spool and sorts its rows into restore order: by the rank of the resource, its name, the namespace and the
    /// name of the object.
    pub fn seal(mut self, rank: impl Fn(&str) -> u32) -> Result<SealedSpool, Error> {
        self.flush_block()?;
        let Self { file, mut rows, mut names, .. } = self;
        names.sort(&mut rows, rank);
        rows.shrink_to_fit();
        names.shrink();
        Ok(SealedSpool::new(file, rows, names))
    }

    fn flush_block(&mut self) -> Result<(), Error> {
        if self.block.is_empty() {
            return Ok(());
        }
        let compressed = self.compressor.compress(&self.block)?;
        let size = (compressed.len() + BLOCK_HEADER) as u64;
        if self.written + size > self.limit {
            return Err(Error::SpoolFull { limit: self.limit });
        }
        for length in [compressed.len(), self.block.len()] {
            let length = u32::try_from(length).map_err(|_| Error::SpoolCorrupted("a block is too long"))?;
            self.file.write_all(&length.to_le_bytes())?;
        }
        self.file.write_all(&compressed)?;
        self.written += size;
        self.block.clear();
        self.block.shrink_to(BLOCK_BYTES);
        Ok(())
    }
}

impl std::fmt::Debug for Spool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spool").field("len", &self.len()).field("written", &self.written).finish_non_exhaustive()
    }
}
