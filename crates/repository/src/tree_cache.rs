//! A cache of tree packs. Trees of one directory walk are stored together, and one large read is much cheaper than many small ones.
//!
//! A walk through a snapshot of many backups alternates between packs. A pack that was evicted and is needed again is read in
//! parts: the trees before a tree in its pack are those of its subdirectories. Packs that are too large for the cache are read in
//! parts too.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;

use bytes::Bytes;

/// The maximum size of the cache in bytes.
const MAX_CACHE_SIZE: usize = 17 * 1024 * 1024;
/// The size of a part of an evicted pack.
const PART_SIZE: u64 = 1024 * 1024;
/// The size of a part of a large pack.
const LARGE_PART_SIZE: u64 = 4 * 1024 * 1024;

/// A part of a pack, or the read_range pack.
pub(crate) struct PackPart {
    pub pack: u32,
    pub start: u64,
    pub content: Bytes,
}

impl PackPart {
    /// The bytes of a range of the pack, if the part contains them.
    pub(crate) fn slice(&self, range: &Range<u64>) -> Option<Bytes> {
        let index = |at: u64| usize::try_from(at.checked_sub(self.start)?).ok();
        let (start, end) = (index(range.start)?, index(range.end)?);
        (end <= self.content.len()).then(|| self.content.slice(start..end))
    }
}

/// What to read after a cache miss.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MissingRange {
    Pack,
    Part(Range<u64>),
}

/// The parts used last.
#[derive(Default)]
pub(crate) struct TreeCache {
    /// In the order of their last use.
    parts: VecDeque<PackPart>,
    bytes: usize,
    /// Packs that were evicted.
    evicted: HashSet<u32>,
}

impl TreeCache {
    /// A range of a pack, or what to read for it.
    pub(crate) fn find(&mut self, pack: u32, is_large: bool, range: &Range<u64>) -> Result<Bytes, MissingRange> {
        let contains = |part: &PackPart| part.pack == pack && part.slice(range).is_some();
        let cached = self.parts.iter().rposition(contains).and_then(|at| self.parts.remove(at));
        let Some(part) = cached else {
            let part_of = |length| MissingRange::Part(range.start.min(range.end.saturating_sub(length))..range.end);
            return Err(match is_large {
                _ if self.evicted.contains(&pack) => part_of(PART_SIZE),
                true => part_of(LARGE_PART_SIZE),
                false => MissingRange::Pack,
            });
        };
        let bytes = part.slice(range);
        self.parts.push_back(part);
        bytes.ok_or(MissingRange::Pack)
    }

    /// Inserts a part and evicts those that were not used for the longest time.
    pub(crate) fn insert(&mut self, part: PackPart) {
        self.bytes += part.content.len();
        self.parts.push_back(part);
        while self.bytes > MAX_CACHE_SIZE && self.parts.len() > 1 {
            if let Some(oldest) = self.parts.pop_front() {
                self.bytes -= oldest.content.len();
                self.evicted.insert(oldest.pack);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob_index::LARGE_PACK;

    /// Alternates between packs of this size and returns the number of bytes read.
    fn walk(packs: u32, size: u64, trees: u64) -> u64 {
        let (mut cache, mut read) = (TreeCache::default(), 0);
        for tree in (0..trees).rev() {
            for pack in 0..packs {
                let (length, end) = (size / trees, (tree + 1) * (size / trees));
                let range = end - length..end;
                let Err(missing) = cache.find(pack, size > LARGE_PACK, &range) else { continue };
                let read_range = match missing {
                    MissingRange::Pack => 0..size,
                    MissingRange::Part(part) => part,
                };
                read += read_range.end - read_range.start;
                let content =
                    vec![u8::try_from(pack).unwrap_or(0); usize::try_from(read_range.end - read_range.start).unwrap()];
                let part = PackPart { pack, start: read_range.start, content: content.into() };
                assert!(part.slice(&range).is_some_and(|bytes| bytes.len() as u64 == length));
                assert!(cache.bytes + part.content.len() <= 2 * MAX_CACHE_SIZE, "{} bytes and these", cache.bytes);
                cache.insert(part);
                assert!(
                    cache
                        .find(pack, false, &range)
                        .is_ok_and(|bytes| bytes.iter().all(|byte| u32::from(*byte) == pack))
                );
            }
        }
        read
    }

    #[test]
    fn one_pack_is_read_once() {
        assert_eq!(walk(1, 16 << 20, 1000), 16 << 20);
        assert_eq!(walk(3, 4 << 20, 1000), 3 * (4 << 20));
    }

    #[test]
    fn a_walk_that_alternates_between_packs_reads_each_at_most_twice() {
        let (packs, size) = (3, 16 << 20);
        let read = walk(packs, size, 1000);
        assert!(read <= 2 * u64::from(packs) * size + (2 << 20), "{read} bytes of {}", u64::from(packs) * size);
    }

    #[test]
    fn large_packs_are_read_in_parts_at_most_twice() {
        for packs in [1, 3] {
            let (read, size) = (walk(packs, 128 << 20, 1000), 128 << 20);
            assert!(read <= 2 * u64::from(packs) * size, "{read} bytes of {}", u64::from(packs) * size);
        }
    }

    #[test]
    fn a_tree_larger_than_a_part_is_read_in_one_request() {
        let mut cache = TreeCache::default();
        cache.evicted.insert(7);
        assert_eq!(cache.find(7, false, &(100..5 << 20)), Err(MissingRange::Part(100..5 << 20)));
        assert_eq!(cache.find(7, false, &(100..200)), Err(MissingRange::Part(0..200)));
        assert_eq!(cache.find(8, false, &(100..200)), Err(MissingRange::Pack));
    }
}
