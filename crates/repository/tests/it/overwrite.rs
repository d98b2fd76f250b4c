//! Existing files in the target of a restore.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use plimsoll_repository::restore::{Overwrite, RestoreOptions, RestoreOutcome};
use plimsoll_repository::{Cancel, Id, Repository};

use crate::round_trip::fill;
use crate::testbed::{Testbed, fingerprint, random_bytes, task};

fn restore(repository: &Arc<Repository>, options: &RestoreOptions) -> RestoreOutcome {
    repository.restore(options, &task("restore"), &Cancel::default()).expect("restores")
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).expect("reads")).into_owned()
}

fn backed_up(testbed: &Testbed) -> (Arc<Repository>, Id) {
    let repository = testbed.init();
    let snapshot = testbed.backup(&repository).snapshot;
    (repository, snapshot)
}

#[test]
fn an_existing_file_stays_if_its_replacement_is_damaged() {
    let testbed = Testbed::new();
    for number in 0..5_u64 {
        testbed.write(&format!("file {number}"), random_bytes(number, 50_000));
    }
    fs::hard_link(testbed.source().join("file 0"), testbed.source().join("another name")).expect("a link");
    let (repository, snapshot) = backed_up(&testbed);
    let target = testbed.path("restored");
    fs::create_dir(&target).expect("a target");
    let names = ["file 0", "file 1", "file 2", "file 3", "file 4", "another name"];
    for name in names {
        fs::write(target.join(name), "existing content").expect("writes");
    }
    // The pack with the files is the largest.
    let packs = walk(&testbed.path("repository/data"));
    let pack = packs.iter().max_by_key(|pack| pack.metadata().expect("is there").len()).expect("a pack");
    let whole = fs::read(pack).expect("reads");
    fs::remove_file(pack).expect("removes");
    let outcome = restore(&repository, &RestoreOptions::new(snapshot, &target));
    assert_eq!((outcome.files, outcome.problem_count), (0, names.len() as u64), "{:?}", outcome.problems);
    for name in names {
        assert_eq!(read(&target.join(name)), "existing content", "{name}");
    }
    fs::write(pack, whole).expect("writes");
    let outcome = restore(&repository, &RestoreOptions::new(snapshot, &target));
    assert_eq!(outcome.problem_count, 0, "{:?}", outcome.problems);
    assert_eq!(fingerprint(&target), fingerprint(&testbed.source()));
}

fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).expect("lists").flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[test]
fn longer_files_other_types_and_data_in_holes_are_replaced_completely() {
    let testbed = Testbed::new();
    fill(&testbed);
    let (repository, snapshot) = backed_up(&testbed);
    let target = testbed.path("restored");
    fs::create_dir_all(target.join("text/deep")).expect("a target");
    for name in ["large", "sparse", "mostly holes", "empty", "text/words", "text/large too", "text/link", "fifo"] {
        fs::write(target.join(name), random_bytes(99, 9_000_000)).expect("writes");
    }
    fs::create_dir(target.join("odd link")).expect("a directory with nothing in it");
    let outcome = restore(&repository, &RestoreOptions::new(snapshot, &target));
    assert_eq!(outcome.problem_count, 0, "{:?}", outcome.problems);
    assert_eq!(fingerprint(&target), fingerprint(&testbed.source()));
}

#[test]
fn a_restore_in_many_batches_is_complete_also_over_existing_files() {
    let testbed = Testbed::new();
    fill(&testbed);
    let (repository, snapshot) = backed_up(&testbed);
    let target = testbed.path("restored");
    let options = RestoreOptions { plan_ahead: 2, ..RestoreOptions::new(snapshot, &target) };
    for overwrite in [Overwrite::Always, Overwrite::Always, Overwrite::IfChanged] {
        let outcome = restore(&repository, &RestoreOptions { overwrite, ..options.clone() });
        assert_eq!(outcome.problem_count, 0, "{overwrite:?}: {:?}", outcome.problems);
        assert_eq!(fingerprint(&target), fingerprint(&testbed.source()), "{overwrite:?}");
    }
}

/// A snapshot with a file, a link and a directory, and a target with conflicting entries.
fn with_others(testbed: &Testbed) -> (Arc<Repository>, RestoreOptions) {
    testbed.write("file", "from the snapshot");
    testbed.write("folder/inside", "from the snapshot");
    symlink("file", testbed.source().join("link")).expect("a link");
    let (repository, snapshot) = backed_up(testbed);
    let target = testbed.path("restored");
    for name in ["file", "link"] {
        fs::create_dir_all(target.join(name)).expect("a directory");
        fs::write(target.join(name).join("kept"), "x").expect("writes");
    }
    fs::write(target.join("folder"), "x").expect("writes");
    (repository, RestoreOptions::new(snapshot, &target))
}

#[test]
fn a_non_empty_directory_is_removed_only_with_the_delete_option() {
    let testbed = Testbed::new();
    let (repository, options) = with_others(&testbed);
    let outcome = restore(&repository, &options);
    assert_eq!((outcome.files, outcome.problem_count), (1, 2), "{:?}", outcome.problems);
    assert!(
        outcome.problems.iter().all(|problem| problem.cause.contains("non-empty directory")),
        "{:?}",
        outcome.problems
    );
    for name in ["file", "link"] {
        assert!(options.target.join(name).join("kept").exists(), "{name}");
    }
    assert_eq!(read(&options.target.join("folder/inside")), "from the snapshot");
    let outcome = restore(&repository, &RestoreOptions { delete: true, ..options.clone() });
    assert_eq!(outcome.problem_count, 0, "{:?}", outcome.problems);
    assert_eq!(fingerprint(&options.target), fingerprint(&testbed.source()));
}

#[test]
fn overwrite_never_keeps_all_existing_entries() {
    let testbed = Testbed::new();
    let (repository, options) = with_others(&testbed);
    let before = fingerprint(&options.target);
    let outcome = restore(&repository, &RestoreOptions { overwrite: Overwrite::Never, ..options.clone() });
    assert_eq!((outcome.files, outcome.skipped, outcome.problem_count), (0, 1, 1), "{:?}", outcome.problems);
    assert!(outcome.problems[0].path.ends_with("folder"), "{:?}", outcome.problems);
    assert_eq!(fingerprint(&options.target), before);
}

#[test]
fn overwrite_if_newer_keeps_newer_entries_of_any_type() {
    let testbed = Testbed::new();
    testbed.write("file", "from the snapshot");
    symlink("file", testbed.source().join("link")).expect("a link");
    let (repository, snapshot) = backed_up(&testbed);
    for (seconds, is_kept) in [(4_000_000_000, true), (1_000_000_000, false)] {
        let target = testbed.path(&format!("restored {seconds}"));
        fs::create_dir(&target).expect("a target");
        for name in ["file", "link"] {
            fs::write(target.join(name), "existing content").expect("writes");
            crate::round_trip::set_time(&target.join(name), seconds, 0);
        }
        let options = RestoreOptions { overwrite: Overwrite::IfNewer, ..RestoreOptions::new(snapshot, &target) };
        assert_eq!(restore(&repository, &options).problem_count, 0);
        for name in ["file", "link"] {
            assert_eq!(read(&target.join(name)) == "existing content", is_kept, "{name} {seconds}");
        }
    }
}
