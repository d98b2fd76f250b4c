//! Maintenance of repositories: what no snapshot uses is freed, and the rest stays intact.

use std::process::Command;

use plimsoll_mover::{Maintenance, MaintenanceOutcome, MoverError, Outcome, Work};
use plimsoll_testkit::require;

use crate::testbed::{StoreKind, TestMover, Testbed};

fn maintain(bed: &Testbed, dry_run: bool) -> Result<MaintenanceOutcome, MoverError> {
    match bed.run(Work::Maintain(Maintenance { dry_run, lock_timeout: 0 }))? {
        Outcome::Maintained(outcome) => Ok(outcome),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_data_of_forgotten_snapshots_is_freed_and_the_others_are_restored() {
    for mover_kind in [TestMover::BuiltIn, TestMover::Restic] {
        for at in [StoreKind::Directory, StoreKind::S3] {
            let bed = require!(Testbed::new(mover_kind, at));
            std::fs::write(bed.source().join("kept"), b"kept").unwrap();
            let content: Vec<u8> =
                (0..3_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            std::fs::write(bed.source().join("dropped"), content).unwrap();
            let forgotten = bed.back_up().snapshot.unwrap();
            std::fs::remove_file(bed.source().join("dropped")).unwrap();
            let kept = bed.back_up().snapshot.unwrap();
            assert_eq!(maintain(&bed, true).unwrap().freed, Some(0), "everything is used");
            bed.run(Work::Forget { snapshots: vec![forgotten] }).unwrap();
            let plan = maintain(&bed, true).unwrap();
            let usage = plan.usage.clone().unwrap();
            assert!(plan.dry_run && plan.freed > Some(0) && usage.stored > usage.used, "{plan:?}");
            let done = maintain(&bed, false).unwrap();
            assert!(!done.dry_run && done.freed >= plan.freed, "{done:?} {plan:?}");
            assert_eq!(maintain(&bed, false).unwrap().freed, Some(0));
            bed.restore(&kept);
            assert_eq!(std::fs::read(bed.target().join("kept")).unwrap(), b"kept");
            bed.assert_intact();
        }
    }
}

#[test]
fn kopia_maintains_its_repository_by_its_own_schedule_and_as_its_own_owner() {
    let bed = require!(Testbed::new(TestMover::Kopia, StoreKind::Directory));
    std::fs::write(bed.source().join("kept"), b"kept").unwrap();
    let kept = bed.back_up().snapshot.unwrap();
    let modes: Vec<_> = (0..2).map(|_| maintain(&bed, false).unwrap().mode.unwrap()).collect();
    assert_eq!(modes[1], "quick", "a full one has just run or is not due: {modes:?}");
    bed.restore(&kept);
    bed.assert_intact();
    let mut command = Command::new(TestMover::Kopia.program().unwrap().unwrap());
    bed.connect_kopia(&mut command);
    let done = command.args(["maintenance", "set", "--owner=admin@laptop"]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let error = maintain(&bed, false).unwrap_err();
    assert!(error.to_string().contains("belongs to admin@laptop"), "{error}");
}
