//! Damage anywhere is found, named, and costs no more than what it hit.

use std::fs;
use std::path::PathBuf;

use plimsoll_repository::restore::RestoreOptions;
use plimsoll_repository::{Cancel, RepositoryError};

use crate::world::{World, check, noise, task};

fn packs(world: &World) -> Vec<PathBuf> {
    let folders = fs::read_dir(world.path("repository/data")).expect("lists").flatten();
    folders.flat_map(|folder| fs::read_dir(folder.path()).expect("lists").flatten()).map(|file| file.path()).collect()
}

fn change(file: &PathBuf, damage: impl Fn(&mut Vec<u8>)) {
    let mut content = fs::read(file).expect("reads");
    damage(&mut content);
    fs::write(file, content).expect("writes");
}

/// Ten files, each in one blob, all in one pack; returns that pack.
fn ten_files(world: &World) -> PathBuf {
    for number in 0..10 {
        world.write(&format!("file {number}"), noise(number, 50_000));
    }
    let repository = world.init();
    let options = plimsoll_repository::backup::BackupOptions { workers: 1, ..world.options() };
    repository.backup(&options, &task("backup"), &Cancel::default()).expect("backs up");
    packs(world).into_iter().max_by_key(|pack| pack.metadata().expect("is there").len()).expect("a pack")
}

fn restore_what_is_left(world: &World) -> (u64, Vec<String>) {
    let repository = world.open();
    let (snapshot, _) = repository.find_snapshot("latest").expect("is there");
    let outcome = world.restore(&repository, snapshot);
    (outcome.files, outcome.problems.into_iter().map(|problem| problem.path).collect())
}

#[test]
fn a_flipped_bit_in_a_blob_costs_one_file_and_names_it() {
    let world = World::new();
    let pack = ten_files(&world);
    change(&pack, |content| content[120_000] ^= 4);
    let found = check(&world.open());
    assert!(found.errors.iter().any(|error| error.contains("the seal is broken")), "{:?}", found.errors);
    let (files, problems) = restore_what_is_left(&world);
    assert_eq!((files, problems.len()), (9, 1), "{problems:?}");
    let named = problems[0].rsplit('/').next().expect("a name").to_owned();
    for number in 0..10 {
        let name = format!("file {number}");
        let same = fs::read(world.path("restored").join(&name)).ok() == fs::read(world.source().join(&name)).ok();
        assert_eq!(same, name != named, "{name}");
    }
}

#[test]
fn a_pack_that_is_cut_short_costs_what_was_in_the_missing_part() {
    let world = World::new();
    let pack = ten_files(&world);
    change(&pack, |content| content.truncate(260_000));
    assert!(check(&world.open()).errors.iter().any(|error| error.contains("bytes instead of")));
    let (files, problems) = restore_what_is_left(&world);
    assert_eq!((files, problems.len()), (5, 5), "{problems:?}");
}

#[test]
fn a_missing_pack_is_found_and_the_next_backup_brings_it_back() {
    let world = World::new();
    let pack = ten_files(&world);
    world.write("small", "in another pack");
    world.backup(&world.open());
    fs::remove_file(&pack).expect("removes");
    assert!(check(&world.open()).errors.iter().any(|error| error.contains("is missing")));
    let (files, problems) = restore_what_is_left(&world);
    assert_eq!((files, problems.len()), (1, 10), "{problems:?}");
}

#[test]
fn damage_to_index_snapshot_key_and_config_is_named() {
    for (folder, reason) in
        [("index", "RepositoryDamaged"), ("snapshots", "RepositoryDamaged"), ("keys", "RepositoryDamaged")]
    {
        let world = World::new();
        ten_files(&world);
        let file = fs::read_dir(world.path("repository").join(folder)).expect("lists").next().expect("a file");
        change(&file.expect("a file").path(), |content| {
            let middle = content.len() / 2;
            content[middle] ^= 1;
        });
        let opened = plimsoll_repository::Repository::open(
            world.store(),
            world.runtime.handle().clone(),
            crate::world::PASSWORD.as_bytes(),
            plimsoll_repository::OpenOptions::default(),
        );
        let restored = opened.and_then(|repository| {
            let repository = std::sync::Arc::new(repository);
            let (snapshot, _) = repository.find_snapshot("latest")?;
            repository.restore(
                &RestoreOptions::new(snapshot, world.path("restored")),
                &task("restore"),
                &Cancel::default(),
            )
        });
        let error = restored.expect_err(folder);
        // A changed salt or a changed sealed key cannot be told from a wrong password.
        let right = error.reason() == reason || matches!(error, RepositoryError::WrongPassword { .. });
        assert!(right, "{folder}: {error}");
    }
}
