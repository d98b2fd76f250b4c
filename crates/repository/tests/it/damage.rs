//! Damage is detected and reported, and affects only the data it hits.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_progress::{Clock, Operation, Unit};
use plimsoll_repository::backup::BackupOptions;
use plimsoll_repository::restore::{RestoreOptions, RestoreOutcome};
use plimsoll_repository::{Cancel, MemoryLimit, OpenOptions, ReadData, Repository};

use crate::faulty_store::{FaultyStore, UnreadableKeys, denied};
use crate::testbed::{PASSWORD, Testbed, check, random_bytes, task};

/// All files below a folder of the repository.
fn files(testbed: &Testbed, folder: &str) -> Vec<PathBuf> {
    let (mut found, mut pending) = (Vec::new(), vec![testbed.path("repository").join(folder)]);
    while let Some(path) = pending.pop() {
        match fs::read_dir(&path) {
            Ok(entries) => pending.extend(entries.flatten().map(|entry| entry.path())),
            Err(_) => found.push(path),
        }
    }
    found.sort();
    found
}

fn change(file: &Path, damage: impl Fn(&mut Vec<u8>)) {
    let mut content = fs::read(file).expect("reads");
    damage(&mut content);
    fs::write(file, content).expect("writes");
}

const FILES: usize = 10;

/// Ten files, each in one blob, all in one pack; returns that pack.
fn ten_files(testbed: &Testbed) -> PathBuf {
    for number in 0..FILES as u64 {
        testbed.write(&format!("folder {}/file {number}", number % 2), random_bytes(number, 50_000));
    }
    let repository = testbed.init();
    let options = BackupOptions { workers: 1, ..testbed.options() };
    repository.backup(&options, &task("backup"), &Cancel::default()).expect("backs up");
    files(testbed, "data").into_iter().max_by_key(|pack| pack.metadata().expect("is there").len()).expect("a pack")
}

fn restore_readable(testbed: &Testbed) -> RestoreOutcome {
    let repository = testbed.open();
    let (snapshot, _) = repository.find_snapshot("latest").expect("is there");
    let _ = fs::remove_dir_all(testbed.path("restored"));
    testbed.restore(&repository, snapshot)
}

/// The names of intact restored files. No other file may look complete.
fn good_files(testbed: &Testbed) -> BTreeSet<String> {
    let name = |number: usize| format!("folder {}/file {number}", number % 2);
    let names = (0..FILES).map(name);
    names
        .filter(|name| fs::read(testbed.path("restored").join(name)).ok() == fs::read(testbed.source().join(name)).ok())
        .collect()
}

#[test]
fn a_flipped_bit_in_a_blob_affects_one_file() {
    let testbed = Testbed::new();
    let pack = ten_files(&testbed);
    change(&pack, |content| content[120_000] ^= 4);
    let found = check(&testbed.open());
    assert!(found.errors.iter().any(|error| error.contains("MAC verification failed")), "{:?}", found.errors);
    let outcome = restore_readable(&testbed);
    assert_eq!((outcome.files, outcome.problems.len()), (9, 1), "{:?}", outcome.problems);
    let good = good_files(&testbed);
    assert_eq!(good.len(), 9);
    assert!(!good.iter().any(|name| outcome.problems[0].path.ends_with(name)), "{:?}", outcome.problems);
}

#[test]
fn all_hard_links_of_a_damaged_file_are_problems() {
    let testbed = Testbed::new();
    testbed.write("first", random_bytes(1, 50_000));
    testbed.write("other", random_bytes(2, 50_000));
    for (name, link) in [("first", "a second name"), ("first", "third"), ("other", "good")] {
        fs::hard_link(testbed.source().join(name), testbed.source().join(link)).expect("a link");
    }
    testbed.backup(&testbed.init());
    let packs = files(&testbed, "data");
    let pack = packs.iter().max_by_key(|pack| pack.metadata().expect("is there").len()).expect("a pack");
    for at in [20_000, 70_000] {
        change(pack, |content| content[at] ^= 4);
        let (repository, operation) = (testbed.open(), Operation::new("restore", Clock::system()));
        let (snapshot, _) = repository.find_snapshot("latest").expect("is there");
        let _ = fs::remove_dir_all(testbed.path("restored"));
        let options = RestoreOptions::new(snapshot, testbed.path("restored"));
        let outcome = repository.restore(&options, &operation.root(), &Cancel::default()).expect("restores");
        change(pack, |content| content[at] ^= 4);
        // The damaged file depends on the order in the pack.
        let named: BTreeSet<_> =
            outcome.problems.iter().filter_map(|problem| problem.path.rsplit('/').next()).collect();
        let lost =
            if named.contains("first") { vec!["a second name", "first", "third"] } else { vec!["good", "other"] };
        assert_eq!(named, lost.iter().copied().collect(), "{:?}", outcome.problems);
        let counts = operation.root().meter(Unit::Files).counts();
        let lost = lost.len() as u64;
        assert_eq!((counts.done, counts.failed, counts.total.value()), (5 - lost, lost, Some(5)));
    }
}

#[test]
fn a_truncated_pack_affects_only_the_missing_part() {
    let testbed = Testbed::new();
    let pack = ten_files(&testbed);
    change(&pack, |content| content.truncate(260_000));
    assert!(check(&testbed.open()).errors.iter().any(|error| error.contains("bytes instead of")));
    let outcome = restore_readable(&testbed);
    assert_eq!((outcome.files, outcome.problems.len()), (5, 5), "{:?}", outcome.problems);
}

#[test]
fn a_missing_pack_affects_only_its_content() {
    let testbed = Testbed::new();
    let pack = ten_files(&testbed);
    testbed.write("small", "in another pack");
    testbed.backup(&testbed.open());
    fs::remove_file(&pack).expect("removes");
    assert!(check(&testbed.open()).errors.iter().any(|error| error.contains("is missing")));
    let outcome = restore_readable(&testbed);
    assert_eq!((outcome.files, outcome.problems.len()), (1, 10), "{:?}", outcome.problems);
}

/// Bits spread over a file, the first and the last among them.
fn some_bits(file: &Path) -> Vec<usize> {
    let bits = usize::try_from(file.metadata().expect("is there").len()).expect("small") * 8;
    (0..=6).map(|step| (bits - 1) * step / 6).collect()
}

fn flip(file: &Path, bit: usize) {
    change(file, |content| content[bit / 8] ^= 1 << (bit % 8));
}

/// A check reports the damaged file, and a restore restores all independent files.
#[test]
fn a_flipped_bit_in_any_pack_index_or_snapshot_is_reported_and_isolated() {
    let testbed = Testbed::new();
    let data_pack = ten_files(&testbed);
    let repository = testbed.open();
    let (snapshot, _) = repository.find_snapshot("latest").expect("is there");
    testbed.write("folder 0/later", "a second snapshot, with packs and an index file of its own");
    testbed.backup(&repository);
    for folder in ["data", "index", "snapshots", "keys"] {
        for file in files(&testbed, folder) {
            let name = file.file_name().expect("a name").to_string_lossy().into_owned();
            if name == snapshot.to_string() {
                continue;
            }
            for bit in some_bits(&file) {
                flip(&file, bit);
                let found = check(&repository);
                assert!(
                    found.errors.iter().any(|error| error.contains(&name[..8])),
                    "{folder} {bit}: {:?}",
                    found.errors
                );
                let _ = fs::remove_dir_all(testbed.path("restored"));
                let outcome = testbed.restore(&repository, snapshot);
                let lost = FILES - good_files(&testbed).len();
                let allowed = if file == data_pack { 1 } else { FILES };
                assert!(lost <= allowed, "{folder} {bit}: {lost} files");
                assert!(lost == 0 || folder == "data", "{folder} {bit}: {:?}", outcome.problems);
                assert!((lost == 0) || !outcome.problems.is_empty(), "{folder} {bit}: not named");
                flip(&file, bit);
            }
        }
    }
    assert_eq!(check(&repository).errors, Vec::<String>::new(), "every bit is back");
}

#[test]
fn a_check_reads_the_index_from_the_store_not_from_the_cache() {
    let testbed = Testbed::new();
    ten_files(&testbed);
    let options = OpenOptions { cache: Some(testbed.path("cache")), ..OpenOptions::default() };
    let handle = testbed.runtime.handle().clone();
    let opened = Repository::open(testbed.store(), handle, PASSWORD.as_bytes(), options).expect("opens");
    let repository = Arc::new(opened);
    let listed = repository.browse(&task("browse"), &Cancel::default());
    drop(listed.expect("reads the index, which is cached from now on"));
    assert_eq!(check(&repository).errors, Vec::<String>::new());
    flip(&files(&testbed, "index")[0], 1000);
    assert!(check(&repository).errors.iter().any(|error| error.contains("index/")));
}

#[test]
fn a_flipped_bit_in_a_large_pack_is_reported_with_every_store() {
    let testbed = Testbed::new();
    testbed.write("file", random_bytes(1, 30_000_000));
    let options = BackupOptions { workers: 1, pack_size: 32 << 20, ..testbed.options() };
    drop(testbed.init());
    // Packs of this size take more than the usual memory.
    let memory = MemoryLimit { bytes: Some(400_000_000), operations: 1 };
    let (handle, opened) = (testbed.runtime.handle().clone(), OpenOptions { memory, ..OpenOptions::default() });
    let opened = Repository::open(testbed.store(), handle, PASSWORD.as_bytes(), opened);
    let repository = Arc::new(opened.expect("opens"));
    repository.backup(&options, &task("backup"), &Cancel::default()).expect("backs up");
    let size = |pack: &PathBuf| pack.metadata().expect("is there").len();
    let pack = files(&testbed, "data").into_iter().max_by_key(size).expect("a pack");
    let all: u64 = files(&testbed, "data").iter().map(size).sum();
    assert!(size(&pack) > 25 << 20, "{} bytes", size(&pack));
    let disk = object_store::local::LocalFileSystem::new_with_prefix(testbed.path("repository")).expect("a store");
    let elsewhere = plimsoll_store::Store::from_objects(Arc::new(disk), "disk".into(), "").expect("a store");
    let name = pack.file_name().expect("a name").to_string_lossy().into_owned();
    for repository in [testbed.open(), testbed.open_on(elsewhere)] {
        let found = check(&repository);
        assert_eq!((found.errors, found.hints, found.bytes_read), (vec![], vec![], all));
        for bit in some_bits(&pack) {
            flip(&pack, bit);
            let errors = check(&repository).errors;
            flip(&pack, bit);
            assert!(errors.iter().all(|error| error.contains(&name)), "{bit}: {errors:?}");
            assert_eq!(errors.len(), 2, "the hash, and what was hit: {bit}: {errors:?}");
        }
        let whole = fs::read(&pack).expect("reads");
        change(&pack, |content| content.truncate(content.len() - 1000));
        let errors = check(&repository).errors;
        fs::write(&pack, whole).expect("writes");
        assert!(!errors.is_empty() && errors.iter().all(|error| error.contains(&name)), "{errors:?}");
    }
}

#[test]
fn an_oversized_pack_is_reported_and_not_read() {
    let testbed = Testbed::new();
    ten_files(&testbed);
    let giant = testbed.path("repository/data/ab").join("ab".repeat(32));
    fs::create_dir_all(giant.parent().expect("a folder")).expect("a folder");
    fs::File::create(giant).expect("a file").set_len(1 << 40).expect("a hole");
    let outcome = check(&testbed.open());
    assert!(
        outcome.errors.iter().all(|error| error.contains("abab") && error.contains("exceeds the limit")),
        "{outcome:?}"
    );
    assert_eq!(outcome.errors.len(), 1, "{outcome:?}");
}

#[test]
fn a_sample_reads_about_the_requested_share_and_finds_damage() {
    let testbed = Testbed::new();
    for number in 0..60 {
        testbed.write(&format!("file {number}"), random_bytes(number, 100_000));
    }
    let options = BackupOptions { pack_size: 50_000, ..testbed.options() };
    testbed.init().backup(&options, &task("backup"), &Cancel::default()).expect("backs up");
    let repository = testbed.open();
    let sample = |percent| repository.check(ReadData::Sample(percent), &task("check"), &Cancel::default());
    let all: u64 = files(&testbed, "data").iter().map(|pack| pack.metadata().expect("is there").len()).sum();
    let read = |percent| sample(percent).expect("checks").bytes_read;
    assert_eq!((read(0), read(100)), (0, all));
    let half = read(50);
    assert!(half > all / 10 && half < all / 10 * 9, "{half} of {all}");
    for pack in files(&testbed, "data") {
        flip(&pack, 800);
    }
    let found = sample(50).expect("checks");
    assert!(found.errors.iter().any(|error| error.contains("pack")), "{:?}", found.errors);
}

fn broken(_: &object_store::path::Path) -> object_store::Error {
    crate::faulty_store::refused("input/output error")
}

#[test]
fn an_unreadable_pack_affects_only_its_content() {
    for (error, reason) in [(denied as fn(&_) -> _, "StoreAccessDenied"), (broken, "StoreUnavailable")] {
        let testbed = Testbed::new();
        let pack = ten_files(&testbed);
        testbed.write("small", "in another pack");
        let snapshot = testbed.backup(&testbed.open()).snapshot;
        let key = pack.file_name().expect("a name").to_string_lossy().into_owned();
        let withheld = Arc::new(UnreadableKeys { key: key.clone(), error, everything: false.into() });
        let disk = object_store::local::LocalFileSystem::new_with_prefix(testbed.path("repository")).expect("a store");
        let objects = FaultyStore::new(Arc::new(disk), withheld.clone());
        let repository =
            testbed.open_on(plimsoll_store::Store::from_objects(objects, "disk".into(), "").expect("a store"));
        let found = check(&repository);
        assert!(found.errors.iter().any(|error| error.contains(&key)), "{:?}", found.errors);
        let outcome = testbed.restore(&repository, snapshot);
        assert_eq!((outcome.files, outcome.problems.len()), (1, 10), "{:?}", outcome.problems);
        assert!(outcome.problems.iter().all(|problem| problem.cause.contains(&key)), "{:?}", outcome.problems);
        // If the store fails for all packs, a single pack is not reported as damaged.
        let options = RestoreOptions::new(snapshot, testbed.path("again"));
        withheld.everything.store(true, std::sync::atomic::Ordering::SeqCst);
        let refused = repository.restore(&options, &task("restore"), &Cancel::default()).expect_err("fails");
        assert_eq!(refused.reason(), reason);
    }
}

#[test]
fn an_unreadable_local_pack_affects_only_its_content() {
    let testbed = Testbed::new();
    let pack = ten_files(&testbed);
    testbed.write("small", "in another pack");
    testbed.backup(&testbed.open());
    fs::remove_file(&pack).expect("removes");
    std::os::unix::fs::symlink(&pack, &pack).expect("a link to itself");
    let outcome = restore_readable(&testbed);
    assert_eq!((outcome.files, outcome.problems.len()), (1, 10), "{:?}", outcome.problems);
}

#[test]
fn a_damaged_tree_affects_only_its_directory() {
    let testbed = Testbed::new();
    ten_files(&testbed);
    let trees = files(&testbed, "data").into_iter().min_by_key(|pack| pack.metadata().expect("is there").len());
    // Trees are written when they are complete: the root is the last.
    flip(&trees.expect("a pack of trees"), 8 * 40);
    let outcome = restore_readable(&testbed);
    assert_eq!((good_files(&testbed).len(), outcome.problems.len()), (5, 1), "{:?}", outcome.problems);
    assert!(outcome.problems[0].path.contains("folder "), "{:?}", outcome.problems);
}

#[test]
fn a_damaged_snapshot_does_not_affect_the_others() {
    let testbed = Testbed::new();
    ten_files(&testbed);
    let repository = testbed.open();
    let (first, _) = repository.find_snapshot("latest").expect("is there");
    let second = testbed.backup(&repository).snapshot;
    flip(&testbed.path("repository/snapshots").join(second.to_string()), 300);
    let (readable, damage) = repository.readable_snapshots().expect("lists");
    assert_eq!(readable.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [first]);
    assert!(damage[0].to_string().contains(&second.to_string()), "{damage:?}");
    for name in ["latest", &second.to_string()] {
        assert_eq!(repository.find_snapshot(name).expect_err("damaged").reason(), "RepositoryDamaged");
    }
    assert_eq!(repository.find_snapshot(&first.to_string()).expect("found").0, first);
    testbed.backup(&repository);
}

#[test]
fn a_repository_without_a_config_can_be_restored_but_not_written() {
    for damage in [|file: &Path| flip(file, 200), |file: &Path| fs::remove_file(file).expect("removes")] {
        let testbed = Testbed::new();
        ten_files(&testbed);
        damage(&testbed.path("repository/config"));
        let open = |rescue| {
            let options = OpenOptions { rescue, ..OpenOptions::default() };
            Repository::open(testbed.store(), testbed.runtime.handle().clone(), PASSWORD.as_bytes(), options)
                .map(Arc::new)
        };
        let error = open(false).expect_err("not as if nothing had happened");
        assert!(["RepositoryDamaged", "RepositoryNotFound"].contains(&error.reason()), "{error}");
        let repository = open(true).expect("to rescue what there is");
        let (snapshot, _) = repository.find_snapshot("latest").expect("is there");
        testbed.restore(&repository, snapshot);
        assert_eq!(good_files(&testbed).len(), FILES);
        let refused = repository.backup(&testbed.options(), &task("backup"), &Cancel::default());
        assert_eq!(refused.expect_err("only to read").reason(), "UnsupportedRepository");
    }
}

#[test]
fn a_damaged_key_does_not_affect_other_passwords() {
    let testbed = Testbed::new();
    ten_files(&testbed);
    let key = files(&testbed, "keys").remove(0);
    let open = || {
        let handle = testbed.runtime.handle().clone();
        Repository::open(testbed.store(), handle, PASSWORD.as_bytes(), OpenOptions::default()).map(drop)
    };
    fs::write(testbed.path("repository/keys").join("0".repeat(64)), "no key file").expect("writes");
    open().expect("the good key opens");
    change(&key, |content| content.truncate(50));
    assert_eq!(open().expect_err("no good key").reason(), "RepositoryDamaged");
}

#[test]
fn lost_data_is_stored_again_by_the_next_backup() {
    let testbed = Testbed::new();
    let pack = ten_files(&testbed);
    fs::remove_file(&pack).expect("removes");
    for index in files(&testbed, "index") {
        fs::remove_file(index).expect("removes");
    }
    let outcome = restore_readable(&testbed);
    assert_eq!((outcome.files, outcome.problem_count), (0, FILES as u64), "the trees were found in their pack");
    let repository = testbed.open();
    let outcome = testbed.backup(&repository);
    assert_eq!(outcome.summary.data_blobs, FILES as u64, "read again, because the parent's blobs are gone");
    let _ = fs::remove_dir_all(testbed.path("restored"));
    testbed.restore(&repository, outcome.snapshot);
    assert_eq!(good_files(&testbed).len(), FILES);
}

#[test]
fn a_flipped_bit_in_the_only_key_is_damage_not_a_wrong_password() {
    let testbed = Testbed::new();
    ten_files(&testbed);
    let key = files(&testbed, "keys").remove(0);
    let open = |password: &str| {
        let handle = testbed.runtime.handle().clone();
        Repository::open(testbed.store(), handle, password.as_bytes(), OpenOptions::default()).map(drop)
    };
    assert_eq!(open("another").expect_err("the key is good").reason(), "WrongRepositoryPassword");
    let name = key.file_name().expect("a name").to_string_lossy().into_owned();
    for field in ["\"salt\":\"", "\"data\":\""] {
        let whole = fs::read_to_string(&key).expect("reads");
        let at = whole.find(field).expect("a field") + field.len() + 4;
        let other = if whole.as_bytes()[at] == b'A' { "B" } else { "A" };
        fs::write(&key, [&whole[..at], other, &whole[at + 1..]].concat()).expect("writes");
        let error = open(PASSWORD).expect_err("damaged");
        assert!(error.reason() == "RepositoryDamaged" && error.to_string().contains(&name), "{field}: {error}");
        fs::write(&key, whole).expect("writes");
    }
    open(PASSWORD).expect("is whole again");
}

#[test]
fn oversized_keys_locks_and_snapshots_are_not_read() {
    let testbed = Testbed::new();
    ten_files(&testbed);
    let repository = testbed.open();
    for folder in ["keys", "snapshots"] {
        let giant = testbed.path("repository").join(folder).join("ab".repeat(32));
        fs::File::create(&giant).expect("a file").set_len(1 << 40).expect("a hole");
        let outcome = check(&testbed.open());
        assert_eq!(outcome.error_count, 1, "{:?}", outcome.errors);
        assert!(
            outcome.errors[0].contains(folder) && outcome.errors[0].contains("exceeds the limit"),
            "{:?}",
            outcome.errors
        );
        testbed.backup(&testbed.open());
        fs::remove_file(&giant).expect("removes");
    }
    let giant = testbed.path("repository/locks").join("ab".repeat(32));
    fs::create_dir_all(giant.parent().expect("a folder")).expect("a folder");
    fs::File::create(&giant).expect("a file").set_len(1 << 40).expect("a hole");
    let refused =
        repository.backup(&testbed.options(), &task("backup"), &Cancel::default()).expect_err("a lock is a lock");
    assert!(refused.reason() == "RepositoryLocked", "{refused}");
}

#[test]
fn a_check_limits_the_listed_errors_and_counts_the_rest() {
    let testbed = Testbed::new();
    for number in 0..1100 {
        testbed.write(&format!("file {number}"), format!("content {number}"));
    }
    let options = BackupOptions { index_every: 1, workers: 1, ..testbed.options() };
    testbed.init().backup(&options, &task("backup"), &Cancel::default()).expect("backs up");
    // One for the pack of files, one for the pack of trees.
    let mut index = files(&testbed, "index");
    index.sort_by_key(|file| file.metadata().expect("is there").len());
    assert_eq!(index.len(), 2);
    fs::remove_file(&index[1]).expect("removes");
    let found = check(&testbed.open());
    assert_eq!((found.errors.len(), found.error_count, found.is_good()), (1000, 1100, false));
}

#[test]
fn cached_snapshots_are_not_fetched_again_except_by_a_check() {
    let testbed = Testbed::new();
    ten_files(&testbed);
    let open = || {
        let options = OpenOptions { cache: Some(testbed.path("cache")), ..OpenOptions::default() };
        let handle = testbed.runtime.handle().clone();
        Arc::new(Repository::open(testbed.store(), handle, PASSWORD.as_bytes(), options).expect("opens"))
    };
    let first = open().find_snapshot("latest").expect("is there").0;
    let second = testbed.backup(&open()).snapshot;
    for file in files(&testbed, "snapshots") {
        flip(&file, 300);
    }
    let known: BTreeSet<_> = open().snapshots().expect("are cached").into_iter().map(|(id, _)| id).collect();
    assert_eq!(known, BTreeSet::from([first, second]));
    assert_eq!(check(&open()).error_count, 2, "the store's are damaged");
    fs::remove_file(testbed.path("repository/snapshots").join(first.to_string())).expect("removes");
    assert_eq!(open().snapshots().expect("are cached").len(), 1, "what is gone from the store is gone");
}
