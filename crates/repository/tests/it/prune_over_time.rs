//! Ninety days of hourly backups, expiry and prunes, on virtual time: the repository stays as small as what its snapshots need.

use std::sync::Arc;

use object_store::memory::InMemory;
use plimsoll_progress::{Clock, Operation, Task};
use plimsoll_repository::backup::{BackupOptions, Target};
use plimsoll_repository::format::time::Time;
use plimsoll_repository::restore::RestoreOptions;
use plimsoll_repository::{Cancel, Id, PruneOptions, Repository, RetentionPolicy};
use plimsoll_store::Store;

use crate::prune::{Random, plan, prune};
use crate::testbed::{PASSWORD, Testbed, fingerprint, random_bytes};

const DAYS: u64 = 90;
/// Backups of a day. Every hour of every day would take minutes and show the same.
const BACKUPS_PER_DAY: u64 = 4;
const PRUNE_EVERY_DAYS: u64 = 7;
const START: i64 = 1_767_225_600; // 2026-01-01

fn task() -> Task {
    Operation::new("history", Clock::system()).root()
}

fn options() -> PruneOptions {
    PruneOptions { pack_size: 500_000, min_unindexed_age: std::time::Duration::ZERO, ..PruneOptions::default() }
}

/// Changes a tenth of the files, as an application does in some hours.
fn change(testbed: &Testbed, random: &mut Random) {
    for _ in 0..2 {
        let name = format!("folder {}/file {}", random.below(4), random.below(5));
        testbed.write(&name, random_bytes(random.next(), 10_000 + random.below(30_000)));
    }
}

fn expire(repository: &Arc<Repository>) -> Vec<Id> {
    let policy = RetentionPolicy { hourly: 24, daily: 14, weekly: 4, ..RetentionPolicy::default() };
    let groups = policy.apply(repository.snapshots().expect("lists"));
    let expired: Vec<Id> =
        groups.iter().flat_map(plimsoll_repository::SnapshotGroup::removed).map(|kept| kept.id).collect();
    let forgotten = repository.forget(&expired, std::time::Duration::ZERO, &task(), &Cancel::default());
    assert_eq!(forgotten.expect("forgets"), expired.len());
    expired
}

#[test]
fn after_each_of_the_prunes_of_ninety_days_little_more_is_stored_than_used() {
    let testbed = Testbed::new();
    let store = Store::from_objects(Arc::new(InMemory::new()), "memory".into(), "").expect("a store");
    let repository = Repository::init(store, testbed.runtime.handle().clone(), PASSWORD.as_bytes());
    let repository = Arc::new(repository.expect("initializes"));
    let mut random = Random(90);
    (0..20).for_each(|_| change(&testbed, &mut random));
    let mut contents = std::collections::BTreeMap::new();
    for day in 0..DAYS {
        for backup in 0..BACKUPS_PER_DAY {
            change(&testbed, &mut random);
            let hour = i64::try_from(day * 24 + backup * 24 / BACKUPS_PER_DAY).expect("small");
            let time = Some(Time::utc(START + hour * 3600, 0));
            let options = BackupOptions {
                pack_size: 500_000,
                time,
                record_paths: Some(vec!["/data".into()]),
                workers: 1,
                ..BackupOptions::new(Target::Content(testbed.source()))
            };
            let done = repository.backup(&options, &task(), &Cancel::default()).expect("backs up");
            contents.insert(done.snapshot, fingerprint(&testbed.source()));
        }
        if day % PRUNE_EVERY_DAYS == PRUNE_EVERY_DAYS - 1 {
            for id in expire(&repository) {
                contents.remove(&id);
            }
            prune(&repository, options());
            let after = plan(&repository, options());
            let limit = after.used_bytes + after.used_bytes * 15 / 100;
            assert!(after.stored_bytes <= limit, "day {day}: {after:?}");
            assert!(after.packs < 100, "day {day}: small packs are joined: {after:?}");
        }
    }
    assert!((20..80).contains(&contents.len()), "some snapshots of each period are left: {}", contents.len());
    for (position, (snapshot, content)) in contents.iter().enumerate().filter(|(position, _)| position % 4 == 0) {
        let target = testbed.path(&format!("restored {position}"));
        let restore = RestoreOptions::new(*snapshot, &target);
        let restored = repository.restore(&restore, &task(), &Cancel::default()).expect("restores");
        assert_eq!(restored.problems, []);
        assert_eq!(&fingerprint(&target), content, "snapshot {snapshot}");
    }
}
