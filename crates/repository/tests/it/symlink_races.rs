//! Directories that are replaced with links during a restore: the links are not followed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use plimsoll_repository::restore::{Overwrite, RestoreOptions, RestoreOutcome};
use plimsoll_repository::{Cancel, Id, OpenOptions, Repository, RepositoryError};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, renameat_with};

use crate::faulty_store::Fault;
use crate::locking::open_with_fault;
use crate::testbed::{Testbed, fingerprint, random_bytes, task};

/// Replaces a directory with a link on request, right before one of these packs is read.
struct SwapOnRead {
    packs: Vec<String>,
    is_due: AtomicBool,
    directory: PathBuf,
    aside: PathBuf,
    link_target: PathBuf,
}

impl Fault for SwapOnRead {
    fn before_get(&self, path: &object_store::path::Path) -> object_store::Result<()> {
        let is_one = path.filename().is_some_and(|name| self.packs.iter().any(|pack| pack == name));
        if is_one && self.is_due.swap(false, Ordering::SeqCst) {
            fs::rename(&self.directory, &self.aside).expect("renames");
            symlink(&self.link_target, &self.directory).expect("a link");
        }
        Ok(())
    }
}

/// A snapshot with every kind of entry in a directory `d`, and a directory outside of the target.
struct Fixture {
    testbed: Testbed,
    snapshot: Id,
    repository: Arc<Repository>,
    /// The packs with the tree of `d`, without that of the root: they are read when `d` exists and its entries do not.
    swapping: Arc<SwapOnRead>,
}

impl Fixture {
    fn new() -> Self {
        let testbed = Testbed::new();
        fill(&testbed);
        let repository = testbed.init();
        testbed.backup(&repository);
        let packs = names_below(&testbed.path("repository/data"));
        testbed.write("z", "so that the root gets another tree");
        let snapshot = testbed.backup(&repository).snapshot;
        let (is_due, directory) = (AtomicBool::new(false), testbed.path("restored/d"));
        let (aside, link_target) = (testbed.path("aside"), testbed.path("outside"));
        fs::create_dir(&link_target).expect("a directory");
        let swapping = Arc::new(SwapOnRead { packs, is_due, directory, aside, link_target });
        let repository = open_with_fault(&testbed, swapping.clone(), OpenOptions::default());
        Self { testbed, snapshot, repository, swapping }
    }

    fn target(&self) -> PathBuf {
        self.testbed.path("restored")
    }

    fn outside(&self) -> PathBuf {
        self.testbed.path("outside")
    }

    /// Writes below the outside directory.
    fn write(&self, name: &str) -> PathBuf {
        let path = self.outside().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(&path, "of the machine").expect("writes");
        path
    }

    /// The state of the outside directory.
    fn state(&self) -> (u32, i64, i64, BTreeMap<Vec<u8>, String>) {
        let is = self.outside().metadata().expect("is there");
        (is.mode(), is.mtime(), is.mtime_nsec(), fingerprint(&self.outside()))
    }

    /// Restores, and replaces `d` with a link to the outside directory as soon as it exists. Asserts that the outside directory is
    /// unchanged, and returns the problems.
    fn restore_while_swapped(&self, overwrite: Overwrite, delete: bool) -> Vec<String> {
        let before = self.state();
        self.swapping.is_due.store(true, Ordering::SeqCst);
        let outcome = self.restore(overwrite, delete).expect("restores");
        assert!(!self.swapping.is_due.load(Ordering::SeqCst), "it was swapped");
        assert_eq!(self.state(), before, "{overwrite:?} {delete}: {:?}", outcome.problems);
        named(&outcome, &self.target())
    }

    fn restore(&self, overwrite: Overwrite, delete: bool) -> Result<RestoreOutcome, RepositoryError> {
        let options = RestoreOptions { overwrite, delete, ..RestoreOptions::new(self.snapshot, self.target()) };
        self.repository.restore(&options, &task("restore"), &Cancel::default())
    }

    /// Removes the restored files.
    fn clear(&self) {
        fs::remove_dir_all(self.target()).expect("removes");
        fs::remove_dir_all(self.testbed.path("aside")).expect("removes");
    }
}

/// A file with a hard link in `d`, which also has an empty file, a FIFO, a directory, a link and a file.
fn fill(testbed: &Testbed) {
    let first = testbed.write("a", random_bytes(1, 5000));
    testbed.write("d/empty", "");
    testbed.write("d/file", random_bytes(2, 5000));
    testbed.write("d/folder/file", random_bytes(3, 5000));
    let d = testbed.source().join("d");
    fs::hard_link(first, d.join("another name")).expect("a hard link");
    rustix::fs::mknodat(CWD, d.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).expect("a fifo");
    symlink("anywhere", d.join("link")).expect("a link");
}

fn names_below(folder: &Path) -> Vec<String> {
    let names = fingerprint(folder).into_keys().map(|name| String::from_utf8(name).expect("a name"));
    names.filter_map(|name| name.split_once('/').map(|(_, pack)| pack.to_owned())).collect()
}

fn named(outcome: &RestoreOutcome, target: &Path) -> Vec<String> {
    let short = |path: &str| Path::new(path).strip_prefix(target).expect("below").display().to_string();
    let mut names: Vec<_> = outcome.problems.iter().map(|problem| short(&problem.path)).collect();
    names.sort();
    names.dedup();
    names
}

const MODES: [Overwrite; 4] = [Overwrite::Always, Overwrite::IfChanged, Overwrite::IfNewer, Overwrite::Never];

#[test]
fn no_entry_is_created_behind_a_link_that_replaced_a_directory() {
    let fixture = Fixture::new();
    for is_there in [false, true] {
        for overwrite in MODES {
            if is_there {
                fs::create_dir_all(fixture.target().join("d")).expect("a directory");
            }
            let named = fixture.restore_while_swapped(overwrite, false);
            assert_eq!(named, ["d", "d/another name", "d/empty", "d/fifo", "d/file", "d/folder", "d/link"]);
            assert!(
                fixture.target().join("a").is_file() && fixture.target().join("z").is_file(),
                "the rest is restored"
            );
            fixture.clear();
        }
    }
}

#[test]
fn no_entry_is_removed_behind_a_link_that_replaced_a_directory() {
    let fixture = Fixture::new();
    for name in ["another name", "empty/inside", "fifo", "file/inside", "folder", "link/deep/inside"] {
        fixture.write(name);
    }
    for overwrite in MODES {
        fs::create_dir_all(fixture.target().join("d")).expect("a directory");
        let named = fixture.restore_while_swapped(overwrite, false);
        assert_eq!(named, ["d", "d/another name", "d/empty", "d/fifo", "d/file", "d/folder", "d/link"]);
        fixture.clear();
    }
}

#[test]
fn the_delete_option_does_not_follow_a_link_that_replaced_a_directory() {
    let fixture = Fixture::new();
    for name in ["other", "folder/other", "others/deep/inside"] {
        fixture.write(name);
    }
    fs::create_dir_all(fixture.target().join("d")).expect("a directory");
    fs::write(fixture.target().join("other"), "x").expect("writes");
    let named = fixture.restore_while_swapped(Overwrite::IfChanged, true);
    assert!(named.contains(&"d".to_owned()), "{named:?}");
    assert!(!fixture.target().join("other").exists(), "it is deleted in the target");
}

#[test]
fn metadata_of_kept_files_is_not_set_behind_a_link_that_replaced_a_directory() {
    let fixture = Fixture::new();
    for name in ["file", "empty"] {
        let (copy, original) = (fixture.write(name), fixture.testbed.source().join("d").join(name));
        fs::copy(&original, &copy).expect("copies");
        let mtime = original.metadata().expect("is there").modified().expect("a time");
        fs::File::options().write(true).open(&copy).expect("opens").set_modified(mtime).expect("a time");
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o600)).expect("a mode");
    }
    fs::create_dir_all(fixture.target().join("d")).expect("a directory");
    let named = fixture.restore_while_swapped(Overwrite::IfChanged, false);
    assert!(named.contains(&"d/file".to_owned()) && named.contains(&"d/empty".to_owned()), "{named:?}");
}

#[test]
fn metadata_of_directories_is_not_set_behind_a_link_that_replaced_a_parent() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.outside().join("folder")).expect("a directory");
    fs::set_permissions(fixture.outside().join("folder"), fs::Permissions::from_mode(0o700)).expect("a mode");
    fs::create_dir_all(fixture.target().join("d/folder")).expect("a directory");
    let named = fixture.restore_while_swapped(Overwrite::Always, false);
    assert!(named.contains(&"d".to_owned()) && named.contains(&"d/folder".to_owned()), "{named:?}");
}

/// Replaces `d` with a link and back again, repeatedly.
fn swap_until(done: &AtomicBool, swaps: &AtomicU64, d: &Path, spare: &Path, outside: &Path) {
    while !done.load(Ordering::SeqCst) {
        symlink(outside, spare).expect("a link");
        if renameat_with(CWD, d, CWD, spare, RenameFlags::EXCHANGE).is_ok() {
            swaps.fetch_add(1, Ordering::SeqCst);
            std::thread::yield_now();
            let _ = renameat_with(CWD, d, CWD, spare, RenameFlags::EXCHANGE);
        }
        // A restore that has it open may still write to it.
        while spare.symlink_metadata().is_ok() {
            let _ = fs::remove_file(spare).or_else(|_| fs::remove_dir_all(spare));
        }
    }
}

#[test]
fn a_directory_that_is_repeatedly_replaced_with_a_link_is_safe() {
    let fixture = Fixture::new();
    for name in ["another name", "fifo", "link/inside", "other", "folder/other", "others/inside"] {
        fixture.write(name);
    }
    let (before, done, swaps) = (fixture.state(), AtomicBool::new(false), AtomicU64::new(0));
    fixture.restore(Overwrite::Always, true).expect("restores");
    std::thread::scope(|scope| {
        let (d, spare) = (fixture.target().join("d"), fixture.testbed.path("spare"));
        let (outside, done, swaps) = (fixture.outside(), &done, &swaps);
        scope.spawn(move || swap_until(done, swaps, &d, &spare, &outside));
        let ended: Vec<_> = (0..60).map(|round| fixture.restore(MODES[round % 2], true)).collect();
        done.store(true, Ordering::SeqCst);
        assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    });
    assert!(swaps.load(Ordering::SeqCst) > 0);
    assert_eq!(fixture.state(), before, "after {swaps:?} swaps");
    assert_eq!(fixture.restore(Overwrite::Always, true).expect("restores").problems, []);
    assert_eq!(fingerprint(&fixture.target()), fingerprint(&fixture.testbed.source()));
}
