//! Directories that are still to be walked. The walkers share them: what the system says about a file may take a while.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::directory::Directory;
use super::source::Source;
use crate::format::id::Id;
use crate::format::tree::{Node, Tree};

/// Where a walk is.
#[derive(Clone)]
pub(super) struct Inside {
    pub source: Arc<Source>,
    /// What becomes of the directory, and what it was.
    pub directory: Arc<Directory>,
    pub previous: Option<Arc<Tree>>,
    /// The file system of the target.
    pub device: u64,
}

impl Inside {
    pub(super) fn known(&self, name: &[u8]) -> Option<&Node> {
        self.previous.as_ref().and_then(|tree| tree.find(name))
    }

    pub(super) fn known_tree(&self, name: &[u8]) -> Option<Id> {
        self.known(name).and_then(|node| node.subtree)
    }
}

/// A directory to walk; the one above waits for it.
pub(super) struct FolderJob {
    pub path: PathBuf,
    pub name: Vec<u8>,
    pub above: Inside,
}

/// A directory that was read, and those in it that nobody has taken yet.
struct Opened {
    path: PathBuf,
    inside: Inside,
    names: std::iter::Peekable<std::vec::IntoIter<Vec<u8>>>,
}

struct State {
    /// The deepest is the last: what was begun is finished first.
    opened: Vec<Opened>,
    /// Walkers that hold a directory, and so may still find more.
    active: usize,
}

pub(super) struct Folders {
    state: Mutex<State>,
    changed: Condvar,
}

impl Folders {
    /// One walker is at work already: it starts with what was asked for.
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State { opened: Vec::new(), active: 1 }), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves directories to whoever comes next, and with them that the one they are in is waited for; there must be one at least.
    pub(super) fn leave(&self, path: PathBuf, inside: Inside, names: Vec<Vec<u8>>) {
        self.state().opened.push(Opened { path, inside, names: names.into_iter().peekable() });
        self.changed.notify_all();
    }

    /// The next directory; nothing once there can be none any more, or `stopped` says so.
    pub(super) fn take(&self, stopped: impl Fn() -> bool) -> Option<FolderJob> {
        let mut state = self.state();
        loop {
            if stopped() {
                return None;
            }
            if let Some(job) = state.next() {
                state.active += 1;
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

    /// A walker is done with what it had.
    pub(super) fn done(&self) {
        self.state().active -= 1;
        self.changed.notify_all();
    }
}

impl State {
    /// The last one of a directory takes over that it is waited for.
    fn next(&mut self) -> Option<FolderJob> {
        let opened = self.opened.last_mut()?;
        let name = opened.names.next()?;
        let path = opened.path.join(OsStr::from_bytes(&name));
        if opened.names.peek().is_some() {
            opened.inside.directory.expect();
            return Some(FolderJob { path, name, above: opened.inside.clone() });
        }
        self.opened.pop().map(|opened| FolderJob { path, name, above: opened.inside })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(directory: Arc<Directory>) -> Inside {
        let source = Arc::new(Source::open(&std::env::temp_dir()).expect("opens"));
        Inside { source, directory, previous: None, device: 0 }
    }

    fn take(folders: &Folders) -> Option<FolderJob> {
        folders.take(|| false)
    }

    #[test]
    fn a_directory_is_waited_for_until_the_last_one_in_it_is_walked_whoever_walks_it() {
        let (folders, root) = (Folders::new(), Directory::root(None));
        folders.leave("/root".into(), inside(root.clone()), vec![b"a".to_vec(), b"b".to_vec()]);
        folders.done();
        let (one, other) = (take(&folders).expect("one"), take(&folders).expect("another"));
        assert_eq!((one.path.as_path(), other.name.as_slice()), ("/root/a".as_ref(), &b"b"[..]));
        assert!(!root.close(), "it waits for the other");
        assert!(root.close(), "nobody else waits");
    }

    #[test]
    fn what_was_begun_is_finished_first_and_nobody_leaves_while_somebody_may_find_more() {
        let (folders, root) = (Folders::new(), Directory::root(None));
        folders.leave("/root".into(), inside(root.clone()), vec![b"a".to_vec(), b"b".to_vec()]);
        let first = take(&folders).expect("the first");
        folders.leave(first.path, inside(root), vec![b"below".to_vec()]);
        assert_eq!(take(&folders).expect("the next").path, PathBuf::from("/root/a/below"));
        assert_eq!(take(&folders).expect("the next").path, PathBuf::from("/root/b"));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| take(&folders));
            // The one that begins and three that were taken.
            (0..4).for_each(|_| folders.done());
            assert!(waiting.join().expect("ends").is_none());
        });
        assert!(folders.take(|| true).is_none(), "asked to stop");
    }
}
