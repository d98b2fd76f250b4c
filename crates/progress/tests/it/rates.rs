//! Rate and time left.

use std::time::Duration;

use plimsoll_progress::{Earlier, Meter, Operation, Total, Unit, VirtualClock};
use proptest::prelude::*;

struct Transfer {
    clock: VirtualClock,
    operation: Operation,
    meter: Meter,
}

impl Transfer {
    fn of(total: Total) -> Self {
        let clock = VirtualClock::new();
        let operation = Operation::new("transfer", clock.clock());
        let meter = operation.root().meter(Unit::Bytes);
        meter.set_total(total);
        operation.snapshot();
        Self { clock, operation, meter }
    }

    /// Works at this speed, looked at every second.
    fn run(&self, seconds: u64, speed: u64) {
        for _ in 0..seconds {
            self.clock.advance(Duration::from_secs(1));
            self.meter.add(speed);
            self.operation.snapshot();
        }
    }

    fn rate(&self) -> Option<u64> {
        self.operation.snapshot().nodes[0].rate
    }

    fn left(&self) -> Option<(u64, u64)> {
        self.operation.snapshot().nodes[0].left.map(|left| (left.low, left.high))
    }
}

proptest! {
    #[test]
    fn at_a_steady_speed_the_rate_is_that_speed_and_the_range_holds_the_truth(speed in 1..1_000_000_u64, seconds in 4..200_u64, more in 1..5000_u64) {
        let transfer = Transfer::of(Total::Final(speed * (seconds + more)));
        transfer.run(seconds, speed);
        prop_assert_eq!(transfer.rate(), Some(speed));
        let (low, high) = transfer.left().expect("steady");
        prop_assert!(low <= more && more <= high, "{} is not in {}..{}", more, low, high);
        prop_assert!(low >= 1);
    }

    #[test]
    fn the_time_left_is_never_zero_while_work_remains(speeds in prop::collection::vec(0..500_u64, 1..80), extra in 1..1000_u64) {
        let total = speeds.iter().sum::<u64>() + extra;
        let transfer = Transfer::of(Total::Final(total));
        for speed in speeds {
            transfer.run(1, speed);
            if let Some((low, high)) = transfer.left() {
                prop_assert!(low >= 1 && high >= low);
            }
        }
    }

    #[test]
    fn the_rate_forgets_what_is_older_than_its_window(before in 0..100_000_u64, now in 1..100_000_u64) {
        let transfer = Transfer::of(Total::Unknown);
        transfer.run(50, before);
        transfer.run(33, now);
        prop_assert_eq!(transfer.rate(), Some(now));
    }
}

#[test]
fn there_is_no_time_left_without_a_total_a_rate_or_a_little_history() {
    let unknown = Transfer::of(Total::Unknown);
    unknown.run(20, 100);
    assert_eq!(unknown.left(), None, "no total");
    let young = Transfer::of(Total::Final(1000));
    young.run(2, 10);
    assert_eq!(young.left(), None, "two seconds are no history");
    let still = Transfer::of(Total::Final(1000));
    still.run(20, 0);
    assert_eq!(still.left(), None, "nothing moves");
    assert_eq!(still.rate(), Some(0));
}

#[test]
fn there_is_no_time_left_while_the_total_is_still_growing() {
    let transfer = Transfer::of(Total::Growing(10_000));
    for round in 1..10 {
        transfer.meter.set_total(Total::Growing(10_000 + round));
        transfer.run(1, 10);
    }
    assert_eq!(transfer.left(), None);
    transfer.run(4, 10);
    assert_eq!(transfer.left(), None, "an estimate that has stood for a moment may go on growing");
    transfer.run(2, 10);
    assert!(transfer.left().is_some(), "one that has stood for some seconds and moves is believed");
}

#[test]
fn a_total_that_is_told_seldom_is_not_believed_between_two_words() {
    let transfer = Transfer::of(Total::Growing(10_000));
    for round in 1..10 {
        // Ten seconds without a word, as a stock Velero writes.
        transfer.meter.set_total(Total::Growing(10_000 + round));
        transfer.run(1, 100);
        transfer.run(9, 0);
        assert_eq!(transfer.left(), None, "in round {round}");
    }
}

#[test]
fn ten_seconds_after_a_change_of_speed_the_time_left_is_that_of_the_new_speed() {
    let transfer = Transfer::of(Total::Final(1_000_000));
    transfer.run(20, 1000);
    transfer.run(10, 100);
    let (low, high) = transfer.left().expect("moving");
    let truth = (1_000_000 - 20_000 - 1000) / 100;
    assert!((low..=high).contains(&truth), "{truth} is not in {low}..{high}");
    assert!(high <= 2 * truth && low >= truth / 2, "{low}..{high} says little");
}

#[test]
fn a_pause_says_nothing_about_the_speed_and_while_it_lasts_nothing_is_said() {
    let transfer = Transfer::of(Total::Final(100_000));
    transfer.run(100, 100);
    transfer.run(60, 0);
    assert_eq!(transfer.left(), None);
    transfer.run(2, 100);
    let (low, high) = transfer.left().expect("moving again");
    assert!((low..=high).contains(&898), "898 is not in {low}..{high}");
}

#[test]
fn once_the_end_should_have_come_nothing_is_said_rather_than_a_second_that_never_passes() {
    for (gap, name) in [(0, "steadily"), (14, "with pauses that are its way")] {
        let transfer = Transfer::of(Total::Final(10_001));
        for _ in 0..10 {
            transfer.run(1, 1000);
            transfer.run(gap, 0);
        }
        transfer.run(2, 0);
        for second in 2..60 {
            assert_eq!(transfer.left(), None, "{second} s after it has read everything, {name}");
            transfer.run(1, 0);
        }
    }
}

#[test]
fn earlier_runs_give_the_first_estimate_and_the_weights_of_stages() {
    let clock = VirtualClock::new();
    let operation = Operation::new("backup", clock.clock());
    let usual = [("", 100), ("reading", 20), ("volumes", 80)];
    let durations = usual.map(|(path, seconds)| (path.to_owned(), Duration::from_secs(seconds)));
    operation.expect(Earlier { durations: durations.into(), ..Earlier::default() });
    let (reading, volumes) = (operation.root().child("reading"), operation.root().planned("volumes"));
    // An estimate from before its first run.
    volumes.expect_duration(Duration::from_secs(1));
    clock.advance(Duration::from_secs(10));
    let whole = operation.snapshot().nodes[0].left.expect("earlier runs took 100 s");
    assert!((whole.low..=whole.high).contains(&90), "{whole:?}");
    reading.finish();
    let percent = operation.snapshot().percent().map(|percent| percent.to_string());
    assert_eq!(percent.as_deref(), Some("11.11"), "it took 10 s, the rest is expected to take 80 s");
    volumes.start();
    let meter = volumes.meter(Unit::Bytes);
    meter.set_total(Total::Final(1000));
    let volumes_left = || operation.snapshot().node("volumes").and_then(|node| node.left).expect("known");
    assert!((volumes_left().low..=volumes_left().high).contains(&80), "{:?}", volumes_left());
    for _ in 0..20 {
        clock.advance(Duration::from_secs(1));
        meter.add(1);
        operation.snapshot();
    }
    assert!((volumes_left().low..=volumes_left().high).contains(&980), "its own pace counts: {:?}", volumes_left());
}

#[test]
fn children_bound_the_time_of_their_parent() {
    let clock = VirtualClock::new();
    let operation = Operation::new("backup", clock.clock());
    let tasks: Vec<_> = [100, 300]
        .map(|total| {
            let task = operation.root().child(format!("volume {total}"));
            let meter = task.meter(Unit::Bytes);
            meter.set_total(Total::Final(total));
            (task, meter)
        })
        .into();
    for _ in 0..11 {
        operation.snapshot();
        for (_, meter) in &tasks {
            meter.add(1);
        }
        clock.advance(Duration::from_secs(1));
    }
    let snapshot = operation.snapshot();
    let [short, long] =
        ["volume 100", "volume 300"].map(|path| snapshot.node(path).and_then(|node| node.left).expect("moving"));
    let whole = snapshot.nodes[0].left.expect("both are known");
    assert!(whole.low >= short.low && whole.low <= long.high && whole.high >= long.low, "{whole:?}, {long:?}");
    assert_eq!(snapshot.nodes[0].waits_for.as_deref(), Some("volume 300"));
    let quiet = operation.root().child("hook");
    assert_eq!(operation.snapshot().nodes[0].left, None, "a hook of unknown length makes the sum a guess");
    quiet.finish();
    assert!(operation.snapshot().nodes[0].left.is_some());
}
