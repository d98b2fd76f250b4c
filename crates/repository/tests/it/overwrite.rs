//! What is there already when a restore begins.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use plimsoll_repository::restore::{Overwrite, RestoreOptions, RestoreOutcome};
use plimsoll_repository::{Cancel, Id, Repository};

use crate::faithful::fill;
use crate::world::{World, fingerprint, noise, task};

fn restore(repository: &Arc<Repository>, options: &RestoreOptions) -> RestoreOutcome {
    repository.restore(options, &task("restore"), &Cancel::default()).expect("restores")
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).expect("reads")).into_owned()
}

fn backed_up(world: &World) -> (Arc<Repository>, Id) {
    let repository = world.init();
    let snapshot = world.backup(&repository).snapshot;
    (repository, snapshot)
}

#[test]
fn what_somebody_has_stays_as_long_as_there_is_nothing_to_put_in_its_place() {
    let world = World::new();
    for number in 0..5_u64 {
        world.write(&format!("file {number}"), noise(number, 50_000));
    }
    fs::hard_link(world.source().join("file 0"), world.source().join("another name")).expect("a link");
    let (repository, snapshot) = backed_up(&world);
    let target = world.path("restored");
    fs::create_dir(&target).expect("a target");
    let names = ["file 0", "file 1", "file 2", "file 3", "file 4", "another name"];
    for name in names {
        fs::write(target.join(name), "what somebody has").expect("writes");
    }
    // The files' pack is the largest one.
    let packs = walk(&world.path("repository/data"));
    let pack = packs.iter().max_by_key(|pack| pack.metadata().expect("is there").len()).expect("a pack");
    let whole = fs::read(pack).expect("reads");
    fs::remove_file(pack).expect("removes");
    let outcome = restore(&repository, &RestoreOptions::new(snapshot, &target));
    assert_eq!((outcome.files, outcome.problem_count), (0, names.len() as u64), "{:?}", outcome.problems);
    for name in names {
        assert_eq!(read(&target.join(name)), "what somebody has", "{name}");
    }
    fs::write(pack, whole).expect("writes");
    let outcome = restore(&repository, &RestoreOptions::new(snapshot, &target));
    assert_eq!(outcome.problem_count, 0, "{:?}", outcome.problems);
    assert_eq!(fingerprint(&target), fingerprint(&world.source()));
}

fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).expect("lists").flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[test]
fn longer_files_other_kinds_and_bytes_where_there_are_holes_now_leave_nothing_behind() {
    let world = World::new();
    fill(&world);
    let (repository, snapshot) = backed_up(&world);
    let target = world.path("restored");
    fs::create_dir_all(target.join("text/deep")).expect("a target");
    for name in ["large", "sparse", "mostly holes", "empty", "text/words", "text/large too", "text/link", "fifo"] {
        fs::write(target.join(name), noise(99, 9_000_000)).expect("writes");
    }
    fs::create_dir(target.join("odd link")).expect("a directory with nothing in it");
    let outcome = restore(&repository, &RestoreOptions::new(snapshot, &target));
    assert_eq!(outcome.problem_count, 0, "{:?}", outcome.problems);
    assert_eq!(fingerprint(&target), fingerprint(&world.source()));
}

#[test]
fn a_restore_in_many_portions_brings_back_the_same_also_over_what_is_there() {
    let world = World::new();
    fill(&world);
    let (repository, snapshot) = backed_up(&world);
    let target = world.path("restored");
    let options = RestoreOptions { plan_ahead: 2, ..RestoreOptions::new(snapshot, &target) };
    for overwrite in [Overwrite::Always, Overwrite::Always, Overwrite::IfChanged] {
        let outcome = restore(&repository, &RestoreOptions { overwrite, ..options.clone() });
        assert_eq!(outcome.problem_count, 0, "{overwrite:?}: {:?}", outcome.problems);
        assert_eq!(fingerprint(&target), fingerprint(&world.source()), "{overwrite:?}");
    }
}

/// A snapshot with a file, a link and a directory, and a target in which other things have these names.
fn with_others(world: &World) -> (Arc<Repository>, RestoreOptions) {
    world.write("file", "from the snapshot");
    world.write("folder/inside", "from the snapshot");
    symlink("file", world.source().join("link")).expect("a link");
    let (repository, snapshot) = backed_up(world);
    let target = world.path("restored");
    for name in ["file", "link"] {
        fs::create_dir_all(target.join(name)).expect("a directory");
        fs::write(target.join(name).join("kept"), "x").expect("writes");
    }
    fs::write(target.join("folder"), "x").expect("writes");
    (repository, RestoreOptions::new(snapshot, &target))
}

#[test]
fn a_directory_with_something_in_it_goes_only_if_all_may_go_that_the_snapshot_does_not_have() {
    let world = World::new();
    let (repository, options) = with_others(&world);
    let outcome = restore(&repository, &options);
    assert_eq!((outcome.files, outcome.problem_count), (1, 2), "{:?}", outcome.problems);
    assert!(outcome.problems.iter().all(|problem| problem.cause.contains("is not empty")), "{:?}", outcome.problems);
    for name in ["file", "link"] {
        assert!(options.target.join(name).join("kept").exists(), "{name}");
    }
    assert_eq!(read(&options.target.join("folder/inside")), "from the snapshot");
    let outcome = restore(&repository, &RestoreOptions { delete: true, ..options.clone() });
    assert_eq!(outcome.problem_count, 0, "{:?}", outcome.problems);
    assert_eq!(fingerprint(&options.target), fingerprint(&world.source()));
}

#[test]
fn who_wants_nothing_overwritten_keeps_whatever_has_the_name() {
    let world = World::new();
    let (repository, options) = with_others(&world);
    let before = fingerprint(&options.target);
    let outcome = restore(&repository, &RestoreOptions { overwrite: Overwrite::Never, ..options.clone() });
    assert_eq!((outcome.files, outcome.skipped, outcome.problem_count), (0, 1, 1), "{:?}", outcome.problems);
    assert!(outcome.problems[0].path.ends_with("folder"), "{:?}", outcome.problems);
    assert_eq!(fingerprint(&options.target), before);
}

#[test]
fn what_is_newer_stays_and_what_is_older_goes_whatever_kind_it_is_of() {
    let world = World::new();
    world.write("file", "from the snapshot");
    symlink("file", world.source().join("link")).expect("a link");
    let (repository, snapshot) = backed_up(&world);
    for (seconds, is_kept) in [(4_000_000_000, true), (1_000_000_000, false)] {
        let target = world.path(&format!("restored {seconds}"));
        fs::create_dir(&target).expect("a target");
        for name in ["file", "link"] {
            fs::write(target.join(name), "what somebody has").expect("writes");
            crate::faithful::set_time(&target.join(name), seconds, 0);
        }
        let options = RestoreOptions { overwrite: Overwrite::IfNewer, ..RestoreOptions::new(snapshot, &target) };
        assert_eq!(restore(&repository, &options).problem_count, 0);
        for name in ["file", "link"] {
            assert_eq!(read(&target.join(name)) == "what somebody has", is_kept, "{name} {seconds}");
        }
    }
}
