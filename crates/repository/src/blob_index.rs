//! Where every blob is, in memory: 48 bytes for each and one slot of a hash table.

use std::collections::{HashMap, HashSet};

use crate::format::blob::{BlobKind, PackedBlob};
use crate::format::id::Id;
use crate::format::index::IndexedPack;

/// Where a blob lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Number of the pack within the index.
    pub pack: u32,
    pub offset: u32,
    pub length: u32,
    pub uncompressed: u32,
}

impl Place {
    pub(crate) fn of(pack: u32, blob: &PackedBlob) -> Self {
        Self { pack, offset: blob.offset, length: blob.length, uncompressed: blob.uncompressed }
    }

    pub(crate) fn range(&self) -> std::ops::Range<u64> {
        let start = u64::from(self.offset);
        start..start + u64::from(self.length)
    }

    pub(crate) fn plain_length(&self) -> u64 {
        let sealed = u64::from(self.length).saturating_sub(crate::format::crypto::OVERHEAD as u64);
        if self.uncompressed > 0 { u64::from(self.uncompressed) } else { sealed }
    }
}

/// The union of all index files.
#[derive(Default)]
pub(crate) struct BlobIndex {
    /// A pack's number is its place in this table.
    packs: Table<Id>,
    data: Table<Entry>,
    trees: Table<Entry>,
    /// Second and further copies: rare, but what a damaged first copy is replaced with.
    copies: HashMap<Id, Vec<Place>>,
    /// What it was made from: index files, and packs that no index file names.
    origin: Origin,
    /// Packs that are too large to be held whole. Few programs write any.
    large: HashSet<u32>,
}

/// The files of the store that an index was made from.
#[derive(Debug, Default)]
pub(crate) struct Origin {
    pub files: Vec<Id>,
    pub packs: Vec<Id>,
}

/// Packs of more are large. A pack that was closed at 16 MiB is not.
pub(crate) const LARGE_PACK: u64 = 17 * 1024 * 1024;

impl BlobIndex {
    /// Takes in what an index file names.
    pub(crate) fn add_file(&mut self, file: Id, packs: &[IndexedPack]) {
        self.origin.files.push(file);
        for pack in packs {
            self.add(pack);
        }
    }

    /// Takes in a pack that no index file names.
    pub(crate) fn add_orphan(&mut self, pack: &IndexedPack) {
        self.origin.packs.push(pack.id);
        self.add(pack);
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Takes in a pack; one that is known already changes nothing.
    pub(crate) fn add(&mut self, pack: &IndexedPack) {
        let Ok(number) = u32::try_from(self.packs.len) else { return };
        if !self.packs.insert(pack.id) {
            return;
        }
        for blob in &pack.blobs {
            self.add_blob(number, blob);
        }
        if pack.blobs.iter().any(|blob| Place::of(number, blob).range().end > LARGE_PACK) {
            self.large.insert(number);
        }
    }

    fn add_blob(&mut self, pack: u32, blob: &PackedBlob) {
        let place = Place::of(pack, blob);
        if !self.table_mut(blob.kind).insert(Entry { id: blob.id, place }) {
            self.copies.entry(blob.id).or_default().push(place);
        }
    }

    pub(crate) fn contains(&self, kind: BlobKind, id: &Id) -> bool {
        self.table(kind).get(id).is_some()
    }

    pub(crate) fn find(&self, kind: BlobKind, id: &Id) -> Option<Place> {
        self.table(kind).get(id).map(|entry| entry.place)
    }

    /// All places of a blob, the preferred one first.
    pub(crate) fn places(&self, kind: BlobKind, id: &Id) -> Vec<Place> {
        let copies = self.copies.get(id).into_iter().flatten().copied();
        self.find(kind, id).into_iter().chain(copies).collect()
    }

    pub(crate) fn pack(&self, number: u32) -> Id {
        if (number as usize) < self.packs.len { *self.packs.entry(number as usize) } else { Id::default() }
    }

    /// Whether a pack is too large to be held whole.
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

/// Something that is found by its ID.
trait Keyed {
    fn id(&self) -> &Id;
}

struct Entry {
    id: Id,
    place: Place,
}

impl Keyed for Entry {
    fn id(&self) -> &Id {
        &self.id
    }
}

impl Keyed for Id {
    fn id(&self) -> &Id {
        self
    }
}

/// A set of IDs: 32 bytes for each and one slot of a hash table.
#[derive(Default)]
pub(crate) struct IdSet(Table<Id>);

impl IdSet {
    /// Adds an ID; says whether it is new.
    pub(crate) fn insert(&mut self, id: Id) -> bool {
        self.0.insert(id)
    }
}

/// Entries in blocks that never move, found through a table of their numbers: what grows is four bytes for each entry, not
/// forty-eight.
struct Table<E> {
    blocks: Vec<Vec<E>>,
    /// Number of the entry plus one; 0 is free. At most three quarters are taken, and right after growing half.
    slots: Vec<u32>,
    len: usize,
}

impl<E> Default for Table<E> {
    fn default() -> Self {
        Self { blocks: Vec::new(), slots: Vec::new(), len: 0 }
    }
}

const BLOCK: usize = 1 << 13;

impl<E: Keyed> Table<E> {
    fn entry(&self, number: usize) -> &E {
        &self.blocks[number / BLOCK][number % BLOCK]
    }

    /// The slot that holds this ID, or the free one where it belongs.
    fn slot(&self, id: &Id) -> Option<usize> {
        let last = self.slots.len().checked_sub(1)?;
        let mut at = spread(id, self.slots.len());
        while let Some(number) = self.slots[at].checked_sub(1) {
            if self.entry(number as usize).id() == id {
                break;
            }
            at = if at == last { 0 } else { at + 1 };
        }
        Some(at)
    }

    /// The number of the entry with this ID: they are counted from 0 as they come.
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
        if self.len.is_multiple_of(BLOCK) {
            self.blocks.push(Vec::with_capacity(BLOCK));
        }
        let Some(block) = self.blocks.last_mut() else { return false };
        block.push(entry);
        self.len += 1;
        self.slots[slot] = u32::try_from(self.len).unwrap_or(u32::MAX);
        true
    }

    fn grow(&mut self) {
        let length = (self.slots.len() / 2 * 3).max(16);
        // The old ones are of no more use, and need not be there beside the new ones.
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

/// Where to look first among so many slots: IDs are hashes, so any part of one is spread evenly.
fn spread(id: &Id, slots: usize) -> usize {
    let product = id.head() as u128 * slots as u128;
    usize::try_from(product >> usize::BITS).unwrap_or(0)
}

/// One bit for each blob of an index.
pub(crate) struct Marks<'a> {
    index: &'a BlobIndex,
    data: Vec<u64>,
    trees: Vec<u64>,
}

impl<'a> Marks<'a> {
    pub(crate) fn new(index: &'a BlobIndex) -> Self {
        let words = |blobs: usize| vec![0; blobs.div_ceil(64)];
        Self { index, data: words(index.data.len), trees: words(index.trees.len) }
    }

    /// Marks a blob; says whether it had no mark. A blob that no index file has cannot be marked, and is never new.
    pub(crate) fn set(&mut self, kind: BlobKind, id: &Id) -> bool {
        let Some(number) = self.index.table(kind).number(id) else { return false };
        let words = if kind == BlobKind::Tree { &mut self.trees } else { &mut self.data };
        let Some(word) = words.get_mut(number / 64) else { return false };
        let bit = 1 << (number % 64);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(word: u32) -> PackedBlob {
        PackedBlob { id: Id::of(&word.to_le_bytes()), kind: BlobKind::Data, offset: word, length: 100, uncompressed: 0 }
    }

    #[test]
    fn every_blob_is_found_again_and_second_copies_are_kept() {
        let blobs: Vec<_> = (0..50_000).map(blob).collect();
        let mut index = BlobIndex::default();
        index.add(&IndexedPack { id: Id::of(b"one"), blobs: blobs.clone() });
        index.add(&IndexedPack { id: Id::of(b"one"), blobs: blobs.clone() });
        index.add(&IndexedPack { id: Id::of(b"two"), blobs: vec![blob(7)] });
        assert_eq!((index.len(), index.pack_count()), (50_000, 2));
        for blob in &blobs {
            assert_eq!(index.find(BlobKind::Data, &blob.id), Some(Place::of(0, blob)));
        }
        assert_eq!(index.find(BlobKind::Tree, &blob(7).id), None);
        let places = index.places(BlobKind::Data, &blob(7).id);
        assert_eq!(
            places.iter().map(|place| index.pack(place.pack)).collect::<Vec<_>>(),
            [Id::of(b"one"), Id::of(b"two")]
        );
    }

    #[test]
    fn a_mark_is_set_once_for_each_blob() {
        let mut index = BlobIndex::default();
        index.add(&IndexedPack { id: Id::of(b"one"), blobs: (0..200).map(blob).collect() });
        let mut marks = Marks::new(&index);
        assert!((0..200).all(|word| marks.set(BlobKind::Data, &blob(word).id)));
        assert!(!(0..200).any(|word| marks.set(BlobKind::Data, &blob(word).id)));
        assert!(!marks.set(BlobKind::Data, &blob(201).id), "not in the index");
    }

    fn bytes_of<E>(table: &Table<E>) -> usize {
        table.blocks.iter().map(Vec::capacity).sum::<usize>() * size_of::<E>() + table.slots.capacity() * 4
    }

    #[test]
    fn a_blob_costs_at_most_sixty_bytes_at_any_time_also_with_few_blobs_in_a_pack() {
        let mut index = BlobIndex::default();
        for pack in 0..40_000_u32 {
            let blobs = (pack * 11..pack * 11 + 11).map(blob).collect();
            index.add(&IndexedPack { id: Id::of(&[&b"pack"[..], &pack.to_le_bytes()].concat()), blobs });
            let begun = BLOCK * (size_of::<Entry>() + size_of::<Id>());
            let bytes = bytes_of(&index.data) + bytes_of(&index.packs);
            assert!(bytes <= index.len() * 60 + begun, "{bytes} bytes for {} blobs", index.len());
        }
    }
}
