//! Repair of the index, and the upgrade of the format.

use plimsoll_repository::Cancel;

use crate::interop::each_restic;
use crate::prune::backup;
use crate::testbed::{Testbed, check, fingerprint, random_bytes, task};

#[test]
fn the_index_is_rebuilt_from_the_packs() {
    let testbed = Testbed::new();
    let (repository, task, cancel) = (testbed.init(), task("repair"), Cancel::default());
    testbed.write("file", random_bytes(1, 400_000));
    backup(&testbed, &repository);
    testbed.write("more", random_bytes(2, 400_000));
    let newest = backup(&testbed, &repository).snapshot;
    assert!(repository.repair_index(false, &task, &cancel).expect("nothing to do").is_empty());

    let files: Vec<_> = std::fs::read_dir(testbed.path("repository/index")).expect("lists").flatten().collect();
    let (lost, damaged) = (files[0].path(), files[1].path());
    std::fs::remove_file(lost).expect("removes");
    let mut content = std::fs::read(&damaged).expect("reads");
    content[40] ^= 1;
    std::fs::remove_file(&damaged).expect("removes");
    std::fs::write(&damaged, content).expect("writes");
    assert!(!check(&repository).errors.is_empty());

    let planned = repository.repair_index(true, &task, &cancel).expect("plans");
    assert_eq!((planned.damaged_files.len(), planned.removed_packs.len()), (1, 0));
    assert!(planned.added_packs.len() >= 4, "{planned:?}");
    assert!(damaged.is_file(), "a dry run changes nothing");
    let done = repository.repair_index(false, &task, &cancel).expect("repairs");
    assert_eq!(done, planned);
    let found = check(&repository);
    assert_eq!((found.errors, found.hints), (vec![], vec![]));
    assert_eq!(testbed.restore(&repository, newest).problems, []);
    assert_eq!(fingerprint(&testbed.path("restored")), fingerprint(&testbed.source()));
}

#[test]
fn a_missing_pack_leaves_the_index_so_that_the_next_backup_stores_its_data_again() {
    let testbed = Testbed::new();
    let (repository, task, cancel) = (testbed.init(), task("repair"), Cancel::default());
    testbed.write("file", random_bytes(1, 200_000));
    backup(&testbed, &repository);
    let folders = std::fs::read_dir(testbed.path("repository/data")).expect("lists").flatten();
    let packs = folders.flat_map(|folder| std::fs::read_dir(folder.path())).flatten().flatten();
    let largest = packs.max_by_key(|pack| pack.metadata().expect("is there").len()).expect("a pack");
    std::fs::remove_file(largest.path()).expect("removes");
    let done = repository.repair_index(false, &task, &cancel).expect("repairs");
    assert_eq!(done.removed_packs.len(), 1);
    let again = backup(&testbed, &repository).snapshot;
    assert_eq!(testbed.restore(&repository, again).problems, []);
    assert_eq!(check(&repository).errors, Vec::<String>::new(), "also the first snapshot is whole again");
}

#[test]
fn version_1_becomes_version_2_and_restic_continues() {
    each_restic(|testbed, restic| {
        restic.run(&["init", "--repository-version", "1"]);
        testbed.write("text", "some words again and again ".repeat(20_000));
        restic.run(&["backup", "."]);
        let (task, cancel) = (task("upgrade"), Cancel::default());
        testbed.open().upgrade(true, &task, &cancel).expect("can be upgraded");
        assert_eq!(testbed.open().version(), 1, "a dry run changes nothing");
        testbed.open().upgrade(false, &task, &cancel).expect("upgrades");
        let repository = testbed.open();
        assert_eq!(repository.version(), 2);
        assert!(repository.upgrade(false, &task, &cancel).is_err(), "it is upgraded already");
        crate::prune::prune(&repository, crate::prune::thorough());
        backup(testbed, &repository);
        restic.run(&["check", "--read-data"]);
        restic.run(&["backup", "."]);
    });
}
