//! What comes back is what was there.

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

use crate::fault::Holding;
use crate::locking::{meddled_with, until};
use crate::world::{World, check, fingerprint, noise, task};

/// Everything that a file system can hold and that is hard to keep.
pub fn fill(world: &World) {
    let source = world.source();
    world.write("large", noise(1, 3_000_000));
    world.write("text/words", "the same words again ".repeat(20_000));
    world.write("text/deep/er/file", "x");
    world.write("empty", "");
    fs::create_dir(source.join("nothing inside")).expect("a directory");
    // To the letter what is stored of a directory with nothing inside.
    world.write("looks like a directory", "{\"nodes\":[]}\n");
    let sparse = fs::File::create(source.join("sparse")).expect("a file");
    sparse.set_len(5 << 20).expect("grows");
    fill_with_holes(world);
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
    fill_attributes(world);
    fill_devices(world);
    set_time(&source.join("empty"), -300_000_000, 123_456_789);
    set_time(&source.join("text/link"), 1_000_000_000, 1);
    set_time(&source.join("text"), 1_500_000_000, 999_999_999);
}

/// Holes between pages that are written, so that no blob is nothing but zeros.
fn fill_with_holes(world: &World) {
    let file = fs::File::create(world.source().join("mostly holes")).expect("a file");
    file.set_len(3 << 20).expect("grows");
    for page in 0..24_u64 {
        file.write_all_at(&noise(page, 4096), page * (128 << 10) + 60_000).expect("writes");
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
fn fill_attributes(world: &World) {
    let file = world.write("attributes", "many");
    for (name, value) in [("user.z", &b"last"[..]), ("user.a", b"first"), ("user.empty", b"")] {
        set_attribute(&file, name, value);
    }
    set_attribute(&file, "system.posix_acl_access", &access_list());
}

/// Only root may make devices, and not everywhere.
fn fill_devices(world: &World) {
    let device = |name: &str, kind, major, minor| {
        let number = rustix::fs::makedev(major, minor);
        let made = rustix::fs::mknodat(CWD, world.source().join(name), kind, Mode::from_raw_mode(0o620), number);
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
fn everything_comes_back_as_it_was() {
    let world = World::new();
    fill(&world);
    let repository = world.init();
    let outcome = world.backup(&repository);
    assert_eq!((outcome.problem_count, outcome.locked), (0, true));
    let restored = world.restore(&repository, outcome.snapshot);
    assert_eq!(restored.problems, []);
    assert_eq!(fingerprint(&world.path("restored")), fingerprint(&world.source()));
    for name in ["sparse", "mostly holes"] {
        let sparse = world.path("restored").join(name).metadata().expect("is there");
        assert!(sparse.blocks() * 512 < sparse.len() / 2, "{name}: holes stay holes");
    }
    let found = check(&repository);
    assert_eq!((found.errors, found.hints), (vec![], vec![]));
}

#[test]
fn an_unchanged_directory_adds_nothing_and_a_changed_file_only_itself() {
    let world = World::new();
    fill(&world);
    let repository = world.init();
    let first = world.backup(&repository);
    let second = world.backup(&repository).summary;
    assert_eq!((second.data_blobs, second.tree_blobs, second.files_new, second.files_changed), (0, 0, 0, 0));
    assert_eq!(second.files_unmodified, first.summary.files_new);
    world.write("text/words", "other words");
    let third = world.backup(&repository);
    assert_eq!((third.summary.data_blobs, third.summary.files_changed), (1, 1));
    let (_, snapshot) = repository.find_snapshot(&third.snapshot.to_string()).expect("is there");
    assert_eq!(snapshot.summary, Some(third.summary));
    // Reading everything again finds the same.
    let options = BackupOptions { parent: Parent::None, ..world.options() };
    let forced = repository.backup(&options, &task("again"), &Cancel::default()).expect("backs up");
    assert_eq!((forced.tree, forced.summary.data_blobs, forced.summary.tree_blobs), (third.tree, 0, 0));
}

#[test]
fn totals_are_known_and_met_at_the_end() {
    let world = World::new();
    fill(&world);
    let repository = world.init();
    let operation = Operation::new("backup", Clock::system());
    let outcome = repository.backup(&world.options(), &operation.root(), &Cancel::default()).expect("backs up");
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
fn an_interrupted_restore_is_taken_up_and_links_do_not_lead_out() {
    let world = World::new();
    fill(&world);
    let repository = world.init();
    let outcome = world.backup(&repository);
    world.restore(&repository, outcome.snapshot);
    let (target, outside) = (world.path("restored"), world.path("outside"));
    fs::write(target.join("large"), "half").expect("writes");
    fs::remove_dir_all(target.join("text")).expect("removes");
    fs::create_dir(&outside).expect("a directory");
    symlink(&outside, target.join("text")).expect("a link");
    let options = RestoreOptions { overwrite: Overwrite::IfChanged, ..RestoreOptions::new(outcome.snapshot, &target) };
    let again = repository.restore(&options, &task("restore"), &Cancel::default()).expect("restores");
    assert_eq!(again.problems, []);
    assert!(again.skipped >= 2, "{} were left alone", again.skipped);
    assert_eq!(fs::read_dir(&outside).expect("lists").count(), 0, "nothing was written through the link");
    assert_eq!(fingerprint(&target), fingerprint(&world.source()));
}

#[test]
fn a_file_that_was_complete_but_for_its_mode_gets_it_when_the_restore_is_taken_up() {
    let world = World::new();
    fill(&world);
    let repository = world.init();
    let outcome = world.backup(&repository);
    world.restore(&repository, outcome.snapshot);
    let target = world.path("restored");
    for name in ["text/words", "empty", "large"] {
        fs::set_permissions(target.join(name), fs::Permissions::from_mode(0o600)).expect("a mode");
    }
    let _ = rustix::fs::setxattr(target.join("large"), "user.plimsoll", b"other", XattrFlags::empty());
    let options = RestoreOptions { overwrite: Overwrite::IfChanged, ..RestoreOptions::new(outcome.snapshot, &target) };
    let operation = Operation::new("restore", Clock::system());
    let again = repository.restore(&options, &operation.root(), &Cancel::default()).expect("restores");
    assert_eq!((again.files, again.problems), (0, vec![]), "nothing is written again");
    assert_eq!(fingerprint(&target), fingerprint(&world.source()));
    let bytes = operation.root().meter(Unit::Bytes).counts();
    assert_eq!(
        (bytes.done, bytes.skipped),
        (0, outcome.summary.total_bytes_processed - 3_000_000),
        "a hard link counts once"
    );
    assert_eq!(bytes.total.value(), Some(bytes.skipped));
}

#[test]
fn what_a_snapshot_has_no_attributes_for_keeps_and_inherits_none() {
    let world = World::new();
    fill(&world);
    let repository = world.init();
    let outcome = world.backup(&repository);
    let target = world.path("restored");
    for overwrite in [Overwrite::Always, Overwrite::IfChanged] {
        // Files made in it inherit a list, and so do directories, which pass it on.
        fs::create_dir_all(&target).expect("a directory");
        set_attribute(&target, "system.posix_acl_default", &access_list());
        let options = RestoreOptions { overwrite, ..RestoreOptions::new(outcome.snapshot, &target) };
        let restored = repository.restore(&options, &task("restore"), &Cancel::default()).expect("restores");
        assert_eq!(restored.problems, []);
        assert_eq!(fingerprint(&target), fingerprint(&world.source()), "what was new");
        let _ = rustix::fs::removexattr(&target, "system.posix_acl_default");
        set_attribute(&target.join("text"), "user.other", b"of a directory that is there");
        set_attribute(&target.join("text"), "system.posix_acl_default", &access_list());
        set_attribute(&target.join("text/words"), "user.other", b"of a file that is there");
        fs::remove_dir_all(target.join("text/deep")).expect("removes");
        let restored = repository.restore(&options, &task("restore"), &Cancel::default()).expect("restores");
        assert_eq!(restored.problems, []);
        assert_eq!(fingerprint(&target), fingerprint(&world.source()), "what was there");
        fs::remove_dir_all(&target).expect("removes");
    }
}

type Exclude = Arc<dyn Fn(&Path) -> bool + Send + Sync>;

/// One thread walks, in order, and the total is counted from the beginning.
fn one_by_one(world: &World) -> BackupOptions {
    BackupOptions { walkers: 1, count_ahead_after: Duration::ZERO, ..world.options() }
}

/// Called when the walk comes to this path. The scan asks about it, too, but is another thread.
fn when_walked_to(end_of_path: &'static str, then: impl Fn() + Send + Sync + 'static) -> Exclude {
    Arc::new(move |path: &Path| {
        if path.ends_with(end_of_path) && is_walk() {
            then();
        }
        false
    })
}

/// Called when the walk comes to `z/last`, after everything else, and the scan has counted all there is.
fn when_all_is_counted(bytes: Meter, then: impl Fn() + Send + Sync + 'static) -> Exclude {
    when_walked_to("z/last", move || {
        while !bytes.counts().total.is_final() {
            std::thread::yield_now();
        }
        then();
    })
}

#[test]
fn what_is_unchanged_vanishes_or_cannot_be_read_is_counted_too() {
    let world = World::new();
    world.write("a/kept", noise(1, 50_000));
    let repository = world.init();
    world.backup(&repository);
    for (name, size) in [("a/vanishing", 1000), ("a/unreadable", 20_000), ("a/new", 300_000), ("z/last", 4_000_000)] {
        world.write(name, noise(2, size));
    }
    let (vanishing, unreadable) = (world.source().join("a/vanishing"), world.source().join("a/unreadable"));
    let operation = Operation::new("backup", Clock::system());
    let mut options = one_by_one(&world);
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
fn bytes_that_are_new_count_as_done_once_they_are_stored_and_known_ones_at_once() {
    let world = World::new();
    world.write("known", noise(1, 50_000));
    world.backup(&world.init());
    world.write("a copy", noise(1, 50_000));
    world.write("new", noise(2, 300_000));
    let holding = Holding::back("data");
    let repository = meddled_with(&world, holding.clone(), OpenOptions::default());
    let operation = Operation::new("backup", Clock::system());
    let bytes = operation.root().meter(Unit::Bytes);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| repository.backup(&world.options(), &operation.root(), &Cancel::default()));
        until("its packs are on their way", || {
            assert!(!running.is_finished(), "it ended before it was held");
            holding.waits()
        });
        let counts = bytes.counts();
        holding.let_go();
        running.join().expect("no panic").expect("backs up");
        assert_eq!((counts.done, counts.skipped), (50_000, 50_000), "{counts:?}");
    });
    let counts = bytes.counts();
    assert_eq!((counts.done, counts.settled(), counts.total), (350_000, 400_000, Total::Final(400_000)));
}

#[test]
fn the_total_grows_while_the_scan_goes_on_and_is_final_in_the_end() {
    let world = World::new();
    world.write("first", noise(1, 50_000));
    world.write("z/last", noise(2, 30_000));
    let repository = world.init();
    let operation = Operation::new("backup", Clock::system());
    let bytes = operation.root().meter(Unit::Bytes);
    let go_on = Arc::new(AtomicBool::new(false));
    let waits = go_on.clone();
    let mut options = world.options();
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
fn what_is_settled_never_exceeds_the_total_shown_and_nothing_is_nearly_done_while_more_may_be_found() {
    let world = World::new();
    for number in 0..10 {
        world.write(&format!("{number}"), "x");
    }
    for number in 0..3000 {
        world.write(&format!("many/{number}"), "xy");
    }
    let repository = world.init();
    world.backup(&repository);
    let operation = Operation::new("backup", Clock::system());
    let (files, bytes) = (operation.root().meter(Unit::Files), operation.root().meter(Unit::Bytes));
    let (walked, most, wrong) = <(Arc<AtomicBool>, Arc<AtomicU64>, Arc<Mutex<Vec<Counts>>>)>::default();
    let (is_walked, seen, found) = (walked, most.clone(), wrong.clone());
    let mut options = one_by_one(&world);
    options.exclude = Some(Arc::new(move |path: &Path| {
        let is_among_many = path.parent().is_some_and(|above| above.ends_with("many"));
        if !is_walk() {
            while is_among_many && !is_walked.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            return false;
        }
        // The scan is not ahead: what the walk has found is all there is, and nearly all of it is done.
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
fn a_thread_that_panics_ends_the_backup_and_leaves_nobody_waiting() {
    let world = World::new();
    for number in 0..300 {
        world.write(&format!("{}/{number}", number % 5), noise(number, 1000));
    }
    let repository = world.init();
    let mut options = world.options();
    options.exclude = Some(when_walked_to("3/103", || panic!("a defect")));
    let backup = || repository.backup(&options, &task("backup"), &Cancel::default()).is_ok();
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(backup));
    assert!(ended.is_err(), "{ended:?}");
    assert!(repository.snapshots().expect("lists").is_empty());
}

#[test]
fn however_many_walk_the_same_is_stored_and_what_is_unchanged_is_looked_at_once() {
    let world = World::new();
    for number in 0..200 {
        world.write(&format!("{}/{}/{number}", number % 7, number % 3), noise(number, 100));
    }
    fs::create_dir_all(world.source().join("empty/deeper")).expect("directories");
    let repository = world.init();
    let backup = |walkers, parent| {
        let beside = Arc::new(AtomicU64::new(0));
        let (seen, asked) = (beside.clone(), Arc::new(AtomicU64::new(0)));
        let looked = asked.clone();
        let exclude: Exclude = Arc::new(move |_: &Path| {
            if is_walk() { &looked } else { &seen }.fetch_add(1, Ordering::SeqCst);
            false
        });
        let options = BackupOptions { walkers, parent, exclude: Some(exclude), ..world.options() };
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
    let world = World::new();
    for number in 0..2500 {
        world.write(&format!("{number}"), "x");
    }
    let repository = world.init();
    let operation = Operation::new("backup", Clock::system());
    let files = operation.root().meter(Unit::Files);
    let (asked, seen) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
    let shown = seen.clone();
    let mut options = one_by_one(&world);
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
fn a_directory_that_is_reached_by_a_link_is_counted_like_any_other() {
    let world = World::new();
    world.write("file", noise(1, 1000));
    world.write("d/file", noise(2, 2000));
    let link = world.path("link");
    symlink(world.source(), &link).expect("a link");
    let repository = world.init();
    for only in [None, Some("d".into())] {
        let expected = if only.is_some() { 2000 } else { 3000 };
        let mut options = one_by_one(&world);
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

/// A chain of directories, made step by step because no path is as long; the first so many have a file.
fn make_deep(top: &Path, levels: usize, files: usize) {
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

/// Removes it from above: whoever goes down all the way needs a descriptor for each level.
fn remove_deep(top: &Path) {
    let (first, second) = (top.join("d"), top.join("next"));
    while first.exists() {
        let _ = fs::rename(first.join("d"), &second);
        fs::remove_dir_all(&first).expect("removes");
        let _ = fs::rename(&second, &first);
    }
}

#[test]
fn directories_are_stored_as_deep_as_a_path_can_be_and_what_lies_deeper_is_named() {
    let world = World::new();
    make_deep(&world.source(), 6000, 2000);
    let repository = world.init();
    let operation = Operation::new("backup", Clock::system());
    let files = operation.root().meter(Unit::Files);
    let outcome = repository.backup(&world.options(), &operation.root(), &Cancel::default());
    remove_deep(&world.source());
    let outcome = outcome.expect("backs up");
    let causes: Vec<_> = outcome.problems.iter().map(|problem| problem.cause.as_str()).collect();
    assert_eq!(causes, ["File name too long (os error 36)"]);
    assert_eq!(
        outcome.problems[0].path.matches("/d").count(),
        2049,
        "two bytes for each in a path of 4096 with its end"
    );
    assert_eq!(outcome.summary.total_files_processed, 2000);
    assert_eq!(files.counts().total, Total::Final(2000));
    let found = check(&repository);
    assert_eq!((found.errors, found.hints), (vec![], vec![]));
}

#[test]
fn another_file_system_is_neither_stored_nor_counted_where_it_is_not_wanted() {
    let world = World::new();
    world.write("here", noise(1, 1000));
    let inside = world.source().join("mounted");
    fs::create_dir(&inside).expect("a directory");
    let flags = rustix::mount::MountFlags::empty();
    let mounted = rustix::mount::mount("none", &inside, "tmpfs", flags, None::<&std::ffi::CStr>);
    if mounted.is_err() {
        // Only root may.
        return;
    }
    fs::write(inside.join("there"), noise(2, 50_000)).expect("writes");
    let repository = world.init();
    let options = BackupOptions { one_file_system: true, ..world.options() };
    let operation = Operation::new("backup", Clock::system());
    let bytes = operation.root().meter(Unit::Bytes);
    let outcome = repository.backup(&options, &operation.root(), &Cancel::default());
    let ended = rustix::mount::unmount(&inside, rustix::mount::UnmountFlags::DETACH);
    assert_eq!(outcome.expect("backs up").summary.total_bytes_processed, 1000);
    assert_eq!((bytes.counts().total.value(), ended), (Some(1000), Ok(())));
}

#[test]
fn what_cannot_be_read_is_left_out_and_named() {
    let world = World::new();
    world.write("good", "x");
    world.write("gone/inside", "y");
    let repository = world.init();
    let mut options = world.options();
    let missing = world.path("not there");
    options.target = plimsoll_repository::backup::Target::Paths(vec![world.source(), missing.clone()]);
    let outcome = repository.backup(&options, &task("backup"), &Cancel::default()).expect("backs up");
    assert_eq!(outcome.problem_count, 1);
    assert_eq!(outcome.problems[0].path, missing.display().to_string());
    options.target = plimsoll_repository::backup::Target::Paths(vec![missing]);
    let error = repository.backup(&options, &task("backup"), &Cancel::default()).expect_err("nothing");
    assert_eq!(error.reason(), "NothingToBackUp");
}

#[test]
fn a_directory_or_a_file_of_it_can_be_found_in_the_snapshot_as_if_it_lay_elsewhere() {
    let world = World::new();
    world.write("deep/file", noise(1, 30_000));
    world.write("other", "y");
    let repository = world.init();
    let placed = |at: &str, only: Option<&str>| {
        let mut options = world.options();
        let (directory, at, only) = (world.source(), at.into(), only.map(Into::into));
        options.target = plimsoll_repository::backup::Target::Placed { directory, at, only };
        let task = task("backup");
        let outcome = repository.backup(&options, &task, &Cancel::default()).expect("backs up");
        assert_eq!(outcome.problem_count, 0);
        let total = task.meter(Unit::Bytes).counts().total.value();
        assert_eq!(total, Some(outcome.summary.total_bytes_processed), "counted beforehand");
        world.restore(&repository, outcome.snapshot);
        let restored = fingerprint(&world.path("restored"));
        fs::remove_dir_all(world.path("restored")).expect("removes");
        restored.into_keys().map(|name| String::from_utf8(name).expect("a name")).collect::<Vec<_>>()
    };
    assert_eq!(placed("/app/data", None), ["app", "app/data", "app/data/deep", "app/data/deep/file", "app/data/other"]);
    assert_eq!(placed("/app", Some("other")), ["app", "app/other"]);
    assert_eq!(placed("/", Some("other")), ["other"]);
    assert_eq!(placed("/app", Some("none")), ["app"]);
}

/// Puts a link to `outside` in the place of `d` when the walk comes to this path; answers with what was stored and named.
fn link_swapped_in(when: &'static str) -> (Vec<String>, Vec<plimsoll_repository::backup::Problem>) {
    let world = World::new();
    for name in ["a", "d/file", "d/e/file", "z/last"] {
        world.write(name, "of the tenant");
    }
    let (inside, outside) = (world.source().join("d"), world.path("outside"));
    fs::create_dir_all(outside.join("e")).expect("directories");
    for name in ["file", "e/file"] {
        fs::write(outside.join(name), "of the machine").expect("writes");
    }
    let (repository, mut options, aside) = (world.init(), one_by_one(&world), world.path("aside"));
    options.exclude = Some(when_walked_to(when, move || {
        fs::rename(&inside, &aside).expect("renames");
        symlink(&outside, &inside).expect("a link");
    }));
    let outcome = repository.backup(&options, &task("backup"), &Cancel::default()).expect("backs up");
    world.restore(&repository, outcome.snapshot);
    let restored = world.path("restored");
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
fn a_link_that_takes_the_place_of_a_directory_after_it_was_walked_is_named_and_not_followed() {
    let (files, problems) = link_swapped_in("z/last");
    assert_eq!(files, ["a", "z/last"]);
    let named: Vec<_> = problems.iter().map(|problem| problem.path.rsplit_once("source/").expect("below").1).collect();
    assert_eq!(named, ["d/file", "d/e/file"]);
    assert!(problems.iter().all(|problem| problem.cause.contains("symbolic link")), "{problems:?}");
}

#[test]
fn a_link_that_takes_the_place_of_a_directory_before_it_is_walked_is_named_and_not_followed() {
    let (files, problems) = link_swapped_in("a");
    assert_eq!(files, ["a", "z/last"]);
    assert!(problems.len() == 1 && problems[0].path.ends_with("source/d"), "{problems:?}");
}

#[test]
fn links_on_the_way_to_a_target_are_followed_and_a_target_that_is_a_link_is_stored_as_one() {
    let world = World::new();
    world.write("d/e/file", "x");
    symlink("d", world.source().join("way")).expect("a link");
    symlink("e", world.source().join("d/link")).expect("a link");
    let (repository, mut options) = (world.init(), world.options());
    let targets = ["way/e", "d/link", "d/e/file"].map(|name| world.source().join(name));
    options.target = plimsoll_repository::backup::Target::Paths(targets.to_vec());
    let outcome = repository.backup(&options, &task("backup"), &Cancel::default()).expect("backs up");
    assert_eq!(outcome.problems, []);
    world.restore(&repository, outcome.snapshot);
    let source = world.source();
    let restored = world.path("restored").join(source.strip_prefix("/").expect("absolute"));
    let found: Vec<_> =
        fingerprint(&restored).into_keys().map(|name| String::from_utf8(name).expect("a name")).collect();
    assert_eq!(found, ["d", "d/e", "d/e/file", "d/link", "way", "way/e", "way/e/file"]);
    assert!(restored.join("way").symlink_metadata().expect("is there").is_dir(), "written as what it leads to");
    assert!(restored.join("d/link").is_symlink());
}

#[test]
fn files_that_vanish_or_change_meanwhile_are_taken_as_they_are_found() {
    let world = World::new();
    for number in 0..30 {
        world.write(&format!("file {number:02}"), noise(number, 30_000));
    }
    let (vanishing, shrinking) = (world.source().join("file 20"), world.source().join("file 21"));
    let growing = world.source().join("file 22");
    let _socket = std::os::unix::net::UnixListener::bind(world.source().join("socket")).expect("a socket");
    let mut options = world.options();
    // Asked about each path before it is looked at: the directory is known by then.
    options.exclude = Some(Arc::new(move |path: &Path| {
        if path.ends_with("file 10") {
            let _ = fs::remove_file(&vanishing);
            fs::write(&shrinking, "short").expect("writes");
            fs::write(&growing, noise(1, 2_000_000)).expect("writes");
        }
        false
    }));
    let repository = world.init();
    let outcome = repository.backup(&options, &task("backup"), &Cancel::default()).expect("backs up");
    assert_eq!((outcome.problem_count, outcome.summary.total_files_processed), (0, 29));
    assert_eq!(world.restore(&repository, outcome.snapshot).problems, []);
    fs::remove_file(world.source().join("socket")).expect("removes");
    let (restored, source) = (fingerprint(&world.path("restored")), fingerprint(&world.source()));
    assert_eq!(restored, source);
    let found = check(&repository);
    assert_eq!((found.errors, found.hints), (vec![], vec![]));
}

#[test]
fn a_file_that_grows_while_it_is_read_is_stored_as_long_as_it_was_read() {
    use std::io::Write as _;
    let world = World::new();
    let path = world.write("growing", noise(1, 3_000_000));
    let repository = world.init();
    let done = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = fs::File::options().append(true).open(&path).expect("opens");
            // Not without end: reading would have none either.
            for _ in 0..2000 {
                if done.load(Ordering::SeqCst) {
                    break;
                }
                file.write_all(&[7; 10_000]).expect("writes");
            }
        });
        let outcome = repository.backup(&world.options(), &task("backup"), &Cancel::default());
        done.store(true, Ordering::SeqCst);
        outcome.expect("backs up")
    });
    assert_eq!(outcome.problem_count, 0);
    let found = check(&repository);
    assert_eq!((found.errors, found.hints), (vec![], vec![]), "size and content agree");
    world.restore(&repository, outcome.snapshot);
    let (restored, now) = (fs::read(world.path("restored/growing")).expect("reads"), fs::read(&path).expect("reads"));
    assert!(restored.len() >= 3_000_000 && now.starts_with(&restored), "the beginning of what it became");
}

#[test]
fn index_files_that_are_written_while_a_backup_runs_name_everything_once() {
    let world = World::new();
    fill(&world);
    let repository = world.init();
    let options = BackupOptions { index_every: 2, pack_size: 100_000, ..world.options() };
    let outcome = repository.backup(&options, &task("backup"), &Cancel::default()).expect("backs up");
    let written = fs::read_dir(world.path("repository/index")).expect("lists").count();
    assert!(written > 2, "{written} index files");
    let found = check(&world.open());
    assert_eq!((found.errors, found.hints), (vec![], vec![]));
    world.restore(&world.open(), outcome.snapshot);
    assert_eq!(fingerprint(&world.path("restored")), fingerprint(&world.source()));
}
