//! The plan of a batch of files: the ranges of packs to read, and the targets of their blobs.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32};

use super::metadata::Metadata;
use crate::blob_index::{BlobIndex, BlobLocation};
use crate::format::blob::BlobKind;
use crate::format::id::Id;

/// A file to write.
pub(super) struct PlannedFile {
    pub path: PathBuf,
    pub metadata: Metadata,
    pub size: u64,
    /// The number of blobs that are not written yet.
    pub open: AtomicU32,
    /// Set when a part of it could not be read.
    pub damaged: AtomicBool,
    /// Set when trailing zeros were not written: its length is set at the end.
    pub has_holes: AtomicBool,
    /// Whether it is a single blob, so that it is opened only once.
    pub is_single_blob: bool,
    /// Whether it has been created.
    pub is_created: Mutex<bool>,
}

/// A blob and one target position.
#[derive(Clone, Copy)]
pub(super) struct BlobTarget {
    pub id: Id,
    pub location: BlobLocation,
    pub file: u32,
    pub offset: u64,
}

/// A range of a pack to read in one request.
pub(super) struct PackRange {
    pub pack: u32,
    pub bytes: Range<u64>,
    /// Its blobs, as a range of the batch's targets.
    pub targets: Range<usize>,
}

/// Files that are restored together.
#[derive(Default)]
pub(super) struct RestoreBatch {
    pub files: Vec<PlannedFile>,
    pub targets: Vec<BlobTarget>,
    /// The memory of the files' attributes.
    attribute_bytes: usize,
}

/// The maximum memory of a batch's attributes.
const MAX_ATTRIBUTE_BYTES: usize = 8 * 1024 * 1024;
/// Smaller gaps between blobs are read too.
const MAX_GAP: u64 = 1024 * 1024;
/// The maximum size of a range.
const MAX_RANGE_SIZE: u64 = 4 * 1024 * 1024;

impl RestoreBatch {
    /// Whether the batch has enough files or blobs.
    pub(super) fn is_full(&self, limit: usize) -> bool {
        let count = self.targets.len().max(self.files.len());
        count >= limit || self.attribute_bytes >= MAX_ATTRIBUTE_BYTES
    }

    /// The blobs of a range, each with all its targets.
    pub(super) fn blobs(&self, range: &PackRange) -> impl Iterator<Item = &[BlobTarget]> {
        let targets = &self.targets[range.targets.clone()];
        targets.chunk_by(|one, other| one.id == other.id && one.location == other.location)
    }

    /// Adds a file with these blobs. The error is a blob that is not in the index.
    pub(super) fn add(
        &mut self,
        path: PathBuf,
        metadata: Metadata,
        content: &[Id],
        index: &BlobIndex,
    ) -> Result<u64, Id> {
        let file = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        let (first, mut offset) = (self.targets.len(), 0);
        for id in content {
            let Some(location) = index.find(BlobKind::Data, id) else {
                self.targets.truncate(first);
                return Err(*id);
            };
            self.targets.push(BlobTarget { id: *id, location, file, offset });
            offset += location.plain_length();
        }
        let open = AtomicU32::new(u32::try_from(content.len()).unwrap_or(u32::MAX));
        let (damaged, has_holes, is_single_blob) = (AtomicBool::new(false), AtomicBool::new(false), content.len() < 2);
        let is_created = Mutex::new(false);
        self.attribute_bytes += metadata.attribute_bytes();
        self.files.push(PlannedFile {
            path,
            metadata,
            size: offset,
            open,
            damaged,
            has_holes,
            is_single_blob,
            is_created,
        });
        Ok(offset)
    }

    /// Sorts the targets by pack, in the order of first use, and splits them into ranges.
    pub(super) fn ranges(&mut self) -> Vec<PackRange> {
        let mut first_use = HashMap::new();
        for (position, target) in self.targets.iter().enumerate() {
            first_use.entry(target.location.pack).or_insert(position);
        }
        let order = |target: &BlobTarget| (first_use.get(&target.location.pack).copied(), target.location.offset);
        self.targets.sort_unstable_by_key(order);
        let mut ranges: Vec<PackRange> = Vec::new();
        for (position, target) in self.targets.iter().enumerate() {
            let bytes = target.location.range();
            match ranges.last_mut() {
                Some(last) if last.can_extend(target) => {
                    last.bytes.end = last.bytes.end.max(bytes.end);
                    last.targets.end = position + 1;
                }
                _ => ranges.push(PackRange { pack: target.location.pack, bytes, targets: position..position + 1 }),
            }
        }
        ranges
    }
}

impl PackRange {
    fn can_extend(&self, next: &BlobTarget) -> bool {
        let bytes = next.location.range();
        let is_near = bytes.start <= self.bytes.end + MAX_GAP;
        self.pack == next.location.pack
            && is_near
            && (bytes.end - self.bytes.start <= MAX_RANGE_SIZE || bytes.end <= self.bytes.end)
    }
}
