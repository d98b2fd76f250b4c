//! Cancelling: soon, whatever the store does, and without losing what was stored.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::stream::{BoxStream, StreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult,
};
use plimsoll_progress::{Clock, Operation};
use plimsoll_repository::backup::BackupOptions;
use plimsoll_repository::restore::{Overwrite, RestoreOptions};
use plimsoll_repository::{Cancel, Lock, LockKind, OpenOptions, ReadData, Repository, RepositoryError};
use plimsoll_store::Store;

use crate::fault::Holding;
use crate::locking::{lock_files, meddled_with, put_lock, until};
use crate::world::{PASSWORD, World, check, fingerprint, noise, task};

/// The promise. A machine that others use too may miss it once, but not twice in a row.
const SOON: Duration = Duration::from_secs(1);

/// Cancels work when `ready` says so; answers with how long it went on.
fn cancelled(work: impl FnOnce(&Cancel) -> Result<(), RepositoryError> + Send, ready: impl Fn() -> bool) -> Duration {
    cancelled_by(&Cancel::default(), work, ready)
}

fn cancelled_by(
    cancel: &Cancel,
    work: impl FnOnce(&Cancel) -> Result<(), RepositoryError> + Send,
    ready: impl Fn() -> bool,
) -> Duration {
    std::thread::scope(|scope| {
        let running = scope.spawn(|| work(cancel));
        let begun = Instant::now();
        while !ready() {
            assert!(!running.is_finished(), "it ended before it was cancelled");
            assert!(begun.elapsed() < Duration::from_mins(1), "it does not get there");
            std::thread::yield_now();
        }
        cancel.cancel();
        let asked = Instant::now();
        let error = running.join().expect("no panic").expect_err("cancelled");
        assert_eq!(error.reason(), "Cancelled");
        asked.elapsed()
    })
}

fn soon_enough(mut attempt: impl FnMut() -> Duration) {
    let waited = attempt();
    if waited > SOON {
        let again = [attempt(), attempt()];
        assert!(again.iter().all(|waited| *waited <= SOON), "{waited:?}, then {again:?}");
    }
}

#[test]
fn a_cancel_ends_a_backup_within_a_second_and_the_next_one_goes_on_from_there() {
    soon_enough(|| {
        let world = World::new();
        for number in 0..40 {
            world.write(&format!("file {number}"), noise(number, 600_000));
        }
        let repository = world.init();
        let options = BackupOptions { pack_size: 2 << 20, ..world.options() };
        let operation = Operation::new("backup", Clock::system());
        let waited = cancelled(
            |cancel| repository.backup(&options, &operation.root(), cancel).map(drop),
            || std::fs::read_dir(world.path("repository/data")).is_ok_and(|mut packs| packs.next().is_some()),
        );
        let read = operation.snapshot().nodes.iter().flat_map(|node| node.meters.clone()).map(|meter| meter.done).max();
        assert!(read.is_some_and(|bytes| bytes < 40 * 600_000), "it went on to the end: {read:?}");
        assert_eq!(repository.snapshots().expect("lists").len(), 0);
        assert_eq!(check(&repository).errors, Vec::<String>::new());
        let again = repository.backup(&options, &task("again"), &Cancel::default()).expect("backs up");
        assert!(again.summary.data_added < 40 * 600_000, "something had been stored");
        assert_eq!(check(&repository).errors, Vec::<String>::new());
        waited
    });
}

#[test]
fn a_cancel_ends_a_restore_within_a_second_and_the_next_one_takes_it_up() {
    soon_enough(|| {
        let world = World::new();
        for number in 0..60 {
            world.write(&format!("file {number:02}"), noise(number, 600_000));
        }
        let repository = world.init();
        let snapshot = world.backup(&repository).snapshot;
        let target = world.path("restored");
        let options = RestoreOptions { overwrite: Overwrite::IfChanged, ..RestoreOptions::new(snapshot, &target) };
        let waited = cancelled(
            |cancel| repository.restore(&options, &task("restore"), cancel).map(drop),
            || std::fs::read_dir(&target).is_ok_and(|files| files.count() > 2),
        );
        let again = repository.restore(&options, &task("again"), &Cancel::default()).expect("restores");
        assert!(again.skipped > 0, "what was complete is left alone");
        assert_eq!(fingerprint(&target), fingerprint(&world.source()));
        waited
    });
}

#[test]
fn a_cancel_ends_the_scan_and_the_walk_at_the_next_entry_however_many_there_are() {
    let world = World::new();
    for number in 0..500 {
        world.write(&format!("file {number}"), "");
    }
    let (repository, cancel, asked) = (world.init(), Cancel::default(), Arc::new(AtomicUsize::new(0)));
    let (asks, cancels) = (asked.clone(), cancel.clone());
    let mut options = world.options();
    options.exclude = Some(Arc::new(move |_: &std::path::Path| {
        asks.fetch_add(1, Ordering::SeqCst);
        cancels.cancel();
        false
    }));
    repository.backup(&options, &task("backup"), &cancel).expect_err("cancelled");
    assert!(asked.load(Ordering::SeqCst) <= 4, "both went on: {asked:?}");
}

/// A store that answers nothing any more from a certain question on.
#[derive(Debug)]
struct Hanging {
    inner: LocalFileSystem,
    /// How that question begins: "get data" is the first pack that is read, "delete 2" the second delete. Nothing while it
    /// behaves.
    at: Mutex<Option<&'static str>>,
    asked: AtomicBool,
    deletes: AtomicUsize,
}

impl Hanging {
    /// Whether this question is the one, or comes after it.
    fn hangs(&self, question: &str, path: &str) -> bool {
        let hangs = |at: &str| format!("{question} {path}").starts_with(at);
        let hangs = self.at.lock().expect("not poisoned").is_some_and(hangs);
        self.asked.fetch_or(hangs, Ordering::SeqCst);
        self.asked.load(Ordering::SeqCst)
    }

    async fn wait(&self, question: &str, path: &Path) {
        if self.hangs(question, path.as_ref()) {
            std::future::pending::<()>().await;
        }
    }
}

impl std::fmt::Display for Hanging {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Hanging")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Hanging {
    async fn put_opts(&self, path: &Path, content: PutPayload, options: PutOptions) -> object_store::Result<PutResult> {
        self.wait("put", path).await;
        self.inner.put_opts(path, content, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        self.wait("get", path).await;
        self.inner.get_opts(path, options).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        let number = self.deletes.fetch_add(1, Ordering::SeqCst) + 1;
        if self.hangs("delete", &number.to_string()) {
            return futures::stream::pending().boxed();
        }
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        if self.hangs("list", prefix.map_or("", |prefix| prefix.as_ref())) {
            return futures::stream::pending().boxed();
        }
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

fn hanging_store(world: &World, at: Option<&'static str>) -> (Store, Arc<Hanging>) {
    let inner = LocalFileSystem::new_with_prefix(world.path("repository")).expect("a store");
    let hanging =
        Arc::new(Hanging { inner, at: Mutex::new(at), asked: AtomicBool::new(false), deletes: AtomicUsize::new(0) });
    (Store::from_objects(hanging.clone(), "hanging".into(), "").expect("a store"), hanging)
}

fn open(world: &World, store: Store, cancel: &Cancel) -> Result<Repository, RepositoryError> {
    let options = OpenOptions { cancel: cancel.clone(), ..OpenOptions::default() };
    Repository::open(store, world.runtime.handle().clone(), PASSWORD.as_bytes(), options)
}

/// A repository on such a store.
fn hanging(world: &World, cancel: &Cancel) -> (Arc<Repository>, Arc<Hanging>) {
    let (store, hanging) = hanging_store(world, None);
    (Arc::new(open(world, store, cancel).expect("opens")), hanging)
}

#[test]
fn a_store_that_answers_nothing_does_not_delay_a_cancel_of_the_opening() {
    let world = World::new();
    drop(world.init());
    for at in ["get config", "list keys", "get keys"] {
        soon_enough(|| {
            let (store, hanging) = hanging_store(&world, Some(at));
            let opening = |cancel: &Cancel| open(&world, store, cancel).map(drop);
            cancelled(opening, || hanging.asked.load(Ordering::SeqCst))
        });
    }
}

type Work<'a> = &'a (dyn Fn(&Arc<Repository>, &Cancel) -> Result<(), RepositoryError> + Sync);

#[test]
fn a_store_that_answers_nothing_any_more_does_not_delay_a_cancel_whatever_it_was_asked_last() {
    let world = World::new();
    for number in 0..8 {
        world.write(&format!("file {number}"), noise(number, 600_000));
    }
    let snapshot = world.backup(&world.init()).snapshot;
    let (task, options) = (task("hangs"), RestoreOptions::new(snapshot, world.path("restored")));
    let everything = BackupOptions { pack_size: 1 << 20, ..world.options() };
    let backup: Work<'_> = &|repository, cancel| repository.backup(&everything, &task, cancel).map(drop);
    let restore: Work<'_> = &|repository, cancel| repository.restore(&options, &task, cancel).map(drop);
    let check: Work<'_> = &|repository, cancel| repository.check(ReadData::Everything, &task, cancel).map(drop);
    let list: Work<'_> = &|repository, _| repository.snapshots().map(drop);
    let unlock: Work<'_> = &|repository, _| repository.unlock(false).map(drop);
    let dump: Work<'_> = &|repository, cancel| {
        let (_, snapshot) = repository.find_snapshot("latest")?;
        let browser = repository.browse(&task, cancel)?;
        browser.dump(&snapshot, std::path::Path::new("file 1"), &mut std::io::sink()).map(drop)
    };
    let before = ["delete", "list locks", "put locks", "get snapshots", "list index", "get index"];
    let works: [(&str, Work<'_>, &[&str]); 6] = [
        (
            "backup",
            backup,
            &["list snapshots", "list data", "get data", "put data", "put index", "get locks", "put snapshots"],
        ),
        ("restore", restore, &["get data"]),
        ("check", check, &["list snapshots", "list keys", "get keys", "list data", "get data"]),
        ("snapshots", list, &["list snapshots"]),
        ("dump", dump, &["list snapshots", "get data"]),
        ("unlock", unlock, &[]),
    ];
    for (name, work, during) in works {
        let before = match name {
            "snapshots" => &before[3..4],
            "dump" => &before[3..],
            "unlock" => &before[..3],
            _ => &before[..],
        };
        for at in before.iter().chain(during) {
            soon_enough(|| {
                // Something new each time, or there would be nothing to store.
                world.write("new", noise(rand::random(), 3_000_000));
                // Locks of earlier attempts, which could not be removed.
                let _ = std::fs::remove_dir_all(world.path("repository/locks"));
                let cancel = Cancel::default();
                let (repository, hanging) = hanging(&world, &cancel);
                *hanging.at.lock().expect("not poisoned") = Some(at);
                let waited =
                    cancelled_by(&cancel, |cancel| work(&repository, cancel), || hanging.asked.load(Ordering::SeqCst));
                assert!(waited < Duration::from_secs(20), "{name} hangs with the store at {at:?}");
                waited
            });
        }
    }
}

#[test]
fn unlocking_ends_soon_after_a_cancel_whichever_lock_it_writes_or_deletes() {
    let world = World::new();
    drop(world.init());
    // The first delete asks whether the store allows any, the second removes the own lock, the third a stale one.
    for at in ["put locks", "delete 1", "delete 2", "delete 3", "delete 4"] {
        soon_enough(|| {
            for content in [b"one that is stale", b"one more of these"] {
                put_lock(&world, content, Duration::from_mins(31));
            }
            let cancel = Cancel::default();
            let (repository, hanging) = hanging(&world, &cancel);
            *hanging.at.lock().expect("not poisoned") = Some(at);
            let unlock = |_: &Cancel| repository.unlock(false).map(drop);
            cancelled_by(&cancel, unlock, || hanging.asked.load(Ordering::SeqCst))
        });
    }
}

#[test]
fn a_lock_that_comes_after_the_cancel_of_unlocking_is_removed_again_and_no_other_is() {
    let world = World::new();
    drop(world.init());
    let stale = put_lock(&world, b"one that is stale", Duration::from_mins(31));
    let (cancel, holding) = (Cancel::default(), Holding::back("locks"));
    let options = OpenOptions { cancel: cancel.clone(), ..OpenOptions::default() };
    let repository = meddled_with(&world, holding.clone(), options);
    cancelled_by(&cancel, |_| repository.unlock(false).map(drop), || holding.waits());
    holding.let_go();
    // Whoever still works on it holds the repository.
    until("what was on its way has ended", || Arc::strong_count(&repository) == 1);
    assert_eq!(lock_files(&world), [stale]);
}

#[test]
fn taking_and_releasing_a_lock_ends_soon_after_a_cancel() {
    let world = World::new();
    drop(world.init());
    for at in ["put locks", "list locks", "delete 1"] {
        soon_enough(|| {
            let cancel = Cancel::default();
            let (repository, hanging) = hanging(&world, &cancel);
            *hanging.at.lock().expect("not poisoned") = Some(at);
            let take = |_: &Cancel| Lock::take(&repository, LockKind::Exclusive).map(drop);
            cancelled_by(&cancel, take, || hanging.asked.load(Ordering::SeqCst))
        });
    }
    soon_enough(|| {
        let cancel = Cancel::default();
        let (repository, hanging) = hanging(&world, &cancel);
        let lock = Lock::take(&repository, LockKind::Shared).expect("taken");
        *hanging.at.lock().expect("not poisoned") = Some("delete");
        let release = |_: &Cancel| {
            drop(lock);
            Err(RepositoryError::Cancelled)
        };
        cancelled_by(&cancel, release, || hanging.asked.load(Ordering::SeqCst))
    });
}
