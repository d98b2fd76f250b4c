//! Queue admission: a pure function of what runs and what waits.

use std::collections::BTreeSet;

/// A subject that runs, or that waits and was created earlier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueEntry {
    pub name: String,
    /// Has started, or is about to.
    pub running: bool,
    /// The namespaces no other subject may work on meanwhile.
    pub namespaces: BTreeSet<String>,
}

/// Why a subject has to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueObstacle {
    /// The subjects it waits for.
    pub behind: Vec<String>,
    /// The position among those that wait, from one.
    pub position: usize,
    /// Both work on the same namespaces; otherwise the concurrency limit is reached.
    pub same_namespaces: bool,
}

/// Whether `mine` may start. `ahead` is every subject that runs, then every earlier one, in order. At most `limit` run at the
/// same time, no two of them in the same namespace. A subject that cannot start yet does not block those behind it, unless they
/// share a namespace with it.
pub fn admit(mine: &QueueEntry, ahead: &[QueueEntry], limit: usize) -> Result<(), QueueObstacle> {
    let waiting = ahead.iter().filter(|entry| !entry.running).count();
    let blocked =
        |behind: Vec<String>, same_namespaces| QueueObstacle { behind, position: waiting + 1, same_namespaces };
    let conflicting: Vec<_> =
        ahead.iter().filter(|entry| overlap(entry, mine)).map(|entry| entry.name.clone()).collect();
    if !conflicting.is_empty() {
        return Err(blocked(conflicting, true));
    }
    let may_start = |(position, entry): &(usize, &QueueEntry)| {
        entry.running || !ahead[..*position].iter().any(|earlier| overlap(earlier, entry))
    };
    let first: Vec<_> = ahead.iter().enumerate().filter(may_start).map(|(_, entry)| entry.name.clone()).collect();
    if first.len() < limit { Ok(()) } else { Err(blocked(first, false)) }
}

fn overlap(one: &QueueEntry, other: &QueueEntry) -> bool {
    !one.namespaces.is_disjoint(&other.namespaces)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, running: bool, namespaces: &[&str]) -> QueueEntry {
        let namespaces = namespaces.iter().map(|name| (*name).to_owned()).collect();
        QueueEntry { name: name.to_owned(), running, namespaces }
    }

    fn blocked(behind: &[&str], position: usize, same_namespaces: bool) -> Result<(), QueueObstacle> {
        Err(QueueObstacle { behind: behind.iter().map(|name| (*name).to_owned()).collect(), position, same_namespaces })
    }

    #[test]
    fn the_table() {
        let mine = entry("mine", false, &["a"]);
        let (same, other) = (entry("same", true, &["a", "b"]), entry("other", true, &["b"]));
        let (waits_same, waits_other) = (entry("waits-same", false, &["a"]), entry("waits-other", false, &["b"]));
        let cases = [
            ("nothing is ahead", vec![], 1, Ok(())),
            ("one runs, one may", vec![other.clone()], 1, blocked(&["other"], 1, false)),
            ("one runs, two may", vec![other.clone()], 2, Ok(())),
            ("one runs in the same namespace", vec![same.clone()], 2, blocked(&["same"], 1, true)),
            ("an earlier one waits", vec![waits_other.clone()], 1, blocked(&["waits-other"], 2, false)),
            ("an earlier one may go too", vec![waits_other.clone()], 2, Ok(())),
            ("an earlier one with the same namespace", vec![waits_same], 2, blocked(&["waits-same"], 2, true)),
            ("an earlier one that cannot go yet is passed", vec![other, waits_other], 2, Ok(())),
        ];
        for (name, ahead, limit, expected) in cases {
            assert_eq!(admit(&mine, &ahead, limit), expected, "{name}");
        }
    }
}
