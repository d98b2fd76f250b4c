//! Listing and finding snapshots, also with damaged ones.

use crate::file_cache::Source;
use crate::format::id::Id;
use crate::format::snapshot::Snapshot;
use crate::repository::{FileKind, Repository};
use crate::{RepositoryError, Result};

/// The readable snapshots, oldest first, and the errors of the others.
pub type ReadableSnapshots = (Vec<(Id, Snapshot)>, Vec<RepositoryError>);

impl Repository {
    /// All snapshots, oldest first. A damaged one is an error; [`Repository::readable_snapshots`] skips it.
    pub fn snapshots(&self) -> Result<Vec<(Id, Snapshot)>> {
        let (snapshots, damage) = self.readable_snapshots()?;
        damage.into_iter().next().map_or(Ok(snapshots), Err)
    }

    /// The readable snapshots, oldest first, and the errors of the others.
    pub fn readable_snapshots(&self) -> Result<ReadableSnapshots> {
        self.read_snapshots(|_| true)
    }

    fn read_snapshots(&self, predicate: impl Fn(&Id) -> bool) -> Result<ReadableSnapshots> {
        let (mut snapshots, mut damage) = (Vec::new(), Vec::new());
        let cancel = &self.options.cancel;
        let files = self.list(FileKind::Snapshot, cancel)?;
        let ids = files.iter().map(|file| file.id).filter(predicate);
        self.each_file(FileKind::Snapshot, Source::CacheFirst, ids, cancel, |id, json| {
            match json.and_then(|json| parse(id, &json)) {
                Ok(snapshot) => snapshots.push((id, snapshot)),
                Err(error @ RepositoryError::Corrupt { .. }) => damage.push(error),
                Err(error) => return Err(error),
            }
            Ok(())
        })?;
        self.remove_stale_cached(FileKind::Snapshot, &files);
        snapshots.sort_by_key(|(_, snapshot)| snapshot.time);
        Ok((snapshots, damage))
    }

    /// The snapshot `latest`, or the one whose ID starts with `name`. For `latest`, any damaged snapshot is an error: it might be the
    /// latest.
    pub fn find_snapshot(&self, name: &str) -> Result<(Id, Snapshot)> {
        if let Some(id) = Id::parse(name) {
            return self.load_snapshot(id);
        }
        let is_latest = name == "latest";
        let (mut matching, damage) = self.read_snapshots(|id| is_latest || id.to_string().starts_with(name))?;
        if let Some(error) = damage.into_iter().next() {
            return Err(error);
        }
        if !is_latest && matching.len() > 1 {
            return Err(RepositoryError::AmbiguousSnapshot { name: name.into() });
        }
        matching.pop().ok_or_else(|| self.snapshot_not_found(name))
    }

    fn load_snapshot(&self, id: Id) -> Result<(Id, Snapshot)> {
        match self.wait(&self.options.cancel, self.load(FileKind::Snapshot, id)) {
            Ok(json) => parse(id, &json).map(|snapshot| (id, snapshot)),
            Err(RepositoryError::Store(error)) if error.is_not_found() => Err(self.snapshot_not_found(&id.to_string())),
            Err(error) => Err(error),
        }
    }

    fn snapshot_not_found(&self, name: &str) -> RepositoryError {
        RepositoryError::SnapshotNotFound { name: name.into(), location: self.store.name().into() }
    }
}

fn parse(id: Id, json: &[u8]) -> Result<Snapshot> {
    Snapshot::parse(json).map_err(|cause| RepositoryError::corrupt(format!("snapshot {id}"), cause))
}
