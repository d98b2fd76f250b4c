//! Killed at every write: the repository stays good, and what was stored is used by the next run.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use plimsoll_repository::backup::{BackupOptions, BackupOutcome, Target};
use plimsoll_repository::{Cancel, OpenOptions, Repository, RepositoryError};
use plimsoll_store::Store;

use crate::fault::{Frozen, Killing, Meddled};
use crate::interop::programs;
use crate::world::{PASSWORD, World, check, fingerprint, noise, task};

/// Where the process that is killed finds its work, and when it is killed; set only for that process.
const FOLDER: &str = "PLIMSOLL_TEST_KILLED_FOLDER";
const AT: &str = "PLIMSOLL_TEST_KILLED_AT";
const IN_THE_MIDDLE: &str = "PLIMSOLL_TEST_KILLED_IN_THE_MIDDLE";

fn small_packs(source: PathBuf) -> BackupOptions {
    BackupOptions { pack_size: 150_000, workers: 1, ..BackupOptions::new(Target::Content(source)) }
}

/// Large enough to be written past the cache where the store is a directory.
fn large_packs(source: PathBuf) -> BackupOptions {
    BackupOptions { pack_size: 6 << 20, ..small_packs(source) }
}

fn one_run(store: &Store, handle: &tokio::runtime::Handle, source: PathBuf) -> Result<BackupOutcome, RepositoryError> {
    one_run_with(store, handle, &small_packs(source))
}

/// One run as a scheduler makes it: the repository is made if there is none.
fn one_run_with(
    store: &Store,
    handle: &tokio::runtime::Handle,
    options: &BackupOptions,
) -> Result<BackupOutcome, RepositoryError> {
    let open = || Repository::open(store.clone(), handle.clone(), PASSWORD.as_bytes(), OpenOptions::default());
    let repository = match open() {
        Err(RepositoryError::NotARepository { .. }) => {
            Repository::init(store.clone(), handle.clone(), PASSWORD.as_bytes())
        }
        opened => opened,
    };
    Arc::new(repository?).backup(options, &task("backup"), &Cancel::default())
}

#[test]
#[ignore = "only run by the test below, as the process that is killed"]
fn the_process_that_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let at = std::env::var(AT).ok().and_then(|at| at.parse().ok()).unwrap_or(usize::MAX);
    let in_the_middle = std::env::var_os(IN_THE_MIDDLE).is_some();
    let root = folder.join("repository");
    std::fs::create_dir_all(&root).expect("a folder");
    let disk = LocalFileSystem::new_with_prefix(&root).expect("a store").with_fsync(true);
    let killing = Killing { root, at, in_the_middle, count: AtomicUsize::new(0) };
    let store =
        Store::from_objects(Meddled::new(Arc::new(disk), Arc::new(killing)), "disk".into(), "").expect("a store");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    one_run(&store, runtime.handle(), folder.join("source")).expect("backs up unless it is killed");
}

#[test]
#[ignore = "only run by a test below, as the process that is killed"]
fn the_process_with_large_packs() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let store = Store::directory(folder.join("repository"), "").expect("a store");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    one_run_with(&store, runtime.handle(), &large_packs(folder.join("source"))).expect("backs up unless it is killed");
}

/// Packs that are being written: they have another name until they are complete.
fn unfinished_packs(world: &World) -> HashSet<PathBuf> {
    let folders = std::fs::read_dir(world.path("repository/data")).into_iter().flatten().flatten();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.path())).flatten().flatten();
    files.map(|file| file.path()).filter(|path| path.to_string_lossy().contains('#')).collect()
}

/// Runs it, and kills it as soon as a pack is being written. Says whether it was caught at that.
fn kill_at_a_large_pack(world: &World) -> bool {
    let before = unfinished_packs(world);
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "crashing::the_process_with_large_packs", "--ignored"])
        .env(FOLDER, world.path("."))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("runs");
    while unfinished_packs(world).is_subset(&before) && child.try_wait().expect("is there").is_none() {
        std::thread::yield_now();
    }
    child.kill().expect("kills");
    child.wait().expect("ends");
    !unfinished_packs(world).is_subset(&before)
}

/// Runs it; says whether it was killed.
fn run_and_kill(world: &World, at: usize, in_the_middle: bool) -> bool {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "crashing::the_process_that_is_killed", "--ignored"]);
    command.env(FOLDER, world.path(".")).env(AT, at.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
    if in_the_middle {
        command.env(IN_THE_MIDDLE, "yes");
    }
    let status = command.status().expect("runs");
    let killed = std::os::unix::process::ExitStatusExt::signal(&status) == Some(9);
    assert!(killed || status.success(), "{status}");
    killed
}

fn restic_checks(program: &Path, world: &World) {
    let output = Command::new(program)
        .args(["--no-cache", "--no-lock", "--repo"])
        .arg(world.path("repository"))
        .args(["check", "--read-data"])
        .env("RESTIC_PASSWORD", PASSWORD)
        .output()
        .expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The blobs of one run: three files, each in a pack of its own, and four directories, together in one.
const BLOBS: u64 = 7;

/// Blobs in packs that are complete, whichever of those under way were when the end came.
fn stored_blobs(world: &World) -> u64 {
    let folders = std::fs::read_dir(world.path("repository/data")).into_iter().flatten().flatten();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.path())).flatten().flatten();
    let packs = files.filter(|file| !file.file_name().to_string_lossy().contains('#'));
    packs.map(|pack| if pack.metadata().expect("is there").len() > 150_000 { 1 } else { 4 }).sum()
}

/// After a kill: restic is content, the next run ends well, and adds exactly what was not stored. Answers with what
/// it added; nothing when the process was not killed any more.
fn killed_at(world: &World, program: Option<&PathBuf>, at: usize, in_the_middle: bool) -> Option<u64> {
    if world.path("repository").exists() {
        std::fs::remove_dir_all(world.path("repository")).expect("removes what the kill before has left");
    }
    let incremental = world.path("before").is_dir();
    if incremental {
        let copied = Command::new("cp").arg("-a").args([world.path("before"), world.path("repository")]).status();
        assert!(copied.is_ok_and(|status| status.success()));
    }
    if !run_and_kill(world, at, in_the_middle) {
        return None;
    }
    let context = format!("killed {} write {at}", if in_the_middle { "in the middle of" } else { "after" });
    if world.path("repository/config").exists()
        && let Some(program) = program
    {
        restic_checks(program, world);
    }
    let stored = stored_blobs(world);
    let again = one_run(&world.store(), world.runtime.handle(), world.source()).expect(&context);
    let added = again.summary.data_blobs + again.summary.tree_blobs;
    assert_eq!(stored + added, stored_blobs(world), "{context}: what was stored is not stored again");
    assert_eq!(stored_blobs(world), if incremental { 2 * BLOBS } else { BLOBS }, "{context}");
    assert_eq!(again.summary.files_unmodified > 0, incremental || again.summary.files_new == 0, "{context}");
    if let Some(program) = program {
        restic_checks(program, world);
    }
    let repository = world.open();
    let found = check(&repository);
    assert_eq!((found.errors, found.hints), (vec![], vec![]), "{context}");
    let _ = std::fs::remove_dir_all(world.path("restored"));
    assert_eq!(world.restore(&repository, again.snapshot).problems, [], "{context}");
    assert_eq!(fingerprint(&world.path("restored")), fingerprint(&world.source()), "{context}");
    Some(added)
}

#[test]
fn a_real_kill_at_every_write_leaves_what_restic_accepts_and_the_next_run_reuses_what_was_stored() {
    let world = World::new();
    for number in 0..3 {
        world.write(&format!("folder {number}/file"), noise(number, 200_000));
    }
    let added = kill_at_every_write(&world, 10);
    assert!(added.iter().any(|blobs| (1..7).contains(blobs)), "in between a part of it: {added:?}");
}

#[test]
fn a_real_kill_at_every_write_of_an_incremental_backup_costs_neither_the_parent_nor_what_was_stored() {
    let world = World::new();
    for number in 0..3 {
        world.write(&format!("folder {number}/file"), noise(number, 200_000));
    }
    one_run(&world.store(), world.runtime.handle(), world.source()).expect("backs up");
    std::fs::rename(world.path("repository"), world.path("before")).expect("moves");
    for number in 0..3 {
        world.write(&format!("folder {number}/one more"), noise(10 + number, 200_000));
    }
    // Its few packs are uploaded side by side: all of them may be there before the first one is counted.
    kill_at_every_write(&world, 8);
}

/// What the next run added after each kill.
fn kill_at_every_write(world: &World, at_least: usize) -> Vec<u64> {
    let (programs, mut all) = (programs(), Vec::new());
    for in_the_middle in [false, true] {
        let mut added = Vec::new();
        for at in 0.. {
            let program = programs.get(at % programs.len().max(1));
            let Some(blobs) = killed_at(world, program, at, in_the_middle) else { break };
            added.push(blobs);
        }
        assert!(added.len() >= at_least, "{} writes are enough to mean something", added.len());
        assert_eq!(added.last(), Some(&0), "in the end everything was there: {added:?}");
        all.extend(added);
    }
    all
}

#[test]
fn a_real_kill_while_a_large_pack_is_written_past_the_cache_leaves_what_restic_accepts() {
    let world = World::new();
    for number in 0..6 {
        world.write(&format!("file {number}"), noise(number, 8 << 20));
    }
    let program = programs().pop();
    let check_all = || {
        if let Some(program) = &program {
            restic_checks(program, &world);
        }
        assert_eq!(check(&world.open()).errors, Vec::<String>::new());
    };
    drop(world.init());
    let mut caught = 0;
    for _ in 0..3 {
        caught += usize::from(kill_at_a_large_pack(&world));
        check_all();
    }
    assert!(caught > 0, "it was killed at least once with a pack half written");
    let again = one_run_with(&world.store(), world.runtime.handle(), &large_packs(world.source())).expect("backs up");
    check_all();
    let restored = world.restore(&world.open(), again.snapshot);
    assert_eq!(restored.problems, []);
    assert_eq!(fingerprint(&world.path("restored")), fingerprint(&world.source()));
}

#[test]
fn a_store_that_fails_ends_the_backup_with_its_reason() {
    let world = World::new();
    world.write("file", noise(9, 2_000_000));
    let memory = Arc::new(InMemory::new());
    let store = |objects| Store::from_objects(objects, "memory".into(), "").expect("a store");
    Repository::init(store(memory.clone()), world.runtime.handle().clone(), PASSWORD.as_bytes()).expect("initializes");
    let repository = world.open_on(store(Meddled::new(memory, Frozen::after(2))));
    let failed = repository.backup(&small_packs(world.source()), &task("backup"), &Cancel::default());
    let error = failed.expect_err("fails");
    assert_eq!((error.reason(), error.is_retryable()), ("StoreUnavailable", true));
    assert!(error.to_string().contains("killed"), "{error}");
}

#[test]
fn of_two_who_make_a_repository_at_the_same_moment_both_can_open_it_afterwards() {
    let world = World::new();
    let (store, handle) = (world.store(), world.runtime.handle().clone());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| match Repository::init(store.clone(), handle.clone(), PASSWORD.as_bytes()) {
                Ok(_) | Err(RepositoryError::AlreadyInitialized { .. }) => {}
                Err(error) => panic!("{error}"),
            });
        }
    });
    let repository = world.open();
    assert_eq!(std::fs::read_dir(world.path("repository/keys")).expect("lists").count(), 1, "only the key that counts");
    world.write("file", "content");
    world.backup(&repository);
    assert_eq!(check(&repository).errors, Vec::<String>::new());
}
