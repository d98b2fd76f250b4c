//! Reading snapshots: listing, searching, dumping files, statistics.

use std::collections::HashSet;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use plimsoll_progress::Task;

use crate::blob_index::{BlobIndex, BlobMarks};
use crate::blob_read::BlobReader;
use crate::cancel::Cancel;
use crate::format::blob::BlobKind;
use crate::format::id::Id;
use crate::format::snapshot::Snapshot;
use crate::format::tree::{Node, NodeKind};
use crate::repository::Repository;
use crate::{RepositoryError, Result};

/// A repository with its loaded index, for any number of read operations.
pub struct Browser<'a> {
    repository: &'a Repository,
    index: BlobIndex,
    damage: Vec<RepositoryError>,
    cancel: Cancel,
}

impl std::fmt::Debug for Browser<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Browser").field("repository", self.repository).finish_non_exhaustive()
    }
}

/// Statistics of snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The number of entries that are not directories.
    pub files: u64,
    /// The bytes that a restore would write; a hard-seen_links file counts once.
    pub restore_size: u64,
    /// The number of distinct blobs.
    pub blobs: u64,
    /// The stored bytes of these blobs.
    pub stored_size: u64,
}

impl Repository {
    /// Loads the index for read operations. Takes no lock: concurrent deletions lead to errors, not to wrong results.
    pub fn browse(&self, task: &Task, cancel: &Cancel) -> Result<Browser<'_>> {
        let (index, damage) = self.rescue_index(task, cancel)?;
        Ok(Browser { repository: self, index, damage, cancel: cancel.clone() })
    }
}

impl Browser<'_> {
    /// The errors of damaged index files. Their blobs were read from the packs.
    pub fn damage(&self) -> &[RepositoryError] {
        &self.damage
    }

    /// Calls `visit` with the path and node of every entry below `path`, directories before their entries.
    pub fn list(&self, snapshot: &Snapshot, path: &Path, visit: &mut dyn FnMut(&Path, &Node)) -> Result<()> {
        let reader = self.reader();
        match reader.node_at(&snapshot.tree, path)? {
            None => reader.walk(&snapshot.tree, Path::new("/"), visit),
            Some(node) => {
                let path = Path::new("/").join(path);
                visit(&path, &node);
                match &node.subtree {
                    Some(subtree) => reader.walk(subtree, &path, visit),
                    None => Ok(()),
                }
            }
        }
    }

    /// All entries whose name matches a pattern with `*` and `?`.
    pub fn find(&self, snapshot: &Snapshot, pattern: &str) -> Result<Vec<(PathBuf, Node)>> {
        let mut entries = Vec::new();
        self.list(snapshot, Path::new(""), &mut |path, node| {
            if matches(pattern.as_bytes(), &node.name) {
                entries.push((path.to_owned(), node.clone()));
            }
        })?;
        Ok(entries)
    }

    /// Writes the content of one file.
    pub fn dump(&self, snapshot: &Snapshot, path: &Path, out: &mut dyn Write) -> Result<u64> {
        let reader = self.reader();
        let node = reader.node_at(&snapshot.tree, path)?.filter(|node| node.kind == NodeKind::File);
        let node = node.ok_or_else(|| RepositoryError::PathNotFound { path: path.display().to_string() })?;
        let mut written = 0;
        for id in node.content.iter().flatten() {
            let plain = reader.blob(BlobKind::Data, id)?;
            out.write_all(&plain).map_err(|error| RepositoryError::local(path, &error))?;
            written += plain.len() as u64;
        }
        Ok(written)
    }

    /// Computes the statistics of these snapshots.
    pub fn stats(&self, snapshots: &[Snapshot]) -> Result<Stats> {
        let reader = self.reader();
        let mut collector = StatsCollector {
            index: &self.index,
            stats: Stats::default(),
            blobs: BlobMarks::new(&self.index),
            seen_links: HashSet::new(),
        };
        for snapshot in snapshots {
            collector.seen_links.clear();
            collector.tree(&snapshot.tree);
            reader.walk(&snapshot.tree, Path::new("/"), &mut |_, node| collector.node(node))?;
        }
        Ok(collector.stats)
    }

    fn reader(&self) -> BlobReader<'_> {
        BlobReader::new(self.repository, &self.index, &self.cancel)
    }
}

struct StatsCollector<'a> {
    index: &'a BlobIndex,
    stats: Stats,
    blobs: BlobMarks<'a>,
    seen_links: HashSet<(u64, u64)>,
}

impl StatsCollector<'_> {
    fn node(&mut self, node: &Node) {
        if let Some(subtree) = &node.subtree {
            self.tree(subtree);
            return;
        }
        self.stats.files += 1;
        if node.hard_link_key().is_none_or(|key| self.seen_links.insert(key)) {
            // The sizes in a tree are not trusted.
            self.stats.restore_size = self.stats.restore_size.saturating_add(node.size);
        }
        node.content.iter().flatten().for_each(|id| self.blob(BlobKind::Data, id));
    }

    fn tree(&mut self, id: &Id) {
        self.blob(BlobKind::Tree, id);
    }

    fn blob(&mut self, kind: BlobKind, id: &Id) {
        if self.blobs.set(kind, id) {
            self.stats.blobs += 1;
            self.stats.stored_size += self.index.find(kind, id).map_or(0, |location| u64::from(location.length));
        }
    }
}

impl BlobReader<'_> {
    /// The node at a path of a snapshot; `None` for the root.
    pub(crate) fn node_at(&self, root: &Id, path: &Path) -> Result<Option<Node>> {
        let missing = || RepositoryError::PathNotFound { path: path.display().to_string() };
        let mut tree = *root;
        let mut current: Option<Node> = None;
        for component in path.components() {
            let name = match component {
                Component::Normal(name) => name.as_bytes(),
                Component::RootDir | Component::CurDir => continue,
                _ => return Err(missing()),
            };
            if let Some(node) = &current {
                tree = node.subtree.ok_or_else(missing)?;
            }
            current = Some(self.tree(&tree)?.find(name).cloned().ok_or_else(missing)?);
        }
        Ok(current)
    }

    /// Walks all entries below a tree, directories before their entries. Without recursion, because the depth of a tree is not
    /// limited.
    pub(crate) fn walk(&self, tree: &Id, path: &Path, visit: &mut dyn FnMut(&Path, &Node)) -> Result<()> {
        let mut open = vec![(path.to_owned(), self.tree(tree)?, 0)];
        while let Some((folder, tree, next)) = open.last_mut() {
            let Some(node) = tree.nodes.get(*next) else {
                open.pop();
                continue;
            };
            *next += 1;
            let path = folder.join(std::ffi::OsStr::from_bytes(&node.name));
            visit(&path, node);
            if let Some(subtree) = node.subtree {
                open.push((path, self.tree(&subtree)?, 0));
            }
        }
        Ok(())
    }
}

/// Shell patterns with `*` and `?` only, in time linear in the product of both lengths.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut position) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while position < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, position));
                at += 1;
            }
            Some(expected) if *expected == b'?' || *expected == name[position] => {
                at += 1;
                position += 1;
            }
            _ => match &mut star {
                Some((star, from)) => {
                    *from += 1;
                    (at, position) = (*star + 1, *from);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|rest| *rest == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, name, expected) in [
            ("*.log", "a.log", true),
            ("*.log", "a.log.1", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*a*b*", "xxaxxbxx", true),
            ("", "", true),
            ("*", "", true),
            ("*aaa*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaac", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }
}
