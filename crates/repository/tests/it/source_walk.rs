//! The walk through the source: depth, links, file systems, and files that change meanwhile.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use plimsoll_progress::{Clock, Operation, Total, Unit};
use plimsoll_repository::Cancel;
use plimsoll_repository::backup::{BackupOptions, Parent};
use rustix::fs::Mode;

use crate::testbed::{Testbed, check, fingerprint, random_bytes, task};
use crate::walk_hooks::{Exclude, is_walk, single_walker, when_walked_to};

#[test]
fn a_panic_of_a_thread_ends_the_backup() {
    let testbed = Testbed::new();
    for number in 0..300 {
        testbed.write(&format!("{}/{number}", number % 5), random_bytes(number, 1000));
    }
    let repository = testbed.init();
    let mut options = testbed.options();
    options.exclude = Some(when_walked_to("3/103", || panic!("a defect")));
    let backup = || repository.backup(&options, &task("backup"), &Cancel::default()).is_ok();
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(backup));
    assert!(ended.is_err(), "{ended:?}");
    assert!(repository.snapshots().expect("lists").is_empty());
}

#[test]
fn the_number_of_walkers_does_not_change_the_result() {
    let testbed = Testbed::new();
    for number in 0..200 {
        testbed.write(&format!("{}/{}/{number}", number % 7, number % 3), random_bytes(number, 100));
    }
    fs::create_dir_all(testbed.source().join("empty/deeper")).expect("directories");
    let repository = testbed.init();
    let backup = |walkers, parent| {
        let beside = Arc::new(AtomicU64::new(0));
        let (seen, asked) = (beside.clone(), Arc::new(AtomicU64::new(0)));
        let looked = asked.clone();
        let exclude: Exclude = Arc::new(move |_: &Path| {
            if is_walk() { &looked } else { &seen }.fetch_add(1, Ordering::SeqCst);
            false
        });
        let options = BackupOptions { walkers, parent, exclude: Some(exclude), ..testbed.options() };
        let task = task("backup");
        let outcome = repository.backup(&options, &task, &Cancel::default()).expect("backs up");
        assert_eq!(outcome.problems, []);
        assert_eq!(task.meter(Unit::Files).counts().total, Total::Final(200));
        (outcome.tree, asked.load(Ordering::SeqCst), beside.load(Ordering::SeqCst))
    };
    // 200 files in 7 directories of 3 each, and two that are empty.
    let (tree, asked, _) = backup(1, Parent::None);
    assert_eq!(asked, 230);
    for walkers in [0, 2, 5] {
        assert_eq!(backup(walkers, Parent::None).0, tree);
        assert_eq!(backup(walkers, Parent::Newest), (tree, 230, 0));
    }
}

/// Creates nested directories, deeper than a path can be; the first `files` have a file.
fn create_deep(top: &Path, levels: usize, files: usize) {
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY;
    let mut folder = rustix::fs::open(top, flags, Mode::empty()).expect("opens");
    for level in 0..levels {
        rustix::fs::mkdirat(&folder, "d", Mode::from_raw_mode(0o755)).expect("a directory");
        folder = rustix::fs::openat(&folder, "d", flags, Mode::empty()).expect("opens");
        if level < files {
            let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
            drop(rustix::fs::openat(&folder, "file", flags, Mode::from_raw_mode(0o644)).expect("a file"));
        }
    }
}

/// Removes nested directories from the top, without a descriptor for each level.
fn remove_deep(top: &Path) {
    let (first, second) = (top.join("d"), top.join("next"));
    while first.exists() {
        let _ = fs::rename(first.join("d"), &second);
        fs::remove_dir_all(&first).expect("removes");
        let _ = fs::rename(&second, &first);
    }
}

#[test]
fn directories_up_to_the_maximum_path_are_stored_and_deeper_ones_are_problems() {
    let testbed = Testbed::new();
    create_deep(&testbed.source(), 6000, 2000);
    let repository = testbed.init();
    let operation = Operation::new("backup", Clock::system());
    let files = operation.root().meter(Unit::Files);
    let outcome = repository.backup(&testbed.options(), &operation.root(), &Cancel::default());
    remove_deep(&testbed.source());
    let outcome = outcome.expect("backs up");
    let causes: Vec<_> = outcome.problems.iter().map(|problem| problem.cause.as_str()).collect();
    assert_eq!(causes, ["File name too long (os error 36)"]);
    assert_eq!(
        outcome.problems[0].path.matches("/d").count(),
        2049,
        "fixture bytes for each in a path of 4096 with its end"
    );
    assert_eq!(outcome.summary.total_files_processed, 2000);
    assert_eq!(files.counts().total, Total::Final(2000));
    let found = check(&repository);
    assert_eq!((found.errors, found.hints), (vec![], vec![]));
}

#[test]
fn one_file_system_skips_other_file_systems() {
    let testbed = Testbed::new();
    testbed.write("here", random_bytes(1, 1000));
    let inside = testbed.source().join("mounted");
    fs::create_dir(&inside).expect("a directory");
    let flags = rustix::mount::MountFlags::empty();
    let mounted = rustix::mount::mount("none", &inside, "tmpfs", flags, None::<&std::ffi::CStr>);
    if mounted.is_err() {
        // Requires root.
        return;
    }
    fs::write(inside.join("there"), random_bytes(2, 50_000)).expect("writes");
    let repository = testbed.init();
    let options = BackupOptions { one_file_system: true, ..testbed.options() };
    let operation = Operation::new("backup", Clock::system());
    let bytes = operation.root().meter(Unit::Bytes);
    let outcome = repository.backup(&options, &operation.root(), &Cancel::default());
    let ended = rustix::mount::unmount(&inside, rustix::mount::UnmountFlags::DETACH);
    assert_eq!(outcome.expect("backs up").summary.total_bytes_processed, 1000);
    assert_eq!((bytes.counts().total.value(), ended), (Some(1000), Ok(())));
}

#[test]
fn unreadable_files_are_problems() {
    let testbed = Testbed::new();
    testbed.write("good", "x");
    testbed.write("gone/inside", "y");
    let repository = testbed.init();
    let mut options = testbed.options();
    let missing = testbed.path("not there");
    options.target = plimsoll_repository::backup::Target::Paths(vec![testbed.source(), missing.clone()]);
    let outcome = repository.backup(&options, &task("backup"), &Cancel::default()).expect("backs up");
    assert_eq!(outcome.problem_count, 1);
    assert_eq!(outcome.problems[0].path, missing.display().to_string());
    options.target = plimsoll_repository::backup::Target::Paths(vec![missing]);
    let error = repository.backup(&options, &task("backup"), &Cancel::default()).expect_err("nothing");
    assert_eq!(error.reason(), "NothingToBackUp");
}

/// Replaces `d` with a link to `outside` when the walk reaches this path; returns the stored paths and the problems.
fn back_up_with_swapped_link(when: &'static str) -> (Vec<String>, Vec<plimsoll_repository::backup::Problem>) {
    let testbed = Testbed::new();
    for name in ["a", "d/file", "d/e/file", "z/last"] {
        testbed.write(name, "of the tenant");
    }
    let (inside, outside) = (testbed.source().join("d"), testbed.path("outside"));
    fs::create_dir_all(outside.join("e")).expect("directories");
    for name in ["file", "e/file"] {
        fs::write(outside.join(name), "of the machine").expect("writes");
    }
    let (repository, mut options, aside) = (testbed.init(), single_walker(&testbed), testbed.path("aside"));
    options.exclude = Some(when_walked_to(when, move || {
        fs::rename(&inside, &aside).expect("renames");
        symlink(&outside, &inside).expect("a link");
    }));
    let outcome = repository.backup(&options, &task("backup"), &Cancel::default()).expect("backs up");
    testbed.restore(&repository, outcome.snapshot);
    let restored = testbed.path("restored");
    let mut files = Vec::new();
    for name in fingerprint(&restored).into_keys().map(|name| String::from_utf8(name).expect("a name")) {
        if restored.join(&name).is_file() {
            assert_eq!(fs::read_to_string(restored.join(&name)).expect("reads"), "of the tenant", "{name}");
            files.push(name);
        }
    }
    (files, outcome.problems)
}

#[test]
fn a_link_that_replaces_a_walked_directory_is_not_followed() {
    let (files, problems) = back_up_with_swapped_link("z/last");
    assert_eq!(files, ["a", "z/last"]);
    let named: Vec<_> = problems.iter().map(|problem| problem.path.rsplit_once("source/").expect("below").1).collect();
    assert_eq!(named, ["d/file", "d/e/file"]);
    assert!(problems.iter().all(|problem| problem.cause.contains("symbolic link")), "{problems:?}");
}

#[test]
fn a_link_that_replaces_a_directory_before_its_walk_is_not_followed() {
    let (files, problems) = back_up_with_swapped_link("a");
    assert_eq!(files, ["a", "z/last"]);
    assert!(problems.len() == 1 && problems[0].path.ends_with("source/d"), "{problems:?}");
}

#[test]
fn links_in_the_path_of_a_target_are_followed_and_a_target_link_is_stored() {
    let testbed = Testbed::new();
    testbed.write("d/e/file", "x");
    symlink("d", testbed.source().join("way")).expect("a link");
    symlink("e", testbed.source().join("d/link")).expect("a link");
    let (repository, mut options) = (testbed.init(), testbed.options());
    let targets = ["way/e", "d/link", "d/e/file"].map(|name| testbed.source().join(name));
    options.target = plimsoll_repository::backup::Target::Paths(targets.to_vec());
    let outcome = repository.backup(&options, &task("backup"), &Cancel::default()).expect("backs up");
    assert_eq!(outcome.problems, []);
    testbed.restore(&repository, outcome.snapshot);
    let source = testbed.source();
    let restored = testbed.path("restored").join(source.strip_prefix("/").expect("absolute"));
    let found: Vec<_> =
        fingerprint(&restored).into_keys().map(|name| String::from_utf8(name).expect("a name")).collect();
    assert_eq!(found, ["d", "d/e", "d/e/file", "d/link", "way", "way/e", "way/e/file"]);
    assert!(restored.join("way").symlink_metadata().expect("is there").is_dir(), "written as what it leads to");
    assert!(restored.join("d/link").is_symlink());
}

#[test]
fn files_that_are_removed_or_changed_during_a_backup_are_not_problems() {
    let testbed = Testbed::new();
    for number in 0..30 {
        testbed.write(&format!("file {number:02}"), random_bytes(number, 30_000));
    }
    let (vanishing, shrinking) = (testbed.source().join("file 20"), testbed.source().join("file 21"));
    let growing = testbed.source().join("file 22");
    let _socket = std::os::unix::net::UnixListener::bind(testbed.source().join("socket")).expect("a socket");
    let mut options = testbed.options();
    // Called for each path before its stat, after the directory was listed.
    options.exclude = Some(Arc::new(move |path: &Path| {
        if path.ends_with("file 10") {
            let _ = fs::remove_file(&vanishing);
            fs::write(&shrinking, "short").expect("writes");
            fs::write(&growing, random_bytes(1, 2_000_000)).expect("writes");
        }
        false
    }));
    let repository = testbed.init();
    let outcome = repository.backup(&options, &task("backup"), &Cancel::default()).expect("backs up");
    assert_eq!((outcome.problem_count, outcome.summary.total_files_processed), (0, 29));
    assert_eq!(testbed.restore(&repository, outcome.snapshot).problems, []);
    fs::remove_file(testbed.source().join("socket")).expect("removes");
    let (restored, source) = (fingerprint(&testbed.path("restored")), fingerprint(&testbed.source()));
    assert_eq!(restored, source);
    let found = check(&repository);
    assert_eq!((found.errors, found.hints), (vec![], vec![]));
}

#[test]
fn a_growing_file_is_stored_as_read() {
    use std::io::Write as _;
    let testbed = Testbed::new();
    let path = testbed.write("growing", random_bytes(1, 3_000_000));
    let repository = testbed.init();
    let done = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = fs::File::options().append(true).open(&path).expect("opens");
            // Limited, or the read would never end.
            for _ in 0..2000 {
                if done.load(Ordering::SeqCst) {
                    break;
                }
                file.write_all(&[7; 10_000]).expect("writes");
            }
        });
        let outcome = repository.backup(&testbed.options(), &task("backup"), &Cancel::default());
        done.store(true, Ordering::SeqCst);
        outcome.expect("backs up")
    });
    assert_eq!(outcome.problem_count, 0);
    let found = check(&repository);
    assert_eq!((found.errors, found.hints), (vec![], vec![]), "size and content agree");
    testbed.restore(&repository, outcome.snapshot);
    let (restored, now) = (fs::read(testbed.path("restored/growing")).expect("reads"), fs::read(&path).expect("reads"));
    assert!(restored.len() >= 3_000_000 && now.starts_with(&restored), "the beginning of what it became");
}
