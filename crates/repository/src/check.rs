//! Checks a repository: every referenced file and blob must exist and match its ID.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_progress::{Task, Total, Unit};

use crate::blob_index::{BlobIndex, BlobLocation, BlobMarks};
use crate::blob_read::BlobReader;
use crate::cancel::Cancel;
use crate::concurrently::concurrently;
use crate::file_cache::Source;
use crate::format::blob::{BlobKind, PackedBlob};
use crate::format::id::Id;
use crate::format::index::IndexedPack;
use crate::format::pack;
use crate::format::snapshot::Snapshot;
use crate::format::tree::{Node, NodeKind};
use crate::lock::{Lock, LockKind};
use crate::pack_check::{PackCheck, PackFindings};
use crate::repository::{FileKind, ListedFile, Repository, too_large};
use crate::store_waits::{hint_if_not_locked, show_waits};
use crate::{RepositoryError, Result};

/// How much of the pack data is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadData {
    /// None: only the structure is checked.
    #[default]
    Nothing,
    /// About this share of the packs, in percent, chosen at random.
    Sample(u8),
    /// All of it.
    Everything,
}

/// The outcome of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckOutcome {
    /// The first thousand errors: something referenced is missing or damaged.
    pub errors: Vec<String>,
    /// The number of all errors.
    pub error_count: u64,
    /// The first thousand hints: untidy, but no data is lost.
    pub hints: Vec<String>,
    /// The number of all hints.
    pub hint_count: u64,
    /// The number of packs in the index.
    pub packs: usize,
    /// The number of blobs in the index.
    pub blobs: usize,
    /// The number of checked snapshots.
    pub snapshots: usize,
    /// The number of bytes read from packs.
    pub bytes_read: u64,
    /// Whether a lock file was kept. There is none if the store denies deletes.
    pub locked: bool,
}

impl CheckOutcome {
    /// Whether no damage was found.
    pub fn is_good(&self) -> bool {
        self.error_count == 0
    }
}

/// The maximum number of listed findings; the rest is only counted. One missing index file may affect every file of every
/// snapshot.
const MAX_FINDINGS: usize = 1000;

fn add_finding(findings: &mut Vec<String>, count: &mut u64, text: impl Into<String>) {
    *count += 1;
    if findings.len() < MAX_FINDINGS {
        findings.push(text.into());
    }
}

struct Check<'a> {
    repository: &'a Arc<Repository>,
    cancel: &'a Cancel,
    task: &'a Task,
    index: BlobIndex,
    /// The size of each pack according to the index.
    expected: HashMap<Id, u64>,
    outcome: Mutex<CheckOutcome>,
}

impl Repository {
    /// Checks the repository. Damage is part of the outcome; only failures that prevent the check are errors.
    pub fn check(self: &Arc<Self>, read: ReadData, task: &Task, cancel: &Cancel) -> Result<CheckOutcome> {
        let _waits = show_waits(&self.store, task);
        let lock = Lock::take_cancellable(self, LockKind::Exclusive, cancel)?;
        hint_if_not_locked(&lock, task);
        let (index, expected, outcome) = Default::default();
        let mut check = Check { repository: self, cancel, task, index, expected, outcome };
        if let Err(error) = check.run(read) {
            lock.shorten_release();
            return Err(error);
        }
        let mut outcome = check.outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
        outcome.packs = check.index.pack_count();
        outcome.blobs = check.index.len();
        outcome.locked = lock.is_visible();
        Ok(outcome)
    }
}

impl PackFindings for Check<'_> {
    fn damaged(&self, _: &ListedFile, _: Option<&PackedBlob>, text: String) {
        self.error(text);
    }

    fn decoded(&self, pack: &ListedFile, blob: &PackedBlob) {
        if self.expected.contains_key(&pack.id) && !self.is_indexed(pack.id, blob) {
            self.error(format!("pack {}: blob {} has another location in the index", pack.id, blob.id));
        }
    }

    fn read(&self, pack: &ListedFile) {
        locked(&self.outcome).bytes_read += pack.size;
    }
}

impl Check<'_> {
    fn run(&mut self, read: ReadData) -> Result<()> {
        let ((keys, packs), index) = concurrently(
            || concurrently(|| self.check_keys(), || self.repository.list(FileKind::Pack, self.cancel)),
            || self.load_index(),
        );
        keys?;
        (self.index, self.expected) = index?;
        let packs = packs?;
        self.compare(&packs);
        self.walk_snapshots()?;
        let check = PackCheck {
            repository: self.repository,
            indexed_blobs: self.index.len(),
            task: self.task,
            cancel: self.cancel,
            findings: self,
        };
        check.read(&choose(self.reject_oversized(packs), read))
    }

    fn error(&self, text: impl Into<String>) {
        let outcome = &mut *locked(&self.outcome);
        add_finding(&mut outcome.errors, &mut outcome.error_count, text);
    }

    fn hint(&self, text: impl Into<String>) {
        let outcome = &mut *locked(&self.outcome);
        add_finding(&mut outcome.hints, &mut outcome.hint_count, text);
    }

    /// Adds damage to the outcome and returns other errors.
    fn record_damage<T>(&self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error @ RepositoryError::Corrupt { .. }) => {
                self.error(error.to_string());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Checks the hashes of the key files.
    fn check_keys(&self) -> Result<()> {
        for file in self.repository.list(FileKind::Key, self.cancel)? {
            let loaded = self.repository.wait(self.cancel, self.repository.load_encrypted(FileKind::Key, file.id));
            self.record_damage(loaded)?;
        }
        Ok(())
    }

    /// Loads the index, and the size of each pack according to it.
    fn load_index(&self) -> Result<(BlobIndex, HashMap<Id, u64>)> {
        let task = self.task.child("loading the index");
        let (mut index, mut expected) = (BlobIndex::default(), HashMap::new());
        let steps = task.meter(Unit::Items);
        let step = |done, total| {
            steps.set_total(Total::Final(total as u64));
            steps.set_done(done as u64);
        };
        self.repository.each_index_file_from(Source::Store, &step, self.cancel, |_, packs| {
            for pack in self.record_damage(packs)?.into_iter().flatten() {
                if expected.insert(pack.id, pack::file_size_of(&pack.blobs)).is_some() {
                    self.hint(format!("pack {} is in more than one index file", pack.id));
                }
                if is_mixed(&pack) {
                    self.hint(format!("pack {} contains both data and tree blobs", pack.id));
                }
                index.add(&pack);
            }
            Ok(())
        })?;
        task.finish();
        Ok((index, expected))
    }

    /// Compares the packs in the store with the index.
    fn compare(&self, packs: &[ListedFile]) {
        let present: HashMap<_, _> = packs.iter().map(|pack| (pack.id, pack.size)).collect();
        for (id, expected) in &self.expected {
            match present.get(id) {
                None => self.error(format!("pack {id} is missing")),
                Some(size) if size != expected => {
                    self.error(format!("pack {id} has {size} bytes instead of {expected}"));
                }
                Some(_) => {}
            }
        }
        for pack in packs.iter().filter(|pack| !self.expected.contains_key(&pack.id)) {
            self.hint(format!("pack {} is not in the index", pack.id));
        }
    }

    fn reject_oversized(&self, mut packs: Vec<ListedFile>) -> Vec<ListedFile> {
        for pack in packs.extract_if(.., |pack| pack.size > FileKind::Pack.max_size()) {
            self.error(format!("pack {}: {}", pack.id, too_large(pack.size)));
        }
        packs
    }

    fn walk_snapshots(&self) -> Result<()> {
        let task = self.task.child("checking snapshots and trees");
        let files = self.repository.list(FileKind::Snapshot, self.cancel)?;
        let mut snapshots = Vec::new();
        let ids = files.iter().map(|file| file.id);
        self.repository.each_file(FileKind::Snapshot, Source::Store, ids, self.cancel, |id, json| {
            let tree = json.and_then(|json| {
                let parsed = Snapshot::parse(&json);
                parsed
                    .map_err(|cause| RepositoryError::corrupt(format!("snapshot {id}"), cause))
                    .map(|snapshot| snapshot.tree)
            });
            snapshots.push((id, tree));
            Ok(())
        })?;
        let steps = task.meter(Unit::Items);
        steps.set_total(Total::Final(snapshots.len() as u64));
        let reader = BlobReader::new(self.repository, &self.index, self.cancel);
        let mut seen = BlobMarks::new(&self.index);
        for (id, tree) in snapshots {
            if let Some(tree) = self.record_damage(tree)? {
                self.walk_tree(&reader, tree, &format!("snapshot {}", id.short()), &mut seen)?;
            }
            locked(&self.outcome).snapshots += 1;
            steps.add(1);
        }
        task.finish();
        Ok(())
    }

    fn walk_tree(&self, reader: &BlobReader<'_>, root: Id, snapshot: &str, seen: &mut BlobMarks<'_>) -> Result<()> {
        let mut pending = vec![root];
        while let Some(id) = pending.pop() {
            // A tree that is not in the index is read every time, so that it is reported for each reference.
            if self.index.contains(BlobKind::Tree, &id) && !seen.set(BlobKind::Tree, &id) {
                continue;
            }
            let Some(tree) = self.record_damage(reader.tree(&id))? else { continue };
            for node in &tree.nodes {
                for problem in self.node_problems(node) {
                    self.error(format!(
                        "{snapshot}: tree {}: {:?}: {problem}",
                        id.short(),
                        String::from_utf8_lossy(&node.name)
                    ));
                }
                pending.extend(node.subtree);
            }
        }
        Ok(())
    }

    fn node_problems(&self, node: &Node) -> Vec<String> {
        let mut problems = Vec::new();
        if node.name.is_empty() {
            problems.push("empty name".into());
        }
        match (node.kind, &node.content, &node.subtree) {
            (NodeKind::File, None, _) => problems.push("file without a content list".into()),
            (NodeKind::File, Some(content), _) => self.check_content(node, content, &mut problems),
            (NodeKind::Directory, _, None) => problems.push("directory without a subtree".into()),
            _ => {}
        }
        problems
    }

    fn check_content(&self, node: &Node, content: &[Id], problems: &mut Vec<String>) {
        let (mut size, mut missing) = (0, 0_u64);
        for id in content {
            let location = self.index.find(BlobKind::Data, id);
            size += location.map_or(0, |location| location.plain_length());
            missing += u64::from(location.is_none());
            // Only the first one: a file may have millions of blobs.
            if location.is_none() && missing == 1 {
                problems.push(format!("data blob {id} is not in the index"));
            }
        }
        if missing > 1 {
            problems.push(format!("{} more data blobs are not in the index", missing - 1));
        }
        if problems.is_empty() && size != node.size {
            self.hint(format!(
                "{:?}: {size} bytes of content, but a size of {}",
                String::from_utf8_lossy(&node.name),
                node.size
            ));
        }
    }

    fn is_indexed(&self, pack: Id, blob: &PackedBlob) -> bool {
        let locations = self.index.locations(blob.kind, &blob.id);
        locations.iter().any(|location| {
            self.index.pack(location.pack) == pack && *location == BlobLocation::of(location.pack, blob)
        })
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_mixed(pack: &IndexedPack) -> bool {
    pack.blobs.iter().any(|blob| Some(blob.kind) != pack.blobs.first().map(|first| first.kind))
}

/// Selects the packs to read. A sample has at least one pack.
pub(crate) fn choose(mut packs: Vec<ListedFile>, read: ReadData) -> Vec<ListedFile> {
    match read {
        ReadData::Nothing => packs.clear(),
        ReadData::Everything => {}
        ReadData::Sample(percent) => {
            let chosen = (percent > 0 && !packs.is_empty()).then(|| rand::random_range(0..packs.len()));
            let mut position = 0;
            packs.retain(|_| {
                position += 1;
                Some(position - 1) == chosen || rand::random_range(0..100) < u32::from(percent)
            });
        }
    }
    packs
}
