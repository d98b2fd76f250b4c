//! Killed at every write: the repository stays good, and what was stored is used by the next run.

use std::sync::Arc;

use object_store::memory::InMemory;
use plimsoll_repository::backup::{BackupOptions, Target};
use plimsoll_repository::{Cancel, OpenOptions, Repository};
use plimsoll_store::Store;

use crate::fault::Frozen;
use crate::world::{PASSWORD, World, check, fingerprint, noise, task};

fn small_packs(world: &World) -> BackupOptions {
    BackupOptions { pack_size: 150_000, workers: 1, ..world.options() }
}

#[test]
fn a_kill_at_any_write_leaves_a_good_repository_and_the_next_run_reuses_what_was_stored() {
    let world = World::new();
    for number in 0..4 {
        world.write(&format!("folder {number}/file"), noise(number, 200_000));
    }
    let everything = whole_run(&world);
    assert!(everything >= 8, "{everything} writes are enough to mean something");
    let mut added = Vec::new();
    for writes in 0..everything {
        added.push(killed_after(&world, writes));
    }
    assert!(added.windows(2).all(|pair| pair[1] <= pair[0]), "the more was stored, the less is added: {added:?}");
    assert_eq!(added.last(), Some(&0), "only the snapshot was missing: {added:?}");
}

fn whole_run(world: &World) -> usize {
    let memory = Arc::new(InMemory::new());
    let store = |objects| Store::from_objects(objects, "memory".into(), "").expect("a store");
    Repository::init(store(memory.clone()), world.runtime.handle().clone(), PASSWORD.as_bytes()).expect("initializes");
    let frozen = Frozen::after(memory, 1000);
    let repository = world.open_on(store(Arc::new(frozen.clone())));
    repository.backup(&small_packs(world), &task("backup"), &Cancel::default()).expect("backs up");
    1000 - frozen.left()
}

/// Runs until the given write, then again; answers with the blobs the second run had to add.
fn killed_after(world: &World, writes: usize) -> u64 {
    let memory = Arc::new(InMemory::new());
    let store = |objects| Store::from_objects(objects, "memory".into(), "").expect("a store");
    Repository::init(store(memory.clone()), world.runtime.handle().clone(), PASSWORD.as_bytes()).expect("initializes");
    let killed = world.open_on(store(Arc::new(Frozen::after(memory.clone(), writes))));
    killed.backup(&small_packs(world), &task("killed"), &Cancel::default()).expect_err("does not end well");

    let repository = world.open_on(store(memory));
    // The lock of a killed process stays; this one lives on, so it must be told.
    repository.unlock(true).expect("unlocks");
    let found = check(&repository);
    assert_eq!((found.errors, found.snapshots), (vec![], 0), "after {writes} writes");
    let again = repository.backup(&small_packs(world), &task("again"), &Cancel::default()).expect("backs up");
    let found = check(&repository);
    assert_eq!((found.errors, found.hints, found.snapshots), (vec![], vec![], 1), "after {writes} writes");
    let _ = std::fs::remove_dir_all(world.path("restored"));
    world.restore(&repository, again.snapshot);
    assert_eq!(fingerprint(&world.path("restored")), fingerprint(&world.source()), "after {writes} writes");
    again.summary.data_blobs + again.summary.tree_blobs
}

#[test]
fn a_store_that_fails_ends_the_backup_with_its_reason() {
    let world = World::new();
    world.write("file", noise(9, 2_000_000));
    let memory = Arc::new(InMemory::new());
    let store = |objects| Store::from_objects(objects, "memory".into(), "").expect("a store");
    Repository::init(store(memory.clone()), world.runtime.handle().clone(), PASSWORD.as_bytes()).expect("initializes");
    let repository = world.open_on(store(Arc::new(Frozen::after(memory, 2))));
    let error = repository.backup(&small_packs(&world), &task("backup"), &Cancel::default()).expect_err("fails");
    assert_eq!((error.reason(), error.is_retryable()), ("StoreUnavailable", true));
    assert!(error.to_string().contains("killed"), "{error}");
}

/// Where the process that is killed finds its work; set only for that process.
const FOLDER: &str = "PLIMSOLL_TEST_KILLED_FOLDER";

#[test]
#[ignore = "only run by the test below, as the process that is killed"]
fn the_process_that_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER).map(std::path::PathBuf::from) else { return };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let store = Store::directory(folder.join("repository"), "").expect("a store");
    let opened = Repository::open(store, runtime.handle().clone(), PASSWORD.as_bytes(), OpenOptions::default());
    let repository = Arc::new(opened.expect("opens"));
    let options = BackupOptions { pack_size: 1 << 20, ..BackupOptions::new(Target::Content(folder.join("source"))) };
    repository.backup(&options, &task("backup"), &Cancel::default()).expect("is killed before it ends");
}

/// Enough that the process is still at it when its first packs are there.
const FILES: u64 = 200;

/// Packs that are complete: what is still being written has another name.
fn whole_packs(data: &std::path::Path) -> usize {
    let entries = |folder: &std::path::Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_pack = |name: &std::ffi::OsStr| name.len() == 64;
    entries(data).flat_map(|folder| entries(&folder.path())).filter(|file| is_pack(&file.file_name())).count()
}

#[test]
fn after_a_real_kill_the_stale_lock_is_no_obstacle_and_the_stored_packs_are_used() {
    let world = World::new();
    for number in 0..FILES {
        world.write(&format!("file {number}"), noise(number, 400_000));
    }
    drop(world.init());
    let mut process = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "crashing::the_process_that_is_killed", "--ignored"])
        .env(FOLDER, world.path("."))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("starts");
    while whole_packs(&world.path("repository/data")) < 3 {
        assert!(process.try_wait().expect("asks").is_none(), "it ended before it was killed");
        std::thread::yield_now();
    }
    process.kill().expect("kills");
    process.wait().expect("ends");
    let left = std::fs::read_dir(world.path("repository/locks")).map_or(0, Iterator::count);
    assert_eq!(left, 1, "its lock is left behind");
    let repository = world.open();
    assert_eq!(check(&repository).errors, Vec::<String>::new(), "the lock of a dead process does not count");
    let options = BackupOptions { pack_size: 1 << 20, ..world.options() };
    let outcome = repository.backup(&options, &task("again"), &Cancel::default()).expect("backs up");
    assert!(outcome.summary.data_blobs < FILES, "{} of {FILES} blobs were stored again", outcome.summary.data_blobs);
    let found = check(&repository);
    assert_eq!((found.errors, found.hints, found.snapshots), (vec![], vec![], 1));
}
