//! The execution of a backup.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use plimsoll_progress::{Meter, Task, Total, Unit};

use super::buffers::Buffers;
use super::directory_queue::DirectoryQueue;
use super::encoders::Encoders;
use super::memory_plan::MemoryPlan;
use super::node::NodeBuilder;
use super::options::{BackupOptions, Parent};
use super::packer::{BlobEncoder, Packer};
use super::scan::scan;
use super::totals::DiscoveredTotals;
use super::unfinished::UnfinishedMark;
use super::unindexed::UnindexedBlobs;
use super::upload::Uploads;
use super::walk::Walker;
use super::work_queue::WorkQueue;
use super::worker::Worker;
use crate::blob_index::{BlobIndex, IdSet};
use crate::blob_read::BlobReader;
use crate::cancel::Cancel;
use crate::concurrently::concurrently;
use crate::format::blob::BlobKind;
use crate::format::chunker::{Chunker, MAX_CHUNK_SIZE};
use crate::format::id::Id;
use crate::format::index::IndexedPack;
use crate::format::snapshot::{Snapshot, Summary};
use crate::format::time::Time;
use crate::lock::{Lock, LockKind};
use crate::repository::{FileKind, Repository};
use crate::stop::StopState;
use crate::store_waits::{hint_if_not_locked, show_waits};
use crate::{RepositoryError, Result, system};

/// A file or directory that was skipped or is incomplete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file or directory.
    pub path: String,
    /// The system's error.
    pub cause: String,
}

/// The outcome of a backup.
#[derive(Clone, Debug)]
pub struct BackupOutcome {
    /// The new snapshot; the parent, if nothing changed and unchanged backups are skipped.
    pub snapshot: Id,
    /// The root tree.
    pub tree: Id,
    /// The statistics of the backup.
    pub summary: Summary,
    /// The first thousand problems.
    pub problems: Vec<Problem>,
    /// The number of all problems.
    pub problem_count: u64,
    /// Whether a lock file was kept. There is none if the store denies deletes.
    pub locked: bool,
}

/// The maximum number of listed problems; the rest is only counted.
const MAX_PROBLEMS: usize = 1000;
/// The number of sets of claimed data blobs, to reduce contention.
const SHARDS: usize = 16;

pub(super) struct Meters {
    pub task: Task,
    pub bytes: Meter,
    pub files: Meter,
    pub totals: DiscoveredTotals,
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

/// The shared state of a backup's threads.
pub(super) struct Run<'a> {
    pub repository: &'a Arc<Repository>,
    pub index: &'a BlobIndex,
    pub unindexed: UnindexedBlobs,
    pub options: &'a BackupOptions,
    pub cancel: &'a Cancel,
    pub chunker: Chunker,
    pub node_builder: NodeBuilder,
    pub reader: BlobReader<'a>,
    pub uploads: Uploads<'a>,
    pub directories: DirectoryQueue,
    /// Locked while a very large directory is walked, because of its memory.
    pub large_directory: Mutex<()>,
    pub queue: WorkQueue,
    pub trees: Mutex<Packer>,
    pub meters: Meters,
    pub chunk_buffers: Buffers,
    encoders: Encoders,
    memory: MemoryPlan,
    data: Vec<Mutex<Packer>>,
    claimed: [Mutex<IdSet>; SHARDS],
    claimed_trees: Mutex<IdSet>,
    counters: Counters,
    problems: Mutex<Vec<Problem>>,
    problem_count: AtomicU64,
    pub stop: StopState<'a>,
    walked: AtomicBool,
    root: OnceLock<Id>,
}

impl Run<'_> {
    /// The open data pack of this worker.
    pub(super) fn data_packer(&self, worker: usize) -> &Mutex<Packer> {
        &self.data[worker % self.data.len()]
    }

    /// Whether this blob is new and the caller must store it.
    pub(super) fn claim(&self, kind: BlobKind, id: Id) -> bool {
        if self.index.contains(kind, &id) || self.unindexed.contains(kind, &id) {
            return false;
        }
        // A file may have the bytes of a tree: they are two blobs.
        let claimed = match kind {
            BlobKind::Tree => &self.claimed_trees,
            BlobKind::Data => &self.claimed[usize::from(id.0[31]) % SHARDS],
        };
        claimed.lock().unwrap_or_else(PoisonError::into_inner).insert(id)
    }

    /// Compresses, encrypts and packs a new blob. Overwrites its plain bytes.
    pub(super) fn store_blob(&self, packer: &Mutex<Packer>, kind: BlobKind, id: Id, plain: &mut [u8]) -> Result<()> {
        let finished = self.encoders.with(
            || self.stop.is_stopped(),
            |encoder| {
                let key = &self.repository.key;
                let added = plain.len() as u64;
                let blob = encoder.encrypt(key, kind, id, plain)?;
                let full =
                    packer.lock().unwrap_or_else(PoisonError::into_inner).append(&blob, || self.stop.is_stopped())?;
                self.count_blob(kind, added, blob.encrypted.stored_length() as u64);
                full.map(|pack| pack.finish(key, encoder)).transpose()
            },
        )?;
        match finished {
            Some(pack) => self.uploads.submit(pack, self.cancel),
            None => Ok(()),
        }
    }

    fn count_blob(&self, kind: BlobKind, added: u64, stored: u64) {
        let blobs = if kind == BlobKind::Tree { &self.counters.tree_blobs } else { &self.counters.data_blobs };
        blobs.fetch_add(1, Ordering::Relaxed);
        self.counters.data_added.fetch_add(added, Ordering::Relaxed);
        self.counters.data_added_packed.fetch_add(stored, Ordering::Relaxed);
    }

    pub(super) fn count_file(&self, is_in_parent: bool, size: u64) {
        let counter = if is_in_parent { &self.counters.files_changed } else { &self.counters.files_new };
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

    /// Counts a file that failed after it was counted in the total.
    pub(super) fn count_failed(&self, bytes: u64) {
        self.meters.files.fail(1);
        self.meters.bytes.fail(bytes);
    }

    /// Counts a file that was removed after it was counted in the total.
    pub(super) fn count_removed(&self, bytes: u64) {
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

    /// Records a problem; the backup continues.
    pub(super) fn problem(&self, path: &Path, error: &impl ToString) {
        self.problem_count.fetch_add(1, Ordering::Relaxed);
        self.note(path, &error.to_string());
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        if problems.len() < MAX_PROBLEMS {
            problems.push(Problem { path: path.display().to_string(), cause: error.to_string() });
        }
    }

    /// Logs a note; nothing is missing.
    pub(super) fn note(&self, path: &Path, text: &str) {
        tracing::warn!(path = %path.display(), text);
        self.meters.task.hint(format!("{}: {text}", path.display()));
    }

    pub(super) fn set_root(&self, tree: Id) {
        let _ = self.root.set(tree);
    }

    /// Whether the walk is complete, so that the scan is no longer needed.
    pub(super) fn is_walked(&self) -> bool {
        self.walked.load(Ordering::Acquire)
    }

    /// Reads and stores all files. Returns the root tree.
    fn read_all(&self, previous: Option<Id>, lock: &Lock) -> Result<Id> {
        let walkers = self.memory.walkers;
        let walking = AtomicUsize::new(walkers);
        std::thread::scope(|scope| {
            scope.spawn(|| scan(self));
            for number in 0..walkers {
                let walking = &walking;
                let end = OnThreadEnd { run: self, end: move || self.end_walk(walking) };
                let walk = move || {
                    let _end = end;
                    self.walk(number == 0, previous);
                };
                // The path of a target may have very many components.
                let walker = std::thread::Builder::new().name("walk".into()).stack_size(16 * 1024 * 1024);
                if let Err(error) = walker.spawn_scoped(scope, walk) {
                    self.stop.fail(RepositoryError::local(Path::new("worker thread"), &error));
                }
            }
            let worker = |number| {
                let end = OnThreadEnd { run: self, end: || () };
                let work = move || {
                    let _end = end;
                    Worker::new(self, number).run();
                };
                let worker = std::thread::Builder::new().spawn_scoped(scope, work);
                worker.map_err(|error| self.stop.fail(RepositoryError::local(Path::new("worker thread"), &error))).ok()
            };
            let working: Vec<_> = (0..self.memory.readers).filter_map(worker).collect();
            // Reading may start before the lock is confirmed; storing may not.
            let confirmed = lock
                .wait_until_confirmed(self.cancel)
                .and_then(|()| self.repository.require_not_pruned(self.index, self.cancel))
                .map_err(|error| self.stop.fail(error));
            self.uploads.allow(confirmed.is_ok());
            scope.spawn(|| self.find_unindexed());
            self.watch(lock, || working.iter().all(std::thread::ScopedJoinHandle::is_finished));
            self.unindexed.end();
        });
        self.stop.take_failure()?;
        self.root.get().copied().ok_or_else(|| RepositoryError::corrupt("the new tree", "incomplete"))
    }

    /// Runs a walker. The first one starts with the targets; the others walk the directories that it finds.
    fn walk(&self, is_first: bool, previous: Option<Id>) {
        let walker = Walker::new(self);
        let walked = if is_first { walker.walk(previous) } else { walker.walk_queue() };
        if let Err(error) = walked {
            self.stop.fail(error);
        }
    }

    /// Ends a walker. With the last one the walk is complete.
    fn end_walk(&self, walking: &AtomicUsize) {
        if walking.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        if !self.stop.is_stopped() {
            self.meters.all_walked();
        }
        self.walked.store(true, Ordering::Release);
        self.queue.close();
    }

    /// Finds unindexed packs once they are asked for. They are indexed with the new ones. To be called after the lock was confirmed:
    /// from then on no prune removes them.
    fn find_unindexed(&self) {
        let mut found = BlobIndex::default();
        if self.unindexed.wait_for_request(|| self.stop.is_stopped()) && !self.stop.is_stopped() {
            match self.repository.unindexed_packs(self.index, self.cancel) {
                Ok(packs) => {
                    for pack in &packs {
                        found.add(pack);
                    }
                    self.uploads.add_unindexed(packs);
                }
                Err(error) => self.stop.fail(error),
            }
        }
        self.unindexed.set(found);
    }

    /// Writes index files when they are due, and stops the backup when the lock is lost.
    fn watch(&self, lock: &Lock, done: impl Fn() -> bool) {
        while !done() {
            std::thread::park_timeout(Duration::from_millis(5));
            if let Err(error) = lock.check().and_then(|()| self.uploads.index_if_due(self.cancel)) {
                self.stop.fail(error);
            }
        }
    }

    /// Stores the open packs and then the index, before a snapshot may refer to them.
    fn store_all(&self) -> Result<()> {
        for packer in self.data.iter().chain([&self.trees]) {
            let Some(pack) = packer.lock().unwrap_or_else(PoisonError::into_inner).take() else { continue };
            let finish = |encoder: &mut BlobEncoder| pack.finish(&self.repository.key, encoder);
            let pack = self.encoders.with(|| self.stop.is_stopped(), finish)?;
            self.uploads.submit(pack, self.cancel)?;
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

/// Runs a closure when a thread ends. A panic stops the other threads, which would wait forever.
struct OnThreadEnd<'r, 'a, F: FnMut()> {
    run: &'r Run<'a>,
    end: F,
}

impl<F: FnMut()> Drop for OnThreadEnd<'_, '_, F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.run.stop.fail(RepositoryError::local(Path::new("worker thread"), &std::io::Error::other("panic")));
        }
        (self.end)();
    }
}

/// The prepared state of a backup.
struct PreparedBackup {
    lock: Arc<Lock>,
    parent: Option<(Id, Snapshot)>,
    index: BlobIndex,
    /// Packs of an earlier run that are not in the index.
    unindexed: Vec<IndexedPack>,
}

impl Repository {
    /// Creates a snapshot. Unreadable files are skipped and listed in the outcome; a failure to store ends the backup with an error
    /// and without a snapshot.
    ///
    /// `task` gets the meters Bytes and Files. The caller ends it.
    ///
    /// # Cancel safety
    /// After a cancel the call returns within about a second. Stored data stays, and the next backup uses it. A pending write of an
    /// index file or snapshot continues; the lock file stays until it has ended, also after the call, and for good if the process
    /// ends before: a prune must not remove data that may still be referenced.
    pub fn backup(self: &Arc<Self>, options: &BackupOptions, task: &Task, cancel: &Cancel) -> Result<BackupOutcome> {
        self.require_writable()?;
        let start = Time::now();
        let _waits = show_waits(&self.store, task);
        let PreparedBackup { lock, parent, index, unindexed } = self.prepare_backup(options, task, cancel)?;
        hint_if_not_locked(&lock, task);
        let mark = UnfinishedMark::write(self.mark_folder());
        let meters = meters(task, parent.is_none());
        let memory = MemoryPlan::plan(options, self.memory().for_buffers(index.len()), system::processors());
        let pack_buffers = Buffers::new(memory.pack_buffer(), memory.pack_budget());
        let packer = |kind| Mutex::new(Packer::new(kind, memory.pack_size, pack_buffers.clone()));
        let run = Run {
            repository: self,
            index: &index,
            unindexed: UnindexedBlobs::default(),
            options,
            cancel,
            chunker: Chunker::new(self.config.polynomial),
            node_builder: NodeBuilder::new(options),
            reader: BlobReader::new(self, &index, cancel),
            uploads: Uploads::new(self, &lock, &meters, (memory.upload_limit(), options.index_every), unindexed),
            directories: DirectoryQueue::new(),
            large_directory: Mutex::default(),
            queue: WorkQueue::new(memory.readers),
            trees: packer(BlobKind::Tree),
            data: (0..memory.open_packs).map(|_| packer(BlobKind::Data)).collect(),
            meters,
            encoders: Encoders::new(memory.workers, options)?,
            chunk_buffers: Buffers::new(MAX_CHUNK_SIZE, memory.chunk_budget()),
            memory,
            claimed: std::array::from_fn(|_| Mutex::default()),
            claimed_trees: Mutex::default(),
            counters: Counters::default(),
            problems: Mutex::default(),
            problem_count: AtomicU64::new(0),
            stop: StopState::new(cancel),
            walked: AtomicBool::new(false),
            root: OnceLock::new(),
        };
        if options.resumed || lock.follows_interruption() || mark.follows_interruption() {
            run.unindexed.request();
        }
        let previous = parent.as_ref().map(|(_, snapshot)| snapshot.tree);
        let stored = run.read_all(previous, &lock).and_then(|tree| run.store_all().map(|()| tree));
        let tree = match stored {
            Ok(tree) => tree,
            Err(error) => {
                lock.shorten_release();
                if run.uploads.index_stored_packs() && !mark.follows_interruption() {
                    mark.remove();
                }
                return Err(error);
            }
        };
        mark.remove();
        let finished = self.finish_backup(&run, parent, tree, start, &lock);
        if finished.is_err() {
            lock.shorten_release();
        }
        finished
    }

    fn prepare_backup(
        self: &Arc<Self>,
        options: &BackupOptions,
        task: &Task,
        cancel: &Cancel,
    ) -> Result<PreparedBackup> {
        let (repository, options, task) = (self.clone(), options.clone(), task.clone());
        let inner = cancel.clone();
        cancel.run(move || {
            // Each costs round trips. That no prune removed a part of the index before the lock is confirmed later.
            let (lock, (parent, index)) = concurrently(
                || Lock::write(&repository, LockKind::Shared, &inner),
                || concurrently(|| repository.choose_parent(&options), || repository.load_index(&task, &inner)),
            );
            let (lock, parent, mut index) = (Arc::new(lock?), parent?, index?);
            if parent.as_ref().is_some_and(|(_, parent)| !index.contains(BlobKind::Tree, &parent.tree)) {
                // The snapshot may be newer than the listing of the index.
                index = repository.load_index(&task, &inner)?;
            }
            // A snapshot without its tree: the packs of the interrupted backup, or those of a missing index file, may have it.
            let lacks_tree = |(_, parent): &(Id, Snapshot)| !index.contains(BlobKind::Tree, &parent.tree);
            let lacks_packs = parent.as_ref().is_some_and(lacks_tree);
            let unindexed = if lacks_packs { repository.unindexed_packs(&index, &inner)? } else { Vec::new() };
            for pack in &unindexed {
                index.add_unindexed(pack);
            }
            Ok(PreparedBackup { lock, parent, index, unindexed })
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
        let finalize = |meter: &Meter| meter.set_total(Total::Final(meter.counts().settled()));
        finalize(&run.meters.bytes);
        finalize(&run.meters.files);
        let problems = std::mem::take(&mut *run.problems.lock().unwrap_or_else(PoisonError::into_inner));
        let problem_count = run.problem_count.load(Ordering::Relaxed);
        Ok(BackupOutcome { snapshot, tree, summary, problems, problem_count, locked: lock.is_visible() })
    }

    /// The parent snapshot.
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
                // A damaged snapshot is not used; check reports it.
                Ok(self.readable_snapshots()?.0.into_iter().rfind(|(_, snapshot)| fits(snapshot)))
            }
        }
    }
}

fn meters(task: &Task, is_first: bool) -> Meters {
    let task = task.clone();
    let (bytes, files) = (task.meter(Unit::Bytes), task.meter(Unit::Files));
    Meters { task, bytes, files, totals: DiscoveredTotals::new(is_first) }
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
