//! Directories under way: each becomes a tree when the last of its entries is done.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::packer::Saver;
use super::run::Run;
use crate::Result;
use crate::format::blob::BlobKind;
use crate::format::id::Id;
use crate::format::tree::{Node, Tree};

/// A directory whose entries are being saved.
pub(super) struct Directory {
    /// What it is in the directory above, without its tree; nothing for the root.
    node: Mutex<Option<Node>>,
    above: Option<Arc<Directory>>,
    /// The tree it had in the parent snapshot.
    previous: Option<Id>,
    entries: Mutex<Vec<Node>>,
    /// Entries not done yet, and one for the walker while it is inside.
    open: AtomicUsize,
}

impl Directory {
    pub(super) fn root(previous: Option<Id>) -> Arc<Self> {
        Self::make(None, None, previous)
    }

    /// A directory below this one; this one waits for it.
    pub(super) fn below(self: &Arc<Self>, node: Node, previous: Option<Id>) -> Arc<Self> {
        self.expect();
        self.expected(node, previous)
    }

    /// A directory below this one, which waits for it already.
    pub(super) fn expected(self: &Arc<Self>, node: Node, previous: Option<Id>) -> Arc<Self> {
        Self::make(Some(node), Some(self.clone()), previous)
    }

    fn make(node: Option<Node>, above: Option<Arc<Self>>, previous: Option<Id>) -> Arc<Self> {
        let (node, entries) = (Mutex::new(node), Mutex::default());
        Arc::new(Self { node, above, previous, entries, open: AtomicUsize::new(1) })
    }

    /// One more entry will be settled.
    pub(super) fn expect(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// An entry that is done at once.
    pub(super) fn add(&self, node: Node) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).push(node);
    }

    pub(super) fn close(&self) -> bool {
        self.open.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// One after the other: whoever made the directories chose how deep they are, and the stack has an end.
impl Drop for Directory {
    fn drop(&mut self) {
        let mut above = self.above.take();
        while let Some(mut directory) = above.and_then(Arc::into_inner) {
            above = directory.above.take();
        }
    }
}

/// Settles something a directory waited for, with its node if it has one. The last one makes the tree, and so on upwards.
pub(super) fn settle(run: &Run<'_>, saver: &mut Saver, directory: Arc<Directory>, node: Option<Node>) -> Result<()> {
    let (mut directory, mut node) = (directory, node);
    loop {
        if let Some(node) = node.take() {
            directory.add(node);
        }
        if !directory.close() {
            return Ok(());
        }
        let tree = save_tree(run, saver, &directory)?;
        let Some(above) = directory.above.clone() else {
            run.set_root(tree);
            return Ok(());
        };
        node = directory.node.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(node) = &mut node {
            node.subtree = Some(tree);
        }
        directory = above;
    }
}

fn save_tree(run: &Run<'_>, saver: &mut Saver, directory: &Directory) -> Result<Id> {
    let mut nodes = std::mem::take(&mut *directory.entries.lock().unwrap_or_else(PoisonError::into_inner));
    nodes.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let mut json = Tree { nodes }.encode();
    let id = Id::of(&json);
    run.count_directory(directory.previous, id);
    if run.claim(BlobKind::Tree, id) {
        run.store_blob(saver, &run.trees, BlobKind::Tree, id, &mut json)?;
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_however_deep_are_forgotten_without_a_deep_stack() {
        let mut deepest = Directory::root(None);
        for _ in 0..300_000 {
            deepest = deepest.below(Node::default(), None);
        }
        drop(deepest);
    }
}
