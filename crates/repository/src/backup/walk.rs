//! Walking the directories, from several threads: what is unchanged is settled here, the rest goes to the workers.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, PoisonError};

use rustix::fs::FileType;

use super::directory::{Directory, settle};
use super::folders::{FolderJob, Inside};
use super::node::{Carrier, attributes};
use super::options::Target;
use super::packer::Saver;
use super::pool::FileJob;
use super::run::Run;
use super::source::{Folder, Source, Stat};
use super::totals::Amount;
use crate::format::blob::BlobKind;
use crate::format::id::Id;
use crate::format::tree::{Attribute, Node, NodeKind, Tree};
use crate::{RepositoryError, Result};

/// Small files travel in batches: one hand-over for many.
const BATCH_FILES: usize = 64;
const BATCH_BYTES: u64 = 1024 * 1024;
/// A directory of so many entries is walked by one at a time.
const LARGE: usize = 100_000;

pub(super) struct Walker<'r, 'a> {
    run: &'r Run<'a>,
    saver: Saver,
    batch: Vec<FileJob>,
    batch_bytes: u64,
}

/// The directories above the targets: only what leads to a target is in them.
enum Above {
    Folder(BTreeMap<Vec<u8>, Above>),
    Target,
}

/// An entry of a directory. The file system may not say what kind it is of.
struct Entry {
    name: Vec<u8>,
    kind: FileType,
}

/// By the bytes of their names, each once: a directory that changes while it is listed may name an entry twice, and a tree must not.
fn sort(entries: &mut Vec<Entry>) {
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    entries.dedup_by(|one, other| one.name == other.name);
}

impl<'r, 'a> Walker<'r, 'a> {
    pub(super) fn new(run: &'r Run<'a>) -> Result<Self> {
        Ok(Self { run, saver: run.saver()?, batch: Vec::new(), batch_bytes: 0 })
    }

    /// Walks what was asked for, and then what lies below it together with the others. The root is complete when they and the
    /// workers are done too.
    pub(super) fn walk(mut self, previous: Option<Id>) -> Result<()> {
        let begun = self.begin(previous);
        self.run.folders.done();
        begun?;
        self.go_on()
    }

    fn begin(&mut self, previous: Option<Id>) -> Result<()> {
        let run = self.run;
        let root = Directory::root(previous);
        let tree = self.previous_tree(previous);
        match &run.options.target {
            Target::Content(path) => return self.content(path, None, &[], root, tree),
            Target::Placed { directory, at, only } => {
                return self.content(directory, only.as_deref(), &names_of(at), root, tree);
            }
            Target::Paths(paths) => {
                let above = self.arrange(paths)?;
                self.above(Path::new("/"), &above, &root, tree.as_ref())?;
            }
        }
        settle(run, &mut self.saver, root, None)
    }

    /// Walks what others have found, until nobody finds any more.
    pub(super) fn go_on(mut self) -> Result<()> {
        while let Some(job) = self.run.folders.take(|| self.run.is_stopped()) {
            let walked = self.directory(&job);
            self.run.folders.done();
            walked?;
        }
        self.flush();
        Ok(())
    }

    /// The content of a directory, below these names.
    fn content(
        &mut self,
        path: &Path,
        only: Option<&OsStr>,
        names: &[Vec<u8>],
        directory: Arc<Directory>,
        previous: Option<Arc<Tree>>,
    ) -> Result<()> {
        let failed = |error: std::io::Error| RepositoryError::local(path, &error);
        let source = Arc::new(Source::open(path).map_err(failed)?);
        let folder = source.folder(path).map_err(failed)?;
        let stat = folder.stat().map_err(failed)?;
        let mut inside = Inside { source, directory, previous, device: stat.on_device() };
        for name in names {
            let mut node = self.run.maker.make(name, &stat);
            self.add_folder_attributes(path, &folder, &mut node);
            let known = inside.known_tree(name);
            let below = inside.directory.below(node, known);
            settle(self.run, &mut self.saver, inside.directory, None)?;
            inside = Inside { directory: below, previous: self.previous_tree(known), ..inside };
        }
        let mut entries = self.read_directory(&folder).map_err(failed)?;
        entries.retain(|entry| only.is_none_or(|only| only.as_bytes() == entry.name));
        self.entries(path, folder, entries, inside)
    }

    /// Targets that exist, as the tree they form. That none exists is an error.
    fn arrange(&self, paths: &[PathBuf]) -> Result<BTreeMap<Vec<u8>, Above>> {
        let mut root = BTreeMap::new();
        for path in paths {
            let whole = std::path::absolute(path).map_err(|error| RepositoryError::local(path, &error))?;
            match whole.symlink_metadata() {
                Ok(_) => insert(&mut root, &names_of(&whole)),
                Err(error) => self.run.problem(&whole, &error),
            }
        }
        if root.is_empty() {
            let paths = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
            return Err(RepositoryError::NothingToBackUp { paths });
        }
        Ok(root)
    }

    fn above(
        &mut self,
        path: &Path,
        children: &BTreeMap<Vec<u8>, Above>,
        directory: &Arc<Directory>,
        previous: Option<&Arc<Tree>>,
    ) -> Result<()> {
        for (name, child) in children {
            let path = path.join(OsStr::from_bytes(name));
            match child {
                Above::Target => self.target(&path, name, directory, previous)?,
                Above::Folder(children) => {
                    let Ok(stat) = Stat::at(&path).map_err(|error| self.run.problem(&path, &error)) else { continue };
                    let mut node = self.run.maker.make(name, &stat);
                    let found = attributes(&Carrier::Path(&path), |problem| self.run.problem(&path, &problem));
                    self.set_attributes(&path, found, &mut node);
                    let known = previous.and_then(|tree| tree.find(name)).and_then(|node| node.subtree);
                    let below = directory.below(node, known);
                    let tree = self.previous_tree(known);
                    self.above(&path, children, &below, tree.as_ref())?;
                    settle(self.run, &mut self.saver, below, None)?;
                }
            }
        }
        Ok(())
    }

    /// The way to a target is followed through links, the target itself is not.
    fn target(
        &mut self,
        path: &Path,
        name: &[u8],
        directory: &Arc<Directory>,
        previous: Option<&Arc<Tree>>,
    ) -> Result<()> {
        let opened = Source::open(path.parent().unwrap_or(Path::new("/")));
        let found = opened.and_then(|source| source.top().stat_entry(name).map(|stat| (source, stat)));
        let Ok((source, stat)) = found.map_err(|error| self.run.problem(path, &error)) else { return Ok(()) };
        let source = Arc::new(source);
        let (directory, previous, device) = (directory.clone(), previous.cloned(), stat.on_device());
        let inside = Inside { source: source.clone(), directory, previous, device };
        if stat.is_dir() {
            inside.directory.expect();
            return self.directory(&FolderJob { path: path.to_owned(), name: name.to_vec(), above: inside });
        }
        self.leaf(path, name, (source.top(), &stat), &inside);
        Ok(())
    }

    /// Everything in a directory but other directories, which are left for later: this one is closed before others are opened,
    /// however deep they lie.
    fn entries(&mut self, path: &Path, folder: Folder, entries: Vec<Entry>, inside: Inside) -> Result<()> {
        let mut folders = Vec::new();
        for entry in entries {
            self.run.check()?;
            let path = path.join(OsStr::from_bytes(&entry.name));
            if !self.run.options.leaves_out(&path) && self.entry(&path, &entry, &folder, &inside)? {
                folders.push(entry.name);
            }
        }
        drop(folder);
        if folders.is_empty() {
            return settle(self.run, &mut self.saver, inside.directory, None);
        }
        self.run.folders.leave(path.to_owned(), inside, folders);
        Ok(())
    }

    /// Stores an entry, or says that it is a directory to walk.
    fn entry(&mut self, path: &Path, entry: &Entry, folder: &Folder, inside: &Inside) -> Result<bool> {
        let one_file_system = self.run.options.one_file_system;
        if entry.kind == FileType::Directory && !one_file_system {
            return Ok(true);
        }
        match folder.stat_entry(&entry.name) {
            Ok(stat) if stat.is_dir() && one_file_system && stat.on_device() != inside.device => {
                self.foreign(path, &entry.name, (folder, &stat), inside)?;
            }
            Ok(stat) if stat.is_dir() => return Ok(true),
            Ok(stat) => self.leaf(path, &entry.name, (folder, &stat), inside),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => self.run.problem(path, &error),
        }
        Ok(false)
    }

    /// The directory of another file system: stored as if nothing were in it.
    fn foreign(&mut self, path: &Path, name: &[u8], (folder, stat): (&Folder, &Stat), inside: &Inside) -> Result<()> {
        let node = self.node(path, name, (folder, stat));
        let below = inside.directory.below(node, inside.known_tree(name));
        settle(self.run, &mut self.saver, below, None)
    }

    /// What is no directory.
    fn leaf(&mut self, path: &Path, name: &[u8], (folder, stat): (&Folder, &Stat), inside: &Inside) {
        if stat.is_file() {
            self.file(path, name, (folder, stat), inside);
            return;
        }
        let mut node = self.node(path, name, (folder, stat));
        match node.kind {
            NodeKind::Socket => return,
            NodeKind::Symlink => match folder.link_target(name) {
                Ok(target) => node.link_target = target,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
                Err(error) => return self.run.problem(path, &error),
            },
            _ => {}
        }
        inside.directory.add(node);
    }

    fn directory(&mut self, FolderJob { path, name, above }: &FolderJob) -> Result<()> {
        let (folder, stat, entries) = match self.open_directory(path, &above.source) {
            Ok(opened) => opened,
            Err(error) => {
                if error.kind() != std::io::ErrorKind::NotFound {
                    self.run.problem(path, &error);
                }
                return settle(self.run, &mut self.saver, above.directory.clone(), None);
            }
        };
        let lock = || self.run.large_directory.lock().unwrap_or_else(PoisonError::into_inner);
        let _alone = (entries.len() >= LARGE).then(lock);
        let mut node = self.run.maker.make(name, &stat);
        self.add_folder_attributes(path, &folder, &mut node);
        let known = above.known_tree(name);
        let directory = above.directory.expected(node, known);
        self.run.meters.task.say(path.to_string_lossy());
        let inside = Inside { directory, previous: self.previous_tree(known), ..above.clone() };
        self.entries(path, folder, entries, inside)
    }

    fn open_directory(&self, path: &Path, source: &Source) -> std::io::Result<(Folder, Stat, Vec<Entry>)> {
        let folder = source.folder(path)?;
        let stat = folder.stat()?;
        let entries = self.read_directory(&folder)?;
        Ok((folder, stat, entries))
    }

    fn file(&mut self, path: &Path, name: &[u8], (folder, stat): (&Folder, &Stat), inside: &Inside) {
        let known = inside.known(name);
        self.run.meters.walked(Amount { files: 1, bytes: stat.size() });
        let mut node = self.run.maker.make(name, stat);
        node.size = stat.size();
        if let Some(content) = known.and_then(|known| self.unchanged_content(path, &node, known)) {
            node.content = Some(content);
            self.add_attributes(path, folder, &mut node);
            self.run.count_unchanged(node.size);
            inside.directory.add(node);
            return;
        }
        inside.directory.expect();
        let known = known.is_some_and(|node| node.kind == NodeKind::File);
        let (source, directory) = (inside.source.clone(), inside.directory.clone());
        self.batch.push(FileJob {
            source,
            path: path.to_owned(),
            name: name.to_vec(),
            size: stat.size(),
            directory,
            known,
        });
        self.batch_bytes += stat.size();
        if self.batch.len() >= BATCH_FILES || self.batch_bytes >= BATCH_BYTES {
            self.flush();
        }
    }

    /// The entries of a directory, sorted by the bytes of their names. There may be very many: who is asked to stop finds no
    /// more of them, and stores none.
    fn read_directory(&self, folder: &Folder) -> std::io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        folder.each_entry(|name, kind| {
            entries.push(Entry { name: name.to_vec(), kind });
            !self.run.is_stopped()
        })?;
        sort(&mut entries);
        Ok(entries)
    }

    fn flush(&mut self) {
        self.batch_bytes = 0;
        if !self.batch.is_empty() {
            let batch = std::mem::take(&mut self.batch);
            self.run.pool.push_files(batch, || self.run.is_stopped());
        }
    }

    /// The blobs of a file that is as the parent snapshot has it, if the repository has them all.
    fn unchanged_content(&self, path: &Path, now: &Node, known: &Node) -> Option<Vec<Id>> {
        let options = self.run.options;
        let same = known.kind == NodeKind::File
            && known.size == now.size
            && known.mtime.same_moment(&now.mtime)
            && (options.ignore_ctime || options.ignore_inode || known.ctime.same_moment(&now.ctime))
            && (options.ignore_inode || known.inode == now.inode);
        let content = known.content.as_ref().filter(|_| same)?;
        if content.iter().all(|id| self.run.index.contains(BlobKind::Data, id)) {
            return Some(content.clone());
        }
        self.run.note(path, "blobs of the parent snapshot are missing, so it is read again");
        None
    }

    fn node(&self, path: &Path, name: &[u8], (folder, stat): (&Folder, &Stat)) -> Node {
        let mut node = self.run.maker.make(name, stat);
        self.add_attributes(path, folder, &mut node);
        node
    }

    /// Those of an entry of the directory.
    fn add_attributes(&self, path: &Path, folder: &Folder, node: &mut Node) {
        let found = folder.entry_attributes(&node.name, path, |problem| self.run.problem(path, &problem));
        self.set_attributes(path, found, node);
    }

    /// Those of the directory itself.
    fn add_folder_attributes(&self, path: &Path, folder: &Folder, node: &mut Node) {
        let found = folder.attributes(|problem| self.run.problem(path, &problem));
        self.set_attributes(path, found, node);
    }

    fn set_attributes(&self, path: &Path, found: std::io::Result<Vec<Attribute>>, node: &mut Node) {
        match found {
            Ok(found) => node.attributes = found,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => self.run.problem(path, &error),
        }
    }

    /// A directory as the parent snapshot has it; without it everything below is read.
    fn previous_tree(&self, id: Option<Id>) -> Option<Arc<Tree>> {
        let id = id?;
        match self.run.reader.tree(&id) {
            Ok(tree) => Some(tree),
            Err(error) => {
                self.run.note(Path::new(&id.to_string()), &error.to_string());
                None
            }
        }
    }
}

fn insert(folder: &mut BTreeMap<Vec<u8>, Above>, names: &[Vec<u8>]) {
    match names {
        [] => {}
        [last] => {
            folder.insert(last.clone(), Above::Target);
        }
        [first, rest @ ..] => {
            let below = folder.entry(first.clone()).or_insert_with(|| Above::Folder(BTreeMap::new()));
            // A target above this one contains it already.
            if let Above::Folder(below) = below {
                insert(below, rest);
            }
        }
    }
}

fn names_of(path: &Path) -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name.as_bytes().to_vec()),
            Component::ParentDir => drop(names.pop()),
            _ => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_the_system_lists_twice_is_one() {
        let entry = |name: &str| Entry { name: name.into(), kind: FileType::RegularFile };
        let mut entries = ["b", "a", "b", "ab"].map(entry).into();
        sort(&mut entries);
        let names: Vec<_> = entries.iter().map(|entry| entry.name.as_slice()).collect();
        assert_eq!(names, [&b"a"[..], b"ab", b"b"]);
    }
}
