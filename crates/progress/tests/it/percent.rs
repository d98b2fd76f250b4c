//! Percentages as they are shown.

use std::time::Duration;

use plimsoll_progress::{Clock, Ending, Operation, Percent, Snapshot, Task, Total, Unit, VirtualClock, percent_string};
use proptest::prelude::*;

fn shown(snapshot: &Snapshot, path: &str) -> String {
    snapshot.node(path).and_then(|node| node.percent).map_or_else(|| "none".to_owned(), |percent| percent.to_string())
}

#[test]
fn a_percentage_is_cut_and_not_rounded() {
    let table = [
        ((1, 3), "33.33"),
        ((2, 3), "66.66"),
        ((99_996, 100_000), "99.99"),
        ((0, 7), "0.00"),
        ((0, 0), "0.00"),
        ((7, 7), "99.99"),
        ((u64::MAX, u64::MAX), "99.99"),
        ((1, u64::MAX), "0.00"),
        ((9, 7), "99.99"),
    ];
    for ((done, total), expected) in table {
        assert_eq!(percent_string(done, total, false), expected, "{done} of {total}");
        assert_eq!(percent_string(done, total, true), "100.00");
    }
}

proptest! {
    #[test]
    fn the_shown_value_is_the_largest_with_two_decimals_that_is_not_above_the_true_one(total in 1..u64::MAX, part in any::<u64>()) {
        let done = part % total;
        let hundredths = u128::from(Percent::of(done, total).hundredths());
        let (done, total) = (u128::from(done), u128::from(total));
        prop_assert!(hundredths * total <= done * 10_000);
        prop_assert!((hundredths + 1) * total > done * 10_000);
    }

    #[test]
    fn a_percentage_survives_the_wire(hundredths in 0..=10_000_u16, mark in 0..3_usize) {
        let text = format!("{}{}.{:02}", ["", "~", "≥"][mark], hundredths / 100, hundredths % 100);
        let percent: Percent = text.parse().expect("a percentage");
        prop_assert_eq!(percent.to_string(), text);
        prop_assert_eq!(percent.hundredths(), hundredths);
    }
}

#[test]
fn what_is_no_percentage_is_refused() {
    for text in ["", "~", "5", "5.5", "100.01", "-1.00", "1000.00", "43,33", "~~1.00", " 1.00", "+1.00", "1.0a"] {
        assert!(text.parse::<Percent>().is_err(), "{text:?}");
    }
}

#[test]
fn it_is_absent_while_unknown_marked_while_growing_and_held_when_the_total_grows() {
    let operation = Operation::new("restore", Clock::system());
    let meter = operation.root().meter(Unit::Items);
    meter.add(5);
    assert_eq!(shown(&operation.snapshot(), ""), "none");
    meter.set_total(Total::Growing(10));
    assert_eq!(shown(&operation.snapshot(), ""), "~50.00");
    meter.set_total(Total::Growing(100));
    assert_eq!(shown(&operation.snapshot(), ""), "≥50.00", "held");
    meter.add(50);
    assert_eq!(shown(&operation.snapshot(), ""), "~55.00", "caught up");
    meter.set_total(Total::Final(100));
    assert_eq!(shown(&operation.snapshot(), ""), "55.00");
    meter.skip(40);
    meter.fail(5);
    assert_eq!(shown(&operation.snapshot(), ""), "99.99", "all settled, but not ended");
    operation.end(Ending::Succeeded);
    assert_eq!(shown(&operation.snapshot(), ""), "100.00");
}

#[test]
fn an_action_is_the_plain_mean_of_its_phases() {
    let operation = Operation::new("action", Clock::system());
    let action = operation.root();
    action.equal_weights();
    let first = action.planned("updatePermissions");
    let second = action.planned("dumpToObjectStore");
    let third = action.planned("cleanup");
    second.expect_duration(Duration::from_hours(10));
    assert_eq!(shown(&operation.snapshot(), ""), "0.00");
    first.start();
    first.finish();
    second.start();
    let bytes = second.meter(Unit::Bytes);
    bytes.set_total(Total::Final(100));
    bytes.add(30);
    assert_eq!(shown(&operation.snapshot(), ""), "43.33");
    second.finish();
    third.start();
    assert_eq!(shown(&operation.snapshot(), ""), "66.66");
    third.finish();
    assert_eq!(shown(&operation.snapshot(), ""), "99.99");
    operation.end(Ending::Succeeded);
    assert_eq!(shown(&operation.snapshot(), ""), "100.00");
}

#[test]
fn a_function_in_three_steps_shows_thirds() {
    let operation = Operation::new("action", Clock::system());
    let phase = operation.root().child("phase");
    let steps = phase.meter(Unit::Steps);
    steps.set_total(Total::Final(3));
    for expected in ["0.00", "33.33", "66.66", "99.99"] {
        assert_eq!(shown(&operation.snapshot(), "phase"), expected);
        steps.add(1);
    }
    phase.finish();
    assert_eq!(shown(&operation.snapshot(), "phase"), "100.00");
}

proptest! {
    #[test]
    fn a_parent_is_the_mean_of_its_children_by_expected_duration(
        children in prop::collection::vec((1..1000_u64, 0..=100_u64, prop::option::of(1..500_u64)), 1..8),
    ) {
        let operation = Operation::new("backup", Clock::system());
        let mut tasks = Vec::new();
        for (index, (total, part, expected)) in children.iter().enumerate() {
            let task = operation.root().child(format!("volume {index}"));
            if let Some(expected) = expected {
                task.expect_duration(Duration::from_secs(*expected));
            }
            let meter = task.meter(Unit::Bytes);
            meter.set_total(Total::Final(*total));
            meter.add(total * part / 100);
            tasks.push((task, total * part / 100));
        }
        let percent = operation.snapshot().percent().expect("known").fraction();
        prop_assert!((percent - expected_mean(&children)).abs() <= 0.000_2, "{percent}");
    }
}

/// The mean, the slow way.
fn expected_mean(children: &[(u64, u64, Option<u64>)]) -> f64 {
    let known: Vec<f64> = children.iter().filter_map(|child| child.2).map(as_f64).collect();
    let usual = if known.is_empty() { 1.0 } else { known.iter().sum::<f64>() / as_f64(known.len() as u64) };
    let weights: Vec<f64> = children.iter().map(|child| child.2.map_or(usual, as_f64)).collect();
    let shares = children.iter().map(|(total, part, _)| as_f64(total * part / 100) / as_f64(*total));
    shares.zip(&weights).map(|(share, weight)| share * weight).sum::<f64>() / weights.iter().sum::<f64>()
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn as_f64(value: u64) -> f64 {
    value as f64
}

#[test]
fn a_failed_operation_keeps_what_it_reached() {
    let operation = Operation::new("backup", Clock::system());
    let meter = operation.root().meter(Unit::Items);
    meter.set_total(Total::Final(3));
    meter.add(2);
    operation.end(Ending::Failed("the store is gone".into()));
    let snapshot = operation.snapshot();
    assert_eq!(shown(&snapshot, ""), "66.66");
    assert_eq!(snapshot.root().and_then(|root| root.reason.as_deref()), Some("the store is gone"));
}

#[test]
fn where_all_weigh_the_same_the_percentage_is_the_mean_of_all_parts_and_bears_no_mark() {
    let operation = Operation::new("run-set", VirtualClock::new().clock());
    operation.root().equal_weights();
    let third: plimsoll_progress::PercentRule = |meters| if meters.is_empty() { 0 } else { 3_333 };
    let action = |name: &str, phases: u32| {
        let action = operation.root().child(name);
        action.equal_weights();
        action.shares(phases);
        let phases: Vec<Task> = (0..phases).map(|index| action.planned(format!("phase {index}"))).collect();
        let last = action.planned("deferPhase");
        last.shares(0);
        (phases, last, action)
    };
    let (first, second) = (action("a", 2), action("b", 1));
    for task in [&first.0[0], &second.0[0]] {
        task.percent_rule(third);
        task.start();
        task.meter(Unit::Bytes).set_total(Total::Growing(7));
    }
    let percent = |path: &str| {
        operation
            .snapshot()
            .node(path)
            .and_then(|node| node.percent)
            .map(|percent| percent.to_string())
            .unwrap_or_default()
    };
    assert_eq!(["a/phase 0", "a", "b", ""].map(percent), ["33.33", "16.66", "33.33", "22.22"]);
    second.0[0].finish();
    assert_eq!(["b", ""].map(percent), ["99.99", "44.44"], "the deferPhase has still to run, and counts for nothing");
    first.0[0].finish();
    first.0[1].skip("not reached");
    first.2.fail("a phase failed");
    assert_eq!(["a", ""].map(percent), ["50.00", "66.66"], "what was not reached is no progress");
    second.1.finish();
}
