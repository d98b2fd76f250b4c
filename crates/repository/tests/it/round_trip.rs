//! Round trips: a restore gives what was backed up, and progress is correct.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_progress::{Clock, Counts, Meter, Operation, Total, Unit};
use plimsoll_repository::backup::{BackupOptions, Parent};
use plimsoll_repository::restore::{Overwrite, RestoreOptions};
use plimsoll_repository::{Cancel, OpenOptions};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

use crate::faulty_store::BlockedWrites;
use crate::locking::{open_with_fault, until};
use crate::testbed::{Testbed, check, fingerprint, random_bytes, task};

/// Fills the source with every kind of entry.
pub fn fill(testbed: &Testbed) {
    let source = testbed.source();
    testbed.write("large", random_bytes(1, 3_000_000));
    testbed.write("text/words", "the same words again ".repeat(20_000));
    testbed.write("text/deep/er/file", "x");
    testbed.write("empty", "");
    fs::create_dir(source.join("nothing inside")).expect("a directory");
    // The exact content of the tree of an empty directory.
    testbed.write("looks like a directory", "{\"nodes\":[]}\n");
    let sparse = fs::File::create(source.join("sparse")).expect("a file");
    sparse.set_len(5 << 20).expect("grows");
    fill_with_holes(testbed);
    fs::hard_link(source.join("large"), source.join("text/large too")).expect("a hard link");
    symlink("../large", source.join("text/link")).expect("a link");
    symlink(OsStr::from_bytes(b"not \xff text"), source.join("odd link")).expect("a link");
    let odd = source.join(OsStr::from_bytes(b"odd \xff\"\\\n name\xe2\x80\xa8"));
    fs::write(odd, "odd").expect("writes");
    rustix::fs::mknodat(CWD, source.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).expect("a fifo");
    fs::set_permissions(source.join("text/words"), fs::Permissions::from_mode(0o4755)).expect("a mode");
    fs::set_permissions(source.join("text/deep"), fs::Permissions::from_mode(0o1777)).expect("a mode");
    let attribute = rustix::fs::setxattr(source.join("large"), "user.plimsoll", b"\0value\xff", XattrFlags::empty());
    if let Err(error) = attribute {
        assert_eq!(error, rustix::io::Errno::NOTSUP);
    }
    fill_attributes(testbed);
    fill_devices(testbed);
    set_time(&source.join("empty"), -300_000_000, 123_456_789);
    set_time(&source.join("text/link"), 1_000_000_000, 1);
    set_time(&source.join("text"), 1_500_000_000, 999_999_999);
}

/// Files with holes between written pages.
fn fill_with_holes(testbed: &Testbed) {
    let file = fs::File::create(testbed.source().join("mostly holes")).expect("a file");
    file.set_len(3 << 20).expect("grows");
    for page in 0..24_u64 {
        file.write_all_at(&random_bytes(page, 4096), page * (128 << 10) + 60_000).expect("writes");
    }
}

/// An access control list: the owner may read and write, user 1000 and the group read, others nothing.
fn access_list() -> Vec<u8> {
    let acl: Vec<u8> = [(1_u16, 6_u16, u32::MAX), (2, 4, 1000), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)]
        .iter()
        .flat_map(|(tag, mode, id)| [&tag.to_le_bytes()[..], &mode.to_le_bytes(), &id.to_le_bytes()].concat())
        .collect();
    [&2_u32.to_le_bytes()[..], &acl].concat()
}

fn set_attribute(path: &Path, name: &str, value: &[u8]) {
    if let Err(error) = rustix::fs::setxattr(path, name, value, XattrFlags::empty()) {
        assert_eq!(error, rustix::io::Errno::NOTSUP, "{name}");
    }
}

/// Several attributes, one without a value, one that is an access control list.
fn fill_attributes(testbed: &Testbed) {
    let file = testbed.write("attributes", "many");
    for (name, value) in [("user.z", &b"last"[..]), ("user.a", b"first"), ("user.empty", b"")] {
        set_attribute(&file, name, value);
    }
    set_attribute(&file, "system.posix_acl_access", &access_list());
}

/// Only root may create devices, and not on every system.
fn fill_devices(testbed: &Testbed) {
    let device = |name: &str, kind, major, minor| {
        let number = rustix::fs::makedev(major, minor);
        let made = rustix::fs::mknodat(CWD, testbed.source().join(name), kind, Mode::from_raw_mode(0o620), number);
        assert!(matches!(made, Ok(()) | Err(rustix::io::Errno::PERM)), "{made:?}");
    };
    device("character device", FileType::CharacterDevice, 1, 3);
    device("block device", FileType::BlockDevice, 7, 300);
}

pub fn set_time(path: &Path, seconds: i64, nanoseconds: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("a time");
}

#[test]
fn all_properties_are_restored() {
    let testbed = Testbed::new();
    fill(&testbed);
    let repository = testbed.init();
    let outcome = testbed.backup(&repository);
    assert_eq!((outcome.problem_count, outcome.locked), (0, true));
    let restored = testbed.restore(&repository, outcome.snapshot);
    assert_eq!(restored.problems, []);
    assert_eq!(fingerprint(&testbed.path("restored")), fingerprint(&testbed.source()));
    for name in ["sparse", "mostly holes"] {
        let sparse = testbed.path("restored").join(name).metadata().expect("is there");
        assert!(sparse.blocks() * 512 < sparse.len() / 2, "{name}: holes stay holes");
    }
    let found = check(&repository);
    assert_eq!((found.errors, found.hints), (vec![], vec![]));
}

#[test]
fn an_unchanged_directory_adds_no_data_and_a_changed_file_only_its_own() {
    let testbed = Testbed::new();
    fill(&testbed);
    let repository = testbed.init();
    let first = testbed.backup(&repository);
    let second = testbed.backup(&repository).summary;
    assert_eq!((second.data_blobs, second.tree_blobs, second.files_new, second.files_changed), (0, 0, 0, 0));
    assert_eq!(second.files_unmodified, first.summary.files_new);
    testbed.write("text/words", "other words");
    let third = testbed.backup(&repository);
    assert_eq!((third.summary.data_blobs, third.summary.files_changed), (1, 1));
    let (_, snapshot) = repository.find_snapshot(&third.snapshot.to_string()).expect("is there");
    assert_eq!(snapshot.summary, Some(third.summary));
    // A full read gives the same tree.
    let options = BackupOptions { parent: Parent::None, ..testbed.options() };
    let forced = repository.backup(&options, &task("again"), &Cancel::default()).expect("backs up");
    assert_eq!((forced.tree, forced.summary.data_blobs, forced.summary.tree_blobs), (third.tree, 0, 0));
}

#[test]
fn totals_are_final_and_reached_at_the_end() {
    let testbed = Testbed::new();
    fill(&testbed);
    let repository = testbed.init();
    let operation = Operation::new("backup", Clock::system());
    let outcome = repository.backup(&testbed.options(), &operation.root(), &Cancel::default()).expect("backs up");
    for unit in [Unit::Bytes, Unit::Files] {
        let node = operation.snapshot().nodes.into_iter().next().expect("the root");
        let counts = *node.meters.iter().find(|counts| counts.unit == unit).expect("a meter");
        let expected = match unit {
            Unit::Bytes => outcome.summary.total_bytes_processed,
            _ => outcome.summary.total_files_processed,
        };
        assert_eq!((counts.done, counts.settled(), counts.total.value()), (expected, expected, Some(expected)));
        assert!(counts.total.is_final());
    }
}

#[test]
fn an_interrupted_restore_is_resumed_and_links_are_not_followed() {
    let testbed = Testbed::new();
    fill(&testbed);
    let repository = testbed.init();
    let outcome = testbed.backup(&repository);
    testbed.restore(&repository, outcome.snapshot);
    let (target, outside) = (testbed.path("restored"), testbed.path("outside"));
    fs::write(target.join("large"), "half").expect("writes");
    fs::remove_dir_all(target.join("text")).expect("removes");
    fs::create_dir(&outside).expect("a directory");
    symlink(&outside, target.join("text")).expect("a link");
    let options = RestoreOptions { overwrite: Overwrite::IfChanged, ..RestoreOptions::new(outcome.snapshot, &target) };
    let again = repository.restore(&options, &task("restore"), &Cancel::default()).expect("restores");
    assert_eq!(again.problems, []);
    assert!(again.skipped >= 2, "{} were left alone", again.skipped);
    assert_eq!(fs::read_dir(&outside).expect("lists").count(), 0, "nothing was written through the link");
    assert_eq!(fingerprint(&target), fingerprint(&testbed.source()));
}

#[test]
fn a_resumed_restore_sets_missing_modes() {
    let testbed = Testbed::new();
    fill(&testbed);
    let repository = testbed.init();
    let outcome = testbed.backup(&repository);
    testbed.restore(&repository, outcome.snapshot);
    let target = testbed.path("restored");
    for name in ["text/words", "empty", "large"] {
        fs::set_permissions(target.join(name), fs::Permissions::from_mode(0o600)).expect("a mode");
    }
    let _ = rustix::fs::setxattr(target.join("large"), "user.plimsoll", b"other", XattrFlags::empty());
    let options = RestoreOptions { overwrite: Overwrite::IfChanged, ..RestoreOptions::new(outcome.snapshot, &target) };
    let operation = Operation::new("restore", Clock::system());
    let again = repository.restore(&options, &operation.root(), &Cancel::default()).expect("restores");
    assert_eq!((again.files, again.problems), (0, vec![]), "nothing is written again");
    assert_eq!(fingerprint(&target), fingerprint(&testbed.source()));
    let bytes = operation.root().meter(Unit::Bytes).counts();
    assert_eq!(
        (bytes.done, bytes.skipped),
        (0, outcome.summary.total_bytes_processed - 3_000_000),
        "a hard link counts once"
    );
    assert_eq!(bytes.total.value(), Some(bytes.skipped));
}

#[test]
fn attributes_that_are_not_in_the_snapshot_are_removed() {
    let testbed = Testbed::new();
    fill(&testbed);
    let repository = testbed.init();
    let outcome = testbed.backup(&repository);
    let target = testbed.path("restored");
    for overwrite in [Overwrite::Always, Overwrite::IfChanged] {
        // New files and directories in it inherit a list.
        fs::create_dir_all(&target).expect("a directory");
        set_attribute(&target, "system.posix_acl_default", &access_list());
        let options = RestoreOptions { overwrite, ..RestoreOptions::new(outcome.snapshot, &target) };
        let restored = repository.restore(&options, &task("restore"), &Cancel::default()).expect("restores");
        assert_eq!(restored.problems, []);
        assert_eq!(fingerprint(&target), fingerprint(&testbed.source()), "what was new");
        let _ = rustix::fs::removexattr(&target, "system.posix_acl_default");
        set_attribute(&target.join("text"), "user.other", b"of a directory that is there");
        set_attribute(&target.join("text"), "system.posix_acl_default", &access_list());
        set_attribute(&target.join("text/words"), "user.other", b"of a file that is there");
        fs::remove_dir_all(target.join("text/deep")).expect("removes");
        let restored = repository.restore(&options, &task("restore"), &Cancel::default()).expect("restores");
        assert_eq!(restored.problems, []);
        assert_eq!(fingerprint(&target), fingerprint(&testbed.source()), "what was there");
        fs::remove_dir_all(&target).expect("removes");
    }
}

type Exclude = Arc<dyn Fn(&Path) -> bool + Send + Sync>;

/// Options with one walker and an immediate scan.
fn single_walker(testbed: &Testbed) -> BackupOptions {
    BackupOptions { walkers: 1, count_ahead_after: Duration::ZERO, ..testbed.options() }
}

/// Calls `then` when the walk reaches this path. The scan runs on another thread.
fn when_walked_to(end_of_path: &'static str, then: impl Fn() + Send + Sync + 'static) -> Exclude {
    Arc::new(move |path: &Path| {
        if path.ends_with(end_of_path) && is_walk() {
            then();
        }
        false
    })
}

/// Calls `then` when the walk reaches `z/last`, the last path, and the scan is complete.
fn when_all_is_counted(bytes: Meter, then: impl Fn() + Send + Sync + 'static) -> Exclude {
    when_walked_to("z/last", move || {
        while !bytes.counts().total.is_final() {
            std::thread::yield_now();
        }
        then();
    })
}

#[test]
fn unchanged_removed_and_unreadable_files_are_counted() {
    let testbed = Testbed::new();
    testbed.write("a/kept", random_bytes(1, 50_000));
    let repository = testbed.init();
    testbed.backup(&repository);
    for (name, size) in [("a/vanishing", 1000), ("a/unreadable", 20_000), ("a/new", 300_000), ("z/last", 4_000_000)] {
        testbed.write(name, random_bytes(2, size));
    }
    let (vanishing, unreadable) = (testbed.source().join("a/vanishing"), testbed.source().join("a/unreadable"));
    let operation = Operation::new("backup", Clock::system());
    let mut options = single_walker(&testbed);
    options.exclude = Some(when_all_is_counted(operation.root().meter(Unit::Bytes), move || {
        fs::remove_file(&vanishing).expect("removes");
        fs::remove_file(&unreadable).expect("removes");
        rustix::fs::mknodat(CWD, &unreadable, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a fifo");
    }));
    let outcome = repository.backup(&options, &operation.root(), &Cancel::default()).expect("backs up");
    assert_eq!(outcome.problem_count, 1, "{:?}", outcome.problems);
    let counts = |unit| {
        let counts = operation.root().meter(unit).counts();
        (counts.done, counts.skipped, counts.failed, counts.total.value().expect("known"))
    };
    assert_eq!(counts(Unit::Files), (2, 2, 1, 5));
    assert_eq!(counts(Unit::Bytes), (4_300_000, 51_000, 20_000, 4_371_000));
}

#[test]
fn new_bytes_count_when_they_are_stored_and_existing_ones_at_once() {
    let testbed = Testbed::new();
    testbed.write("known", random_bytes(1, 50_000));
    testbed.backup(&testbed.init());
    testbed.write("a copy", random_bytes(1, 50_000));
    testbed.write("new", random_bytes(2, 300_000));
    let holding = BlockedWrites::of("data");
    let repository = open_with_fault(&testbed, holding.clone(), OpenOptions::default());
    let operation = Operation::new("backup", Clock::system());
    let bytes = operation.root().meter(Unit::Bytes);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| repository.backup(&testbed.options(), &operation.root(), &Cancel::default()));
        until("its packs are on their way", || {
            assert!(!running.is_finished(), "it ended before it was held");
            holding.is_blocking()
        });
        let counts = bytes.counts();
        holding.release();
        running.join().expect("no panic").expect("backs up");
        assert_eq!((counts.done, counts.skipped), (50_000, 50_000), "{counts:?}");
    });
    let counts = bytes.counts();
    assert_eq!((counts.done, counts.settled(), counts.total), (350_000, 400_000, Total::Final(400_000)));
}

#[test]
fn the_total_grows_during_the_scan_and_is_final_at_the_end() {
    let testbed = Testbed::new();
    testbed.write("first", random_bytes(1, 50_000));
    testbed.write("z/last", random_bytes(2, 30_000));
    let repository = testbed.init();
    let operation = Operation::new("backup", Clock::system());
    let bytes = operation.root().meter(Unit::Bytes);
    let go_on = Arc::new(AtomicBool::new(false));
    let waits = go_on.clone();
    let mut options = testbed.options();
    options.exclude = Some(Arc::new(move |path: &Path| {
        while path.ends_with("z/last") && !waits.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        false
    }));
    std::thread::scope(|scope| {
        let running = scope.spawn(|| repository.backup(&options, &operation.root(), &Cancel::default()));
        while bytes.counts().total != Total::Growing(50_000) {
            assert!(!running.is_finished(), "{:?}", bytes.counts());
            std::thread::yield_now();
        }
        let root = operation.snapshot().nodes.into_iter().next().expect("the root");
        let shown = *root.meters.iter().find(|counts| counts.unit == Unit::Bytes).expect("a meter");
        assert_eq!(shown.total, Total::Growing(50_000));
        go_on.store(true, Ordering::SeqCst);
        running.join().expect("no panic").expect("backs up");
    });
    assert_eq!((bytes.counts().done, bytes.counts().total), (80_000, Total::Final(80_000)));
}

fn is_walk() -> bool {
    std::thread::current().name() == Some("walk")
}

#[test]
fn done_never_exceeds_the_total_and_is_not_close_to_a_growing_total() {
    let testbed = Testbed::new();
    for number in 0..10 {
        testbed.write(&format!("{number}"), "x");
    }
    for number in 0..3000 {
        testbed.write(&format!("many/{number}"), "xy");
    }
    let repository = testbed.init();
    testbed.backup(&repository);
    let operation = Operation::new("backup", Clock::system());
    let (files, bytes) = (operation.root().meter(Unit::Files), operation.root().meter(Unit::Bytes));
    let (walked, most, wrong) = <(Arc<AtomicBool>, Arc<AtomicU64>, Arc<Mutex<Vec<Counts>>>)>::default();
    let (is_walked, seen, found) = (walked, most.clone(), wrong.clone());
    let mut options = single_walker(&testbed);
    options.exclude = Some(Arc::new(move |path: &Path| {
        let is_among_many = path.parent().is_some_and(|above| above.ends_with("many"));
        if !is_walk() {
            while is_among_many && !is_walked.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            return false;
        }
        // The scan is not ahead: the walk's total is all, and nearly all of it is done.
        let is_shown = |counts: &Counts| counts.total != Total::Unknown;
        found.lock().expect("not poisoned").extend([files.counts(), bytes.counts()].into_iter().filter(is_shown));
        seen.fetch_max(files.counts().settled(), Ordering::SeqCst);
        is_walked.store(path.ends_with("many/999"), Ordering::SeqCst);
        false
    }));
    let outcome = repository.backup(&options, &operation.root(), &Cancel::default()).expect("backs up");
    assert_eq!((outcome.summary.files_unmodified, outcome.problem_count), (3010, 0));
    assert_eq!(most.load(Ordering::SeqCst), 3009, "the walk was at its end before the scan went on");
    let wrong = wrong.lock().expect("not poisoned");
    assert_eq!(wrong.first(), None, "{} times", wrong.len());
    assert_eq!(operation.root().meter(Unit::Files).counts().total, Total::Final(3010));
}

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

#[test]
fn the_total_grows_also_within_one_directory() {
    let testbed = Testbed::new();
    for number in 0..2500 {
        testbed.write(&format!("{number}"), "x");
    }
    let repository = testbed.init();
    let operation = Operation::new("backup", Clock::system());
    let files = operation.root().meter(Unit::Files);
    let (asked, seen) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
    let shown = seen.clone();
    let mut options = single_walker(&testbed);
    options.exclude = Some(Arc::new(move |_: &Path| {
        if is_walk() {
            while shown.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
        } else if asked.fetch_add(1, Ordering::SeqCst) == 2400 {
            shown.store(files.counts().total.value().unwrap_or(1), Ordering::SeqCst);
        }
        false
    }));
    repository.backup(&options, &operation.root(), &Cancel::default()).expect("backs up");
    assert_eq!(seen.load(Ordering::SeqCst), 2000);
}

#[test]
fn a_target_behind_a_link_is_counted() {
    let testbed = Testbed::new();
    testbed.write("file", random_bytes(1, 1000));
    testbed.write("d/file", random_bytes(2, 2000));
    let link = testbed.path("link");
    symlink(testbed.source(), &link).expect("a link");
    let repository = testbed.init();
    for only in [None, Some("d".into())] {
        let expected = if only.is_some() { 2000 } else { 3000 };
        let mut options = single_walker(&testbed);
        options.target = plimsoll_repository::backup::Target::Placed { directory: link.clone(), at: "/".into(), only };
        let operation = Operation::new("backup", Clock::system());
        let bytes = operation.root().meter(Unit::Bytes);
        let known = Arc::new(Mutex::new(Total::Unknown));
        let total = known.clone();
        options.exclude = Some(when_walked_to("d/file", move || {
            while !bytes.counts().total.is_final() {
                std::thread::yield_now();
            }
            *total.lock().expect("not poisoned") = bytes.counts().total;
        }));
        let outcome = repository.backup(&options, &operation.root(), &Cancel::default()).expect("backs up");
        assert_eq!((outcome.problem_count, outcome.summary.total_bytes_processed), (0, expected));
        assert_eq!(*known.lock().expect("not poisoned"), Total::Final(expected), "before it was read");
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

#[test]
fn a_directory_or_one_of_its_files_can_have_another_path_in_the_snapshot() {
    let testbed = Testbed::new();
    testbed.write("deep/file", random_bytes(1, 30_000));
    testbed.write("other", "y");
    let repository = testbed.init();
    let placed = |at: &str, only: Option<&str>| {
        let mut options = testbed.options();
        let (directory, at, only) = (testbed.source(), at.into(), only.map(Into::into));
        options.target = plimsoll_repository::backup::Target::Placed { directory, at, only };
        let task = task("backup");
        let outcome = repository.backup(&options, &task, &Cancel::default()).expect("backs up");
        assert_eq!(outcome.problem_count, 0);
        let total = task.meter(Unit::Bytes).counts().total.value();
        assert_eq!(total, Some(outcome.summary.total_bytes_processed), "counted beforehand");
        testbed.restore(&repository, outcome.snapshot);
        let restored = fingerprint(&testbed.path("restored"));
        fs::remove_dir_all(testbed.path("restored")).expect("removes");
        restored.into_keys().map(|name| String::from_utf8(name).expect("a name")).collect::<Vec<_>>()
    };
    assert_eq!(placed("/app/data", None), ["app", "app/data", "app/data/deep", "app/data/deep/file", "app/data/other"]);
    assert_eq!(placed("/app", Some("other")), ["app", "app/other"]);
    assert_eq!(placed("/", Some("other")), ["other"]);
    assert_eq!(placed("/app", Some("none")), ["app"]);
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

#[test]
fn intermediate_index_files_contain_every_blob_once() {
    let testbed = Testbed::new();
    fill(&testbed);
    let repository = testbed.init();
    let options = BackupOptions { index_every: 2, pack_size: 100_000, ..testbed.options() };
    let outcome = repository.backup(&options, &task("backup"), &Cancel::default()).expect("backs up");
    let written = fs::read_dir(testbed.path("repository/index")).expect("lists").count();
    assert!(written > 2, "{written} index files");
    let found = check(&testbed.open());
    assert_eq!((found.errors, found.hints), (vec![], vec![]));
    testbed.restore(&testbed.open(), outcome.snapshot);
    assert_eq!(fingerprint(&testbed.path("restored")), fingerprint(&testbed.source()));
}
