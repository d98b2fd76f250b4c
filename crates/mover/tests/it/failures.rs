//! What goes wrong as a whole has a name, whichever mover it happens to.

use std::ffi::OsString;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use plimsoll_mover::{Launch, MoverError, Outcome, Secret, Work};
use plimsoll_repository::{Lock, LockKind, OpenOptions};
use plimsoll_store::Store;
use plimsoll_testkit::peers::s3::ACCESS_KEY;
use plimsoll_testkit::proxy::{Fault, Requests};
use plimsoll_testkit::{Proxy, Unavailable, require};

use crate::bed::{Bed, PASSWORD, Where, Which};
use crate::volume::{fill, noise};

const ALL: [Which; 4] = [Which::BuiltIn, Which::OldRestic, Which::Restic, Which::Kopia];
const PROGRAMS: [Which; 3] = [Which::OldRestic, Which::Restic, Which::Kopia];

/// A program that does what the script says.
pub fn script(bed: &Bed, text: &str) -> PathBuf {
    let path = bed.path("program");
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_program_that_is_not_installed_is_named() {
    for which in PROGRAMS {
        let mut bed = require!(Bed::bare(which, Where::Directory));
        bed.program = Some("/no/such/program".into());
        let error = bed.run(bed.backup_work()).unwrap_err();
        assert_eq!(error.reason(), "MoverProgramMissing");
        assert!(error.to_string().contains(which.kind().name()), "{error}");
    }
}

#[test]
fn a_restic_before_0_9_5_is_refused_by_name() {
    let mut bed = require!(Bed::bare(Which::Restic, Where::Directory));
    bed.program = Some(script(&bed, "echo 'restic 0.9.4 compiled with go1.11 on linux/amd64'"));
    let error = bed.run(bed.backup_work()).unwrap_err();
    assert_eq!(error.reason(), "MoverProgramTooOld");
    assert_eq!(error.to_string(), "restic 0.9.4 is too old: 0.9.5 or later is needed");
}

#[test]
fn a_restic_before_0_14_is_refused_by_name_for_a_repository_of_version_2() {
    let mut bed = require!(Bed::new(Which::BuiltIn, Where::Directory));
    fill(&bed.source());
    let snapshot = bed.back_up().snapshot.unwrap();
    bed.which = Which::OldRestic;
    bed.program = Some(script(&bed, "echo 'restic 0.13.1 compiled with go1.18 on linux/amd64'"));
    let forget = Work::Forget { snapshots: vec![snapshot.clone()] };
    let works = [Work::Ensure, bed.backup_work(), bed.restore_work(&snapshot), Work::Snapshots, forget, Work::Locks];
    for work in works {
        let error = bed.run(work.clone()).unwrap_err();
        assert_eq!(error.reason(), "MoverProgramTooOld", "{work:?}: {error}");
        let (found, needed) = ("restic 0.13.1 cannot read /", "install restic 0.14.0 or later where the mover runs");
        assert!(error.to_string().starts_with(found) && error.to_string().contains(needed), "{error}");
        assert!(error.to_string().contains("--uploader-type built-in"), "{error}");
    }
}

/// Makes a repository of version 1, as only restic itself does.
fn init_version_1(bed: &Bed) {
    let mut init = std::process::Command::new(bed.program.as_ref().unwrap());
    init.args(["init", "--repository-version", "1", "--repo"]).arg(bed.stored.join(&bed.place.prefix));
    assert!(init.env("RESTIC_PASSWORD", PASSWORD).output().unwrap().status.success());
}

#[test]
fn a_repository_of_version_1_is_restored_from_by_the_built_in_mover_and_named_before_it_is_written() {
    let mut bed = require!(Bed::bare(Which::OldRestic, Where::Directory));
    init_version_1(&bed);
    fill(&bed.source());
    let snapshot = bed.back_up().snapshot.unwrap();
    (bed.which, bed.program) = (Which::BuiltIn, None);
    let Ok(Outcome::Ensured(ensured)) = bed.run(Work::Ensure) else { panic!("it opens") };
    assert!(ensured.warnings.iter().any(|words| words.contains("upgrade_repo_v2")), "{ensured:?}");
    let error = bed.try_back_up().unwrap_err();
    assert_eq!((error.reason(), error.is_retryable()), ("UnsupportedRepository", false), "{error}");
    let words = error.to_string();
    assert!(words.contains("restic migrate upgrade_repo_v2") && words.contains("--uploader-type restic"), "{words}");
    bed.restore(&snapshot);
    assert!(bed.target().join("a/large").exists());
}

#[test]
fn a_restic_before_0_14_works_on_a_repository_of_version_1() {
    let mut bed = require!(Bed::bare(Which::OldRestic, Where::Directory));
    let real = bed.program.clone().unwrap();
    init_version_1(&bed);
    let text = format!(
        "for word; do [ \"$word\" = version ] && exec echo 'restic 0.9.5 compiled with go1.12'; done; exec {} \"$@\"",
        real.display()
    );
    bed.program = Some(script(&bed, &text));
    fill(&bed.source());
    assert!(matches!(bed.run(Work::Ensure), Ok(Outcome::Ensured(ensured)) if !ensured.created));
    let snapshot = bed.back_up().snapshot.unwrap();
    bed.restore(&snapshot);
    assert!(bed.target().join("a/large").exists());
}

#[test]
fn a_password_that_does_not_open_the_repository_is_named() {
    for which in ALL {
        let bed = require!(Bed::new(which, Where::Directory));
        fill(&bed.source());
        for work in [bed.backup_work(), Work::Ensure, bed.restore_work(&"0123456789abcdef".repeat(2))] {
            let mut job = bed.job(work);
            job.repository.password = Secret::new("another");
            let error = bed.run_job(&job).unwrap_err();
            assert_eq!(error.reason(), "WrongRepositoryPassword", "{error}");
            assert!(error.to_string().starts_with("the Secret's password does not open repository /"), "{error}");
        }
    }
}

#[test]
fn a_repository_that_is_not_there_is_named() {
    for which in ALL {
        let bed = require!(Bed::bare(which, Where::Directory));
        fill(&bed.source());
        assert_eq!(bed.run(bed.backup_work()).unwrap_err().reason(), "NotARepository");
        let mut lost = bed.job(bed.backup_work());
        lost.repository.place.bucket = bed.path("unmounted").display().to_string();
        assert_eq!(bed.run_job(&lost).unwrap_err().reason(), "InvalidStorageLocation");
    }
}

#[test]
fn a_snapshot_that_is_not_there_is_named() {
    for which in ALL {
        let bed = require!(Bed::new(which, Where::Directory));
        let error = bed.try_restore(&"0123456789abcdef".repeat(2)).unwrap_err();
        assert_eq!(error.reason(), "SnapshotNotFound", "{error}");
    }
}

#[test]
fn a_dead_store_is_named_within_half_a_minute() {
    for which in ALL {
        let mut bed = require!(Bed::new(which, Where::S3));
        fill(&bed.source());
        drop(bed.server.take());
        let began = Instant::now();
        let error = bed.run(bed.backup_work()).unwrap_err();
        assert_eq!((error.reason(), error.is_retryable()), ("RepositoryUnreachable", true), "{error}");
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    }
}

#[test]
fn keys_that_the_store_refuses_are_named_and_not_repeated() {
    for which in ALL {
        let mut bed = require!(Bed::new(which, Where::S3));
        fill(&bed.source());
        let keys = format!("[default]\naws_access_key_id={ACCESS_KEY}\naws_secret_access_key=hushhushhush\n");
        bed.place.credentials = Some(Secret::new(keys));
        let error = bed.run(bed.backup_work()).unwrap_err();
        assert_eq!(error.reason(), "RepositoryCredentialsRejected", "{error}");
        assert!(!error.to_string().contains("hush"), "{error}");
    }
}

#[test]
fn a_locked_repository_is_named_with_its_holder() {
    for which in [Which::BuiltIn, Which::OldRestic, Which::Restic] {
        let bed = require!(Bed::new(which, Where::Directory));
        fill(&bed.source());
        let store = Store::directory(&bed.stored, &bed.place.prefix).unwrap();
        let runtime = bed.runtime.handle().clone();
        let opened = plimsoll_repository::Repository::open(store, runtime, PASSWORD.as_bytes(), OpenOptions::default());
        let lock = Lock::take(&Arc::new(opened.unwrap()), LockKind::Exclusive).unwrap();
        let error = bed.try_back_up().unwrap_err();
        assert_eq!((error.reason(), error.is_retryable()), ("RepositoryLocked", true), "{error}");
        assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
        let locks = bed.locks();
        assert!(locks.iter().any(|lock| lock.pid == std::process::id() && lock.exclusive), "{locks:?}");
        drop(lock);
        bed.back_up();
    }
}

#[test]
fn what_keys_that_may_only_read_can_reach_is_restored() {
    let mut bed = require!(Bed::new(Which::Restic, Where::S3));
    fill(&bed.source());
    let snapshot = bed.back_up().snapshot.unwrap();
    let endpoint = bed.server.as_ref().unwrap().endpoint().to_owned();
    let proxy = bed.runtime.block_on(Proxy::before("127.0.0.1:0", &endpoint)).unwrap();
    bed.place.config.insert("s3Url".into(), proxy.url());
    let _read_only = proxy.inject(Requests::with_method(Method::PUT), Fault::Status(403));
    let error = bed.try_back_up().unwrap_err();
    assert_eq!((error.reason(), error.is_retryable()), ("RepositoryCredentialsRejected", false), "{error}");
    let done = bed.restore(&snapshot);
    assert!(done.warnings.iter().any(|words| words.contains("takes no lock file")), "{:?}", done.warnings);
    assert!(bed.target().join("a/large").exists());
}

/// Puts a small file system over a directory, for the mover alone.
fn on_a_small_disk(bed: &mut Bed, directory: &Path, size: &str) {
    let small = bed.path("small");
    std::fs::create_dir_all(&small).unwrap();
    let program = std::mem::replace(&mut bed.launch.program, "unshare".into());
    let mount = format!(
        "mount -t tmpfs -o size={size} small \"$1\" && cp -a \"$2/.\" \"$1\" && mount --bind \"$1\" \"$2\" && exec \"$3\""
    );
    bed.launch.arguments = ["--mount", "sh", "-c", &mount, "sh"].map(Into::into).into();
    bed.launch.arguments.extend([small.into(), directory.into(), program.into()]);
}

#[test]
fn a_full_disk_under_the_repository_is_named() {
    for which in ALL {
        let mut bed = require!(Bed::new(which, Where::Directory));
        std::fs::write(bed.source().join("much"), noise(5, 64 << 20)).unwrap();
        let stored = bed.stored.clone();
        on_a_small_disk(&mut bed, &stored, "24m");
        let error = bed.try_back_up().unwrap_err();
        assert_eq!(error.reason(), "RepositoryFull", "{which:?} {error}");
    }
}

#[test]
fn a_full_volume_is_named() {
    for which in ALL {
        let mut bed = require!(Bed::new(which, Where::Directory));
        std::fs::write(bed.source().join("much"), noise(5, 24 << 20)).unwrap();
        std::fs::write(bed.source().join("more"), noise(6, 4 << 20)).unwrap();
        let snapshot = bed.back_up().snapshot.unwrap();
        let target = bed.target();
        on_a_small_disk(&mut bed, &target, "8m");
        let error = bed.try_restore(&snapshot).unwrap_err();
        assert_eq!(error.reason(), "VolumeFull", "{which:?} {error}");
        assert!(error.to_string().contains(&target.display().to_string()), "{error}");
    }
}

#[test]
fn a_volume_that_is_not_there_is_named() {
    for which in ALL {
        let bed = require!(Bed::new(which, Where::Directory));
        std::fs::remove_dir(bed.source()).unwrap();
        assert_eq!(bed.try_back_up().unwrap_err().reason(), "VolumeUnusable");
    }
}

#[test]
fn a_restore_whose_size_cannot_be_asked_for_goes_on_without_a_percentage() {
    let mut bed = require!(Bed::new(Which::OldRestic, Where::Directory));
    fill(&bed.source());
    let snapshot = bed.back_up().snapshot.unwrap();
    let real = bed.program.clone().unwrap();
    let (counted, ended) = (bed.path("counted"), bed.path("ended"));
    // It ends when the test has seen how it is shown, and tells that it does.
    let wait = format!("until [ -e {} ]; do sleep 0.02; done; touch {}", counted.display(), ended.display());
    let text = format!(
        "for word; do case $word in stats) exit 1;; restore) {} \"$@\"; code=$?; {wait}; exit $code;; esac; done; exec {} \"$@\"",
        real.display(),
        real.display()
    );
    bed.program = Some(script(&bed, &text));
    let (mut looks, mut shown) = (0, Vec::new());
    let outcome = bed.watch(&bed.job(bed.restore_work(&snapshot)), |sample| {
        let Some(node) = sample.node.as_ref().filter(|node| node.state.is_open()) else { return };
        // What the sample shows is older than this question.
        if !ended.exists() {
            assert_eq!((sample.shown, node.percent), (None, None), "made up, with {} bytes done", sample.bytes());
            looks += usize::from(sample.bytes() > 0);
        }
        if looks > 20 {
            std::fs::write(&counted, "").unwrap();
        }
        shown.extend(sample.shown);
    });
    assert!(matches!(outcome, Ok(Outcome::Restore(_))), "{outcome:?}");
    assert!(looks > 20, "looked {looks} times while bytes were known");
    // Between the program's end and the verdict all but one byte may show.
    assert!(shown.iter().all(|shown| shown.bytes_done + 1 == shown.total_bytes), "made up: {shown:?}");
    assert!(bed.target().join("a/large").exists());
}

#[test]
fn a_job_that_is_no_job_is_named() {
    let bed = require!(Bed::bare(Which::BuiltIn, Where::Directory));
    let error: MoverError = bed.try_restore("../../etc/passwd").unwrap_err();
    assert_eq!(error.reason(), "InvalidMoverJob");
}

#[test]
fn what_an_old_restic_loses_in_a_volume_that_is_not_empty_is_named() {
    let bed = require!(Bed::new(Which::OldRestic, Where::Directory));
    fill(&bed.source());
    let snapshot = bed.back_up().snapshot.unwrap();
    std::fs::create_dir(bed.target().join("a")).unwrap();
    std::fs::write(bed.target().join("a/large"), "was here").unwrap();
    let restored = bed.restore(&snapshot);
    let named: Vec<_> = restored.problems.named.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(named, ["a/large"]);
    assert!(!bed.target().join("a/large").exists(), "or it need not be named");
}

#[test]
fn owners_that_kopia_passes_over_are_told() {
    let mut bed = require!(Bed::new(Which::Kopia, Where::Directory));
    fill(&bed.source());
    let snapshot = bed.back_up().snapshot.unwrap();
    assert_eq!(bed.restore(&snapshot).warnings, Vec::<String>::new());
    bed.fresh_target();
    // Root without the right to give files away, as on an NFS export that squashes it.
    let program = std::mem::replace(&mut bed.launch.program, "setpriv".into());
    bed.launch.arguments = vec!["--bounding-set=-chown".into(), "--inh-caps=-chown".into(), program.into()];
    let told = bed.restore(&snapshot).warnings;
    let target = bed.target().display().to_string();
    assert!(told.iter().any(|words| words.contains(&target) && words.contains("owners are not restored")), "{told:?}");
    let owner = bed.target().join("a/b/small-2").metadata().unwrap().uid();
    assert_eq!(owner, 0, "or it need not be told");
}

#[test]
fn what_was_restored_is_flushed_before_anybody_hears_of_it() {
    let strace = || Unavailable::new("strace", "install it");
    require!(std::process::Command::new("strace").arg("-V").output().map_err(|_| strace()));
    for which in ALL {
        let mut bed = require!(Bed::new(which, Where::Directory));
        fill(&bed.source());
        let snapshot = bed.back_up().snapshot.unwrap();
        let (program, trace) = (bed.launch.program.clone(), bed.path("trace"));
        let traced = |inject: &str| {
            let mut arguments: Vec<OsString> = ["-f", "-qq", "-e", "trace=syncfs"].map(Into::into).into();
            arguments.extend(["-e".into(), inject.into(), "-o".into(), trace.clone().into(), program.clone().into()]);
            Launch { program: "strace".into(), arguments }
        };
        bed.launch = traced("inject=syncfs:error=EIO");
        let error = bed.try_restore(&snapshot).unwrap_err();
        assert_eq!(error.reason(), "VolumeUnusable", "{which:?}: {error}");
        assert!(error.to_string().contains("flushing it"), "{which:?}: {error}");
        bed.launch = traced("inject=syncfs:error=ENOSPC");
        assert_eq!(bed.try_restore(&snapshot).unwrap_err().reason(), "VolumeFull", "{which:?}");
    }
}
