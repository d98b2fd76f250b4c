//! Runs a transfer and checks every sample of its progress.

use std::time::Duration;

use plimsoll_mover::{Canceller, Job, MoverCommand, MoverError, Outcome, TransferProgress, spawn, transfer_progress};
use plimsoll_progress::{Clock, Node, Operation, State, Unit};

/// One sample.
pub struct ProgressSample {
    /// The mover's node, after the first frame.
    pub node: Option<Node>,
    /// `status.progress` of its CR.
    pub shown: Option<TransferProgress>,
    pub pid: u32,
    pub canceller: Canceller,
}

impl ProgressSample {
    pub fn bytes(&self) -> u64 {
        self.node.as_ref().and_then(|node| node.counts(Unit::Bytes)).map_or(0, |counts| counts.done)
    }
}

/// Runs a job and samples its progress every few milliseconds.
pub async fn run(
    command: &MoverCommand,
    job: &Job,
    mut on_sample: impl FnMut(&ProgressSample),
) -> Result<Outcome, MoverError> {
    let operation = Operation::new("parent", Clock::system());
    let transfer = spawn(command, job, &operation.root())?;
    let (pid, canceller) = (transfer.id().unwrap(), transfer.canceller());
    let mut end = std::pin::pin!(transfer.wait());
    let mut rules = ProgressRules::default();
    let sample = |rules: &mut ProgressRules| {
        let snapshot = operation.snapshot();
        let node = snapshot.node(job.kind.name()).cloned();
        let shown = node.as_ref().and_then(transfer_progress);
        if let Some(node) = &node {
            rules.check(node, shown);
        }
        ProgressSample { node, shown, pid, canceller: canceller.clone() }
    };
    let result = loop {
        tokio::select! {
            result = &mut end => break result,
            () = tokio::time::sleep(Duration::from_millis(10)) => on_sample(&sample(&mut rules)),
        }
    };
    let last = sample(&mut rules);
    let state = last.node.as_ref().map(|node| node.state);
    match &result {
        Ok(outcome) => {
            assert_eq!(state, Some(State::Done));
            check_end(outcome, &last);
        }
        // A killed process could not report its end.
        Err(MoverError::ProcessDied { .. } | MoverError::Protocol { .. }) => {}
        Err(_) => assert!(!matches!(state, Some(State::Done)), "{result:?}"),
    }
    on_sample(&last);
    result
}

/// Checks that the CR is complete at the end.
fn check_end(outcome: &Outcome, last: &ProgressSample) {
    let bytes = match outcome {
        Outcome::Backup(outcome) => outcome.bytes,
        Outcome::Restore(outcome) => outcome.bytes,
        _ => return,
    };
    let shown = last.shown.unwrap();
    assert_eq!((shown.bytes_done, shown.total_bytes), (shown.total_bytes, shown.total_bytes));
    // A source that changed may have exceeded the total; nothing else may differ.
    assert!(shown.bytes_done.abs_diff(bytes) <= bytes / 10, "{shown:?} {bytes}");
    let percent = last.node.as_ref().unwrap().percent.unwrap();
    assert_eq!(percent.hundredths(), 10_000);
}

/// Progress never decreases and is below 100 % until the end.
#[derive(Default)]
struct ProgressRules {
    percent: u16,
    bytes: u64,
    files: u64,
    shown: u64,
}

impl ProgressRules {
    fn check(&mut self, node: &Node, shown: Option<TransferProgress>) {
        let done = |unit| node.counts(unit).map_or(0, |counts| counts.done);
        assert_not_decreasing(&mut self.bytes, done(Unit::Bytes), "bytes");
        assert_not_decreasing(&mut self.files, done(Unit::Files), "files");
        if let Some(percent) = node.percent {
            assert_not_decreasing(&mut self.percent, percent.hundredths(), "percent");
            assert!(percent.hundredths() < 10_000 || node.state == State::Done, "100 % before the end: {node:?}");
        }
        if let Some(shown) = shown {
            assert_not_decreasing(&mut self.shown, shown.bytes_done, "bytesDone");
            let is_successful = node.state == State::Done;
            assert!(shown.bytes_done < shown.total_bytes || is_successful, "100 % before the end: {shown:?} {node:?}");
        }
    }
}

fn assert_not_decreasing<T: PartialOrd + Copy + std::fmt::Debug>(maximum: &mut T, now: T, meter: &str) {
    assert!(now >= *maximum, "{meter} decreased from {maximum:?} to {now:?}");
    *maximum = now;
}
