//! Prune: what it frees, what it keeps, and how it shares a repository with other clients.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_repository::backup::{BackupOptions, BackupOutcome, Target};
use plimsoll_repository::restore::RestoreOptions;
use plimsoll_repository::{Cancel, Id, PruneOptions, PruneOutcome, PrunePlan, Repository};

use crate::interop::{each_restic, programs};
use crate::testbed::{Testbed, check, fingerprint, random_bytes, task};

/// Removes everything that is unused, also what was stored a moment ago.
pub fn thorough() -> PruneOptions {
    PruneOptions {
        max_unused_percent: 0,
        pack_size: 300_000,
        min_unindexed_age: Duration::ZERO,
        pause: Duration::ZERO,
        ..PruneOptions::default()
    }
}

pub fn prune(repository: &Arc<Repository>, options: PruneOptions) -> PruneOutcome {
    let (task, cancel) = (task("prune"), Cancel::default());
    let prepared = repository.prepare_prune(options, &task, &cancel).expect("plans");
    prepared.run(&task, &cancel).expect("prunes")
}

pub fn plan(repository: &Arc<Repository>, options: PruneOptions) -> PrunePlan {
    let prepared = repository.prepare_prune(options, &task("prune"), &Cancel::default()).expect("plans");
    prepared.plan().clone()
}

pub fn forget(repository: &Arc<Repository>, snapshots: &[Id]) {
    let forgotten = repository.forget(snapshots, Duration::ZERO, &task("forget"), &Cancel::default());
    assert_eq!(forgotten.expect("forgets"), snapshots.len());
}

pub fn small_packs(testbed: &Testbed) -> BackupOptions {
    BackupOptions { pack_size: 150_000, workers: 1, ..BackupOptions::new(Target::Content(testbed.source())) }
}

pub fn backup(testbed: &Testbed, repository: &Arc<Repository>) -> BackupOutcome {
    repository.backup(&small_packs(testbed), &task("backup"), &Cancel::default()).expect("backs up")
}

fn assert_intact(repository: &Arc<Repository>, context: &str) {
    let found = check(repository);
    assert_eq!((found.errors, found.hints), (vec![], vec![]), "{context}");
}

/// The bytes of all packs.
fn stored(testbed: &Testbed) -> u64 {
    let folders = std::fs::read_dir(testbed.path("repository/data")).into_iter().flatten().flatten();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.path())).flatten().flatten();
    files.map(|file| file.metadata().expect("is there").len()).sum()
}

#[test]
fn prune_frees_what_forgotten_snapshots_used_and_keeps_the_rest() {
    let testbed = Testbed::new();
    let repository = testbed.init();
    for number in 0..8 {
        testbed.write(&format!("old {number}"), random_bytes(number, 100_000));
    }
    testbed.write("both", random_bytes(100, 100_000));
    let old = backup(&testbed, &repository);
    (0..8).for_each(|number| std::fs::remove_file(testbed.source().join(format!("old {number}"))).expect("removes"));
    testbed.write("new", random_bytes(101, 100_000));
    let new = backup(&testbed, &repository);
    forget(&repository, &[old.snapshot]);

    let before = stored(&testbed);
    let planned = plan(&repository, thorough());
    assert_eq!((planned.snapshots, planned.stored_bytes), (1, before));
    assert!(planned.unused_bytes > 800_000 && planned.used_bytes < 250_000, "{planned:?}");
    assert!(planned.removed_packs >= 3 && planned.rewritten_packs >= 1, "{planned:?}");
    assert_eq!(stored(&testbed), before, "a plan changes nothing");

    let outcome = prune(&repository, thorough());
    assert_eq!(before - stored(&testbed), outcome.freed_bytes());
    assert_eq!(stored(&testbed), outcome.moved_bytes + before - outcome.deleted_bytes);
    assert!(outcome.freed_bytes() >= planned.freed_bytes(), "{outcome:?} {planned:?}");
    assert_intact(&repository, "after the prune");
    assert_eq!(testbed.restore(&repository, new.snapshot).problems, []);
    assert_eq!(fingerprint(&testbed.path("restored")), fingerprint(&testbed.source()));
    assert!(plan(&repository, thorough()).is_empty());
    assert_eq!(prune(&repository, thorough()).deleted_packs, 0);
}

/// A random sequence of backups, forgets and prunes, and what each snapshot contains.
fn random_history(seed: u64) {
    let testbed = Testbed::new();
    let repository = testbed.init();
    let mut random = Random(seed);
    let mut contents: BTreeMap<Id, BTreeMap<Vec<u8>, String>> = BTreeMap::new();
    for step in 0..14 {
        match random.below(5) {
            0 if !contents.is_empty() => {
                let chosen = *contents.keys().nth(random.below(contents.len())).expect("there is one");
                contents.remove(&chosen);
                forget(&repository, &[chosen]);
            }
            1 => {
                let sizes = [200_000, 400_000, 3_000_000];
                let options = PruneOptions {
                    max_unused_percent: [0, 5, 50][random.below(3)],
                    pack_size: sizes[random.below(3)],
                    round_bytes: [1, 500_000, 1 << 30][random.below(3)],
                    slice: [Duration::ZERO, Duration::from_mins(1)][random.below(2)],
                    ..thorough()
                };
                let planned = plan(&repository, options.clone());
                let outcome = prune(&repository, options.clone());
                assert_eq!(outcome.deleted_packs == 0, planned.is_empty(), "seed {seed} step {step}: {planned:?}");
                let after = plan(&repository, options);
                assert!(after.removed_packs + after.unindexed_packs == 0, "seed {seed} step {step}: {after:?}");
                assert_intact(&repository, &format!("seed {seed} step {step}"));
            }
            _ => {
                for _ in 0..=random.below(4) {
                    let name = format!("folder {}/file {}", random.below(3), random.below(6));
                    let content = random_bytes(random.next(), random.below(250_000));
                    testbed.write(&name, content);
                }
                let done = backup(&testbed, &repository);
                contents.insert(done.snapshot, fingerprint(&testbed.source()));
            }
        }
    }
    prune(&repository, thorough());
    let planned = plan(&repository, thorough());
    assert_eq!((planned.unused_bytes, planned.unindexed_packs), (0, 0), "seed {seed}: {planned:?}");
    for (snapshot, content) in &contents {
        let target = testbed.path(&format!("restored {snapshot}"));
        let options = RestoreOptions::new(*snapshot, &target);
        let restored = repository.restore(&options, &task("restore"), &Cancel::default()).expect("restores");
        assert_eq!(restored.problems, [], "seed {seed}");
        assert_eq!(&fingerprint(&target), content, "seed {seed}: snapshot {snapshot}");
    }
    if let Some(program) = programs().pop() {
        crate::crash_safety::restic_checks(&program, &testbed);
    }
}

#[test]
fn after_random_histories_every_snapshot_restores_and_nothing_unused_remains() {
    std::thread::scope(|scope| {
        for first in 0..4 {
            scope.spawn(move || (0..3).for_each(|number| random_history(first * 100 + number)));
        }
    });
}

/// A sequence of pseudo-random numbers.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) ^ self.0
    }

    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).expect("small")
    }
}

#[test]
fn prune_and_restic_understand_each_other_in_both_versions_of_the_format() {
    each_restic(|testbed, restic| {
        for version in ["1", "2"] {
            let _ = std::fs::remove_dir_all(testbed.path("repository"));
            restic.run(&["init", "--repository-version", version]);
            for round in 0..3 {
                testbed.write("changing", random_bytes(round, 300_000));
                testbed.write(&format!("text {round}"), "some words again and again ".repeat(2000));
                restic.run(&["backup", "."]);
            }
            let repository = testbed.open();
            let first = repository.snapshots().expect("lists")[0].0;
            forget(&repository, &[first]);
            let outcome = prune(&repository, thorough());
            assert!(outcome.freed_bytes() > 250_000, "{outcome:?}");
            restic.run(&["check", "--read-data"]);
            restic.run(&["restore", "latest", "--target", testbed.path("restored").to_str().expect("text")]);
            let output = restic.run(&["prune", "--max-unused", "0"]);
            let words: Vec<_> = output.split_whitespace().collect();
            assert!(words.join(" ").contains("total prune: 0 blobs / 0 B"), "nothing is left for restic: {output}");
            restic.run(&["backup", "."]);
            assert!(plan(&repository, thorough()).removed_packs == 0);
        }
    });
}

#[test]
fn packs_in_no_index_file_are_removed_when_they_are_old_enough() {
    let testbed = Testbed::new();
    let repository = testbed.init();
    testbed.write("file", random_bytes(1, 100_000));
    backup(&testbed, &repository);
    let content = random_bytes(2, 1000);
    let name = Id::of(&content).to_string();
    let file = testbed.path("repository/data").join(&name[..2]).join(&name);
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
    std::fs::write(&file, content).expect("writes");
    let patient = PruneOptions { min_unindexed_age: Duration::from_hours(1), ..thorough() };
    let planned = plan(&repository, patient.clone());
    assert_eq!((planned.recent_packs, planned.recent_bytes, planned.unindexed_packs), (1, 1000, 0));
    prune(&repository, patient.clone());
    assert!(file.is_file(), "its index file may be about to appear");
    let old = std::time::SystemTime::now() - Duration::from_hours(2);
    std::fs::File::open(&file).and_then(|file| file.set_modified(old)).expect("sets the time");
    assert_eq!(plan(&repository, patient.clone()).unindexed_packs, 1);
    prune(&repository, patient);
    assert!(!file.is_file());
    assert_intact(&repository, "after the prune");
}

fn packs(testbed: &Testbed) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(testbed.path("repository/data")).into_iter().flatten().flatten();
    folders.flat_map(|folder| std::fs::read_dir(folder.path())).flatten().flatten().map(|file| file.path()).collect()
}

fn flip_a_byte(pack: &PathBuf) {
    let mut content = std::fs::read(pack).expect("reads");
    content[1000] ^= 1;
    std::fs::remove_file(pack).expect("removes");
    std::fs::write(pack, content).expect("writes");
}

#[test]
fn a_damaged_blob_that_must_be_moved_ends_the_prune_and_nothing_is_deleted() {
    let testbed = Testbed::new();
    let repository = testbed.init();
    testbed.write("used", random_bytes(1, 60_000));
    testbed.write("unused", random_bytes(2, 60_000));
    let old = backup(&testbed, &repository);
    std::fs::remove_file(testbed.source().join("unused")).expect("removes");
    backup(&testbed, &repository);
    forget(&repository, &[old.snapshot]);
    let data = packs(&testbed).into_iter().find(|pack| pack.metadata().expect("is there").len() > 100_000);
    let data = data.expect("both files are in one pack");
    flip_a_byte(&data);
    let mut content = std::fs::read(&data).expect("reads");
    content[70_000] ^= 1;
    std::fs::write(&data, content).expect("writes");
    let prepared = repository.prepare_prune(thorough(), &task("prune"), &Cancel::default()).expect("plans");
    let error = prepared.run(&task("prune"), &Cancel::default()).expect_err("cannot move it");
    assert_eq!(error.reason(), "RepositoryDamaged");
    assert!(data.is_file(), "what can be saved is still there");
}

#[test]
fn a_prune_whose_used_data_is_missing_removes_nothing_and_says_which_snapshot_needs_it() {
    let testbed = Testbed::new();
    let repository = testbed.init();
    for number in 0..4 {
        testbed.write(&format!("file {number}"), random_bytes(number, 200_000));
    }
    let old = backup(&testbed, &repository);
    testbed.write("file 0", random_bytes(10, 200_000));
    backup(&testbed, &repository);
    forget(&repository, &[old.snapshot]);
    let largest = packs(&testbed).into_iter().max_by_key(|pack| pack.metadata().expect("is there").len());
    let index = std::fs::read_dir(testbed.path("repository/index")).expect("lists").count();
    let all = packs(&testbed).len();
    // Half of all packs: some of them are needed.
    for pack in packs(&testbed).into_iter().filter(|pack| Some(pack) != largest.as_ref()) {
        std::fs::remove_file(pack).expect("removes");
    }
    let remaining = packs(&testbed).len();
    assert!(remaining < all);
    let error = repository.prepare_prune(thorough(), &task("prune"), &Cancel::default()).map(drop).expect_err("stops");
    assert!(error.to_string().contains("nothing was removed") || error.reason() == "RepositoryDamaged", "{error}");
    assert_eq!(packs(&testbed).len(), remaining);
    assert_eq!(std::fs::read_dir(testbed.path("repository/index")).expect("lists").count(), index);
}

#[test]
fn a_prune_waits_for_a_lock_and_shows_its_holder() {
    let testbed = Testbed::new();
    let repository = testbed.init();
    testbed.write("file", "content");
    backup(&testbed, &repository);
    let held = plimsoll_repository::Lock::take(&repository, plimsoll_repository::LockKind::Shared).expect("locks");
    let prepared = repository.prepare_prune(thorough(), &task("prune"), &Cancel::default()).expect("plans");
    let error = prepared.run(&task("prune"), &Cancel::default()).expect_err("locked");
    assert_eq!((error.reason(), error.is_retryable()), ("RepositoryLocked", true));
    let waiting = PruneOptions { lock_timeout: Duration::from_secs(30), ..thorough() };
    let prepared = repository.prepare_prune(waiting, &task("prune"), &Cancel::default()).expect("plans");
    let started = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(500));
            drop(held);
        });
        prepared.run(&task("prune"), &Cancel::default()).expect("prunes when the lock is released");
    });
    assert!(started.elapsed() >= Duration::from_millis(500));
}
