//! Walking the directories: what is unchanged is settled here, the rest goes to the workers.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{DirEntry, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::directory::{Directory, settle};
use super::node::{attributes, link_target};
use super::options::Target;
use super::packer::Saver;
use super::pool::FileJob;
use super::run::Run;
use crate::format::blob::BlobKind;
use crate::format::id::Id;
use crate::format::tree::{Node, NodeKind, Tree};
use crate::{RepositoryError, Result};

/// Small files travel in batches: one hand-over for many.
const BATCH_FILES: usize = 64;
const BATCH_BYTES: u64 = 1024 * 1024;

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

impl<'r, 'a> Walker<'r, 'a> {
    pub(super) fn new(run: &'r Run<'a>) -> Result<Self> {
        Ok(Self { run, saver: run.saver()?, batch: Vec::new(), batch_bytes: 0 })
    }

    /// Walks everything. The root is complete when the workers are done too.
    pub(super) fn walk(mut self, previous: Option<Id>) -> Result<()> {
        let root = Directory::root(previous);
        let tree = self.previous_tree(previous);
        match &self.run.options.target {
            Target::Content(path) => self.placed((path, None), &[], &root, tree.as_deref())?,
            Target::Placed { directory, at, only } => {
                self.placed((directory, only.as_deref()), &names_of(at), &root, tree.as_deref())?;
            }
            Target::Paths(paths) => {
                let above = self.arrange(paths)?;
                self.above(Path::new("/"), &above, &root, tree.as_deref())?;
            }
        }
        self.flush();
        settle(self.run, &mut self.saver, root, None)
    }

    /// The content of a directory, below these names.
    fn placed(
        &mut self,
        (path, only): (&Path, Option<&OsStr>),
        names: &[Vec<u8>],
        directory: &Arc<Directory>,
        previous: Option<&Tree>,
    ) -> Result<()> {
        let metadata = path.metadata().map_err(|error| RepositoryError::local(path, &error))?;
        let Some((name, rest)) = names.split_first() else {
            let mut entries = self.read_directory(path).map_err(|error| RepositoryError::local(path, &error))?;
            entries.retain(|(name, _)| only.is_none_or(|only| only.as_bytes() == name));
            return self.entries(path, entries, directory, previous, metadata.dev());
        };
        let node = self.node(path, name, &metadata);
        let known = previous.and_then(|tree| tree.find(name)).and_then(|node| node.subtree);
        let below = directory.below(node, known);
        let tree = self.previous_tree(known);
        self.placed((path, only), rest, &below, tree.as_deref())?;
        settle(self.run, &mut self.saver, below, None)
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
        previous: Option<&Tree>,
    ) -> Result<()> {
        for (name, child) in children {
            let path = path.join(OsStr::from_bytes(name));
            // The way to a target is followed through links, the target itself is not.
            let found = if matches!(child, Above::Target) { path.symlink_metadata() } else { path.metadata() };
            let Ok(metadata) = found.map_err(|error| self.run.problem(&path, &error)) else { continue };
            match child {
                Above::Target => self.entry(&path, name, &metadata, directory, previous, metadata.dev())?,
                Above::Folder(children) => {
                    let node = self.node(&path, name, &metadata);
                    let known = previous.and_then(|tree| tree.find(name)).and_then(|node| node.subtree);
                    let below = directory.below(node, known);
                    let tree = self.previous_tree(known);
                    self.above(&path, children, &below, tree.as_deref())?;
                    settle(self.run, &mut self.saver, below, None)?;
                }
            }
        }
        Ok(())
    }

    fn entries(
        &mut self,
        path: &Path,
        entries: Vec<(Vec<u8>, DirEntry)>,
        directory: &Arc<Directory>,
        previous: Option<&Tree>,
        device: u64,
    ) -> Result<()> {
        for (name, entry) in entries {
            let path = path.join(entry.file_name());
            if self.run.options.leaves_out(&path) {
                continue;
            }
            match entry.metadata() {
                Ok(metadata) => self.entry(&path, &name, &metadata, directory, previous, device)?,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => self.run.problem(&path, &error),
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        path: &Path,
        name: &[u8],
        metadata: &Metadata,
        directory: &Arc<Directory>,
        previous: Option<&Tree>,
        device: u64,
    ) -> Result<()> {
        self.run.check()?;
        let known = previous.and_then(|tree| tree.find(name));
        if metadata.is_dir() {
            return self.directory(path, name, metadata, directory, known, device);
        }
        if metadata.is_file() {
            self.file(path, name, metadata, directory, known);
            return Ok(());
        }
        let mut node = self.node(path, name, metadata);
        match node.kind {
            NodeKind::Socket => return Ok(()),
            NodeKind::Symlink => match link_target(path) {
                Ok(target) => node.link_target = target,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
                Err(error) => {
                    self.run.problem(path, &error);
                    return Ok(());
                }
            },
            _ => {}
        }
        directory.add(node);
        Ok(())
    }

    fn directory(
        &mut self,
        path: &Path,
        name: &[u8],
        metadata: &Metadata,
        above: &Arc<Directory>,
        known: Option<&Node>,
        device: u64,
    ) -> Result<()> {
        let foreign = self.run.options.one_file_system && metadata.dev() != device;
        let entries = if foreign { Ok(Vec::new()) } else { self.read_directory(path) };
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                self.run.problem(path, &error);
                return Ok(());
            }
        };
        let node = self.node(path, name, metadata);
        let previous = known.and_then(|node| node.subtree);
        let directory = above.below(node, previous);
        let tree = self.previous_tree(previous);
        self.run.meters.task.say(path.to_string_lossy());
        self.entries(path, entries, &directory, tree.as_deref(), device)?;
        settle(self.run, &mut self.saver, directory, None)
    }

    fn file(
        &mut self,
        path: &Path,
        name: &[u8],
        metadata: &Metadata,
        directory: &Arc<Directory>,
        known: Option<&Node>,
    ) {
        let mut node = self.run.maker.make(name, metadata);
        node.size = metadata.len();
        if let Some(content) = known.and_then(|known| self.unchanged_content(path, &node, known)) {
            node.content = Some(content);
            self.add_attributes(path, &mut node);
            self.run.count_unchanged(node.size);
            directory.add(node);
            return;
        }
        directory.expect();
        let known = known.is_some_and(|node| node.kind == NodeKind::File);
        let (size, directory) = (metadata.len(), directory.clone());
        self.batch.push(FileJob { path: path.to_owned(), name: name.to_vec(), size, directory, known });
        self.batch_bytes += metadata.len();
        if self.batch.len() >= BATCH_FILES || self.batch_bytes >= BATCH_BYTES {
            self.flush();
        }
    }

    /// The entries of a directory, sorted by the bytes of their names. There may be very many: who is asked to stop finds no
    /// more of them, and stores none.
    fn read_directory(&self, path: &Path) -> std::io::Result<Vec<(Vec<u8>, DirEntry)>> {
        let mut entries = std::fs::read_dir(path)?
            .take_while(|_| !self.run.is_stopped())
            .map(|entry| entry.map(|entry| (entry.file_name().into_vec(), entry)))
            .collect::<std::io::Result<Vec<_>>>()?;
        entries.sort_unstable_by(|one, other| one.0.cmp(&other.0));
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

    fn node(&self, path: &Path, name: &[u8], metadata: &Metadata) -> Node {
        let mut node = self.run.maker.make(name, metadata);
        self.add_attributes(path, &mut node);
        node
    }

    fn add_attributes(&self, path: &Path, node: &mut Node) {
        match attributes(path, |problem| self.run.problem(path, &problem)) {
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
