//! What a portion of files needs: which ranges of which packs, and where their blobs go.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32};

use super::metadata::Metadata;
use crate::blob_index::{BlobIndex, Place};
use crate::format::blob::BlobKind;
use crate::format::id::Id;

/// A file to write.
pub(super) struct PlannedFile {
    pub path: PathBuf,
    pub metadata: Metadata,
    pub size: u64,
    /// Blobs not written yet.
    pub open: AtomicU32,
    /// A part of it could not be read.
    pub damaged: AtomicBool,
    /// Zeros were not written: its length is to be set at the end.
    pub has_holes: AtomicBool,
    /// All of it is one blob, so that it is opened only once.
    pub is_whole: bool,
    /// Whether it has been made.
    pub begun: Mutex<bool>,
}

/// A blob and one place it is written to.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub id: Id,
    pub place: Place,
    pub file: u32,
    pub offset: u64,
}

/// A part of a pack to be read at once.
pub(super) struct PackRange {
    pub pack: u32,
    pub bytes: Range<u64>,
    /// Its blobs, in the portion's list.
    pub wanted: Range<usize>,
}

/// Files that are restored together.
#[derive(Default)]
pub(super) struct Portion {
    pub files: Vec<PlannedFile>,
    pub wanted: Vec<Wanted>,
    /// What the attributes of these files take of the memory.
    attribute_bytes: usize,
}

/// A portion is restored when its files' attributes have this many bytes: few have any.
const MOST_ATTRIBUTE_BYTES: usize = 8 * 1024 * 1024;
/// Gaps up to this are read over.
const GAP: u64 = 1024 * 1024;
/// What is read at once.
const RANGE: u64 = 4 * 1024 * 1024;

impl Portion {
    /// Whether it has enough of files or blobs.
    pub(super) fn is_full(&self, enough: usize) -> bool {
        let most = self.wanted.len().max(self.files.len());
        most >= enough || self.attribute_bytes >= MOST_ATTRIBUTE_BYTES
    }

    /// The blobs of a range, each with all places it is written to.
    pub(super) fn blobs(&self, range: &PackRange) -> impl Iterator<Item = &[Wanted]> {
        let wanted = &self.wanted[range.wanted.clone()];
        wanted.chunk_by(|one, other| one.id == other.id && one.place == other.place)
    }

    /// Adds a file whose blobs are at these places; the error is a blob that no index file has.
    pub(super) fn add(
        &mut self,
        path: PathBuf,
        metadata: Metadata,
        content: &[Id],
        index: &BlobIndex,
    ) -> Result<u64, Id> {
        let file = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        let (first, mut offset) = (self.wanted.len(), 0);
        for id in content {
            let Some(place) = index.find(BlobKind::Data, id) else {
                self.wanted.truncate(first);
                return Err(*id);
            };
            self.wanted.push(Wanted { id: *id, place, file, offset });
            offset += place.plain_length();
        }
        let open = AtomicU32::new(u32::try_from(content.len()).unwrap_or(u32::MAX));
        let (damaged, has_holes, is_whole) = (AtomicBool::new(false), AtomicBool::new(false), content.len() < 2);
        let begun = Mutex::new(false);
        self.attribute_bytes += metadata.attribute_bytes();
        self.files.push(PlannedFile { path, metadata, size: offset, open, damaged, has_holes, is_whole, begun });
        Ok(offset)
    }

    /// Sorts what is wanted by pack, packs in the order in which files first need them, and cuts it into reads.
    pub(super) fn ranges(&mut self) -> Vec<PackRange> {
        let mut first_use = HashMap::new();
        for (position, wanted) in self.wanted.iter().enumerate() {
            first_use.entry(wanted.place.pack).or_insert(position);
        }
        let order = |wanted: &Wanted| (first_use.get(&wanted.place.pack).copied(), wanted.place.offset);
        self.wanted.sort_unstable_by_key(order);
        let mut ranges: Vec<PackRange> = Vec::new();
        for (position, wanted) in self.wanted.iter().enumerate() {
            let bytes = wanted.place.range();
            match ranges.last_mut() {
                Some(last) if last.takes(wanted) => {
                    last.bytes.end = last.bytes.end.max(bytes.end);
                    last.wanted.end = position + 1;
                }
                _ => ranges.push(PackRange { pack: wanted.place.pack, bytes, wanted: position..position + 1 }),
            }
        }
        ranges
    }
}

impl PackRange {
    fn takes(&self, next: &Wanted) -> bool {
        let bytes = next.place.range();
        let near = bytes.start <= self.bytes.end + GAP;
        self.pack == next.place.pack && near && (bytes.end - self.bytes.start <= RANGE || bytes.end <= self.bytes.end)
    }
}
