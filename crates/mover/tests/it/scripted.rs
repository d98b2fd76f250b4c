//! Programs that say, word by word, what the documents say they say: what a CR would show of that, and when.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plimsoll_mover::{Outcome, SCANNING};
use plimsoll_testkit::require;

use crate::bed::{Bed, Where, Which};
use crate::failures::script;
use crate::volume::fill;

/// As the document on volume data has them.
const FOUND_SO_FAR: &str = r#"{"message_type":"status","percent_done":0,"total_files":1,"total_bytes":21424504832}"#;
/// Measured: it counts while it still looks.
const COUNTS_TOO_SOON: &str = r#"{"message_type":"status","percent_done":0.00005,"total_files":2,"total_bytes":21424504832,"bytes_done":1048576}"#;
const SCAN_FINISHED: &str = r#"{"message_type":"status","action":"scan_finished","item":"","duration":0.219241873,"data_size":49461329920,"metadata_size":0,"total_files":10}"#;
const NOTHING_DONE: &str = r#"{"message_type":"status","percent_done":0,"total_files":10,"total_bytes":49461329920,"current_files":["/file3"]}"#;
const SOMETHING_DONE: &str = r#"{"message_type":"status","percent_done":0.0003815984736061056,"total_files":10,"total_bytes":49461329920,"bytes_done":18874368,"current_files":["/file1","/file3"]}"#;
const SUMMARY: &str = r#"{"message_type":"summary","files_new":10,"data_added":49461329920,"total_files_processed":10,"total_bytes_processed":49461329920,"total_duration":1.5,"snapshot_id":"0123456789abcdef"}"#;

/// A restic 0.14 whose backup is this script.
fn restic(bed: &Bed, backup: &str) -> PathBuf {
    let version = "echo 'restic 0.14.0 compiled with go1.19 on linux/amd64'; exit";
    let text = format!(
        "for word; do case $word in version) {version};; snapshots) echo '[]'; exit;; esac; done\n\
         until_there() {{ until [ -e \"$1\" ]; do sleep 0.02; done; }}\n{backup}"
    );
    script(bed, &text)
}

fn say(line: &str) -> String {
    format!("echo '{line}'\n")
}

fn until_there(path: &Path) -> String {
    format!("until_there {}\n", path.display())
}

#[test]
fn both_numbers_reach_the_cr_together_and_only_once_restic_has_ended_its_scan() {
    let mut bed = require!(Bed::new(Which::OldRestic, Where::Directory));
    fill(&bed.source());
    let (scanned, counted) = (bed.path("scanned"), bed.path("counted"));
    let backup = say(FOUND_SO_FAR)
        + &say(COUNTS_TOO_SOON)
        + &until_there(&scanned)
        + &say(SCAN_FINISHED)
        + &say(NOTHING_DONE)
        + &say(SOMETHING_DONE)
        + &until_there(&counted)
        + &say(SUMMARY);
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
    assert_eq!(shown, [(18_874_368, 49_461_329_920)], "the first that was shown");
}

#[test]
fn a_total_that_three_samples_agree_on_is_shown_though_restic_never_says_that_its_scan_has_ended() {
    let mut bed = require!(Bed::new(Which::OldRestic, Where::Directory));
    fill(&bed.source());
    let counted = bed.path("counted");
    let backup = format!(
        "until [ -e {} ]; do {} sleep 0.1; done\n{}",
        counted.display(),
        say(SOMETHING_DONE).replace('\n', ";"),
        say(SUMMARY)
    );
    bed.program = Some(restic(&bed, &backup));
    let (mut first, mut shown) = (None, None);
    let outcome = bed.watch(&bed.job(bed.backup_work()), |sample| {
        let scans = sample.node.as_ref().is_some_and(|node| node.item.as_deref() == Some(SCANNING));
        if scans {
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

/// A restic of this version whose restore says this and ends as one does that has lost files.
fn losing(bed: &Bed, version: &str, words: &str) -> PathBuf {
    let stats = r#"echo '{"total_size":40000000,"total_file_count":2}'; exit"#;
    let text = format!(
        "for word; do case $word in version) echo 'restic {version} compiled with go1.26.8 on linux/amd64'; exit;;\n\
         stats) {stats};; esac; done\ncat >&2 <<'END'\n{words}\nEND\nexit 1"
    );
    script(bed, &text)
}

fn lost(version: &str, words: &str) -> Result<Outcome, plimsoll_mover::MoverError> {
    let mut bed = match Bed::new(Which::OldRestic, Where::Directory) {
        Ok(bed) => bed,
        Err(missing) => panic!("{missing}"),
    };
    bed.program = Some(losing(&bed, version, words));
    bed.run(bed.restore_work(&"ab".repeat(32)))
}

/// Recorded: an S3 server that was killed in the middle of a restore.
const LOST_BY_OLD: &str = r#"Load(<data/26273ed4ea>, 17219349, 0) returned error, retrying after 6.988645419s: Get "http://127.0.0.1:29312/bucket/r/data/26/26273ed4ea": dial tcp 127.0.0.1:29312: connect: connection refused
ignoring error for /f5: StreamPack: Get "http://127.0.0.1:29312/bucket/r/data/7e/7e306072d7": dial tcp 127.0.0.1:29312: connect: connection refused
ignoring error for /f6: StreamPack: Get "http://127.0.0.1:29312/bucket/r/data/26/26273ed4ea": dial tcp 127.0.0.1:29312: connect: connection refused
error while unlocking: client.RemoveObject: Delete "http://127.0.0.1:29312/bucket/r/locks/95a04518fb": dial tcp 127.0.0.1:29312: connect: connection refusedFatal: There were 2 errors"#;
const LOST_BY_NEW: &str = r#"Load(<data/b1ff0ac461>, 17625005, 0) failed: Get "http://127.0.0.1:29311/bucket/r/data/b1/b1ff0ac461": dial tcp 127.0.0.1:29311: connect: connection refused
{"message_type":"error","error":{"message":"ReadFull(\u003cdata/b1ff0ac461\u003e): circuit breaker open for file \u003cdata/b1ff0ac461\u003e"},"during":"restore","item":"/f5"}
{"message_type":"error","error":{"message":"ReadFull(\u003cdata/b1ff0ac461\u003e): circuit breaker open for file \u003cdata/b1ff0ac461\u003e"},"during":"restore","item":"/f6"}
{"message_type":"exit_error","code":1,"message":"Fatal: There were 2 errors\n"}"#;

#[test]
fn a_store_that_dies_in_the_middle_of_a_restore_is_no_loss_of_a_few_files() {
    require!(Which::OldRestic.program());
    for (version, words) in [("0.14.0", LOST_BY_OLD), ("0.18.1", LOST_BY_NEW)] {
        let error = lost(version, words).unwrap_err();
        assert_eq!((error.reason(), error.is_retryable()), ("RepositoryUnreachable", true), "{version}: {error}");
        assert!(error.to_string().contains("connection refused"), "{version}: {error}");
    }
    let refused = LOST_BY_OLD.replace("dial tcp 127.0.0.1:29312: connect: connection refused", "Access Denied.");
    assert_eq!(lost("0.14.0", &refused).unwrap_err().reason(), "RepositoryCredentialsRejected");
}

#[test]
fn a_file_that_cannot_be_restored_is_named_though_the_store_did_not_answer_for_a_while() {
    require!(Which::OldRestic.program());
    let words = "Load(<data/26273ed4ea>, 17219349, 0) returned error, retrying after 6.9s: dial tcp 127.0.0.1:29312: connect: connection refused
ignoring error for /f5: lchown f5: operation not permitted
Fatal: There were 1 errors";
    let Ok(Outcome::Restore(done)) = lost("0.14.0", words) else { panic!("it went on to its end") };
    assert_eq!(done.problems.named[0].path, "f5");
}

/// A restic of this version that is refused its lock file in these words, and notes what it was asked for.
fn lockless(bed: &Bed, version: &str, words: &str) -> PathBuf {
    let text = format!(
        "for word; do [ \"$word\" = --no-lock ] && lock=' without a lock'; done\n\
         for word; do case $word in version) echo 'restic {version} compiled with go1.26.8 on linux/amd64'; exit;;\n\
         snapshots) echo '[]'; exit;;\nstats|restore) echo \"$word$lock\" >> {asked}; [ \"$lock\" ] || {{ cat >&2 <<'END'\n\
         {words}\nEND\nexit 1; }}; echo '{{\"total_size\":7,\"total_file_count\":2}}'; exit;; esac; done",
        // A program of a restore writes nowhere else.
        asked = bed.target().join("asked").display()
    );
    script(bed, &text)
}

/// As restic 0.14 says it, its stack left out, and as 0.18 does.
const REFUSED_BY_OLD: &str = "Access Denied.\nclient.PutObject\nunable to create lock in backend";
const REFUSED_BY_NEW: &str = r#"{"message_type":"exit_error","code":1,"message":"unable to create lock in backend: client.PutObject: Access Denied."}"#;
const NO_ROOM: &str =
    "unable to create lock in backend: write /r/locks/ab-tmp-12: no space left on device\nthe rest of a stack";

#[test]
fn a_restore_from_a_store_that_takes_no_lock_file_goes_on_without_one() {
    for (version, words) in [("0.14.0", REFUSED_BY_OLD), ("0.18.1", REFUSED_BY_NEW), ("0.18.1", NO_ROOM)] {
        let mut bed = require!(Bed::new(Which::OldRestic, Where::Directory));
        bed.program = Some(lockless(&bed, version, words));
        let outcome = bed.run(bed.restore_work(&"ab".repeat(32)));
        let Ok(Outcome::Restore(done)) = outcome else { panic!("{outcome:?}") };
        assert!(done.warnings.iter().any(|words| words.contains("takes no lock file")), "{:?}", done.warnings);
        let asked = std::fs::read_to_string(bed.target().join("asked")).unwrap();
        assert_eq!(asked, "stats\nstats without a lock\nrestore without a lock\n", "{version}");
    }
}

#[test]
fn a_lock_file_that_cannot_be_written_is_no_lock_of_somebody_else() {
    for (words, reason) in [
        (REFUSED_BY_OLD, "RepositoryCredentialsRejected"),
        (REFUSED_BY_NEW, "RepositoryCredentialsRejected"),
        (NO_ROOM, "RepositoryFull"),
    ] {
        let mut bed = require!(Bed::new(Which::OldRestic, Where::Directory));
        fill(&bed.source());
        bed.program = Some(restic(&bed, &format!("cat >&2 <<'END'\n{words}\nEND\nexit 1")));
        let error = bed.try_back_up().unwrap_err();
        assert_eq!((error.reason(), error.is_retryable()), (reason, false), "{error}");
    }
}

/// A manifest as kopia prints it, of a snapshot that lost this many files.
fn manifest(failed: u32) -> String {
    format!(
        r#"{{"id":"0123456789abcdef0123456789abcdef","source":{{"host":"default","userName":"default","path":"x"}},"startTime":"2026-11-17T05:00:00Z","endTime":"2026-11-17T05:00:01Z","rootEntry":{{"name":"x","type":"d","summ":{{"size":7,"files":2,"symlinks":0,"dirs":1,"numFailed":{failed}}}}}}}"#
    )
}

/// A backup by a kopia that prints such a manifest and then does this.
fn told_too_soon(failed: u32, then: &str) -> Result<Outcome, plimsoll_mover::MoverError> {
    let mut bed = match Bed::new(Which::Kopia, Where::Directory) {
        Ok(bed) => bed,
        Err(missing) => panic!("{missing}"),
    };
    // Nothing that kopia leaves out by itself.
    std::fs::write(bed.source().join("file"), "content").unwrap();
    let real = bed.program.clone().unwrap();
    let text = format!(
        "case \" $* \" in *' snapshot create '*) {}{then};; esac\nexec {} \"$@\"",
        say(&manifest(failed)),
        real.display()
    );
    bed.program = Some(script(&bed, &text));
    bed.run(bed.backup_work())
}

#[test]
fn a_kopia_that_tells_of_a_snapshot_and_cannot_store_it_has_failed() {
    require!(Which::Kopia.program());
    let refused = "dial tcp 127.0.0.1:9: connect: connection refused";
    for (failed, then, reason) in [
        (0, format!("echo 'flush error: error flushing contents: {refused}' >&2; exit 1"), "RepositoryUnreachable"),
        (1, format!("echo 'flush error: error flushing contents: {refused}' >&2; exit 1"), "RepositoryUnreachable"),
        (1, "echo 'flush error: write: no space left on device' >&2; exit 1".into(), "RepositoryFull"),
        (0, "echo 'flush error: something new' >&2; exit 1".into(), "MoverProgramFailed"),
        (0, "kill -9 $$".into(), "MoverProgramFailed"),
        (1, "kill -9 $$".into(), "MoverProgramFailed"),
    ] {
        let error = told_too_soon(failed, &then).unwrap_err();
        assert_eq!(error.reason(), reason, "{failed} files lost, {then}: {error}");
    }
}

#[test]
fn a_kopia_that_could_not_read_a_file_has_stored_the_others() {
    require!(Which::Kopia.program());
    let words = "echo 'Found 1 fatal error(s) while snapshotting default@default:x.' >&2; exit 1";
    let Ok(Outcome::Backup(done)) = told_too_soon(1, words) else { panic!("it is there") };
    assert_eq!((done.snapshot.as_deref(), done.problems.count), (Some("0123456789abcdef0123456789abcdef"), 1));
}

#[test]
fn why_kopia_failed_is_told_though_it_stands_behind_much_progress_on_the_same_line() {
    require!(Which::Kopia.program());
    let progress =
        " - 2 hashing, 4 hashed (110.4 MB), 6 cached (1.5 GB), uploaded 25.6 MB, estimated 2.1 GB (76.7%) 3s left";
    let words = format!(
        "for turn in 1 2 3 4 5 6 7 8 9; do printf '\\r{}' >&2; done; echo 'upload error: the wheel fell off' >&2; exit 1",
        progress.replace('%', "%%")
    );
    let error = told_too_soon(0, &words).unwrap_err();
    assert_eq!(error.to_string(), "kopia failed (exit code 1): upload error: the wheel fell off");
}
