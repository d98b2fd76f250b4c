//! A prune that is killed at every write, also twice: nothing that a snapshot needs is lost, and the next prune finishes the job.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use futures::TryStreamExt;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use plimsoll_repository::backup::Parent;
use plimsoll_repository::{Cancel, Id, OpenOptions, PruneOptions, Repository};
use plimsoll_store::Store;

use crate::crash_safety::{AT, FOLDER, IN_THE_MIDDLE, restic_checks, run_and_kill};
use crate::faulty_store::{FaultyStore, KillAtWrite, StoppableWrites};
use crate::interop::programs;
use crate::prune::{backup, forget, plan, prune, small_packs, thorough};
use crate::testbed::{PASSWORD, Testbed, check, fingerprint, random_bytes, task};

/// A repository with packs of every kind: unused, partly used, with further copies, and in no index file. Returns the snapshot that is
/// left.
fn fill(testbed: &Testbed, repository: &Arc<Repository>) -> Id {
    for number in 0..6 {
        testbed.write(&format!("folder {}/file {number}", number % 2), random_bytes(number, 60_000));
    }
    let old = backup(testbed, repository).snapshot;
    for number in [0, 1, 4] {
        std::fs::remove_file(testbed.source().join(format!("folder {}/file {number}", number % 2))).expect("removes");
    }
    testbed.write("folder 0/new", random_bytes(10, 60_000));
    let new = backup(testbed, repository).snapshot;
    forget(repository, &[old]);
    new
}

fn options() -> PruneOptions {
    // Two rounds, so that the second one begins with the result of the first.
    PruneOptions { round_bytes: 1, ..thorough() }
}

#[test]
#[ignore = "only run by the test below, as the process that is killed"]
fn killed_prune() {
    let Some(folder) = std::env::var_os(FOLDER).map(std::path::PathBuf::from) else { return };
    let at = std::env::var(AT).ok().and_then(|at| at.parse().ok()).unwrap_or(usize::MAX);
    let in_the_middle = std::env::var_os(IN_THE_MIDDLE).is_some();
    let root = folder.join("repository");
    let disk = LocalFileSystem::new_with_prefix(&root).expect("a store").with_fsync(true);
    let killing = KillAtWrite { root, at, in_the_middle, count: AtomicUsize::new(0) };
    let store =
        Store::from_objects(FaultyStore::new(Arc::new(disk), Arc::new(killing)), "disk".into(), "").expect("a store");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let opened = Repository::open(store, runtime.handle().clone(), PASSWORD.as_bytes(), OpenOptions::default());
    prune(&Arc::new(opened.expect("opens")), options());
}

#[test]
fn after_a_kill_at_every_write_restic_finds_no_error_and_the_next_prune_finishes() {
    let testbed = Testbed::new();
    let snapshot = fill(&testbed, &testbed.init());
    std::fs::rename(testbed.path("repository"), testbed.path("before")).expect("moves");
    let programs = programs();
    for in_the_middle in [false, true] {
        let mut kills = 0;
        for at in 0.. {
            let _ = std::fs::remove_dir_all(testbed.path("repository"));
            let copied =
                Command::new("cp").arg("-a").args([testbed.path("before"), testbed.path("repository")]).status();
            assert!(copied.is_ok_and(|status| status.success()));
            if !run_and_kill("prune_crash_safety::killed_prune", &testbed, at, in_the_middle) {
                break;
            }
            kills += 1;
            if let Some(program) = programs.get(at % programs.len().max(1)) {
                restic_checks(program, &testbed);
            }
            let context = format!("killed {} write {at}", if in_the_middle { "in the middle of" } else { "after" });
            let repository = testbed.open();
            assert_eq!(check(&repository).errors, Vec::<String>::new(), "{context}");
            prune(&repository, options());
            assert_pruned(&repository, &context);
        }
        assert!(kills >= 15, "{kills} writes are enough to mean something");
    }
    let repository = testbed.open();
    assert_eq!(testbed.restore(&repository, snapshot).problems, []);
    assert_eq!(fingerprint(&testbed.path("restored")), fingerprint(&testbed.source()));
}

fn assert_pruned(repository: &Arc<Repository>, context: &str) {
    let found = check(repository);
    assert_eq!((found.errors, found.hints), (vec![], vec![]), "{context}");
    let planned = plan(repository, options());
    assert_eq!((planned.unused_bytes, planned.unindexed_packs), (0, 0), "{context}: {planned:?}");
}

/// A repository in memory whose writes can be stopped.
struct StoppableRepository {
    memory: Arc<InMemory>,
    writes: Arc<StoppableWrites>,
    repository: Arc<Repository>,
}

impl StoppableRepository {
    fn new(testbed: &Testbed, content: &BTreeMap<Path, bytes::Bytes>) -> Self {
        let (memory, writes) = (Arc::new(InMemory::new()), StoppableWrites::unlimited());
        let store = Store::from_objects(FaultyStore::new(memory.clone(), writes.clone()), "memory".into(), "");
        testbed.runtime.block_on(put_all(&memory, content));
        let repository = testbed.open_on(store.expect("a store"));
        Self { memory, writes, repository }
    }

    /// Prunes until this number of writes. Returns whether it was stopped.
    fn prune_until(&self, writes: usize) -> bool {
        self.writes.stop_after(writes);
        let (task, cancel) = (task("prune"), Cancel::default());
        let prepared = self.repository.prepare_prune(options(), &task, &cancel);
        let pruned = prepared.and_then(|prepared| prepared.run(&task, &cancel));
        let stopped = self.writes.has_stopped();
        self.writes.stop_after(usize::MAX);
        assert!(stopped || pruned.is_ok(), "{pruned:?}");
        stopped
    }
}

async fn put_all(memory: &InMemory, content: &BTreeMap<Path, bytes::Bytes>) {
    let existing: Vec<_> = memory.list(None).try_collect().await.expect("lists");
    for object in existing {
        memory.delete(&object.location).await.expect("deletes");
    }
    for (path, bytes) in content {
        memory.put(path, bytes.clone().into()).await.expect("puts");
    }
}

async fn get_all(memory: &InMemory) -> BTreeMap<Path, bytes::Bytes> {
    let objects: Vec<_> = memory.list(None).try_collect().await.expect("lists");
    let mut content = BTreeMap::new();
    for object in objects {
        // A lock of a process that was killed: an administrator, or the server, removes it.
        if !object.location.as_ref().starts_with("locks") {
            let bytes = memory.get(&object.location).await.expect("gets").bytes().await.expect("reads");
            content.insert(object.location, bytes);
        }
    }
    content
}

#[test]
fn all_pairs_of_kills_lose_nothing() {
    let testbed = Testbed::new();
    let memory = Arc::new(InMemory::new());
    let store = || Store::from_objects(memory.clone(), "memory".into(), "").expect("a store");
    let repository = Repository::init(store(), testbed.runtime.handle().clone(), PASSWORD.as_bytes());
    fill(&testbed, &Arc::new(repository.expect("initializes")));
    let before = testbed.runtime.block_on(get_all(&memory));
    let (next, pairs) = (AtomicUsize::new(0), Mutex::new(0_usize));
    let work = || {
        let stoppable = StoppableRepository::new(&testbed, &before);
        loop {
            let first = next.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            testbed.runtime.block_on(put_all(&stoppable.memory, &before));
            if !stoppable.prune_until(first) {
                return;
            }
            let between = testbed.runtime.block_on(get_all(&stoppable.memory));
            for second in 0.. {
                testbed.runtime.block_on(put_all(&stoppable.memory, &between));
                let stopped = stoppable.prune_until(second);
                let context = format!("stopped at write {first} and again at write {second}");
                let after = testbed.runtime.block_on(get_all(&stoppable.memory));
                testbed.runtime.block_on(put_all(&stoppable.memory, &after));
                assert_eq!(check(&stoppable.repository).errors, Vec::<String>::new(), "{context}");
                *pairs.lock().expect("not poisoned") += 1;
                if !stopped {
                    assert_pruned(&stoppable.repository, &context);
                    break;
                }
                if (first + second) % 7 == 0 {
                    prune(&stoppable.repository, options());
                    assert_pruned(&stoppable.repository, &context);
                }
            }
        }
    };
    std::thread::scope(|scope| (0..16).for_each(|_| drop(scope.spawn(work))));
    let pairs = *pairs.lock().expect("not poisoned");
    assert!(pairs >= 200, "{pairs} pairs are enough to mean something");
}

#[test]
fn a_backup_between_a_kill_and_the_next_prune_is_kept() {
    let testbed = Testbed::new();
    let memory = Arc::new(InMemory::new());
    let store = Store::from_objects(memory.clone(), "memory".into(), "").expect("a store");
    let repository = Repository::init(store, testbed.runtime.handle().clone(), PASSWORD.as_bytes());
    fill(&testbed, &Arc::new(repository.expect("initializes")));
    let before = testbed.runtime.block_on(get_all(&memory));
    let stoppable = StoppableRepository::new(&testbed, &before);
    // The forgotten files again: their blobs may still be in the index, and their packs about to be deleted.
    testbed.write("folder 0/file 0 again", random_bytes(0, 60_000));
    testbed.write("folder 1/file 1 again", random_bytes(1, 60_000));
    for first in 0.. {
        testbed.runtime.block_on(put_all(&stoppable.memory, &before));
        let stopped = stoppable.prune_until(first);
        let after = testbed.runtime.block_on(get_all(&stoppable.memory));
        testbed.runtime.block_on(put_all(&stoppable.memory, &after));
        let options_of_backup = plimsoll_repository::backup::BackupOptions {
            parent: Parent::None,
            resumed: first % 2 == 0,
            ..small_packs(&testbed)
        };
        let backed_up = stoppable.repository.backup(&options_of_backup, &task("backup"), &Cancel::default());
        backed_up.expect("backs up");
        prune(&stoppable.repository, options());
        assert_pruned(&stoppable.repository, &format!("stopped at write {first}"));
        if !stopped {
            break;
        }
    }
}
