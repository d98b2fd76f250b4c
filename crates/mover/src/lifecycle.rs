//! What a leader decides about repositories: pure, on what the movers tell.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use crate::job::Kind;
use crate::outcome::{LockInfo, SnapshotInfo};
use crate::place::Place;

/// The password that Velero gives to every repository unless somebody sets another one.
pub const DEFAULT_PASSWORD: &[u8] = b"static-passw0rd";

/// The warning about it, if this is it.
pub(crate) fn password_warnings(password: &[u8]) -> Vec<String> {
    let known = password.trim_ascii() == DEFAULT_PASSWORD;
    let warning = "the repository's password is Velero's default, which everybody knows: whoever can read the bucket can \
                   read the backups";
    known.then(|| warning.to_owned()).into_iter().collect()
}

/// Where the repository of a namespace lies below a location's own prefix.
pub fn repository_prefix(kind: Kind, location_prefix: &str, namespace: &str) -> String {
    let folder = format!("{}/{namespace}", kind.uploader_type());
    match location_prefix.trim_matches('/') {
        "" => folder,
        prefix => format!("{prefix}/{folder}"),
    }
}

/// restic's own name for a place, where restic knows such places.
pub fn restic_identifier(place: &Place) -> Option<String> {
    crate::restic::address(&place.location()).ok()
}

/// What refers to snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// The snapshots that some backup names. They may be the short IDs that older restics tell.
    pub snapshots: Vec<String>,
    /// The backups that may yet name one.
    pub unfinished: Vec<Unfinished>,
}

/// A backup that has not ended: its snapshots know its name before it knows theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl References {
    fn name(&self, snapshot: &SnapshotInfo) -> bool {
        self.snapshots.iter().any(|known| known.len() >= 8 && snapshot.id.starts_with(known.as_str()))
    }

    fn may_yet_name(&self, snapshot: &SnapshotInfo) -> bool {
        let tag = |key: &str| snapshot.tags.get(key).map(String::as_str);
        let is_of = |backup: &Unfinished| match tag("backup-uid") {
            Some(uid) => uid == backup.uid,
            None => tag("backup") == Some(&backup.name),
        };
        self.unfinished.iter().any(is_of)
    }
}

/// Snapshots that no known backup refers to, or may yet refer to, and that have been there for `age`. A bucket may have other
/// owners: they are for a report, never for deletion without somebody asking.
///
/// # Assumptions
/// The snapshots were listed first, then the unfinished backups were read, then what backups name. A backup that ends between
/// two of these steps is then known by one of them, whatever the order of its own.
pub fn orphans<'s>(
    snapshots: &'s [SnapshotInfo],
    references: &References,
    age: SignedDuration,
    now: Timestamp,
) -> Vec<&'s SnapshotInfo> {
    let old = |snapshot: &SnapshotInfo| now.duration_since(snapshot.made()) >= age;
    let is_orphan =
        |snapshot: &&SnapshotInfo| old(snapshot) && !references.name(snapshot) && !references.may_yet_name(snapshot);
    snapshots.iter().filter(is_orphan).collect()
}

/// The UID of the pod that this process runs in, as `plimsoll install` tells it.
pub fn own_pod() -> Option<String> {
    std::env::var("POD_UID").ok().filter(|uid| !uid.is_empty())
}

/// What is known about the holder of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Nothing: another cluster, or somebody's laptop.
    Unknown,
    /// A process of ours, and it lives.
    OursAlive,
    /// A process in one of our pods: the pod lives, of the process nothing is known.
    OursInPod,
    /// One of our pods or processes, and it is gone.
    OursGone,
}

/// Decides which locks may be removed: those whose holder is ours and gone, and those that are older than half an hour and
/// were found unchanged twice. A holder that lives writes its lock anew every five minutes.
#[derive(Debug, Default)]
pub struct LockWatch {
    looks: HashMap<String, Looks>,
}

#[derive(Clone, Copy, Debug)]
struct Looks {
    last: Timestamp,
    unchanged: u32,
}

const OLD: SignedDuration = SignedDuration::from_mins(30);
/// Two looks closer than this are one: between them even a lock that is alive need not have changed.
const APART: SignedDuration = SignedDuration::from_mins(6);

impl LockWatch {
    /// Takes note of the locks there are now, and answers which of them may be removed.
    pub fn observe(&mut self, locks: &[LockInfo], now: Timestamp, holder: impl Fn(&LockInfo) -> Holder) -> Vec<String> {
        self.looks.retain(|id, _| locks.iter().any(|lock| lock.id == *id));
        let mut removable = Vec::new();
        for lock in locks {
            let looks = self.looks.entry(lock.id.clone()).or_insert(Looks { last: now, unchanged: 0 });
            if now.duration_since(looks.last) >= APART {
                *looks = Looks { last: now, unchanged: looks.unchanged + 1 };
            }
            let abandoned = now.duration_since(lock.time) > OLD && looks.unchanged >= 2;
            match holder(lock) {
                Holder::OursGone => removable.push(lock.id.clone()),
                Holder::Unknown | Holder::OursInPod if abandoned => removable.push(lock.id.clone()),
                Holder::Unknown | Holder::OursInPod | Holder::OursAlive => {}
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
    fn a_lock_of_ours_goes_as_soon_as_its_holder_is_gone_and_never_while_it_lives() {
        let mut watch = LockWatch::default();
        assert_eq!(watch.observe(&[lock("a", 0)], at(0), |_| Holder::OursGone), ["a"]);
        for minute in [0, 40, 80, 120] {
            assert!(watch.observe(&[lock("b", 0)], at(minute), |_| Holder::OursAlive).is_empty());
        }
    }

    #[test]
    fn a_lock_of_a_killed_process_in_a_pod_that_lives_goes_like_a_strangers() {
        let mut watch = LockWatch::default();
        let mut look = |minute| !watch.observe(&[lock("a", 0)], at(minute), |_| Holder::OursInPod).is_empty();
        assert!(!look(31) && !look(38), "whoever lives writes another one every five minutes");
        assert!(look(45));
    }

    #[test]
    fn a_strangers_lock_goes_only_when_it_is_old_and_was_found_unchanged_twice() {
        let mut watch = LockWatch::default();
        let mut look = |id: &str, minute| !watch.observe(&[lock(id, 0)], at(minute), |_| Holder::Unknown).is_empty();
        assert!(!look("a", 31), "old, but seen for the first time");
        assert!(!look("a", 32), "too soon to be a second look");
        assert!(!look("a", 38), "unchanged once");
        assert!(!look("b", 45), "refreshed: another lock");
        assert!(!look("b", 52));
        assert!(look("b", 59), "unchanged twice");
        let mut watch = LockWatch::default();
        for minute in [0, 7, 14, 21, 28] {
            assert!(watch.observe(&[lock("young", 0)], at(minute), |_| Holder::Unknown).is_empty());
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
        let known = References { snapshots, ..References::default() };
        let found = orphans(&all, &known, SignedDuration::from_mins(60), at(100));
        assert_eq!(found.iter().map(|snapshot| snapshot.id.as_str()).collect::<Vec<_>>(), ["cccccccccccc"]);
    }

    /// What it is about, minutes until its end, its tags, and whether it is an orphan.
    type Case<'c> = (&'c str, Option<i64>, &'c [(&'c str, &'c str)], bool);

    #[test]
    fn a_snapshot_is_as_old_as_its_end_and_none_of_a_backup_that_has_not_ended_is_an_orphan() {
        let unfinished = vec![Unfinished { name: "running".into(), uid: "uid-1".into() }];
        let references = References { unfinished, ..References::default() };
        let cases: [Case<'_>; 8] = [
            ("nothing is known of its end", None, &[], true),
            ("it was made in ten minutes", Some(10), &[], true),
            ("it took until an hour ago", Some(120), &[], true),
            ("it took until just now", Some(179), &[], false),
            ("its clock was set back meanwhile", Some(-500), &[], true),
            ("its backup runs", None, &[("backup", "running"), ("backup-uid", "uid-1")], false),
            ("another one of that name runs", None, &[("backup", "running"), ("backup-uid", "uid-0")], true),
            ("one of that name runs, and no more is known", None, &[("backup", "running")], false),
        ];
        for (case, ended, tags, expected) in cases {
            let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let one = [SnapshotInfo { ended: ended.map(at), tags, ..snapshot("aaaaaaaaaaaa", 0) }];
            let found = orphans(&one, &references, SignedDuration::from_hours(1), at(180));
            assert_eq!(!found.is_empty(), expected, "{case}");
        }
    }

    #[test]
    fn repositories_lie_where_velero_puts_them() {
        assert_eq!(repository_prefix(Kind::Kopia, "", "shop"), "kopia/shop");
        assert_eq!(repository_prefix(Kind::BuiltIn, "/cluster/", "shop"), "cluster/restic/shop");
    }

    #[test]
    fn veleros_default_password_is_a_warning() {
        assert_eq!(password_warnings(b"static-passw0rd").len(), 1);
        assert!(password_warnings(b"another").is_empty());
    }
}
