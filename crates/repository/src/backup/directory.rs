//! Directories in progress: each becomes a tree when its last entry is done.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::run::Run;
use crate::Result;
use crate::format::blob::BlobKind;
use crate::format::id::Id;
use crate::format::tree::{Node, Tree};

/// A directory whose entries are being saved.
pub(super) struct Directory {
    /// Its node in the parent directory, without its tree; `None` for the root.
    node: Mutex<Option<Node>>,
    parent: Option<Arc<Directory>>,
    /// Its tree in the parent snapshot.
    previous: Option<Id>,
    entries: Mutex<Vec<Node>>,
    /// The number of entries that are not done, plus one for the walker.
    open: AtomicUsize,
}

impl Directory {
    pub(super) fn root(previous: Option<Id>) -> Arc<Self> {
        Self::create(None, None, previous)
    }

    /// Adds a subdirectory as an expected entry.
    pub(super) fn add_child(self: &Arc<Self>, node: Node, previous: Option<Id>) -> Arc<Self> {
        self.expect();
        self.expected_child(node, previous)
    }

    /// Creates a subdirectory that is already an expected entry.
    pub(super) fn expected_child(self: &Arc<Self>, node: Node, previous: Option<Id>) -> Arc<Self> {
        Self::create(Some(node), Some(self.clone()), previous)
    }

    fn create(node: Option<Node>, parent: Option<Arc<Self>>, previous: Option<Id>) -> Arc<Self> {
        let (node, entries) = (Mutex::new(node), Mutex::default());
        Arc::new(Self { node, parent, previous, entries, open: AtomicUsize::new(1) })
    }

    /// Expects one more entry.
    pub(super) fn expect(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds an entry that is done.
    pub(super) fn add(&self, node: Node) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).push(node);
    }

    pub(super) fn close(&self) -> bool {
        self.open.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// Drops the parents iteratively, because a recursion might overflow the stack.
impl Drop for Directory {
    fn drop(&mut self) {
        let mut parent = self.parent.take();
        while let Some(mut directory) = parent.and_then(Arc::into_inner) {
            parent = directory.parent.take();
        }
    }
}

/// Completes an entry of a directory, with its node if it has one. The last entry stores the tree and completes the directory in
/// its parent.
pub(super) fn complete_entry(run: &Run<'_>, directory: Arc<Directory>, node: Option<Node>) -> Result<()> {
    let (mut directory, mut node) = (directory, node);
    loop {
        if let Some(node) = node.take() {
            directory.add(node);
        }
        if !directory.close() {
            return Ok(());
        }
        let tree = save_tree(run, &directory)?;
        let Some(parent) = directory.parent.clone() else {
            run.set_root(tree);
            return Ok(());
        };
        node = directory.node.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(node) = &mut node {
            node.subtree = Some(tree);
        }
        directory = parent;
    }
}

fn save_tree(run: &Run<'_>, directory: &Directory) -> Result<Id> {
    let mut nodes = std::mem::take(&mut *directory.entries.lock().unwrap_or_else(PoisonError::into_inner));
    nodes.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let mut json = Tree { nodes }.encode();
    let id = Id::of(&json);
    run.count_directory(directory.previous, id);
    if run.claim(BlobKind::Tree, id) {
        run.store_blob(&run.trees, BlobKind::Tree, id, &mut json)?;
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_directories_are_dropped_without_a_stack_overflow() {
        let mut deepest = Directory::root(None);
        for _ in 0..300_000 {
            deepest = deepest.add_child(Node::default(), None);
        }
        drop(deepest);
    }
}
