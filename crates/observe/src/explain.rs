//! The verdict on one object, from its tree and its causes.

use std::time::Duration;

use plimsoll_progress::view::{duration_text, left_text};
use plimsoll_progress::{Snapshot, StallReason, StallVerdict, State};
use serde::Serialize;

use crate::causes::{Cause, Certainty, causes};
use crate::cluster_state::{ClusterState, UnreadResource};
use crate::kind::Kind;
use crate::object::{Object, Reference};

/// A task that advanced this recently is moving.
const MOVING_PERIOD: Duration = Duration::from_secs(15);

/// The state of an operation, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Verdict {
    /// It should advance, and does not.
    Stuck,
    /// Failed.
    Failed,
    /// Partially failed.
    PartiallyFailed,
    /// Failed validation.
    Refused,
    /// Cancelled on request.
    Cancelled,
    /// Running, and reports no progress by design.
    Quiet,
    /// Waiting for something expected.
    Waiting,
    /// Running and advancing.
    Moving,
    /// Succeeded, or has nothing to do.
    Fine,
}

impl Verdict {
    /// Whether the operation has ended.
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Failed | Self::PartiallyFailed | Self::Refused | Self::Cancelled | Self::Fine)
    }
}

/// Verdict, causes and tree of one object.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The object.
    pub subject: Reference,
    /// The namespace.
    pub namespace: String,
    /// The object's phase.
    pub phase: String,
    /// The verdict.
    pub verdict: Verdict,
    /// One sentence.
    pub headline: String,
    /// Causes, the most certain first.
    pub causes: Vec<Cause>,
    /// Resources that could not be read: with them there might be more causes.
    pub unseen: Vec<UnreadResource>,
    /// The task tree.
    pub tree: Snapshot,
}

/// Explains an object with its task tree.
pub fn explain(object: &Object, cluster: &ClusterState, tree: Snapshot) -> Explanation {
    let mut causes = causes(object, cluster);
    if causes.iter().all(|cause| cause.expected || cause.certainty == Certainty::Possible) {
        causes.splice(0..0, known_stall(&tree));
    }
    let verdict = judge(object, &tree, &causes);
    Explanation {
        subject: object.reference(),
        namespace: object.namespace().to_owned(),
        phase: phase(object).to_owned(),
        verdict,
        headline: headline(object, verdict, &tree, &causes),
        causes,
        unseen: cluster.unseen.clone(),
        tree,
    }
}

/// What our own server or agent knows better than an observer: a failed liveness check, or activity that comes to nothing.
fn known_stall(tree: &Snapshot) -> Option<Cause> {
    let is_known =
        |reason: StallReason| reason == StallReason::LivenessFailed || reason.verdict() != StallVerdict::Stalled;
    let stall = tree.stall.as_ref().filter(|stall| is_known(stall.reason))?;
    Some(Cause::new(stall.reason.reason(), Certainty::Certain, format!("{}: {}", stall.task, stall.message)))
}

/// The phase, or the state of a kind that has no phase.
pub(crate) fn phase(object: &Object) -> &str {
    match object.some_text("/status/state") {
        Some(state) => state,
        None => object.phase(),
    }
}

fn judge(object: &Object, tree: &Snapshot, causes: &[Cause]) -> Verdict {
    let blocked = |least: Certainty| causes.iter().any(|cause| !cause.expected && cause.certainty <= least);
    match (phase(object), tree.state()) {
        ("Completed" | "complete", _) => Verdict::Fine,
        ("PartiallyFailed", _) => Verdict::PartiallyFailed,
        ("FailedValidation", _) => Verdict::Refused,
        (_, State::Cancelled) => Verdict::Cancelled,
        (_, State::Failed) => Verdict::Failed,
        (_, State::Done) => Verdict::Fine,
        _ if tree.stall.is_some() => Verdict::Stuck,
        _ if blocked(Certainty::Likely) && !is_moving(tree) => Verdict::Stuck,
        ("Enabled" | "Available" | "Ready", _) => Verdict::Fine,
        _ => judge_running(tree, causes),
    }
}

fn judge_running(tree: &Snapshot, causes: &[Cause]) -> Verdict {
    let current = tree.current();
    if causes.iter().any(|cause| cause.expected && cause.certainty == Certainty::Certain) && !is_moving(tree) {
        Verdict::Waiting
    } else if current.is_some_and(|node| node.quiet) {
        Verdict::Quiet
    } else if current.is_some_and(|node| node.state == State::Waiting) {
        Verdict::Waiting
    } else {
        Verdict::Moving
    }
}

/// Whether a meter advanced just now; starting to wait is no advance.
fn is_moving(tree: &Snapshot) -> bool {
    let counts = |node: &&plimsoll_progress::Node| node.meters.iter().any(|counts| counts.settled() > 0);
    let working = tree.nodes.iter().filter(|node| node.state == State::Running && !node.quiet).filter(counts);
    working.into_iter().any(|node| node.ages.advance < MOVING_PERIOD)
}

fn headline(object: &Object, verdict: Verdict, tree: &Snapshot, causes: &[Cause]) -> String {
    let name = object.reference();
    let first = causes.first().map(|cause| cause.text.as_str()).unwrap_or_default();
    match verdict {
        Verdict::Stuck if name.kind == Kind::Schedule => format!("{name} creates no successful backups"),
        Verdict::Stuck if name.kind == Kind::Location => format!("{name} cannot be used"),
        Verdict::Stuck => match &tree.stall {
            Some(stall) => {
                let what = match stall.verdict() {
                    StallVerdict::Spinning => "spinning, and has gained nothing",
                    StallVerdict::Crawling => "crawling, below 1 % of its usual rate,",
                    StallVerdict::Stalled | StallVerdict::Quiet => "stuck: nothing has moved",
                };
                format!("{name} is {what} for {}", duration_text(stall.age))
            }
            None => format!("{name} is stuck"),
        },
        Verdict::Waiting => format!("{name} is waiting, as expected"),
        Verdict::Quiet => format!("{name} is running and reports no progress by design"),
        Verdict::Moving => format!("{name} is moving{}", numbers(tree)),
        Verdict::Fine => format!("{name} is fine: {}", phase(object)),
        Verdict::Failed => format!("{name} has failed"),
        Verdict::PartiallyFailed => format!("{name} has partially failed"),
        Verdict::Refused => format!("{name} was refused"),
        Verdict::Cancelled if first.is_empty() => format!("{name} was cancelled"),
        Verdict::Cancelled => format!("{name} was cancelled: {first}"),
    }
}

fn numbers(tree: &Snapshot) -> String {
    let percent = tree.percent().map(|percent| format!(", {percent} %")).unwrap_or_default();
    let left = tree.speed().left.map(|left| format!(", {} left", left_text(left))).unwrap_or_default();
    format!("{percent}{left}")
}
