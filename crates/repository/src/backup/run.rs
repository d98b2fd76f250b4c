//! One backup from beginning to end.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use plimsoll_progress::{Meter, Task, Total, Unit};

use super::buffers::Buffers;
use super::files::Worker;
use super::folders::Folders;
use super::memory::Memory;
use super::node::NodeMaker;
use super::options::{BackupOptions, Parent};
use super::packer::{Packer, Saver};
use super::pool::Pool;
use super::scan::scan;
use super::totals::Found;
use super::upload::Uploads;
use super::walk::Walker;
use crate::blob_index::{BlobIndex, IdSet};
use crate::blob_read::BlobReader;
use crate::cancel::Cancel;
use crate::format::blob::BlobKind;
use crate::format::chunker::{Chunker, LONGEST};
use crate::format::id::Id;
use crate::format::index::IndexedPack;
use crate::format::snapshot::{Snapshot, Summary};
use crate::format::time::Time;
use crate::lock::{Lock, LockKind};
use crate::repository::{FileKind, Repository};
use crate::waits::{say_if_not_locked, show_waits};
use crate::{RepositoryError, Result, system};

/// Something that was left out or is incomplete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file or directory.
    pub path: String,
    /// What the system said.
    pub cause: String,
}

/// How a backup ended.
#[derive(Clone, Debug)]
pub struct BackupOutcome {
    /// The new snapshot; the parent, if nothing differed and that was asked for.
    pub snapshot: Id,
    /// The root tree.
    pub tree: Id,
    /// What was found and done.
    pub summary: Summary,
    /// What was left out, the first thousand.
    pub problems: Vec<Problem>,
    /// How many problems there were in all.
    pub problem_count: u64,
    /// Whether a lock file was kept: not where the store refuses deletes.
    pub locked: bool,
}

/// Problems kept in words; the rest is only counted.
const MOST_PROBLEMS: usize = 1000;
/// Claimed blobs of data are spread over so many sets that threads rarely meet.
const SHARDS: usize = 4;

pub(super) struct Meters {
    pub task: Task,
    pub bytes: Meter,
    pub files: Meter,
    pub found: Found,
}

#[derive(Default)]
struct Counters {
    files_new: AtomicU64,
    files_changed: AtomicU64,
    files_unmodified: AtomicU64,
    dirs_new: AtomicU64,
    dirs_changed: AtomicU64,
    dirs_unmodified: AtomicU64,
    data_blobs: AtomicU64,
    tree_blobs: AtomicU64,
    data_added: AtomicU64,
    data_added_packed: AtomicU64,
    total_bytes: AtomicU64,
}

/// What all threads of one backup share.
pub(super) struct Run<'a> {
    pub repository: &'a Arc<Repository>,
    pub index: &'a BlobIndex,
    pub options: &'a BackupOptions,
    pub cancel: &'a Cancel,
    pub chunker: Chunker,
    pub maker: NodeMaker,
    pub reader: BlobReader<'a>,
    pub uploads: Uploads<'a>,
    pub folders: Folders,
    /// Held by whoever walks a very large directory: one takes memory enough.
    pub large_directory: Mutex<()>,
    pub pool: Pool,
    pub trees: Mutex<Packer>,
    pub meters: Meters,
    pub chunk_buffers: Buffers,
    memory: Memory,
    data: Vec<Mutex<Packer>>,
    claimed: [Mutex<IdSet>; SHARDS],
    claimed_trees: Mutex<IdSet>,
    counters: Counters,
    problems: Mutex<Vec<Problem>>,
    problem_count: AtomicU64,
    failure: Mutex<Option<RepositoryError>>,
    stopped: AtomicBool,
    walked: AtomicBool,
    root: OnceLock<Id>,
}

impl Run<'_> {
    pub(super) fn saver(&self) -> Result<Saver> {
        Saver::new(self.options.compression, self.options.verify)
    }

    /// The open pack of data for this worker.
    pub(super) fn data_packer(&self, worker: usize) -> &Mutex<Packer> {
        &self.data[worker % self.data.len()]
    }

    /// Whether this blob is new and the caller is the one to store it.
    pub(super) fn claim(&self, kind: BlobKind, id: Id) -> bool {
        if self.index.contains(kind, &id) {
            return false;
        }
        // A file may hold the very bytes of a directory: they are two blobs.
        let claimed = match kind {
            BlobKind::Tree => &self.claimed_trees,
            BlobKind::Data => &self.claimed[usize::from(id.0[31]) % SHARDS],
        };
        claimed.lock().unwrap_or_else(PoisonError::into_inner).insert(id)
    }

    /// Compresses, seals and packs a new blob; its plain bytes are used up.
    pub(super) fn store_blob(
        &self,
        saver: &mut Saver,
        packer: &Mutex<Packer>,
        kind: BlobKind,
        id: Id,
        plain: &mut [u8],
    ) -> Result<()> {
        let key = &self.repository.key;
        let added = plain.len() as u64;
        let mut blob = saver.seal(key, kind, id, plain)?;
        let full = {
            let mut packer = packer.lock().unwrap_or_else(PoisonError::into_inner);
            packer.append(key, &mut blob, || self.is_stopped())?
        };
        let blobs = if kind == BlobKind::Tree { &self.counters.tree_blobs } else { &self.counters.data_blobs };
        blobs.fetch_add(1, Ordering::Relaxed);
        self.counters.data_added.fetch_add(added, Ordering::Relaxed);
        self.counters.data_added_packed.fetch_add(blob.sealed.stored_length() as u64, Ordering::Relaxed);
        match full {
            Some(pack) => self.uploads.submit(pack, self.cancel),
            None => Ok(()),
        }
    }

    pub(super) fn count_file(&self, known: bool, size: u64) {
        let counter = if known { &self.counters.files_changed } else { &self.counters.files_new };
        counter.fetch_add(1, Ordering::Relaxed);
        self.counters.total_bytes.fetch_add(size, Ordering::Relaxed);
        self.meters.files.add(1);
    }

    pub(super) fn count_unchanged(&self, size: u64) {
        self.counters.files_unmodified.fetch_add(1, Ordering::Relaxed);
        self.counters.total_bytes.fetch_add(size, Ordering::Relaxed);
        self.meters.files.skip(1);
        self.meters.bytes.skip(size);
    }

    /// A file of this size was left out after it was counted.
    pub(super) fn count_failed(&self, bytes: u64) {
        self.meters.files.fail(1);
        self.meters.bytes.fail(bytes);
    }

    /// A file of this size is gone since it was counted.
    pub(super) fn count_gone(&self, bytes: u64) {
        self.meters.files.skip(1);
        self.meters.bytes.skip(bytes);
    }

    pub(super) fn count_directory(&self, previous: Option<Id>, now: Id) {
        let counter = match previous {
            None => &self.counters.dirs_new,
            Some(previous) if previous == now => &self.counters.dirs_unmodified,
            Some(_) => &self.counters.dirs_changed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Something is left out or incomplete; the backup goes on.
    pub(super) fn problem(&self, path: &Path, error: &impl ToString) {
        self.problem_count.fetch_add(1, Ordering::Relaxed);
        self.note(path, &error.to_string());
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        if problems.len() < MOST_PROBLEMS {
            problems.push(Problem { path: path.display().to_string(), cause: error.to_string() });
        }
    }

    /// Worth knowing, but nothing is missing.
    pub(super) fn note(&self, path: &Path, text: &str) {
        tracing::warn!(path = %path.display(), text);
        self.meters.task.hint(format!("{}: {text}", path.display()));
    }

    pub(super) fn set_root(&self, tree: Id) {
        let _ = self.root.set(tree);
    }

    pub(super) fn fail(&self, error: RepositoryError) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.stopped.store(true, Ordering::Release);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire) || self.cancel.is_cancelled()
    }

    /// Whether the walk is over, so that counting ahead is of no more use.
    pub(super) fn is_walked(&self) -> bool {
        self.walked.load(Ordering::Acquire)
    }

    /// An error if work should stop, whatever the reason: the first failure is what is reported.
    pub(super) fn check(&self) -> Result<()> {
        if self.is_stopped() { Err(RepositoryError::Cancelled) } else { Ok(()) }
    }

    fn take_failure(&self) -> Result<()> {
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(failure) => Err(failure),
            None => self.cancel.check(),
        }
    }

    /// Reads and stores everything; answers with the root tree.
    fn read_everything(&self, previous: Option<Id>, lock: &Lock) -> Result<Id> {
        let walkers = self.options.walkers.max(1);
        let walking = AtomicUsize::new(walkers);
        std::thread::scope(|scope| {
            scope.spawn(|| scan(self));
            for number in 0..walkers {
                let walking = &walking;
                let end = AtEnd { run: self, end: move || self.end_walk(walking) };
                let walk = move || {
                    let _end = end;
                    self.walk(number == 0, previous);
                };
                // The way to a target may have very many names.
                let walker = std::thread::Builder::new().name("walk".into()).stack_size(16 * 1024 * 1024);
                if let Err(error) = walker.spawn_scoped(scope, walk) {
                    self.fail(RepositoryError::local(Path::new("a thread"), &error));
                }
            }
            let worker = |number| {
                let end = AtEnd { run: self, end: || () };
                let work = move || {
                    let _end = end;
                    self.work(number);
                };
                let worker = std::thread::Builder::new().spawn_scoped(scope, work);
                worker.map_err(|error| self.fail(RepositoryError::local(Path::new("a thread"), &error))).ok()
            };
            let working: Vec<_> = (0..self.memory.workers).filter_map(worker).collect();
            // Reading need not wait until the lock is known to be good; storing does.
            let settled = lock
                .settle_unless(self.cancel)
                .and_then(|()| self.repository.require_unswept(self.index, self.cancel))
                .map_err(|error| self.fail(error));
            self.uploads.allow(settled.is_ok());
            self.watch(lock, || working.iter().all(std::thread::ScopedJoinHandle::is_finished));
        });
        self.take_failure()?;
        self.root.get().copied().ok_or_else(|| RepositoryError::corrupt("the new tree", "it was not completed"))
    }

    /// One walks what was asked for, with the tree it had before; the others what that one finds.
    fn walk(&self, begins: bool, previous: Option<Id>) {
        let walked = Walker::new(self).and_then(|walker| if begins { walker.walk(previous) } else { walker.go_on() });
        if let Err(error) = walked {
            self.fail(error);
        }
    }

    /// One walker less; with the last one everything was found.
    fn end_walk(&self, walking: &AtomicUsize) {
        if walking.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        if !self.is_stopped() {
            self.meters.all_walked();
        }
        self.walked.store(true, Ordering::Release);
        self.pool.close();
    }

    fn work(&self, number: usize) {
        match Worker::new(self, number) {
            Ok(worker) => worker.work(),
            Err(error) => self.fail(error),
        }
    }

    /// Writes index files when they are due, and stops everything when the lock is lost.
    fn watch(&self, lock: &Lock, done: impl Fn() -> bool) {
        while !done() {
            std::thread::park_timeout(Duration::from_millis(5));
            if let Err(error) = lock.check().and_then(|()| self.uploads.index_if_due(self.cancel)) {
                self.fail(error);
            }
        }
    }

    /// Stores what is still open, names it, and only then is there something to refer to.
    fn store_everything(&self) -> Result<()> {
        for packer in self.data.iter().chain([&self.trees]) {
            let pack = packer.lock().unwrap_or_else(PoisonError::into_inner).finish(&self.repository.key);
            if let Some(pack) = pack {
                self.uploads.submit(pack, self.cancel)?;
            }
        }
        self.uploads.finish(self.cancel)
    }

    fn summary(&self, start: Time) -> Summary {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        let files = [&counters.files_new, &counters.files_changed, &counters.files_unmodified];
        Summary {
            backup_start: start,
            backup_end: Time::now(),
            files_new: get(&counters.files_new),
            files_changed: get(&counters.files_changed),
            files_unmodified: get(&counters.files_unmodified),
            dirs_new: get(&counters.dirs_new),
            dirs_changed: get(&counters.dirs_changed),
            dirs_unmodified: get(&counters.dirs_unmodified),
            data_blobs: get(&counters.data_blobs),
            tree_blobs: get(&counters.tree_blobs),
            data_added: get(&counters.data_added),
            data_added_packed: get(&counters.data_added_packed),
            total_files_processed: files.into_iter().map(get).sum(),
            total_bytes_processed: get(&counters.total_bytes),
        }
    }
}

/// Does something when a thread ends, however it ends. One that panics stops the others: they would wait for it for ever.
struct AtEnd<'r, 'a, F: FnMut()> {
    run: &'r Run<'a>,
    end: F,
}

impl<F: FnMut()> Drop for AtEnd<'_, '_, F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.run.fail(RepositoryError::local(Path::new("a thread"), &std::io::Error::other("it panicked")));
        }
        (self.end)();
    }
}

/// What a backup starts from.
struct Beginning {
    lock: Arc<Lock>,
    parent: Option<(Id, Snapshot)>,
    index: BlobIndex,
    /// Packs of an earlier run that no index file names yet.
    adopted: Vec<IndexedPack>,
}

impl Repository {
    /// Backs up. What cannot be read is left out and listed in the outcome; what cannot be stored ends it with an
    /// error and without a snapshot.
    ///
    /// `task` gets the meters Bytes and Files. It is the caller's to end.
    ///
    /// # Cancel safety
    /// After a cancel the call returns within about a second. What was stored stays, and the next backup uses it. An index
    /// file or snapshot on its way then is not called back; the lock file stays until that has settled, after the call if
    /// need be, and for good if the process ends before: nobody may sweep up what may still be referred to.
    pub fn backup(self: &Arc<Self>, options: &BackupOptions, task: &Task, cancel: &Cancel) -> Result<BackupOutcome> {
        self.require_writable()?;
        let start = Time::now();
        let _waits = show_waits(&self.store, task);
        let Beginning { lock, parent, index, adopted } = self.begin_backup(options, task, cancel)?;
        say_if_not_locked(&lock, task);
        let meters = meters(task, parent.is_none());
        let memory = Memory::plan(options);
        let packs = Buffers::new(memory.pack_buffer(), memory.pack_budget());
        let packer = |kind| Mutex::new(Packer::new(kind, memory.pack_size, packs.clone()));
        let run = Run {
            repository: self,
            index: &index,
            options,
            cancel,
            chunker: Chunker::new(self.config.polynomial),
            maker: NodeMaker::new(options),
            reader: BlobReader::new(self, &index, cancel),
            uploads: Uploads::new(self, &lock, &meters, (memory.uploads, options.index_every), adopted),
            folders: Folders::new(),
            large_directory: Mutex::default(),
            pool: Pool::new(memory.workers),
            trees: packer(BlobKind::Tree),
            data: (0..memory.open_packs).map(|_| packer(BlobKind::Data)).collect(),
            meters,
            chunk_buffers: Buffers::new(LONGEST, memory.chunk_budget()),
            memory,
            claimed: std::array::from_fn(|_| Mutex::default()),
            claimed_trees: Mutex::default(),
            counters: Counters::default(),
            problems: Mutex::default(),
            problem_count: AtomicU64::new(0),
            failure: Mutex::default(),
            stopped: AtomicBool::new(false),
            walked: AtomicBool::new(false),
            root: OnceLock::new(),
        };
        let previous = parent.as_ref().map(|(_, snapshot)| snapshot.tree);
        let stored = run.read_everything(previous, &lock).and_then(|tree| run.store_everything().map(|()| tree));
        let tree = match stored {
            Ok(tree) => tree,
            Err(error) => {
                lock.hurry();
                run.uploads.keep_what_is_stored();
                return Err(error);
            }
        };
        let finished = self.finish_backup(&run, parent, tree, start, &lock);
        if finished.is_err() {
            lock.hurry();
        }
        finished
    }

    fn begin_backup(self: &Arc<Self>, options: &BackupOptions, task: &Task, cancel: &Cancel) -> Result<Beginning> {
        let (repository, options, task) = (self.clone(), options.clone(), task.clone());
        let inner = cancel.clone();
        cancel.run(move || {
            let lock = Arc::new(Lock::write(&repository, LockKind::Shared, &inner)?);
            // The snapshots before the index: what a snapshot refers to is then in the index.
            let parent = repository.choose_parent(&options)?;
            let mut index = repository.load_index(&task, &inner)?;
            let adopted = repository.orphan_packs(&index, &inner)?;
            for pack in &adopted {
                index.add_orphan(pack);
            }
            Ok(Beginning { lock, parent, index, adopted })
        })
    }

    fn finish_backup(
        self: &Arc<Self>,
        run: &Run<'_>,
        parent: Option<(Id, Snapshot)>,
        tree: Id,
        start: Time,
        lock: &Arc<Lock>,
    ) -> Result<BackupOutcome> {
        let summary = run.summary(start);
        let unchanged = parent.as_ref().filter(|(_, snapshot)| run.options.skip_if_unchanged && snapshot.tree == tree);
        lock.confirm(run.cancel)?;
        run.cancel.check()?;
        let snapshot = if let Some((id, _)) = unchanged {
            *id
        } else {
            let json = new_snapshot(run.options, parent.map(|(id, _)| id), tree, &summary)?;
            self.wait(run.cancel, self.save_under(lock, FileKind::Snapshot, json))?
        };
        let settled = |meter: &Meter| meter.set_total(Total::Final(meter.counts().settled()));
        settled(&run.meters.bytes);
        settled(&run.meters.files);
        let problems = std::mem::take(&mut *run.problems.lock().unwrap_or_else(PoisonError::into_inner));
        let problem_count = run.problem_count.load(Ordering::Relaxed);
        Ok(BackupOutcome { snapshot, tree, summary, problems, problem_count, locked: lock.is_visible() })
    }

    /// The snapshot to compare with.
    fn choose_parent(&self, options: &BackupOptions) -> Result<Option<(Id, Snapshot)>> {
        match options.parent {
            Parent::None => Ok(None),
            Parent::Snapshot(id) => self.find_snapshot(&id.to_string()).map(Some),
            Parent::Newest => {
                let paths = options.recorded_paths();
                let limit = options.time.unwrap_or_else(Time::now);
                let fits = |snapshot: &Snapshot| {
                    snapshot.hostname == options.hostname
                        && snapshot.time <= limit
                        && paths.iter().all(|path| snapshot.paths.contains(path))
                };
                // One that cannot be read is no parent; check names it.
                Ok(self.readable_snapshots()?.0.into_iter().rfind(|(_, snapshot)| fits(snapshot)))
            }
        }
    }
}

fn meters(task: &Task, is_first: bool) -> Meters {
    let task = task.clone();
    let (bytes, files) = (task.meter(Unit::Bytes), task.meter(Unit::Files));
    Meters { task, bytes, files, found: Found::new(is_first) }
}

/// The JSON of a new snapshot.
fn new_snapshot(options: &BackupOptions, parent: Option<Id>, tree: Id, summary: &Summary) -> Result<Vec<u8>> {
    let (uid, gid, username) = system::current_user();
    let snapshot = Snapshot {
        time: options.time.unwrap_or(summary.backup_start),
        parent,
        tree,
        paths: options.recorded_paths(),
        hostname: options.hostname.clone(),
        username,
        uid,
        gid,
        excludes: options.excludes.clone(),
        tags: options.tags.clone(),
        original: None,
        program_version: options.program.clone(),
        summary: Some(summary.clone()),
    };
    snapshot.encode().map_err(|cause| RepositoryError::corrupt("the new snapshot", cause))
}
