//! Looking into snapshots.

use std::path::Path;

use plimsoll_repository::{Cancel, OpenOptions, Repository};

use crate::fault::{Meddle, Meddled};
use crate::world::{PASSWORD, World, noise, task};

#[test]
fn snapshots_are_listed_searched_read_and_added_up() {
    let world = World::new();
    world.write("logs/a.log", "one line");
    world.write("logs/b.txt", noise(1, 2_000_000));
    std::fs::hard_link(world.source().join("logs/a.log"), world.source().join("again.log")).expect("a link");
    let repository = world.init();
    let outcome = world.backup(&repository);
    let (_, snapshot) = repository.find_snapshot(&outcome.snapshot.short()).expect("by its first digits");
    let browser = repository.browse(&task("browse"), &Cancel::default()).expect("browses");

    let mut paths = Vec::new();
    browser.list(&snapshot, Path::new(""), &mut |path, _| paths.push(path.display().to_string())).expect("lists");
    assert_eq!(paths, ["/again.log", "/logs", "/logs/a.log", "/logs/b.txt"]);
    let found = browser.find(&snapshot, "*.log").expect("finds");
    assert_eq!(
        found.iter().map(|(path, _)| path.to_str()).collect::<Vec<_>>(),
        [Some("/again.log"), Some("/logs/a.log")]
    );

    let mut content = Vec::new();
    assert_eq!(browser.dump(&snapshot, Path::new("/logs/b.txt"), &mut content).expect("reads"), 2_000_000);
    assert!(content == noise(1, 2_000_000));
    let error = browser.dump(&snapshot, Path::new("logs"), &mut content).expect_err("no file");
    assert_eq!(error.reason(), "PathNotFound");

    let stats = browser.stats(&[snapshot.clone(), snapshot]).expect("adds up");
    assert_eq!((stats.files, stats.restore_size), (6, 2 * 2_000_008));
    assert_eq!(stats.blobs, outcome.summary.data_blobs + outcome.summary.tree_blobs);
    assert_eq!(stats.stored_size, outcome.summary.data_added_packed);
    assert_eq!(repository.find_snapshot("f00d").expect_err("none").reason(), "SnapshotNotFound");
}

#[test]
fn index_files_are_kept_on_this_machine_and_believed_only_if_their_hash_is_right() {
    let world = World::new();
    world.write("file", "content");
    world.backup(&world.init());
    let options = OpenOptions { cache: Some(world.path("cache")), ..OpenOptions::default() };
    let handle = world.runtime.handle().clone();
    let repository = Repository::open(world.store(), handle, PASSWORD.as_bytes(), options).expect("opens");
    let browse = || repository.browse(&task("browse"), &Cancel::default()).map(drop);
    browse().expect("fills the cache");
    let only_file = |folder: std::path::PathBuf| {
        let mut files = std::fs::read_dir(folder).expect("lists").map(|entry| entry.expect("a file").path());
        files.next().expect("one file")
    };
    let stored = only_file(world.path("repository/index"));
    let cached = only_file(world.path("cache").join(repository.id().to_string()).join("index"));
    let good = std::fs::read(&stored).expect("reads");
    std::fs::write(&stored, "damaged").expect("writes");
    let damage = |repository: &Repository| {
        let browser = repository.browse(&task("browse"), &Cancel::default()).expect("browses");
        browser.damage().len()
    };
    assert_eq!(damage(&repository), 0, "the copy is enough");
    std::fs::write(&cached, "damaged too").expect("writes");
    assert_eq!(damage(&repository), 1, "neither is good");
    std::fs::write(&stored, &good).expect("writes");
    assert_eq!(damage(&repository), 0, "the stored one is good again");
    assert_eq!(std::fs::read(&cached).expect("reads"), good, "and replaces the damaged copy");
}

#[test]
fn a_cached_index_file_that_is_not_in_the_repository_goes_once_it_is_old_and_not_while_another_transfer_may_need_it() {
    let world = World::new();
    world.write("file", "content");
    world.backup(&world.init());
    let options = OpenOptions { cache: Some(world.path("cache")), ..OpenOptions::default() };
    let handle = world.runtime.handle().clone();
    let repository = Repository::open(world.store(), handle, PASSWORD.as_bytes(), options).expect("opens");
    let folder = world.path("cache").join(repository.id().to_string()).join("index");
    std::fs::create_dir_all(&folder).expect("a folder");
    let write = |name: String, minutes: u64| {
        let file = std::fs::File::create(folder.join(name)).expect("a file");
        let time = std::time::SystemTime::now() - std::time::Duration::from_mins(minutes);
        file.set_modified(time).expect("a time");
    };
    let (young, old) =
        (plimsoll_repository::Id::of(b"young").to_string(), plimsoll_repository::Id::of(b"old").to_string());
    write(young.clone(), 59);
    write("tmp-young".into(), 59);
    write(old.clone(), 61);
    write("tmp-old".into(), 61);
    repository.browse(&task("browse"), &Cancel::default()).expect("browses");
    let is_there = |name: &str| folder.join(name).exists();
    assert!(is_there(&young) && is_there("tmp-young"), "somebody else wrote them after we had listed");
    assert!(!is_there(&old) && !is_there("tmp-old"), "nobody needs them");
}

/// Counts what is read of the index.
#[derive(Default)]
struct Counting(std::sync::atomic::AtomicUsize);

impl Meddle for Counting {
    fn before_get(&self, path: &object_store::path::Path) -> object_store::Result<()> {
        if path.as_ref().starts_with("index/") {
            self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
        Ok(())
    }
}

#[test]
fn an_incremental_backup_on_the_same_machine_downloads_no_index() {
    let world = World::new();
    drop(world.init());
    let counting = std::sync::Arc::new(Counting::default());
    for round in 0..3 {
        world.write(&format!("file {round}"), noise(round, 100_000));
        let disk = object_store::local::LocalFileSystem::new_with_prefix(world.path("repository")).expect("a store");
        let objects = Meddled::new(std::sync::Arc::new(disk), counting.clone());
        let store = plimsoll_store::Store::from_objects(objects, "counted".into(), "").expect("a store");
        let options = OpenOptions { cache: Some(world.path("cache")), ..OpenOptions::default() };
        let opened = Repository::open(store, world.runtime.handle().clone(), PASSWORD.as_bytes(), options);
        let repository = std::sync::Arc::new(opened.expect("opens"));
        let outcome = repository.backup(&world.options(), &task("backup"), &Cancel::default()).expect("backs up");
        assert_eq!(outcome.summary.data_blobs, 1, "only the new file");
    }
    assert_eq!(counting.0.load(std::sync::atomic::Ordering::SeqCst), 0, "every index file was written here");
}
