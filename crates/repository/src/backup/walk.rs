//! The walkers: complete unchanged files, and pass the others to the workers.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, PoisonError};

use rustix::fs::FileType;

use super::directory::{Directory, complete_entry};
use super::directory_queue::{DirectoryJob, WalkPosition};
use super::node::{AttributeSource, attributes};
use super::options::Target;
use super::run::Run;
use super::source::{Folder, Source, Stat};
use super::totals::Amount;
use super::work_queue::FileJob;
use crate::format::blob::BlobKind;
use crate::format::id::Id;
use crate::format::tree::{Attribute, Node, NodeKind, Tree};
use crate::{RepositoryError, Result};

/// Small files are passed on in batches.
const BATCH_FILES: usize = 64;
const BATCH_BYTES: u64 = 1024 * 1024;
/// Only one directory with this many entries is walked at a time.
const LARGE_DIRECTORY: usize = 100_000;

pub(super) struct Walker<'r, 'a> {
    run: &'r Run<'a>,
    batch: Vec<FileJob>,
    batch_bytes: u64,
}

/// The parent directories of the targets, with the targets only.
enum TargetTree {
    Folder(BTreeMap<Vec<u8>, TargetTree>),
    Target,
}

/// An entry of a directory. The file system may not report its type.
struct Entry {
    name: Vec<u8>,
    kind: FileType,
}

/// Sorts entries by the bytes of their names and removes duplicates: a directory that changes may list an entry twice.
fn sort(entries: &mut Vec<Entry>) {
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    entries.dedup_by(|one, other| one.name == other.name);
}

impl<'r, 'a> Walker<'r, 'a> {
    pub(super) fn new(run: &'r Run<'a>) -> Self {
        Self { run, batch: Vec::new(), batch_bytes: 0 }
    }

    /// Walks the targets, and then the queue together with the other walkers. The root is complete when all walkers and workers are
    /// done.
    pub(super) fn walk(mut self, previous: Option<Id>) -> Result<()> {
        let started = self.walk_targets(previous);
        self.run.directories.done();
        started?;
        self.walk_queue()
    }

    fn walk_targets(&mut self, previous: Option<Id>) -> Result<()> {
        let run = self.run;
        let root = Directory::root(previous);
        let tree = self.previous_tree(previous);
        match &run.options.target {
            Target::Content(path) => return self.content(path, None, &[], root, tree),
            Target::Placed { directory, at, only } => {
                return self.content(directory, only.as_deref(), &names_of(at), root, tree);
            }
            Target::Paths(paths) => {
                let targets = self.target_tree(paths)?;
                self.walk_target_tree(Path::new("/"), &targets, &root, tree.as_ref())?;
            }
        }
        complete_entry(run, root, None)
    }

    /// Walks directories of the queue until it is empty and no walker is active.
    pub(super) fn walk_queue(mut self) -> Result<()> {
        while let Some(job) = self.run.directories.take(|| self.run.stop.is_stopped()) {
            let walked = self.directory(&job);
            self.run.directories.done();
            walked?;
        }
        self.flush();
        Ok(())
    }

    /// Walks the content of a directory, below these names in the snapshot.
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
        let mut position = WalkPosition { source, directory, previous, device: stat.containing_device() };
        for name in names {
            let mut node = self.run.node_builder.build(name, &stat);
            self.add_folder_attributes(path, &folder, &mut node);
            let known = position.parent_tree(name);
            let below = position.directory.add_child(node, known);
            complete_entry(self.run, position.directory, None)?;
            position = WalkPosition { directory: below, previous: self.previous_tree(known), ..position };
        }
        let mut entries = self.read_directory(&folder).map_err(failed)?;
        entries.retain(|entry| only.is_none_or(|only| only.as_bytes() == entry.name));
        self.entries(path, folder, entries, position)
    }

    /// The tree of existing targets. An error if none exists.
    fn target_tree(&self, paths: &[PathBuf]) -> Result<BTreeMap<Vec<u8>, TargetTree>> {
        let mut root = BTreeMap::new();
        for path in paths {
            let absolute = std::path::absolute(path).map_err(|error| RepositoryError::local(path, &error))?;
            match absolute.symlink_metadata() {
                Ok(_) => insert(&mut root, &names_of(&absolute)),
                Err(error) => self.run.problem(&absolute, &error),
            }
        }
        if root.is_empty() {
            let paths = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
            return Err(RepositoryError::NothingToBackUp { paths });
        }
        Ok(root)
    }

    fn walk_target_tree(
        &mut self,
        path: &Path,
        children: &BTreeMap<Vec<u8>, TargetTree>,
        directory: &Arc<Directory>,
        previous: Option<&Arc<Tree>>,
    ) -> Result<()> {
        for (name, child) in children {
            let path = path.join(OsStr::from_bytes(name));
            match child {
                TargetTree::Target => self.target(&path, name, directory, previous)?,
                TargetTree::Folder(children) => {
                    let Ok(stat) = Stat::at(&path).map_err(|error| self.run.problem(&path, &error)) else { continue };
                    let mut node = self.run.node_builder.build(name, &stat);
                    let found = attributes(&AttributeSource::Path(&path), |problem| self.run.problem(&path, &problem));
                    self.set_attributes(&path, found, &mut node);
                    let known = previous.and_then(|tree| tree.find(name)).and_then(|node| node.subtree);
                    let below = directory.add_child(node, known);
                    let tree = self.previous_tree(known);
                    self.walk_target_tree(&path, children, &below, tree.as_ref())?;
                    complete_entry(self.run, below, None)?;
                }
            }
        }
        Ok(())
    }

    /// Walks a target. Links in its parent path are followed, the target itself is not.
    fn target(
        &mut self,
        path: &Path,
        name: &[u8],
        directory: &Arc<Directory>,
        previous: Option<&Arc<Tree>>,
    ) -> Result<()> {
        let opened = Source::open(path.parent().unwrap_or(Path::new("/")));
        let entry = opened.and_then(|source| source.root().stat_entry(name).map(|stat| (source, stat)));
        let Ok((source, stat)) = entry.map_err(|error| self.run.problem(path, &error)) else { return Ok(()) };
        let source = Arc::new(source);
        let (directory, previous, device) = (directory.clone(), previous.cloned(), stat.containing_device());
        let position = WalkPosition { source: source.clone(), directory, previous, device };
        if stat.is_dir() {
            position.directory.expect();
            return self.directory(&DirectoryJob { path: path.to_owned(), name: name.to_vec(), parent: position });
        }
        self.leaf(path, name, (source.root(), &stat), &position);
        Ok(())
    }

    /// Walks the entries of a directory and queues its subdirectories. It is closed before others are opened, so that deep directories
    /// need few descriptors.
    fn entries(&mut self, path: &Path, folder: Folder, entries: Vec<Entry>, position: WalkPosition) -> Result<()> {
        let mut folders = Vec::new();
        for entry in entries {
            self.run.stop.check()?;
            let path = path.join(OsStr::from_bytes(&entry.name));
            if !self.run.options.is_excluded(&path) && self.entry(&path, &entry, &folder, &position)? {
                folders.push(entry.name);
            }
        }
        drop(folder);
        if folders.is_empty() {
            return complete_entry(self.run, position.directory, None);
        }
        self.run.directories.push(path.to_owned(), position, folders);
        Ok(())
    }

    /// Stores an entry. Returns `true` for a directory to walk.
    fn entry(&mut self, path: &Path, entry: &Entry, folder: &Folder, position: &WalkPosition) -> Result<bool> {
        let one_file_system = self.run.options.one_file_system;
        if entry.kind == FileType::Directory && !one_file_system {
            return Ok(true);
        }
        match folder.stat_entry(&entry.name) {
            Ok(stat) if stat.is_dir() && one_file_system && stat.containing_device() != position.device => {
                self.other_file_system(path, &entry.name, (folder, &stat), position)?;
            }
            Ok(stat) if stat.is_dir() => return Ok(true),
            Ok(stat) => self.leaf(path, &entry.name, (folder, &stat), position),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => self.run.problem(path, &error),
        }
        Ok(false)
    }

    /// Stores the mount point of another file system as an empty directory.
    fn other_file_system(
        &mut self,
        path: &Path,
        name: &[u8],
        (folder, stat): (&Folder, &Stat),
        position: &WalkPosition,
    ) -> Result<()> {
        let node = self.node(path, name, (folder, stat));
        let below = position.directory.add_child(node, position.parent_tree(name));
        complete_entry(self.run, below, None)
    }

    /// Stores an entry that is not a directory.
    fn leaf(&mut self, path: &Path, name: &[u8], (folder, stat): (&Folder, &Stat), position: &WalkPosition) {
        if stat.is_file() {
            self.file(path, name, (folder, stat), position);
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
        position.directory.add(node);
    }

    fn directory(&mut self, DirectoryJob { path, name, parent }: &DirectoryJob) -> Result<()> {
        let (folder, stat, entries) = match self.open_directory(path, &parent.source) {
            Ok(opened) => opened,
            Err(error) => {
                if error.kind() != std::io::ErrorKind::NotFound {
                    self.run.problem(path, &error);
                }
                return complete_entry(self.run, parent.directory.clone(), None);
            }
        };
        let lock = || self.run.large_directory.lock().unwrap_or_else(PoisonError::into_inner);
        let _guard = (entries.len() >= LARGE_DIRECTORY).then(lock);
        let mut node = self.run.node_builder.build(name, &stat);
        self.add_folder_attributes(path, &folder, &mut node);
        let known = parent.parent_tree(name);
        let directory = parent.directory.expected_child(node, known);
        self.run.meters.task.say(path.to_string_lossy());
        let position = WalkPosition { directory, previous: self.previous_tree(known), ..parent.clone() };
        self.entries(path, folder, entries, position)
    }

    fn open_directory(&self, path: &Path, source: &Source) -> std::io::Result<(Folder, Stat, Vec<Entry>)> {
        let folder = source.folder(path)?;
        let stat = folder.stat()?;
        let entries = self.read_directory(&folder)?;
        Ok((folder, stat, entries))
    }

    fn file(&mut self, path: &Path, name: &[u8], (folder, stat): (&Folder, &Stat), position: &WalkPosition) {
        let known = position.parent_node(name);
        self.run.meters.walked(Amount { files: 1, bytes: stat.size() });
        let mut node = self.run.node_builder.build(name, stat);
        node.size = stat.size();
        if let Some(content) = known.and_then(|known| self.unchanged_content(path, &node, known)) {
            node.content = Some(content);
            self.add_attributes(path, folder, &mut node);
            self.run.count_unchanged(node.size);
            position.directory.add(node);
            return;
        }
        position.directory.expect();
        let is_in_parent = known.is_some_and(|node| node.kind == NodeKind::File);
        let (source, directory) = (position.source.clone(), position.directory.clone());
        self.batch.push(FileJob {
            source,
            path: path.to_owned(),
            name: name.to_vec(),
            size: stat.size(),
            directory,
            is_in_parent,
        });
        self.batch_bytes += stat.size();
        if self.batch.len() >= BATCH_FILES || self.batch_bytes >= BATCH_BYTES {
            self.flush();
        }
    }

    /// The entries of a directory, sorted by the bytes of their names. Stops early after a cancel, because there may be very many.
    fn read_directory(&self, folder: &Folder) -> std::io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        folder.each_entry(|name, kind| {
            entries.push(Entry { name: name.to_vec(), kind });
            !self.run.stop.is_stopped()
        })?;
        sort(&mut entries);
        Ok(entries)
    }

    fn flush(&mut self) {
        self.batch_bytes = 0;
        if !self.batch.is_empty() {
            let batch = std::mem::take(&mut self.batch);
            self.run.queue.push_files(batch, || self.run.stop.is_stopped());
        }
    }

    /// The blobs of a file that is unchanged since the parent snapshot, if the repository has all of them.
    fn unchanged_content(&self, path: &Path, now: &Node, known: &Node) -> Option<Vec<Id>> {
        let options = self.run.options;
        let is_unchanged = known.kind == NodeKind::File
            && known.size == now.size
            && known.mtime.same_moment(&now.mtime)
            && (options.ignore_ctime || options.ignore_inode || known.ctime.same_moment(&now.ctime))
            && (options.ignore_inode || known.inode == now.inode);
        let content = known.content.as_ref().filter(|_| is_unchanged)?;
        if content.iter().all(|id| self.run.index.contains(BlobKind::Data, id)) {
            return Some(content.clone());
        }
        self.run.unindexed.request();
        self.run.note(path, "read again, because blobs of the parent snapshot are missing");
        None
    }

    fn node(&self, path: &Path, name: &[u8], (folder, stat): (&Folder, &Stat)) -> Node {
        let mut node = self.run.node_builder.build(name, stat);
        self.add_attributes(path, folder, &mut node);
        node
    }

    /// Adds the attributes of an entry of the directory.
    fn add_attributes(&self, path: &Path, folder: &Folder, node: &mut Node) {
        let attributes = folder.entry_attributes(&node.name, path, |problem| self.run.problem(path, &problem));
        self.set_attributes(path, attributes, node);
    }

    /// Adds the attributes of the directory itself.
    fn add_folder_attributes(&self, path: &Path, folder: &Folder, node: &mut Node) {
        let attributes = folder.attributes(|problem| self.run.problem(path, &problem));
        self.set_attributes(path, attributes, node);
    }

    fn set_attributes(&self, path: &Path, attributes: std::io::Result<Vec<Attribute>>, node: &mut Node) {
        match attributes {
            Ok(attributes) => node.attributes = attributes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => self.run.problem(path, &error),
        }
    }

    /// A tree of the parent snapshot. Without it all files below are read.
    fn previous_tree(&self, id: Option<Id>) -> Option<Arc<Tree>> {
        let id = id?;
        match self.run.reader.tree(&id) {
            Ok(tree) => Some(tree),
            Err(error) => {
                self.run.unindexed.request();
                self.run.note(Path::new(&id.to_string()), &error.to_string());
                None
            }
        }
    }
}

fn insert(folder: &mut BTreeMap<Vec<u8>, TargetTree>, names: &[Vec<u8>]) {
    match names {
        [] => {}
        [last] => {
            folder.insert(last.clone(), TargetTree::Target);
        }
        [first, rest @ ..] => {
            let below = folder.entry(first.clone()).or_insert_with(|| TargetTree::Folder(BTreeMap::new()));
            // A parent directory that is a target contains it already.
            if let TargetTree::Folder(below) = below {
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
    fn duplicate_entries_are_removed() {
        let entry = |name: &str| Entry { name: name.into(), kind: FileType::RegularFile };
        let mut entries = ["b", "a", "b", "ab"].map(entry).into();
        sort(&mut entries);
        let names: Vec<_> = entries.iter().map(|entry| entry.name.as_slice()).collect();
        assert_eq!(names, [&b"a"[..], b"ab", b"b"]);
    }
}
