//! Cancellation: quick with any store, without loss of stored data.

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

use crate::faulty_store::BlockedWrites;
use crate::locking::{lock_files, open_with_fault, put_lock, until};
use crate::testbed::{PASSWORD, Testbed, check, fingerprint, random_bytes, task};

/// The time limit. A busy machine may exceed it once, but not twice in a row.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);

/// Cancels work when `ready` returns `true`; returns the time until it ended.
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
        let started = Instant::now();
        while !ready() {
            assert!(!running.is_finished(), "it ended before it was cancelled");
            assert!(started.elapsed() < Duration::from_mins(1), "not ready after a minute");
            std::thread::yield_now();
        }
        cancel.cancel();
        let cancelled_at = Instant::now();
        let error = running.join().expect("no panic").expect_err("cancelled");
        assert_eq!(error.reason(), "Cancelled");
        cancelled_at.elapsed()
    })
}

fn assert_within_timeout(mut attempt: impl FnMut() -> Duration) {
    let waited = attempt();
    if waited > CANCEL_TIMEOUT {
        let again = [attempt(), attempt()];
        assert!(again.iter().all(|waited| *waited <= CANCEL_TIMEOUT), "{waited:?}, then {again:?}");
    }
}

#[test]
fn a_cancel_ends_a_backup_within_a_second_and_the_next_one_uses_its_data() {
    assert_within_timeout(|| {
        let testbed = Testbed::new();
        for number in 0..40 {
            testbed.write(&format!("file {number}"), random_bytes(number, 600_000));
        }
        let repository = testbed.init();
        let options = BackupOptions { pack_size: 2 << 20, ..testbed.options() };
        let operation = Operation::new("backup", Clock::system());
        let waited = cancelled(
            |cancel| repository.backup(&options, &operation.root(), cancel).map(drop),
            || std::fs::read_dir(testbed.path("repository/data")).is_ok_and(|mut packs| packs.next().is_some()),
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
fn a_cancel_ends_a_restore_within_a_second_and_the_next_one_resumes_it() {
    assert_within_timeout(|| {
        let testbed = Testbed::new();
        for number in 0..60 {
            testbed.write(&format!("file {number:02}"), random_bytes(number, 600_000));
        }
        let repository = testbed.init();
        let snapshot = testbed.backup(&repository).snapshot;
        let target = testbed.path("restored");
        let options = RestoreOptions { overwrite: Overwrite::IfChanged, ..RestoreOptions::new(snapshot, &target) };
        let waited = cancelled(
            |cancel| repository.restore(&options, &task("restore"), cancel).map(drop),
            || std::fs::read_dir(&target).is_ok_and(|files| files.count() > 2),
        );
        let again = repository.restore(&options, &task("again"), &Cancel::default()).expect("restores");
        assert!(again.skipped > 0, "what was complete is left alone");
        assert_eq!(fingerprint(&target), fingerprint(&testbed.source()));
        waited
    });
}

#[test]
fn a_cancel_ends_the_scan_and_the_walk_at_the_next_entry() {
    let testbed = Testbed::new();
    for number in 0..500 {
        testbed.write(&format!("file {number}"), "");
    }
    let (repository, cancel, checks) = (testbed.init(), Cancel::default(), Arc::new(AtomicUsize::new(0)));
    let (counted, cancels) = (checks.clone(), cancel.clone());
    let mut options = testbed.options();
    options.exclude = Some(Arc::new(move |_: &std::path::Path| {
        counted.fetch_add(1, Ordering::SeqCst);
        cancels.cancel();
        false
    }));
    repository.backup(&options, &task("backup"), &cancel).expect_err("cancelled");
    assert!(checks.load(Ordering::SeqCst) <= 4, "both continued: {checks:?}");
}

/// A store that hangs from a certain request on.
#[derive(Debug)]
struct HangingStore {
    inner: LocalFileSystem,
    /// The prefix of that request: "get data" is the first read of a pack, "delete 2" the second delete. `None` without a fault.
    at: Mutex<Option<&'static str>>,
    is_hanging: AtomicBool,
    deletes: AtomicUsize,
}

impl HangingStore {
    /// Whether this request hangs.
    fn hangs(&self, request: &str, path: &str) -> bool {
        let hangs = |at: &str| format!("{request} {path}").starts_with(at);
        let hangs = self.at.lock().expect("not poisoned").is_some_and(hangs);
        self.is_hanging.fetch_or(hangs, Ordering::SeqCst);
        self.is_hanging.load(Ordering::SeqCst)
    }

    async fn wait(&self, request: &str, path: &Path) {
        if self.hangs(request, path.as_ref()) {
            std::future::pending::<()>().await;
        }
    }
}

impl std::fmt::Display for HangingStore {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("HangingStore")
    }
}

#[async_trait::async_trait]
impl ObjectStore for HangingStore {
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

fn hanging_store(testbed: &Testbed, at: Option<&'static str>) -> (Store, Arc<HangingStore>) {
    let inner = LocalFileSystem::new_with_prefix(testbed.path("repository")).expect("a store");
    let hanging = Arc::new(HangingStore {
        inner,
        at: Mutex::new(at),
        is_hanging: AtomicBool::new(false),
        deletes: AtomicUsize::new(0),
    });
    (Store::from_objects(hanging.clone(), "hanging".into(), "").expect("a store"), hanging)
}

fn open(testbed: &Testbed, store: Store, cancel: &Cancel) -> Result<Repository, RepositoryError> {
    let options = OpenOptions { cancel: cancel.clone(), ..OpenOptions::default() };
    Repository::open(store, testbed.runtime.handle().clone(), PASSWORD.as_bytes(), options)
}

/// A repository on a hanging store.
fn hanging(testbed: &Testbed, cancel: &Cancel) -> (Arc<Repository>, Arc<HangingStore>) {
    let (store, hanging) = hanging_store(testbed, None);
    (Arc::new(open(testbed, store, cancel).expect("opens")), hanging)
}

#[test]
fn a_hanging_store_does_not_delay_a_cancel_of_open() {
    let testbed = Testbed::new();
    drop(testbed.init());
    for at in ["get config", "list keys", "get keys"] {
        assert_within_timeout(|| {
            let (store, hanging) = hanging_store(&testbed, Some(at));
            let opening = |cancel: &Cancel| open(&testbed, store, cancel).map(drop);
            cancelled(opening, || hanging.is_hanging.load(Ordering::SeqCst))
        });
    }
}

type Work<'a> = &'a (dyn Fn(&Arc<Repository>, &Cancel) -> Result<(), RepositoryError> + Sync);

#[test]
fn a_hanging_store_does_not_delay_a_cancel_of_any_request() {
    let testbed = Testbed::new();
    for number in 0..8 {
        testbed.write(&format!("file {number}"), random_bytes(number, 600_000));
    }
    let snapshot = testbed.backup(&testbed.init()).snapshot;
    let (task, options) = (task("hangs"), RestoreOptions::new(snapshot, testbed.path("restored")));
    let everything = BackupOptions { pack_size: 1 << 20, resumed: true, ..testbed.options() };
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
            assert_within_timeout(|| {
                // New content each time, or nothing would be stored.
                testbed.write("new", random_bytes(rand::random(), 3_000_000));
                // Locks of earlier attempts that were not removed.
                let _ = std::fs::remove_dir_all(testbed.path("repository/locks"));
                let cancel = Cancel::default();
                let (repository, hanging) = hanging(&testbed, &cancel);
                *hanging.at.lock().expect("not poisoned") = Some(at);
                let waited = cancelled_by(
                    &cancel,
                    |cancel| work(&repository, cancel),
                    || hanging.is_hanging.load(Ordering::SeqCst),
                );
                assert!(waited < Duration::from_secs(20), "{name} hangs with the store at {at:?}");
                waited
            });
        }
    }
}

#[test]
fn a_cancel_of_unlock_is_quick_at_any_request() {
    let testbed = Testbed::new();
    drop(testbed.init());
    // The first delete tests the permission, the second removes the own lock, the third a stale one.
    for at in ["put locks", "delete 1", "delete 2", "delete 3", "delete 4"] {
        assert_within_timeout(|| {
            for content in [b"one that is stale", b"one more of these"] {
                put_lock(&testbed, content, Duration::from_mins(31));
            }
            let cancel = Cancel::default();
            let (repository, hanging) = hanging(&testbed, &cancel);
            *hanging.at.lock().expect("not poisoned") = Some(at);
            let unlock = |_: &Cancel| repository.unlock(false).map(drop);
            cancelled_by(&cancel, unlock, || hanging.is_hanging.load(Ordering::SeqCst))
        });
    }
}

#[test]
fn a_lock_written_after_a_cancel_of_unlock_is_removed() {
    let testbed = Testbed::new();
    drop(testbed.init());
    let stale = put_lock(&testbed, b"one that is stale", Duration::from_mins(31));
    let (cancel, holding) = (Cancel::default(), BlockedWrites::of("locks"));
    let options = OpenOptions { cancel: cancel.clone(), ..OpenOptions::default() };
    let repository = open_with_fault(&testbed, holding.clone(), options);
    cancelled_by(&cancel, |_| repository.unlock(false).map(drop), || holding.is_blocking());
    holding.release();
    // Pending work keeps a reference to the repository.
    until("what was on its way has ended", || Arc::strong_count(&repository) == 1);
    assert_eq!(lock_files(&testbed), [stale]);
}

#[test]
fn a_cancel_of_taking_and_releasing_a_lock_is_quick() {
    let testbed = Testbed::new();
    drop(testbed.init());
    for at in ["put locks", "list locks", "delete 1"] {
        assert_within_timeout(|| {
            let cancel = Cancel::default();
            let (repository, hanging) = hanging(&testbed, &cancel);
            *hanging.at.lock().expect("not poisoned") = Some(at);
            let take = |_: &Cancel| Lock::take(&repository, LockKind::Exclusive).map(drop);
            cancelled_by(&cancel, take, || hanging.is_hanging.load(Ordering::SeqCst))
        });
    }
    assert_within_timeout(|| {
        let cancel = Cancel::default();
        let (repository, hanging) = hanging(&testbed, &cancel);
        let lock = Lock::take(&repository, LockKind::Shared).expect("taken");
        *hanging.at.lock().expect("not poisoned") = Some("delete");
        let release = |_: &Cancel| {
            drop(lock);
            Err(RepositoryError::Cancelled)
        };
        cancelled_by(&cancel, release, || hanging.is_hanging.load(Ordering::SeqCst))
    });
}
