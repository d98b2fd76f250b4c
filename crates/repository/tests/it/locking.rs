//! Locks: conflicts, refresh, and removal of stale locks.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use object_store::PutPayload;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use plimsoll_progress::{Clock, Operation, VirtualClock};
use plimsoll_repository::backup::BackupOptions;
use plimsoll_repository::format::crypto::Key;
use plimsoll_repository::format::key::KeyFile;
use plimsoll_repository::format::time::Time;
use plimsoll_repository::format::unpacked;
use plimsoll_repository::{Cancel, Id, Lock, LockFile, LockHolder, LockKind, OpenOptions, Repository};
use plimsoll_store::Store;

use crate::faulty_store::{AppendOnly, BlockedWrites, Fault, FaultyStore, refused};
use crate::interop::{self, Restic};
use crate::testbed::{PASSWORD, Testbed, check, random_bytes, task};

pub fn lock_files(testbed: &Testbed) -> Vec<PathBuf> {
    std::fs::read_dir(testbed.path("repository/locks"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|file| file.path())
        .collect()
}

/// A repository on a faulty directory, with a virtual clock.
fn open_faulty(testbed: &Testbed, fault: Arc<dyn Fault>, clock: &VirtualClock) -> Arc<Repository> {
    open_with_fault(testbed, fault, OpenOptions { clock: Some(clock.clock()), ..OpenOptions::default() })
}

pub fn open_with_fault(testbed: &Testbed, fault: Arc<dyn Fault>, options: OpenOptions) -> Arc<Repository> {
    let disk = LocalFileSystem::new_with_prefix(testbed.path("repository")).expect("a store");
    let store = Store::from_objects(FaultyStore::new(Arc::new(disk), fault), "disk".into(), "").expect("a store");
    let handle = testbed.runtime.handle().clone();
    Arc::new(Repository::open(store, handle, PASSWORD.as_bytes(), options).expect("opens"))
}

pub fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let started = Instant::now();
    while !happened() {
        assert!(started.elapsed() < MINUTE, "waited a minute until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A store that behaves.
struct NoFault;
impl Fault for NoFault {}

fn master_key(testbed: &Testbed) -> Key {
    let file =
        std::fs::read_dir(testbed.path("repository/keys")).expect("lists").next().expect("a key").expect("a key");
    let file = KeyFile::parse(&std::fs::read(file.path()).expect("reads")).expect("a key file");
    file.unlock(PASSWORD.as_bytes()).expect("opens")
}

/// A lock of another process, with its ages by the holder's and the store's clock.
fn foreign_lock(testbed: &Testbed, exclusive: bool, by_holder: Duration, by_store: Duration) -> PathBuf {
    lock_of(testbed, "another-machine", 1, exclusive, by_holder, by_store)
}

fn lock_of(
    testbed: &Testbed,
    hostname: &str,
    pid: u32,
    exclusive: bool,
    by_holder: Duration,
    by_store: Duration,
) -> PathBuf {
    let written = SystemTime::now() - by_holder;
    let seconds = written.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
    let time = Time::utc(i64::try_from(seconds).expect("small"), 0);
    let (hostname, username) = (hostname.into(), "user".into());
    let file = LockFile { time, exclusive, hostname, username, pid, uid: 0, gid: 0 };
    let encrypted =
        unpacked::encode(&serde_json::to_vec(&file).expect("encodes"), 2, &master_key(testbed)).expect("seals");
    put_lock(testbed, &encrypted, by_store)
}

/// A PID above the system's limit.
const UNUSED_PID: u32 = 0x7fff_fff0;

pub fn put_lock(testbed: &Testbed, content: &[u8], by_store: Duration) -> PathBuf {
    let path = testbed.path("repository/locks").join(Id::of(content).to_string());
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    std::fs::write(&path, content).expect("writes");
    let file = std::fs::File::options().write(true).open(&path).expect("opens");
    file.set_modified(SystemTime::now() - by_store).expect("a time");
    path
}

const MINUTE: Duration = Duration::from_mins(1);
const NOW: Duration = Duration::ZERO;

#[test]
fn an_exclusive_lock_conflicts_with_all_and_a_shared_one_with_exclusive_ones() {
    let testbed = Testbed::new();
    let repository = testbed.init();
    let shared = Lock::take(&repository, LockKind::Shared).expect("the first");
    let second = Lock::take(&repository, LockKind::Shared).expect("the second beside it");
    let error = Lock::take(&repository, LockKind::Exclusive).expect_err("excluded");
    assert_eq!((error.reason(), error.is_retryable()), ("RepositoryLocked", true));
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    drop((shared, second));
    let exclusive = Lock::take(&repository, LockKind::Exclusive).expect("alone");
    exclusive.check().expect("fresh");
    Lock::take(&repository, LockKind::Shared).expect_err("excluded");
    drop(exclusive);
    assert_eq!(lock_files(&testbed), Vec::<PathBuf>::new());
}

/// Counts the lock files that are written.
#[derive(Default)]
struct Counting(AtomicUsize);

#[async_trait::async_trait]
impl Fault for Counting {
    async fn before_put(&self, path: &Path, _: &PutPayload) -> object_store::Result<()> {
        self.0.fetch_add(usize::from(path.as_ref().starts_with("locks/")), Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn a_failed_attempt_writes_no_lock_file() {
    let testbed = Testbed::new();
    testbed.init();
    foreign_lock(&testbed, false, NOW, NOW);
    let counting = Arc::new(Counting::default());
    let repository = open_with_fault(&testbed, counting.clone(), OpenOptions::default());
    let error = Lock::take(&repository, LockKind::Exclusive).expect_err("excluded");
    assert_eq!(error.reason(), "RepositoryLocked");
    assert_eq!(counting.0.load(Ordering::SeqCst), 0, "a lock was shown that could not be had");
    Lock::take(&repository, LockKind::Shared).expect("beside the other");
    assert_eq!(counting.0.load(Ordering::SeqCst), 1);
}

#[test]
fn a_lock_that_is_held_stays_and_any_is_removed_on_request() {
    let testbed = Testbed::new();
    let repository = testbed.init();
    let left_behind = Lock::take(&repository, LockKind::Exclusive).expect("taken");
    assert_eq!(repository.unlock(false).expect("unlocks"), 0, "a lock that is held stays");
    assert_eq!(repository.unlock(true).expect("unlocks"), 1);
    drop(left_behind);
    Lock::take(&repository, LockKind::Exclusive).expect("free again");
}

#[test]
fn a_lock_of_another_machine_with_the_same_name_is_not_removed() {
    let testbed = Testbed::new();
    let repository = testbed.init();
    let here = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let me = LockHolder::current(None).expect("Linux tells").to_string();
    // The same name and PID namespace, but another boot ID.
    let (name, unique) = me.split_once('/').expect("more than a name");
    assert_eq!(name, here);
    let parts: Vec<&str> = unique.split('.').collect();
    let twin = format!("{here}/{}.0123456789abcdef.{}.{}", parts[0], parts[2], parts[3]);
    for hostname in [here.as_str(), &twin] {
        let lock = lock_of(&testbed, hostname, UNUSED_PID, true, NOW, NOW);
        let error = Lock::take(&repository, LockKind::Shared).expect_err("another cluster may be at work");
        assert!(error.to_string().contains(&format!("user@{here} (process {UNUSED_PID})")), "{error}");
        assert_eq!(repository.unlock(false).expect("unlocks"), 0, "{hostname}");
        assert!(lock.exists());
        std::fs::remove_file(lock).expect("removes");
    }
}

#[test]
fn a_lock_of_an_ended_local_process_is_removed() {
    let testbed = Testbed::new();
    let repository = testbed.init();
    let me = LockHolder::current(None).expect("Linux tells").to_string();
    let orphaned = lock_of(&testbed, &me, UNUSED_PID, true, NOW, NOW);
    // Its PID was reused.
    let followed = lock_of(&testbed, &me, 1, true, NOW, NOW);
    let lock = Lock::take(&repository, LockKind::Shared).expect("free");
    assert!(!orphaned.exists() && !followed.exists());
    let shown = repository.locks().expect("lists");
    assert_eq!(shown.len(), 1);
    assert_eq!((shown[0].1.hostname.as_str(), shown[0].1.pid), (me.as_str(), std::process::id()));
    drop(lock);
}

#[test]
fn a_lock_of_an_earlier_container_is_removed_only_in_the_same_pod() {
    let (pod, twin) = ("0c4e9a1b-5d7f-4e38-9d12-000000000001", "0c4e9a1b-0000-4e38-9d12-000000000001");
    let testbed = Testbed::new();
    drop(testbed.init());
    let me = LockHolder::current(Some(pod)).expect("Linux tells").to_string();
    let parts: Vec<&str> = me.rsplitn(3, '.').collect();
    // Another PID namespace with a process of this PID.
    let before = format!("{}.1.{}", parts[2], parts[0]);
    let lock = lock_of(&testbed, &before, std::process::id(), true, NOW, NOW);
    let open = |pod: &str| {
        let options = OpenOptions { pod: Some(pod.into()), ..OpenOptions::default() };
        open_with_fault(&testbed, Arc::new(NoFault), options)
    };
    Lock::take(&open(twin), LockKind::Shared).expect_err("its holder may live");
    assert!(lock.exists());
    Lock::take(&open(pod), LockKind::Shared).expect("free");
    assert!(!lock.exists());
}

#[test]
fn the_age_of_a_lock_is_measured_by_the_stores_clock() {
    let testbed = Testbed::new();
    let repository = testbed.init();
    let young = foreign_lock(&testbed, true, 90 * MINUTE, NOW);
    let error = Lock::take(&repository, LockKind::Shared).expect_err("the holder's clock is wrong, its lock is young");
    assert!(error.to_string().contains("user@another-machine"), "{error}");
    assert_eq!(repository.unlock(false).expect("unlocks"), 0);
    std::fs::remove_file(young).expect("removes");
    foreign_lock(&testbed, true, NOW, 29 * MINUTE);
    Lock::take(&repository, LockKind::Shared).expect_err("not half an hour yet");
    repository.unlock(true).expect("unlocks");
    let old = foreign_lock(&testbed, true, NOW, 31 * MINUTE);
    Lock::take(&repository, LockKind::Shared).expect_err("old, but who looks once cannot know that it is not renewed");
    assert!(old.exists(), "it stays without a request");
    assert_eq!(repository.unlock(false).expect("unlocks"), 1);
    Lock::take(&repository, LockKind::Shared).expect("free");
}

#[test]
fn an_unreadable_lock_conflicts_and_is_listed() {
    let testbed = Testbed::new();
    let repository = testbed.init();
    let broken = put_lock(&testbed, b"half of a lock", NOW);
    let error = Lock::take(&repository, LockKind::Shared).expect_err("it may be exclusive");
    assert_eq!(error.reason(), "RepositoryLocked");
    assert!(error.to_string().contains("unreadable"), "{error}");
    assert_eq!(repository.unlock(false).expect("unlocks"), 0);
    std::fs::remove_file(broken).expect("removes");
    put_lock(&testbed, b"half of a lock", 31 * MINUTE);
    Lock::take(&repository, LockKind::Shared).expect_err("it may be exclusive still");
    let shown = repository.locks().expect("lists");
    assert_eq!((shown.len(), shown[0].1.hostname.as_str(), shown[0].1.exclusive), (1, "", true));
    assert_eq!(repository.unlock(false).expect("unlocks"), 1, "old enough for one who asks");
    put_lock(&testbed, b"half of a lock", NOW);
    assert_eq!(repository.unlock(true).expect("unlocks"), 1);
}

#[test]
fn a_lock_is_refreshed_every_five_minutes() {
    let testbed = Testbed::new();
    drop(testbed.init());
    let clock = VirtualClock::new();
    let repository = open_faulty(&testbed, Arc::new(NoFault), &clock);
    let lock = Lock::take(&repository, LockKind::Shared).expect("taken");
    for _ in 0..7 {
        let before = lock_files(&testbed);
        assert_eq!(before.len(), 1);
        clock.advance(5 * MINUTE);
        let replaced = || {
            let now = lock_files(&testbed);
            now.len() == 1 && now != before
        };
        until("the lock file is replaced", replaced);
        lock.check().expect("fresh, although more than 22 minutes have passed in the end");
    }
}

/// Rejects writes of lock files and blocks writes of packs on request.
#[derive(Default)]
struct LockWriteFault {
    refuses_locks: AtomicBool,
    pack_waits: AtomicBool,
    packs_may_go: tokio::sync::Notify,
    held_packs: AtomicBool,
}

#[async_trait::async_trait]
impl Fault for LockWriteFault {
    async fn before_put(&self, path: &Path, _: &PutPayload) -> object_store::Result<()> {
        let key = path.as_ref();
        if key.starts_with("locks/") && self.refuses_locks.load(Ordering::SeqCst) {
            return Err(refused("no locks today"));
        }
        if key.starts_with("data/") && self.held_packs.swap(false, Ordering::SeqCst) {
            self.pack_waits.store(true, Ordering::SeqCst);
            self.packs_may_go.notified().await;
        }
        Ok(())
    }
}

/// An exclusive lock that appears when ours is written.
struct ConcurrentLock {
    lock: Vec<u8>,
    path: PathBuf,
    packs: AtomicUsize,
}

#[async_trait::async_trait]
impl Fault for ConcurrentLock {
    async fn before_put(&self, path: &Path, _: &PutPayload) -> object_store::Result<()> {
        if path.as_ref().starts_with("locks/") {
            std::fs::write(&self.path, &self.lock).expect("writes");
        }
        if path.as_ref().starts_with("data/") {
            self.packs.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }
}

#[test]
fn a_concurrent_lock_is_detected_before_anything_is_stored() {
    let testbed = Testbed::new();
    for number in 0..20 {
        testbed.write(&format!("file {number}"), random_bytes(number, 400_000));
    }
    testbed.init();
    let path = foreign_lock(&testbed, true, NOW, NOW);
    let lock = std::fs::read(&path).expect("reads");
    std::fs::remove_file(&path).expect("removes");
    let rival = Arc::new(ConcurrentLock { lock, path: path.clone(), packs: AtomicUsize::new(0) });
    let repository = open_with_fault(&testbed, rival.clone(), OpenOptions::default());
    // Packs are full long before the lock is confirmed.
    let options = BackupOptions { pack_size: 1 << 20, ..testbed.options() };
    let error = repository.backup(&options, &task("backup"), &Cancel::default()).expect_err("excluded");
    assert_eq!(error.reason(), "RepositoryLocked", "{error}");
    assert_eq!(rival.packs.load(Ordering::SeqCst), 0);
    assert_eq!(lock_files(&testbed), [path], "only the other's lock is left");
}

#[test]
fn writes_stop_after_the_refresh_timeout() {
    let testbed = Testbed::new();
    for number in 0..20 {
        testbed.write(&format!("file {number}"), random_bytes(number, 400_000));
    }
    drop(testbed.init());
    let (clock, store) = (VirtualClock::new(), Arc::new(LockWriteFault::default()));
    store.held_packs.store(true, Ordering::SeqCst);
    let repository = open_faulty(&testbed, store.clone(), &clock);
    let options = BackupOptions { pack_size: 1 << 20, workers: 1, ..testbed.options() };
    let error = std::thread::scope(|scope| {
        let running = scope.spawn(|| repository.backup(&options, &task("backup"), &Cancel::default()));
        until("a pack is held back", || {
            assert!(!running.is_finished(), "it ended before it was held");
            store.pack_waits.load(Ordering::SeqCst)
        });
        store.refuses_locks.store(true, Ordering::SeqCst);
        clock.advance(22 * MINUTE + Duration::from_secs(31));
        store.packs_may_go.notify_one();
        running.join().expect("no panic").expect_err("it must not go on")
    });
    assert_eq!((error.reason(), error.is_retryable()), ("RepositoryLockLost", true));
    let written = |folder: &str| std::fs::read_dir(testbed.path("repository").join(folder)).map_or(0, Iterator::count);
    assert_eq!((written("snapshots"), written("index")), (0, 0), "nothing is written after that");
    store.refuses_locks.store(false, Ordering::SeqCst);
    let options = BackupOptions { resumed: true, ..options };
    let again = repository.backup(&options, &task("again"), &Cancel::default()).expect("with a new lock");
    assert!(again.summary.data_blobs < 20, "what had been stored is used");
    assert_eq!(check(&repository).errors, Vec::<String>::new());
}

#[test]
fn a_backup_whose_lock_file_was_removed_writes_no_snapshot() {
    let testbed = Testbed::new();
    testbed.write("file", random_bytes(1, 400_000));
    drop(testbed.init());
    let (clock, store) = (VirtualClock::new(), Arc::new(LockWriteFault::default()));
    store.held_packs.store(true, Ordering::SeqCst);
    let repository = open_faulty(&testbed, store.clone(), &clock);
    let options = testbed.options();
    let error = std::thread::scope(|scope| {
        let running = scope.spawn(|| repository.backup(&options, &task("backup"), &Cancel::default()));
        until("a pack is held back", || {
            assert!(!running.is_finished(), "it ended before it was held");
            store.pack_waits.load(Ordering::SeqCst)
        });
        for file in lock_files(&testbed) {
            std::fs::remove_file(file).expect("removes");
        }
        store.packs_may_go.notify_one();
        running.join().expect("no panic").expect_err("it must not go on")
    });
    assert_eq!(error.reason(), "RepositoryLockLost");
    assert_eq!(repository.snapshots().expect("lists").len(), 0);
    let index = std::fs::read_dir(testbed.path("repository/index")).map_or(0, Iterator::count);
    assert_eq!(index, 0, "a prune may have removed the pack");
}

/// A prune that ends when the header of a pack is first read: it removes an index file.
struct ConcurrentPrune(PathBuf);

impl Fault for ConcurrentPrune {
    fn before_get(&self, path: &Path) -> object_store::Result<()> {
        if path.as_ref().starts_with("data/") {
            let _ = std::fs::remove_file(&self.0);
        }
        Ok(())
    }
}

#[test]
fn an_index_loaded_at_the_end_of_a_prune_is_rejected() {
    let testbed = Testbed::new();
    let repository = testbed.init();
    let index = || -> Vec<PathBuf> {
        let files = std::fs::read_dir(testbed.path("repository/index")).into_iter().flatten().flatten();
        files.map(|file| file.path()).collect()
    };
    testbed.write("first", random_bytes(1, 400_000));
    testbed.backup(&repository);
    let first = index();
    testbed.write("second", random_bytes(2, 400_000));
    testbed.backup(&repository);
    // Unindexed packs: their headers are read after the index.
    index().iter().filter(|file| !first.contains(file)).for_each(|file| std::fs::remove_file(file).expect("removes"));
    let swept = open_with_fault(&testbed, Arc::new(ConcurrentPrune(first[0].clone())), OpenOptions::default());
    let error = swept.backup(&testbed.options(), &task("backup"), &Cancel::default()).expect_err("it was swept up");
    assert_eq!((error.reason(), error.is_retryable()), ("RepositoryLocked", true), "{error}");
    assert_eq!(index(), Vec::<PathBuf>::new(), "nothing is named by what was loaded");
    assert_eq!(lock_files(&testbed), Vec::<PathBuf>::new());
    let again = swept.backup(&testbed.options(), &task("again"), &Cancel::default()).expect("as it is now");
    assert_eq!(testbed.restore(&swept, again.snapshot).problems, []);
    assert_eq!(check(&swept).errors, Vec::<String>::new());
}

#[test]
fn the_lock_stays_after_a_cancel_until_pending_writes_have_ended() {
    for folder in ["index", "snapshots"] {
        let testbed = Testbed::new();
        testbed.write("file", random_bytes(1, 400_000));
        drop(testbed.init());
        let holding = BlockedWrites::of(folder);
        let repository = open_with_fault(&testbed, holding.clone(), OpenOptions::default());
        let cancel = Cancel::default();
        let error = std::thread::scope(|scope| {
            let running = scope.spawn(|| repository.backup(&testbed.options(), &task("backup"), &cancel));
            until("it is being written", || {
                assert!(!running.is_finished(), "it ended before it was held");
                holding.is_blocking()
            });
            cancel.cancel();
            running.join().expect("no panic").expect_err("cancelled")
        });
        assert_eq!(error.reason(), "Cancelled");
        assert_eq!(lock_files(&testbed).len(), 1, "{folder}: it may still appear");
        Lock::take(&repository, LockKind::Exclusive).expect_err("a prune must not start");
        holding.release();
        until("the lock is released", || lock_files(&testbed).is_empty());
        let arrived = std::fs::read_dir(testbed.path("repository").join(folder)).map_or(0, Iterator::count);
        assert_eq!(arrived, 1, "{folder}: and it did");
        assert_eq!(check(&repository).errors, Vec::<String>::new());
    }
}

#[test]
fn a_removed_lock_is_lost_and_not_refreshed() {
    let testbed = Testbed::new();
    drop(testbed.init());
    let clock = VirtualClock::new();
    let repository = open_faulty(&testbed, Arc::new(NoFault), &clock);
    let lock = Lock::take(&repository, LockKind::Shared).expect("taken");
    for file in lock_files(&testbed) {
        std::fs::remove_file(file).expect("removes");
    }
    lock.check().expect("not checked yet");
    clock.advance(5 * MINUTE);
    until("the loss is noticed", || lock.check().is_err());
    assert_eq!(lock.check().expect_err("lost").reason(), "RepositoryLockLost");
    assert_eq!(lock_files(&testbed), Vec::<PathBuf>::new(), "no younger one");
}

#[test]
fn a_lock_is_lost_after_half_an_hour_of_suspension() {
    let testbed = Testbed::new();
    drop(testbed.init());
    let clock = VirtualClock::new();
    let repository = open_faulty(&testbed, Arc::new(NoFault), &clock);
    let lock = Lock::take(&repository, LockKind::Shared).expect("taken");
    let before = lock_files(&testbed);
    clock.advance(31 * MINUTE);
    until("the refresher has woken up", || lock.check().is_err_and(|error| error.to_string().contains("may have")));
    assert_eq!(lock_files(&testbed), before);
}

#[test]
fn a_store_with_object_lock_gets_only_one_lock_from_this_machine() {
    let testbed = Testbed::new();
    testbed.write("file", random_bytes(1, 100_000));
    drop(testbed.init());
    let options = OpenOptions { cache: Some(testbed.path("cache")), ..OpenOptions::default() };
    let keeping = || open_with_fault(&testbed, Arc::new(AppendOnly { only_existing: true }), options.clone());
    let backup = |repository: &Arc<Repository>| {
        repository.backup(&testbed.options(), &task("backup"), &Cancel::default()).expect("backs up").locked
    };
    assert!(backup(&keeping()), "only a lock that cannot be removed tells");
    assert_eq!(lock_files(&testbed).len(), 1);
    assert!(!backup(&keeping()), "another process knows");
    assert_eq!(keeping().unlock(true).expect("asks"), 0, "nothing could be removed");
    assert_eq!(lock_files(&testbed).len(), 1);
    let letting_go = || open_with_fault(&testbed, Arc::new(NoFault), options.clone());
    assert!(backup(&letting_go()), "and when that is over it is noticed too");
    assert_eq!(lock_files(&testbed), Vec::<PathBuf>::new(), "with the lock that had stayed");
}

#[test]
fn a_store_that_denies_deletes_gets_no_lock_files_and_a_hint() {
    for only_existing in [false, true] {
        let testbed = Testbed::new();
        testbed.write("file", random_bytes(1, 100_000));
        drop(testbed.init());
        let clock = VirtualClock::new();
        let repository = open_faulty(&testbed, Arc::new(AppendOnly { only_existing }), &clock);
        if only_existing {
            // Only an undeletable lock shows it; afterwards no more are written.
            let first = repository.backup(&testbed.options(), &task("backup"), &Cancel::default()).expect("backs up");
            assert!(first.locked);
            assert_eq!(lock_files(&testbed).len(), 1);
        }
        let operation = Operation::new("backup", Clock::system());
        let outcome = repository.backup(&testbed.options(), &operation.root(), &Cancel::default()).expect("backs up");
        assert!(!outcome.locked && repository.denies_deletes().expect("asks"));
        let snapshot = operation.snapshot();
        let hint = snapshot.nodes.iter().find_map(|node| node.hint.clone()).expect("a hint");
        assert!(hint.contains("does not allow deletes"), "{hint}");
        let restored = testbed.restore(&repository, outcome.snapshot);
        assert!(!restored.locked && restored.problems.is_empty());
        assert_eq!(lock_files(&testbed).len(), usize::from(only_existing));
    }
}

#[test]
fn no_exclusive_lock_is_left_if_locks_cannot_be_removed() {
    let testbed = Testbed::new();
    testbed.write("file", random_bytes(1, 100_000));
    let snapshot = testbed.backup(&testbed.init()).snapshot;
    // Two instances without a shared cache.
    let another = || open_with_fault(&testbed, Arc::new(AppendOnly { only_existing: true }), OpenOptions::default());
    let checked = check(&another());
    assert!(checked.is_good() && !checked.locked, "{:?}", checked.errors);
    assert_eq!(testbed.restore(&another(), snapshot).problems, []);
    testbed.backup(&another());
    let exclusive = another().locks().expect("lists").iter().filter(|(_, lock)| lock.exclusive).count();
    assert_eq!(exclusive, 0);
}

#[test]
fn without_deletes_a_recent_exclusive_lock_conflicts_and_an_old_one_does_not() {
    let testbed = Testbed::new();
    testbed.write("file", random_bytes(1, 100_000));
    drop(testbed.init());
    let repository = open_with_fault(&testbed, Arc::new(AppendOnly { only_existing: false }), OpenOptions::default());
    let backup = || repository.backup(&testbed.options(), &task("backup"), &Cancel::default());
    let young = foreign_lock(&testbed, true, NOW, NOW);
    let error = backup().expect_err("a prune is running");
    assert_eq!(error.reason(), "RepositoryLocked", "{error}");
    std::fs::remove_file(young).expect("removes");
    foreign_lock(&testbed, true, NOW, 31 * MINUTE);
    foreign_lock(&testbed, false, MINUTE, NOW);
    assert!(!backup().expect("backs up").locked);
}

#[test]
fn restic_respects_our_lock_and_its_sighup_is_ignored() {
    interop::each_restic(|testbed: &Testbed, restic: &Restic<'_>| {
        let repository = testbed.init();
        let lock = Lock::take(&repository, LockKind::Shared).expect("taken");
        let me = LockHolder::current(None).expect("Linux tells").to_string();
        let named = lock_files(testbed)[0].file_name().expect("a name").to_string_lossy().into_owned();
        let output = restic.run(&["--no-lock", "cat", "lock", &named]);
        assert!(output.contains(&format!("{me:?}")) && output.contains(&std::process::id().to_string()), "{output}");
        assert!(restic.run(&["--no-lock", "list", "locks"]).contains(&named));
        restic.run(&["unlock"]);
        assert_eq!(lock_files(testbed).len(), 1, "restic does not know such a machine");
        // restic sends SIGHUP to the process in a lock with its own host name; this lock has our PID.
        let here = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let namesake = lock_of(testbed, &here, std::process::id(), false, NOW, NOW);
        restic.run(&["unlock"]);
        assert_eq!(lock_files(testbed).len(), 2, "a process with that PID is running");
        std::fs::remove_file(namesake).expect("removes");
        let refused = restic.fails(&["prune"]);
        assert!(refused.contains("locked") && refused.contains(&me), "{refused}");
        restic.run(&["snapshots"]);
        lock.check().expect("still ours");
        drop(lock);
        restic.run(&["prune"]);
        lock_of(testbed, &me, UNUSED_PID, true, 31 * MINUTE, 31 * MINUTE);
        restic.run(&["unlock"]);
        assert_eq!(lock_files(testbed), Vec::<PathBuf>::new(), "one of ours that grew old goes like any other");
    });
}
