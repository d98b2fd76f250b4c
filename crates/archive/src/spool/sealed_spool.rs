//! Reads objects of a complete spool by row.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use super::BLOCK_HEADER;
use super::rows::{NameTable, Row, RowView, name_prefix};
use crate::Error;

/// Decompressed blocks in the cache: parallel readers advance through the file together.
const CACHED_BLOCKS: usize = 8;

/// A complete spool with its rows in restore order. Reading takes `&self` and is thread-safe.
pub struct SealedSpool {
    file: File,
    rows: Vec<Row>,
    /// The rows of each resource, in restore order.
    ranges: Vec<Range<usize>>,
    names: NameTable,
    cache: Mutex<VecDeque<(u64, Block)>>,
}

type Block = Arc<Vec<u8>>;

/// An object read from the spool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpooledObject {
    /// `pods`, `deployments.apps`.
    pub group_resource: String,
    /// `None` for cluster-scoped objects.
    pub namespace: Option<String>,
    /// The name of the object.
    pub name: String,
    /// The object, as it was appended.
    pub json: Vec<u8>,
}

impl SealedSpool {
    pub(super) fn new(file: File, rows: Vec<Row>, names: NameTable) -> Self {
        let mut start = 0;
        let ranges = rows.chunk_by(|a, b| a.resource == b.resource).map(|chunk| {
            let range = start..start + chunk.len();
            start = range.end;
            range
        });
        Self { ranges: ranges.collect(), file, rows, names, cache: Mutex::default() }
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The fields of a row that are in memory.
    pub fn row(&self, index: usize) -> Option<RowView<'_>> {
        self.rows.get(index).map(|row| self.names.view(row))
    }

    /// All rows, in restore order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = RowView<'_>> {
        self.rows.iter().map(|row| self.names.view(row))
    }

    /// The resources in restore order, each with its rows.
    pub fn resources(&self) -> impl Iterator<Item = (&str, Range<usize>)> {
        let name = |range: &Range<usize>| self.names.view(&self.rows[range.start]).group_resource;
        self.ranges.iter().map(move |range| (name(range), range.clone()))
    }

    /// The object of a row.
    pub fn read(&self, index: usize) -> Result<SpooledObject, Error> {
        let row = self.rows.get(index).ok_or(Error::SpoolCorrupted("no such row"))?;
        let block = self.block(row.block)?;
        let (name, json) = name_and_json(&block, row).ok_or(Error::SpoolCorrupted("a row points outside its block"))?;
        let view = self.names.view(row);
        Ok(SpooledObject {
            group_resource: view.group_resource.to_owned(),
            namespace: view.namespace.map(str::to_owned),
            name: name.to_owned(),
            json: json.to_vec(),
        })
    }

    /// The row of an object.
    pub fn find(&self, group_resource: &str, namespace: Option<&str>, name: &str) -> Result<Option<usize>, Error> {
        let Some((resource, namespace_id)) = self.names.ids(group_resource, namespace) else { return Ok(None) };
        let Some((_, range)) = self.resources().find(|(found, _)| *found == group_resource) else { return Ok(None) };
        let (start, prefix) = (range.start, name_prefix(name));
        let before = |row: &Row| {
            let view = self.names.view(row);
            (namespace_order(view.namespace), view.name) < (namespace_order(namespace), prefix)
        };
        let first = start + self.rows[range].partition_point(before);
        for (index, row) in self.rows.iter().enumerate().skip(first) {
            if (row.resource, row.namespace) != (resource, namespace_id) || self.names.name_prefix_of(row) != prefix {
                break;
            }
            // Very long names may have the same prefix: compare the whole name.
            if prefix.len() == name.len() || self.read(index)?.name == name {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    fn block(&self, offset: u64) -> Result<Block, Error> {
        if let Some(block) = self.cached(offset) {
            return Ok(block);
        }
        let block = Arc::new(self.load(offset)?);
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.truncate(CACHED_BLOCKS - 1);
        cache.push_front((offset, Arc::clone(&block)));
        Ok(block)
    }

    fn cached(&self, offset: u64) -> Option<Block> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.iter().find(|(cached, _)| *cached == offset).map(|(_, block)| Arc::clone(block))
    }

    fn load(&self, offset: u64) -> Result<Vec<u8>, Error> {
        let (mut compressed, mut raw) = ([0; 4], [0; 4]);
        self.file.read_exact_at(&mut compressed, offset)?;
        self.file.read_exact_at(&mut raw, offset + 4)?;
        let mut content = vec![0; u32::from_le_bytes(compressed) as usize];
        self.file.read_exact_at(&mut content, offset + BLOCK_HEADER as u64)?;
        zstd::bulk::decompress(&content, u32::from_le_bytes(raw) as usize)
            .map_err(|_| Error::SpoolCorrupted("a block cannot be decompressed"))
    }
}

/// Cluster-scoped objects come first, as rows are sorted.
fn namespace_order(namespace: Option<&str>) -> (bool, &str) {
    (namespace.is_some(), namespace.unwrap_or_default())
}

/// Name and object of a row.
fn name_and_json<'a>(block: &'a [u8], row: &Row) -> Option<(&'a str, &'a [u8])> {
    let (length, rest) = block.get(row.start as usize..)?.split_first_chunk::<2>()?;
    let (name, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    Some((str::from_utf8(name).ok()?, rest.get(..row.length as usize)?))
}

impl std::fmt::Debug for SealedSpool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SealedSpool").field("len", &self.len()).finish_non_exhaustive()
    }
}
