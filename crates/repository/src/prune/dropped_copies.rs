//! Verifies the remaining copy of a blob before another copy is removed with its pack.

use super::inventory::Inventory;
use super::pack_use::PackUses;
use crate::RepositoryError;
use crate::Result;
use crate::blob_index::BlobLocation;
use crate::blob_read::{Decoder, StoredBlob};
use crate::cancel::Cancel;
use crate::format::id::Id;
use crate::pack_parts::PackParts;
use crate::repository::Repository;

/// Reads the copies that remain of blobs whose other copies are removed with the packs in `removed`. Returns the damaged ones. A copy
/// that is itself in a removed pack is verified when it is moved.
pub(super) fn damaged_remaining_copies(
    repository: &Repository,
    inventory: &Inventory,
    uses: &PackUses,
    removed: &[u32],
    cancel: &Cancel,
) -> Result<Vec<BlobLocation>> {
    let mut remaining: Vec<(BlobLocation, Id)> = Vec::new();
    inventory.index.for_each_blob(|kind, number, id, first| {
        let copies = inventory.index.further_copies(kind, id);
        if copies.is_empty() || !inventory.used.has(kind, number) {
            return;
        }
        let is_removed = |location: &BlobLocation| removed.binary_search(&location.pack).is_ok();
        let drops_intact = std::iter::once(&first).chain(copies).any(|location| {
            is_removed(location) && inventory.is_intact(location.pack) && !inventory.is_rejected(location)
        });
        if let Some(kept) = uses.kept_copy(inventory, first, copies)
            && drops_intact
            && !is_removed(&kept)
        {
            remaining.push((kept, *id));
        }
    });
    remaining.sort_unstable_by_key(|(location, _)| (location.pack, location.offset));
    let (mut decoder, mut packs) = (Decoder::new(), PackParts::new(repository, cancel));
    let mut damaged = Vec::new();
    for (location, id) in remaining {
        cancel.check()?;
        let is_good = match packs.read(inventory.index.pack(location.pack), location.range()) {
            Ok(encrypted) => {
                let blob = StoredBlob { encrypted, uncompressed: location.uncompressed, id: &id };
                decoder.decode(&repository.key, &blob).is_ok()
            }
            Err(RepositoryError::Corrupt { .. }) => false,
            Err(error) => return Err(error),
        };
        if !is_good {
            damaged.push(location);
        }
    }
    Ok(damaged)
}
