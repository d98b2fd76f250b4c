//! Finding snapshots, also when some cannot be read.

use crate::file_cache::Source;
use crate::format::id::Id;
use crate::format::snapshot::Snapshot;
use crate::repository::{FileKind, Repository};
use crate::{RepositoryError, Result};

/// The snapshots that can be read, oldest first, and what is wrong with the others.
pub type ReadableSnapshots = (Vec<(Id, Snapshot)>, Vec<RepositoryError>);

impl Repository {
    /// All snapshots, oldest first. One that cannot be read is an error; [`Repository::readable_snapshots`] goes on.
    pub fn snapshots(&self) -> Result<Vec<(Id, Snapshot)>> {
        let (snapshots, damage) = self.readable_snapshots()?;
        damage.into_iter().next().map_or(Ok(snapshots), Err)
    }

    /// The snapshots that can be read, oldest first, and what is wrong with the others.
    pub fn readable_snapshots(&self) -> Result<ReadableSnapshots> {
        self.read_snapshots(|_| true)
    }

    fn read_snapshots(&self, wanted: impl Fn(&Id) -> bool) -> Result<ReadableSnapshots> {
        let (mut snapshots, mut damage) = (Vec::new(), Vec::new());
        let cancel = &self.options.cancel;
        let files = self.list(FileKind::Snapshot, cancel)?;
        let wanted = files.iter().map(|file| file.id).filter(wanted);
        self.each_file(FileKind::Snapshot, Source::CacheFirst, wanted, cancel, |id, json| {
            match json.and_then(|json| parse(id, &json)) {
                Ok(snapshot) => snapshots.push((id, snapshot)),
                Err(error @ RepositoryError::Corrupt { .. }) => damage.push(error),
                Err(error) => return Err(error),
            }
            Ok(())
        })?;
        self.forget_cached(FileKind::Snapshot, &files);
        snapshots.sort_by_key(|(_, snapshot)| snapshot.time);
        Ok((snapshots, damage))
    }

    /// The snapshot called `latest`, or the one whose ID starts with `name`. Only `latest` minds other snapshots that
    /// cannot be read: one of them might be it.
    pub fn find_snapshot(&self, name: &str) -> Result<(Id, Snapshot)> {
        if let Some(id) = Id::parse(name) {
            return self.load_snapshot(id);
        }
        let latest = name == "latest";
        let (mut found, damage) = self.read_snapshots(|id| latest || id.to_string().starts_with(name))?;
        if let Some(error) = damage.into_iter().next() {
            return Err(error);
        }
        if !latest && found.len() > 1 {
            return Err(RepositoryError::AmbiguousSnapshot { name: name.into() });
        }
        found.pop().ok_or_else(|| self.no_such_snapshot(name))
    }

    fn load_snapshot(&self, id: Id) -> Result<(Id, Snapshot)> {
        match self.wait(&self.options.cancel, self.load(FileKind::Snapshot, id)) {
            Ok(json) => parse(id, &json).map(|snapshot| (id, snapshot)),
            Err(RepositoryError::Store(error)) if error.is_not_found() => Err(self.no_such_snapshot(&id.to_string())),
            Err(error) => Err(error),
        }
    }

    fn no_such_snapshot(&self, name: &str) -> RepositoryError {
        RepositoryError::NoSuchSnapshot { name: name.into(), location: self.store.name().into() }
    }
}

fn parse(id: Id, json: &[u8]) -> Result<Snapshot> {
    Snapshot::parse(json).map_err(|cause| RepositoryError::corrupt(format!("snapshot {id}"), cause))
}
