//! What a restore selected, on disk: compressed blocks in one scratch file, and a small row in memory for each object.
//!
//! ```text
//!  scratch file    [packed, raw lengths][zstd block][packed, raw lengths][zstd block]…
//!  block, raw      [name length][name][object] [name length][name][object] …
//!  row, in memory  block · place in it · length · resource · namespace · first bytes of the name
//! ```
//! A row and its part of the name take at most [`MOST_BYTES_A_ROW`] bytes. The file has no name in its directory, so that
//! a process that dies leaves nothing behind, Secrets least of all.

mod rows;
mod sealed;

use std::fs::File;
use std::io::Write;
use std::path::Path;

pub use rows::{MOST_BYTES_A_ROW, RowView};
use rows::{Names, Row};
pub use sealed::{Sealed, Spooled};

use crate::Error;

/// Large enough to compress well, small enough to unpack for one object.
const BLOCK_BYTES: usize = 256 * 1024;
/// Lengths in front of a block.
const BLOCK_HEADER: usize = 8;
const LEVEL: i32 = 1;

/// Takes objects, one after another.
pub struct Spool {
    file: File,
    limit: u64,
    written: u64,
    block: Vec<u8>,
    packer: zstd::bulk::Compressor<'static>,
    rows: Vec<Row>,
    names: Names,
}

impl Spool {
    /// An empty spool in a scratch directory, of at most `limit` bytes on disk.
    pub fn create(directory: &Path, limit: u64) -> Result<Self, Error> {
        Ok(Self {
            file: tempfile::tempfile_in(directory)?,
            limit,
            written: 0,
            block: Vec::with_capacity(BLOCK_BYTES),
            packer: zstd::bulk::Compressor::new(LEVEL)?,
            rows: Vec::new(),
            names: Names::default(),
        })
    }

    /// Adds an object. What would exceed the limit is not written.
    pub fn append(
        &mut self,
        group_resource: &str,
        namespace: Option<&str>,
        name: &str,
        json: &[u8],
    ) -> Result<(), Error> {
        let too_long = |what| Error::BadName { what, name: name.to_owned() };
        let name_length = u16::try_from(name.len()).map_err(|_| too_long("name"))?;
        let length = u32::try_from(json.len()).map_err(|_| too_long("object of"))?;
        if !self.block.is_empty() && self.block.len() + json.len() > BLOCK_BYTES {
            self.flush_block()?;
        }
        // A block is at most one full block and one object: both fit.
        let start = u32::try_from(self.block.len()).map_err(|_| Error::SpoolDamaged("a block is too long"))?;
        self.block.extend_from_slice(&name_length.to_le_bytes());
        self.block.extend_from_slice(name.as_bytes());
        self.block.extend_from_slice(json);
        let mut row = self.names.row(group_resource, namespace, name)?;
        (row.block, row.start, row.length) = (self.written, start, length);
        self.rows.push(row);
        Ok(())
    }

    /// How many objects it holds.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Bytes on disk so far.
    pub fn bytes_written(&self) -> u64 {
        self.written
    }

    /// Ends the spool and sorts its rows into run order: by the rank of the resource, its name, the namespace and the
    /// object's name.
    pub fn seal(mut self, rank: impl Fn(&str) -> u32) -> Result<Sealed, Error> {
        self.flush_block()?;
        let Self { file, mut rows, mut names, .. } = self;
        names.sort(&mut rows, rank);
        rows.shrink_to_fit();
        names.shrink();
        Ok(Sealed::new(file, rows, names))
    }

    fn flush_block(&mut self) -> Result<(), Error> {
        if self.block.is_empty() {
            return Ok(());
        }
        let packed = self.packer.compress(&self.block)?;
        let size = (packed.len() + BLOCK_HEADER) as u64;
        if self.written + size > self.limit {
            return Err(Error::SpoolFull { limit: self.limit });
        }
        for length in [packed.len(), self.block.len()] {
            let length = u32::try_from(length).map_err(|_| Error::SpoolDamaged("a block is too long"))?;
            self.file.write_all(&length.to_le_bytes())?;
        }
        self.file.write_all(&packed)?;
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
