//! Locks: who excludes whom, how long they last, and what becomes of those that nobody holds any more.

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

use crate::fault::{AppendOnly, Holding, Meddle, Meddled, refused};
use crate::interop::{self, Restic};
use crate::world::{PASSWORD, World, check, noise, task};

pub fn lock_files(world: &World) -> Vec<PathBuf> {
    std::fs::read_dir(world.path("repository/locks")).into_iter().flatten().flatten().map(|file| file.path()).collect()
}

/// A repository on a directory with somebody meddling, and a clock that stands still.
fn meddled(world: &World, meddle: Arc<dyn Meddle>, clock: &VirtualClock) -> Arc<Repository> {
    meddled_with(world, meddle, OpenOptions { clock: Some(clock.clock()), ..OpenOptions::default() })
}

pub fn meddled_with(world: &World, meddle: Arc<dyn Meddle>, options: OpenOptions) -> Arc<Repository> {
    let disk = LocalFileSystem::new_with_prefix(world.path("repository")).expect("a store");
    let store = Store::from_objects(Meddled::new(Arc::new(disk), meddle), "disk".into(), "").expect("a store");
    let handle = world.runtime.handle().clone();
    Arc::new(Repository::open(store, handle, PASSWORD.as_bytes(), options).expect("opens"))
}

pub fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < MINUTE, "waited a minute until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A store that behaves.
struct Nothing;
impl Meddle for Nothing {}

fn master_key(world: &World) -> Key {
    let file = std::fs::read_dir(world.path("repository/keys")).expect("lists").next().expect("a key").expect("a key");
    let file = KeyFile::parse(&std::fs::read(file.path()).expect("reads")).expect("a key file");
    file.unlock(PASSWORD.as_bytes()).expect("opens")
}

/// Somebody else's lock, written so long ago by their clock and so long ago by the store's.
fn foreign_lock(world: &World, exclusive: bool, by_holder: Duration, by_store: Duration) -> PathBuf {
    lock_of(world, "another-machine", 1, exclusive, by_holder, by_store)
}

fn lock_of(
    world: &World,
    hostname: &str,
    pid: u32,
    exclusive: bool,
    by_holder: Duration,
    by_store: Duration,
) -> PathBuf {
    let written = SystemTime::now() - by_holder;
    let seconds = written.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
    let time = Time::utc(i64::try_from(seconds).expect("small"), 0);
    let (hostname, username) = (hostname.into(), "somebody".into());
    let file = LockFile { time, exclusive, hostname, username, pid, uid: 0, gid: 0 };
    let sealed = unpacked::seal(&serde_json::to_vec(&file).expect("encodes"), 2, &master_key(world)).expect("seals");
    put_lock(world, &sealed, by_store)
}

/// No process has this number: the system gives out smaller ones.
const NOBODY: u32 = 0x7fff_fff0;

pub fn put_lock(world: &World, content: &[u8], by_store: Duration) -> PathBuf {
    let path = world.path("repository/locks").join(Id::of(content).to_string());
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    std::fs::write(&path, content).expect("writes");
    let file = std::fs::File::options().write(true).open(&path).expect("opens");
    file.set_modified(SystemTime::now() - by_store).expect("a time");
    path
}

const MINUTE: Duration = Duration::from_mins(1);
const NOW: Duration = Duration::ZERO;

#[test]
fn an_exclusive_lock_excludes_everybody_and_a_shared_one_only_the_exclusive() {
    let world = World::new();
    let repository = world.init();
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
    assert_eq!(lock_files(&world), Vec::<PathBuf>::new());
}

/// Counts the lock files that are written.
#[derive(Default)]
struct Counting(AtomicUsize);

#[async_trait::async_trait]
impl Meddle for Counting {
    async fn before_put(&self, path: &Path, _: &PutPayload) -> object_store::Result<()> {
        self.0.fetch_add(usize::from(path.as_ref().starts_with("locks/")), Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn who_finds_that_others_are_at_work_keeps_nobody_out_meanwhile() {
    let world = World::new();
    world.init();
    foreign_lock(&world, false, NOW, NOW);
    let counting = Arc::new(Counting::default());
    let repository = meddled_with(&world, counting.clone(), OpenOptions::default());
    let error = Lock::take(&repository, LockKind::Exclusive).expect_err("excluded");
    assert_eq!(error.reason(), "RepositoryLocked");
    assert_eq!(counting.0.load(Ordering::SeqCst), 0, "a lock was shown that could not be had");
    Lock::take(&repository, LockKind::Shared).expect("beside the other");
    assert_eq!(counting.0.load(Ordering::SeqCst), 1);
}

#[test]
fn a_lock_that_is_held_stays_and_any_is_removed_on_request() {
    let world = World::new();
    let repository = world.init();
    let left_behind = Lock::take(&repository, LockKind::Exclusive).expect("taken");
    assert_eq!(repository.unlock(false).expect("unlocks"), 0, "a lock that is held stays");
    assert_eq!(repository.unlock(true).expect("unlocks"), 1);
    drop(left_behind);
    Lock::take(&repository, LockKind::Exclusive).expect("free again");
}

#[test]
fn a_lock_of_an_equally_named_machine_stays_although_no_process_here_has_its_number() {
    let world = World::new();
    let repository = world.init();
    let here = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let me = LockHolder::me(None).expect("Linux tells").to_string();
    // The same name, and the same numbers of processes: only the machine is another, or was started anew.
    let (name, unique) = me.split_once('/').expect("more than a name");
    assert_eq!(name, here);
    let parts: Vec<&str> = unique.split('.').collect();
    let twin = format!("{here}/{}.0123456789abcdef.{}.{}", parts[0], parts[2], parts[3]);
    for hostname in [here.as_str(), &twin] {
        let lock = lock_of(&world, hostname, NOBODY, true, NOW, NOW);
        let error = Lock::take(&repository, LockKind::Shared).expect_err("another cluster may be at work");
        assert!(error.to_string().contains(&format!("somebody@{here} (process {NOBODY})")), "{error}");
        assert_eq!(repository.unlock(false).expect("unlocks"), 0, "{hostname}");
        assert!(lock.exists());
        std::fs::remove_file(lock).expect("removes");
    }
}

#[test]
fn a_lock_of_a_process_that_lived_here_and_is_gone_is_removed_on_the_way() {
    let world = World::new();
    let repository = world.init();
    let me = LockHolder::me(None).expect("Linux tells").to_string();
    let gone = lock_of(&world, &me, NOBODY, true, NOW, NOW);
    // Its number belongs to somebody else by now.
    let followed = lock_of(&world, &me, 1, true, NOW, NOW);
    let lock = Lock::take(&repository, LockKind::Shared).expect("free");
    assert!(!gone.exists() && !followed.exists());
    let shown = repository.locks().expect("lists");
    assert_eq!(shown.len(), 1);
    assert_eq!((shown[0].1.hostname.as_str(), shown[0].1.pid), (me.as_str(), std::process::id()));
    drop(lock);
}

#[test]
fn a_lock_of_the_container_before_this_one_is_removed_by_the_pod_it_was_in_and_by_no_other() {
    let (pod, twin) = ("0c4e9a1b-5d7f-4e38-9d12-000000000001", "0c4e9a1b-0000-4e38-9d12-000000000001");
    let world = World::new();
    drop(world.init());
    let me = LockHolder::me(Some(pod)).expect("Linux tells").to_string();
    let parts: Vec<&str> = me.rsplitn(3, '.').collect();
    // Another namespace of processes, in which some process of this number is.
    let before = format!("{}.1.{}", parts[2], parts[0]);
    let lock = lock_of(&world, &before, std::process::id(), true, NOW, NOW);
    let open = |pod: &str| {
        let options = OpenOptions { pod: Some(pod.into()), ..OpenOptions::default() };
        meddled_with(&world, Arc::new(Nothing), options)
    };
    Lock::take(&open(twin), LockKind::Shared).expect_err("its holder may live");
    assert!(lock.exists());
    Lock::take(&open(pod), LockKind::Shared).expect("free");
    assert!(!lock.exists());
}

#[test]
fn the_age_of_a_lock_is_what_the_stores_clock_says_not_the_holders() {
    let world = World::new();
    let repository = world.init();
    let young = foreign_lock(&world, true, 90 * MINUTE, NOW);
    let error = Lock::take(&repository, LockKind::Shared).expect_err("the holder's clock is wrong, its lock is young");
    assert!(error.to_string().contains("somebody@another-machine"), "{error}");
    assert_eq!(repository.unlock(false).expect("unlocks"), 0);
    std::fs::remove_file(young).expect("removes");
    foreign_lock(&world, true, NOW, 29 * MINUTE);
    Lock::take(&repository, LockKind::Shared).expect_err("not half an hour yet");
    repository.unlock(true).expect("unlocks");
    let old = foreign_lock(&world, true, NOW, 31 * MINUTE);
    Lock::take(&repository, LockKind::Shared).expect_err("old, but who looks once cannot know that it is not renewed");
    assert!(old.exists(), "and it stays until somebody decides");
    assert_eq!(repository.unlock(false).expect("unlocks"), 1);
    Lock::take(&repository, LockKind::Shared).expect("free");
}

#[test]
fn a_lock_that_cannot_be_read_excludes_and_is_shown_to_whoever_decides() {
    let world = World::new();
    let repository = world.init();
    let broken = put_lock(&world, b"half of a lock", NOW);
    let error = Lock::take(&repository, LockKind::Shared).expect_err("it may be exclusive");
    assert_eq!(error.reason(), "RepositoryLocked");
    assert!(error.to_string().contains("cannot be read"), "{error}");
    assert_eq!(repository.unlock(false).expect("unlocks"), 0);
    std::fs::remove_file(broken).expect("removes");
    put_lock(&world, b"half of a lock", 31 * MINUTE);
    Lock::take(&repository, LockKind::Shared).expect_err("it may be exclusive still");
    let shown = repository.locks().expect("lists");
    assert_eq!((shown.len(), shown[0].1.hostname.as_str(), shown[0].1.exclusive), (1, "", true));
    assert_eq!(repository.unlock(false).expect("unlocks"), 1, "old enough for one who asks");
    put_lock(&world, b"half of a lock", NOW);
    assert_eq!(repository.unlock(true).expect("unlocks"), 1);
}

#[test]
fn a_lock_is_replaced_by_a_younger_one_every_five_minutes() {
    let world = World::new();
    drop(world.init());
    let clock = VirtualClock::new();
    let repository = meddled(&world, Arc::new(Nothing), &clock);
    let lock = Lock::take(&repository, LockKind::Shared).expect("taken");
    for _ in 0..7 {
        let before = lock_files(&world);
        assert_eq!(before.len(), 1);
        clock.advance(5 * MINUTE);
        let replaced = || {
            let now = lock_files(&world);
            now.len() == 1 && now != before
        };
        until("the lock file is replaced", replaced);
        lock.check().expect("fresh, although more than 22 minutes have passed in the end");
    }
}

/// Refuses lock files once told to, and holds packs back until told otherwise.
#[derive(Default)]
struct Obstinate {
    refuses_locks: AtomicBool,
    pack_waits: AtomicBool,
    packs_may_go: tokio::sync::Notify,
    held_packs: AtomicBool,
}

#[async_trait::async_trait]
impl Meddle for Obstinate {
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

/// Somebody whose exclusive lock appears when ours is being written.
struct Rival {
    lock: Vec<u8>,
    path: PathBuf,
    packs: AtomicUsize,
}

#[async_trait::async_trait]
impl Meddle for Rival {
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
fn who_locks_at_the_same_moment_finds_that_nothing_was_stored() {
    let world = World::new();
    for number in 0..20 {
        world.write(&format!("file {number}"), noise(number, 400_000));
    }
    world.init();
    let path = foreign_lock(&world, true, NOW, NOW);
    let lock = std::fs::read(&path).expect("reads");
    std::fs::remove_file(&path).expect("removes");
    let rival = Arc::new(Rival { lock, path: path.clone(), packs: AtomicUsize::new(0) });
    let repository = meddled_with(&world, rival.clone(), OpenOptions::default());
    // Packs are full long before it is clear who was first.
    let options = BackupOptions { pack_size: 1 << 20, ..world.options() };
    let error = repository.backup(&options, &task("backup"), &Cancel::default()).expect_err("excluded");
    assert_eq!(error.reason(), "RepositoryLocked", "{error}");
    assert_eq!(rival.packs.load(Ordering::SeqCst), 0);
    assert_eq!(lock_files(&world), [path], "only the other's lock is left");
}

#[test]
fn twenty_two_and_a_half_minutes_without_a_refresh_end_the_writing() {
    let world = World::new();
    for number in 0..20 {
        world.write(&format!("file {number}"), noise(number, 400_000));
    }
    drop(world.init());
    let (clock, store) = (VirtualClock::new(), Arc::new(Obstinate::default()));
    store.held_packs.store(true, Ordering::SeqCst);
    let repository = meddled(&world, store.clone(), &clock);
    let options = BackupOptions { pack_size: 1 << 20, workers: 1, ..world.options() };
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
    let written = |folder: &str| std::fs::read_dir(world.path("repository").join(folder)).map_or(0, Iterator::count);
    assert_eq!((written("snapshots"), written("index")), (0, 0), "nothing is written after that");
    store.refuses_locks.store(false, Ordering::SeqCst);
    let again = repository.backup(&options, &task("again"), &Cancel::default()).expect("with a new lock");
    assert!(again.summary.data_blobs < 20, "what had been stored is used");
    assert_eq!(check(&repository).errors, Vec::<String>::new());
}

#[test]
fn a_backup_whose_lock_file_somebody_removed_writes_no_snapshot() {
    let world = World::new();
    world.write("file", noise(1, 400_000));
    drop(world.init());
    let (clock, store) = (VirtualClock::new(), Arc::new(Obstinate::default()));
    store.held_packs.store(true, Ordering::SeqCst);
    let repository = meddled(&world, store.clone(), &clock);
    let options = world.options();
    let error = std::thread::scope(|scope| {
        let running = scope.spawn(|| repository.backup(&options, &task("backup"), &Cancel::default()));
        until("a pack is held back", || {
            assert!(!running.is_finished(), "it ended before it was held");
            store.pack_waits.load(Ordering::SeqCst)
        });
        for file in lock_files(&world) {
            std::fs::remove_file(file).expect("removes");
        }
        store.packs_may_go.notify_one();
        running.join().expect("no panic").expect_err("it must not go on")
    });
    assert_eq!(error.reason(), "RepositoryLockLost");
    assert_eq!(repository.snapshots().expect("lists").len(), 0);
    let index = std::fs::read_dir(world.path("repository/index")).map_or(0, Iterator::count);
    assert_eq!(index, 0, "whoever removed the lock may have removed the pack, too");
}

/// Somebody who ends a prune when the header of a pack is first read: an index file is gone then.
struct Sweeper(PathBuf);

impl Meddle for Sweeper {
    fn before_get(&self, path: &Path) -> object_store::Result<()> {
        if path.as_ref().starts_with("data/") {
            let _ = std::fs::remove_file(&self.0);
        }
        Ok(())
    }
}

#[test]
fn who_loads_the_index_while_somebody_ends_a_prune_begins_again_and_relies_on_nothing() {
    let world = World::new();
    let repository = world.init();
    let index = || -> Vec<PathBuf> {
        let files = std::fs::read_dir(world.path("repository/index")).into_iter().flatten().flatten();
        files.map(|file| file.path()).collect()
    };
    world.write("first", noise(1, 400_000));
    world.backup(&repository);
    let first = index();
    world.write("second", noise(2, 400_000));
    world.backup(&repository);
    // Packs that no index file names: their headers are read after the index.
    index().iter().filter(|file| !first.contains(file)).for_each(|file| std::fs::remove_file(file).expect("removes"));
    let swept = meddled_with(&world, Arc::new(Sweeper(first[0].clone())), OpenOptions::default());
    let error = swept.backup(&world.options(), &task("backup"), &Cancel::default()).expect_err("it was swept up");
    assert_eq!((error.reason(), error.is_retryable()), ("RepositoryLocked", true), "{error}");
    assert_eq!(index(), Vec::<PathBuf>::new(), "nothing is named by what was loaded");
    assert_eq!(lock_files(&world), Vec::<PathBuf>::new());
    let again = swept.backup(&world.options(), &task("again"), &Cancel::default()).expect("as it is now");
    assert_eq!(world.restore(&swept, again.snapshot).problems, []);
    assert_eq!(check(&swept).errors, Vec::<String>::new());
}

#[test]
fn the_lock_stays_after_a_cancel_until_what_others_could_rely_on_has_arrived_or_failed() {
    for folder in ["index", "snapshots"] {
        let world = World::new();
        world.write("file", noise(1, 400_000));
        drop(world.init());
        let holding = Holding::back(folder);
        let repository = meddled_with(&world, holding.clone(), OpenOptions::default());
        let cancel = Cancel::default();
        let error = std::thread::scope(|scope| {
            let running = scope.spawn(|| repository.backup(&world.options(), &task("backup"), &cancel));
            until("it is being written", || {
                assert!(!running.is_finished(), "it ended before it was held");
                holding.waits()
            });
            cancel.cancel();
            running.join().expect("no panic").expect_err("cancelled")
        });
        assert_eq!(error.reason(), "Cancelled");
        assert_eq!(lock_files(&world).len(), 1, "{folder}: it may still appear");
        Lock::take(&repository, LockKind::Exclusive).expect_err("nobody may sweep up its packs");
        holding.let_go();
        until("the lock is released", || lock_files(&world).is_empty());
        let arrived = std::fs::read_dir(world.path("repository").join(folder)).map_or(0, Iterator::count);
        assert_eq!(arrived, 1, "{folder}: and it did");
        assert_eq!(check(&repository).errors, Vec::<String>::new());
    }
}

#[test]
fn a_lock_whose_file_somebody_removed_is_lost_and_no_younger_one_hides_that() {
    let world = World::new();
    drop(world.init());
    let clock = VirtualClock::new();
    let repository = meddled(&world, Arc::new(Nothing), &clock);
    let lock = Lock::take(&repository, LockKind::Shared).expect("taken");
    for file in lock_files(&world) {
        std::fs::remove_file(file).expect("removes");
    }
    lock.check().expect("nobody has looked yet");
    clock.advance(5 * MINUTE);
    until("the loss is noticed", || lock.check().is_err());
    assert_eq!(lock.check().expect_err("lost").reason(), "RepositoryLockLost");
    assert_eq!(lock_files(&world), Vec::<PathBuf>::new(), "no younger one");
}

#[test]
fn a_lock_of_a_machine_that_slept_for_half_an_hour_is_lost_although_its_file_is_there() {
    let world = World::new();
    drop(world.init());
    let clock = VirtualClock::new();
    let repository = meddled(&world, Arc::new(Nothing), &clock);
    let lock = Lock::take(&repository, LockKind::Shared).expect("taken");
    let before = lock_files(&world);
    clock.advance(31 * MINUTE);
    until("the refresher has woken up", || lock.check().is_err_and(|error| error.to_string().contains("may have")));
    assert_eq!(lock_files(&world), before);
}

#[test]
fn a_store_that_keeps_what_is_there_gets_one_lock_from_this_machine_and_no_more() {
    let world = World::new();
    world.write("file", noise(1, 100_000));
    drop(world.init());
    let options = OpenOptions { cache: Some(world.path("cache")), ..OpenOptions::default() };
    let keeping = || meddled_with(&world, Arc::new(AppendOnly { only_existing: true }), options.clone());
    let backup = |repository: &Arc<Repository>| {
        repository.backup(&world.options(), &task("backup"), &Cancel::default()).expect("backs up").locked
    };
    assert!(backup(&keeping()), "only a lock that cannot be removed tells");
    assert_eq!(lock_files(&world).len(), 1);
    assert!(!backup(&keeping()), "another process knows");
    assert_eq!(keeping().unlock(true).expect("asks"), 0, "nothing could be removed");
    assert_eq!(lock_files(&world).len(), 1);
    let letting_go = || meddled_with(&world, Arc::new(Nothing), options.clone());
    assert!(backup(&letting_go()), "and when that is over it is noticed too");
    assert_eq!(lock_files(&world), Vec::<PathBuf>::new(), "with the lock that had stayed");
}

#[test]
fn a_store_that_refuses_deletes_gets_no_lock_files_and_that_is_said() {
    for only_existing in [false, true] {
        let world = World::new();
        world.write("file", noise(1, 100_000));
        drop(world.init());
        let clock = VirtualClock::new();
        let repository = meddled(&world, Arc::new(AppendOnly { only_existing }), &clock);
        if only_existing {
            // Only a lock that cannot be removed tells; afterwards there are no more.
            let first = repository.backup(&world.options(), &task("backup"), &Cancel::default()).expect("backs up");
            assert!(first.locked);
            assert_eq!(lock_files(&world).len(), 1);
        }
        let operation = Operation::new("backup", Clock::system());
        let outcome = repository.backup(&world.options(), &operation.root(), &Cancel::default()).expect("backs up");
        assert!(!outcome.locked && repository.refuses_deletes().expect("asks"));
        let snapshot = operation.snapshot();
        let hint = snapshot.nodes.iter().find_map(|node| node.hint.clone()).expect("a hint");
        assert!(hint.contains("lets nothing be deleted"), "{hint}");
        let restored = world.restore(&repository, outcome.snapshot);
        assert!(!restored.locked && restored.problems.is_empty());
        assert_eq!(lock_files(&world).len(), usize::from(only_existing));
    }
}

#[test]
fn where_a_lock_cannot_be_removed_no_exclusive_one_is_left_that_would_keep_everybody_out() {
    let world = World::new();
    world.write("file", noise(1, 100_000));
    let snapshot = world.backup(&world.init()).snapshot;
    // Neither knows what the other has found out.
    let another = || meddled_with(&world, Arc::new(AppendOnly { only_existing: true }), OpenOptions::default());
    let checked = check(&another());
    assert!(checked.is_good() && !checked.locked, "{:?}", checked.errors);
    assert_eq!(world.restore(&another(), snapshot).problems, []);
    world.backup(&another());
    let exclusive = another().locks().expect("lists").iter().filter(|(_, lock)| lock.exclusive).count();
    assert_eq!(exclusive, 0);
}

#[test]
fn where_deletes_are_refused_a_young_exclusive_lock_counts_and_an_old_one_is_what_nobody_could_remove() {
    let world = World::new();
    world.write("file", noise(1, 100_000));
    drop(world.init());
    let repository = meddled_with(&world, Arc::new(AppendOnly { only_existing: false }), OpenOptions::default());
    let backup = || repository.backup(&world.options(), &task("backup"), &Cancel::default());
    let young = foreign_lock(&world, true, NOW, NOW);
    let error = backup().expect_err("somebody who may delete prunes");
    assert_eq!(error.reason(), "RepositoryLocked", "{error}");
    std::fs::remove_file(young).expect("removes");
    foreign_lock(&world, true, NOW, 31 * MINUTE);
    foreign_lock(&world, false, MINUTE, NOW);
    assert!(!backup().expect("backs up").locked);
}

#[test]
fn restic_sees_our_lock_leaves_it_alone_and_does_not_end_us_by_asking() {
    interop::each_restic(|world: &World, restic: &Restic<'_>| {
        let repository = world.init();
        let lock = Lock::take(&repository, LockKind::Shared).expect("taken");
        let me = LockHolder::me(None).expect("Linux tells").to_string();
        let named = lock_files(world)[0].file_name().expect("a name").to_string_lossy().into_owned();
        let said = restic.run(&["--no-lock", "cat", "lock", &named]);
        assert!(said.contains(&format!("{me:?}")) && said.contains(&std::process::id().to_string()), "{said}");
        assert!(restic.run(&["--no-lock", "list", "locks"]).contains(&named));
        restic.run(&["unlock"]);
        assert_eq!(lock_files(world).len(), 1, "restic does not know such a machine");
        // Of a machine that is called like its own it asks the process, by SIGHUP; this is such a lock, and our number.
        let here = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let namesake = lock_of(world, &here, std::process::id(), false, NOW, NOW);
        restic.run(&["unlock"]);
        assert_eq!(lock_files(world).len(), 2, "somebody with that number lives");
        std::fs::remove_file(namesake).expect("removes");
        let refused = restic.fails(&["prune"]);
        assert!(refused.contains("locked") && refused.contains(&me), "{refused}");
        restic.run(&["snapshots"]);
        lock.check().expect("still ours");
        drop(lock);
        restic.run(&["prune"]);
        lock_of(world, &me, NOBODY, true, 31 * MINUTE, 31 * MINUTE);
        restic.run(&["unlock"]);
        assert_eq!(lock_files(world), Vec::<PathBuf>::new(), "one of ours that grew old goes like any other");
    });
}
