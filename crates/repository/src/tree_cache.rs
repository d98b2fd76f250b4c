//! Packs of trees, kept for a while: trees of one directory walk lie together, and on a distant store one large read is much
//! cheaper than many small ones.
//!
//! A walk through a snapshot of many backups goes to and fro between packs. One that had to make room and is asked for again is
//! therefore read in parts: what lies before a tree in its pack is what lies below it in the directories. So is one that is too
//! large to be kept.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;

use bytes::Bytes;

/// Bytes that are kept.
const KEPT: usize = 17 * 1024 * 1024;
/// What is read of a pack that was there before.
const PART: u64 = 1024 * 1024;
/// What is read of a large pack: more, because it is not known to be gone to and fro.
const PART_OF_LARGE: u64 = 4 * 1024 * 1024;

/// A part of a pack, or all of it.
pub(crate) struct Piece {
    pub pack: u32,
    pub start: u64,
    pub content: Bytes,
}

impl Piece {
    /// The bytes of a range of the pack, if they are here.
    pub(crate) fn slice(&self, range: &Range<u64>) -> Option<Bytes> {
        let place = |at: u64| usize::try_from(at.checked_sub(self.start)?).ok();
        let (start, end) = (place(range.start)?, place(range.end)?);
        (end <= self.content.len()).then(|| self.content.slice(start..end))
    }
}

/// What is to be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wished {
    Pack,
    Part(Range<u64>),
}

/// The pieces used last.
#[derive(Default)]
pub(crate) struct TreeCache {
    /// The one used last is the last.
    pieces: VecDeque<Piece>,
    bytes: usize,
    /// Packs that made room for others.
    gone: HashSet<u32>,
}

impl TreeCache {
    /// A range of a pack, or what to read for it.
    pub(crate) fn find(&mut self, pack: u32, is_large: bool, range: &Range<u64>) -> Result<Bytes, Wished> {
        let holds = |piece: &Piece| piece.pack == pack && piece.slice(range).is_some();
        let found = self.pieces.iter().rposition(holds).and_then(|at| self.pieces.remove(at));
        let Some(piece) = found else {
            let part = |length| Wished::Part(range.start.min(range.end.saturating_sub(length))..range.end);
            return Err(match is_large {
                _ if self.gone.contains(&pack) => part(PART),
                true => part(PART_OF_LARGE),
                false => Wished::Pack,
            });
        };
        let found = piece.slice(range);
        self.pieces.push_back(piece);
        found.ok_or(Wished::Pack)
    }

    /// Keeps a piece; those used longest ago make room for it.
    pub(crate) fn keep(&mut self, piece: Piece) {
        self.bytes += piece.content.len();
        self.pieces.push_back(piece);
        while self.bytes > KEPT && self.pieces.len() > 1 {
            if let Some(oldest) = self.pieces.pop_front() {
                self.bytes -= oldest.content.len();
                self.gone.insert(oldest.pack);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob_index::LARGE_PACK;

    /// Walks to and fro between packs of this size; answers with the bytes that were read.
    fn walk(packs: u32, size: u64, trees: u64) -> u64 {
        let (mut cache, mut read) = (TreeCache::default(), 0);
        for tree in (0..trees).rev() {
            for pack in 0..packs {
                let (length, end) = (size / trees, (tree + 1) * (size / trees));
                let range = end - length..end;
                let Err(wished) = cache.find(pack, size > LARGE_PACK, &range) else { continue };
                let whole = match wished {
                    Wished::Pack => 0..size,
                    Wished::Part(part) => part,
                };
                read += whole.end - whole.start;
                let content = vec![u8::try_from(pack).unwrap_or(0); usize::try_from(whole.end - whole.start).unwrap()];
                let piece = Piece { pack, start: whole.start, content: content.into() };
                assert!(piece.slice(&range).is_some_and(|bytes| bytes.len() as u64 == length));
                assert!(cache.bytes + piece.content.len() <= 2 * KEPT, "{} bytes and these", cache.bytes);
                cache.keep(piece);
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
    fn a_walk_to_and_fro_between_large_packs_reads_each_at_most_twice() {
        let (packs, size) = (3, 16 << 20);
        let read = walk(packs, size, 1000);
        assert!(read <= 2 * u64::from(packs) * size + (2 << 20), "{read} bytes of {}", u64::from(packs) * size);
    }

    #[test]
    fn large_packs_are_read_in_parts_and_not_much_more_often_than_others() {
        for packs in [1, 3] {
            let (read, size) = (walk(packs, 128 << 20, 1000), 128 << 20);
            assert!(read <= 2 * u64::from(packs) * size, "{read} bytes of {}", u64::from(packs) * size);
        }
    }

    #[test]
    fn a_tree_larger_than_a_part_is_read_whole() {
        let mut cache = TreeCache::default();
        cache.gone.insert(7);
        assert_eq!(cache.find(7, false, &(100..5 << 20)), Err(Wished::Part(100..5 << 20)));
        assert_eq!(cache.find(7, false, &(100..200)), Err(Wished::Part(0..200)));
        assert_eq!(cache.find(8, false, &(100..200)), Err(Wished::Pack));
    }
}
