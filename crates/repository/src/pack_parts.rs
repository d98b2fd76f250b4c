//! Reads packs in parts, for packs that are too large for memory.

use std::ops::Range;

use bytes::Bytes;

use crate::Result;
use crate::cancel::Cancel;
use crate::format::blob::PackedBlob;
use crate::format::id::Id;
use crate::format::pack;
use crate::pack_file::PackFiles;
use crate::repository::Repository;

/// The maximum size of a part, unless it is a single blob.
const MAX_PART_SIZE: u64 = 16 * 1024 * 1024;

/// Reads packs part by part, with one part in memory.
pub(crate) struct PackParts<'a> {
    repository: &'a Repository,
    cancel: &'a Cancel,
    files: PackFiles,
    fetched: Bytes,
}

impl<'a> PackParts<'a> {
    pub(crate) fn new(repository: &'a Repository, cancel: &'a Cancel) -> Self {
        Self { repository, cancel, files: PackFiles::default(), fetched: Bytes::new() }
    }

    /// Reads a part and replaces the previous one.
    pub(crate) fn read(&mut self, pack: Id, range: Range<u64>) -> Result<&[u8]> {
        self.fetched = Bytes::new();
        if let Some(content) = self.files.read(self.repository, pack, range.clone()) {
            return content;
        }
        self.fetched = self.repository.wait(self.cancel, self.repository.read_pack_range(pack, range))?;
        Ok(&self.fetched)
    }

    /// The blobs in the header of a pack of this size, or what is wrong with the header.
    pub(crate) fn header(&mut self, pack: Id, size: u64) -> Result<Result<Vec<PackedBlob>, String>> {
        let key = &self.repository.key;
        let end = self.read(pack, size.saturating_sub(pack::FIRST_READ)..size)?;
        let needed = match pack::header_size(end, size) {
            Ok(needed) => needed as u64,
            Err(cause) => return Ok(Err(cause)),
        };
        let tail = self.read(pack, size.saturating_sub(needed)..size)?;
        Ok(pack::parse_header(tail, size, key))
    }
}

/// The parts of a pack of this size with their blobs. The last parts have no blobs.
pub(crate) fn parts(blobs: &[PackedBlob], size: u64) -> Vec<(Range<u64>, &[PackedBlob])> {
    let (mut parts, mut remaining, mut start) = (Vec::new(), blobs, 0);
    while start < size {
        let fits = remaining.iter().take_while(|blob| end_of(blob) <= start + MAX_PART_SIZE).count();
        let (some, rest) = remaining.split_at(fits.max(1).min(remaining.len()));
        let end = some.last().map_or((start + MAX_PART_SIZE).min(size), end_of);
        parts.push((start..end, some));
        (remaining, start) = (rest, end);
    }
    parts
}

fn end_of(blob: &PackedBlob) -> u64 {
    u64::from(blob.offset) + u64::from(blob.length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::blob::BlobKind;

    fn blobs(lengths: &[u64]) -> Vec<PackedBlob> {
        let mut offset = 0;
        let blob = |length: &u64| {
            let length = u32::try_from(*length).expect("small");
            let blob = PackedBlob { id: Id::default(), kind: BlobKind::Data, offset, length, uncompressed: 0 };
            offset += length;
            blob
        };
        lengths.iter().map(blob).collect()
    }

    #[test]
    fn parts_contain_complete_blobs_and_all_bytes_once() {
        for lengths in [
            &[][..],
            &[MAX_PART_SIZE / 2; 7],
            &[1; 100],
            &[MAX_PART_SIZE + 1, 5, MAX_PART_SIZE, 0, MAX_PART_SIZE - 5, 5, 0],
            &[3 * MAX_PART_SIZE, 1],
        ] {
            let blobs = blobs(lengths);
            let size = lengths.iter().sum::<u64>() + 1000;
            let (mut at, mut seen) = (0, 0);
            for (range, some) in parts(&blobs, size) {
                assert_eq!(range.start, at, "{lengths:?}");
                assert!(range.end - range.start <= MAX_PART_SIZE || some.len() == 1, "{range:?} of {lengths:?}");
                assert!(some.iter().all(|blob| range.start <= u64::from(blob.offset) && end_of(blob) <= range.end));
                (at, seen) = (range.end, seen + some.len());
            }
            assert_eq!((at, seen), (size, blobs.len()), "{lengths:?}");
        }
    }
}
