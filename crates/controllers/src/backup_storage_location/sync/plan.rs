//! Decides what a sync does, from the backups in the location and in the cluster.

use std::collections::BTreeSet;

use plimsoll_api::velero::v1::BackupPhase;

/// A Backup of the cluster.
#[derive(Clone, Debug)]
pub struct ClusterBackup {
    pub name: String,
    pub phase: BackupPhase,
    /// It is kept in the location that is synced.
    pub here: bool,
}

/// The decision.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Directories whose backup is not in the cluster.
    pub create: Vec<String>,
    /// Backups of the cluster whose directory is gone.
    pub remove: Vec<String>,
    /// Warnings. With warnings nothing is removed.
    pub warning: Option<String>,
}

/// Decides. A listing that is empty, or that lacks more than half of what is known, is more likely a wrong bucket, a lost mount
/// or a broken store than a user who deleted that much.
pub fn plan(listed: &[String], known: &[ClusterBackup]) -> Plan {
    let names: BTreeSet<&str> = known.iter().map(|backup| backup.name.as_str()).collect();
    let listed_names: BTreeSet<&str> = listed.iter().map(String::as_str).collect();
    let create = listed_names.difference(&names).map(|name| (*name).to_owned()).collect();
    let ended = |backup: &&ClusterBackup| {
        backup.here && matches!(backup.phase, BackupPhase::Completed | BackupPhase::PartiallyFailed)
    };
    let settled: Vec<_> = known.iter().filter(ended).collect();
    let gone: Vec<_> = settled.iter().filter(|backup| !listed_names.contains(backup.name.as_str())).collect();
    let remove: Vec<_> = gone.iter().map(|backup| backup.name.clone()).collect();
    if !remove.is_empty() && (listed.is_empty() || remove.len() * 2 > settled.len()) {
        let warning = format!(
            "{} of {} backups that were here are missing in the location: none of them is removed from the cluster. \
             Is it the right bucket and prefix? Delete the Backups yourself if that is what you want",
            remove.len(),
            settled.len()
        );
        return Plan { create, remove: Vec::new(), warning: Some(warning) };
    }
    Plan { create, remove, warning: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str, phase: BackupPhase, here: bool) -> ClusterBackup {
        ClusterBackup { name: name.to_owned(), phase, here }
    }

    fn completed(names: &[&str]) -> Vec<ClusterBackup> {
        names.iter().map(|name| known(name, BackupPhase::Completed, true)).collect()
    }

    fn run(listed: &[&str], known: &[ClusterBackup]) -> Plan {
        plan(&listed.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), known)
    }

    #[test]
    fn what_is_missing_in_the_cluster_is_made_and_never_overwritten() {
        let plan = run(&["a", "b"], &[known("a", BackupPhase::InProgress, false)]);
        assert_eq!(plan, Plan { create: vec!["b".into()], ..Plan::default() });
    }

    #[test]
    fn what_is_missing_in_the_location_is_removed_if_it_has_ended_there() {
        let mut there = completed(&["a", "b", "c"]);
        there.push(known("failed", BackupPhase::Failed, true));
        there.push(known("running", BackupPhase::InProgress, true));
        there.push(known("elsewhere", BackupPhase::Completed, false));
        assert_eq!(run(&["a", "b"], &there).remove, ["c"]);
    }

    #[test]
    fn nothing_is_removed_when_the_listing_is_empty_or_lost_more_than_half() {
        let there = completed(&["a", "b", "c", "d"]);
        assert_eq!(run(&["a", "b"], &there).remove.len(), 2, "half is not more than half");
        for listed in [&["a"][..], &[]] {
            let plan = run(listed, &there);
            assert!(plan.remove.is_empty() && plan.warning.is_some(), "{listed:?}");
        }
        let plan = run(&["foreign"], &completed(&["a"]));
        assert!(plan.remove.is_empty() && plan.warning.is_some(), "the bucket of another cluster");
        assert!(run(&[], &[]).warning.is_none(), "a new location is empty");
    }
}
