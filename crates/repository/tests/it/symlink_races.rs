//! Somebody writes to a volume while it is restored, and puts a link in the place of a directory: it leads nowhere.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use plimsoll_repository::restore::{Overwrite, RestoreOptions, RestoreOutcome};
use plimsoll_repository::{Cancel, Id, OpenOptions, Repository, RepositoryError};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, renameat_with};

use crate::fault::Meddle;
use crate::locking::meddled_with;
use crate::world::{World, fingerprint, noise, task};

/// Puts a link in the place of a directory, once if told to, right before one of these packs is read.
struct Swapping {
    packs: Vec<String>,
    is_due: AtomicBool,
    directory: PathBuf,
    aside: PathBuf,
    link_target: PathBuf,
}

impl Meddle for Swapping {
    fn before_get(&self, path: &object_store::path::Path) -> object_store::Result<()> {
        let is_one = path.filename().is_some_and(|name| self.packs.iter().any(|pack| pack == name));
        if is_one && self.is_due.swap(false, Ordering::SeqCst) {
            fs::rename(&self.directory, &self.aside).expect("renames");
            symlink(&self.link_target, &self.directory).expect("a link");
        }
        Ok(())
    }
}

/// A snapshot with everything that is restored in its own way in a directory `d`, and a directory that is none of its business.
struct Two {
    world: World,
    snapshot: Id,
    repository: Arc<Repository>,
    /// Before the packs with the tree of `d`, and without that of the root: they are read when `d` is there and its entries are
    /// not.
    swapping: Arc<Swapping>,
}

impl Two {
    fn new() -> Self {
        let world = World::new();
        fill(&world);
        let repository = world.init();
        world.backup(&repository);
        let packs = names_below(&world.path("repository/data"));
        world.write("z", "so that the root gets another tree");
        let snapshot = world.backup(&repository).snapshot;
        let (is_due, directory) = (AtomicBool::new(false), world.path("restored/d"));
        let (aside, link_target) = (world.path("aside"), world.path("outside"));
        fs::create_dir(&link_target).expect("a directory");
        let swapping = Arc::new(Swapping { packs, is_due, directory, aside, link_target });
        let repository = meddled_with(&world, swapping.clone(), OpenOptions::default());
        Self { world, snapshot, repository, swapping }
    }

    fn target(&self) -> PathBuf {
        self.world.path("restored")
    }

    fn outside(&self) -> PathBuf {
        self.world.path("outside")
    }

    /// Writes below the outside directory.
    fn write(&self, name: &str) -> PathBuf {
        let path = self.outside().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(&path, "of the machine").expect("writes");
        path
    }

    /// Everything about the outside directory.
    fn state(&self) -> (u32, i64, i64, BTreeMap<Vec<u8>, String>) {
        let is = self.outside().metadata().expect("is there");
        (is.mode(), is.mtime(), is.mtime_nsec(), fingerprint(&self.outside()))
    }

    /// Restores; as soon as `d` is there, and before anything is done in it, a link to the outside takes its place. Proves that
    /// nothing happened there, and answers with the names below the target that were named as problems.
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

    /// Takes away what was restored.
    fn clear(&self) {
        fs::remove_dir_all(self.target()).expect("removes");
        fs::remove_dir_all(self.world.path("aside")).expect("removes");
    }
}

/// A file with another name in `d`, where there are also an empty one, a fifo, a directory, a link and one with content.
fn fill(world: &World) {
    let first = world.write("a", noise(1, 5000));
    world.write("d/empty", "");
    world.write("d/file", noise(2, 5000));
    world.write("d/folder/file", noise(3, 5000));
    let d = world.source().join("d");
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
fn nothing_is_made_behind_a_link_that_takes_the_place_of_a_directory_and_all_of_it_is_named() {
    let two = Two::new();
    for is_there in [false, true] {
        for overwrite in MODES {
            if is_there {
                fs::create_dir_all(two.target().join("d")).expect("a directory");
            }
            let named = two.restore_while_swapped(overwrite, false);
            assert_eq!(named, ["d", "d/another name", "d/empty", "d/fifo", "d/file", "d/folder", "d/link"]);
            assert!(two.target().join("a").is_file() && two.target().join("z").is_file(), "the rest is restored");
            two.clear();
        }
    }
}

#[test]
fn what_is_in_the_way_behind_a_link_that_takes_the_place_of_a_directory_is_not_removed() {
    let two = Two::new();
    for name in ["another name", "empty/inside", "fifo", "file/inside", "folder", "link/deep/inside"] {
        two.write(name);
    }
    for overwrite in MODES {
        fs::create_dir_all(two.target().join("d")).expect("a directory");
        let named = two.restore_while_swapped(overwrite, false);
        assert_eq!(named, ["d", "d/another name", "d/empty", "d/fifo", "d/file", "d/folder", "d/link"]);
        two.clear();
    }
}

#[test]
fn what_the_snapshot_does_not_have_is_not_deleted_behind_a_link_that_takes_the_place_of_a_directory() {
    let two = Two::new();
    for name in ["other", "folder/other", "others/deep/inside"] {
        two.write(name);
    }
    fs::create_dir_all(two.target().join("d")).expect("a directory");
    fs::write(two.target().join("other"), "x").expect("writes");
    let named = two.restore_while_swapped(Overwrite::IfChanged, true);
    assert!(named.contains(&"d".to_owned()), "{named:?}");
    assert!(!two.target().join("other").exists(), "where it is wanted it is deleted");
}

#[test]
fn a_file_that_looks_restored_keeps_its_mode_behind_a_link_that_takes_the_place_of_a_directory() {
    let two = Two::new();
    for name in ["file", "empty"] {
        let (copy, original) = (two.write(name), two.world.source().join("d").join(name));
        fs::copy(&original, &copy).expect("copies");
        let mtime = original.metadata().expect("is there").modified().expect("a time");
        fs::File::options().write(true).open(&copy).expect("opens").set_modified(mtime).expect("a time");
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o600)).expect("a mode");
    }
    fs::create_dir_all(two.target().join("d")).expect("a directory");
    let named = two.restore_while_swapped(Overwrite::IfChanged, false);
    assert!(named.contains(&"d/file".to_owned()) && named.contains(&"d/empty".to_owned()), "{named:?}");
}

#[test]
fn a_directory_keeps_its_mode_behind_a_link_that_takes_the_place_of_one_above_it() {
    let two = Two::new();
    fs::create_dir(two.outside().join("folder")).expect("a directory");
    fs::set_permissions(two.outside().join("folder"), fs::Permissions::from_mode(0o700)).expect("a mode");
    fs::create_dir_all(two.target().join("d/folder")).expect("a directory");
    let named = two.restore_while_swapped(Overwrite::Always, false);
    assert!(named.contains(&"d".to_owned()) && named.contains(&"d/folder".to_owned()), "{named:?}");
}

/// Puts a link in the place of `d` and takes it away again, over and over, whatever the restore makes of it.
fn swap_until(done: &AtomicBool, swaps: &AtomicU64, d: &Path, spare: &Path, outside: &Path) {
    while !done.load(Ordering::SeqCst) {
        symlink(outside, spare).expect("a link");
        if renameat_with(CWD, d, CWD, spare, RenameFlags::EXCHANGE).is_ok() {
            swaps.fetch_add(1, Ordering::SeqCst);
            std::thread::yield_now();
            let _ = renameat_with(CWD, d, CWD, spare, RenameFlags::EXCHANGE);
        }
        // A restore that has it open may still put something into it.
        while spare.symlink_metadata().is_ok() {
            let _ = fs::remove_file(spare).or_else(|_| fs::remove_dir_all(spare));
        }
    }
}

#[test]
fn a_directory_that_is_a_link_now_and_then_leads_no_restore_out_of_the_target() {
    let two = Two::new();
    for name in ["another name", "fifo", "link/inside", "other", "folder/other", "others/inside"] {
        two.write(name);
    }
    let (before, done, swaps) = (two.state(), AtomicBool::new(false), AtomicU64::new(0));
    two.restore(Overwrite::Always, true).expect("restores");
    std::thread::scope(|scope| {
        let (d, spare) = (two.target().join("d"), two.world.path("spare"));
        let (outside, done, swaps) = (two.outside(), &done, &swaps);
        scope.spawn(move || swap_until(done, swaps, &d, &spare, &outside));
        let ended: Vec<_> = (0..60).map(|round| two.restore(MODES[round % 2], true)).collect();
        done.store(true, Ordering::SeqCst);
        assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    });
    assert!(swaps.load(Ordering::SeqCst) > 0);
    assert_eq!(two.state(), before, "after {swaps:?} swaps");
    assert_eq!(two.restore(Overwrite::Always, true).expect("restores").problems, []);
    assert_eq!(fingerprint(&two.target()), fingerprint(&two.world.source()));
}
