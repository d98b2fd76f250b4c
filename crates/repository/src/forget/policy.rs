//! Retention policies, with the rules of restic's forget.

pub use super::calendar::CalendarDuration;
use super::calendar::Period;
use crate::format::id::Id;
use crate::format::snapshot::Snapshot;

/// Which snapshots of a group to keep. The rules add up: a snapshot is kept if one of them keeps it. `u32::MAX` is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// The newest snapshots.
    pub last: u32,
    /// The newest snapshot of each of the last hours that have one.
    pub hourly: u32,
    /// Likewise of days.
    pub daily: u32,
    /// Likewise of weeks.
    pub weekly: u32,
    /// Likewise of months.
    pub monthly: u32,
    /// Likewise of years.
    pub yearly: u32,
    /// All snapshots that are not older, counted from the newest one.
    pub within: Option<CalendarDuration>,
    /// All snapshots with one of these tags.
    pub tags: Vec<String>,
}

/// A snapshot and why it is kept.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Its ID.
    pub id: Id,
    /// The snapshot.
    pub snapshot: Snapshot,
    /// The rules that keep it. Without any it is to be removed.
    pub reasons: Vec<String>,
}

/// The snapshots of one host and the same paths, newest first.
#[derive(Clone, Debug)]
pub struct SnapshotGroup {
    /// The host name.
    pub hostname: String,
    /// The recorded paths.
    pub paths: Vec<String>,
    /// Its snapshots.
    pub snapshots: Vec<Kept>,
}

impl SnapshotGroup {
    /// The snapshots that no rule keeps.
    pub fn removed(&self) -> impl Iterator<Item = &Kept> {
        self.snapshots.iter().filter(|kept| kept.reasons.is_empty())
    }
}

/// A count without a limit.
const ALL: u32 = u32::MAX;

/// One rule while snapshots are visited.
struct Rule {
    name: &'static str,
    remaining: u32,
    /// `None` for a rule that counts snapshots.
    period: Option<Period>,
    last: Option<i64>,
}

impl Rule {
    /// Whether the rule keeps this snapshot. The oldest one is kept while a count is left: a policy of 12 months keeps it until there
    /// are 12 later ones.
    fn keeps(&mut self, snapshot: &Snapshot, is_oldest: bool) -> bool {
        if self.remaining == 0 {
            return false;
        }
        let number = self.period.map(|period| period.number(&snapshot.time));
        let is_new = number.is_none() || number != self.last;
        if !is_new && !is_oldest {
            return false;
        }
        self.last = number;
        if self.remaining != ALL {
            self.remaining -= 1;
        }
        true
    }
}

impl RetentionPolicy {
    /// Whether it has no rule. It would remove everything.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Groups the snapshots by host and paths, and decides which to keep of each group.
    pub fn apply(&self, mut snapshots: Vec<(Id, Snapshot)>) -> Vec<SnapshotGroup> {
        snapshots.sort_by_key(|(_, snapshot)| std::cmp::Reverse(snapshot.time));
        let mut groups: Vec<SnapshotGroup> = Vec::new();
        for (id, snapshot) in snapshots {
            let is_same =
                |group: &&mut SnapshotGroup| group.hostname == snapshot.hostname && group.paths == snapshot.paths;
            let kept = Kept { id, snapshot: snapshot.clone(), reasons: Vec::new() };
            match groups.iter_mut().find(is_same) {
                Some(group) => group.snapshots.push(kept),
                None => groups.push(SnapshotGroup {
                    hostname: snapshot.hostname,
                    paths: snapshot.paths,
                    snapshots: vec![kept],
                }),
            }
        }
        for group in &mut groups {
            self.apply_to_group(group);
        }
        groups
    }

    fn apply_to_group(&self, group: &mut SnapshotGroup) {
        let mut rules = [
            ("last", self.last, None),
            ("hourly", self.hourly, Some(Period::Hour)),
            ("daily", self.daily, Some(Period::Day)),
            ("weekly", self.weekly, Some(Period::Week)),
            ("monthly", self.monthly, Some(Period::Month)),
            ("yearly", self.yearly, Some(Period::Year)),
        ]
        .map(|(name, remaining, period)| Rule { name, remaining, period, last: None });
        let newest = group.snapshots.first().map(|kept| kept.snapshot.time);
        let oldest = group.snapshots.len().saturating_sub(1);
        for (position, kept) in group.snapshots.iter_mut().enumerate() {
            for rule in &mut rules {
                if rule.keeps(&kept.snapshot, position == oldest) {
                    kept.reasons.push(rule.name.into());
                }
            }
            let within = newest
                .zip(self.within)
                .is_some_and(|(newest, within)| kept.snapshot.time.seconds > within.before(&newest));
            if within {
                kept.reasons.push("within".into());
            }
            let tag = self.tags.iter().find(|tag| kept.snapshot.tags.contains(tag));
            kept.reasons.extend(tag.map(|tag| format!("tag {tag}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::time::Time;

    fn snapshot(host: &str, time: &str, tags: &[&str]) -> (Id, Snapshot) {
        let json = format!(r#"{{"time":"{time}","tree":"{}","hostname":"{host}","paths":["/data"]}}"#, Id::default());
        let parsed = Snapshot::parse(json.as_bytes()).expect("valid");
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        (Id::of(format!("{host} {time}").as_bytes()), Snapshot { tags, ..parsed })
    }

    /// The times of the kept snapshots, up to the hour.
    fn kept(policy: &RetentionPolicy, snapshots: Vec<(Id, Snapshot)>) -> Vec<String> {
        let groups = policy.apply(snapshots);
        let all = groups.iter().flat_map(|group| &group.snapshots);
        all.filter(|kept| !kept.reasons.is_empty())
            .map(|kept| kept.snapshot.time.to_string()[..13].to_owned())
            .collect()
    }

    fn hourly(days: i64) -> Vec<(Id, Snapshot)> {
        let start = Time::parse("2026-01-01T00:30:00Z").expect("a time").seconds;
        let time = |hour: i64| Time::utc(start + hour * 3600, 0).to_string();
        (0..days * 24).map(|hour| snapshot("host", &time(hour), &[])).collect()
    }

    #[test]
    fn each_rule_keeps_the_newest_of_its_periods() {
        let policy = RetentionPolicy { last: 2, daily: 3, ..RetentionPolicy::default() };
        assert_eq!(kept(&policy, hourly(10)), ["2026-01-10T23", "2026-01-10T22", "2026-01-09T23", "2026-01-08T23"]);
        let policy = RetentionPolicy { weekly: 2, hourly: 1, ..RetentionPolicy::default() };
        assert_eq!(kept(&policy, hourly(12)), ["2026-01-12T23", "2026-01-11T23"], "the 11th is a Sunday");
    }

    #[test]
    fn the_oldest_snapshot_is_kept_while_a_count_is_left() {
        let policy = RetentionPolicy { monthly: 12, ..RetentionPolicy::default() };
        assert_eq!(kept(&policy, hourly(40)), ["2026-02-09T23", "2026-01-31T23", "2026-01-01T00"]);
        let policy = RetentionPolicy { daily: 2, ..RetentionPolicy::default() };
        assert_eq!(kept(&policy, hourly(40)), ["2026-02-09T23", "2026-02-08T23"]);
    }

    #[test]
    fn snapshots_within_a_duration_of_the_newest_and_with_a_tag_are_kept() {
        let within = CalendarDuration::parse("2h");
        let policy = RetentionPolicy { within, tags: vec!["keep".into()], ..RetentionPolicy::default() };
        let mut snapshots = hourly(1);
        snapshots[3].1.tags = vec!["keep".into()];
        assert_eq!(kept(&policy, snapshots), ["2026-01-01T23", "2026-01-01T22", "2026-01-01T03"]);
    }

    #[test]
    fn hosts_are_separate_groups() {
        let policy = RetentionPolicy { last: 1, ..RetentionPolicy::default() };
        let snapshots = vec![snapshot("a", "2026-01-01T00:00:00Z", &[]), snapshot("b", "2026-01-02T00:00:00Z", &[])];
        assert_eq!(kept(&policy, snapshots), ["2026-01-02T00", "2026-01-01T00"]);
        assert!(RetentionPolicy::default().is_empty() && !policy.is_empty());
    }
}
