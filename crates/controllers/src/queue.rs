//! Whose turn it is: a pure function of who runs and who waits.

use std::collections::BTreeSet;

/// Somebody who runs, or who waits and came earlier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    /// Has begun, or has been told to.
    pub running: bool,
    /// What nobody else may work on meanwhile.
    pub namespaces: BTreeSet<String>,
}

/// Why somebody has to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// For whom.
    pub behind: Vec<String>,
    /// The place among those who wait, from one.
    pub position: usize,
    /// They work on the same namespaces; otherwise there are simply too many.
    pub same_namespaces: bool,
}

/// Whether `mine` may go. `ahead` is everybody who runs, and then everybody who came earlier, in order. At most `limit` run at
/// the same time, no two of them in the same namespace; who cannot go yet does not hold up those behind it, unless they share
/// a namespace with it.
pub fn turn(mine: &Entry, ahead: &[Entry], limit: usize) -> Result<(), Blocked> {
    let waiting = ahead.iter().filter(|entry| !entry.running).count();
    let blocked = |behind: Vec<String>, same_namespaces| Blocked { behind, position: waiting + 1, same_namespaces };
    let in_the_way: Vec<_> =
        ahead.iter().filter(|entry| overlap(entry, mine)).map(|entry| entry.name.clone()).collect();
    if !in_the_way.is_empty() {
        return Err(blocked(in_the_way, true));
    }
    let goes = |(place, entry): &(usize, &Entry)| {
        entry.running || !ahead[..*place].iter().any(|earlier| overlap(earlier, entry))
    };
    let first: Vec<_> = ahead.iter().enumerate().filter(goes).map(|(_, entry)| entry.name.clone()).collect();
    if first.len() < limit { Ok(()) } else { Err(blocked(first, false)) }
}

fn overlap(one: &Entry, other: &Entry) -> bool {
    !one.namespaces.is_disjoint(&other.namespaces)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, running: bool, namespaces: &[&str]) -> Entry {
        let namespaces = namespaces.iter().map(|name| (*name).to_owned()).collect();
        Entry { name: name.to_owned(), running, namespaces }
    }

    fn blocked(behind: &[&str], position: usize, same_namespaces: bool) -> Result<(), Blocked> {
        Err(Blocked { behind: behind.iter().map(|name| (*name).to_owned()).collect(), position, same_namespaces })
    }

    #[test]
    fn the_table() {
        let mine = entry("mine", false, &["a"]);
        let (same, other) = (entry("same", true, &["a", "b"]), entry("other", true, &["b"]));
        let (waits_same, waits_other) = (entry("waits-same", false, &["a"]), entry("waits-other", false, &["b"]));
        let cases = [
            ("nobody is there", vec![], 1, Ok(())),
            ("one runs, one may", vec![other.clone()], 1, blocked(&["other"], 1, false)),
            ("one runs, two may", vec![other.clone()], 2, Ok(())),
            ("one runs in the same namespace", vec![same.clone()], 2, blocked(&["same"], 1, true)),
            ("an earlier one waits", vec![waits_other.clone()], 1, blocked(&["waits-other"], 2, false)),
            ("an earlier one may go too", vec![waits_other.clone()], 2, Ok(())),
            ("an earlier one with the same namespace", vec![waits_same], 2, blocked(&["waits-same"], 2, true)),
            ("an earlier one that cannot go yet is passed", vec![other, waits_other], 2, Ok(())),
        ];
        for (name, ahead, limit, expected) in cases {
            assert_eq!(turn(&mine, &ahead, limit), expected, "{name}");
        }
    }
}
