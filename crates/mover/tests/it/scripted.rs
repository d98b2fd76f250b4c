//! Scripted programs with recorded output: the progress and errors that the mover reports for it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plimsoll_mover::{Outcome, SCANNING};
use plimsoll_testkit::require;

use crate::failures::script;
use crate::testbed::{StoreKind, TestMover, Testbed};
use crate::volume::fill;

/// Status messages from the documentation of volume data.
const SCANNING_STATUS: &str = r#"{"message_type":"status","percent_done":0,"total_files":1,"total_bytes":21424504832}"#;
/// Recorded: it reports bytes while it still scans.
const SCANNING_STATUS_WITH_BYTES: &str = r#"{"message_type":"status","percent_done":0.00005,"total_files":2,"total_bytes":21424504832,"bytes_done":1048576}"#;
const SCAN_FINISHED: &str = r#"{"message_type":"status","action":"scan_finished","item":"","duration":0.219241873,"data_size":49461329920,"metadata_size":0,"total_files":10}"#;
const NOTHING_DONE: &str = r#"{"message_type":"status","percent_done":0,"total_files":10,"total_bytes":49461329920,"current_files":["/file3"]}"#;
const SOMETHING_DONE: &str = r#"{"message_type":"status","percent_done":0.0003815984736061056,"total_files":10,"total_bytes":49461329920,"bytes_done":18874368,"current_files":["/file1","/file3"]}"#;
const SUMMARY: &str = r#"{"message_type":"summary","files_new":10,"data_added":49461329920,"total_files_processed":10,"total_bytes_processed":49461329920,"total_duration":1.5,"snapshot_id":"0123456789abcdef"}"#;

/// A restic 0.14 with a scripted backup.
fn restic(bed: &Testbed, backup: &str) -> PathBuf {
    let version = "echo 'restic 0.14.0 compiled with go1.19 on linux/amd64'; exit";
    let text = format!(
        "for word; do case $word in version) {version};; snapshots) echo '[]'; exit;; esac; done\n\
         wait_for_file() {{ until [ -e \"$1\" ]; do sleep 0.02; done; }}\n{backup}"
    );
    script(bed, &text)
}

fn echo(line: &str) -> String {
    format!("echo '{line}'\n")
}

fn wait_for_file(path: &Path) -> String {
    format!("wait_for_file {}\n", path.display())
}

#[test]
fn both_numbers_appear_together_after_restics_scan() {
    let mut bed = require!(Testbed::new(TestMover::OldRestic, StoreKind::Directory));
    fill(&bed.source());
    let (scanned, counted) = (bed.path("scanned"), bed.path("counted"));
    let backup = echo(SCANNING_STATUS)
        + &echo(SCANNING_STATUS_WITH_BYTES)
        + &wait_for_file(&scanned)
        + &echo(SCAN_FINISHED)
        + &echo(NOTHING_DONE)
        + &echo(SOMETHING_DONE)
        + &wait_for_file(&counted)
        + &echo(SUMMARY);
    bed.program = Some(restic(&bed, &backup));
    let mut shown = Vec::new();
    let outcome = bed.watch(&bed.job(bed.backup_work()), |sample| {
        let open = sample.node.as_ref().filter(|node| node.state.is_open());
        if open.is_some_and(|node| node.item.as_deref() == Some(SCANNING)) && !scanned.exists() {
            std::fs::write(&scanned, "").unwrap();
        }
        if open.is_some() && !counted.exists() {
            shown.extend(sample.shown.map(|shown| (shown.bytes_done, shown.total_bytes)));
        }
        if !shown.is_empty() {
            std::fs::write(&counted, "").unwrap();
        }
    });
    let Ok(Outcome::Backup(done)) = outcome else { panic!("{outcome:?}") };
    assert_eq!((done.bytes, done.files), (49_461_329_920, 10));
    assert_eq!(shown, [(18_874_368, 49_461_329_920)], "the first progress");
}

#[test]
fn three_equal_totals_are_shown_without_the_end_of_restics_scan() {
    let mut bed = require!(Testbed::new(TestMover::OldRestic, StoreKind::Directory));
    fill(&bed.source());
    let counted = bed.path("counted");
    let backup = format!(
        "until [ -e {} ]; do {} sleep 0.1; done\n{}",
        counted.display(),
        echo(SOMETHING_DONE).replace('\n', ";"),
        echo(SUMMARY)
    );
    bed.program = Some(restic(&bed, &backup));
    let (mut first, mut shown) = (None, None);
    let outcome = bed.watch(&bed.job(bed.backup_work()), |sample| {
        let is_scanning = sample.node.as_ref().is_some_and(|node| node.item.as_deref() == Some(SCANNING));
        if is_scanning {
            first.get_or_insert_with(Instant::now);
        }
        if let Some(progress) = sample.shown.filter(|_| shown.is_none()) {
            shown = Some((Instant::now(), progress.bytes_done, progress.total_bytes));
            std::fs::write(&counted, "").unwrap();
        }
    });
    assert!(matches!(outcome, Ok(Outcome::Backup(_))), "{outcome:?}");
    let (at, done, total) = shown.unwrap();
    assert_eq!((done, total), (18_874_368, 49_461_329_920));
    let scanned = at.duration_since(first.unwrap());
    assert!(scanned > Duration::from_millis(1500), "samples a second apart: {scanned:?}");
}

/// A restic of this version whose restore prints `output` and fails for some files.
fn failing_restic(bed: &Testbed, version: &str, text: &str) -> PathBuf {
    let stats = r#"echo '{"total_size":40000000,"total_file_count":2}'; exit"#;
    let text = format!(
        "for word; do case $word in version) echo 'restic {version} compiled with go1.26.8 on linux/amd64'; exit;;\n\
         stats) {stats};; esac; done\ncat >&2 <<'END'\n{text}\nEND\nexit 1"
    );
    script(bed, &text)
}

fn restore_error(version: &str, text: &str) -> Result<Outcome, plimsoll_mover::MoverError> {
    let mut bed = match Testbed::new(TestMover::OldRestic, StoreKind::Directory) {
        Ok(bed) => bed,
        Err(missing) => panic!("{missing}"),
    };
    bed.program = Some(failing_restic(&bed, version, text));
    bed.run(bed.restore_work(&"ab".repeat(32)))
}

/// Recorded: an S3 server that was killed during a restore.
const OUTPUT_OF_OLD: &str = r#"Load(<data/26273ed4ea>, 17219349, 0) returned error, retrying after 6.988645419s: Get "http://127.0.0.1:29312/bucket/r/data/26/26273ed4ea": dial tcp 127.0.0.1:29312: connect: connection refused
ignoring error for /f5: StreamPack: Get "http://127.0.0.1:29312/bucket/r/data/7e/7e306072d7": dial tcp 127.0.0.1:29312: connect: connection refused
ignoring error for /f6: StreamPack: Get "http://127.0.0.1:29312/bucket/r/data/26/26273ed4ea": dial tcp 127.0.0.1:29312: connect: connection refused
error while unlocking: client.RemoveObject: Delete "http://127.0.0.1:29312/bucket/r/locks/95a04518fb": dial tcp 127.0.0.1:29312: connect: connection refusedFatal: There were 2 errors"#;
const OUTPUT_OF_NEW: &str = r#"Load(<data/b1ff0ac461>, 17625005, 0) failed: Get "http://127.0.0.1:29311/bucket/r/data/b1/b1ff0ac461": dial tcp 127.0.0.1:29311: connect: connection refused
{"message_type":"error","error":{"message":"ReadFull(\u003cdata/b1ff0ac461\u003e): circuit breaker open for file \u003cdata/b1ff0ac461\u003e"},"during":"restore","item":"/f5"}
{"message_type":"error","error":{"message":"ReadFull(\u003cdata/b1ff0ac461\u003e): circuit breaker open for file \u003cdata/b1ff0ac461\u003e"},"during":"restore","item":"/f6"}
{"message_type":"exit_error","code":1,"message":"Fatal: There were 2 errors\n"}"#;

#[test]
fn a_store_that_fails_during_a_restore_is_reported_as_unreachable() {
    require!(TestMover::OldRestic.program());
    for (version, text) in [("0.14.0", OUTPUT_OF_OLD), ("0.18.1", OUTPUT_OF_NEW)] {
        let error = restore_error(version, text).unwrap_err();
        assert_eq!((error.reason(), error.is_retryable()), ("RepositoryUnreachable", true), "{version}: {error}");
        assert!(error.to_string().contains("connection refused"), "{version}: {error}");
    }
    let refused = OUTPUT_OF_OLD.replace("dial tcp 127.0.0.1:29312: connect: connection refused", "Access Denied.");
    assert_eq!(restore_error("0.14.0", &refused).unwrap_err().reason(), "RepositoryCredentialsRejected");
}

#[test]
fn a_file_error_is_a_problem_also_after_recovered_store_errors() {
    require!(TestMover::OldRestic.program());
    let text = "Load(<data/26273ed4ea>, 17219349, 0) returned error, retrying after 6.9s: dial tcp 127.0.0.1:29312: connect: connection refused
ignoring error for /f5: lchown f5: operation not permitted
Fatal: There were 1 errors";
    let Ok(Outcome::Restore(done)) = restore_error("0.14.0", text) else { panic!("a partial restore") };
    assert_eq!(done.problems.named[0].path, "f5");
}

/// A restic of this version that fails to write its lock file with this output, and logs its commands.
fn restic_without_lock(bed: &Testbed, version: &str, text: &str) -> PathBuf {
    let text = format!(
        "for word; do [ \"$word\" = --no-lock ] && lock=' without a lock'; done\n\
         for word; do case $word in version) echo 'restic {version} compiled with go1.26.8 on linux/amd64'; exit;;\n\
         snapshots) echo '[]'; exit;;\nstats|restore) echo \"$word$lock\" >> {log}; [ \"$lock\" ] || {{ cat >&2 <<'END'\n\
         {text}\nEND\nexit 1; }}; echo '{{\"total_size\":7,\"total_file_count\":2}}'; exit;; esac; done",
        // The sandbox of a restore allows no other directory.
        log = bed.target().join("log").display()
    );
    script(bed, &text)
}

/// The output of restic 0.14, without the stack trace, and of 0.18.
const LOCK_DENIED_OLD: &str = "Access Denied.\nclient.PutObject\nunable to create lock in backend";
const LOCK_DENIED_NEW: &str = r#"{"message_type":"exit_error","code":1,"message":"unable to create lock in backend: client.PutObject: Access Denied."}"#;
const LOCK_NO_SPACE: &str =
    "unable to create lock in backend: write /r/locks/ab-tmp-12: no space left on device\nthe rest of a stack";

#[test]
fn a_restore_from_a_store_that_rejects_lock_files_continues_without_one() {
    for (version, text) in [("0.14.0", LOCK_DENIED_OLD), ("0.18.1", LOCK_DENIED_NEW), ("0.18.1", LOCK_NO_SPACE)] {
        let mut bed = require!(Testbed::new(TestMover::OldRestic, StoreKind::Directory));
        bed.program = Some(restic_without_lock(&bed, version, text));
        let outcome = bed.run(bed.restore_work(&"ab".repeat(32)));
        let Ok(Outcome::Restore(done)) = outcome else { panic!("{outcome:?}") };
        assert!(done.warnings.iter().any(|text| text.contains("does not accept lock files")), "{:?}", done.warnings);
        let log = std::fs::read_to_string(bed.target().join("log")).unwrap();
        assert_eq!(log, "stats\nstats without a lock\nrestore without a lock\n", "{version}");
    }
}

#[test]
fn a_lock_file_that_cannot_be_written_is_not_a_locked_repository() {
    for (text, reason) in [
        (LOCK_DENIED_OLD, "RepositoryCredentialsRejected"),
        (LOCK_DENIED_NEW, "RepositoryCredentialsRejected"),
        (LOCK_NO_SPACE, "RepositoryFull"),
    ] {
        let mut bed = require!(Testbed::new(TestMover::OldRestic, StoreKind::Directory));
        fill(&bed.source());
        bed.program = Some(restic(&bed, &format!("cat >&2 <<'END'\n{text}\nEND\nexit 1")));
        let error = bed.try_back_up().unwrap_err();
        assert_eq!((error.reason(), error.is_retryable()), (reason, false), "{error}");
    }
}

/// kopia's manifest of a snapshot with this many failed files.
fn manifest(failed: u32) -> String {
    format!(
        r#"{{"id":"0123456789abcdef0123456789abcdef","source":{{"host":"default","userName":"default","path":"x"}},"startTime":"2026-11-17T05:00:00Z","endTime":"2026-11-17T05:00:01Z","rootEntry":{{"name":"x","type":"d","summ":{{"size":7,"files":2,"symlinks":0,"dirs":1,"numFailed":{failed}}}}}}}"#
    )
}

/// A backup by a kopia that prints such a manifest and then runs `then`.
fn back_up_with_manifest(failed: u32, then: &str) -> Result<Outcome, plimsoll_mover::MoverError> {
    let mut bed = match Testbed::new(TestMover::Kopia, StoreKind::Directory) {
        Ok(bed) => bed,
        Err(missing) => panic!("{missing}"),
    };
    // Nothing that kopia ignores by default.
    std::fs::write(bed.source().join("file"), "content").unwrap();
    let real = bed.program.clone().unwrap();
    let text = format!(
        "case \" $* \" in *' snapshot create '*) {}{then};; esac\nexec {} \"$@\"",
        echo(&manifest(failed)),
        real.display()
    );
    bed.program = Some(script(&bed, &text));
    bed.run(bed.backup_work())
}

#[test]
fn a_kopia_that_prints_a_manifest_and_fails_to_store_it_is_an_error() {
    require!(TestMover::Kopia.program());
    let refused = "dial tcp 127.0.0.1:9: connect: connection refused";
    for (failed, then, reason) in [
        (0, format!("echo 'flush error: error flushing contents: {refused}' >&2; exit 1"), "RepositoryUnreachable"),
        (1, format!("echo 'flush error: error flushing contents: {refused}' >&2; exit 1"), "RepositoryUnreachable"),
        (1, "echo 'flush error: write: no space left on device' >&2; exit 1".into(), "RepositoryFull"),
        (0, "echo 'flush error: something new' >&2; exit 1".into(), "MoverProgramFailed"),
        (0, "kill -9 $$".into(), "MoverProgramFailed"),
        (1, "kill -9 $$".into(), "MoverProgramFailed"),
    ] {
        let error = back_up_with_manifest(failed, &then).unwrap_err();
        assert_eq!(error.reason(), reason, "{failed} failed files, {then}: {error}");
    }
}

#[test]
fn a_kopia_with_an_unreadable_file_has_stored_the_others() {
    require!(TestMover::Kopia.program());
    let text = "echo 'Found 1 fatal error(s) while snapshotting default@default:x.' >&2; exit 1";
    let Ok(Outcome::Backup(done)) = back_up_with_manifest(1, text) else { panic!("a backup") };
    assert_eq!((done.snapshot.as_deref(), done.problems.count), (Some("0123456789abcdef0123456789abcdef"), 1));
}

#[test]
fn kopias_error_is_found_after_progress_on_the_same_line() {
    require!(TestMover::Kopia.program());
    let progress =
        " - 2 hashing, 4 hashed (110.4 MB), 6 cached (1.5 GB), uploaded 25.6 MB, estimated 2.1 GB (76.7%) 3s left";
    let text = format!(
        "for turn in 1 2 3 4 5 6 7 8 9; do printf '\\r{}' >&2; done; echo 'upload error: something failed' >&2; exit 1",
        progress.replace('%', "%%")
    );
    let error = back_up_with_manifest(0, &text).unwrap_err();
    assert_eq!(error.to_string(), "kopia failed (exit code 1): upload error: something failed");
}
