//! Decisions about repositories: orphaned snapshots, stale locks, names and passwords. Pure functions of the movers' outcomes.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use crate::job::MoverKind;
use crate::outcome::{LockInfo, SnapshotInfo};
use crate::repository_location::RepositoryLocation;

/// Velero's default repository password.
pub const DEFAULT_PASSWORD: &[u8] = b"static-passw0rd";

/// The warning about the default password.
pub(crate) fn password_warnings(password: &[u8]) -> Vec<String> {
    let is_default = password.trim_ascii() == DEFAULT_PASSWORD;
    let warning = "the repository uses Velero's default password, which is public: anyone with read access to the bucket can read \
                   the backups";
    is_default.then(|| warning.to_owned()).into_iter().collect()
}

/// The prefix of a namespace's repository in a location.
pub fn repository_prefix(kind: MoverKind, location_prefix: &str, namespace: &str) -> String {
    let folder = format!("{}/{namespace}", kind.uploader_type());
    match location_prefix.trim_matches('/') {
        "" => folder,
        prefix => format!("{prefix}/{folder}"),
    }
}

/// restic's repository URL of a location, if restic supports the provider.
pub fn restic_identifier(location: &RepositoryLocation) -> Option<String> {
    crate::restic::address(&location.location()).ok()
}

/// The references to snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// The snapshots that backups refer to. Old versions of restic report short IDs.
    pub snapshots: Vec<String>,
    /// The backups that may still refer to a snapshot.
    pub unfinished: Vec<UnfinishedBackup>,
}

/// A backup that has not ended. Its snapshots are tagged with its name before its status lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedBackup {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl References {
    fn contains(&self, snapshot: &SnapshotInfo) -> bool {
        self.snapshots.iter().any(|known| known.len() >= 8 && snapshot.id.starts_with(known.as_str()))
    }

    fn may_still_contain(&self, snapshot: &SnapshotInfo) -> bool {
        let tag = |key: &str| snapshot.tags.get(key).map(String::as_str);
        let is_of = |backup: &UnfinishedBackup| match tag("backup-uid") {
            Some(uid) => uid == backup.uid,
            None => tag("backup") == Some(&backup.name),
        };
        self.unfinished.iter().any(is_of)
    }
}

/// Finds snapshots that no known backup refers to or may still refer to, and that are at least `age` old. Other clusters may
/// use the bucket: the result is for a report and must not be deleted without a request.
///
/// # Assumptions
/// The snapshots were listed first, then the unfinished backups, then the references of backups. A backup that ends between
/// two of these steps is then included in one of them.
pub fn orphaned_snapshots<'s>(
    snapshots: &'s [SnapshotInfo],
    references: &References,
    age: SignedDuration,
    now: Timestamp,
) -> Vec<&'s SnapshotInfo> {
    let old = |snapshot: &SnapshotInfo| now.duration_since(snapshot.completed_at()) >= age;
    let is_orphan = |snapshot: &&SnapshotInfo| {
        old(snapshot) && !references.contains(snapshot) && !references.may_still_contain(snapshot)
    };
    snapshots.iter().filter(is_orphan).collect()
}

/// The UID of the pod that this process runs in, from the environment that `plimsoll install` sets.
pub fn own_pod_uid() -> Option<String> {
    std::env::var("POD_UID").ok().filter(|uid| !uid.is_empty())
}

/// The status of a lock's holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockHolderStatus {
    /// Not a process of this cluster.
    Unknown,
    /// A running process of this cluster.
    OursAlive,
    /// A process in a running pod of this cluster. The state of the process is unknown.
    OursInPod,
    /// A pod or process of this cluster that has ended.
    OursGone,
}

/// Decides which locks are stale: locks of an ended process of this cluster, and locks that are older than half an hour and
/// were unchanged in two observations. A running holder refreshes its lock every five minutes.
#[derive(Debug, Default)]
pub struct StaleLockDetector {
    observations: HashMap<String, Observations>,
}

#[derive(Clone, Copy, Debug)]
struct Observations {
    last: Timestamp,
    unchanged: u32,
}

const STALE_AGE: SignedDuration = SignedDuration::from_mins(30);
/// Observations closer together count once: a lock in use may not have been refreshed between them.
const MIN_OBSERVATION_INTERVAL: SignedDuration = SignedDuration::from_mins(6);

impl StaleLockDetector {
    /// Records the current locks and returns the IDs of the stale ones.
    pub fn observe(
        &mut self,
        locks: &[LockInfo],
        now: Timestamp,
        holder: impl Fn(&LockInfo) -> LockHolderStatus,
    ) -> Vec<String> {
        self.observations.retain(|id, _| locks.iter().any(|lock| lock.id == *id));
        let mut removable = Vec::new();
        for lock in locks {
            let observed = self.observations.entry(lock.id.clone()).or_insert(Observations { last: now, unchanged: 0 });
            if now.duration_since(observed.last) >= MIN_OBSERVATION_INTERVAL {
                *observed = Observations { last: now, unchanged: observed.unchanged + 1 };
            }
            let is_stale = now.duration_since(lock.time) > STALE_AGE && observed.unchanged >= 2;
            match holder(lock) {
                LockHolderStatus::OursGone => removable.push(lock.id.clone()),
                LockHolderStatus::Unknown | LockHolderStatus::OursInPod if is_stale => removable.push(lock.id.clone()),
                LockHolderStatus::Unknown | LockHolderStatus::OursInPod | LockHolderStatus::OursAlive => {}
            }
        }
        removable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + minute * 60).expect("a time")
    }

    fn lock(id: &str, minute: i64) -> LockInfo {
        LockInfo { id: id.into(), time: at(minute), hostname: "h".into(), pid: 7, exclusive: true }
    }

    #[test]
    fn a_lock_of_this_cluster_is_stale_as_soon_as_its_holder_has_ended() {
        let mut detector = StaleLockDetector::default();
        assert_eq!(detector.observe(&[lock("a", 0)], at(0), |_| LockHolderStatus::OursGone), ["a"]);
        for minute in [0, 40, 80, 120] {
            assert!(detector.observe(&[lock("b", 0)], at(minute), |_| LockHolderStatus::OursAlive).is_empty());
        }
    }

    #[test]
    fn a_lock_of_a_killed_process_in_a_running_pod_is_stale_after_two_observations() {
        let mut detector = StaleLockDetector::default();
        let mut is_stale =
            |minute| !detector.observe(&[lock("a", 0)], at(minute), |_| LockHolderStatus::OursInPod).is_empty();
        assert!(!is_stale(31) && !is_stale(38), "a running holder refreshes its lock every five minutes");
        assert!(is_stale(45));
    }

    #[test]
    fn an_unknown_lock_is_stale_when_it_is_old_and_unchanged_in_two_observations() {
        let mut detector = StaleLockDetector::default();
        let mut is_stale =
            |id: &str, minute| !detector.observe(&[lock(id, 0)], at(minute), |_| LockHolderStatus::Unknown).is_empty();
        assert!(!is_stale("a", 31), "old, but observed for the first time");
        assert!(!is_stale("a", 32), "too soon for a second observation");
        assert!(!is_stale("a", 38), "unchanged once");
        assert!(!is_stale("b", 45), "refreshed: another lock");
        assert!(!is_stale("b", 52));
        assert!(is_stale("b", 59), "unchanged twice");
        let mut detector = StaleLockDetector::default();
        for minute in [0, 7, 14, 21, 28] {
            assert!(detector.observe(&[lock("young", 0)], at(minute), |_| LockHolderStatus::Unknown).is_empty());
        }
    }

    fn snapshot(id: &str, minute: i64) -> SnapshotInfo {
        SnapshotInfo {
            id: id.into(),
            time: at(minute),
            ended: None,
            tags: std::collections::BTreeMap::new(),
            source: String::new(),
            bytes: None,
        }
    }

    #[test]
    fn orphans_are_old_snapshots_that_no_backup_names_by_its_long_or_short_id() {
        let all = [
            snapshot("aaaaaaaaaaaa", 0),
            snapshot("bbbbbbbbbbbb", 0),
            snapshot("cccccccccccc", 0),
            snapshot("dd", 100),
        ];
        let snapshots = ["aaaaaaaaaaaa", "bbbbbbbb", "", "c"].map(str::to_owned).to_vec();
        let references = References { snapshots, ..References::default() };
        let found_orphans = orphaned_snapshots(&all, &references, SignedDuration::from_mins(60), at(100));
        assert_eq!(found_orphans.iter().map(|snapshot| snapshot.id.as_str()).collect::<Vec<_>>(), ["cccccccccccc"]);
    }

    /// Description, minutes until its end, tags, and whether it is an orphan.
    type Case<'c> = (&'c str, Option<i64>, &'c [(&'c str, &'c str)], bool);

    #[test]
    fn the_age_of_a_snapshot_counts_from_its_end_and_unfinished_backups_have_no_orphans() {
        let unfinished = vec![UnfinishedBackup { name: "running".into(), uid: "uid-1".into() }];
        let references = References { unfinished, ..References::default() };
        let cases: [Case<'_>; 8] = [
            ("unknown end", None, &[], true),
            ("took ten minutes", Some(10), &[], true),
            ("ended an hour ago", Some(120), &[], true),
            ("ended just now", Some(179), &[], false),
            ("the clock was set back", Some(-500), &[], true),
            ("its backup is running", None, &[("backup", "running"), ("backup-uid", "uid-1")], false),
            ("another backup of that name is running", None, &[("backup", "running"), ("backup-uid", "uid-0")], true),
            ("a backup of that name is running, without a UID", None, &[("backup", "running")], false),
        ];
        for (case, ended, tags, expected) in cases {
            let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let one = [SnapshotInfo { ended: ended.map(at), tags, ..snapshot("aaaaaaaaaaaa", 0) }];
            let found_orphans = orphaned_snapshots(&one, &references, SignedDuration::from_hours(1), at(180));
            assert_eq!(!found_orphans.is_empty(), expected, "{case}");
        }
    }

    #[test]
    fn repository_prefixes_match_velero() {
        assert_eq!(repository_prefix(MoverKind::Kopia, "", "shop"), "kopia/shop");
        assert_eq!(repository_prefix(MoverKind::BuiltIn, "/cluster/", "shop"), "cluster/restic/shop");
    }

    #[test]
    fn veleros_default_password_is_a_warning() {
        assert_eq!(password_warnings(b"static-passw0rd").len(), 1);
        assert!(password_warnings(b"another").is_empty());
    }
}
