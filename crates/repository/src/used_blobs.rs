//! The blobs that snapshots use, found by walking their trees.

use std::collections::HashSet;

use plimsoll_progress::{Task, Unit};

use crate::blob_index::{BlobIndex, BlobSet};
use crate::blob_read::BlobReader;
use crate::cancel::Cancel;
use crate::file_cache::Source;
use crate::format::blob::BlobKind;
use crate::format::id::Id;
use crate::format::snapshot::Snapshot;
use crate::repository::{FileKind, Repository};
use crate::{RepositoryError, Result};

/// The blobs that the snapshots use which were added so far. It only grows: a blob of a snapshot that was removed meanwhile counts as
/// used.
#[derive(Default)]
pub(crate) struct UsedBlobs {
    blobs: BlobSet,
    snapshots: HashSet<Id>,
}

impl UsedBlobs {
    pub(crate) fn has(&self, kind: BlobKind, number: usize) -> bool {
        self.blobs.has(kind, number)
    }

    pub(crate) fn snapshot_count(&self) -> usize {
        self.snapshots.len()
    }

    /// Adds the snapshots that are new. A snapshot or tree that cannot be read is an error, because what it uses is not known.
    pub(crate) fn add_snapshots(
        &mut self,
        repository: &Repository,
        index: &BlobIndex,
        listed: &[Id],
        task: &Task,
        cancel: &Cancel,
    ) -> Result<()> {
        let new: Vec<Id> = listed.iter().copied().filter(|id| !self.snapshots.contains(id)).collect();
        let done = task.meter(Unit::Items);
        done.grow_total(new.len() as u64);
        let mut roots = Vec::with_capacity(new.len());
        repository.each_file(FileKind::Snapshot, Source::CacheFirst, new.into_iter(), cancel, |id, json| {
            let parsed = Snapshot::parse(&json?);
            let snapshot = parsed.map_err(|cause| RepositoryError::corrupt(format!("snapshot {id}"), cause))?;
            roots.push((id, snapshot.tree));
            Ok(())
        })?;
        let reader = BlobReader::new(repository, index, cancel);
        for (id, tree) in roots {
            task.say(format!("snapshot {}", id.short()));
            self.add_tree(index, &reader, id, tree, cancel)?;
            self.snapshots.insert(id);
            done.add(1);
        }
        Ok(())
    }

    fn add_tree(
        &mut self,
        index: &BlobIndex,
        reader: &BlobReader<'_>,
        snapshot: Id,
        root: Id,
        cancel: &Cancel,
    ) -> Result<()> {
        let mut pending = vec![root];
        while let Some(id) = pending.pop() {
            cancel.check()?;
            if !self.add(index, BlobKind::Tree, &id, snapshot)? {
                continue;
            }
            // Of every node, whatever its kind: what is not understood must not be removed.
            for node in &reader.tree(&id)?.nodes {
                for blob in node.content.iter().flatten() {
                    self.add(index, BlobKind::Data, blob, snapshot)?;
                }
                pending.extend(node.subtree);
            }
        }
        Ok(())
    }

    fn add(&mut self, index: &BlobIndex, kind: BlobKind, id: &Id, snapshot: Id) -> Result<bool> {
        self.blobs.insert(index, kind, id).ok_or_else(|| missing_blob(kind, id, Some(snapshot)))
    }
}

/// The error for a blob that a snapshot uses and no pack has.
pub(crate) fn missing_blob(kind: BlobKind, id: &Id, snapshot: Option<Id>) -> RepositoryError {
    let name = if kind == BlobKind::Tree { "tree" } else { "data blob" };
    let user = snapshot.map_or_else(|| "a snapshot".into(), |snapshot| format!("snapshot {}", snapshot.short()));
    let cause =
        format!("{user} needs it and no pack in the index has it; nothing was removed; repair the repository first");
    RepositoryError::corrupt(format!("{name} {id}"), cause)
}
