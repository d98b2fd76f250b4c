//! Damage anywhere is found, named, and costs no more than what it hit.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_progress::{Clock, Operation, Unit};
use plimsoll_repository::backup::BackupOptions;
use plimsoll_repository::restore::{RestoreOptions, RestoreOutcome};
use plimsoll_repository::{Cancel, OpenOptions, ReadData, Repository};

use crate::fault::{Meddled, Withheld, denied};
use crate::world::{PASSWORD, World, check, noise, task};

/// All files below a folder of the repository.
fn files(world: &World, folder: &str) -> Vec<PathBuf> {
    let (mut found, mut pending) = (Vec::new(), vec![world.path("repository").join(folder)]);
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
fn ten_files(world: &World) -> PathBuf {
    for number in 0..FILES as u64 {
        world.write(&format!("folder {}/file {number}", number % 2), noise(number, 50_000));
    }
    let repository = world.init();
    let options = BackupOptions { workers: 1, ..world.options() };
    repository.backup(&options, &task("backup"), &Cancel::default()).expect("backs up");
    files(world, "data").into_iter().max_by_key(|pack| pack.metadata().expect("is there").len()).expect("a pack")
}

fn restore_what_is_left(world: &World) -> RestoreOutcome {
    let repository = world.open();
    let (snapshot, _) = repository.find_snapshot("latest").expect("is there");
    let _ = fs::remove_dir_all(world.path("restored"));
    world.restore(&repository, snapshot)
}

/// Names of the files that came back as they were. Nothing else may look as if it had.
fn good_files(world: &World) -> BTreeSet<String> {
    let name = |number: usize| format!("folder {}/file {number}", number % 2);
    let names = (0..FILES).map(name);
    names
        .filter(|name| fs::read(world.path("restored").join(name)).ok() == fs::read(world.source().join(name)).ok())
        .collect()
}

#[test]
fn a_flipped_bit_in_a_blob_costs_one_file_and_names_it() {
    let world = World::new();
    let pack = ten_files(&world);
    change(&pack, |content| content[120_000] ^= 4);
    let found = check(&world.open());
    assert!(found.errors.iter().any(|error| error.contains("the seal is broken")), "{:?}", found.errors);
    let outcome = restore_what_is_left(&world);
    assert_eq!((outcome.files, outcome.problems.len()), (9, 1), "{:?}", outcome.problems);
    let good = good_files(&world);
    assert_eq!(good.len(), 9);
    assert!(!good.iter().any(|name| outcome.problems[0].path.ends_with(name)), "{:?}", outcome.problems);
}

#[test]
fn every_name_of_a_damaged_file_is_named_and_none_of_them_counts_as_restored() {
    let world = World::new();
    world.write("first", noise(1, 50_000));
    world.write("other", noise(2, 50_000));
    for (name, link) in [("first", "a second name"), ("first", "third"), ("other", "good")] {
        fs::hard_link(world.source().join(name), world.source().join(link)).expect("a link");
    }
    world.backup(&world.init());
    let packs = files(&world, "data");
    let pack = packs.iter().max_by_key(|pack| pack.metadata().expect("is there").len()).expect("a pack");
    for at in [20_000, 70_000] {
        change(pack, |content| content[at] ^= 4);
        let (repository, operation) = (world.open(), Operation::new("restore", Clock::system()));
        let (snapshot, _) = repository.find_snapshot("latest").expect("is there");
        let _ = fs::remove_dir_all(world.path("restored"));
        let options = RestoreOptions::new(snapshot, world.path("restored"));
        let outcome = repository.restore(&options, &operation.root(), &Cancel::default()).expect("restores");
        change(pack, |content| content[at] ^= 4);
        // Which of the two is hit depends on which came into the pack first.
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
fn a_pack_that_is_cut_short_costs_what_was_in_the_missing_part() {
    let world = World::new();
    let pack = ten_files(&world);
    change(&pack, |content| content.truncate(260_000));
    assert!(check(&world.open()).errors.iter().any(|error| error.contains("bytes instead of")));
    let outcome = restore_what_is_left(&world);
    assert_eq!((outcome.files, outcome.problems.len()), (5, 5), "{:?}", outcome.problems);
}

#[test]
fn a_missing_pack_is_found_and_costs_what_was_in_it() {
    let world = World::new();
    let pack = ten_files(&world);
    world.write("small", "in another pack");
    world.backup(&world.open());
    fs::remove_file(&pack).expect("removes");
    assert!(check(&world.open()).errors.iter().any(|error| error.contains("is missing")));
    let outcome = restore_what_is_left(&world);
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

/// Whatever is hit: a check names the very file, and a restore gives back everything that does not depend on it.
#[test]
fn a_flipped_bit_in_any_pack_or_index_or_other_snapshot_is_named_and_isolated() {
    let world = World::new();
    let data_pack = ten_files(&world);
    let repository = world.open();
    let (snapshot, _) = repository.find_snapshot("latest").expect("is there");
    world.write("folder 0/later", "a second snapshot, with packs and an index file of its own");
    world.backup(&repository);
    for folder in ["data", "index", "snapshots", "keys"] {
        for file in files(&world, folder) {
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
                let _ = fs::remove_dir_all(world.path("restored"));
                let outcome = world.restore(&repository, snapshot);
                let lost = FILES - good_files(&world).len();
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
fn a_check_looks_at_the_index_in_the_store_whatever_this_machine_has_of_it() {
    let world = World::new();
    ten_files(&world);
    let options = OpenOptions { cache: Some(world.path("cache")), ..OpenOptions::default() };
    let handle = world.runtime.handle().clone();
    let opened = Repository::open(world.store(), handle, PASSWORD.as_bytes(), options).expect("opens");
    let repository = Arc::new(opened);
    let listed = repository.browse(&task("browse"), &Cancel::default());
    drop(listed.expect("reads the index, which is cached from now on"));
    assert_eq!(check(&repository).errors, Vec::<String>::new());
    flip(&files(&world, "index")[0], 1000);
    assert!(check(&repository).errors.iter().any(|error| error.contains("index/")));
}

#[test]
fn a_flipped_bit_in_a_pack_that_is_read_in_parts_is_named_wherever_it_is_and_whatever_the_store() {
    let world = World::new();
    world.write("file", noise(1, 30_000_000));
    let options = BackupOptions { workers: 1, pack_size: 32 << 20, ..world.options() };
    world.init().backup(&options, &task("backup"), &Cancel::default()).expect("backs up");
    let size = |pack: &PathBuf| pack.metadata().expect("is there").len();
    let pack = files(&world, "data").into_iter().max_by_key(size).expect("a pack");
    let all: u64 = files(&world, "data").iter().map(size).sum();
    assert!(size(&pack) > 25 << 20, "{} bytes", size(&pack));
    let disk = object_store::local::LocalFileSystem::new_with_prefix(world.path("repository")).expect("a store");
    let elsewhere = plimsoll_store::Store::from_objects(Arc::new(disk), "disk".into(), "").expect("a store");
    let name = pack.file_name().expect("a name").to_string_lossy().into_owned();
    for repository in [world.open(), world.open_on(elsewhere)] {
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
fn what_is_too_large_to_be_a_pack_is_named_and_not_read() {
    let world = World::new();
    ten_files(&world);
    let giant = world.path("repository/data/ab").join("ab".repeat(32));
    fs::create_dir_all(giant.parent().expect("a folder")).expect("a folder");
    fs::File::create(giant).expect("a file").set_len(1 << 40).expect("a hole");
    let outcome = check(&world.open());
    assert!(outcome.errors.iter().all(|error| error.contains("abab") && error.contains("too many")), "{outcome:?}");
    assert_eq!(outcome.errors.len(), 1, "{outcome:?}");
}

#[test]
fn a_sample_reads_about_as_much_as_was_asked_for_and_finds_what_is_wrong_there() {
    let world = World::new();
    for number in 0..60 {
        world.write(&format!("file {number}"), noise(number, 100_000));
    }
    let options = BackupOptions { pack_size: 50_000, ..world.options() };
    world.init().backup(&options, &task("backup"), &Cancel::default()).expect("backs up");
    let repository = world.open();
    let sample = |percent| repository.check(ReadData::Sample(percent), &task("check"), &Cancel::default());
    let all: u64 = files(&world, "data").iter().map(|pack| pack.metadata().expect("is there").len()).sum();
    let read = |percent| sample(percent).expect("checks").bytes_read;
    assert_eq!((read(0), read(100)), (0, all));
    let half = read(50);
    assert!(half > all / 10 && half < all / 10 * 9, "{half} of {all}");
    for pack in files(&world, "data") {
        flip(&pack, 800);
    }
    let found = sample(50).expect("checks");
    assert!(found.errors.iter().any(|error| error.contains("pack")), "{:?}", found.errors);
}

fn broken(_: &object_store::path::Path) -> object_store::Error {
    crate::fault::refused("input/output error")
}

#[test]
fn a_pack_that_the_store_does_not_give_out_is_named_and_costs_what_was_in_it() {
    for (error, reason) in [(denied as fn(&_) -> _, "StoreAccessDenied"), (broken, "StoreUnavailable")] {
        let world = World::new();
        let pack = ten_files(&world);
        world.write("small", "in another pack");
        let snapshot = world.backup(&world.open()).snapshot;
        let key = pack.file_name().expect("a name").to_string_lossy().into_owned();
        let withheld = Arc::new(Withheld { key: key.clone(), error, everything: false.into() });
        let disk = object_store::local::LocalFileSystem::new_with_prefix(world.path("repository")).expect("a store");
        let objects = Meddled::new(Arc::new(disk), withheld.clone());
        let repository =
            world.open_on(plimsoll_store::Store::from_objects(objects, "disk".into(), "").expect("a store"));
        let found = check(&repository);
        assert!(found.errors.iter().any(|error| error.contains(&key)), "{:?}", found.errors);
        let outcome = world.restore(&repository, snapshot);
        assert_eq!((outcome.files, outcome.problems.len()), (1, 10), "{:?}", outcome.problems);
        assert!(outcome.problems.iter().all(|problem| problem.cause.contains(&key)), "{:?}", outcome.problems);
        // A store that gives out nothing at all says nothing about a single pack.
        let options = RestoreOptions::new(snapshot, world.path("again"));
        withheld.everything.store(true, std::sync::atomic::Ordering::SeqCst);
        let refused = repository.restore(&options, &task("restore"), &Cancel::default()).expect_err("fails");
        assert_eq!(refused.reason(), reason);
    }
}

#[test]
fn a_pack_that_cannot_be_opened_on_this_machine_costs_what_was_in_it() {
    let world = World::new();
    let pack = ten_files(&world);
    world.write("small", "in another pack");
    world.backup(&world.open());
    fs::remove_file(&pack).expect("removes");
    std::os::unix::fs::symlink(&pack, &pack).expect("a link to itself");
    let outcome = restore_what_is_left(&world);
    assert_eq!((outcome.files, outcome.problems.len()), (1, 10), "{:?}", outcome.problems);
}

#[test]
fn a_damaged_directory_costs_what_was_in_it_and_no_other() {
    let world = World::new();
    ten_files(&world);
    let trees = files(&world, "data").into_iter().min_by_key(|pack| pack.metadata().expect("is there").len());
    // Trees are written as they are completed: the first one is a folder's, the root's is the last.
    flip(&trees.expect("a pack of trees"), 8 * 40);
    let outcome = restore_what_is_left(&world);
    assert_eq!((good_files(&world).len(), outcome.problems.len()), (5, 1), "{:?}", outcome.problems);
    assert!(outcome.problems[0].path.contains("folder "), "{:?}", outcome.problems);
}

#[test]
fn a_damaged_snapshot_is_named_and_does_not_hide_the_others() {
    let world = World::new();
    ten_files(&world);
    let repository = world.open();
    let (first, _) = repository.find_snapshot("latest").expect("is there");
    let second = world.backup(&repository).snapshot;
    flip(&world.path("repository/snapshots").join(second.to_string()), 300);
    let (readable, damage) = repository.readable_snapshots().expect("lists");
    assert_eq!(readable.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [first]);
    assert!(damage[0].to_string().contains(&second.to_string()), "{damage:?}");
    for name in ["latest", &second.to_string()] {
        assert_eq!(repository.find_snapshot(name).expect_err("damaged").reason(), "RepositoryDamaged");
    }
    assert_eq!(repository.find_snapshot(&first.to_string()).expect("found").0, first);
    world.backup(&repository);
}

#[test]
fn without_its_config_a_repository_gives_back_everything_and_takes_nothing() {
    for damage in [|file: &Path| flip(file, 200), |file: &Path| fs::remove_file(file).expect("removes")] {
        let world = World::new();
        ten_files(&world);
        damage(&world.path("repository/config"));
        let open = |rescue| {
            let options = OpenOptions { rescue, ..OpenOptions::default() };
            Repository::open(world.store(), world.runtime.handle().clone(), PASSWORD.as_bytes(), options).map(Arc::new)
        };
        let error = open(false).expect_err("not as if nothing had happened");
        assert!(["RepositoryDamaged", "NotARepository"].contains(&error.reason()), "{error}");
        let repository = open(true).expect("to rescue what there is");
        let (snapshot, _) = repository.find_snapshot("latest").expect("is there");
        world.restore(&repository, snapshot);
        assert_eq!(good_files(&world).len(), FILES);
        let refused = repository.backup(&world.options(), &task("backup"), &Cancel::default());
        assert_eq!(refused.expect_err("only to read").reason(), "UnsupportedRepository");
    }
}

#[test]
fn a_damaged_key_does_not_keep_the_other_password_out() {
    let world = World::new();
    ten_files(&world);
    let key = files(&world, "keys").remove(0);
    let open = || {
        let handle = world.runtime.handle().clone();
        Repository::open(world.store(), handle, PASSWORD.as_bytes(), OpenOptions::default()).map(drop)
    };
    fs::write(world.path("repository/keys").join("0".repeat(64)), "no key file").expect("writes");
    open().expect("the good key opens");
    change(&key, |content| content.truncate(50));
    assert_eq!(open().expect_err("no good key").reason(), "RepositoryDamaged");
}

#[test]
fn what_was_lost_is_brought_back_by_the_next_backup_that_reads_it() {
    let world = World::new();
    let pack = ten_files(&world);
    fs::remove_file(&pack).expect("removes");
    for index in files(&world, "index") {
        fs::remove_file(index).expect("removes");
    }
    let outcome = restore_what_is_left(&world);
    assert_eq!((outcome.files, outcome.problem_count), (0, FILES as u64), "the trees were found in their pack");
    let repository = world.open();
    let outcome = world.backup(&repository);
    assert_eq!(outcome.summary.data_blobs, FILES as u64, "read again, because the parent's blobs are gone");
    let _ = fs::remove_dir_all(world.path("restored"));
    world.restore(&repository, outcome.snapshot);
    assert_eq!(good_files(&world).len(), FILES);
}

#[test]
fn a_flipped_bit_in_the_only_key_is_damage_and_no_wrong_password() {
    let world = World::new();
    ten_files(&world);
    let key = files(&world, "keys").remove(0);
    let open = |password: &str| {
        let handle = world.runtime.handle().clone();
        Repository::open(world.store(), handle, password.as_bytes(), OpenOptions::default()).map(drop)
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
fn what_is_too_large_to_be_a_key_or_a_lock_or_a_snapshot_is_not_read_into_memory() {
    let world = World::new();
    ten_files(&world);
    let repository = world.open();
    for folder in ["keys", "snapshots"] {
        let giant = world.path("repository").join(folder).join("ab".repeat(32));
        fs::File::create(&giant).expect("a file").set_len(1 << 40).expect("a hole");
        let outcome = check(&world.open());
        assert_eq!(outcome.error_count, 1, "{:?}", outcome.errors);
        assert!(outcome.errors[0].contains(folder) && outcome.errors[0].contains("too many"), "{:?}", outcome.errors);
        world.backup(&world.open());
        fs::remove_file(&giant).expect("removes");
    }
    let giant = world.path("repository/locks").join("ab".repeat(32));
    fs::create_dir_all(giant.parent().expect("a folder")).expect("a folder");
    fs::File::create(&giant).expect("a file").set_len(1 << 40).expect("a hole");
    let refused =
        repository.backup(&world.options(), &task("backup"), &Cancel::default()).expect_err("a lock is a lock");
    assert!(refused.reason() == "RepositoryLocked", "{refused}");
}

#[test]
fn a_check_names_so_much_damage_and_counts_the_rest() {
    let world = World::new();
    for number in 0..1100 {
        world.write(&format!("file {number}"), format!("content {number}"));
    }
    let options = BackupOptions { index_every: 1, workers: 1, ..world.options() };
    world.init().backup(&options, &task("backup"), &Cancel::default()).expect("backs up");
    // One for the pack of files, one for the pack of trees.
    let mut index = files(&world, "index");
    index.sort_by_key(|file| file.metadata().expect("is there").len());
    assert_eq!(index.len(), 2);
    fs::remove_file(&index[1]).expect("removes");
    let found = check(&world.open());
    assert_eq!((found.errors.len(), found.error_count, found.is_good()), (1000, 1100, false));
}

#[test]
fn snapshots_that_this_machine_has_are_not_fetched_again_and_a_check_looks_all_the_same() {
    let world = World::new();
    ten_files(&world);
    let open = || {
        let options = OpenOptions { cache: Some(world.path("cache")), ..OpenOptions::default() };
        let handle = world.runtime.handle().clone();
        Arc::new(Repository::open(world.store(), handle, PASSWORD.as_bytes(), options).expect("opens"))
    };
    let first = open().find_snapshot("latest").expect("is there").0;
    let second = world.backup(&open()).snapshot;
    for file in files(&world, "snapshots") {
        flip(&file, 300);
    }
    let known: BTreeSet<_> = open().snapshots().expect("are cached").into_iter().map(|(id, _)| id).collect();
    assert_eq!(known, BTreeSet::from([first, second]));
    assert_eq!(check(&open()).error_count, 2, "the store's are damaged");
    fs::remove_file(world.path("repository/snapshots").join(first.to_string())).expect("removes");
    assert_eq!(open().snapshots().expect("are cached").len(), 1, "what is gone from the store is gone");
}
