//! Reading snapshots, and the index cache.

use std::path::Path;

use plimsoll_repository::{Cancel, OpenOptions, Repository};

use crate::faulty_store::{Fault, FaultyStore};
use crate::testbed::{PASSWORD, Testbed, random_bytes, task};

#[test]
fn snapshots_can_be_listed_searched_dumped_and_measured() {
    let testbed = Testbed::new();
    testbed.write("logs/a.log", "one line");
    testbed.write("logs/b.txt", random_bytes(1, 2_000_000));
    std::fs::hard_link(testbed.source().join("logs/a.log"), testbed.source().join("again.log")).expect("a link");
    let repository = testbed.init();
    let outcome = testbed.backup(&repository);
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
    assert!(content == random_bytes(1, 2_000_000));
    let error = browser.dump(&snapshot, Path::new("logs"), &mut content).expect_err("no file");
    assert_eq!(error.reason(), "PathNotFound");

    let stats = browser.stats(&[snapshot.clone(), snapshot]).expect("adds up");
    assert_eq!((stats.files, stats.restore_size), (6, 2 * 2_000_008));
    assert_eq!(stats.blobs, outcome.summary.data_blobs + outcome.summary.tree_blobs);
    assert_eq!(stats.stored_size, outcome.summary.data_added_packed);
    assert_eq!(repository.find_snapshot("f00d").expect_err("none").reason(), "SnapshotNotFound");
}

/// A repository with one snapshot, opened with a cache in `cache`.
fn cached_repository() -> (Testbed, Repository) {
    let testbed = Testbed::new();
    testbed.write("file", "content");
    testbed.backup(&testbed.init());
    let options = OpenOptions { cache: Some(testbed.path("cache")), ..OpenOptions::default() };
    let handle = testbed.runtime.handle().clone();
    let repository = Repository::open(testbed.store(), handle, PASSWORD.as_bytes(), options).expect("opens");
    (testbed, repository)
}

#[test]
fn cached_index_files_are_verified() {
    let (testbed, repository) = cached_repository();
    let browse = || repository.browse(&task("browse"), &Cancel::default()).map(drop);
    browse().expect("fills the cache");
    let only_file = |folder: std::path::PathBuf| {
        let mut files = std::fs::read_dir(folder).expect("lists").map(|entry| entry.expect("a file").path());
        files.next().expect("one file")
    };
    let stored = only_file(testbed.path("repository/index"));
    let cached = only_file(testbed.path("cache").join(repository.id().to_string()).join("index"));
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
fn a_stale_cached_index_file_is_removed_only_when_it_is_old() {
    let (testbed, repository) = cached_repository();
    let folder = testbed.path("cache").join(repository.id().to_string()).join("index");
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
    assert!(is_there(&young) && is_there("tmp-young"), "another transfer may have added them");
    assert!(!is_there(&old) && !is_there("tmp-old"), "they are stale");
}

/// Counts reads of index files.
#[derive(Default)]
struct Counting(std::sync::atomic::AtomicUsize);

impl Fault for Counting {
    fn before_get(&self, path: &object_store::path::Path) -> object_store::Result<()> {
        if path.as_ref().starts_with("index/") {
            self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
        Ok(())
    }
}

#[test]
fn an_incremental_backup_with_a_cache_downloads_no_index() {
    let testbed = Testbed::new();
    drop(testbed.init());
    let counting = std::sync::Arc::new(Counting::default());
    for round in 0..3 {
        testbed.write(&format!("file {round}"), random_bytes(round, 100_000));
        let disk = object_store::local::LocalFileSystem::new_with_prefix(testbed.path("repository")).expect("a store");
        let objects = FaultyStore::new(std::sync::Arc::new(disk), counting.clone());
        let store = plimsoll_store::Store::from_objects(objects, "counted".into(), "").expect("a store");
        let options = OpenOptions { cache: Some(testbed.path("cache")), ..OpenOptions::default() };
        let opened = Repository::open(store, testbed.runtime.handle().clone(), PASSWORD.as_bytes(), options);
        let repository = std::sync::Arc::new(opened.expect("opens"));
        let outcome = repository.backup(&testbed.options(), &task("backup"), &Cancel::default()).expect("backs up");
        assert_eq!(outcome.summary.data_blobs, 1, "only the new file");
    }
    assert_eq!(counting.0.load(std::sync::atomic::Ordering::SeqCst), 0, "every index file was written here");
}
