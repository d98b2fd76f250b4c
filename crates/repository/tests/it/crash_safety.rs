//! A process killed at every write: the repository stays intact, and the next run uses the stored data.

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

use crate::faulty_store::{FailingAfter, FaultyStore, KillAtWrite};
use crate::interop::programs;
use crate::testbed::{PASSWORD, Testbed, check, fingerprint, random_bytes, task};

/// The settings of the killed process.
pub(crate) const FOLDER: &str = "PLIMSOLL_TEST_KILLED_FOLDER";
pub(crate) const AT: &str = "PLIMSOLL_TEST_KILLED_AT";
pub(crate) const IN_THE_MIDDLE: &str = "PLIMSOLL_TEST_KILLED_IN_THE_MIDDLE";

fn small_packs(source: PathBuf) -> BackupOptions {
    BackupOptions { pack_size: 150_000, workers: 1, ..BackupOptions::new(Target::Content(source)) }
}

/// Large enough for direct I/O in a directory.
fn large_packs(source: PathBuf) -> BackupOptions {
    BackupOptions { pack_size: 6 << 20, ..small_packs(source) }
}

fn one_run(store: &Store, handle: &tokio::runtime::Handle, source: PathBuf) -> Result<BackupOutcome, RepositoryError> {
    one_run_with(store, handle, &small_packs(source))
}

/// One run: initializes the repository if it is missing.
fn one_run_with(
    store: &Store,
    handle: &tokio::runtime::Handle,
    options: &BackupOptions,
) -> Result<BackupOutcome, RepositoryError> {
    let open = || Repository::open(store.clone(), handle.clone(), PASSWORD.as_bytes(), OpenOptions::default());
    let repository = match open() {
        Err(RepositoryError::NotFound { .. }) => Repository::init(store.clone(), handle.clone(), PASSWORD.as_bytes()),
        opened => opened,
    };
    Arc::new(repository?).backup(options, &task("backup"), &Cancel::default())
}

#[test]
#[ignore = "only run by the test below, as the process that is killed"]
fn killed_process() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let at = std::env::var(AT).ok().and_then(|at| at.parse().ok()).unwrap_or(usize::MAX);
    let in_the_middle = std::env::var_os(IN_THE_MIDDLE).is_some();
    let root = folder.join("repository");
    std::fs::create_dir_all(&root).expect("a folder");
    let disk = LocalFileSystem::new_with_prefix(&root).expect("a store").with_fsync(true);
    let killing = KillAtWrite { root, at, in_the_middle, count: AtomicUsize::new(0) };
    let store =
        Store::from_objects(FaultyStore::new(Arc::new(disk), Arc::new(killing)), "disk".into(), "").expect("a store");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    one_run(&store, runtime.handle(), folder.join("source")).expect("backs up unless it is killed");
}

#[test]
#[ignore = "only run by a test below, as the process that is killed"]
fn killed_process_with_large_packs() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let store = Store::directory(folder.join("repository"), "").expect("a store");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    one_run_with(&store, runtime.handle(), &large_packs(folder.join("source"))).expect("backs up unless it is killed");
}

/// Incomplete packs, which have a temporary name.
fn unfinished_packs(testbed: &Testbed) -> HashSet<PathBuf> {
    let folders = std::fs::read_dir(testbed.path("repository/data")).into_iter().flatten().flatten();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.path())).flatten().flatten();
    files.map(|file| file.path()).filter(|path| path.to_string_lossy().contains('#')).collect()
}

/// Runs the process and kills it while a pack is written. Returns whether that succeeded.
fn kill_at_a_large_pack(testbed: &Testbed) -> bool {
    let before = unfinished_packs(testbed);
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "crash_safety::killed_process_with_large_packs", "--ignored"])
        .env(FOLDER, testbed.path("."))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("runs");
    while unfinished_packs(testbed).is_subset(&before) && child.try_wait().expect("is there").is_none() {
        std::thread::yield_now();
    }
    child.kill().expect("kills");
    child.wait().expect("ends");
    !unfinished_packs(testbed).is_subset(&before)
}

/// Runs this test as a process that is killed at a write. Returns whether it was killed.
pub(crate) fn run_and_kill(test: &str, testbed: &Testbed, at: usize, in_the_middle: bool) -> bool {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, "--ignored"]);
    command.env(FOLDER, testbed.path(".")).env(AT, at.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
    if in_the_middle {
        command.env(IN_THE_MIDDLE, "yes");
    }
    let status = command.status().expect("runs");
    let killed = std::os::unix::process::ExitStatusExt::signal(&status) == Some(9);
    assert!(killed || status.success(), "{status}");
    killed
}

pub fn restic_checks(program: &Path, testbed: &Testbed) {
    let output = Command::new(program)
        .args(["--no-cache", "--no-lock", "--repo"])
        .arg(testbed.path("repository"))
        .args(["check", "--read-data"])
        .env("RESTIC_PASSWORD", PASSWORD)
        .output()
        .expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The blobs of one run: three files, each in a pack of its own, and four directories, together in one.
const BLOBS: u64 = 7;

/// The number of blobs in complete packs.
fn stored_blobs(testbed: &Testbed) -> u64 {
    let folders = std::fs::read_dir(testbed.path("repository/data")).into_iter().flatten().flatten();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.path())).flatten().flatten();
    let packs = files.filter(|file| !file.file_name().to_string_lossy().contains('#'));
    packs.map(|pack| if pack.metadata().expect("is there").len() > 150_000 { 1 } else { 4 }).sum()
}

/// After a kill: restic check succeeds, the next run succeeds, and adds exactly the missing blobs. Returns their number; `None` if
/// the process was not killed.
fn killed_at(testbed: &Testbed, program: Option<&PathBuf>, at: usize, in_the_middle: bool) -> Option<u64> {
    if testbed.path("repository").exists() {
        std::fs::remove_dir_all(testbed.path("repository")).expect("removes what the kill before has left");
    }
    let incremental = testbed.path("before").is_dir();
    if incremental {
        let copied = Command::new("cp").arg("-a").args([testbed.path("before"), testbed.path("repository")]).status();
        assert!(copied.is_ok_and(|status| status.success()));
    }
    if !run_and_kill("crash_safety::killed_process", testbed, at, in_the_middle) {
        return None;
    }
    let context = format!("killed {} write {at}", if in_the_middle { "in the middle of" } else { "after" });
    if testbed.path("repository/config").exists()
        && let Some(program) = program
    {
        restic_checks(program, testbed);
    }
    let stored = stored_blobs(testbed);
    let again = one_run(&testbed.store(), testbed.runtime.handle(), testbed.source()).expect(&context);
    let added = again.summary.data_blobs + again.summary.tree_blobs;
    assert_eq!(stored + added, stored_blobs(testbed), "{context}: what was stored is not stored again");
    assert_eq!(stored_blobs(testbed), if incremental { 2 * BLOBS } else { BLOBS }, "{context}");
    assert_eq!(again.summary.files_unmodified > 0, incremental || again.summary.files_new == 0, "{context}");
    if let Some(program) = program {
        restic_checks(program, testbed);
    }
    let repository = testbed.open();
    let found = check(&repository);
    assert_eq!((found.errors, found.hints), (vec![], vec![]), "{context}");
    let _ = std::fs::remove_dir_all(testbed.path("restored"));
    assert_eq!(testbed.restore(&repository, again.snapshot).problems, [], "{context}");
    assert_eq!(fingerprint(&testbed.path("restored")), fingerprint(&testbed.source()), "{context}");
    Some(added)
}

#[test]
fn a_kill_at_every_write_leaves_an_intact_repository_and_stored_data_is_reused() {
    let testbed = Testbed::new();
    for number in 0..3 {
        testbed.write(&format!("folder {number}/file"), random_bytes(number, 200_000));
    }
    let added = kill_at_every_write(&testbed, 10);
    assert!(added.iter().any(|blobs| (1..7).contains(blobs)), "in between a part of it: {added:?}");
}

#[test]
fn a_kill_at_every_write_of_an_incremental_backup_keeps_the_parent_and_stored_data() {
    let testbed = Testbed::new();
    for number in 0..3 {
        testbed.write(&format!("folder {number}/file"), random_bytes(number, 200_000));
    }
    one_run(&testbed.store(), testbed.runtime.handle(), testbed.source()).expect("backs up");
    std::fs::rename(testbed.path("repository"), testbed.path("before")).expect("moves");
    for number in 0..3 {
        testbed.write(&format!("folder {number}/one more"), random_bytes(10 + number, 200_000));
    }
    // Its few packs are uploaded concurrently: all of them may exist before the first one is counted.
    kill_at_every_write(&testbed, 8);
}

/// The number of blobs that the next run added after each kill.
fn kill_at_every_write(testbed: &Testbed, at_least: usize) -> Vec<u64> {
    let (programs, mut all) = (programs(), Vec::new());
    for in_the_middle in [false, true] {
        let mut added = Vec::new();
        for at in 0.. {
            let program = programs.get(at % programs.len().max(1));
            let Some(blobs) = killed_at(testbed, program, at, in_the_middle) else { break };
            added.push(blobs);
        }
        assert!(added.len() >= at_least, "{} writes are enough to mean something", added.len());
        assert_eq!(added.last(), Some(&0), "in the end everything was there: {added:?}");
        all.extend(added);
    }
    all
}

#[test]
fn a_kill_during_direct_io_of_a_pack_leaves_an_intact_repository() {
    let testbed = Testbed::new();
    for number in 0..6 {
        testbed.write(&format!("file {number}"), random_bytes(number, 8 << 20));
    }
    let program = programs().pop();
    let check_all = || {
        if let Some(program) = &program {
            restic_checks(program, &testbed);
        }
        assert_eq!(check(&testbed.open()).errors, Vec::<String>::new());
    };
    drop(testbed.init());
    let mut caught = 0;
    for _ in 0..3 {
        caught += usize::from(kill_at_a_large_pack(&testbed));
        check_all();
    }
    assert!(caught > 0, "it was killed at least once with a pack half written");
    let again =
        one_run_with(&testbed.store(), testbed.runtime.handle(), &large_packs(testbed.source())).expect("backs up");
    check_all();
    let restored = testbed.restore(&testbed.open(), again.snapshot);
    assert_eq!(restored.problems, []);
    assert_eq!(fingerprint(&testbed.path("restored")), fingerprint(&testbed.source()));
}

#[test]
fn a_failing_store_ends_the_backup_with_its_reason() {
    let testbed = Testbed::new();
    testbed.write("file", random_bytes(9, 2_000_000));
    let memory = Arc::new(InMemory::new());
    let store = |objects| Store::from_objects(objects, "memory".into(), "").expect("a store");
    Repository::init(store(memory.clone()), testbed.runtime.handle().clone(), PASSWORD.as_bytes())
        .expect("initializes");
    let repository = testbed.open_on(store(FaultyStore::new(memory, FailingAfter::after(2))));
    let failed = repository.backup(&small_packs(testbed.source()), &task("backup"), &Cancel::default());
    let error = failed.expect_err("fails");
    assert_eq!((error.reason(), error.is_retryable()), ("StoreUnavailable", true));
    assert!(error.to_string().contains("killed"), "{error}");
}

#[test]
fn after_two_concurrent_inits_both_can_open_the_repository() {
    let testbed = Testbed::new();
    let (store, handle) = (testbed.store(), testbed.runtime.handle().clone());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| match Repository::init(store.clone(), handle.clone(), PASSWORD.as_bytes()) {
                Ok(_) | Err(RepositoryError::AlreadyInitialized { .. }) => {}
                Err(error) => panic!("{error}"),
            });
        }
    });
    let repository = testbed.open();
    assert_eq!(
        std::fs::read_dir(testbed.path("repository/keys")).expect("lists").count(),
        1,
        "only the key that counts"
    );
    testbed.write("file", "content");
    testbed.backup(&repository);
    assert_eq!(check(&repository).errors, Vec::<String>::new());
}
