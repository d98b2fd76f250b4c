//! The cases. None of them knows which mover it runs, beyond what the mover says of itself.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plimsoll_mover::{
    BackupOutcome, Fidelity, Holder, Kind, LockInfo, LockWatch, MoverError, Outcome, Restore, RestoreOutcome,
    SnapshotInfo, Standing, Work, mover,
};
use plimsoll_testkit::Stopwatch;
use plimsoll_testkit::process::Process;
use plimsoll_testkit::wait::{WAIT_TIMEOUT, until_blocking};
use rustix::process::{Pid, Signal};

use crate::bed::{Bed, Which};
use crate::volume::{assert_same, fill, fill_much, fingerprint, noise};

fn fidelity(bed: &Bed) -> Fidelity {
    mover(bed.which.kind()).fidelity()
}

/// The bytes of the files below a directory: for each of their names, and for each file once.
fn bytes_of(root: &Path) -> (u64, u64) {
    let (mut by_name, mut by_file, mut seen) = (0, 0, HashSet::new());
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            if metadata.is_dir() {
                folders.push(path);
            } else if metadata.is_file() {
                by_name += metadata.len();
                by_file += if seen.insert(metadata.ino()) { metadata.len() } else { 0 };
            }
        }
    }
    (by_name, by_file)
}

/// A backup reads a file by each of its names, holes and all; a restore writes it once, if it keeps the names together.
/// What else is in the target counts for nothing.
fn assert_counted(bed: &Bed, backup: &BackupOutcome, restored: &RestoreOutcome) {
    let (by_name, by_file) = bytes_of(&bed.source());
    assert_eq!(backup.bytes, by_name);
    assert_eq!(restored.bytes, if fidelity(bed).hard_links { by_file } else { by_name });
}

pub fn everything_comes_back_as_it_was(bed: &Bed) {
    fill(&bed.source());
    let before = fingerprint(&bed.source(), fidelity(bed));
    let outcome = bed.back_up();
    let named: Vec<_> = outcome.problems.named.iter().map(|problem| problem.path.as_str()).collect();
    // What a mover does not keep, it names.
    assert!(!named.contains(&"socket"), "{named:?}");
    let warned = outcome.warnings.iter().any(|warning| warning.contains("1 files with several names"));
    assert_eq!(warned, !fidelity(bed).hard_links, "{:?}", outcome.warnings);
    assert_eq!(named.contains(&"pipe"), !fidelity(bed).special_files, "{named:?}");
    assert_eq!(named.iter().any(|path| path.starts_with("strange")), !fidelity(bed).any_name, "{named:?}");
    let restored = bed.restore(outcome.snapshot.as_deref().unwrap());
    assert_eq!(restored.problems.named, []);
    assert_counted(bed, &outcome, &restored);
    assert_same(&before, &bed.target(), fidelity(bed));
    // The old restic fills holes.
    let blocks = bed.target().join("sparse").metadata().unwrap().blocks();
    assert!(bed.which == Which::OldRestic || blocks * 512 < 1 << 20, "{blocks} blocks");
    bed.assert_sound();
}

pub fn files_are_moved_side_by_side_and_filled_up_where_somebody_wants_it(bed: &Bed) {
    fill(&bed.source());
    let before = fingerprint(&bed.source(), fidelity(bed));
    let Work::Backup(mut backup) = bed.backup_work() else { panic!("a backup") };
    backup.parallel = Some(3);
    let Outcome::Backup(done) = bed.run(Work::Backup(backup)).unwrap() else { panic!("a backup") };
    let Work::Restore(mut restore) = bed.restore_work(done.snapshot.as_deref().unwrap()) else { panic!("a restore") };
    (restore.parallel, restore.sparse) = (Some(2), false);
    bed.run(Work::Restore(restore)).unwrap();
    assert_same(&before, &bed.target(), fidelity(bed));
    let sparse = bed.target().join("sparse").metadata().unwrap();
    assert!(sparse.blocks() * 512 >= sparse.len(), "{} blocks for {} bytes", sparse.blocks(), sparse.len());
}

pub fn a_second_backup_compares_with_the_first_and_stores_only_what_changed(bed: &Bed) {
    fill(&bed.source());
    fs::write(bed.source().join("bulk"), noise(3, 8 << 20)).unwrap();
    let first = bed.back_up();
    let stored = bed.stored_bytes();
    // Another pod: the same volume at another path.
    fs::rename(bed.source(), bed.path("elsewhere")).unwrap();
    fs::write(bed.path("elsewhere").join("a/new"), "new").unwrap();
    fs::write(bed.path("elsewhere").join("a/b/small-9"), "changed").unwrap();
    fs::remove_file(bed.path("elsewhere").join("a/b/small-10")).unwrap();
    let before = fingerprint(&bed.path("elsewhere"), fidelity(bed));
    let Work::Backup(mut backup) = bed.backup_work() else { panic!("a backup") };
    backup.directory = bed.path("elsewhere");
    backup.source = "shop/db-1/data".into();
    let Outcome::Backup(second) = bed.run(Work::Backup(backup)).unwrap() else { panic!("a backup") };
    let full_id = first.snapshot.clone().unwrap();
    assert!(second.parent.as_ref().is_some_and(|parent| parent.starts_with(&full_id)), "{second:?} {full_id}");
    assert!(bed.stored_bytes() - stored < 1 << 20, "stored {} more", bed.stored_bytes() - stored);
    assert_ne!(first.snapshot, second.snapshot);
    bed.restore(second.snapshot.as_deref().unwrap());
    assert_same(&before, &bed.target(), fidelity(bed));
    let snapshots = bed.snapshots();
    assert_eq!(snapshots.len(), 2);
    assert!(snapshots.iter().all(|snapshot| snapshot.tags["pvc-uid"] == "1234"), "{snapshots:?}");
    // The old restic writes down only when it began.
    let says_when = |snapshot: &SnapshotInfo| snapshot.ended.is_some_and(|ended| ended >= snapshot.time);
    assert!(bed.which == Which::OldRestic || snapshots.iter().all(says_when), "{snapshots:?}");
}

pub fn a_restore_into_a_volume_that_is_not_empty_replaces_what_differs_and_leaves_the_rest(bed: &Bed) {
    fill(&bed.source());
    let kept = fidelity(bed);
    let mut expected = fingerprint(&bed.source(), kept);
    let outcome = bed.back_up();
    fs::create_dir_all(bed.target().join("a/b")).unwrap();
    fs::write(bed.target().join("a/b/small-20"), noise(9, 5 << 20)).unwrap();
    if bed.which != Which::OldRestic {
        // The old restic removes the second name of a file where it finds it, and says nothing.
        fs::write(bed.target().join("a/large"), noise(9, 5 << 20)).unwrap();
    }
    if !matches!(bed.which, Which::OldRestic | Which::Kopia) {
        // Neither kopia nor the old restic puts a link where a file is.
        fs::write(bed.target().join("link"), "was a file").unwrap();
    }
    // One that looks the same from outside.
    let (same, alike) = (bed.source().join("a/b/small-30"), bed.target().join("a/b/small-30"));
    fs::write(&alike, vec![0; fs::read(&same).unwrap().len()]).unwrap();
    let modified = same.metadata().unwrap().modified().unwrap();
    fs::File::options().write(true).open(&alike).unwrap().set_modified(modified).unwrap();
    fs::write(bed.target().join("not-in-the-backup"), noise(1, 1 << 20)).unwrap();
    let mine = fingerprint(&bed.target(), kept);
    let restored = bed.restore(outcome.snapshot.as_deref().unwrap());
    assert_eq!(restored.problems.named, []);
    assert_counted(bed, &outcome, &restored);
    let other = std::path::PathBuf::from("not-in-the-backup");
    expected.insert(other.clone(), mine[&other].clone());
    assert_same(&expected, &bed.target(), kept);
}

pub fn a_link_in_a_volume_that_leads_out_of_it_is_not_followed(bed: &Bed) {
    fs::create_dir(bed.source().join("folder")).unwrap();
    fs::write(bed.source().join("folder/planted"), noise(1, 1 << 20)).unwrap();
    fs::write(bed.source().join("file"), noise(2, 1 << 20)).unwrap();
    let outcome = bed.back_up();
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("theirs"), "theirs").unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), bed.target().join("folder")).unwrap();
    std::os::unix::fs::symlink(elsewhere.path().join("theirs"), bed.target().join("file")).unwrap();
    // It may be replaced, or refused.
    let restore = Restore::new(outcome.snapshot.unwrap(), bed.target());
    let _ = bed.watch(&bed.job(Work::Restore(restore)), |_| {});
    let left: Vec<_> = elsewhere.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["theirs"]);
    assert_eq!(fs::read_to_string(elsewhere.path().join("theirs")).unwrap(), "theirs");
}

/// Cancels once bytes have moved, and checks how long the end took.
fn cancel_in_the_middle(bed: &Bed, work: Work) {
    let mut asked = None;
    let result = bed.watch(&bed.job(work), |sample| {
        if asked.is_none() && sample.bytes() > 0 {
            sample.canceller.cancel();
            asked = Some(Stopwatch::start());
        }
    });
    assert_eq!(result, Err(MoverError::Cancelled));
    assert!(asked.unwrap().elapsed() < Duration::from_secs(5), "{:?}", asked.unwrap().elapsed());
}

pub fn a_backup_that_is_cancelled_in_the_middle_ends_within_five_seconds_and_can_be_done_again(bed: &Bed) {
    fill_much(&bed.source());
    cancel_in_the_middle(bed, bed.backup_work());
    assert_eq!(bed.locks(), [], "a cancelled backup leaves no lock");
    round_trip(bed);
}

pub fn a_restore_that_is_cancelled_in_the_middle_ends_within_five_seconds_and_can_be_done_again(bed: &Bed) {
    fill_much(&bed.source());
    let before = fingerprint(&bed.source(), fidelity(bed));
    let snapshot = bed.back_up().snapshot.unwrap();
    cancel_in_the_middle(bed, bed.restore_work(&snapshot));
    bed.restore(&snapshot);
    assert_same(&before, &bed.target(), fidelity(bed));
}

/// Kills the mover's process once bytes have moved; what it started must be gone too.
fn kill_in_the_middle(bed: &Bed, work: Work) {
    let mut children = None;
    let result = bed.watch(&bed.job(work), |sample| {
        if children.is_none() && sample.bytes() > 0 {
            children = Some(Process::find(sample.pid).map(Process::children).unwrap_or_default());
            let pid = Pid::from_raw(i32::try_from(sample.pid).unwrap()).unwrap();
            rustix::process::kill_process(pid, Signal::KILL).unwrap();
        }
    });
    let error = result.unwrap_err();
    assert_eq!((error.reason(), error.is_retryable()), ("MoverDied", true), "{error}");
    for child in children.unwrap() {
        let gone = || (!child.is_alive()).then_some(());
        until_blocking("the program's end", WAIT_TIMEOUT, gone).unwrap();
    }
}

fn holder(lock: &LockInfo) -> Holder {
    match lock.standing(None) {
        Standing::Alive => Holder::OursAlive,
        Standing::Gone => Holder::OursGone,
        Standing::Unknown => Holder::Unknown,
    }
}

fn in_minutes(minutes: i64) -> jiff::Timestamp {
    jiff::Timestamp::now() + jiff::SignedDuration::from_mins(minutes)
}

pub fn a_backup_that_is_killed_in_the_middle_leaves_a_sound_repository_and_is_taken_up_again(bed: &Bed) {
    fill_much(&bed.source());
    kill_in_the_middle(bed, bed.backup_work());
    let locks = bed.locks();
    assert_eq!(locks.is_empty(), bed.which.kind() == Kind::Kopia, "{locks:?}");
    let mut watch = LockWatch::default();
    let mut removable = |minutes| watch.observe(&locks, in_minutes(minutes), holder);
    if bed.which.kind() == Kind::BuiltIn {
        assert_eq!(removable(0).len(), locks.len(), "ours, and its holder is gone");
    } else {
        // restic names a machine and a number, which another cluster's process may have too.
        assert!(removable(31).is_empty() && removable(38).is_empty(), "{locks:?}");
        round_trip(bed);
        assert_eq!(removable(45).len(), locks.len(), "old, and unchanged twice");
    }
    bed.run(Work::Unlock { locks: locks.iter().map(|lock| lock.id.clone()).collect() }).unwrap();
    assert_eq!(bed.locks(), []);
    round_trip(bed);
    bed.assert_sound();
}

pub fn a_restore_that_is_killed_in_the_middle_is_taken_up_again(bed: &Bed) {
    fill_much(&bed.source());
    let before = fingerprint(&bed.source(), fidelity(bed));
    let snapshot = bed.back_up().snapshot.unwrap();
    kill_in_the_middle(bed, bed.restore_work(&snapshot));
    let Work::Restore(mut again) = bed.restore_work(&snapshot) else { panic!("a restore") };
    again.resumed = true;
    bed.run(Work::Restore(again)).unwrap();
    assert_same(&before, &bed.target(), fidelity(bed));
}

fn round_trip(bed: &Bed) {
    let before = fingerprint(&bed.source(), fidelity(bed));
    let outcome = bed.back_up();
    bed.fresh_target();
    bed.restore(outcome.snapshot.as_deref().unwrap());
    assert_same(&before, &bed.target(), fidelity(bed));
}

/// Raises a flag at the end, however that comes.
struct Raise<'f>(&'f AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

pub fn a_source_that_changes_while_it_is_read_is_backed_up_all_the_same(bed: &Bed) {
    fill_much(&bed.source());
    let still = bed.source().join("a");
    let before = fingerprint(&still, fidelity(bed));
    fs::create_dir(bed.source().join("busy")).unwrap();
    let over = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0_u64;
            while !over.load(Ordering::Acquire) {
                round += 1;
                let path = bed.source().join(format!("busy/file-{}", round % 50));
                let _ = fs::write(&path, noise(round, 10_000 + usize::try_from(round % 7).unwrap() * 5000));
                let _ = fs::remove_file(bed.source().join(format!("busy/file-{}", (round + 25) % 50)));
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let _over = Raise(&over);
        bed.back_up()
    });
    // A file that was gone when its turn came may be named; one that stayed may not.
    assert!(outcome.problems.named.iter().all(|problem| !problem.path.starts_with("a/")), "{:?}", outcome.problems);
    bed.restore(outcome.snapshot.as_deref().unwrap());
    assert_same(&before, &bed.target().join("a"), fidelity(bed));
    bed.assert_sound();
}

pub fn files_that_cannot_be_read_are_named_and_the_rest_is_backed_up(bed: &Bed) {
    fill(&bed.source());
    fs::set_permissions(bed.source().join("a/b/small-7"), fs::Permissions::from_mode(0o0)).unwrap();
    // Root without the right to read everything.
    let mut weak = Bed::bare(bed.which, crate::bed::Where::Directory).unwrap();
    let program = std::mem::replace(&mut weak.launch.program, "setpriv".into());
    let rights = "--bounding-set=-dac_override,-dac_read_search";
    weak.launch.arguments = vec![rights.into(), "--inh-caps=-dac_override,-dac_read_search".into(), program.into()];
    weak.place = bed.place.clone();
    let Outcome::Backup(outcome) = weak.run(bed.backup_work()).unwrap() else { panic!("a backup") };
    let unreadable: Vec<_> = outcome.problems.named.iter().filter(|problem| problem.path == "a/b/small-7").collect();
    assert_eq!(unreadable.len(), 1, "{:?}", outcome.problems);
    assert!(unreadable[0].cause.to_lowercase().contains("permission denied"), "{unreadable:?}");
    let mut expected = fingerprint(&bed.source(), fidelity(bed));
    expected.remove(Path::new("a/b/small-7"));
    bed.restore(outcome.snapshot.as_deref().unwrap());
    assert_same(&expected, &bed.target(), fidelity(bed));
}

pub fn an_empty_volume_is_no_error(bed: &Bed) {
    let outcome = bed.back_up();
    assert_eq!((outcome.bytes, outcome.files), (0, 0));
    assert_eq!(outcome.snapshot.is_some(), fidelity(bed).empty_snapshots);
    if let Some(snapshot) = &outcome.snapshot {
        let restored = bed.restore(snapshot);
        assert_eq!(restored.bytes, 0);
    }
    assert_eq!(fs::read_dir(bed.target()).unwrap().count(), 0);
}
