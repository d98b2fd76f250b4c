//! The test cases. They depend on the mover only through its [`Fidelity`].

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plimsoll_mover::{
    BackupOutcome, Fidelity, HolderLiveness, LockHolderStatus, LockInfo, MoverError, MoverKind, Outcome, Restore,
    RestoreOutcome, SnapshotInfo, StaleLockDetector, Work, mover,
};
use plimsoll_testkit::Stopwatch;
use plimsoll_testkit::process::Process;
use plimsoll_testkit::wait::{WAIT_TIMEOUT, until_blocking};
use rustix::process::{Pid, Signal};

use crate::testbed::{TestMover, Testbed};
use crate::volume::{assert_same, fill, fill_large, fingerprint, random_bytes};

fn fidelity(bed: &Testbed) -> Fidelity {
    mover(bed.mover_kind.kind()).fidelity()
}

/// The bytes of the files below a directory: with every hard link, and with each file once.
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

/// A backup reads every hard link of a file, including holes; a restore writes the file once, if it preserves hard links. Other
/// files in the target do not count.
fn assert_counted(bed: &Testbed, backup: &BackupOutcome, restored: &RestoreOutcome) {
    let (by_name, by_file) = bytes_of(&bed.source());
    assert_eq!(backup.bytes, by_name);
    assert_eq!(restored.bytes, if fidelity(bed).hard_links { by_file } else { by_name });
}

pub fn all_properties_are_restored(bed: &Testbed) {
    fill(&bed.source());
    let before = fingerprint(&bed.source(), fidelity(bed));
    let outcome = bed.back_up();
    let reported: Vec<_> = outcome.problems.named.iter().map(|problem| problem.path.as_str()).collect();
    // A mover reports what it does not preserve.
    assert!(!reported.contains(&"socket"), "{reported:?}");
    let warned = outcome.warnings.iter().any(|warning| warning.contains("1 hard-linked files"));
    assert_eq!(warned, !fidelity(bed).hard_links, "{:?}", outcome.warnings);
    assert_eq!(reported.contains(&"pipe"), !fidelity(bed).special_files, "{reported:?}");
    assert_eq!(reported.iter().any(|path| path.starts_with("strange")), !fidelity(bed).any_name, "{reported:?}");
    let restored = bed.restore(outcome.snapshot.as_deref().unwrap());
    assert_eq!(restored.problems.named, []);
    assert_counted(bed, &outcome, &restored);
    assert_same(&before, &bed.target(), fidelity(bed));
    // The old restic does not create sparse files.
    let blocks = bed.target().join("sparse").metadata().unwrap().blocks();
    assert!(bed.mover_kind == TestMover::OldRestic || blocks * 512 < 1 << 20, "{blocks} blocks");
    bed.assert_intact();
}

pub fn parallelism_and_sparse_files_can_be_configured(bed: &Testbed) {
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

pub fn a_second_backup_stores_only_changes(bed: &Testbed) {
    fill(&bed.source());
    fs::write(bed.source().join("bulk"), random_bytes(3, 8 << 20)).unwrap();
    let first = bed.back_up();
    let stored = bed.stored_bytes();
    // Another pod: the same volume with another path.
    fs::rename(bed.source(), bed.path("other_path")).unwrap();
    fs::write(bed.path("other_path").join("a/new"), "new").unwrap();
    fs::write(bed.path("other_path").join("a/b/small-9"), "changed").unwrap();
    fs::remove_file(bed.path("other_path").join("a/b/small-10")).unwrap();
    let before = fingerprint(&bed.path("other_path"), fidelity(bed));
    let Work::Backup(mut backup) = bed.backup_work() else { panic!("a backup") };
    backup.directory = bed.path("other_path");
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
    // The old restic does not record the end.
    let has_end = |snapshot: &SnapshotInfo| snapshot.ended.is_some_and(|ended| ended >= snapshot.time);
    assert!(bed.mover_kind == TestMover::OldRestic || snapshots.iter().all(has_end), "{snapshots:?}");
}

pub fn a_restore_replaces_different_files_and_leaves_the_rest(bed: &Testbed) {
    fill(&bed.source());
    let fidelity = fidelity(bed);
    let mut expected = fingerprint(&bed.source(), fidelity);
    let outcome = bed.back_up();
    fs::create_dir_all(bed.target().join("a/b")).unwrap();
    fs::write(bed.target().join("a/b/small-20"), random_bytes(9, 5 << 20)).unwrap();
    if bed.mover_kind != TestMover::OldRestic {
        // The old restic silently removes an existing second hard link.
        fs::write(bed.target().join("a/large"), random_bytes(9, 5 << 20)).unwrap();
    }
    if !matches!(bed.mover_kind, TestMover::OldRestic | TestMover::Kopia) {
        // Neither kopia nor the old restic replaces a file with a link.
        fs::write(bed.target().join("link"), "was a file").unwrap();
    }
    // A file with the same size and time.
    let (same, alike) = (bed.source().join("a/b/small-30"), bed.target().join("a/b/small-30"));
    fs::write(&alike, vec![0; fs::read(&same).unwrap().len()]).unwrap();
    let modified = same.metadata().unwrap().modified().unwrap();
    fs::File::options().write(true).open(&alike).unwrap().set_modified(modified).unwrap();
    fs::write(bed.target().join("not-in-the-backup"), random_bytes(1, 1 << 20)).unwrap();
    let existing = fingerprint(&bed.target(), fidelity);
    let restored = bed.restore(outcome.snapshot.as_deref().unwrap());
    assert_eq!(restored.problems.named, []);
    assert_counted(bed, &outcome, &restored);
    let other = std::path::PathBuf::from("not-in-the-backup");
    expected.insert(other.clone(), existing[&other].clone());
    assert_same(&expected, &bed.target(), fidelity);
}

pub fn a_link_out_of_the_volume_is_not_followed(bed: &Testbed) {
    fs::create_dir(bed.source().join("folder")).unwrap();
    fs::write(bed.source().join("folder/planted"), random_bytes(1, 1 << 20)).unwrap();
    fs::write(bed.source().join("file"), random_bytes(2, 1 << 20)).unwrap();
    let outcome = bed.back_up();
    let other_path = tempfile::tempdir().unwrap();
    fs::write(other_path.path().join("theirs"), "theirs").unwrap();
    std::os::unix::fs::symlink(other_path.path(), bed.target().join("folder")).unwrap();
    std::os::unix::fs::symlink(other_path.path().join("theirs"), bed.target().join("file")).unwrap();
    // The link may be replaced, or the restore may fail.
    let restore = Restore::new(outcome.snapshot.unwrap(), bed.target());
    let _ = bed.watch(&bed.job(Work::Restore(restore)), |_| {});
    let remaining: Vec<_> = other_path.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(remaining, ["theirs"]);
    assert_eq!(fs::read_to_string(other_path.path().join("theirs")).unwrap(), "theirs");
}

/// Cancels once bytes have moved, and checks the time until the end.
fn cancel_during(bed: &Testbed, work: Work) {
    let mut cancelled_at = None;
    let result = bed.watch(&bed.job(work), |sample| {
        if cancelled_at.is_none() && sample.bytes() > 0 {
            sample.canceller.cancel();
            cancelled_at = Some(Stopwatch::start());
        }
    });
    assert_eq!(result, Err(MoverError::Cancelled));
    assert!(cancelled_at.unwrap().elapsed() < Duration::from_secs(5), "{:?}", cancelled_at.unwrap().elapsed());
}

pub fn a_cancelled_backup_ends_within_five_seconds_and_can_be_repeated(bed: &Testbed) {
    fill_large(&bed.source());
    cancel_during(bed, bed.backup_work());
    assert_eq!(bed.locks(), [], "a cancelled backup leaves no lock");
    round_trip(bed);
}

pub fn a_cancelled_restore_ends_within_five_seconds_and_can_be_repeated(bed: &Testbed) {
    fill_large(&bed.source());
    let before = fingerprint(&bed.source(), fidelity(bed));
    let snapshot = bed.back_up().snapshot.unwrap();
    cancel_during(bed, bed.restore_work(&snapshot));
    bed.restore(&snapshot);
    assert_same(&before, &bed.target(), fidelity(bed));
}

/// Kills the mover process once bytes have moved. Its child processes must end too.
fn kill_during(bed: &Testbed, work: Work) {
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
        let ended = || (!child.is_alive()).then_some(());
        until_blocking("the program's end", WAIT_TIMEOUT, ended).unwrap();
    }
}

fn holder(lock: &LockInfo) -> LockHolderStatus {
    match lock.liveness(None) {
        HolderLiveness::Alive => LockHolderStatus::OursAlive,
        HolderLiveness::Gone => LockHolderStatus::OursGone,
        HolderLiveness::Unknown => LockHolderStatus::Unknown,
    }
}

fn in_minutes(minutes: i64) -> jiff::Timestamp {
    jiff::Timestamp::now() + jiff::SignedDuration::from_mins(minutes)
}

pub fn a_killed_backup_leaves_an_intact_repository_and_can_be_repeated(bed: &Testbed) {
    fill_large(&bed.source());
    kill_during(bed, bed.backup_work());
    let locks = bed.locks();
    assert_eq!(locks.is_empty(), bed.mover_kind.kind() == MoverKind::Kopia, "{locks:?}");
    let mut detector = StaleLockDetector::default();
    let mut removable = |minutes| detector.observe(&locks, in_minutes(minutes), holder);
    if bed.mover_kind.kind() == MoverKind::BuiltIn {
        assert_eq!(removable(0).len(), locks.len(), "of this cluster, and its holder has ended");
    } else {
        // restic records a host name and a PID, which a process of another cluster may have too.
        assert!(removable(31).is_empty() && removable(38).is_empty(), "{locks:?}");
        round_trip(bed);
        assert_eq!(removable(45).len(), locks.len(), "old, and unchanged twice");
    }
    bed.run(Work::Unlock { locks: locks.iter().map(|lock| lock.id.clone()).collect() }).unwrap();
    assert_eq!(bed.locks(), []);
    round_trip(bed);
    bed.assert_intact();
}

pub fn a_killed_restore_can_be_resumed(bed: &Testbed) {
    fill_large(&bed.source());
    let before = fingerprint(&bed.source(), fidelity(bed));
    let snapshot = bed.back_up().snapshot.unwrap();
    kill_during(bed, bed.restore_work(&snapshot));
    let Work::Restore(mut again) = bed.restore_work(&snapshot) else { panic!("a restore") };
    again.resumed = true;
    bed.run(Work::Restore(again)).unwrap();
    assert_same(&before, &bed.target(), fidelity(bed));
}

fn round_trip(bed: &Testbed) {
    let before = fingerprint(&bed.source(), fidelity(bed));
    let outcome = bed.back_up();
    bed.fresh_target();
    bed.restore(outcome.snapshot.as_deref().unwrap());
    assert_same(&before, &bed.target(), fidelity(bed));
}

/// Sets a flag on drop.
struct SetOnDrop<'f>(&'f AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

pub fn a_changing_source_is_backed_up(bed: &Testbed) {
    fill_large(&bed.source());
    let still = bed.source().join("a");
    let before = fingerprint(&still, fidelity(bed));
    fs::create_dir(bed.source().join("busy")).unwrap();
    let is_finished = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0_u64;
            while !is_finished.load(Ordering::Acquire) {
                round += 1;
                let path = bed.source().join(format!("busy/file-{}", round % 50));
                let _ = fs::write(&path, random_bytes(round, 10_000 + usize::try_from(round % 7).unwrap() * 5000));
                let _ = fs::remove_file(bed.source().join(format!("busy/file-{}", (round + 25) % 50)));
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let _finish = SetOnDrop(&is_finished);
        bed.back_up()
    });
    // A file that was removed during the backup may be reported; one that stayed may not.
    assert!(outcome.problems.named.iter().all(|problem| !problem.path.starts_with("a/")), "{:?}", outcome.problems);
    bed.restore(outcome.snapshot.as_deref().unwrap());
    assert_same(&before, &bed.target().join("a"), fidelity(bed));
    bed.assert_intact();
}

pub fn unreadable_files_are_problems_and_the_rest_is_backed_up(bed: &Testbed) {
    fill(&bed.source());
    fs::set_permissions(bed.source().join("a/b/small-7"), fs::Permissions::from_mode(0o0)).unwrap();
    // Root without the capability to read all files.
    let mut unprivileged = Testbed::without_repository(bed.mover_kind, crate::testbed::StoreKind::Directory).unwrap();
    let program = std::mem::replace(&mut unprivileged.command.program, "setpriv".into());
    let capabilities = "--bounding-set=-dac_override,-dac_read_search";
    unprivileged.command.arguments =
        vec![capabilities.into(), "--inh-caps=-dac_override,-dac_read_search".into(), program.into()];
    unprivileged.location = bed.location.clone();
    let Outcome::Backup(outcome) = unprivileged.run(bed.backup_work()).unwrap() else { panic!("a backup") };
    let unreadable: Vec<_> = outcome.problems.named.iter().filter(|problem| problem.path == "a/b/small-7").collect();
    assert_eq!(unreadable.len(), 1, "{:?}", outcome.problems);
    assert!(unreadable[0].cause.to_lowercase().contains("permission denied"), "{unreadable:?}");
    let mut expected = fingerprint(&bed.source(), fidelity(bed));
    expected.remove(Path::new("a/b/small-7"));
    bed.restore(outcome.snapshot.as_deref().unwrap());
    assert_same(&expected, &bed.target(), fidelity(bed));
}

pub fn an_empty_volume_is_not_an_error(bed: &Testbed) {
    let outcome = bed.back_up();
    assert_eq!((outcome.bytes, outcome.files), (0, 0));
    assert_eq!(outcome.snapshot.is_some(), fidelity(bed).empty_snapshots);
    if let Some(snapshot) = &outcome.snapshot {
        let restored = bed.restore(snapshot);
        assert_eq!(restored.bytes, 0);
    }
    assert_eq!(fs::read_dir(bed.target()).unwrap().count(), 0);
}
