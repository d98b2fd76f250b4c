//! The queue of directories to walk, shared by the walkers.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::directory::Directory;
use super::source::Source;
use crate::format::id::Id;
use crate::format::tree::{Node, Tree};

/// The position of a walk: a directory and its parent tree.
#[derive(Clone)]
pub(super) struct WalkPosition {
    pub source: Arc<Source>,
    /// The directory, and its tree in the parent snapshot.
    pub directory: Arc<Directory>,
    pub previous: Option<Arc<Tree>>,
    /// The file system of the target.
    pub device: u64,
}

impl WalkPosition {
    pub(super) fn parent_node(&self, name: &[u8]) -> Option<&Node> {
        self.previous.as_ref().and_then(|tree| tree.find(name))
    }

    pub(super) fn parent_tree(&self, name: &[u8]) -> Option<Id> {
        self.parent_node(name).and_then(|node| node.subtree)
    }
}

/// A directory to walk.
pub(super) struct DirectoryJob {
    pub path: PathBuf,
    pub name: Vec<u8>,
    pub parent: WalkPosition,
}

/// A directory that was read, and its subdirectories that are not taken yet.
struct ReadDirectory {
    path: PathBuf,
    position: WalkPosition,
    names: std::iter::Peekable<std::vec::IntoIter<Vec<u8>>>,
}

struct State {
    /// The deepest is the last: walks are depth-first.
    pending: Vec<ReadDirectory>,
    /// The number of walkers that are working and may find more.
    active: usize,
}

pub(super) struct DirectoryQueue {
    state: Mutex<State>,
    changed: Condvar,
}

impl DirectoryQueue {
    /// Creates a queue with one active walker, which starts with the targets.
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State { pending: Vec::new(), active: 1 }), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds subdirectories, at least one. The last one takes over the walker's reference to the directory.
    pub(super) fn push(&self, path: PathBuf, position: WalkPosition, names: Vec<Vec<u8>>) {
        self.state().pending.push(ReadDirectory { path, position, names: names.into_iter().peekable() });
        self.changed.notify_one();
    }

    /// The next directory; `None` when all are done or `stopped` returns `true`.
    pub(super) fn take(&self, stopped: impl Fn() -> bool) -> Option<DirectoryJob> {
        let mut state = self.state();
        loop {
            if stopped() {
                return None;
            }
            if let Some(job) = state.next() {
                state.active += 1;
                if !state.pending.is_empty() {
                    self.changed.notify_one();
                }
                return Some(job);
            }
            if state.active == 0 {
                return None;
            }
            let (guard, _) =
                self.changed.wait_timeout(state, Duration::from_millis(50)).unwrap_or_else(PoisonError::into_inner);
            state = guard;
        }
    }

    /// A walker has finished its directory. After the last one all others may end.
    pub(super) fn done(&self) {
        let mut state = self.state();
        state.active -= 1;
        if state.active == 0 {
            self.changed.notify_all();
        }
    }
}

impl State {
    /// The next directory, depth-first.
    fn next(&mut self) -> Option<DirectoryJob> {
        let pending = self.pending.last_mut()?;
        let name = pending.names.next()?;
        let path = pending.path.join(OsStr::from_bytes(&name));
        if pending.names.peek().is_some() {
            pending.position.directory.expect();
            return Some(DirectoryJob { path, name, parent: pending.position.clone() });
        }
        self.pending.pop().map(|pending| DirectoryJob { path, name, parent: pending.position })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(directory: Arc<Directory>) -> WalkPosition {
        let source = Arc::new(Source::open(&std::env::temp_dir()).expect("opens"));
        WalkPosition { source, directory, previous: None, device: 0 }
    }

    fn take(queue: &DirectoryQueue) -> Option<DirectoryJob> {
        queue.take(|| false)
    }

    #[test]
    fn a_directory_is_complete_after_its_last_subdirectory() {
        let (queue, root) = (DirectoryQueue::new(), Directory::root(None));
        queue.push("/root".into(), position(root.clone()), vec![b"a".to_vec(), b"b".to_vec()]);
        queue.done();
        let (one, other) = (take(&queue).expect("a job"), take(&queue).expect("a second job"));
        assert_eq!((one.path.as_path(), other.name.as_slice()), ("/root/a".as_ref(), &b"b"[..]));
        assert!(!root.close(), "one subdirectory is open");
        assert!(root.close(), "all subdirectories are done");
    }

    #[test]
    fn walks_are_depth_first_and_end_when_no_walker_is_active() {
        let (queue, root) = (DirectoryQueue::new(), Directory::root(None));
        queue.push("/root".into(), position(root.clone()), vec![b"a".to_vec(), b"b".to_vec()]);
        let first = take(&queue).expect("the first job");
        queue.push(first.path, position(root), vec![b"below".to_vec()]);
        assert_eq!(take(&queue).expect("the next job").path, PathBuf::from("/root/a/below"));
        assert_eq!(take(&queue).expect("the next job").path, PathBuf::from("/root/b"));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| take(&queue));
            // The first walker and three jobs.
            (0..4).for_each(|_| queue.done());
            assert!(waiting.join().expect("ends").is_none());
        });
        assert!(queue.take(|| true).is_none(), "stopped");
    }
}
