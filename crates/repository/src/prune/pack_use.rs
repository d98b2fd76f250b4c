//! How much of each pack is used.

use super::decision::PackUse;
use super::inventory::{Inventory, PackState};
use crate::Result;
use crate::blob_index::BlobLocation;
use crate::format::blob::BlobKind;
use crate::format::id::Id;
use crate::format::pack::stored_size;
use crate::used_blobs::missing_blob;

/// The use of all packs, by their numbers.
pub(super) struct PackUses(Vec<PackUse>);

fn size_of(location: &BlobLocation) -> u64 {
    stored_size(location.length, location.uncompressed > 0)
}

impl PackUses {
    /// Counts the use of all packs. A used blob that no intact pack has is an error.
    pub(super) fn count(inventory: &Inventory, has_compressed_trees: bool) -> Result<Self> {
        let mut uses = Self(vec![PackUse::default(); inventory.index.pack_count()]);
        let mut missing = None;
        inventory.index.for_each_blob(|kind, number, id, location| {
            let copies = inventory.index.further_copies(kind, id);
            uses.add_kind(kind, &location, has_compressed_trees);
            for copy in copies {
                uses.add_kind(kind, copy, has_compressed_trees);
            }
            if copies.is_empty() && inventory.used.has(kind, number) {
                uses.add(&location, |pack, size| {
                    pack.used += size;
                    pack.only_copy += size;
                });
                if !inventory.is_intact(location.pack) {
                    missing.get_or_insert((kind, *id));
                }
            } else if copies.is_empty() {
                uses.add(&location, |pack, size| pack.unused += size);
            }
        });
        uses.add_copies(inventory, &mut missing);
        missing.map_or(Ok(uses), |(kind, id)| Err(missing_blob(kind, &id, None)))
    }

    /// Counts the blobs with several copies: one of them is used.
    fn add_copies(&mut self, inventory: &Inventory, missing: &mut Option<(BlobKind, Id)>) {
        inventory.index.for_each_blob(|kind, number, id, first| {
            let copies = inventory.index.further_copies(kind, id);
            if copies.is_empty() {
                return;
            }
            let is_used = inventory.used.has(kind, number);
            let kept = if is_used { self.kept_copy(inventory, first, copies) } else { None };
            if is_used && kept.is_none() {
                missing.get_or_insert((kind, *id));
            }
            for location in std::iter::once(&first).chain(copies) {
                self.add(location, |pack, size| {
                    if Some(*location) == kept {
                        pack.used += size;
                    } else {
                        pack.unused += size;
                        pack.duplicate += if is_used { size } else { 0 };
                    }
                });
            }
        });
    }

    /// The copy to keep of a used blob: in an intact pack, the one that is needed most for other blobs.
    pub(super) fn kept_copy(
        &self,
        inventory: &Inventory,
        first: BlobLocation,
        copies: &[BlobLocation],
    ) -> Option<BlobLocation> {
        let intact = std::iter::once(first).chain(copies.iter().copied());
        let intact = intact.filter(|location| inventory.is_intact(location.pack) && !inventory.is_rejected(location));
        intact.max_by_key(|location| {
            let only_copy = self.of(location.pack).only_copy;
            (only_copy, std::cmp::Reverse((location.pack, location.offset)))
        })
    }

    fn add_kind(&mut self, kind: BlobKind, location: &BlobLocation, has_compressed_trees: bool) {
        let is_tree = kind == BlobKind::Tree;
        self.add(location, |pack, _| {
            pack.has_trees |= is_tree;
            pack.has_data |= !is_tree;
            pack.has_plain_trees |= is_tree && has_compressed_trees && location.uncompressed == 0;
        });
    }

    fn add(&mut self, location: &BlobLocation, add: impl FnOnce(&mut PackUse, u64)) {
        if let Some(pack) = self.0.get_mut(location.pack as usize) {
            add(pack, size_of(location));
        }
    }

    pub(super) fn of(&self, number: u32) -> PackUse {
        self.0.get(number as usize).copied().unwrap_or_default()
    }

    /// The packs that exist, with their numbers.
    pub(super) fn present<'a>(&'a self, inventory: &'a Inventory) -> impl Iterator<Item = (u32, PackUse)> + 'a {
        let numbered = (0..).zip(self.0.iter().copied());
        numbered.filter(|(number, _)| inventory.state(*number) != PackState::Removed)
    }
}
