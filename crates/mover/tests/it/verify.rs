//! Verification of snapshots: damage is found and named.

use std::path::{Path, PathBuf};

use plimsoll_mover::{MoverKind, Outcome, Verify, VerifyOutcome, Work};
use plimsoll_testkit::require;

use crate::testbed::{StoreKind, TestMover, Testbed};
use crate::volume::fill;

const ALL: [TestMover; 3] = [TestMover::BuiltIn, TestMover::Restic, TestMover::Kopia];

fn verify(bed: &Testbed, snapshot: &str, percent: u8) -> VerifyOutcome {
    match bed.run(Work::Verify(Verify { snapshots: vec![snapshot.to_owned()], percent })).unwrap() {
        Outcome::Verified(outcome) => outcome,
        other => panic!("{other:?}"),
    }
}

/// The largest file with data of volumes.
fn largest_pack(bed: &Testbed, mover_kind: TestMover) -> PathBuf {
    let is_pack = |path: &Path| {
        let below = path.strip_prefix(bed.path("stored")).unwrap().to_string_lossy().into_owned();
        if mover_kind.kind() == MoverKind::Kopia { below.contains("/p") } else { below.contains("/data/") }
    };
    let (mut packs, mut pending) = (Vec::new(), vec![bed.path("stored")]);
    while let Some(path) = pending.pop() {
        match std::fs::read_dir(&path) {
            Ok(entries) => pending.extend(entries.flatten().map(|entry| entry.path())),
            Err(_) if is_pack(&path) => packs.push(path),
            Err(_) => {}
        }
    }
    packs.into_iter().max_by_key(|pack| pack.metadata().unwrap().len()).unwrap()
}

#[test]
fn an_intact_snapshot_is_verified_by_structure_by_sample_and_completely() {
    for mover_kind in ALL {
        for at in [StoreKind::Directory, StoreKind::S3] {
            let bed = require!(Testbed::new(mover_kind, at));
            fill(&bed.source());
            let snapshot = bed.back_up().snapshot.unwrap();
            for percent in [0, 10, 100] {
                let outcome = verify(&bed, &snapshot, percent);
                assert_eq!((outcome.snapshots, outcome.damage_count), (1, 0), "{mover_kind:?} {percent}: {outcome:?}");
            }
        }
    }
}

#[test]
fn a_flipped_byte_is_found_when_everything_is_read() {
    for mover_kind in ALL {
        let bed = require!(Testbed::new(mover_kind, StoreKind::Directory));
        std::fs::write(bed.source().join("file"), vec![7; 300_000]).unwrap();
        let content: Vec<u8> =
            (0..300_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        std::fs::write(bed.source().join("random"), content).unwrap();
        let snapshot = bed.back_up().snapshot.unwrap();
        let pack = largest_pack(&bed, mover_kind);
        let mut bytes = std::fs::read(&pack).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&pack, bytes).unwrap();
        let outcome = verify(&bed, &snapshot, 100);
        assert!(outcome.damage_count > 0, "{mover_kind:?}: {outcome:?}");
        assert!(outcome.damage.iter().any(|found| found.snapshots.iter().any(|id| id.starts_with(&snapshot))));
    }
}

#[test]
fn a_missing_pack_is_found_without_reading_data() {
    for mover_kind in ALL {
        let bed = require!(Testbed::new(mover_kind, StoreKind::Directory));
        fill(&bed.source());
        let snapshot = bed.back_up().snapshot.unwrap();
        std::fs::remove_file(largest_pack(&bed, mover_kind)).unwrap();
        let outcome = verify(&bed, &snapshot, 0);
        assert!(outcome.damage_count > 0, "{mover_kind:?}: {outcome:?}");
        assert!(outcome.damage.iter().any(|found| found.snapshots.iter().any(|id| id.starts_with(&snapshot))));
    }
}

#[test]
fn a_snapshot_that_does_not_exist_is_damage() {
    for mover_kind in ALL {
        let bed = require!(Testbed::new(mover_kind, StoreKind::Directory));
        let missing = "0123456789abcdef0123456789abcdef";
        let outcome = verify(&bed, missing, 0);
        assert_eq!(outcome.damage_count, 1);
        assert_eq!(outcome.damage[0].text, format!("snapshot {missing} is missing"));
    }
}
