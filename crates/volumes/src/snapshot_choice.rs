//! Decides whether a volume gets a snapshot.

use plimsoll_select::resource_policies::VolumeActionType;

/// The decision about a volume.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SnapshotChoice {
    /// A snapshot; whether it was requested explicitly.
    Take { explicit: bool },
    /// Nothing.
    Leave,
    /// Nothing, because a policy says so.
    Skip,
}

pub(crate) fn snapshot_choice(wanted: Option<bool>, policy: Option<VolumeActionType>) -> SnapshotChoice {
    match (policy, wanted) {
        (Some(VolumeActionType::Skip), _) => SnapshotChoice::Skip,
        (Some(VolumeActionType::FsBackup | VolumeActionType::Custom), _) | (None, Some(false)) => SnapshotChoice::Leave,
        (Some(VolumeActionType::Snapshot), _) | (None, Some(true)) => SnapshotChoice::Take { explicit: true },
        (None, None) => SnapshotChoice::Take { explicit: false },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_decides_first_and_the_backup_after_it() {
        for (wanted, policy, expected) in [
            (None, None, SnapshotChoice::Take { explicit: false }),
            (Some(true), None, SnapshotChoice::Take { explicit: true }),
            (Some(false), None, SnapshotChoice::Leave),
            (Some(false), Some(VolumeActionType::Snapshot), SnapshotChoice::Take { explicit: true }),
            (Some(true), Some(VolumeActionType::FsBackup), SnapshotChoice::Leave),
            (Some(true), Some(VolumeActionType::Skip), SnapshotChoice::Skip),
        ] {
            assert_eq!(snapshot_choice(wanted, policy), expected, "{wanted:?} {policy:?}");
        }
    }
}
