//! Checking: everything that is named must be there, and be what its name says.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_progress::{Meter, Task, Total, Unit};

use crate::blob_index::{BlobIndex, Marks, Place};
use crate::blob_read::{BlobReader, Decoder, StoredBlob};
use crate::cancel::Cancel;
use crate::file_cache::Source;
use crate::format::blob::{BlobKind, PackedBlob};
use crate::format::hash::Hash;
use crate::format::id::Id;
use crate::format::index::IndexedPack;
use crate::format::pack;
use crate::format::snapshot::Snapshot;
use crate::format::tree::{Node, NodeKind};
use crate::lock::{Lock, LockKind};
use crate::pack_file::PackFiles;
use crate::pack_parts::{PackParts, parts};
use crate::read_ahead::{ReadAhead, Wish};
use crate::repository::{FileKind, Listed, Repository, too_large};
use crate::side_by_side::side_by_side;
use crate::waits::{say_if_not_locked, show_waits};
use crate::{RepositoryError, Result};

/// How much of the data is read.
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

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckOutcome {
    /// Damage: something that is named is missing or wrong. The first thousand of it.
    pub errors: Vec<String>,
    /// How much damage there is, the rest included.
    pub error_count: u64,
    /// Untidy, but nothing is lost. The first thousand.
    pub hints: Vec<String>,
    /// How many there are, the rest included.
    pub hint_count: u64,
    /// Packs the index names.
    pub packs: usize,
    /// Blobs the index names.
    pub blobs: usize,
    /// Snapshots looked at.
    pub snapshots: usize,
    /// Bytes of packs that were read.
    pub bytes_read: u64,
    /// Whether a lock file was kept: not where the store refuses deletes.
    pub locked: bool,
}

impl CheckOutcome {
    /// Whether no damage was found.
    pub fn is_good(&self) -> bool {
        self.error_count == 0
    }
}

/// More findings than these are only counted: one lost index file may be missed by every file of every snapshot.
const MOST_FINDINGS: usize = 1000;

fn note(findings: &mut Vec<String>, count: &mut u64, text: impl Into<String>) {
    *count += 1;
    if findings.len() < MOST_FINDINGS {
        findings.push(text.into());
    }
}

/// More threads would hold more packs in memory than a check may.
const MOST_READERS: usize = 3;
/// Larger packs are read in parts: a pack that was closed at 16 MiB with the longest of all blobs is not.
const LARGEST_WHOLE: u64 = 25 * 1024 * 1024;

struct Check<'a> {
    repository: &'a Arc<Repository>,
    cancel: &'a Cancel,
    task: &'a Task,
    index: BlobIndex,
    /// What the index makes of each pack: its size.
    expected: HashMap<Id, u64>,
    outcome: Mutex<CheckOutcome>,
}

impl Repository {
    /// Checks the repository. Damage is in the outcome; only what prevents checking is an error.
    pub fn check(self: &Arc<Self>, read: ReadData, task: &Task, cancel: &Cancel) -> Result<CheckOutcome> {
        let _waits = show_waits(&self.store, task);
        let lock = Lock::take_unless(self, LockKind::Exclusive, cancel)?;
        say_if_not_locked(&lock, task);
        let (index, expected, outcome) = Default::default();
        let mut check = Check { repository: self, cancel, task, index, expected, outcome };
        if let Err(error) = check.everything(read) {
            lock.hurry();
            return Err(error);
        }
        let mut outcome = check.outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
        outcome.packs = check.index.pack_count();
        outcome.blobs = check.index.len();
        outcome.locked = lock.is_visible();
        Ok(outcome)
    }
}

impl Check<'_> {
    fn everything(&mut self, read: ReadData) -> Result<()> {
        let ((keys, packs), index) = side_by_side(
            || side_by_side(|| self.keys(), || self.repository.list(FileKind::Pack, self.cancel)),
            || self.load_index(),
        );
        keys?;
        (self.index, self.expected) = index?;
        let packs = packs?;
        self.compare(&packs);
        self.walk_snapshots()?;
        self.read_packs(&choose(self.without_giants(packs), read))
    }

    fn error(&self, text: impl Into<String>) {
        let outcome = &mut *locked(&self.outcome);
        note(&mut outcome.errors, &mut outcome.error_count, text);
    }

    fn hint(&self, text: impl Into<String>) {
        let outcome = &mut *locked(&self.outcome);
        note(&mut outcome.hints, &mut outcome.hint_count, text);
    }

    /// Damage is noted; what prevents checking goes on upwards.
    fn note_damage<T>(&self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error @ RepositoryError::Corrupt { .. }) => {
                self.error(error.to_string());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Key files have their hash as their name too.
    fn keys(&self) -> Result<()> {
        for file in self.repository.list(FileKind::Key, self.cancel)? {
            let loaded = self.repository.wait(self.cancel, self.repository.load_sealed(FileKind::Key, file.id));
            self.note_damage(loaded)?;
        }
        Ok(())
    }

    /// The index, and what it makes of each pack: its size.
    fn load_index(&self) -> Result<(BlobIndex, HashMap<Id, u64>)> {
        let task = self.task.child("loading the index");
        let (mut index, mut expected) = (BlobIndex::default(), HashMap::new());
        let steps = task.meter(Unit::Items);
        let step = |done, total| {
            steps.set_total(Total::Final(total as u64));
            steps.set_done(done as u64);
        };
        self.repository.each_index_file_from(Source::Store, &step, self.cancel, |_, packs| {
            for pack in self.note_damage(packs)?.into_iter().flatten() {
                if expected.insert(pack.id, pack::file_size_of(&pack.blobs)).is_some() {
                    self.hint(format!("pack {} is in more than one index file", pack.id));
                }
                if is_mixed(&pack) {
                    self.hint(format!("pack {} holds both data and trees", pack.id));
                }
                index.add(&pack);
            }
            Ok(())
        })?;
        task.finish();
        Ok((index, expected))
    }

    /// Compares the packs that are there with those that should be.
    fn compare(&self, packs: &[Listed]) {
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
            self.hint(format!("pack {} is in no index file", pack.id));
        }
    }

    fn without_giants(&self, mut packs: Vec<Listed>) -> Vec<Listed> {
        for giant in packs.extract_if(.., |pack| pack.size > FileKind::Pack.largest()) {
            self.error(format!("pack {}: {}", giant.id, too_large(giant.size)));
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
                    .map(|found| found.tree)
            });
            snapshots.push((id, tree));
            Ok(())
        })?;
        let steps = task.meter(Unit::Items);
        steps.set_total(Total::Final(snapshots.len() as u64));
        let reader = BlobReader::new(self.repository, &self.index, self.cancel);
        let mut seen = Marks::new(&self.index);
        for (id, tree) in snapshots {
            if let Some(tree) = self.note_damage(tree)? {
                self.walk_tree(&reader, tree, &format!("snapshot {}", id.short()), &mut seen)?;
            }
            locked(&self.outcome).snapshots += 1;
            steps.add(1);
        }
        task.finish();
        Ok(())
    }

    fn walk_tree(&self, reader: &BlobReader<'_>, root: Id, whose: &str, seen: &mut Marks<'_>) -> Result<()> {
        let mut pending = vec![root];
        while let Some(id) = pending.pop() {
            // One that no index file has is read every time: that is how it is named.
            if self.index.contains(BlobKind::Tree, &id) && !seen.set(BlobKind::Tree, &id) {
                continue;
            }
            let Some(tree) = self.note_damage(reader.tree(&id))? else { continue };
            for node in &tree.nodes {
                for fault in self.faults(node) {
                    self.error(format!(
                        "{whose}: tree {}: {:?}: {fault}",
                        id.short(),
                        String::from_utf8_lossy(&node.name)
                    ));
                }
                pending.extend(node.subtree);
            }
        }
        Ok(())
    }

    fn faults(&self, node: &Node) -> Vec<String> {
        let mut faults = Vec::new();
        if node.name.is_empty() {
            faults.push("it has no name".into());
        }
        match (node.kind, &node.content, &node.subtree) {
            (NodeKind::File, None, _) => faults.push("the file has no content list".into()),
            (NodeKind::File, Some(content), _) => self.content_faults(node, content, &mut faults),
            (NodeKind::Directory, _, None) => faults.push("the directory has no tree".into()),
            _ => {}
        }
        faults
    }

    fn content_faults(&self, node: &Node, content: &[Id], faults: &mut Vec<String>) {
        let (mut size, mut missing) = (0, 0_u64);
        for id in content {
            let place = self.index.find(BlobKind::Data, id);
            size += place.map_or(0, |place| place.plain_length());
            missing += u64::from(place.is_none());
            // A file may have millions of them.
            if place.is_none() && missing == 1 {
                faults.push(format!("data blob {id} is in no index file"));
            }
        }
        if missing > 1 {
            faults.push(format!("nor are {} other data blobs of it", missing - 1));
        }
        if faults.is_empty() && size != node.size {
            self.hint(format!(
                "{:?}: {size} bytes of content for a size of {}",
                String::from_utf8_lossy(&node.name),
                node.size
            ));
        }
    }

    fn read_packs(&self, packs: &[Listed]) -> Result<()> {
        if packs.is_empty() {
            return Ok(());
        }
        let task = self.task.child("reading packs");
        let bytes = task.meter(Unit::Bytes);
        bytes.set_total(Total::Final(packs.iter().map(|pack| pack.size).sum()));
        let failure = Mutex::new(None);
        let stopped = || self.cancel.is_cancelled() || locked(&failure).is_some();
        let done = |result: Result<()>| {
            if let Err(error) = result {
                locked(&failure).get_or_insert(error);
            }
        };
        let (large, whole): (Vec<_>, Vec<_>) = packs.iter().cloned().partition(|pack| pack.size > LARGEST_WHOLE);
        if self.repository.store.file_of("config").is_some() {
            let next = AtomicUsize::new(0);
            on_each_reader(whole.len(), || done(self.read_files(&whole, &next, &bytes, &stopped)), || ());
        } else {
            let arriving = ReadAhead::default();
            let wish = |pack: &Listed| Wish { pack: pack.id, bytes: 0..pack.size, what: pack.clone() };
            on_each_reader(
                whole.len(),
                || done(self.read_arriving(&arriving, &bytes, &stopped)),
                || arriving.fetch_all(self.repository, whole.iter().map(wish), stopped),
            );
        }
        let next = AtomicUsize::new(0);
        on_each_reader(large.len(), || done(self.read_large(&large, &next, &bytes, &stopped)), || ());
        if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        self.cancel.check()?;
        task.finish();
        Ok(())
    }

    /// Where packs are files: whoever needs one reads it.
    fn read_files(
        &self,
        packs: &[Listed],
        next: &AtomicUsize,
        bytes: &Meter,
        stopped: &dyn Fn() -> bool,
    ) -> Result<()> {
        let (mut decoder, mut files) = (Decoder::new(), PackFiles::default());
        while let Some(pack) = packs.get(next.fetch_add(1, Ordering::Relaxed)).filter(|_| !stopped()) {
            if let Some(content) = files.read(self.repository, pack.id, 0..pack.size) {
                self.look_into(pack, content, &mut decoder, bytes)?;
            }
        }
        Ok(())
    }

    /// Elsewhere they are fetched ahead.
    fn read_arriving(&self, arriving: &ReadAhead<Listed>, bytes: &Meter, stopped: &dyn Fn() -> bool) -> Result<()> {
        let mut decoder = Decoder::new();
        while let Some(fetched) = arriving.next(self.cancel)? {
            if !stopped() {
                match fetched.content {
                    Ok(content) => self.look_into(&fetched.what, Ok(&content), &mut decoder, bytes)?,
                    Err(error) => self.look_into(&fetched.what, Err(error), &mut decoder, bytes)?,
                }
            }
        }
        Ok(())
    }

    /// Large ones are read in parts: a few of them held whole would be more than all memory a check may take.
    fn read_large(
        &self,
        packs: &[Listed],
        next: &AtomicUsize,
        bytes: &Meter,
        stopped: &dyn Fn() -> bool,
    ) -> Result<()> {
        let (mut decoder, mut parts) = (Decoder::new(), PackParts::new(self.repository, self.cancel));
        while let Some(pack) = packs.get(next.fetch_add(1, Ordering::Relaxed)).filter(|_| !stopped()) {
            let mut read = 0;
            let checked = self.check_in_parts(pack, &mut parts, &mut decoder, |part| {
                bytes.add(part);
                read += part;
            });
            self.note_damage(checked)?;
            locked(&self.outcome).bytes_read += pack.size;
            bytes.add(pack.size.saturating_sub(read));
        }
        Ok(())
    }

    fn check_in_parts(
        &self,
        pack: &Listed,
        content: &mut PackParts<'_>,
        decoder: &mut Decoder,
        mut done: impl FnMut(u64),
    ) -> Result<()> {
        let header = content.header(pack.id, pack.size)?;
        let blobs = header.unwrap_or_else(|cause| {
            self.error(format!("pack {}: {cause}", pack.id));
            Vec::new()
        });
        let mut hash = Hash::default();
        for (range, blobs) in parts(&blobs, pack.size) {
            let part = content.read(pack.id, range.clone())?;
            hash.update(part);
            self.read_blobs(pack, part, range.start, blobs, decoder)?;
            done(range.end - range.start);
        }
        self.compare_hash(pack, hash.finish());
        Ok(())
    }

    fn compare_hash(&self, pack: &Listed, found: Id) {
        if found != pack.id {
            self.error(format!("pack {}: its content does not have the hash that is its name", pack.id));
        }
    }

    fn look_into(&self, pack: &Listed, content: Result<&[u8]>, decoder: &mut Decoder, bytes: &Meter) -> Result<()> {
        if let Some(content) = self.note_damage(content)? {
            self.check_pack(pack, content, decoder)?;
        }
        locked(&self.outcome).bytes_read += pack.size;
        bytes.add(pack.size);
        Ok(())
    }

    fn check_pack(&self, pack: &Listed, content: &[u8], decoder: &mut Decoder) -> Result<()> {
        self.compare_hash(pack, Id::of(content));
        let header = pack::header_size(content, content.len() as u64).and_then(|size| {
            let tail = content.get(content.len() - size..).ok_or("too short")?;
            pack::parse_header(tail, content.len() as u64, &self.repository.key)
        });
        match header {
            Ok(blobs) => self.read_blobs(pack, content, 0, &blobs, decoder)?,
            Err(cause) => self.error(format!("pack {}: {cause}", pack.id)),
        }
        Ok(())
    }

    /// Blobs of a part of a pack that begins at `start`.
    fn read_blobs(
        &self,
        pack: &Listed,
        part: &[u8],
        start: u64,
        blobs: &[PackedBlob],
        decoder: &mut Decoder,
    ) -> Result<()> {
        for blob in blobs {
            self.cancel.check()?;
            let from = usize::try_from(u64::from(blob.offset).saturating_sub(start)).unwrap_or(usize::MAX);
            let sealed = part.get(from..).and_then(|rest| rest.get(..blob.length as usize)).unwrap_or_default();
            let stored = StoredBlob { sealed, uncompressed: blob.uncompressed, id: &blob.id };
            if let Err(cause) = decoder.decode(&self.repository.key, &stored) {
                self.error(format!("pack {}: blob {}: {cause}", pack.id, blob.id));
            }
            if self.expected.contains_key(&pack.id) && !self.is_indexed(pack.id, blob) {
                self.error(format!("pack {}: blob {} is not in the index as it lies here", pack.id, blob.id));
            }
        }
        Ok(())
    }

    fn is_indexed(&self, pack: Id, blob: &PackedBlob) -> bool {
        let places = self.index.places(blob.kind, &blob.id);
        places.iter().any(|place| self.index.pack(place.pack) == pack && *place == Place::of(place.pack, blob))
    }
}

/// Does `work` on every thread that reads packs, and `beside` on this one.
fn on_each_reader(packs: usize, work: impl Fn() + Sync, beside: impl FnOnce()) {
    std::thread::scope(|scope| {
        for _ in 0..readers().min(packs) {
            scope.spawn(&work);
        }
        beside();
    });
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Threads that read packs: at least two, so that one can work while the other waits for the store.
fn readers() -> usize {
    std::thread::available_parallelism().map_or(2, |processors| processors.get().clamp(2, MOST_READERS))
}

fn is_mixed(pack: &IndexedPack) -> bool {
    pack.blobs.iter().any(|blob| Some(blob.kind) != pack.blobs.first().map(|first| first.kind))
}

/// A sample has at least one: who asks for a look into the data gets it.
fn choose(mut packs: Vec<Listed>, read: ReadData) -> Vec<Listed> {
    match read {
        ReadData::Nothing => packs.clear(),
        ReadData::Everything => {}
        ReadData::Sample(percent) => {
            let one = (percent > 0 && !packs.is_empty()).then(|| rand::random_range(0..packs.len()));
            let mut place = 0;
            packs.retain(|_| {
                place += 1;
                Some(place - 1) == one || rand::random_range(0..100) < u32::from(percent)
            });
        }
    }
    packs
}
