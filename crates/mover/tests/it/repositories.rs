//! The leader's operations: initializing repositories and forgetting snapshots.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

use http::Method;
use plimsoll_mover::{DEFAULT_PASSWORD, EnsureOutcome, MoverError, MoverKind, Outcome, Secret, Work, mover};
use plimsoll_repository::Repository;
use plimsoll_testkit::proxy::{Fault, Requests};
use plimsoll_testkit::{Proxy, require};

use crate::failures::script;
use crate::testbed::{PASSWORD, StoreKind, TestMover, Testbed};
use crate::volume::{assert_same, fill, fingerprint};

const ALL: [TestMover; 4] = [TestMover::BuiltIn, TestMover::OldRestic, TestMover::Restic, TestMover::Kopia];

fn ensure(bed: &Testbed) -> Result<EnsureOutcome, MoverError> {
    match bed.run(Work::Ensure)? {
        Outcome::Ensure(ensured) => Ok(ensured),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_repository_is_initialized_once_and_then_opened() {
    for mover_kind in ALL {
        for at in [StoreKind::Directory, StoreKind::S3] {
            let bed = require!(Testbed::without_repository(mover_kind, at));
            let first = ensure(&bed).unwrap();
            let second = ensure(&bed).unwrap();
            assert_eq!((first.created, second.created), (true, false));
            assert_eq!(first.id, second.id);
            assert_eq!(second.warnings, Vec::<String>::new());
        }
    }
}

#[test]
fn veleros_default_password_is_a_warning() {
    for mover_kind in [TestMover::BuiltIn, TestMover::Kopia] {
        let bed = require!(Testbed::without_repository(mover_kind, StoreKind::Directory));
        let mut job = bed.job(Work::Ensure);
        job.repository.password = Secret::new(DEFAULT_PASSWORD);
        let Outcome::Ensure(ensured) = bed.run_job(&job).unwrap() else { panic!("ensured") };
        assert!(ensured.warnings.iter().any(|warning| warning.contains("Velero's default")), "{ensured:?}");
    }
}

#[test]
fn white_space_around_a_password_is_ignored() {
    for mover_kind in ALL {
        let bed = require!(Testbed::without_repository(mover_kind, StoreKind::Directory));
        let ensured = |password: &str| {
            let mut job = bed.job(Work::Ensure);
            job.repository.password = Secret::new(password);
            match bed.run_job(&job).unwrap() {
                Outcome::Ensure(ensured) => ensured.created,
                other => panic!("{other:?}"),
            }
        };
        assert!(ensured(&format!(" {PASSWORD}\n")));
        assert!(!ensured(PASSWORD) && !ensured(&format!("{PASSWORD}\r\n")), "{mover_kind:?}: opens with and without");
    }
}

#[test]
fn a_repository_that_was_initialized_again_can_be_opened_with_an_old_cache() {
    for mover_kind in [TestMover::BuiltIn, TestMover::Kopia] {
        let bed = require!(Testbed::new(mover_kind, StoreKind::Directory));
        fill(&bed.source());
        let back_up = || {
            let mut job = bed.job(bed.backup_work());
            job.cache = Some(bed.path("cache"));
            match bed.run_job(&job).unwrap() {
                Outcome::Backup(done) => done.snapshot.unwrap(),
                other => panic!("{other:?}"),
            }
        };
        back_up();
        std::fs::remove_dir_all(bed.stored.join(&bed.location.prefix)).unwrap();
        assert!(ensure(&bed).unwrap().created);
        let snapshot = back_up();
        // Without a cache.
        bed.restore(&snapshot);
        let fidelity = mover(mover_kind.kind()).fidelity();
        assert_same(&fingerprint(&bed.source(), fidelity), &bed.target(), fidelity);
    }
}

#[test]
fn concurrent_inits_of_a_restic_repository_fail_before_the_first_blob() {
    for mover_kind in [TestMover::OldRestic, TestMover::Restic] {
        let mut bed = require!(Testbed::without_repository(mover_kind, StoreKind::Directory));
        let real = bed.program.clone().unwrap();
        // Another cluster's key appears during the initialization.
        let keys = bed.stored.join(&bed.location.prefix).join("keys");
        let other = format!("{}/{}", keys.display(), "ab".repeat(32));
        let text = format!(
            "{} \"$@\"; code=$?; for word; do [ \"$word\" = init ] && echo '{{}}' > {other}; done; exit $code",
            real.display()
        );
        bed.program = Some(script(&bed, &text));
        let error = ensure(&bed).unwrap_err();
        assert_eq!(error.reason(), "RepositoryInitConflict");
        assert!(error.to_string().contains("2 keys"), "{error}");
    }
}

/// Adds another key, as a concurrent initialization would.
fn add_second_key(bed: &Testbed) {
    let keys = bed.stored.join(&bed.location.prefix).join("keys");
    let first = std::fs::read_dir(&keys).unwrap().next().unwrap().unwrap().path();
    let (second, content) = (keys.join("second"), std::fs::read_to_string(first).unwrap() + "\n");
    std::fs::write(&second, content).unwrap();
    let sum = Command::new("sha256sum").arg(&second).output().unwrap();
    std::fs::rename(&second, keys.join(std::str::from_utf8(&sum.stdout[..64]).unwrap())).unwrap();
}

#[test]
fn a_concurrent_init_during_the_wait_is_detected() {
    for mover_kind in [TestMover::BuiltIn, TestMover::OldRestic, TestMover::Restic] {
        let bed = require!(Testbed::without_repository(mover_kind, StoreKind::Directory));
        let config = bed.stored.join(&bed.location.prefix).join("config");
        let mut is_added = false;
        let result = bed.watch(&bed.job(Work::Ensure), |sample| {
            let item = sample.node.as_ref().and_then(|node| node.item.as_deref());
            if !is_added && item.is_some_and(|item| item.starts_with("waiting for concurrent")) {
                assert!(config.exists(), "{mover_kind:?}");
                add_second_key(&bed);
                is_added = true;
            }
        });
        let error = result.unwrap_err();
        assert_eq!(error.reason(), "RepositoryInitConflict", "{mover_kind:?}: {error}");
    }
}

#[test]
fn a_concurrent_init_after_the_wait_fails_the_first_backup() {
    for mover_kind in [TestMover::BuiltIn, TestMover::OldRestic, TestMover::Restic] {
        let bed = require!(Testbed::new(mover_kind, StoreKind::Directory));
        fill(&bed.source());
        add_second_key(&bed);
        let error = bed.try_back_up().unwrap_err();
        assert_eq!(error.reason(), "RepositoryInitConflict", "{mover_kind:?}: {error}");
        let data = bed.stored.join(&bed.location.prefix).join("data");
        let packs = data.read_dir().into_iter().flatten().flatten();
        let packs = packs.flat_map(|folder| folder.path().read_dir().into_iter().flatten());
        assert_eq!(packs.count(), 0, "{mover_kind:?}");
    }
}

#[test]
fn the_slower_of_two_inits_opens_the_repository_of_the_other() {
    let mut bed = require!(Testbed::without_repository(TestMover::BuiltIn, StoreKind::S3));
    let direct = bed.location.clone();
    let endpoint = bed.server.as_ref().unwrap().endpoint().to_owned();
    let proxy = bed.runtime.block_on(Proxy::for_server("127.0.0.1:0", &endpoint)).unwrap();
    bed.location.config.insert("s3Url".into(), proxy.url());
    let keys = Requests::with_method(Method::PUT).containing("/keys/");
    let _slow = proxy.inject(keys.clone(), Fault::Latency(Duration::from_secs(5)));
    let mut other = None;
    let result = bed.watch(&bed.job(Work::Ensure), |_| {
        // It found no repository and is about to write its key.
        if other.is_none() && proxy.count_requests(&keys) > 0 {
            other = Some(std::thread::spawn({
                let (location, runtime) = (direct.location(), tokio::runtime::Runtime::new().unwrap());
                move || {
                    let store = {
                        let _inside = runtime.enter();
                        plimsoll_store::Store::open(&location).unwrap()
                    };
                    let repository = Repository::init(store, runtime.handle().clone(), PASSWORD.as_bytes()).unwrap();
                    repository.id().to_string()
                }
            }));
        }
    });
    let other_id = other.unwrap().join().unwrap();
    let Outcome::Ensure(ensured) = result.unwrap() else { panic!("ensured") };
    assert_eq!((ensured.created, ensured.id), (false, other_id));
}

#[test]
fn a_damaged_snapshot_does_not_affect_the_others() {
    let bed = require!(Testbed::new(TestMover::BuiltIn, StoreKind::Directory));
    fill(&bed.source());
    let first = bed.back_up().snapshot.unwrap();
    let damaged = "ab".repeat(32);
    let snapshots = bed.stored.join(&bed.location.prefix).join("snapshots");
    std::fs::write(snapshots.join(&damaged), "invalid, and long enough to be an encrypted file").unwrap();
    let second = bed.back_up();
    assert_eq!(second.parent.as_ref(), Some(&first), "the parent is found");
    assert!(second.warnings.iter().any(|warning| warning.contains("1 snapshots cannot be read")), "{second:?}");
    assert_eq!(bed.snapshots().len(), 2);
    bed.run(Work::Forget { snapshots: vec![damaged.clone()] }).unwrap();
    assert!(!snapshots.join(&damaged).exists(), "it is forgotten by its ID");
    assert_eq!(bed.back_up().warnings, Vec::<String>::new());
}

#[test]
fn a_second_key_is_an_error_only_in_an_empty_repository() {
    for mover_kind in [TestMover::BuiltIn, TestMover::OldRestic, TestMover::Restic] {
        let bed = require!(Testbed::new(mover_kind, StoreKind::Directory));
        add_second_key(&bed);
        let error = ensure(&bed).unwrap_err();
        assert_eq!(error.reason(), "RepositoryInitConflict", "{mover_kind:?}: {error}");
        // In a repository in use, a second key is a second password.
        let snapshots = bed.stored.join(&bed.location.prefix).join("snapshots");
        std::fs::create_dir_all(&snapshots).unwrap();
        std::fs::write(snapshots.join("cd".repeat(32)), "").unwrap();
        assert!(!ensure(&bed).unwrap().created, "{mover_kind:?}");
    }
}

#[test]
fn concurrent_inits_of_a_kopia_repository_fail_before_the_first_blob() {
    let mut bed = require!(Testbed::without_repository(TestMover::Kopia, StoreKind::Directory));
    let other = require!(Testbed::new(TestMover::Kopia, StoreKind::Directory));
    let real = bed.program.clone().unwrap();
    let format = |bed: &Testbed| bed.stored.join(&bed.location.prefix).join("kopia.repository.f").display().to_string();
    let text = format!(
        "{} \"$@\"; code=$?; for word; do [ \"$word\" = create ] && (sleep 0.2; cp {} {}) >/dev/null 2>&1 & done; exit $code",
        real.display(),
        format(&other),
        format(&bed),
    );
    bed.program = Some(script(&bed, &text));
    assert_eq!(ensure(&bed).unwrap_err().reason(), "RepositoryInitConflict");
}

/// Velero's marker.
fn marker(bed: &Testbed) -> PathBuf {
    bed.stored.join(&bed.location.prefix).join("udmrepo.Repository.f")
}

#[test]
fn a_kopia_repository_that_was_replaced_after_its_setup_rejects_backups() {
    let bed = require!(Testbed::new(TestMover::Kopia, StoreKind::Directory));
    let other = require!(Testbed::new(TestMover::Kopia, StoreKind::Directory));
    fill(&bed.source());
    let format = |bed: &Testbed| bed.stored.join(&bed.location.prefix).join("kopia.repository.f");
    std::fs::copy(format(&other), format(&bed)).unwrap();
    assert_eq!(bed.try_back_up().unwrap_err().reason(), "RepositoryInitConflict");
    assert_eq!(ensure(&bed).unwrap_err().reason(), "RepositoryInitConflict");
}

#[test]
fn the_slower_of_two_inits_opens_the_kopia_repository_of_the_other() {
    let mut bed = require!(Testbed::without_repository(TestMover::Kopia, StoreKind::Directory));
    let (real, token) = (bed.program.clone().unwrap(), bed.path("token"));
    // Another process initializes it between the check and our attempt.
    let text = format!(
        "case \" $* \" in *' create '*) cat > {1}; {0} \"$@\" < {1}; exec {0} \"$@\" < {1};; esac; exec {0} \"$@\"",
        real.display(),
        token.display()
    );
    bed.program = Some(script(&bed, &text));
    assert!(!ensure(&bed).unwrap().created);
    assert!(marker(&bed).exists(), "the first to open it completes the setup");
    bed.program = Some(real);
    fill(&bed.source());
    bed.back_up();
}

#[test]
fn an_interrupted_setup_of_a_kopia_repository_is_completed_at_the_next_open() {
    let mut bed = require!(Testbed::without_repository(TestMover::Kopia, StoreKind::Directory));
    let real = bed.program.clone().unwrap();
    let text = format!("case \" $* \" in *' policy '*) kill -9 $PPID;; esac; exec {} \"$@\"", real.display());
    bed.program = Some(script(&bed, &text));
    assert_eq!(ensure(&bed).unwrap_err().reason(), "MoverDied");
    assert!(!marker(&bed).exists());
    bed.program = Some(real.clone());
    assert!(!ensure(&bed).unwrap().created);
    assert!(marker(&bed).exists());
    let mut kopia = Command::new(real);
    bed.connect_kopia(&mut kopia);
    let output = kopia.args(["policy", "show", "--global", "--json"]).output().unwrap();
    let policy: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(policy["retention"]["keepLatest"], i32::MAX, "{policy:#}");
}

#[test]
fn an_interrupted_init_is_retryable_and_removed_after_ten_minutes() {
    for mover_kind in [TestMover::BuiltIn, TestMover::OldRestic, TestMover::Restic] {
        let bed = require!(Testbed::new(mover_kind, StoreKind::Directory));
        let repository = bed.stored.join(&bed.location.prefix);
        std::fs::remove_file(repository.join("config")).unwrap();
        let error = ensure(&bed).unwrap_err();
        assert_eq!((error.reason(), error.is_retryable()), ("RepositoryInitIncomplete", true));
        for key in std::fs::read_dir(repository.join("keys")).unwrap() {
            let file = std::fs::File::options().write(true).open(key.unwrap().path()).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_mins(11)).unwrap();
        }
        assert!(ensure(&bed).unwrap().created);
    }
}

#[test]
fn only_the_requested_snapshots_are_forgotten() {
    for mover_kind in ALL {
        let bed = require!(Testbed::new(mover_kind, StoreKind::Directory));
        fill(&bed.source());
        let mut snapshots: Vec<_> = (0..3).map(|_| bed.back_up().snapshot.unwrap()).collect();
        let forgotten = vec![snapshots.remove(1)];
        for _ in 0..2 {
            let outcome = bed.run(Work::Forget { snapshots: forgotten.clone() });
            assert_eq!(outcome, Ok(Outcome::Forgotten(1)), "also when it does not exist");
            let remaining = bed.snapshots();
            assert_eq!(remaining.len(), 2);
            assert!(
                snapshots.iter().all(|id| remaining.iter().any(|one| one.id.starts_with(id))),
                "{snapshots:?} {remaining:?}"
            );
        }
        assert_eq!(bed.run(Work::Forget { snapshots: Vec::new() }), Ok(Outcome::Forgotten(0)));
        assert_eq!(bed.snapshots().len(), 2);
        let error = bed.run(Work::Forget { snapshots: vec!["latest".into()] }).unwrap_err();
        assert_eq!(error.reason(), "InvalidMoverJob");
        bed.restore(&snapshots[1]);
    }
}

#[test]
fn kopia_snapshots_have_the_metadata_of_veleros() {
    let bed = require!(Testbed::new(TestMover::Kopia, StoreKind::S3));
    fill(&bed.source());
    let snapshot = bed.back_up().snapshot.unwrap();
    let mut kopia = Command::new(bed.program.as_ref().unwrap());
    bed.connect_kopia(&mut kopia);
    let output = kopia.args(["snapshot", "list", "--all", "--json"]).output().unwrap();
    let listed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let one = &listed[0];
    assert_eq!(one["id"], snapshot.as_str());
    assert_eq!(one["source"]["userName"], "default");
    assert_eq!(one["source"]["host"], "default");
    assert_eq!(one["source"]["path"], "snapshot-pod-volume/kopia/shop/db-0/data");
    assert_eq!(one["pins"], serde_json::json!(["velero-pin"]));
    assert_eq!(one["tags"]["tag:snapshot-requester"], "snapshot-pod-volume");
    assert_eq!(one["tags"]["tag:snapshot-uploader"], "kopia");
    assert_eq!(one["tags"]["tag:pvc-uid"], "1234");
    let stored = bed.stored.join(&bed.location.prefix);
    let field = |file: &str| -> serde_json::Value {
        let value: serde_json::Value = serde_json::from_slice(&std::fs::read(stored.join(file)).unwrap()).unwrap();
        value["uniqueID"].clone()
    };
    assert_eq!(field("udmrepo.Repository"), field("kopia.repository"), "Velero compares these");
}

/// Runs the test's kopia on a repository.
fn kopia(bed: &Testbed, arguments: &[&str]) -> serde_json::Value {
    let mut kopia = Command::new(TestMover::Kopia.program().unwrap().unwrap());
    bed.connect_kopia(&mut kopia);
    let output = kopia.args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// Resets the global policy to kopia's defaults, as in a repository of Velero.
fn reset_policy(bed: &Testbed) {
    kopia(bed, &["policy", "set", "--global", "--ignore-cache-dirs=inherit", "--clear-dot-ignore"]);
}

#[test]
fn in_a_repository_of_velero_no_files_are_ignored_and_other_policies_stay() {
    let bed = require!(Testbed::new(TestMover::Kopia, StoreKind::Directory));
    reset_policy(&bed);
    kopia(&bed, &["policy", "set", "--global", "--add-dot-ignore=.kopiaignore"]);
    let other = "default@default:snapshot-pod-volume/kopia/shop/web-0/files";
    kopia(&bed, &["policy", "set", "--keep-latest=7", "--add-dot-ignore=.kopiaignore", other]);
    let others = || {
        let all = kopia(&bed, &["policy", "list", "--json"]);
        let own = |policy: &&serde_json::Value| policy["target"]["path"] == "snapshot-pod-volume/kopia/shop/db-0/data";
        all.as_array().unwrap().iter().filter(|policy| !own(policy)).cloned().collect::<Vec<_>>()
    };
    let (before, marker_before) = (others(), std::fs::read(marker(&bed)).unwrap());
    assert_eq!(before.len(), 2, "{before:?}");
    fill(&bed.source());
    // Velero writes the whole policy of a source whenever it backs it up.
    let source = "default@default:snapshot-pod-volume/kopia/shop/db-0/data";
    for again in ["first", "second"] {
        let outcome = bed.back_up();
        bed.fresh_target();
        bed.restore(outcome.snapshot.as_deref().unwrap());
        for name in [".kopiaignore", "cache/CACHEDIR.TAG", "cache/kept", "a/large"] {
            assert!(bed.target().join(name).exists(), "{name} of the {again}");
        }
        kopia(&bed, &["policy", "set", "--ignore-cache-dirs=true", "--clear-dot-ignore", source]);
    }
    assert_eq!((others(), std::fs::read(marker(&bed)).unwrap()), (before, marker_before));
}

#[test]
fn ignored_files_are_problems_if_the_policy_cannot_be_set() {
    let mut bed = require!(Testbed::new(TestMover::Kopia, StoreKind::Directory));
    reset_policy(&bed);
    fill(&bed.source());
    // Enough of the volume for kopia to find the cache in it.
    std::fs::write(bed.source().join(".kopiaignore"), "/a\n").unwrap();
    let real = bed.program.clone().unwrap();
    let text = format!("case \" $* \" in *' policy set '*) exit 1;; esac; exec {} \"$@\"", real.display());
    bed.program = Some(script(&bed, &text));
    let outcome = bed.back_up();
    let cause = |path: &str| outcome.problems.named.iter().find(|one| one.path == path).map(|one| one.cause.as_str());
    assert_eq!(cause("cache"), Some("kopia ignores the content of cache directories"));
    assert_eq!(cause(".kopiaignore"), Some("kopia applies its ignore rules"));
    bed.restore(outcome.snapshot.as_deref().unwrap());
    assert!(!bed.target().join("cache/kept").exists() && !bed.target().join("a").exists(), "they are ignored");
    // Once it can be set, nothing is ignored.
    bed.program = Some(real);
    let outcome = bed.back_up();
    assert!(!outcome.problems.named.iter().any(|one| one.cause.contains("kopia")), "{:?}", outcome.problems);
    bed.restore(outcome.snapshot.as_deref().unwrap());
    assert!(bed.target().join("cache/kept").exists() && bed.target().join("a/large").exists());
}

#[test]
fn custom_ignore_rules_of_a_kopia_repository_are_a_warning() {
    let bed = require!(Testbed::new(TestMover::Kopia, StoreKind::Directory));
    kopia(&bed, &["policy", "set", "--global", "--add-ignore=*.tmp"]);
    fill(&bed.source());
    let warnings = bed.back_up().warnings;
    assert!(warnings.contains(&"the repository's policy ignores files: ignore rules".to_owned()), "{warnings:?}");
}

#[test]
fn the_built_in_mover_and_restic_read_each_others_snapshots() {
    let mut bed = require!(Testbed::new(TestMover::Restic, StoreKind::Directory));
    fill(&bed.source());
    let by_restic = bed.back_up().snapshot.unwrap();
    bed.mover_kind = TestMover::BuiltIn;
    assert_eq!(bed.mover_kind.kind(), MoverKind::BuiltIn);
    let by_built_in = bed.back_up();
    assert_eq!(by_built_in.parent.as_deref(), Some(by_restic.as_str()), "the parent is found by its volume");
    let fidelity = mover(MoverKind::BuiltIn).fidelity();
    let expected = fingerprint(&bed.source(), fidelity);
    bed.restore(&by_restic);
    assert_same(&expected, &bed.target(), fidelity);
    bed.mover_kind = TestMover::Restic;
    bed.fresh_target();
    bed.restore(by_built_in.snapshot.as_deref().unwrap());
    assert_same(&expected, &bed.target(), fidelity);
}
