//! Parts of packs, wherever the packs are: for those that are too large to be held.

use std::ops::Range;

use bytes::Bytes;

use crate::Result;
use crate::cancel::Cancel;
use crate::format::blob::PackedBlob;
use crate::format::id::Id;
use crate::format::pack;
use crate::pack_file::PackFiles;
use crate::repository::Repository;

/// Bytes of a part. One that holds a single blob may have more.
const PART: u64 = 16 * 1024 * 1024;

/// Reads packs part by part and holds one part.
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

    /// The next part takes the place of the one before.
    pub(crate) fn read(&mut self, pack: Id, range: Range<u64>) -> Result<&[u8]> {
        self.fetched = Bytes::new();
        if let Some(content) = self.files.read(self.repository, pack, range.clone()) {
            return content;
        }
        self.fetched = self.repository.wait(self.cancel, self.repository.read_pack_range(pack, range))?;
        Ok(&self.fetched)
    }

    /// The blobs that a pack of this size says it holds, or what is wrong with what it says.
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

/// The parts of a pack of this size: whole blobs as long as there are some, with the blobs in them, and then the rest.
pub(crate) fn parts(blobs: &[PackedBlob], size: u64) -> Vec<(Range<u64>, &[PackedBlob])> {
    let (mut found, mut left, mut start) = (Vec::new(), blobs, 0);
    while start < size {
        let fits = left.iter().take_while(|blob| end_of(blob) <= start + PART).count();
        let (some, rest) = left.split_at(fits.max(1).min(left.len()));
        let end = some.last().map_or((start + PART).min(size), end_of);
        found.push((start..end, some));
        (left, start) = (rest, end);
    }
    found
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
    fn parts_hold_whole_blobs_and_all_bytes_once() {
        for lengths in [&[][..], &[PART / 2; 7], &[1; 100], &[PART + 1, 5, PART, 0, PART - 5, 5, 0], &[3 * PART, 1]] {
            let blobs = blobs(lengths);
            let size = lengths.iter().sum::<u64>() + 1000;
            let (mut at, mut seen) = (0, 0);
            for (range, some) in parts(&blobs, size) {
                assert_eq!(range.start, at, "{lengths:?}");
                assert!(range.end - range.start <= PART || some.len() == 1, "{range:?} of {lengths:?}");
                assert!(some.iter().all(|blob| range.start <= u64::from(blob.offset) && end_of(blob) <= range.end));
                (at, seen) = (range.end, seen + some.len());
            }
            assert_eq!((at, seen), (size, blobs.len()), "{lengths:?}");
        }
    }
}
