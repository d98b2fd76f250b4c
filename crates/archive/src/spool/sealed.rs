//! Reads objects back, by row.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use super::BLOCK_HEADER;
use super::rows::{Names, Row, RowView, beginning};
use crate::Error;

/// Blocks kept unpacked: readers in parallel move through the file together.
const CACHED_BLOCKS: usize = 8;

/// A spool that is complete, its rows in run order. Reading takes `&self`: many threads may.
pub struct Sealed {
    file: File,
    rows: Vec<Row>,
    /// Where the rows of each resource are, in run order.
    ranges: Vec<Range<usize>>,
    names: Names,
    cache: Mutex<VecDeque<(u64, Block)>>,
}

type Block = Arc<Vec<u8>>;

/// An object out of the spool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spooled {
    /// `pods`, `deployments.apps`.
    pub group_resource: String,
    /// None for what has no namespace.
    pub namespace: Option<String>,
    /// The object's name.
    pub name: String,
    /// The object, as it was appended.
    pub json: Vec<u8>,
}

impl Sealed {
    pub(super) fn new(file: File, rows: Vec<Row>, names: Names) -> Self {
        let mut start = 0;
        let ranges = rows.chunk_by(|a, b| a.resource == b.resource).map(|chunk| {
            let range = start..start + chunk.len();
            start = range.end;
            range
        });
        Self { ranges: ranges.collect(), file, rows, names, cache: Mutex::default() }
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// What a row says without a look at the disk.
    pub fn row(&self, index: usize) -> Option<RowView<'_>> {
        self.rows.get(index).map(|row| self.names.view(row))
    }

    /// All rows, in run order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = RowView<'_>> {
        self.rows.iter().map(|row| self.names.view(row))
    }

    /// The resources in run order, each with its rows.
    pub fn resources(&self) -> impl Iterator<Item = (&str, Range<usize>)> {
        let name = |range: &Range<usize>| self.names.view(&self.rows[range.start]).group_resource;
        self.ranges.iter().map(move |range| (name(range), range.clone()))
    }

    /// The object of a row.
    pub fn read(&self, index: usize) -> Result<Spooled, Error> {
        let row = self.rows.get(index).ok_or(Error::SpoolDamaged("there is no such row"))?;
        let block = self.block(row.block)?;
        let (name, json) = entry(&block, row).ok_or(Error::SpoolDamaged("a row points outside its block"))?;
        let view = self.names.view(row);
        Ok(Spooled {
            group_resource: view.group_resource.to_owned(),
            namespace: view.namespace.map(str::to_owned),
            name: name.to_owned(),
            json: json.to_vec(),
        })
    }

    /// The row of an object.
    pub fn find(&self, group_resource: &str, namespace: Option<&str>, name: &str) -> Result<Option<usize>, Error> {
        let Some((resource, space)) = self.names.ids(group_resource, namespace) else { return Ok(None) };
        let Some((_, range)) = self.resources().find(|(found, _)| *found == group_resource) else { return Ok(None) };
        let (start, kept) = (range.start, beginning(name));
        let before = |row: &Row| {
            let view = self.names.view(row);
            (namespace_order(view.namespace), view.name) < (namespace_order(namespace), kept)
        };
        let first = start + self.rows[range].partition_point(before);
        for (index, row) in self.rows.iter().enumerate().skip(first) {
            if (row.resource, row.namespace) != (resource, space) || self.names.kept_name(row) != kept {
                break;
            }
            // Very long names share their beginning: only the disk knows.
            if kept.len() == name.len() || self.read(index)?.name == name {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    fn block(&self, place: u64) -> Result<Block, Error> {
        if let Some(block) = self.cached(place) {
            return Ok(block);
        }
        let block = Arc::new(self.load(place)?);
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.truncate(CACHED_BLOCKS - 1);
        cache.push_front((place, Arc::clone(&block)));
        Ok(block)
    }

    fn cached(&self, place: u64) -> Option<Block> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.iter().find(|(cached, _)| *cached == place).map(|(_, block)| Arc::clone(block))
    }

    fn load(&self, place: u64) -> Result<Vec<u8>, Error> {
        let (mut packed, mut raw) = ([0; 4], [0; 4]);
        self.file.read_exact_at(&mut packed, place)?;
        self.file.read_exact_at(&mut raw, place + 4)?;
        let mut content = vec![0; u32::from_le_bytes(packed) as usize];
        self.file.read_exact_at(&mut content, place + BLOCK_HEADER as u64)?;
        zstd::bulk::decompress(&content, u32::from_le_bytes(raw) as usize)
            .map_err(|_| Error::SpoolDamaged("a block does not unpack"))
    }
}

/// Objects without a namespace come first, as rows are sorted.
fn namespace_order(namespace: Option<&str>) -> (bool, &str) {
    (namespace.is_some(), namespace.unwrap_or_default())
}

/// Name and object of a row.
fn entry<'a>(block: &'a [u8], row: &Row) -> Option<(&'a str, &'a [u8])> {
    let (length, rest) = block.get(row.start as usize..)?.split_first_chunk::<2>()?;
    let (name, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    Some((str::from_utf8(name).ok()?, rest.get(..row.length as usize)?))
}

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealed").field("len", &self.len()).finish_non_exhaustive()
    }
}
