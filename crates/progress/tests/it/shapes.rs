//! Trees cut to size, and rows to draw.

use std::time::Duration;

use plimsoll_progress::view::{self, Look};
use plimsoll_progress::{Ending, Frame, Limits, Operation, State, Task, TimeLeft, Total, Unit, VirtualClock, truncate};
use proptest::prelude::*;

/// A backup of many volumes: done, at work, failed and planned in turn.
fn backup(clock: &VirtualClock, volumes: usize, text: &str) -> (Operation, Vec<Task>) {
    let operation = Operation::new("backup-large", clock.clock());
    let stage = operation.root().child("volumes");
    let mut tasks: Vec<Task> = (0..volumes)
        .map(|n| {
            let task = stage.planned(format!("volume {n}"));
            task.hint(text);
            match n % 20 {
                0 => task.start(),
                1 => task.fail(text),
                2..15 => task.finish(),
                _ => {}
            }
            task
        })
        .collect();
    tasks.push(stage);
    (operation, tasks)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_cut_tree_is_within_its_limits_and_accounts_for_every_task(
        volumes in 0..400_usize, nodes in 1..120_usize, bytes in 2000..40_000_usize, text in "\\PC{0,80}",
    ) {
        let clock = VirtualClock::new();
        let (operation, _tasks) = backup(&clock, volumes, &text);
        let snapshot = operation.snapshot();
        let small = truncate::truncate(&snapshot, Limits { nodes, bytes });
        prop_assert!(small.nodes.len() <= nodes);
        prop_assert!(Frame::full(&small, u64::MAX, u64::MAX).to_line().len() <= bytes);
        let folded: u64 = small.nodes.iter().map(|node| node.folded.count()).sum();
        prop_assert_eq!(folded + small.nodes.len() as u64, snapshot.nodes.len() as u64);
        crate::invariants::check(&small);
        prop_assert_eq!(small.percent(), snapshot.percent());
        let rank = |state: State| if state.is_active() { 0 } else if state.is_bad() { 1 } else { 2 };
        let left_out = snapshot.nodes.iter().filter(|node| small.node(&node.path).is_none());
        let best_left_out = left_out.map(|node| rank(node.state)).min().unwrap_or(9);
        let by_count_alone = small.nodes.len() == nodes;
        if by_count_alone && nodes > 2 {
            prop_assert!(small.nodes.iter().skip(2).all(|node| rank(node.state) <= best_left_out), "what matters stays");
        }
    }
}

#[test]
fn a_small_tree_is_not_cut() {
    let clock = VirtualClock::new();
    let (operation, _tasks) = backup(&clock, 50, "x");
    let snapshot = operation.snapshot();
    assert_eq!(truncate::truncate(&snapshot, Limits::STORED), snapshot);
}

#[test]
fn of_an_ended_operation_the_stages_their_durations_and_all_that_was_counted_stay() {
    let clock = VirtualClock::new();
    let (operation, tasks) = backup(&clock, 300, &"long ".repeat(90));
    clock.advance(Duration::from_secs(90));
    for task in &tasks {
        task.meter(Unit::Bytes).add(7);
    }
    tasks.last().expect("the stage").finish();
    operation.end(Ending::Succeeded);
    let whole = operation.snapshot();
    let ended = truncate::ended(&whole);
    assert!(Frame::full(&ended, 1, 1).to_line().len() <= 4096);
    assert_eq!(ended.nodes.iter().take(2).map(|node| &*node.name).collect::<Vec<_>>(), ["backup-large", "volumes"]);
    assert_eq!(ended.nodes[1].ages.elapsed, Some(Duration::from_secs(90)));
    let folded: u64 = ended.nodes.iter().map(|node| node.folded.count()).sum();
    assert_eq!(folded + ended.nodes.len() as u64, 302, "every task is accounted for");
    assert_eq!((ended.sum(Unit::Bytes), ended.percent()), (whole.sum(Unit::Bytes), whole.percent()));
}

#[test]
fn however_few_rows_are_shown_the_first_one_counts_everything() {
    let clock = VirtualClock::new();
    let (operation, tasks) = backup(&clock, 60, "x");
    for (index, task) in tasks.iter().enumerate().take(60) {
        let bytes = task.meter(Unit::Bytes);
        bytes.set_total(Total::Growing(2 << 30));
        bytes.add((index as u64) << 20);
    }
    operation.begin_epoch(1);
    let tree = operation.snapshot();
    let all = view::rows(&tree);
    for most in [1, 2, 3, 10, 40, 100] {
        let first = &view::rows_within(&tree, most)[0];
        assert_eq!((&first.bytes, &first.percent), (&all[0].bytes, &all[0].percent), "{most} rows");
        let cut = truncate::truncate(&tree, Limits { nodes: most, bytes: 64 << 10 });
        let read: plimsoll_progress::Snapshot =
            serde_json::from_value(serde_json::to_value(&cut).expect("a tree")).expect("the same");
        assert_eq!(
            (read.sum(Unit::Bytes), read.speed(), read.token),
            (tree.sum(Unit::Bytes), tree.speed(), tree.token)
        );
        let twice = truncate::truncate(&read, Limits { nodes: 1, bytes: 64 << 10 });
        assert_eq!(twice.sum(Unit::Bytes), tree.sum(Unit::Bytes));
    }
}

#[test]
fn rows_say_all_there_is_to_say() {
    let clock = VirtualClock::new();
    let operation = Operation::new("restore-x", clock.clock());
    let items = operation.root().child("items");
    let meter = items.meter(Unit::Items);
    meter.set_total(Total::Final(1024));
    let volume = operation.root().child("demo/data");
    let bytes = volume.meter(Unit::Bytes);
    bytes.set_total(Total::Growing(4_831_838_208));
    for _ in 0..10 {
        operation.snapshot();
        meter.add(40);
        bytes.add(36_805_017);
        items.say("configmaps/demo/settings");
        volume.say("var/lib/mysql/ibdata1");
        clock.advance(Duration::from_secs(1));
    }
    meter.skip(3);
    meter.fail(1);
    let hook = operation.root().child("hook");
    hook.quiet();
    let pod = operation.root().child("pod");
    let waiting = pod.wait("waiting for pod demo/db-0 to be scheduled");
    let broken = operation.root().child("broken");
    broken.fail("disk full");
    operation.snapshot();
    for _ in 0..31 {
        clock.advance(Duration::from_secs(1));
        meter.add(8);
        operation.snapshot();
    }
    let lines: Vec<String> = view::rows(&operation.snapshot()).iter().map(line).collect();
    assert_eq!(
        lines,
        [
            "restore-x | Running | ~34.25 % |  | 350.9 MiB of ~4.5 GiB | 8 items/s |  | 41s | ",
            "  items | Running | 63.67 % | 652/1024 items, 3 skipped, 1 failed |  | 8 items/s | 40s to 53s | 41s | configmaps/demo/settings",
            "  demo/data | Stalled | ~7.61 % |  | 350.9 MiB of ~4.5 GiB | 0 B/s |  | 41s | stalled for 31s: var/lib/mysql/ibdata1",
            "  hook | Quiet |  |  |  |  |  | 31s | no signal since 31s ago",
            "  pod | Stalled |  |  |  |  |  | 31s | stalled for 31s: waiting for pod demo/db-0 to be scheduled",
            "  broken | Failed |  |  |  |  |  | 0s | disk full",
        ]
    );
    drop(waiting);
}

fn line(row: &view::Row) -> String {
    let label = format!("{}{}", "  ".repeat(row.depth), row.label);
    [
        &label,
        &format!("{:?}", row.look),
        &row.percent,
        &row.counts,
        &row.bytes,
        &row.rate,
        &row.left,
        &row.elapsed,
        &row.detail,
    ]
    .map(String::as_str)
    .join(" | ")
}

#[test]
fn what_does_not_fit_on_the_screen_is_counted() {
    let clock = VirtualClock::new();
    let (operation, _tasks) = backup(&clock, 100, "x");
    let rows = view::rows_within(&operation.snapshot(), 4);
    assert_eq!(rows.len(), 4);
    assert_eq!(rows[1].detail, "and 3 running, 5 failed, 25 pending, 65 done not shown");
    assert_eq!(rows[2].look, Look::Running);
}

#[test]
fn numbers_read_well() {
    let sizes = [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1_048_575, "1023.9 KiB"), (u64::MAX, "15.9 EiB")];
    for (bytes, text) in sizes {
        assert_eq!(view::size_text(bytes), text);
    }
    let durations = [(0, "0s"), (59, "59s"), (60, "1m00s"), (3600, "1h00m"), (90_000, "1d01h")];
    for (seconds, text) in durations {
        assert_eq!(view::duration_text(Duration::from_secs(seconds)), text);
    }
    assert_eq!(view::left_text(TimeLeft { low: 40, high: 80 }), "40s to 1m20s");
    assert_eq!(view::left_text(TimeLeft { low: 7201, high: 7230 }), "2h00m");
}
