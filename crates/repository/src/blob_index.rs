//! The in-memory index of all blobs: 48 bytes and one hash table slot for each.

use std::collections::{HashMap, HashSet};

use crate::format::blob::{BlobKind, PackedBlob};
use crate::format::id::Id;
use crate::format::index::IndexedPack;

/// The location of a blob in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlobLocation {
    /// Number of the pack within the index.
    pub pack: u32,
    pub offset: u32,
    pub length: u32,
    pub uncompressed: u32,
}

impl BlobLocation {
    pub(crate) fn of(pack: u32, blob: &PackedBlob) -> Self {
        Self { pack, offset: blob.offset, length: blob.length, uncompressed: blob.uncompressed }
    }

    pub(crate) fn range(&self) -> std::ops::Range<u64> {
        let start = u64::from(self.offset);
        start..start + u64::from(self.length)
    }

    pub(crate) fn plain_length(&self) -> u64 {
        let encrypted = u64::from(self.length).saturating_sub(crate::format::crypto::OVERHEAD as u64);
        if self.uncompressed > 0 { u64::from(self.uncompressed) } else { encrypted }
    }
}

/// The union of all index files.
#[derive(Default)]
pub(crate) struct BlobIndex {
    /// The number of a pack is its position in this table.
    packs: Table<Id>,
    data: Table<Entry>,
    trees: Table<Entry>,
    /// Further copies of blobs. They are rare and replace a damaged first copy.
    copies: HashMap<(BlobKind, Id), Vec<BlobLocation>>,
    /// The index files and unindexed packs that it was loaded from.
    sources: IndexSources,
    /// Packs that are too large for memory. Few programs write them.
    large: HashSet<u32>,
}

/// The files of the store that an index was loaded from.
#[derive(Debug, Default)]
pub(crate) struct IndexSources {
    pub files: Vec<Id>,
    pub packs: Vec<Id>,
}

/// Larger packs count as large. A pack that was closed at 16 MiB does not.
pub(crate) const LARGE_PACK: u64 = 17 * 1024 * 1024;

impl BlobIndex {
    /// Adds the packs of an index file.
    pub(crate) fn add_file(&mut self, file: Id, packs: &[IndexedPack]) {
        self.sources.files.push(file);
        for pack in packs {
            self.add(pack);
        }
    }

    /// Adds a pack that is in no index file.
    pub(crate) fn add_unindexed(&mut self, pack: &IndexedPack) {
        self.sources.packs.push(pack.id);
        self.add(pack);
    }

    pub(crate) fn sources(&self) -> &IndexSources {
        &self.sources
    }

    /// Adds a pack, unless it is already in the index.
    pub(crate) fn add(&mut self, pack: &IndexedPack) {
        let Ok(number) = u32::try_from(self.packs.len) else { return };
        if !self.packs.insert(pack.id) {
            return;
        }
        for blob in &pack.blobs {
            self.add_blob(number, blob);
        }
        if pack.blobs.iter().any(|blob| BlobLocation::of(number, blob).range().end > LARGE_PACK) {
            self.large.insert(number);
        }
    }

    fn add_blob(&mut self, pack: u32, blob: &PackedBlob) {
        let location = BlobLocation::of(pack, blob);
        if !self.table_mut(blob.kind).insert(Entry { id: blob.id, location }) {
            self.copies.entry((blob.kind, blob.id)).or_default().push(location);
        }
    }

    pub(crate) fn contains(&self, kind: BlobKind, id: &Id) -> bool {
        self.table(kind).get(id).is_some()
    }

    pub(crate) fn find(&self, kind: BlobKind, id: &Id) -> Option<BlobLocation> {
        self.table(kind).get(id).map(|entry| entry.location)
    }

    /// All locations of a blob, the preferred one first.
    pub(crate) fn locations(&self, kind: BlobKind, id: &Id) -> Vec<BlobLocation> {
        self.find(kind, id).into_iter().chain(self.further_copies(kind, id).iter().copied()).collect()
    }

    /// The locations of a blob except for the preferred one.
    pub(crate) fn further_copies(&self, kind: BlobKind, id: &Id) -> &[BlobLocation] {
        // Almost always there are none, and the caller may ask for every blob.
        if self.copies.is_empty() { &[] } else { self.copies.get(&(kind, *id)).map_or(&[], Vec::as_slice) }
    }

    /// Adds a pack with blobs of removed packs, and then forgets all other locations in removed packs that a blob can do without.
    pub(crate) fn replace_removed(&mut self, moved: &[IndexedPack], is_removed: impl Fn(u32) -> bool) {
        for pack in moved {
            self.add(pack);
            let Some(number) = self.pack_number(&pack.id) else { continue };
            for blob in &pack.blobs {
                self.prefer(blob.kind, &blob.id, BlobLocation::of(number, blob), &is_removed);
            }
        }
        for key in self.copies.keys().copied().collect::<Vec<_>>() {
            let remaining = self.copies.get(&key).into_iter().flatten().find(|location| !is_removed(location.pack));
            if let Some(location) = remaining.copied() {
                self.prefer(key.0, &key.1, location, &is_removed);
            }
        }
    }

    /// Prefers this location if the preferred one is removed, and forgets further copies that are removed.
    fn prefer(&mut self, kind: BlobKind, id: &Id, location: BlobLocation, is_removed: impl Fn(u32) -> bool) {
        let table = self.table_mut(kind);
        let Some(number) = table.number(id) else { return };
        let preferred = &mut table.entry_mut(number).location;
        if is_removed(preferred.pack) {
            *preferred = location;
        }
        let preferred = *preferred;
        if let Some(copies) = self.copies.get_mut(&(kind, *id)) {
            copies.retain(|copy| *copy != preferred && !is_removed(copy.pack));
            if copies.is_empty() {
                self.copies.remove(&(kind, *id));
            }
        }
    }

    /// The number of a pack.
    pub(crate) fn pack_number(&self, id: &Id) -> Option<u32> {
        self.packs.number(id).and_then(|number| u32::try_from(number).ok())
    }

    /// Calls `each` with every blob and its preferred location, in the order of their numbers.
    pub(crate) fn for_each_blob(&self, mut each: impl FnMut(BlobKind, usize, &Id, BlobLocation)) {
        for kind in [BlobKind::Tree, BlobKind::Data] {
            let entries = self.table(kind).blocks.iter().flatten();
            entries.enumerate().for_each(|(number, entry)| each(kind, number, &entry.id, entry.location));
        }
    }

    pub(crate) fn pack(&self, number: u32) -> Id {
        if (number as usize) < self.packs.len { *self.packs.entry(number as usize) } else { Id::default() }
    }

    /// Whether a pack is too large for memory.
    pub(crate) fn is_large(&self, number: u32) -> bool {
        self.large.contains(&number)
    }

    pub(crate) fn pack_count(&self) -> usize {
        self.packs.len
    }

    pub(crate) fn has_pack(&self, id: &Id) -> bool {
        self.packs.get(id).is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.data.len + self.trees.len
    }

    fn table(&self, kind: BlobKind) -> &Table<Entry> {
        match kind {
            BlobKind::Data => &self.data,
            BlobKind::Tree => &self.trees,
        }
    }

    fn table_mut(&mut self, kind: BlobKind) -> &mut Table<Entry> {
        match kind {
            BlobKind::Data => &mut self.data,
            BlobKind::Tree => &mut self.trees,
        }
    }
}

/// An entry with an ID.
trait HasId {
    fn id(&self) -> &Id;
}

struct Entry {
    id: Id,
    location: BlobLocation,
}

impl HasId for Entry {
    fn id(&self) -> &Id {
        &self.id
    }
}

impl HasId for Id {
    fn id(&self) -> &Id {
        self
    }
}

/// A set of IDs: 32 bytes and one hash table slot for each.
#[derive(Default)]
pub(crate) struct IdSet(Table<Id>);

impl IdSet {
    /// Adds an ID. Returns whether it is new.
    pub(crate) fn insert(&mut self, id: Id) -> bool {
        self.0.insert(id)
    }
}

/// Entries in blocks that never move, found through a hash table of their numbers. Only the table with four bytes per entry is
/// reallocated, not the entries with 48 bytes.
struct Table<E> {
    blocks: Vec<Vec<E>>,
    /// The number of the entry plus one; 0 is free. At most three quarters are used, and half right after growing.
    slots: Vec<u32>,
    len: usize,
}

impl<E> Default for Table<E> {
    fn default() -> Self {
        Self { blocks: Vec::new(), slots: Vec::new(), len: 0 }
    }
}

const BLOCK_SIZE: usize = 1 << 13;

impl<E: HasId> Table<E> {
    fn entry(&self, number: usize) -> &E {
        &self.blocks[number / BLOCK_SIZE][number % BLOCK_SIZE]
    }

    fn entry_mut(&mut self, number: usize) -> &mut E {
        &mut self.blocks[number / BLOCK_SIZE][number % BLOCK_SIZE]
    }

    /// The slot of this ID, or the free slot for it.
    fn slot(&self, id: &Id) -> Option<usize> {
        let last = self.slots.len().checked_sub(1)?;
        let mut at = first_slot(id, self.slots.len());
        while let Some(number) = self.slots[at].checked_sub(1) {
            if self.entry(number as usize).id() == id {
                break;
            }
            at = if at == last { 0 } else { at + 1 };
        }
        Some(at)
    }

    /// The number of the entry with this ID, from 0 in the order of insertion.
    fn number(&self, id: &Id) -> Option<usize> {
        self.slots[self.slot(id)?].checked_sub(1).map(|number| number as usize)
    }

    fn get(&self, id: &Id) -> Option<&E> {
        self.number(id).map(|number| self.entry(number))
    }

    fn insert(&mut self, entry: E) -> bool {
        if self.len * 4 >= self.slots.len() * 3 {
            self.grow();
        }
        let Some(slot) = self.slot(entry.id()) else { return false };
        if self.slots[slot] != 0 {
            return false;
        }
        if self.len.is_multiple_of(BLOCK_SIZE) {
            self.blocks.push(Vec::with_capacity(BLOCK_SIZE));
        }
        let Some(block) = self.blocks.last_mut() else { return false };
        block.push(entry);
        self.len += 1;
        self.slots[slot] = u32::try_from(self.len).unwrap_or(u32::MAX);
        true
    }

    fn grow(&mut self) {
        let length = (self.slots.len() / 2 * 3).max(16);
        // Free the old slots before the new ones are allocated.
        self.slots = Vec::new();
        self.slots = vec![0; length];
        for number in 0..self.len {
            let id = *self.entry(number).id();
            if let Some(slot) = self.slot(&id) {
                self.slots[slot] = u32::try_from(number + 1).unwrap_or(u32::MAX);
            }
        }
    }
}

/// The first slot to probe. IDs are hashes, so any part of them is evenly distributed.
fn first_slot(id: &Id, slots: usize) -> usize {
    let product = id.head() as u128 * slots as u128;
    usize::try_from(product >> usize::BITS).unwrap_or(0)
}

/// One bit for each blob of an index, also of an index to which blobs are added.
#[derive(Default)]
pub(crate) struct BlobSet {
    data: Vec<u64>,
    trees: Vec<u64>,
}

impl BlobSet {
    /// Adds a blob. Returns whether it is new; `None` for a blob that is not in the index, which cannot be added.
    pub(crate) fn insert(&mut self, index: &BlobIndex, kind: BlobKind, id: &Id) -> Option<bool> {
        let table = index.table(kind);
        let number = table.number(id)?;
        let words = if kind == BlobKind::Tree { &mut self.trees } else { &mut self.data };
        if words.len() <= number / 64 {
            words.resize(table.len.div_ceil(64), 0);
        }
        let word = words.get_mut(number / 64)?;
        let bit = 1 << (number % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        Some(is_new)
    }

    /// Whether it has a blob of the index.
    pub(crate) fn contains(&self, index: &BlobIndex, kind: BlobKind, id: &Id) -> bool {
        index.table(kind).number(id).is_some_and(|number| self.has(kind, number))
    }

    /// Whether it has the blob with this number.
    pub(crate) fn has(&self, kind: BlobKind, number: usize) -> bool {
        let words = if kind == BlobKind::Tree { &self.trees } else { &self.data };
        words.get(number / 64).is_some_and(|word| word & (1 << (number % 64)) != 0)
    }
}

/// One bit for each blob of an index.
pub(crate) struct BlobMarks<'a> {
    index: &'a BlobIndex,
    marked: BlobSet,
}

impl<'a> BlobMarks<'a> {
    pub(crate) fn new(index: &'a BlobIndex) -> Self {
        Self { index, marked: BlobSet::default() }
    }

    /// Marks a blob. Returns whether it was unmarked. A blob that is not in the index cannot be marked and is never new.
    pub(crate) fn set(&mut self, kind: BlobKind, id: &Id) -> bool {
        self.marked.insert(self.index, kind, id).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(word: u32) -> PackedBlob {
        PackedBlob { id: Id::of(&word.to_le_bytes()), kind: BlobKind::Data, offset: word, length: 100, uncompressed: 0 }
    }

    #[test]
    fn every_blob_and_its_copies_are_found() {
        let blobs: Vec<_> = (0..50_000).map(blob).collect();
        let mut index = BlobIndex::default();
        index.add(&IndexedPack { id: Id::of(b"one"), blobs: blobs.clone() });
        index.add(&IndexedPack { id: Id::of(b"one"), blobs: blobs.clone() });
        index.add(&IndexedPack { id: Id::of(b"two"), blobs: vec![blob(7)] });
        assert_eq!((index.len(), index.pack_count()), (50_000, 2));
        for blob in &blobs {
            assert_eq!(index.find(BlobKind::Data, &blob.id), Some(BlobLocation::of(0, blob)));
        }
        assert_eq!(index.find(BlobKind::Tree, &blob(7).id), None);
        let locations = index.locations(BlobKind::Data, &blob(7).id);
        assert_eq!(
            locations.iter().map(|location| index.pack(location.pack)).collect::<Vec<_>>(),
            [Id::of(b"one"), Id::of(b"two")]
        );
    }

    #[test]
    fn a_blob_is_new_only_when_it_is_first_marked() {
        let mut index = BlobIndex::default();
        index.add(&IndexedPack { id: Id::of(b"one"), blobs: (0..200).map(blob).collect() });
        let mut marks = BlobMarks::new(&index);
        assert!((0..200).all(|word| marks.set(BlobKind::Data, &blob(word).id)));
        assert!(!(0..200).any(|word| marks.set(BlobKind::Data, &blob(word).id)));
        assert!(!marks.set(BlobKind::Data, &blob(201).id), "not in the index");
    }

    fn bytes_of<E>(table: &Table<E>) -> usize {
        table.blocks.iter().map(Vec::capacity).sum::<usize>() * size_of::<E>() + table.slots.capacity() * 4
    }

    #[test]
    fn a_blob_takes_at_most_60_bytes_also_in_small_packs() {
        let mut index = BlobIndex::default();
        for pack in 0..40_000_u32 {
            let blobs = (pack * 11..pack * 11 + 11).map(blob).collect();
            index.add(&IndexedPack { id: Id::of(&[&b"pack"[..], &pack.to_le_bytes()].concat()), blobs });
            let started_blocks = BLOCK_SIZE * (size_of::<Entry>() + size_of::<Id>());
            let bytes = bytes_of(&index.data) + bytes_of(&index.packs);
            assert!(bytes <= index.len() * 60 + started_blocks, "{bytes} bytes for {} blobs", index.len());
        }
    }
}
