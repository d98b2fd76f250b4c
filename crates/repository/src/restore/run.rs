//! The execution of a restore.

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use plimsoll_progress::{Meter, Task, Unit};
use rustix::fs::{FileType, Mode, OFlags};

use super::direct_io::DirectIoState;
use super::metadata::Metadata;
use super::new_file::NewFileDefaults;
use super::options::{Overwrite, RestoreOptions, RestoreOutcome};
use super::plan::{PackRange, RestoreBatch};
use super::target_entry::{TargetDirectories, TargetEntry};
use super::work_shares::WorkShares;
use super::write::Writer;
use crate::backup::Problem;
use crate::blob_index::BlobIndex;
use crate::blob_read::BlobReader;
use crate::cancel::Cancel;
use crate::concurrently::concurrently;
use crate::confined_path::ConfinedPath;
use crate::format::blob::BlobKind;
use crate::format::id::Id;
use crate::format::snapshot::Snapshot;
use crate::format::time::Time;
use crate::format::tree::{Node, NodeKind};
use crate::lock::{Lock, LockKind};
use crate::read_ahead::{ReadAhead, ReadRequest};
use crate::read_plan::ReadPlan;
use crate::repository::Repository;
use crate::stop::StopState;
use crate::store_waits::{hint_if_not_locked, show_waits};
use crate::{RepositoryError, Result, system};

const MAX_PROBLEMS: usize = 1000;
/// The advice for a missing index file.
const REPAIR_INDEX_ADVICE: &str = "; if its pack exists, run restic repair index or another backup to this repository";

pub(super) struct Meters {
    pub task: Task,
    pub bytes: Meter,
    pub files: Meter,
}

/// The shared state of a restore's threads.
pub(super) struct Run<'a> {
    pub repository: &'a Arc<Repository>,
    pub index: &'a BlobIndex,
    pub options: &'a RestoreOptions,
    pub cancel: &'a Cancel,
    pub reader: BlobReader<'a>,
    pub meters: Meters,
    /// The target directory.
    pub target: ConfinedPath,
    pub new_file_defaults: NewFileDefaults,
    /// Whether the target supports direct I/O.
    pub direct_io_state: DirectIoState,
    plan: ReadPlan,
    lock: &'a Lock,
    is_confirmed: OnceLock<()>,
    outcome: Mutex<RestoreOutcome>,
    pub stop: StopState<'a>,
    skipped: AtomicU64,
}

impl Run<'_> {
    pub(super) fn problem(&self, path: &Path, error: &impl ToString) {
        self.meters.task.hint(format!("{}: {}", path.display(), error.to_string()));
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.problem_count += 1;
        if outcome.problems.len() < MAX_PROBLEMS {
            outcome.problems.push(Problem { path: path.display().to_string(), cause: error.to_string() });
        }
    }

    pub(super) fn count_file(&self, good: bool, size: u64) {
        if !good {
            return self.meters.files.fail(1);
        }
        self.meters.files.add(1);
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.files += 1;
        outcome.bytes += size;
    }

    /// Removes an entry with its content, unless work should stop.
    fn remove(&self, entry: &TargetEntry<'_>) -> std::io::Result<()> {
        entry.remove(&|| self.stop.is_stopped())
    }

    /// Removes a conflicting entry. A non-empty directory is removed only with the option `delete`.
    pub(super) fn remove_conflict(&self, entry: &TargetEntry<'_>) -> std::io::Result<()> {
        if self.options.delete { self.remove(entry) } else { entry.remove_if_empty() }
    }

    /// Fetches and writes all files of a batch.
    fn write_batch(&self, batch: &mut RestoreBatch) -> Result<()> {
        let ranges = batch.ranges();
        std::thread::scope(|scope| {
            if self.is_confirmed.set(()).is_ok() {
                // Blobs are verified with their IDs, so reading need not wait for the confirmation of the lock.
                scope.spawn(|| self.confirm_lock());
            }
            if self.repository.store.local_file("config").is_some() {
                self.write_from_files(batch, &ranges);
            } else {
                self.write_from_store(batch, ranges);
            }
        });
        self.stop.take_failure()
    }

    fn confirm_lock(&self) {
        let confirmed = self.lock.wait_until_confirmed(self.cancel);
        if let Err(error) = confirmed.and_then(|()| self.repository.require_not_pruned(self.index, self.cancel)) {
            self.stop.fail(error);
        }
    }

    fn write_from_store(&self, batch: &RestoreBatch, ranges: Vec<PackRange>) {
        let request = |range: PackRange| ReadRequest {
            pack: self.index.pack(range.pack),
            bytes: range.bytes.clone(),
            context: range,
        };
        let read_ahead = ReadAhead::new(self.plan.read_ahead);
        std::thread::scope(|scope| {
            for _ in 0..self.plan.workers {
                scope.spawn(|| Writer::new(self, batch).write_fetched(&read_ahead));
            }
            read_ahead.fetch_all(self.repository, ranges.into_iter().map(request), || self.stop.is_stopped());
        });
    }

    /// Writes from local packs: each worker reads its own ranges.
    fn write_from_files(&self, batch: &RestoreBatch, ranges: &[PackRange]) {
        let workers = self.plan.workers;
        let shares = WorkShares::new(ranges.len(), workers);
        std::thread::scope(|scope| {
            for worker in 0..workers {
                let shares = &shares;
                let next = move || ranges.get(shares.next(worker)?);
                scope.spawn(move || Writer::new(self, batch).write_local(next));
            }
        });
    }
}

/// A directory whose metadata is set after its content.
struct Folder {
    path: PathBuf,
    metadata: Metadata,
    /// Created by this restore, so that it has inherited attributes only.
    is_new: bool,
}

/// The first path of a hard-linked file.
#[derive(Clone)]
struct FirstLink {
    path: PathBuf,
    /// An existing file is kept.
    is_kept: bool,
}

/// Walks the snapshot and plans batches.
struct Planner<'r, 'a> {
    run: &'r Run<'a>,
    directories: TargetDirectories<'r>,
    batch: RestoreBatch,
    links: Vec<(PathBuf, PathBuf)>,
    first_links: HashMap<(u64, u64), FirstLink>,
    /// Files that were not restored completely.
    damaged: HashSet<PathBuf>,
    folders: Vec<Folder>,
}

impl Planner<'_, '_> {
    /// Restores the entries of a tree into a directory, which may be known to be empty.
    fn tree(&mut self, id: &Id, path: &Path, is_empty: bool) -> Result<()> {
        let tree = match self.run.reader.tree(id) {
            Ok(tree) => tree,
            Err(error @ RepositoryError::Corrupt { .. }) => {
                self.run.problem(path, &error);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.run.meters.task.say(path.to_string_lossy());
        if self.run.options.delete && !is_empty {
            self.delete_others(path, &tree.nodes.iter().map(|node| node.name.as_slice()).collect());
        }
        let repeated = repeated_names(&tree.nodes);
        for (position, node) in tree.nodes.iter().enumerate() {
            self.run.stop.check()?;
            // A second entry with the same name would replace the first, and a link would replace a directory in use.
            if !node.has_safe_name() || repeated.contains(&position) {
                self.run.problem(
                    path,
                    &format!("entry {:?} not restored: invalid or repeated name", String::from_utf8_lossy(&node.name)),
                );
                continue;
            }
            self.node(node, path.join(std::ffi::OsStr::from_bytes(&node.name)), is_empty)?;
        }
        Ok(())
    }

    fn node(&mut self, node: &Node, path: PathBuf, is_empty: bool) -> Result<()> {
        match node.kind {
            NodeKind::Directory => return self.directory(node, &path, is_empty),
            NodeKind::File => self.file(node, path, is_empty),
            NodeKind::Socket => {}
            _ => {
                if let Err(error) = self.special(node, &path, is_empty) {
                    self.run.problem(&path, &error);
                }
            }
        }
        let limit = self.run.options.plan_ahead;
        if self.batch.is_full(limit) || self.links.len() >= limit { self.flush() } else { Ok(()) }
    }

    fn special(&mut self, node: &Node, path: &Path, is_empty: bool) -> std::io::Result<()> {
        if !is_empty && self.is_kept(node, path) {
            return Ok(());
        }
        let entry = self.directories.at(path)?;
        if !is_empty {
            self.run.remove_conflict(&entry)?;
        }
        create_special(node, &entry, self.run.new_file_defaults.may_inherit())
    }

    fn directory(&mut self, node: &Node, path: &Path, is_empty: bool) -> Result<()> {
        let is_new = match self.create_directory(path, is_empty) {
            Ok(is_new) => is_new,
            Err(error) => {
                self.run.problem(path, &error);
                return Ok(());
            }
        };
        self.folders.push(Folder { path: path.to_owned(), metadata: Metadata::of(node), is_new });
        if let Some(subtree) = &node.subtree {
            return self.tree(subtree, path, is_new);
        }
        self.run.problem(path, &"directory without a subtree");
        Ok(())
    }

    /// Creates a directory. Returns whether it is new. A conflicting entry is removed, also a link to a directory, which would lead out
    /// of the target.
    fn create_directory(&mut self, path: &Path, is_empty: bool) -> std::io::Result<bool> {
        let entry = self.directories.at(path)?;
        if !is_empty {
            match entry.stat() {
                Ok(existing) if FileType::from_raw_mode(existing.st_mode).is_dir() => {
                    self.run.new_file_defaults.check_existing(&entry);
                    return Ok(false);
                }
                Ok(_) if self.run.options.overwrite == Overwrite::Never => {
                    return Err(std::io::Error::other("an existing entry that is not a directory is kept"));
                }
                Ok(_) => entry.remove_file()?,
                Err(_) => {}
            }
        }
        entry.create_directory().map(|()| true)
    }

    fn file(&mut self, node: &Node, path: PathBuf, is_empty: bool) {
        self.run.meters.files.grow_total(1);
        let Some(content) = &node.content else {
            self.run.meters.files.fail(1);
            return self.run.problem(&path, &"file without a content list");
        };
        let key = node.hard_link_key();
        if let Some(first) = key.and_then(|key| self.first_links.get(&key).cloned()) {
            return self.additional_link(node, first, path, is_empty);
        }
        let is_kept = !is_empty && self.is_kept(node, &path);
        if let Some(key) = key {
            self.first_links.insert(key, FirstLink { path: path.clone(), is_kept });
        }
        if is_kept {
            return self.count_kept(node.size);
        }
        self.plan(node, &path, content);
    }

    /// Plans another hard link of a file, which may exist from an interrupted restore.
    fn additional_link(&mut self, node: &Node, first: FirstLink, path: PathBuf, is_empty: bool) {
        if !is_empty {
            // The link is kept only if the first path is kept too.
            if first.is_kept && self.is_same_file(&first.path, &path) {
                return self.count_kept(0);
            }
            let is_unconditional = self.run.options.overwrite != Overwrite::IfChanged;
            if is_unconditional && self.is_kept(node, &path) {
                return self.count_kept(0);
            }
        }
        self.links.push((first.path, path));
    }

    fn is_same_file(&mut self, one: &Path, other: &Path) -> bool {
        let (one, other) = (self.directories.at(one), self.directories.at(other));
        one.is_ok_and(|one| other.is_ok_and(|other| one.is_same_file(&other)))
    }

    fn count_kept(&self, bytes: u64) {
        self.run.meters.bytes.grow_total(bytes);
        self.run.meters.bytes.skip(bytes);
        self.run.meters.files.skip(1);
        self.run.skipped.fetch_add(1, Ordering::Relaxed);
    }

    fn plan(&mut self, node: &Node, path: &Path, content: &[Id]) {
        let planned = self.batch.add(path.to_owned(), Metadata::of(node), content, self.run.index);
        match planned {
            Ok(size) => {
                self.run.meters.bytes.grow_total(size);
                if content.is_empty() {
                    self.empty_file();
                }
            }
            Err(missing) => {
                self.run.meters.bytes.grow_total(node.size);
                self.run.meters.bytes.fail(node.size);
                self.run.meters.files.fail(1);
                self.run.problem(path, &format!("data blob {missing} is not in the index{REPAIR_INDEX_ADVICE}"));
                self.damaged.insert(path.to_owned());
            }
        }
    }

    fn empty_file(&mut self) {
        let Some(planned) = self.batch.files.pop() else { return };
        let created = planned.open(self.run).and_then(|file| planned.complete(&file, &self.run.new_file_defaults));
        if let Err(error) = &created {
            self.run.problem(&planned.path, error);
        }
        self.run.count_file(created.is_ok(), 0);
    }

    /// Whether an existing entry is kept. Otherwise it is removed when the new one is created.
    fn is_kept(&mut self, node: &Node, path: &Path) -> bool {
        let Ok(entry) = self.directories.at(path) else { return false };
        let Ok(existing) = entry.stat() else { return false };
        let is_content = node.kind == NodeKind::File;
        let is_file = FileType::from_raw_mode(existing.st_mode).is_file();
        let has_size = u64::try_from(existing.st_size) == Ok(node.size);
        let mtime = Time::utc(existing.st_mtime, u32::try_from(existing.st_mtime_nsec).unwrap_or(0));
        let keep = match self.run.options.overwrite {
            Overwrite::Always => false,
            Overwrite::Never => true,
            Overwrite::IfNewer => (is_file || !is_content) && mtime >= node.mtime,
            Overwrite::IfChanged => is_content && is_file && has_size && mtime.same_moment(&node.mtime),
        };
        // An earlier attempt may have been interrupted before the metadata, or only the metadata changed.
        if keep
            && self.run.options.overwrite == Overwrite::IfChanged
            && let Err(error) = Metadata::of(node).apply_to_kept(&entry, &existing)
        {
            self.run.problem(path, &error);
        }
        keep
    }

    fn delete_others(&mut self, path: &Path, keep: &HashSet<&[u8]>) {
        let run = self.run;
        let listed = self.directories.each_in(path, |name, entry| {
            if !keep.contains(name.as_bytes())
                && let Err(error) = run.remove(entry)
            {
                run.problem(&path.join(name), &error);
            }
            !run.stop.is_stopped()
        });
        if let Err(error) = listed {
            run.problem(path, &error);
        }
    }

    /// Restores the planned batch.
    fn flush(&mut self) -> Result<()> {
        let mut batch = std::mem::take(&mut self.batch);
        self.run.write_batch(&mut batch)?;
        let damaged = batch.files.into_iter().filter(|file| file.damaged.load(Ordering::Acquire));
        self.damaged.extend(damaged.map(|file| file.path));
        for (first, path) in std::mem::take(&mut self.links) {
            self.run.stop.check()?;
            self.link(&first, &path);
        }
        Ok(())
    }

    /// Creates a hard link, unless the file was not restored completely.
    fn link(&mut self, first: &Path, path: &Path) {
        let linked = if self.damaged.contains(first) {
            Err(format!("hard link to {}, which was not restored", first.display()))
        } else {
            self.hard_link(first, path).map_err(|error| error.to_string())
        };
        match linked {
            Ok(()) => self.run.meters.files.add(1),
            Err(error) => {
                self.run.meters.files.fail(1);
                self.run.problem(path, &error);
            }
        }
    }

    fn hard_link(&mut self, first: &Path, path: &Path) -> std::io::Result<()> {
        let (first, entry) = (self.directories.at(first)?, self.directories.at(path)?);
        match entry.create_hard_link(&first) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                self.run.remove_conflict(&entry)?;
                entry.create_hard_link(&first)
            }
            linked => linked,
        }
    }

    /// Sets the metadata of directories, the deepest first: a write into a directory changes its times.
    fn finish(mut self) -> Result<()> {
        self.run.meters.bytes.finalize_total();
        self.flush()?;
        self.run.meters.files.finalize_total();
        for folder in std::mem::take(&mut self.folders).iter().rev() {
            self.run.stop.check()?;
            if let Err(error) = self.finish_folder(folder) {
                self.run.problem(&folder.path, &error);
            }
        }
        Ok(())
    }

    fn finish_folder(&mut self, folder: &Folder) -> std::io::Result<()> {
        let may_have_attributes = !folder.is_new || self.run.new_file_defaults.may_inherit();
        match self.run.target.file(&folder.path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()) {
            Ok(directory) => folder.metadata.apply_to_directory(&directory, may_have_attributes),
            // An existing directory that is not readable.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                folder.metadata.apply_to_entry(&self.directories.at(&folder.path)?, false, may_have_attributes)
            }
            Err(error) => Err(error),
        }
    }
}

/// The positions of entries with a repeated name. A valid tree is sorted and has none.
fn repeated_names(nodes: &[Node]) -> HashSet<usize> {
    if nodes.is_sorted_by(|one, next| one.name < next.name) {
        return HashSet::new();
    }
    let mut seen = HashSet::new();
    let repeated = nodes.iter().enumerate().filter(|(_, node)| !seen.insert(&node.name));
    repeated.map(|(position, _)| position).collect()
}

fn create_special(node: &Node, entry: &TargetEntry<'_>, inherits: bool) -> std::io::Result<()> {
    match node.kind {
        NodeKind::Symlink => entry.create_symlink(&node.link_target)?,
        NodeKind::Fifo => entry.create_node(FileType::Fifo, 0)?,
        NodeKind::BlockDevice => entry.create_node(FileType::BlockDevice, node.device)?,
        NodeKind::CharacterDevice => entry.create_node(FileType::CharacterDevice, node.device)?,
        _ => return Ok(()),
    }
    Metadata::of(node).apply_to_entry(entry, node.kind == NodeKind::Symlink, inherits)
}

/// The prepared state of a restore.
struct PreparedRestore {
    lock: Lock,
    snapshot: Snapshot,
    index: BlobIndex,
    damage: Vec<RepositoryError>,
}

/// Creates the target if it is missing and opens it. Returns the defaults of new files and whether it is empty.
fn open_target(path: &Path) -> std::io::Result<(ConfinedPath, NewFileDefaults, bool)> {
    std::fs::create_dir_all(path)?;
    let is_empty = std::fs::read_dir(path)?.next().is_none();
    let target = ConfinedPath::new(path)?;
    let new_file_defaults = NewFileDefaults::new(&TargetEntry::root(&target)?, is_empty);
    Ok((target, new_file_defaults, is_empty))
}

impl Repository {
    /// Restores a snapshot or a part of it. Damaged files are problems in the outcome; all others are restored.
    ///
    /// `task` gets the meters Bytes and Files. The caller ends it.
    ///
    /// # Cancel safety
    /// After a cancel the call returns within about a second. Complete files stay, and [`Overwrite::IfChanged`] resumes the restore.
    pub fn restore(self: &Arc<Self>, options: &RestoreOptions, task: &Task, cancel: &Cancel) -> Result<RestoreOutcome> {
        let _waits = show_waits(&self.store, task);
        let PreparedRestore { lock, snapshot, index, damage } = self.prepare_restore(options, task, cancel)?;
        hint_if_not_locked(&lock, task);
        let failed = |error| RepositoryError::local(&options.target, &error);
        let (target, new_file_defaults, is_empty) = open_target(&options.target).map_err(failed)?;
        let task = task.clone();
        let (bytes, files) = (task.meter(Unit::Bytes), task.meter(Unit::Files));
        let run = Run {
            repository: self,
            index: &index,
            options,
            cancel,
            reader: BlobReader::new(self, &index, cancel),
            meters: Meters { task, bytes, files },
            target,
            new_file_defaults,
            direct_io_state: DirectIoState::default(),
            plan: ReadPlan::restore(options.workers, self.memory().for_buffers(index.len()), system::processors()),
            lock: &lock,
            is_confirmed: OnceLock::new(),
            outcome: Mutex::default(),
            stop: StopState::new(cancel),
            skipped: AtomicU64::new(0),
        };
        for error in damage {
            run.problem(Path::new("index"), &error);
        }
        let restored = run
            .reader
            .node_at(&snapshot.tree, &options.path)
            .and_then(|start| with_large_stack(|| restore_node(&run, &snapshot.tree, start, is_empty)));
        if let Err(error) = restored {
            lock.shorten_release();
            return Err(error);
        }
        let locked = lock.is_visible();
        let mut outcome = run.outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
        outcome.skipped = run.skipped.load(Ordering::Relaxed);
        outcome.locked = locked;
        Ok(outcome)
    }

    fn prepare_restore(
        self: &Arc<Self>,
        options: &RestoreOptions,
        task: &Task,
        cancel: &Cancel,
    ) -> Result<PreparedRestore> {
        let (repository, name, task) = (self.clone(), options.snapshot.to_string(), task.clone());
        let inner = cancel.clone();
        cancel.run(move || {
            let (snapshot, loaded) = concurrently(
                || repository.find_snapshot(&name),
                // The index after the lock: from then on its packs are not removed.
                || {
                    let lock = Lock::write(&repository, LockKind::Shared, &inner)?;
                    repository.rescue_index(&task, &inner).map(|loaded| (lock, loaded))
                },
            );
            let ((_, snapshot), (lock, (mut index, damage))) = (snapshot?, loaded?);
            if !index.contains(BlobKind::Tree, &snapshot.tree) {
                repository.add_unindexed_packs(&mut index, &inner)?;
            }
            Ok(PreparedRestore { lock, snapshot, index, damage })
        })
    }
}

/// Runs planning with a large stack, because it recurses as deep as the directories.
fn with_large_stack(work: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    let failed = |error: &dyn ToString| RepositoryError::local(Path::new("worker thread"), &error.to_string());
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(64 * 1024 * 1024).spawn_scoped(scope, work);
        let ended = thread.map_err(|error| failed(&error))?.join();
        ended.unwrap_or_else(|_| Err(failed(&"ended without a result")))
    })
}

fn restore_node(run: &Run<'_>, root: &Id, start: Option<Node>, is_empty: bool) -> Result<()> {
    let target = &run.options.target;
    let (batch, links, first_links, damaged, folders) = Default::default();
    let directories = TargetDirectories::new(&run.target);
    let mut planner = Planner { run, directories, batch, links, first_links, damaged, folders };
    match start {
        None => planner.tree(root, target, is_empty)?,
        Some(node) if node.kind == NodeKind::Directory => {
            planner.folders.push(Folder { path: target.clone(), metadata: Metadata::of(&node), is_new: false });
            planner.tree(&node.subtree.unwrap_or_default(), target, is_empty)?;
        }
        Some(node) => planner.node(&node, target.join(std::ffi::OsStr::from_bytes(&node.name)), is_empty)?,
    }
    planner.finish()
}
