//! What earlier runs say about the next one.

use std::time::Duration;

use plimsoll_progress::{Ending, History, Operation, RunRecord, Total, TransferRate, Unit, VirtualClock};
use proptest::prelude::*;

fn run(seconds: u64, bytes: u64) -> RunRecord {
    let rate = TransferRate { per_second: 1e6, fixed_milliseconds: 2000 };
    RunRecord {
        milliseconds: seconds * 1000,
        bytes,
        stages: [("reading".to_owned(), seconds * 100)].into(),
        rates: [("volumes".to_owned(), rate)].into(),
        ..RunRecord::default()
    }
}

fn history(runs: impl IntoIterator<Item = RunRecord>) -> History {
    let mut history = History::default();
    runs.into_iter().for_each(|run| history.add(run));
    history
}

fn whole(history: &History) -> Option<u64> {
    history.earlier().durations.get("").map(Duration::as_secs)
}

#[test]
fn medians_count_and_a_run_that_took_ten_times_as_long_does_not() {
    let history = history([50, 55, 600, 60, 52].map(|seconds| run(seconds, 1000)));
    assert_eq!(whole(&history), Some(53));
    let runs = history.earlier().runs.expect("runs");
    assert_eq!((runs.runs, runs.low, runs.high), (4, 50, 60));
}

#[test]
fn full_and_incremental_runs_are_kept_apart() {
    let incremental = |seconds| RunRecord { incremental: true, ..run(seconds, 1000) };
    let history = history([run(500, 1000), incremental(50), incremental(60), incremental(55)]);
    assert_eq!(whole(&history), Some(55));
}

#[test]
fn a_volume_that_has_grown_takes_longer_at_the_same_rate() {
    let clock = VirtualClock::new();
    let operation = Operation::new("backup-x", clock.clock());
    operation.expect(history([run(50, 1000), run(52, 1000)]).earlier());
    let volumes = operation.root().child("volumes");
    volumes.queue(1);
    let volume = volumes.planned("a");
    volume.plan(plimsoll_progress::Work::amount(500_000_000, 5e7, plimsoll_progress::Basis::Estimated));
    let left = operation.snapshot().nodes[0].left.expect("earlier runs know");
    assert!((left.low..=left.high).contains(&502), "500 MB at 1 MB/s: {left:?}");
}

#[test]
fn a_run_records_its_stages_and_the_rate_of_its_transfers_without_their_time_in_the_queue() {
    let clock = VirtualClock::new();
    let operation = Operation::new("backup-x", clock.clock());
    let volumes = operation.root().child("volumes");
    for name in ["a", "b"] {
        let volume = volumes.child(name);
        let turn = volume.wait_in_queue("queued");
        clock.advance(Duration::from_secs(30));
        turn.end();
        let meter = volume.meter(Unit::Bytes);
        meter.set_total(Total::Final(1_000_000));
        meter.add(1_000_000);
        clock.advance(Duration::from_secs(10));
        volume.finish();
    }
    volumes.finish();
    assert_eq!(RunRecord::of(&operation.snapshot()), None, "it has not ended");
    operation.end(Ending::Succeeded);
    let record = RunRecord::of(&operation.snapshot()).expect("it has ended well");
    assert_eq!((record.milliseconds, record.bytes, record.stages.get("volumes")), (80_000, 2_000_000, Some(&80_000)));
    let rate = record.rates["volumes"].per_second;
    assert!((90_000.0..110_000.0).contains(&rate), "{rate}");
}

#[test]
fn an_operation_that_failed_leaves_no_record() {
    let operation = Operation::new("backup-x", VirtualClock::new().clock());
    operation.end(Ending::Failed("the store is gone".into()));
    assert_eq!(RunRecord::of(&operation.snapshot()), None);
}

proptest! {
    #[test]
    fn it_stays_small_and_survives_json(
        runs in prop::collection::vec((1..100_000_u64, 0..u64::from(u32::MAX), any::<bool>()), 0..40),
        claims in prop::collection::vec("[a-z0-9-]{36}", 0..400),
    ) {
        let mut history = history(runs.into_iter().map(|(seconds, bytes, incremental)| RunRecord { incremental, ..run(seconds, bytes) }));
        for claim in &claims {
            history.set_size(claim, 1 << 40);
        }
        let text = serde_json::to_string(&history).expect("plain data");
        prop_assert!(text.len() <= 64 << 10, "{} bytes", text.len());
        prop_assert_eq!(serde_json::from_str::<History>(&text).expect("our own"), history);
    }
}
