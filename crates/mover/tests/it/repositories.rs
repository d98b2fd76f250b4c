//! The leader's side: making repositories, and forgetting no more than what was named.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

use http::Method;
use plimsoll_mover::{DEFAULT_PASSWORD, Ensured, Kind, MoverError, Outcome, Secret, Work, mover};
use plimsoll_repository::Repository;
use plimsoll_testkit::proxy::{Fault, Requests};
use plimsoll_testkit::{Proxy, require};

use crate::bed::{Bed, PASSWORD, Where, Which};
use crate::failures::script;
use crate::volume::{assert_same, fill, fingerprint};

const ALL: [Which; 4] = [Which::BuiltIn, Which::OldRestic, Which::Restic, Which::Kopia];

fn ensure(bed: &Bed) -> Result<Ensured, MoverError> {
    match bed.run(Work::Ensure)? {
        Outcome::Ensured(ensured) => Ok(ensured),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_repository_is_made_once_and_then_found() {
    for which in ALL {
        for at in [Where::Directory, Where::S3] {
            let bed = require!(Bed::bare(which, at));
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
    for which in [Which::BuiltIn, Which::Kopia] {
        let bed = require!(Bed::bare(which, Where::Directory));
        let mut job = bed.job(Work::Ensure);
        job.repository.password = Secret::new(DEFAULT_PASSWORD);
        let Outcome::Ensured(ensured) = bed.run_job(&job).unwrap() else { panic!("ensured") };
        assert!(ensured.warnings.iter().any(|warning| warning.contains("Velero's default")), "{ensured:?}");
    }
}

#[test]
fn white_space_around_a_password_is_none_of_it() {
    for which in ALL {
        let bed = require!(Bed::bare(which, Where::Directory));
        let ensured = |password: &str| {
            let mut job = bed.job(Work::Ensure);
            job.repository.password = Secret::new(password);
            match bed.run_job(&job).unwrap() {
                Outcome::Ensured(ensured) => ensured.created,
                other => panic!("{other:?}"),
            }
        };
        assert!(ensured(&format!(" {PASSWORD}\n")));
        assert!(!ensured(PASSWORD) && !ensured(&format!("{PASSWORD}\r\n")), "{which:?}: it opens with and without");
    }
}

#[test]
fn a_repository_that_was_made_anew_can_be_opened_whatever_a_node_has_kept_of_the_old_one() {
    for which in [Which::BuiltIn, Which::Kopia] {
        let bed = require!(Bed::new(which, Where::Directory));
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
        std::fs::remove_dir_all(bed.stored.join(&bed.place.prefix)).unwrap();
        assert!(ensure(&bed).unwrap().created);
        let snapshot = back_up();
        // By somebody who has kept nothing.
        bed.restore(&snapshot);
        let kept = mover(which.kind()).fidelity();
        assert_same(&fingerprint(&bed.source(), kept), &bed.target(), kept);
    }
}

#[test]
fn two_restic_repositories_made_at_the_same_time_stop_before_the_first_blob() {
    for which in [Which::OldRestic, Which::Restic] {
        let mut bed = require!(Bed::bare(which, Where::Directory));
        let real = bed.program.clone().unwrap();
        // Another cluster's key shows up while ours is being made.
        let keys = bed.stored.join(&bed.place.prefix).join("keys");
        let other = format!("{}/{}", keys.display(), "ab".repeat(32));
        let text = format!(
            "{} \"$@\"; code=$?; for word; do [ \"$word\" = init ] && echo '{{}}' > {other}; done; exit $code",
            real.display()
        );
        bed.program = Some(script(&bed, &text));
        let error = ensure(&bed).unwrap_err();
        assert_eq!(error.reason(), "RepositoryInitialisedTwice");
        assert!(error.to_string().contains("2 keys"), "{error}");
    }
}

/// Another key beside the first, as a rival would have it.
fn second_key(bed: &Bed) {
    let keys = bed.stored.join(&bed.place.prefix).join("keys");
    let first = std::fs::read_dir(&keys).unwrap().next().unwrap().unwrap().path();
    let (second, content) = (keys.join("second"), std::fs::read_to_string(first).unwrap() + "\n");
    std::fs::write(&second, content).unwrap();
    let sum = Command::new("sha256sum").arg(&second).output().unwrap();
    std::fs::rename(&second, keys.join(std::str::from_utf8(&sum.stdout[..64]).unwrap())).unwrap();
}

#[test]
fn a_rival_that_is_slower_than_the_first_look_stops_a_new_repository_too() {
    for which in [Which::BuiltIn, Which::OldRestic, Which::Restic] {
        let bed = require!(Bed::bare(which, Where::Directory));
        let config = bed.stored.join(&bed.place.prefix).join("config");
        let mut made = false;
        let result = bed.watch(&bed.job(Work::Ensure), |sample| {
            let waits = sample.node.as_ref().and_then(|node| node.item.as_deref());
            if !made && waits.is_some_and(|words| words.starts_with("waiting for others")) {
                assert!(config.exists(), "{which:?}");
                second_key(&bed);
                made = true;
            }
        });
        let error = result.unwrap_err();
        assert_eq!(error.reason(), "RepositoryInitialisedTwice", "{which:?}: {error}");
    }
}

#[test]
fn a_rival_that_was_slower_still_stops_the_first_backup_before_its_first_blob() {
    for which in [Which::BuiltIn, Which::OldRestic, Which::Restic] {
        let bed = require!(Bed::new(which, Where::Directory));
        fill(&bed.source());
        second_key(&bed);
        let error = bed.try_back_up().unwrap_err();
        assert_eq!(error.reason(), "RepositoryInitialisedTwice", "{which:?}: {error}");
        let data = bed.stored.join(&bed.place.prefix).join("data");
        let packs = data.read_dir().into_iter().flatten().flatten();
        let packs = packs.flat_map(|folder| folder.path().read_dir().into_iter().flatten());
        assert_eq!(packs.count(), 0, "{which:?}");
    }
}

#[test]
fn one_who_loses_the_race_opens_what_the_other_has_made() {
    let mut bed = require!(Bed::bare(Which::BuiltIn, Where::S3));
    let direct = bed.place.clone();
    let endpoint = bed.server.as_ref().unwrap().endpoint().to_owned();
    let proxy = bed.runtime.block_on(Proxy::before("127.0.0.1:0", &endpoint)).unwrap();
    bed.place.config.insert("s3Url".into(), proxy.url());
    let keys = Requests::with_method(Method::PUT).containing("/keys/");
    let _slow = proxy.inject(keys.clone(), Fault::Latency(Duration::from_secs(5)));
    let mut other = None;
    let result = bed.watch(&bed.job(Work::Ensure), |_| {
        // It has seen that there is none, and is about to write its key.
        if other.is_none() && proxy.seen(&keys) > 0 {
            other = Some(std::thread::spawn({
                let (location, runtime) = (direct.location(), tokio::runtime::Runtime::new().unwrap());
                move || {
                    let store = {
                        let _inside = runtime.enter();
                        plimsoll_store::Store::open(&location).unwrap()
                    };
                    let made = Repository::init(store, runtime.handle().clone(), PASSWORD.as_bytes()).unwrap();
                    made.id().to_string()
                }
            }));
        }
    });
    let made = other.unwrap().join().unwrap();
    let Outcome::Ensured(ensured) = result.unwrap() else { panic!("ensured") };
    assert_eq!((ensured.created, ensured.id), (false, made));
}

#[test]
fn a_snapshot_that_cannot_be_read_keeps_nobody_from_the_others() {
    let bed = require!(Bed::new(Which::BuiltIn, Where::Directory));
    fill(&bed.source());
    let first = bed.back_up().snapshot.unwrap();
    let damaged = "ab".repeat(32);
    let snapshots = bed.stored.join(&bed.place.prefix).join("snapshots");
    std::fs::write(snapshots.join(&damaged), "nonsense, and long enough to be a sealed file").unwrap();
    let second = bed.back_up();
    assert_eq!(second.parent.as_ref(), Some(&first), "the parent is found all the same");
    assert!(second.warnings.iter().any(|warning| warning.contains("1 snapshots cannot be read")), "{second:?}");
    assert_eq!(bed.snapshots().len(), 2);
    bed.run(Work::Forget { snapshots: vec![damaged.clone()] }).unwrap();
    assert!(!snapshots.join(&damaged).exists(), "it is forgotten by its name");
    assert_eq!(bed.back_up().warnings, Vec::<String>::new());
}

#[test]
fn a_second_key_that_shows_up_later_stops_a_repository_as_long_as_nothing_is_in_it() {
    for which in [Which::BuiltIn, Which::OldRestic, Which::Restic] {
        let bed = require!(Bed::new(which, Where::Directory));
        second_key(&bed);
        let error = ensure(&bed).unwrap_err();
        assert_eq!(error.reason(), "RepositoryInitialisedTwice", "{which:?}: {error}");
        // In one that is in use another key is somebody's second password.
        let snapshots = bed.stored.join(&bed.place.prefix).join("snapshots");
        std::fs::create_dir_all(&snapshots).unwrap();
        std::fs::write(snapshots.join("cd".repeat(32)), "").unwrap();
        assert!(!ensure(&bed).unwrap().created, "{which:?}");
    }
}

#[test]
fn two_kopia_repositories_made_at_the_same_time_stop_before_the_first_blob() {
    let mut bed = require!(Bed::bare(Which::Kopia, Where::Directory));
    let other = require!(Bed::new(Which::Kopia, Where::Directory));
    let real = bed.program.clone().unwrap();
    let format = |bed: &Bed| bed.stored.join(&bed.place.prefix).join("kopia.repository.f").display().to_string();
    let text = format!(
        "{} \"$@\"; code=$?; for word; do [ \"$word\" = create ] && (sleep 0.2; cp {} {}) >/dev/null 2>&1 & done; exit $code",
        real.display(),
        format(&other),
        format(&bed),
    );
    bed.program = Some(script(&bed, &text));
    assert_eq!(ensure(&bed).unwrap_err().reason(), "RepositoryInitialisedTwice");
}

/// The mark that Velero looks for.
fn mark(bed: &Bed) -> PathBuf {
    bed.stored.join(&bed.place.prefix).join("udmrepo.Repository.f")
}

#[test]
fn a_kopia_repository_that_was_replaced_after_it_was_set_up_takes_no_backup() {
    let bed = require!(Bed::new(Which::Kopia, Where::Directory));
    let other = require!(Bed::new(Which::Kopia, Where::Directory));
    fill(&bed.source());
    let format = |bed: &Bed| bed.stored.join(&bed.place.prefix).join("kopia.repository.f");
    std::fs::copy(format(&other), format(&bed)).unwrap();
    assert_eq!(bed.try_back_up().unwrap_err().reason(), "RepositoryInitialisedTwice");
    assert_eq!(ensure(&bed).unwrap_err().reason(), "RepositoryInitialisedTwice");
}

#[test]
fn who_finds_that_another_was_faster_opens_the_kopia_repository_of_that_one() {
    let mut bed = require!(Bed::bare(Which::Kopia, Where::Directory));
    let (real, token) = (bed.program.clone().unwrap(), bed.path("token"));
    // Somebody else makes it between our look and our own attempt.
    let text = format!(
        "case \" $* \" in *' create '*) cat > {1}; {0} \"$@\" < {1}; exec {0} \"$@\" < {1};; esac; exec {0} \"$@\"",
        real.display(),
        token.display()
    );
    bed.program = Some(script(&bed, &text));
    assert!(!ensure(&bed).unwrap().created);
    assert!(mark(&bed).exists(), "who opens it first sets it up");
    bed.program = Some(real);
    fill(&bed.source());
    bed.back_up();
}

#[test]
fn a_kopia_repository_whose_maker_was_killed_is_set_up_by_the_next_who_opens_it() {
    let mut bed = require!(Bed::bare(Which::Kopia, Where::Directory));
    let real = bed.program.clone().unwrap();
    let text = format!("case \" $* \" in *' policy '*) kill -9 $PPID;; esac; exec {} \"$@\"", real.display());
    bed.program = Some(script(&bed, &text));
    assert_eq!(ensure(&bed).unwrap_err().reason(), "MoverDied");
    assert!(!mark(&bed).exists());
    bed.program = Some(real.clone());
    assert!(!ensure(&bed).unwrap().created);
    assert!(mark(&bed).exists());
    let mut kopia = Command::new(real);
    bed.connect_kopia(&mut kopia);
    let said = kopia.args(["policy", "show", "--global", "--json"]).output().unwrap();
    let policy: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(policy["retention"]["keepLatest"], i32::MAX, "{policy:#}");
}

#[test]
fn an_interrupted_initialisation_is_waited_for_and_then_cleared_away() {
    for which in [Which::BuiltIn, Which::OldRestic, Which::Restic] {
        let bed = require!(Bed::new(which, Where::Directory));
        let repository = bed.stored.join(&bed.place.prefix);
        std::fs::remove_file(repository.join("config")).unwrap();
        let error = ensure(&bed).unwrap_err();
        assert_eq!((error.reason(), error.is_retryable()), ("RepositoryHalfInitialised", true));
        for key in std::fs::read_dir(repository.join("keys")).unwrap() {
            let file = std::fs::File::options().write(true).open(key.unwrap().path()).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_mins(11)).unwrap();
        }
        assert!(ensure(&bed).unwrap().created);
    }
}

#[test]
fn only_the_named_snapshots_are_forgotten() {
    for which in ALL {
        let bed = require!(Bed::new(which, Where::Directory));
        fill(&bed.source());
        let mut made: Vec<_> = (0..3).map(|_| bed.back_up().snapshot.unwrap()).collect();
        let gone = vec![made.remove(1)];
        for _ in 0..2 {
            let outcome = bed.run(Work::Forget { snapshots: gone.clone() });
            assert_eq!(outcome, Ok(Outcome::Forgotten(1)), "also when it is gone already");
            let left = bed.snapshots();
            assert_eq!(left.len(), 2);
            assert!(made.iter().all(|kept| left.iter().any(|one| one.id.starts_with(kept))), "{made:?} {left:?}");
        }
        assert_eq!(bed.run(Work::Forget { snapshots: Vec::new() }), Ok(Outcome::Forgotten(0)));
        assert_eq!(bed.snapshots().len(), 2);
        let error = bed.run(Work::Forget { snapshots: vec!["latest".into()] }).unwrap_err();
        assert_eq!(error.reason(), "InvalidMoverJob");
        bed.restore(&made[1]);
    }
}

#[test]
fn kopias_snapshots_carry_what_veleros_carry() {
    let bed = require!(Bed::new(Which::Kopia, Where::S3));
    fill(&bed.source());
    let snapshot = bed.back_up().snapshot.unwrap();
    let mut kopia = Command::new(bed.program.as_ref().unwrap());
    bed.connect_kopia(&mut kopia);
    let said = kopia.args(["snapshot", "list", "--all", "--json"]).output().unwrap();
    let listed: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    let one = &listed[0];
    assert_eq!(one["id"], snapshot.as_str());
    assert_eq!(one["source"]["userName"], "default");
    assert_eq!(one["source"]["host"], "default");
    assert_eq!(one["source"]["path"], "snapshot-pod-volume/kopia/shop/db-0/data");
    assert_eq!(one["pins"], serde_json::json!(["velero-pin"]));
    assert_eq!(one["tags"]["tag:snapshot-requester"], "snapshot-pod-volume");
    assert_eq!(one["tags"]["tag:snapshot-uploader"], "kopia");
    assert_eq!(one["tags"]["tag:pvc-uid"], "1234");
    let stored = bed.stored.join(&bed.place.prefix);
    let field = |file: &str| -> serde_json::Value {
        let value: serde_json::Value = serde_json::from_slice(&std::fs::read(stored.join(file)).unwrap()).unwrap();
        value["uniqueID"].clone()
    };
    assert_eq!(field("udmrepo.Repository"), field("kopia.repository"), "what Velero looks for");
}

/// Asks the test's own kopia about a repository.
fn kopia(bed: &Bed, arguments: &[&str]) -> serde_json::Value {
    let mut kopia = Command::new(Which::Kopia.program().unwrap().unwrap());
    bed.connect_kopia(&mut kopia);
    let output = kopia.args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// kopia's own policy for all sources, as in a repository that Velero has made.
fn with_kopias_defaults(bed: &Bed) {
    kopia(bed, &["policy", "set", "--global", "--ignore-cache-dirs=inherit", "--clear-dot-ignore"]);
}

#[test]
fn in_a_repository_of_veleros_nothing_is_left_out_and_no_other_source_is_touched() {
    let bed = require!(Bed::new(Which::Kopia, Where::Directory));
    with_kopias_defaults(&bed);
    kopia(&bed, &["policy", "set", "--global", "--add-dot-ignore=.kopiaignore"]);
    let other = "default@default:snapshot-pod-volume/kopia/shop/web-0/files";
    kopia(&bed, &["policy", "set", "--keep-latest=7", "--add-dot-ignore=.kopiaignore", other]);
    let others = || {
        let all = kopia(&bed, &["policy", "list", "--json"]);
        let own = |policy: &&serde_json::Value| policy["target"]["path"] == "snapshot-pod-volume/kopia/shop/db-0/data";
        all.as_array().unwrap().iter().filter(|policy| !own(policy)).cloned().collect::<Vec<_>>()
    };
    let (before, marked) = (others(), std::fs::read(mark(&bed)).unwrap());
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
    assert_eq!((others(), std::fs::read(mark(&bed)).unwrap()), (before, marked));
}

#[test]
fn what_kopia_leaves_out_is_named_where_its_policy_cannot_be_set() {
    let mut bed = require!(Bed::new(Which::Kopia, Where::Directory));
    with_kopias_defaults(&bed);
    fill(&bed.source());
    // Enough of the volume for kopia to find the cache in it.
    std::fs::write(bed.source().join(".kopiaignore"), "/a\n").unwrap();
    let real = bed.program.clone().unwrap();
    let text = format!("case \" $* \" in *' policy set '*) exit 1;; esac; exec {} \"$@\"", real.display());
    bed.program = Some(script(&bed, &text));
    let outcome = bed.back_up();
    let cause = |path: &str| outcome.problems.named.iter().find(|one| one.path == path).map(|one| one.cause.as_str());
    assert_eq!(cause("cache"), Some("kopia takes it for a cache and leaves its content out"));
    assert_eq!(cause(".kopiaignore"), Some("kopia obeys it and leaves out what it names"));
    bed.restore(outcome.snapshot.as_deref().unwrap());
    assert!(!bed.target().join("cache/kept").exists() && !bed.target().join("a").exists(), "or they need not be named");
    // Once it can be set nothing is left out, though the files are as they were.
    bed.program = Some(real);
    let outcome = bed.back_up();
    assert!(!outcome.problems.named.iter().any(|one| one.cause.contains("leaves")), "{:?}", outcome.problems);
    bed.restore(outcome.snapshot.as_deref().unwrap());
    assert!(bed.target().join("cache/kept").exists() && bed.target().join("a/large").exists());
}

#[test]
fn what_the_owner_of_a_kopia_repository_wants_left_out_is_told() {
    let bed = require!(Bed::new(Which::Kopia, Where::Directory));
    kopia(&bed, &["policy", "set", "--global", "--add-ignore=*.tmp"]);
    fill(&bed.source());
    let told = bed.back_up().warnings;
    assert!(told.contains(&"the repository's policy leaves files out: ignore rules".to_owned()), "{told:?}");
}

#[test]
fn the_built_in_mover_and_restic_read_each_others_snapshots() {
    let mut bed = require!(Bed::new(Which::Restic, Where::Directory));
    fill(&bed.source());
    let by_restic = bed.back_up().snapshot.unwrap();
    bed.which = Which::BuiltIn;
    assert_eq!(bed.which.kind(), Kind::BuiltIn);
    let by_us = bed.back_up();
    assert_eq!(by_us.parent.as_deref(), Some(by_restic.as_str()), "the parent is found by the volume, whoever made it");
    let kept = mover(Kind::BuiltIn).fidelity();
    let expected = fingerprint(&bed.source(), kept);
    bed.restore(&by_restic);
    assert_same(&expected, &bed.target(), kept);
    bed.which = Which::Restic;
    bed.fresh_target();
    bed.restore(by_us.snapshot.as_deref().unwrap());
    assert_same(&expected, &bed.target(), kept);
}
