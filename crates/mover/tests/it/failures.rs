//! Failures of a whole transfer have the same reason with every mover.

use std::ffi::OsString;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use plimsoll_mover::{MoverCommand, MoverError, Outcome, Secret, Work};
use plimsoll_repository::{Lock, LockKind, OpenOptions};
use plimsoll_store::Store;
use plimsoll_testkit::peers::s3::ACCESS_KEY;
use plimsoll_testkit::proxy::{Fault, Requests};
use plimsoll_testkit::{Proxy, Stopwatch, Unavailable, require};

use crate::testbed::{PASSWORD, StoreKind, TestMover, Testbed};
use crate::volume::{fill, random_bytes};

const ALL: [TestMover; 4] = [TestMover::BuiltIn, TestMover::OldRestic, TestMover::Restic, TestMover::Kopia];
const PROGRAMS: [TestMover; 3] = [TestMover::OldRestic, TestMover::Restic, TestMover::Kopia];

/// Creates a program from a script.
pub fn script(bed: &Testbed, text: &str) -> PathBuf {
    let path = bed.path("program");
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_missing_program_is_reported() {
    for mover_kind in PROGRAMS {
        let mut bed = require!(Testbed::without_repository(mover_kind, StoreKind::Directory));
        bed.program = Some("/no/such/program".into());
        let error = bed.run(bed.backup_work()).unwrap_err();
        assert_eq!(error.reason(), "MoverProgramMissing");
        assert!(error.to_string().contains(mover_kind.kind().name()), "{error}");
    }
}

#[test]
fn a_restic_before_0_9_5_is_rejected() {
    let mut bed = require!(Testbed::without_repository(TestMover::Restic, StoreKind::Directory));
    bed.program = Some(script(&bed, "echo 'restic 0.9.4 compiled with go1.11 on linux/amd64'"));
    let error = bed.run(bed.backup_work()).unwrap_err();
    assert_eq!(error.reason(), "MoverProgramTooOld");
    assert_eq!(error.to_string(), "restic 0.9.4 is too old: 0.9.5 or later is required");
}

#[test]
fn a_restic_before_0_14_is_rejected_for_a_repository_of_version_2() {
    let mut bed = require!(Testbed::new(TestMover::BuiltIn, StoreKind::Directory));
    fill(&bed.source());
    let snapshot = bed.back_up().snapshot.unwrap();
    bed.mover_kind = TestMover::OldRestic;
    bed.program = Some(script(&bed, "echo 'restic 0.13.1 compiled with go1.18 on linux/amd64'"));
    let forget = Work::Forget { snapshots: vec![snapshot.clone()] };
    let works = [Work::Ensure, bed.backup_work(), bed.restore_work(&snapshot), Work::Snapshots, forget, Work::Locks];
    for work in works {
        let error = bed.run(work.clone()).unwrap_err();
        assert_eq!(error.reason(), "MoverProgramTooOld", "{work:?}: {error}");
        let (problem, advice) = ("restic 0.13.1 cannot read repository /", "install restic 0.14.0 or later");
        assert!(error.to_string().starts_with(problem) && error.to_string().contains(advice), "{error}");
        assert!(error.to_string().contains("--uploader-type built-in"), "{error}");
    }
}

/// Initializes a repository of version 1, which only restic supports.
fn init_version_1(bed: &Testbed) {
    let mut init = std::process::Command::new(bed.program.as_ref().unwrap());
    init.args(["init", "--repository-version", "1", "--repo"]).arg(bed.stored.join(&bed.location.prefix));
    assert!(init.env("RESTIC_PASSWORD", PASSWORD).output().unwrap().status.success());
}

#[test]
fn a_repository_of_version_1_can_be_restored_by_the_built_in_mover_but_not_written() {
    let mut bed = require!(Testbed::without_repository(TestMover::OldRestic, StoreKind::Directory));
    init_version_1(&bed);
    fill(&bed.source());
    let snapshot = bed.back_up().snapshot.unwrap();
    (bed.mover_kind, bed.program) = (TestMover::BuiltIn, None);
    let Ok(Outcome::Ensure(ensured)) = bed.run(Work::Ensure) else { panic!("ensured") };
    assert!(ensured.warnings.iter().any(|text| text.contains("upgrade_repo_v2")), "{ensured:?}");
    let error = bed.try_back_up().unwrap_err();
    assert_eq!((error.reason(), error.is_retryable()), ("UnsupportedRepository", false), "{error}");
    let text = error.to_string();
    assert!(text.contains("restic migrate upgrade_repo_v2") && text.contains("--uploader-type restic"), "{text}");
    bed.restore(&snapshot);
    assert!(bed.target().join("a/large").exists());
}

#[test]
fn a_restic_before_0_14_works_on_a_repository_of_version_1() {
    let mut bed = require!(Testbed::without_repository(TestMover::OldRestic, StoreKind::Directory));
    let real = bed.program.clone().unwrap();
    init_version_1(&bed);
    let text = format!(
        "for word; do [ \"$word\" = version ] && exec echo 'restic 0.9.5 compiled with go1.12'; done; exec {} \"$@\"",
        real.display()
    );
    bed.program = Some(script(&bed, &text));
    fill(&bed.source());
    assert!(matches!(bed.run(Work::Ensure), Ok(Outcome::Ensure(ensured)) if !ensured.created));
    let snapshot = bed.back_up().snapshot.unwrap();
    bed.restore(&snapshot);
    assert!(bed.target().join("a/large").exists());
}

#[test]
fn a_wrong_password_is_reported() {
    for mover_kind in ALL {
        let bed = require!(Testbed::new(mover_kind, StoreKind::Directory));
        fill(&bed.source());
        for work in [bed.backup_work(), Work::Ensure, bed.restore_work(&"0123456789abcdef".repeat(2))] {
            let mut job = bed.job(work);
            job.repository.password = Secret::new("another");
            let error = bed.run_job(&job).unwrap_err();
            assert_eq!(error.reason(), "WrongRepositoryPassword", "{error}");
            assert!(error.to_string().starts_with("failed to open repository /"), "{error}");
        }
    }
}

#[test]
fn a_missing_repository_is_reported() {
    for mover_kind in ALL {
        let bed = require!(Testbed::without_repository(mover_kind, StoreKind::Directory));
        fill(&bed.source());
        assert_eq!(bed.run(bed.backup_work()).unwrap_err().reason(), "RepositoryNotFound");
        let mut unmounted = bed.job(bed.backup_work());
        unmounted.repository.location.bucket = bed.path("unmounted").display().to_string();
        assert_eq!(bed.run_job(&unmounted).unwrap_err().reason(), "InvalidStorageLocation");
    }
}

#[test]
fn a_missing_snapshot_is_reported() {
    for mover_kind in ALL {
        let bed = require!(Testbed::new(mover_kind, StoreKind::Directory));
        let error = bed.try_restore(&"0123456789abcdef".repeat(2)).unwrap_err();
        assert_eq!(error.reason(), "SnapshotNotFound", "{error}");
    }
}

#[test]
fn an_unreachable_store_is_reported_within_half_a_minute() {
    for mover_kind in ALL {
        let mut bed = require!(Testbed::new(mover_kind, StoreKind::S3));
        fill(&bed.source());
        drop(bed.server.take());
        let started = Stopwatch::start();
        let error = bed.run(bed.backup_work()).unwrap_err();
        assert_eq!((error.reason(), error.is_retryable()), ("RepositoryUnreachable", true), "{error}");
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    }
}

#[test]
fn rejected_keys_are_reported_without_the_secret() {
    for mover_kind in ALL {
        let mut bed = require!(Testbed::new(mover_kind, StoreKind::S3));
        fill(&bed.source());
        let keys = format!("[default]\naws_access_key_id={ACCESS_KEY}\naws_secret_access_key=hushhushhush\n");
        bed.location.credentials = Some(Secret::new(keys));
        let error = bed.run(bed.backup_work()).unwrap_err();
        assert_eq!(error.reason(), "RepositoryCredentialsRejected", "{error}");
        assert!(!error.to_string().contains("hush"), "{error}");
    }
}

#[test]
fn a_locked_repository_is_reported_with_its_holder() {
    for mover_kind in [TestMover::BuiltIn, TestMover::OldRestic, TestMover::Restic] {
        let bed = require!(Testbed::new(mover_kind, StoreKind::Directory));
        fill(&bed.source());
        let store = Store::directory(&bed.stored, &bed.location.prefix).unwrap();
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
fn a_restore_works_with_read_only_credentials() {
    let mut bed = require!(Testbed::new(TestMover::Restic, StoreKind::S3));
    fill(&bed.source());
    let snapshot = bed.back_up().snapshot.unwrap();
    let endpoint = bed.server.as_ref().unwrap().endpoint().to_owned();
    let proxy = bed.runtime.block_on(Proxy::for_server("127.0.0.1:0", &endpoint)).unwrap();
    bed.location.config.insert("s3Url".into(), proxy.url());
    let _read_only = proxy.inject(Requests::with_method(Method::PUT), Fault::Status(403));
    let error = bed.try_back_up().unwrap_err();
    assert_eq!((error.reason(), error.is_retryable()), ("RepositoryCredentialsRejected", false), "{error}");
    let done = bed.restore(&snapshot);
    assert!(done.warnings.iter().any(|text| text.contains("does not accept lock files")), "{:?}", done.warnings);
    assert!(bed.target().join("a/large").exists());
}

/// Mounts a small file system over a directory, for the mover only.
fn mount_small_disk(bed: &mut Testbed, directory: &Path, size: &str) {
    let small = bed.path("small");
    std::fs::create_dir_all(&small).unwrap();
    let program = std::mem::replace(&mut bed.command.program, "unshare".into());
    let mount = format!(
        "mount -t tmpfs -o size={size} small \"$1\" && cp -a \"$2/.\" \"$1\" && mount --bind \"$1\" \"$2\" && exec \"$3\""
    );
    bed.command.arguments = ["--mount", "sh", "-c", &mount, "sh"].map(Into::into).into();
    bed.command.arguments.extend([small.into(), directory.into(), program.into()]);
}

#[test]
fn a_full_repository_is_reported() {
    for mover_kind in ALL {
        let mut bed = require!(Testbed::new(mover_kind, StoreKind::Directory));
        std::fs::write(bed.source().join("much"), random_bytes(5, 64 << 20)).unwrap();
        let stored = bed.stored.clone();
        mount_small_disk(&mut bed, &stored, "24m");
        let error = bed.try_back_up().unwrap_err();
        assert_eq!(error.reason(), "RepositoryFull", "{mover_kind:?} {error}");
    }
}

#[test]
fn a_full_volume_is_reported() {
    for mover_kind in ALL {
        let mut bed = require!(Testbed::new(mover_kind, StoreKind::Directory));
        std::fs::write(bed.source().join("much"), random_bytes(5, 24 << 20)).unwrap();
        std::fs::write(bed.source().join("more"), random_bytes(6, 4 << 20)).unwrap();
        let snapshot = bed.back_up().snapshot.unwrap();
        let target = bed.target();
        mount_small_disk(&mut bed, &target, "8m");
        let error = bed.try_restore(&snapshot).unwrap_err();
        assert_eq!(error.reason(), "VolumeFull", "{mover_kind:?} {error}");
        assert!(error.to_string().contains(&target.display().to_string()), "{error}");
    }
}

#[test]
fn a_missing_volume_is_reported() {
    for mover_kind in ALL {
        let bed = require!(Testbed::new(mover_kind, StoreKind::Directory));
        std::fs::remove_dir(bed.source()).unwrap();
        assert_eq!(bed.try_back_up().unwrap_err().reason(), "VolumeUnusable");
    }
}

#[test]
fn a_restore_of_unknown_size_continues_without_a_percentage() {
    let mut bed = require!(Testbed::new(TestMover::OldRestic, StoreKind::Directory));
    fill(&bed.source());
    let snapshot = bed.back_up().snapshot.unwrap();
    let real = bed.program.clone().unwrap();
    let counted = bed.path("counted");
    // It ends when the test has checked the progress.
    let wait = format!("until [ -e {} ]; do sleep 0.02; done", counted.display());
    let text = format!(
        "for word; do case $word in stats) exit 1;; restore) {} \"$@\"; code=$?; {wait}; exit $code;; esac; done; exec {} \"$@\"",
        real.display(),
        real.display()
    );
    bed.program = Some(script(&bed, &text));
    let (mut samples, mut shown) = (0, Vec::new());
    let outcome = bed.watch(&bed.job(bed.restore_work(&snapshot)), |sample| {
        let Some(node) = sample.node.as_ref().filter(|node| node.state.is_open()) else { return };
        if samples <= 20 {
            assert_eq!(
                (sample.shown, node.percent),
                (None, None),
                "invented progress with {} bytes done",
                sample.bytes()
            );
            samples += usize::from(sample.bytes() > 0);
        }
        if samples > 20 {
            std::fs::write(&counted, "").unwrap();
        }
        shown.extend(sample.shown);
    });
    assert!(matches!(outcome, Ok(Outcome::Restore(_))), "{outcome:?}");
    assert!(samples > 20, "{samples} samples with bytes");
    // Between the program's end and the result, all but one byte may be done.
    assert!(shown.iter().all(|shown| shown.bytes_done + 1 == shown.total_bytes), "invented progress: {shown:?}");
    assert!(bed.target().join("a/large").exists());
}

#[test]
fn an_invalid_job_is_reported() {
    let bed = require!(Testbed::without_repository(TestMover::BuiltIn, StoreKind::Directory));
    let error: MoverError = bed.try_restore("../../etc/passwd").unwrap_err();
    assert_eq!(error.reason(), "InvalidMoverJob");
}

#[test]
fn files_that_an_old_restic_removes_are_problems() {
    let bed = require!(Testbed::new(TestMover::OldRestic, StoreKind::Directory));
    fill(&bed.source());
    let snapshot = bed.back_up().snapshot.unwrap();
    std::fs::create_dir(bed.target().join("a")).unwrap();
    std::fs::write(bed.target().join("a/large"), "existing").unwrap();
    let restored = bed.restore(&snapshot);
    let named: Vec<_> = restored.problems.named.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(named, ["a/large"]);
    assert!(!bed.target().join("a/large").exists(), "restic removed it");
}

#[test]
fn owners_that_kopia_does_not_restore_are_a_warning() {
    let mut bed = require!(Testbed::new(TestMover::Kopia, StoreKind::Directory));
    fill(&bed.source());
    let snapshot = bed.back_up().snapshot.unwrap();
    assert_eq!(bed.restore(&snapshot).warnings, Vec::<String>::new());
    bed.fresh_target();
    // Root without the capability to change owners, as on an NFS export with root_squash.
    let program = std::mem::replace(&mut bed.command.program, "setpriv".into());
    bed.command.arguments = vec!["--bounding-set=-chown".into(), "--inh-caps=-chown".into(), program.into()];
    let warnings = bed.restore(&snapshot).warnings;
    let target = bed.target().display().to_string();
    assert!(
        warnings.iter().any(|text| text.contains(&target) && text.contains("owners are not restored")),
        "{warnings:?}"
    );
    let owner = bed.target().join("a/b/small-2").metadata().unwrap().uid();
    assert_eq!(owner, 0, "the owner is not restored");
}

#[test]
fn restored_data_is_flushed_before_the_result() {
    let strace = || Unavailable::new("strace", "install it");
    require!(std::process::Command::new("strace").arg("-V").output().map_err(|_| strace()));
    for mover_kind in ALL {
        let mut bed = require!(Testbed::new(mover_kind, StoreKind::Directory));
        fill(&bed.source());
        let snapshot = bed.back_up().snapshot.unwrap();
        let (program, trace) = (bed.command.program.clone(), bed.path("trace"));
        let traced = |inject: &str| {
            let mut arguments: Vec<OsString> = ["-f", "-qq", "-e", "trace=syncfs"].map(Into::into).into();
            arguments.extend(["-e".into(), inject.into(), "-o".into(), trace.clone().into(), program.clone().into()]);
            MoverCommand { program: "strace".into(), arguments }
        };
        bed.command = traced("inject=syncfs:error=EIO");
        let error = bed.try_restore(&snapshot).unwrap_err();
        assert_eq!(error.reason(), "VolumeUnusable", "{mover_kind:?}: {error}");
        assert!(error.to_string().contains("sync: "), "{mover_kind:?}: {error}");
        bed.command = traced("inject=syncfs:error=ENOSPC");
        assert_eq!(bed.try_restore(&snapshot).unwrap_err().reason(), "VolumeFull", "{mover_kind:?}");
    }
}
