//! Cancelling: soon, whatever the store does, and without losing what was stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
use plimsoll_repository::{Cancel, ReadData, Repository, RepositoryError};
use plimsoll_store::Store;

use crate::world::{World, check, fingerprint, noise, task};

/// The promise. A machine that others use too may miss it once, but not every time.
const SOON: Duration = Duration::from_secs(1);
const ATTEMPTS: usize = 4;

/// Cancels work when `ready` says so; answers with how long it went on.
fn cancelled(work: impl FnOnce(&Cancel) -> Result<(), RepositoryError> + Send, ready: impl Fn() -> bool) -> Duration {
    let cancel = Cancel::default();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| work(&cancel));
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

fn soon_enough(attempt: impl FnMut() -> Duration) {
    let waited: Vec<_> = std::iter::repeat_with(attempt).take(ATTEMPTS).take_while(|waited| *waited > SOON).collect();
    assert!(waited.len() < ATTEMPTS, "{waited:?}");
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

/// A store that answers nothing any more once it hangs.
#[derive(Debug)]
struct Hanging {
    inner: LocalFileSystem,
    hangs: Arc<AtomicBool>,
    asked: Arc<AtomicBool>,
}

impl Hanging {
    async fn wait(&self) {
        if self.hangs.load(Ordering::SeqCst) {
            self.asked.store(true, Ordering::SeqCst);
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
        self.wait().await;
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
        self.wait().await;
        self.inner.get_opts(path, options).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        let hangs = self.hangs.load(Ordering::SeqCst);
        if hangs {
            self.asked.store(true, Ordering::SeqCst);
            return futures::stream::pending().boxed();
        }
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        let hangs = self.hangs.load(Ordering::SeqCst);
        if hangs {
            self.asked.store(true, Ordering::SeqCst);
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

/// A repository whose store can be made to hang, and a sign that it is being asked while it does.
fn hanging(world: &World) -> (Arc<Repository>, Arc<AtomicBool>, Arc<AtomicBool>) {
    let inner = LocalFileSystem::new_with_prefix(world.path("repository")).expect("a store");
    let (hangs, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let objects = Hanging { inner, hangs: hangs.clone(), asked: asked.clone() };
    let store = Store::from_objects(Arc::new(objects), "hanging".into(), "").expect("a store");
    (world.open_on(store), hangs, asked)
}

type Work<'a> = &'a (dyn Fn(&Arc<Repository>, &Cancel) -> Result<(), RepositoryError> + Sync);

#[test]
fn a_store_that_answers_nothing_does_not_delay_a_cancel() {
    let world = World::new();
    for number in 0..8 {
        world.write(&format!("file {number}"), noise(number, 600_000));
    }
    let snapshot = world.backup(&world.init()).snapshot;
    let (task, options) = (task("hangs"), RestoreOptions::new(snapshot, world.path("restored")));
    let works: [(&str, Work<'_>); 3] = [
        ("backup", &|repository, cancel| repository.backup(&world.options(), &task, cancel).map(drop)),
        ("restore", &|repository, cancel| repository.restore(&options, &task, cancel).map(drop)),
        ("check", &|repository, cancel| repository.check(ReadData::Everything, &task, cancel).map(drop)),
    ];
    for (name, work) in works {
        soon_enough(|| {
            let (repository, hangs, asked) = hanging(&world);
            hangs.store(true, Ordering::SeqCst);
            let waited = cancelled(|cancel| work(&repository, cancel), || asked.load(Ordering::SeqCst));
            assert!(waited < Duration::from_secs(20), "{name} hangs with the store");
            waited
        });
    }
}
