//! The progress that was shown before an operation is resumed: nothing shown afterwards may be less.
//!
//! Two records hold it. The Operation has the whole tree but is written every few seconds; the subject has its own counters, at
//! most a second old. Where both exist, the larger number counts; without the Operation, the subject's own fields remain.

use plimsoll_progress::{Counts, Percent, Snapshot, Total, Unit};
use serde_json::{Value, json};

/// The item counters in the status of a kind.
#[derive(Clone, Copy, Debug)]
pub struct ItemCounters {
    /// The stage whose meter counts them.
    pub stage: &'static str,
    /// The counter of those that are done.
    pub done: &'static str,
}

impl ItemCounters {
    /// For a kind without counters of its own.
    pub const NONE: Self = Self { stage: "", done: "" };
}

/// The tree to resume from, if any progress was ever shown.
pub fn progress_floor(
    operation: &str,
    saved: Option<Snapshot>,
    subject: &Value,
    counters: ItemCounters,
) -> Option<Snapshot> {
    let items = items(subject, counters);
    let percent = subject.pointer("/status/plimsoll/percent").and_then(Value::as_str);
    let percent = percent.and_then(|text| text.parse::<Percent>().ok());
    let mut tree = match saved {
        Some(saved) => saved,
        None if items.is_none() && percent.is_none() => return None,
        None if counters.stage.is_empty() => return None,
        None => bare_tree(operation, counters.stage)?,
    };
    raise_percent(&mut tree, percent);
    if let Some(items) = items {
        raise_items(&mut tree, items, counters.stage);
    }
    Some(tree)
}

fn items(subject: &Value, counters: ItemCounters) -> Option<Counts> {
    let progress = subject.pointer("/status/progress").filter(|_| !counters.stage.is_empty())?;
    let field = |name: &str| progress.get(name).and_then(Value::as_u64);
    Some(Counts {
        done: field(counters.done)?,
        skipped: field("itemsSkipped").unwrap_or(0),
        failed: field("itemsFailed").unwrap_or(0),
        total: field("totalItems").map_or(Total::Unknown, Total::Growing),
        ..Counts::zero(Unit::Items)
    })
}

/// The root and the one stage that is known to exist.
fn bare_tree(operation: &str, stage: &str) -> Option<Snapshot> {
    let root = json!({ "path": "", "name": operation, "state": "running" });
    let stage = json!({ "path": stage, "name": stage, "state": "running" });
    serde_json::from_value(json!({ "operation": operation, "nodes": [root, stage] })).ok()
}

fn raise_percent(tree: &mut Snapshot, shown: Option<Percent>) {
    let Some(root) = tree.nodes.first_mut() else { return };
    let known = root.percent.map_or(0, Percent::hundredths);
    root.percent = shown.filter(|percent| percent.hundredths() > known).or(root.percent);
}

fn raise_items(tree: &mut Snapshot, items: Counts, stage: &str) {
    let Some(node) = tree.nodes.iter_mut().find(|node| &*node.path == stage) else { return };
    match node.meters.iter_mut().find(|counts| counts.unit == Unit::Items) {
        Some(known) if known.settled() >= items.settled() => {}
        Some(known) => *known = items,
        None => node.meters.insert(0, items),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_progress::{Clock, Operation};

    use super::*;

    const BACKUP: ItemCounters = ItemCounters { stage: "reading", done: "itemsBackedUp" };

    fn subject(done: u64, percent: &str) -> Value {
        json!({ "status": { "progress": { "totalItems": 50, "itemsBackedUp": done }, "plimsoll": { "percent": percent } } })
    }

    fn saved(done: u64) -> Snapshot {
        let operation = Operation::new("backup-x", Clock::system());
        let items = operation.root().child("reading").meter(Unit::Items);
        items.set_total(Total::Growing(50));
        items.add(done);
        operation.snapshot()
    }

    fn shown(tree: &Snapshot) -> (u64, String) {
        let (operation, _gap) = Operation::resume(tree, "a", Clock::system());
        let snapshot = operation.snapshot();
        let items = snapshot.node("reading").unwrap().counts(Unit::Items).unwrap().done;
        (items, snapshot.percent().map(Percent::plain).unwrap_or_default())
    }

    #[test]
    fn the_larger_of_both_records_is_the_floor() {
        let (items, percent) =
            shown(&progress_floor("backup-x", Some(saved(20)), &subject(48, "~96.00"), BACKUP).unwrap());
        assert_eq!((items, percent.as_str()), (48, "96.00"));
        let (items, _) = shown(&progress_floor("backup-x", Some(saved(49)), &subject(48, "~96.00"), BACKUP).unwrap());
        assert_eq!(items, 49);
    }

    #[test]
    fn without_an_operation_the_subject_s_own_fields_are_the_floor() {
        let (items, percent) = shown(&progress_floor("backup-x", None, &subject(48, "~96.00"), BACKUP).unwrap());
        assert_eq!((items, percent.as_str()), (48, "96.00"));
    }

    #[test]
    fn where_nothing_was_shown_there_is_no_floor() {
        assert!(progress_floor("backup-x", None, &json!({ "status": { "phase": "InProgress" } }), BACKUP).is_none());
    }
}
