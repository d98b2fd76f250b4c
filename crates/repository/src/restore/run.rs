//! One restore from beginning to end.

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use plimsoll_progress::{Meter, Task, Unit};
use rustix::fs::{FileType, Mode, OFlags};

use super::metadata::Metadata;
use super::newborn::Newborn;
use super::options::{Overwrite, RestoreOptions, RestoreOutcome};
use super::place::{Place, Places};
use super::plan::{PackRange, Portion};
use super::shares::Shares;
use super::uncached::Refused;
use super::write::Writer;
use crate::backup::Problem;
use crate::beneath::Beneath;
use crate::blob_index::BlobIndex;
use crate::blob_read::BlobReader;
use crate::cancel::Cancel;
use crate::format::blob::BlobKind;
use crate::format::id::Id;
use crate::format::snapshot::Snapshot;
use crate::format::time::Time;
use crate::format::tree::{Node, NodeKind};
use crate::lock::{Lock, LockKind};
use crate::read_ahead::{ReadAhead, Wish};
use crate::repository::Repository;
use crate::side_by_side::side_by_side;
use crate::waits::{say_if_not_locked, show_waits};
use crate::{RepositoryError, Result};

const MOST_PROBLEMS: usize = 1000;
/// What helps where an index file is gone.
const FOUND_AGAIN: &str =
    "; if its pack is there, the next backup into this repository finds it again, and so does restic repair index";
/// Each may hold a blob of 8 MiB in three forms, or two of half that size.
const MOST_WORKERS: usize = 4;

pub(super) struct Meters {
    pub task: Task,
    pub bytes: Meter,
    pub files: Meter,
}

/// What all threads of one restore share.
pub(super) struct Run<'a> {
    pub repository: &'a Arc<Repository>,
    pub index: &'a BlobIndex,
    pub options: &'a RestoreOptions,
    pub cancel: &'a Cancel,
    pub reader: BlobReader<'a>,
    pub meters: Meters,
    /// Where everything is made.
    pub target: Beneath,
    pub newborn: Newborn,
    /// Whether the target takes nothing past the page cache.
    pub uncached_refused: Refused,
    lock: &'a Lock,
    is_settled: OnceLock<()>,
    outcome: Mutex<RestoreOutcome>,
    failure: Mutex<Option<RepositoryError>>,
    stopped: AtomicBool,
    skipped: AtomicU64,
}

impl Run<'_> {
    pub(super) fn problem(&self, path: &Path, error: &impl ToString) {
        self.meters.task.hint(format!("{}: {}", path.display(), error.to_string()));
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.problem_count += 1;
        if outcome.problems.len() < MOST_PROBLEMS {
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

    pub(super) fn fail(&self, error: RepositoryError) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.stopped.store(true, Ordering::Release);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire) || self.cancel.is_cancelled()
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.is_stopped() { Err(RepositoryError::Cancelled) } else { Ok(()) }
    }

    fn take_failure(&self) -> Result<()> {
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(failure) => Err(failure),
            None => self.cancel.check(),
        }
    }

    /// Removes something with all that is in it, unless work should stop.
    fn remove(&self, place: &Place<'_>) -> std::io::Result<()> {
        place.remove(&|| self.is_stopped())
    }

    /// Removes what is in the way of something else; a directory with something in it only if all is to go that the snapshot
    /// does not have.
    pub(super) fn clear(&self, place: &Place<'_>) -> std::io::Result<()> {
        if self.options.delete { self.remove(place) } else { place.remove_alone() }
    }

    fn workers(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        // One decodes while another waits for the disk.
        let wanted = if self.options.workers > 0 { self.options.workers } else { 2 * processors };
        wanted.clamp(1, MOST_WORKERS)
    }

    /// Fetches and writes all files of a portion.
    fn write_portion(&self, portion: &mut Portion) -> Result<()> {
        let ranges = portion.ranges();
        std::thread::scope(|scope| {
            if self.is_settled.set(()).is_ok() {
                // All that is read is proved by its name: it need not wait until the lock is known to be good.
                scope.spawn(|| self.settle());
            }
            if self.repository.store.file_of("config").is_some() {
                self.write_from_files(portion, &ranges);
            } else {
                self.write_from_store(portion, ranges);
            }
        });
        self.take_failure()
    }

    fn settle(&self) {
        let settled = self.lock.settle_unless(self.cancel);
        if let Err(error) = settled.and_then(|()| self.repository.require_unswept(self.index, self.cancel)) {
            self.fail(error);
        }
    }

    fn write_from_store(&self, portion: &Portion, ranges: Vec<PackRange>) {
        let wish =
            |range: PackRange| Wish { pack: self.index.pack(range.pack), bytes: range.bytes.clone(), what: range };
        let arriving = ReadAhead::default();
        std::thread::scope(|scope| {
            for _ in 0..self.workers() {
                scope.spawn(|| Writer::new(self, portion).work(&arriving));
            }
            arriving.fetch_all(self.repository, ranges.into_iter().map(wish), || self.is_stopped());
        });
    }

    /// The same where packs are files: whoever needs a range reads it.
    fn write_from_files(&self, portion: &Portion, ranges: &[PackRange]) {
        let workers = self.workers();
        let shares = Shares::new(ranges.len(), workers);
        std::thread::scope(|scope| {
            for worker in 0..workers {
                let shares = &shares;
                let next = move || ranges.get(shares.next(worker)?);
                scope.spawn(move || Writer::new(self, portion).work_on_files(next));
            }
        });
    }
}

/// A directory whose metadata is set after everything in it.
struct Folder {
    path: PathBuf,
    metadata: Metadata,
    /// Made by this restore, so that it has only what it inherited.
    is_new: bool,
}

/// The name by which a file that has several was met first.
#[derive(Clone)]
struct FirstName {
    path: PathBuf,
    /// What was there stays.
    is_kept: bool,
}

/// Walks the snapshot and plans.
struct Planner<'r, 'a> {
    run: &'r Run<'a>,
    places: Places<'r>,
    portion: Portion,
    links: Vec<(PathBuf, PathBuf)>,
    first_names: HashMap<(u64, u64), FirstName>,
    /// Files that could not be restored completely.
    damaged: HashSet<PathBuf>,
    folders: Vec<Folder>,
}

impl Planner<'_, '_> {
    /// Restores the entries of a tree into a directory; `fresh` says that it is known to be empty.
    fn tree(&mut self, id: &Id, path: &Path, fresh: bool) -> Result<()> {
        let tree = match self.run.reader.tree(id) {
            Ok(tree) => tree,
            Err(error @ RepositoryError::Corrupt { .. }) => {
                self.run.problem(path, &error);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.run.meters.task.say(path.to_string_lossy());
        if self.run.options.delete && !fresh {
            self.delete_others(path, &tree.nodes.iter().map(|node| node.name.as_slice()).collect());
        }
        let repeated = repeated(&tree.nodes);
        for (place, node) in tree.nodes.iter().enumerate() {
            self.run.check()?;
            // A second entry of a name would take the place of the first, a link that of a directory that is still written to.
            if !node.has_safe_name() || repeated.contains(&place) {
                self.run.problem(
                    path,
                    &format!("an entry with the name {:?} is not restored", String::from_utf8_lossy(&node.name)),
                );
                continue;
            }
            self.node(node, path.join(std::ffi::OsStr::from_bytes(&node.name)), fresh)?;
        }
        Ok(())
    }

    fn node(&mut self, node: &Node, path: PathBuf, fresh: bool) -> Result<()> {
        match node.kind {
            NodeKind::Directory => return self.directory(node, &path, fresh),
            NodeKind::File => self.file(node, path, fresh),
            NodeKind::Socket => {}
            _ => {
                if let Err(error) = self.special(node, &path, fresh) {
                    self.run.problem(&path, &error);
                }
            }
        }
        let enough = self.run.options.plan_ahead;
        if self.portion.is_full(enough) || self.links.len() >= enough { self.flush() } else { Ok(()) }
    }

    fn special(&mut self, node: &Node, path: &Path, fresh: bool) -> std::io::Result<()> {
        if !fresh && self.is_kept(node, path) {
            return Ok(());
        }
        let place = self.places.at(path)?;
        if !fresh {
            self.run.clear(&place)?;
        }
        make_special(node, &place, self.run.newborn.may_inherit())
    }

    fn directory(&mut self, node: &Node, path: &Path, fresh: bool) -> Result<()> {
        let made = match self.make_directory(path, fresh) {
            Ok(made) => made,
            Err(error) => {
                self.run.problem(path, &error);
                return Ok(());
            }
        };
        self.folders.push(Folder { path: path.to_owned(), metadata: Metadata::of(node), is_new: made });
        if let Some(subtree) = &node.subtree {
            return self.tree(subtree, path, made);
        }
        self.run.problem(path, &"the directory has no tree");
        Ok(())
    }

    /// Makes a directory; says whether it is new. What is in its way is removed, also a link to a directory: following it
    /// would lead out of the target.
    fn make_directory(&mut self, path: &Path, fresh: bool) -> std::io::Result<bool> {
        let place = self.places.at(path)?;
        if !fresh {
            match place.stat() {
                Ok(existing) if FileType::from_raw_mode(existing.st_mode).is_dir() => {
                    self.run.newborn.met(&place);
                    return Ok(false);
                }
                Ok(_) if self.run.options.overwrite == Overwrite::Never => {
                    return Err(std::io::Error::other("something that is no directory is in its place, and stays"));
                }
                Ok(_) => place.remove_file()?,
                Err(_) => {}
            }
        }
        place.make_directory().map(|()| true)
    }

    fn file(&mut self, node: &Node, path: PathBuf, fresh: bool) {
        self.run.meters.files.grow_total(1);
        let Some(content) = &node.content else {
            self.run.meters.files.fail(1);
            return self.run.problem(&path, &"the file has no content list");
        };
        let key = node.hard_link_key();
        if let Some(first) = key.and_then(|key| self.first_names.get(&key).cloned()) {
            return self.another_name(node, first, path, fresh);
        }
        let is_kept = !fresh && self.is_kept(node, &path);
        if let Some(key) = key {
            self.first_names.insert(key, FirstName { path: path.clone(), is_kept });
        }
        if is_kept {
            return self.count_kept(node.size);
        }
        self.plan(node, &path, content);
    }

    /// A file that has a name already, perhaps from an earlier attempt that did not get as far as this one.
    fn another_name(&mut self, node: &Node, first: FirstName, path: PathBuf, fresh: bool) {
        if !fresh {
            // One whose first name will be another file is so no longer.
            if first.is_kept && self.is_same_file(&first.path, &path) {
                return self.count_kept(0);
            }
            let whatever_it_is = self.run.options.overwrite != Overwrite::IfChanged;
            if whatever_it_is && self.is_kept(node, &path) {
                return self.count_kept(0);
            }
        }
        self.links.push((first.path, path));
    }

    fn is_same_file(&mut self, one: &Path, other: &Path) -> bool {
        let (one, other) = (self.places.at(one), self.places.at(other));
        one.is_ok_and(|one| other.is_ok_and(|other| one.is_same_file(&other)))
    }

    fn count_kept(&self, bytes: u64) {
        self.run.meters.bytes.grow_total(bytes);
        self.run.meters.bytes.skip(bytes);
        self.run.meters.files.skip(1);
        self.run.skipped.fetch_add(1, Ordering::Relaxed);
    }

    fn plan(&mut self, node: &Node, path: &Path, content: &[Id]) {
        let planned = self.portion.add(path.to_owned(), Metadata::of(node), content, self.run.index);
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
                self.run.problem(path, &format!("data blob {missing} is in no index file{FOUND_AGAIN}"));
                self.damaged.insert(path.to_owned());
            }
        }
    }

    fn empty_file(&mut self) {
        let Some(planned) = self.portion.files.pop() else { return };
        let made = planned.open(self.run).and_then(|file| planned.complete(&file, &self.run.newborn));
        if let Err(error) = &made {
            self.run.problem(&planned.path, error);
        }
        self.run.count_file(made.is_ok(), 0);
    }

    /// Whether what is there stays. If not, it goes when there is something to put in its place.
    fn is_kept(&mut self, node: &Node, path: &Path) -> bool {
        let Ok(place) = self.places.at(path) else { return false };
        let Ok(existing) = place.stat() else { return false };
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
        // An earlier attempt may have been interrupted, or somebody changed no more than that.
        if keep
            && self.run.options.overwrite == Overwrite::IfChanged
            && let Err(error) = Metadata::of(node).apply_to_kept(&place, &existing)
        {
            self.run.problem(path, &error);
        }
        keep
    }

    fn delete_others(&mut self, path: &Path, keep: &HashSet<&[u8]>) {
        let run = self.run;
        let looked = self.places.each_in(path, |name, place| {
            if !keep.contains(name.as_bytes())
                && let Err(error) = run.remove(place)
            {
                run.problem(&path.join(name), &error);
            }
            !run.is_stopped()
        });
        if let Err(error) = looked {
            run.problem(path, &error);
        }
    }

    /// Restores what is planned so far.
    fn flush(&mut self) -> Result<()> {
        let mut portion = std::mem::take(&mut self.portion);
        self.run.write_portion(&mut portion)?;
        let damaged = portion.files.into_iter().filter(|file| file.damaged.load(Ordering::Acquire));
        self.damaged.extend(damaged.map(|file| file.path));
        for (first, path) in std::mem::take(&mut self.links) {
            self.run.check()?;
            self.link(&first, &path);
        }
        Ok(())
    }

    /// Gives a file another name. One that could not be restored completely gets none: it would not show there.
    fn link(&mut self, first: &Path, path: &Path) {
        let linked = if self.damaged.contains(first) {
            Err(format!("it is another name of {}, which could not be restored", first.display()))
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
        let (first, place) = (self.places.at(first)?, self.places.at(path)?);
        match place.make_hard_link(&first) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                self.run.clear(&place)?;
                place.make_hard_link(&first)
            }
            linked => linked,
        }
    }

    /// Metadata of directories, the deepest first: writing into a directory would change its times again.
    fn finish(mut self) -> Result<()> {
        self.run.meters.bytes.finalize_total();
        self.flush()?;
        self.run.meters.files.finalize_total();
        for folder in std::mem::take(&mut self.folders).iter().rev() {
            self.run.check()?;
            if let Err(error) = self.finish_folder(folder) {
                self.run.problem(&folder.path, &error);
            }
        }
        Ok(())
    }

    fn finish_folder(&mut self, folder: &Folder) -> std::io::Result<()> {
        let is_marked = !folder.is_new || self.run.newborn.may_inherit();
        match self.run.target.file(&folder.path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()) {
            Ok(directory) => folder.metadata.apply_to_directory(&directory, is_marked),
            // One that was there before, and that is not for everybody to read.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                folder.metadata.apply_to_place(&self.places.at(&folder.path)?, false, is_marked)
            }
            Err(error) => Err(error),
        }
    }
}

/// The places of entries whose name another one has before them. A tree that a backup made has none, and its names are sorted.
fn repeated(nodes: &[Node]) -> HashSet<usize> {
    if nodes.is_sorted_by(|one, next| one.name < next.name) {
        return HashSet::new();
    }
    let mut seen = HashSet::new();
    let known = nodes.iter().enumerate().filter(|(_, node)| !seen.insert(&node.name));
    known.map(|(place, _)| place).collect()
}

fn make_special(node: &Node, place: &Place<'_>, inherits: bool) -> std::io::Result<()> {
    match node.kind {
        NodeKind::Symlink => place.make_symlink(&node.link_target)?,
        NodeKind::Fifo => place.make_node(FileType::Fifo, 0)?,
        NodeKind::BlockDevice => place.make_node(FileType::BlockDevice, node.device)?,
        NodeKind::CharacterDevice => place.make_node(FileType::CharacterDevice, node.device)?,
        _ => return Ok(()),
    }
    Metadata::of(node).apply_to_place(place, node.kind == NodeKind::Symlink, inherits)
}

/// What a restore starts from.
struct Beginning {
    lock: Lock,
    snapshot: Snapshot,
    index: BlobIndex,
    damage: Vec<RepositoryError>,
}

/// Makes the target unless it is there, and opens it; says what new files have there, and whether it has nothing in it.
fn open_target(path: &Path) -> std::io::Result<(Beneath, Newborn, bool)> {
    std::fs::create_dir_all(path)?;
    let fresh = std::fs::read_dir(path)?.next().is_none();
    let target = Beneath::open(path)?;
    let newborn = Newborn::new(&Place::top(&target)?, fresh);
    Ok((target, newborn, fresh))
}

impl Repository {
    /// Restores a snapshot, or a part of it. What is damaged is named in the outcome; everything else is restored.
    ///
    /// `task` gets the meters Bytes and Files. It is the caller's to end.
    ///
    /// # Cancel safety
    /// After a cancel the call returns within about a second; complete files stay, and [`Overwrite::IfChanged`] takes
    /// up where it was.
    pub fn restore(self: &Arc<Self>, options: &RestoreOptions, task: &Task, cancel: &Cancel) -> Result<RestoreOutcome> {
        let _waits = show_waits(&self.store, task);
        let Beginning { lock, snapshot, index, damage } = self.begin_restore(options, task, cancel)?;
        say_if_not_locked(&lock, task);
        let failed = |error| RepositoryError::local(&options.target, &error);
        let (target, newborn, fresh) = open_target(&options.target).map_err(failed)?;
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
            newborn,
            uncached_refused: Refused::default(),
            lock: &lock,
            is_settled: OnceLock::new(),
            outcome: Mutex::default(),
            failure: Mutex::default(),
            stopped: AtomicBool::new(false),
            skipped: AtomicU64::new(0),
        };
        for error in damage {
            run.problem(Path::new("the index"), &error);
        }
        let restored = run
            .reader
            .node_at(&snapshot.tree, &options.path)
            .and_then(|start| on_a_deep_stack(|| restore_node(&run, &snapshot.tree, start, fresh)));
        if let Err(error) = restored {
            lock.hurry();
            return Err(error);
        }
        let locked = lock.is_visible();
        let mut outcome = run.outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
        outcome.skipped = run.skipped.load(Ordering::Relaxed);
        outcome.locked = locked;
        Ok(outcome)
    }

    fn begin_restore(self: &Arc<Self>, options: &RestoreOptions, task: &Task, cancel: &Cancel) -> Result<Beginning> {
        let (repository, name, task) = (self.clone(), options.snapshot.to_string(), task.clone());
        let inner = cancel.clone();
        cancel.run(move || {
            let (found, loaded) = side_by_side(
                || repository.find_snapshot(&name),
                // The index after the lock: nobody deletes from then on what it names.
                || {
                    let lock = Lock::write(&repository, LockKind::Shared, &inner)?;
                    repository.rescue_index(&task, &inner).map(|loaded| (lock, loaded))
                },
            );
            let ((_, snapshot), (lock, (mut index, damage))) = (found?, loaded?);
            if !index.contains(BlobKind::Tree, &snapshot.tree) {
                repository.add_orphans(&mut index, &inner)?;
            }
            Ok(Beginning { lock, snapshot, index, damage })
        })
    }
}

/// Directories may lie as deep in each other as a path can be long, and planning follows them down.
fn on_a_deep_stack(work: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    let failed = |error: &dyn ToString| RepositoryError::local(Path::new("a thread"), &error.to_string());
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(64 * 1024 * 1024).spawn_scoped(scope, work);
        let ended = thread.map_err(|error| failed(&error))?.join();
        ended.unwrap_or_else(|_| Err(failed(&"it ended without a result")))
    })
}

fn restore_node(run: &Run<'_>, root: &Id, start: Option<Node>, fresh: bool) -> Result<()> {
    let target = &run.options.target;
    let (portion, links, first_names, damaged, folders) = Default::default();
    let places = Places::new(&run.target);
    let mut planner = Planner { run, places, portion, links, first_names, damaged, folders };
    match start {
        None => planner.tree(root, target, fresh)?,
        Some(node) if node.kind == NodeKind::Directory => {
            planner.folders.push(Folder { path: target.clone(), metadata: Metadata::of(&node), is_new: false });
            planner.tree(&node.subtree.unwrap_or_default(), target, fresh)?;
        }
        Some(node) => planner.node(&node, target.join(std::ffi::OsStr::from_bytes(&node.name)), fresh)?,
    }
    planner.finish()
}
