//! Prune in a loop against backups in loops: of restic, and our own. No data is lost.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use plimsoll_repository::backup::{BackupOptions, Target};
use plimsoll_repository::{Cancel, PruneOptions, RepositoryError};

use crate::crash_safety::restic_checks;
use crate::interop::programs;
use crate::prune::{Random, thorough};
use crate::testbed::{PASSWORD, Testbed, check, random_bytes, task};

/// How long the loops run. `make soak` sets more.
fn duration() -> Duration {
    let seconds = std::env::var("PLIMSOLL_SOAK_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(20))
}

fn restic(program: &Path, testbed: &Testbed, arguments: &[&str]) -> std::process::Output {
    Command::new(program)
        .arg("--repo")
        .arg(testbed.path("repository"))
        .args(["--no-cache"])
        .args(arguments)
        .current_dir(testbed.path("of restic"))
        .env("RESTIC_PASSWORD", PASSWORD)
        .output()
        .expect("runs")
}

/// Changes some files, so that each backup stores new blobs, stops using others, and sometimes uses old ones again.
fn change(folder: &Path, random: &mut Random) {
    for _ in 0..2 {
        let (name, seed) = (format!("file {}", random.below(5)), random.below(12) as u64);
        std::fs::write(folder.join(name), random_bytes(seed, 80_000)).expect("writes");
    }
}

/// Leaves gaps between backups: an exclusive lock needs one.
fn pause(random: &mut Random) {
    std::thread::sleep(Duration::from_millis(random.below(1500) as u64));
}

#[test]
fn prune_in_a_loop_and_backups_in_loops_lose_nothing() {
    let Some(program) = programs().pop() else { return };
    let testbed = Testbed::new();
    drop(testbed.init());
    std::fs::create_dir_all(testbed.path("of restic")).expect("a folder");
    let started = Instant::now();
    let (by_restic, by_us, prunes) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    // A slow machine gets more time until each of them has come to its turn.
    let is_over = || {
        let all = [&by_restic, &by_us, &prunes].iter().all(|counter| counter.load(Ordering::SeqCst) > 0);
        started.elapsed() > if all { duration() } else { 5 * duration() }
    };
    let count = |counter: &AtomicU32| counter.fetch_add(1, Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(1);
            while !is_over() {
                change(&testbed.path("of restic"), &mut random);
                let done = restic(&program, &testbed, &["backup", "."]);
                let error = String::from_utf8_lossy(&done.stderr).into_owned();
                assert!(done.status.success() || error.contains("locked"), "{error}");
                if done.status.success() {
                    let _ = count(&by_restic);
                }
                pause(&mut random);
            }
        });
        scope.spawn(|| {
            let (mut random, repository) = (Random(2), testbed.open());
            let options = BackupOptions { pack_size: 100_000, ..BackupOptions::new(Target::Content(testbed.source())) };
            while !is_over() {
                change(&testbed.source(), &mut random);
                match repository.backup(&options, &task("backup"), &Cancel::default()) {
                    Ok(_) => drop(Some(count(&by_us))),
                    Err(RepositoryError::Locked { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
                pause(&mut random);
            }
        });
        scope.spawn(|| {
            let (mut random, repository, cancel) = (Random(3), testbed.open(), Cancel::default());
            while !is_over() {
                let options = PruneOptions {
                    slice: [Duration::ZERO, Duration::from_secs(10)][random.below(2)],
                    round_bytes: [1, 1 << 30][random.below(2)],
                    pause: Duration::from_millis(20),
                    ..thorough()
                };
                let snapshots = repository.snapshots().expect("lists");
                if snapshots.len() > 4 {
                    let oldest = snapshots[random.below(3)].0;
                    let _ = repository.forget(&[oldest], Duration::ZERO, &task("forget"), &cancel);
                }
                let task = task("prune");
                let prepared = repository.prepare_prune(options, &task, &cancel);
                match prepared.and_then(|prepared| prepared.run(&task, &cancel)) {
                    Ok(outcome) => drop((outcome.deleted_packs > 0).then(|| count(&prunes))),
                    Err(RepositoryError::Locked { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
    });
    let counts = [&by_restic, &by_us, &prunes].map(|counter| counter.load(Ordering::SeqCst));
    assert!(
        counts.iter().all(|count| *count > 0),
        "backups by restic, by us, and prunes that removed packs: {counts:?}"
    );
    restic_checks(&program, &testbed);
    assert_eq!(check(&testbed.open()).errors, Vec::<String>::new());
}
