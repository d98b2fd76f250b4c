//! A transfer with every sample of its progress held to the rules.

use std::time::Duration;

use plimsoll_mover::{Canceller, Job, Launch, MoverError, Outcome, TransferProgress, spawn, transfer_progress};
use plimsoll_progress::{Clock, Node, Operation, State, Unit};

/// One sample.
pub struct Watched {
    /// The mover's own node, once a frame has come.
    pub node: Option<Node>,
    /// What its CR would show.
    pub shown: Option<TransferProgress>,
    pub pid: u32,
    pub canceller: Canceller,
}

impl Watched {
    pub fn bytes(&self) -> u64 {
        self.node.as_ref().and_then(|node| node.counts(Unit::Bytes)).map_or(0, |counts| counts.done)
    }
}

/// Runs a job, looking at it every few milliseconds.
pub async fn run(launch: &Launch, job: &Job, mut look: impl FnMut(&Watched)) -> Result<Outcome, MoverError> {
    let operation = Operation::new("parent", Clock::system());
    let transfer = spawn(launch, job, &operation.root())?;
    let (pid, canceller) = (transfer.id().unwrap(), transfer.canceller());
    let mut end = std::pin::pin!(transfer.wait());
    let mut rules = Rules::default();
    let sample = |rules: &mut Rules| {
        let snapshot = operation.snapshot();
        let node = snapshot.node(job.kind.name()).cloned();
        let shown = node.as_ref().and_then(transfer_progress);
        if let Some(node) = &node {
            rules.check(node, shown);
        }
        Watched { node, shown, pid, canceller: canceller.clone() }
    };
    let result = loop {
        tokio::select! {
            result = &mut end => break result,
            () = tokio::time::sleep(Duration::from_millis(10)) => look(&sample(&mut rules)),
        }
    };
    let last = sample(&mut rules);
    let state = last.node.as_ref().map(|node| node.state);
    match &result {
        Ok(outcome) => {
            assert_eq!(state, Some(State::Done));
            check_end(outcome, &last);
        }
        // One that was killed could not tell.
        Err(MoverError::Died { .. } | MoverError::Garbage { .. }) => {}
        Err(_) => assert!(!matches!(state, Some(State::Done)), "{result:?}"),
    }
    look(&last);
    result
}

/// What a CR shows at the end: all of it, and no more.
fn check_end(outcome: &Outcome, last: &Watched) {
    let bytes = match outcome {
        Outcome::Backup(outcome) => outcome.bytes,
        Outcome::Restore(outcome) => outcome.bytes,
        _ => return,
    };
    let shown = last.shown.unwrap();
    assert_eq!((shown.bytes_done, shown.total_bytes), (shown.total_bytes, shown.total_bytes));
    // A source that changed may have outgrown the total that was shown; nothing else may differ.
    assert!(shown.bytes_done.abs_diff(bytes) <= bytes / 10, "{shown:?} {bytes}");
    let percent = last.node.as_ref().unwrap().percent.unwrap();
    assert_eq!(percent.hundredths(), 10_000);
}

/// Never backwards, below 100 until the end, never a wrong 100.
#[derive(Default)]
struct Rules {
    percent: u16,
    bytes: u64,
    files: u64,
    shown: u64,
}

impl Rules {
    fn check(&mut self, node: &Node, shown: Option<TransferProgress>) {
        let done = |unit| node.counts(unit).map_or(0, |counts| counts.done);
        raise(&mut self.bytes, done(Unit::Bytes), "bytes");
        raise(&mut self.files, done(Unit::Files), "files");
        if let Some(percent) = node.percent {
            raise(&mut self.percent, percent.hundredths(), "percent");
            assert!(percent.hundredths() < 10_000 || node.state == State::Done, "100 % before the end: {node:?}");
        }
        if let Some(shown) = shown {
            raise(&mut self.shown, shown.bytes_done, "bytesDone");
            let ended_well = node.state == State::Done;
            assert!(shown.bytes_done < shown.total_bytes || ended_well, "a wrong 100 %: {shown:?} {node:?}");
        }
    }
}

fn raise<T: PartialOrd + Copy + std::fmt::Debug>(greatest: &mut T, now: T, what: &str) {
    assert!(now >= *greatest, "{what} went back from {greatest:?} to {now:?}");
    *greatest = now;
}
