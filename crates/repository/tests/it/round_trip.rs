//! Round trips: a restore gives what was backed up.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use plimsoll_progress::{Clock, Operation, Unit};
use plimsoll_repository::Cancel;
use plimsoll_repository::backup::{BackupOptions, Parent};
use plimsoll_repository::restore::{Overwrite, RestoreOptions};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

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
