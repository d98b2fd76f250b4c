//! No row shows more done than its total, whatever counted it.

use plimsoll_progress::{Frame, Operation, Snapshot, Total, Unit, VirtualClock, view};
use proptest::prelude::*;
use serde_json::{Value, json};

/// What a worker, a program or another process may say, whether or not it makes sense.
#[derive(Clone, Debug)]
struct Report {
    unit: &'static str,
    done: u64,
    skipped: u64,
    failed: u64,
    total: Total,
}

impl Report {
    fn to_json(&self) -> Value {
        let Self { unit, done, skipped, failed, total } = self;
        json!({ "unit": unit, "done": done, "skipped": skipped, "failed": failed, "total": total })
    }
}

fn report() -> impl Strategy<Value = Report> {
    let number = || prop_oneof![4 => 0..50_u64, 2 => 0..9_000_000_000_u64, 1 => any::<u64>()];
    let total = prop_oneof![
        1 => Just(Total::Unknown),
        3 => number().prop_map(Total::Growing),
        3 => number().prop_map(Total::Final),
    ];
    let unit = prop::sample::select(vec!["items", "bytes", "files", "steps"]);
    let counts = (number(), prop_oneof![3 => Just(0), 1 => number()], prop_oneof![3 => Just(0), 1 => number()]);
    (unit, counts, total).prop_map(|(unit, (done, skipped, failed), total)| Report {
        unit,
        done,
        skipped,
        failed,
        total,
    })
}

/// A tree as a process or a custom resource may write it: a stage with a task for each report.
fn written(reports: &[Report], state: &str) -> Value {
    let task = |(index, report): (usize, &Report)| {
        json!({ "path": format!("stage/{index}"), "name": index.to_string(), "state": state,
            "meters": [report.to_json()] })
    };
    let head = [json!({ "path": "", "name": "o", "state": state }), json!({ "path": "stage", "name": "stage" })];
    let nodes: Vec<Value> = head.into_iter().chain(reports.iter().enumerate().map(task)).collect();
    json!({ "version": 1, "operation": "o", "epoch": 1, "sequence": 1, "full": true, "nodes": nodes })
}

/// Checks the numbers, and what a reader can see of them.
fn check_rows(tree: &Snapshot) {
    for counts in tree.nodes.iter().flat_map(|node| &node.meters) {
        assert!(counts.total.value().is_none_or(|total| counts.settled() <= total), "{counts:?}");
    }
    for unit in [Unit::Items, Unit::Bytes, Unit::Files, Unit::Steps] {
        let sum = tree.sum(unit);
        assert!(sum.is_none_or(|sum| sum.total.value().is_none_or(|total| sum.settled() <= total)), "{sum:?}");
    }
    for most in [3, 300] {
        for row in view::rows_within(tree, most) {
            for text in row.counts.split(", ") {
                check_fraction(text);
            }
            assert_ne!(row.bytes, "0 B", "an unknown total shows no bytes: {row:?}");
            assert!(!row.bytes.ends_with("~0 B"), "{row:?}");
        }
    }
}

/// `12/~40 items`.
fn check_fraction(text: &str) {
    let Some((done, rest)) = text.split_once('/') else { return };
    let total: String = rest.trim_start_matches('~').chars().take_while(char::is_ascii_digit).collect();
    let (done, total): (u64, u64) = (done.parse().expect("a number"), total.parse().expect("a number"));
    assert!(done <= total, "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_row_shows_more_done_than_there_is(
        here in prop::collection::vec(report(), 0..4), there in prop::collection::vec(report(), 0..4),
        saved in prop::collection::vec(report(), 0..4),
        state in prop::sample::select(vec!["pending", "running", "waiting", "done", "failed", "cancelled"]),
    ) {
        // What an earlier process saved, what this one counts, and what another one reports.
        let clock = VirtualClock::new();
        let saved: Snapshot = serde_json::from_value(written(&saved, "running")).expect("a tree");
        check_rows(&saved);
        let (operation, gap) = Operation::resume(&saved, "pod-a", clock.clock());
        drop(gap);
        let stage = operation.root().child("stage");
        let tasks: Vec<_> = here.iter().enumerate().map(|(index, report)| {
            let task = stage.child(index.to_string());
            let unit = serde_json::from_value(json!(report.unit)).expect("a unit");
            let meter = task.meter(unit);
            meter.add(report.done >> 2);
            meter.set_total(report.total);
            meter.skip(report.skipped >> 2);
            meter.fail(report.failed >> 2);
            task
        }).collect();
        check_rows(&operation.snapshot());
        let graft = operation.root().graft("agent");
        graft.apply(&Frame::from_line(&written(&there, state).to_string()).expect("a frame")).expect("its first");
        check_rows(&operation.snapshot());
        tasks.iter().step_by(2).for_each(plimsoll_progress::Task::finish);
        check_rows(&operation.snapshot());
        operation.end(plimsoll_progress::Ending::Succeeded);
        check_rows(&operation.snapshot());
    }
}
