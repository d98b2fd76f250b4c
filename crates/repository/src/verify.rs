//! Verifies snapshots: what they need is there, and intact as far as it is read. Backups can run meanwhile.
//!
//! ```text
//!  snapshots ─▶ trees ─▶ used blobs ─▶ used packs: there, of the right size ─▶ all or a sample: every blob decoded
//!  damage ─▶ all snapshots of the repository that cannot be restored completely because of it
//! ```

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_progress::{Task, Total, Unit};

use crate::blob_index::{BlobIndex, BlobSet};
use crate::blob_read::BlobReader;
use crate::cancel::Cancel;
use crate::check::{ReadData, choose};
use crate::file_cache::Source;
use crate::format::blob::{BlobKind, PackedBlob};
use crate::format::id::Id;
use crate::format::pack;
use crate::format::snapshot::Snapshot;
use crate::format::tree::{NodeKind, Tree};
use crate::lock::{Lock, LockKind};
use crate::pack_check::{PackCheck, PackFindings};
use crate::repository::{FileKind, ListedFile, Repository};
use crate::store_waits::{hint_if_not_locked, show_waits};
use crate::{RepositoryError, Result};

/// Something that is missing or damaged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// What it is.
    pub text: String,
    /// All snapshots of the repository, verified or not, that cannot be restored completely because of it.
    pub snapshots: Vec<Id>,
}

/// The outcome of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyOutcome {
    /// The number of verified snapshots.
    pub snapshots: u64,
    /// The number of packs that they use.
    pub packs: u64,
    /// The number of bytes read from packs.
    pub bytes_read: u64,
    /// The first thousand missing or damaged parts.
    pub damage: Vec<Damage>,
    /// The number of all of them.
    pub damage_count: u64,
    /// Damage that affects no restore.
    pub warnings: Vec<String>,
}

/// The maximum number of damaged parts that are named. Further ones are only counted.
const MAX_DAMAGE: usize = 1000;

/// A part of a repository that can be damaged on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    Snapshot(Id),
    /// A pack, by its number, that is missing or incomplete.
    Pack(u32),
    /// One copy of a blob, in the pack with this number.
    Copy(BlobKind, Id, u32),
    /// A blob in no pack of the index, or a tree that cannot be read.
    Blob(BlobKind, Id),
}

/// The damage that was found so far.
#[derive(Default)]
struct Findings {
    parts: HashMap<Part, usize>,
    damage: Vec<Damage>,
    count: u64,
    bytes_read: u64,
    /// Packs with another content than their ID says.
    wrong_hashes: Vec<(u32, String)>,
}

impl Findings {
    fn add(&mut self, part: Part, text: impl Into<String>) {
        if self.parts.contains_key(&part) {
            return;
        }
        self.count += 1;
        if self.damage.len() < MAX_DAMAGE {
            self.damage.push(Damage { text: text.into(), snapshots: Vec::new() });
        }
        self.parts.insert(part, self.damage.len() - 1);
    }

    /// The packs with a wrong hash in which nothing is damaged that a verified snapshot uses.
    fn harmless(&self) -> impl Iterator<Item = String> {
        let is_damaged = |pack: u32| {
            self.parts.keys().any(|part| match part {
                Part::Pack(number) | Part::Copy(_, _, number) => *number == pack,
                _ => false,
            })
        };
        let harmless = self.wrong_hashes.iter().filter(move |(pack, _)| !is_damaged(*pack));
        harmless.map(|(_, text)| format!("{text}; no verified snapshot uses the damaged part"))
    }

    /// The damage because of which a blob cannot be read. Nothing if there is an intact copy.
    fn losses(&self, index: &BlobIndex, kind: BlobKind, id: &Id) -> Vec<usize> {
        let whole = self.parts.get(&Part::Blob(kind, *id)).copied();
        let mut losses = Vec::new();
        for location in index.locations(kind, id) {
            let copy = self.parts.get(&Part::Copy(kind, *id, location.pack));
            match copy.or_else(|| self.parts.get(&Part::Pack(location.pack))) {
                Some(damage) => losses.push(*damage),
                None => return whole.into_iter().collect(),
            }
        }
        losses.extend(whole);
        losses
    }
}

/// The index as it is in the store, with the expected sizes of its packs.
#[derive(Default)]
struct Index {
    blobs: BlobIndex,
    sizes: HashMap<Id, u64>,
    warnings: Vec<String>,
}

/// The root trees of snapshots, and the errors of those that cannot be read.
#[derive(Default)]
struct Roots {
    trees: Vec<(Id, Id)>,
    damaged: Vec<(Id, String)>,
}

struct Verify<'a> {
    repository: &'a Arc<Repository>,
    index: &'a BlobIndex,
    task: &'a Task,
    cancel: &'a Cancel,
    used: BlobSet,
    findings: Mutex<Findings>,
}

impl Repository {
    /// Verifies the snapshots with these IDs, which may be short, with a shared lock. Damage is part of the outcome; only failures that
    /// prevent the verification are errors.
    pub fn verify(
        self: &Arc<Self>,
        snapshots: &[String],
        read: ReadData,
        task: &Task,
        cancel: &Cancel,
    ) -> Result<VerifyOutcome> {
        let _waits = show_waits(&self.store, task);
        let lock = Lock::take_cancellable(self, LockKind::Shared, cancel)?;
        hint_if_not_locked(&lock, task);
        let verified = self.verify_locked(snapshots, read, task, cancel);
        if verified.is_err() {
            lock.shorten_release();
        }
        verified
    }

    fn verify_locked(
        self: &Arc<Self>,
        snapshots: &[String],
        read: ReadData,
        task: &Task,
        cancel: &Cancel,
    ) -> Result<VerifyOutcome> {
        // Before the index: what a listed snapshot needs is in an index file then.
        let existing: Vec<Id> = self.list(FileKind::Snapshot, cancel)?.into_iter().map(|file| file.id).collect();
        let index = self.load_stored_index(task, cancel)?;
        let (used, findings) = Default::default();
        let mut verify = Verify { repository: self, index: &index.blobs, task, cancel, used, findings };
        let chosen = verify.find_snapshots(snapshots, &existing);
        verify.walk(&chosen)?;
        let (packs, intact) = verify.compare_packs(&index.sizes)?;
        verify.read(&choose(intact, read))?;
        verify.find_affected(&existing)?;
        let found = verify.findings.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(VerifyOutcome {
            snapshots: snapshots.len() as u64,
            packs,
            bytes_read: found.bytes_read,
            warnings: index.warnings.into_iter().chain(found.harmless()).collect(),
            damage: found.damage,
            damage_count: found.count,
        })
    }

    /// Loads the index without the cache. As in a restore, the headers of packs replace a damaged index file.
    fn load_stored_index(&self, task: &Task, cancel: &Cancel) -> Result<Index> {
        let task = task.child("loading the index");
        let mut index = Index::default();
        let steps = task.meter(Unit::Items);
        let step = |done: usize, total: usize| {
            steps.set_total(Total::Final(total as u64));
            steps.set_done(done as u64);
        };
        self.each_index_file_from(Source::Store, &step, cancel, |_, packs| {
            match packs {
                Ok(packs) => packs.iter().for_each(|pack| index.add(pack)),
                Err(error @ RepositoryError::Corrupt { .. }) => {
                    index.warnings.push(format!("{error}; a restore reads the headers of the packs instead"));
                }
                Err(error) => return Err(error),
            }
            Ok(())
        })?;
        if !index.warnings.is_empty() {
            self.unindexed_packs(&index.blobs, cancel)?.iter().for_each(|pack| index.add(pack));
        }
        task.finish();
        Ok(index)
    }
}

impl Index {
    fn add(&mut self, pack: &crate::format::index::IndexedPack) {
        self.sizes.insert(pack.id, pack::file_size_of(&pack.blobs));
        self.blobs.add(pack);
    }
}

impl PackFindings for Verify<'_> {
    fn damaged(&self, pack: &ListedFile, blob: Option<&PackedBlob>, text: String) {
        let Some(number) = self.index.pack_number(&pack.id) else { return };
        let is_used = |blob: &PackedBlob| self.used.contains(self.index, blob.kind, &blob.id);
        match blob {
            Some(blob) if is_used(blob) => self.findings().add(Part::Copy(blob.kind, blob.id, number), text),
            // No verified snapshot uses it.
            Some(_) => {}
            None => self.findings().add(Part::Pack(number), text),
        }
    }

    fn wrong_hash(&self, pack: &ListedFile, text: String) {
        if let Some(number) = self.index.pack_number(&pack.id) {
            self.findings().wrong_hashes.push((number, text));
        }
    }

    fn read(&self, pack: &ListedFile) {
        self.findings().bytes_read += pack.size;
    }
}

impl Verify<'_> {
    fn findings(&self) -> MutexGuard<'_, Findings> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find_snapshots(&self, names: &[String], existing: &[Id]) -> Vec<Id> {
        let mut chosen = Vec::new();
        for name in names {
            if let Some(id) = existing.iter().find(|id| id.to_string().starts_with(name.as_str())) {
                chosen.push(*id);
                continue;
            }
            let id = Id::parse(name).unwrap_or_else(|| Id::of(name.as_bytes()));
            self.findings().add(Part::Snapshot(id), format!("snapshot {name} is missing"));
        }
        chosen
    }

    /// The roots of snapshots, and the errors of those that cannot be read.
    fn roots(&self, snapshots: &[Id]) -> Result<Roots> {
        let mut found = Roots::default();
        let ids = snapshots.iter().copied();
        self.repository.each_file(FileKind::Snapshot, Source::Store, ids, self.cancel, |id, json| {
            let parsed = json.and_then(|json| {
                let parsed = Snapshot::parse(&json);
                parsed.map_err(|cause| RepositoryError::corrupt(FileKind::Snapshot.key_of(&id), cause))
            });
            match parsed {
                Ok(snapshot) => found.trees.push((id, snapshot.tree)),
                Err(error @ RepositoryError::Corrupt { .. }) => found.damaged.push((id, error.to_string())),
                Err(error) => return Err(error),
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Walks the trees of the snapshots, and marks all blobs that they use.
    fn walk(&mut self, snapshots: &[Id]) -> Result<()> {
        let task = self.task.child("checking snapshots and trees");
        let done = task.meter(Unit::Items);
        done.set_total(Total::Final(snapshots.len() as u64));
        let reader = BlobReader::new(self.repository, self.index, self.cancel);
        let Roots { trees, damaged } = self.roots(snapshots)?;
        for (id, text) in damaged {
            self.findings().add(Part::Snapshot(id), text);
        }
        for (id, root) in trees {
            task.say(format!("snapshot {}", id.short()));
            let mut pending = vec![root];
            while let Some(tree) = pending.pop() {
                self.cancel.check()?;
                if self.mark(BlobKind::Tree, &tree)
                    && let Some(tree) = self.read_tree(&reader, &tree)?
                {
                    pending.extend(tree.nodes.iter().filter_map(|node| node.subtree));
                    for blob in tree.nodes.iter().flat_map(|node| node.content.iter().flatten()) {
                        self.mark(BlobKind::Data, blob);
                    }
                }
            }
            done.add(1);
        }
        task.finish();
        Ok(())
    }

    /// Marks a blob as used. Returns whether it is in the index and was not marked before.
    fn mark(&mut self, kind: BlobKind, id: &Id) -> bool {
        self.used.insert(self.index, kind, id).unwrap_or_else(|| {
            let name = if kind == BlobKind::Tree { "tree" } else { "data blob" };
            self.findings().add(Part::Blob(kind, *id), format!("{name} {id} is not in the index"));
            false
        })
    }

    fn read_tree(&self, reader: &BlobReader<'_>, id: &Id) -> Result<Option<Arc<Tree>>> {
        match reader.tree(id) {
            Ok(tree) => {
                let is_incomplete = tree.nodes.iter().any(|node| {
                    (node.kind == NodeKind::File && node.content.is_none())
                        || (node.kind == NodeKind::Directory && node.subtree.is_none())
                });
                if is_incomplete {
                    let text = format!("tree {id} has a file without content or a directory without a tree");
                    self.findings().add(Part::Blob(BlobKind::Tree, *id), text);
                }
                Ok(Some(tree))
            }
            Err(error @ RepositoryError::Corrupt { .. }) => {
                self.findings().add(Part::Blob(BlobKind::Tree, *id), format!("tree {id}: {error}"));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Compares the used packs with the store. Returns their number, and those that are there and have the right size.
    fn compare_packs(&self, sizes: &HashMap<Id, u64>) -> Result<(u64, Vec<ListedFile>)> {
        let mut used = HashSet::new();
        self.index.for_each_blob(|kind, number, _, location| {
            if self.used.has(kind, number) {
                used.insert(location.pack);
            }
        });
        let count = used.len() as u64;
        let is_used = |pack: &ListedFile| self.index.pack_number(&pack.id).is_some_and(|number| used.contains(&number));
        let mut intact = Vec::new();
        let listed = self.repository.list_packs(self.index.pack_count(), self.cancel, is_used)?;
        for pack in listed {
            let Some(number) = self.index.pack_number(&pack.id) else { continue };
            used.remove(&number);
            match sizes.get(&pack.id) {
                Some(size) if *size != pack.size => {
                    let text = format!("pack {} has {} bytes instead of {size}", pack.id, pack.size);
                    self.findings().add(Part::Pack(number), text);
                }
                _ => intact.push(pack),
            }
        }
        for number in used {
            self.findings().add(Part::Pack(number), format!("pack {} is missing", self.index.pack(number)));
        }
        Ok((count, intact))
    }

    fn read(&self, packs: &[ListedFile]) -> Result<()> {
        let (indexed_blobs, findings) = (self.index.len(), self);
        PackCheck { repository: self.repository, indexed_blobs, task: self.task, cancel: self.cancel, findings }
            .read(packs)
    }

    /// Finds all snapshots of the repository that need something damaged.
    fn find_affected(&self, existing: &[Id]) -> Result<()> {
        if self.findings().count == 0 {
            return Ok(());
        }
        let task = self.task.child("finding the affected snapshots");
        let reader = BlobReader::new(self.repository, self.index, self.cancel);
        // A snapshot that is damaged itself and was not to be verified is not reported.
        for (id, root) in self.roots(existing)?.trees {
            let affected = self.damage_of(&reader, root)?;
            let mut findings = self.findings();
            for damage in affected {
                if let Some(damage) = findings.damage.get_mut(damage) {
                    damage.snapshots.push(id);
                }
            }
        }
        let mut findings = self.findings();
        let snapshots = findings.parts.iter().filter_map(|(part, damage)| match part {
            Part::Snapshot(id) => Some((*id, *damage)),
            _ => None,
        });
        for (id, number) in snapshots.collect::<Vec<_>>() {
            if let Some(damage) = findings.damage.get_mut(number) {
                damage.snapshots.push(id);
            }
        }
        task.finish();
        Ok(())
    }

    /// The damage below a tree.
    fn damage_of(&self, reader: &BlobReader<'_>, root: Id) -> Result<BTreeSet<usize>> {
        let (mut found, mut seen, mut pending) = (BTreeSet::new(), BlobSet::default(), vec![root]);
        while let Some(id) = pending.pop() {
            self.cancel.check()?;
            found.extend(self.findings().losses(self.index, BlobKind::Tree, &id));
            if seen.insert(self.index, BlobKind::Tree, &id) != Some(true) {
                continue;
            }
            let tree = match reader.tree(&id) {
                Ok(tree) => tree,
                Err(RepositoryError::Corrupt { .. }) => continue,
                Err(error) => return Err(error),
            };
            let findings = self.findings();
            for blob in tree.nodes.iter().flat_map(|node| node.content.iter().flatten()) {
                found.extend(findings.losses(self.index, BlobKind::Data, blob));
            }
            pending.extend(tree.nodes.iter().filter_map(|node| node.subtree));
        }
        Ok(found)
    }
}
