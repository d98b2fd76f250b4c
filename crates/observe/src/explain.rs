//! One object, its tree and its causes: is it stuck, and what next?

use std::time::Duration;

use plimsoll_progress::view::{duration_text, left_text};
use plimsoll_progress::{Snapshot, StallReason, State};
use serde::Serialize;

use crate::causes::{Cause, Certainty, causes};
use crate::kind::Kind;
use crate::object::{Object, Reference};
use crate::world::{Unseen, World};

/// Whatever moved this recently moves.
const FRESH: Duration = Duration::from_secs(15);

/// How it is doing, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Verdict {
    /// It should go on, and does not.
    Stuck,
    /// Ended badly.
    Failed,
    /// Ended, and something is missing.
    PartiallyFailed,
    /// Refused before it began.
    Refused,
    /// Ended because somebody asked.
    Cancelled,
    /// At work, and sends no signal by nature.
    Quiet,
    /// Waits for something that is in order.
    Waiting,
    /// At work.
    Moving,
    /// Ended well, or has nothing to do.
    Fine,
}

impl Verdict {
    /// Whether it will not change any more.
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Failed | Self::PartiallyFailed | Self::Refused | Self::Cancelled | Self::Fine)
    }
}

/// Everything there is to say about one object.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// What it is about.
    pub subject: Reference,
    /// Its namespace.
    pub namespace: String,
    /// Its own phase.
    pub phase: String,
    /// How it is doing.
    pub verdict: Verdict,
    /// One sentence.
    pub headline: String,
    /// Why, the surest first.
    pub causes: Vec<Cause>,
    /// What could not be looked at: with it there might be more to say.
    pub unseen: Vec<Unseen>,
    /// The tree.
    pub tree: Snapshot,
}

/// Explains an object, whose tree is this.
pub fn explain(object: &Object, world: &World, tree: Snapshot) -> Explanation {
    let mut causes = causes(object, world);
    if causes.iter().all(|cause| cause.orderly || cause.certainty == Certainty::Possible) {
        causes.splice(0..0, found_dead(&tree));
    }
    let verdict = judge(object, &tree, &causes);
    Explanation {
        subject: object.reference(),
        namespace: object.namespace().to_owned(),
        phase: phase(object).to_owned(),
        verdict,
        headline: headline(object, verdict, &tree, &causes),
        causes,
        unseen: world.unseen.clone(),
        tree,
    }
}

/// What our own server or agent has found out about a part that does not go on: both are closer than anybody who looks on.
fn found_dead(tree: &Snapshot) -> Option<Cause> {
    let stall = tree.stall.as_ref().filter(|stall| stall.reason == StallReason::LivenessFailed)?;
    Some(Cause::new(stall.reason.reason(), Certainty::Certain, format!("{}: {}", stall.task, stall.message)))
}

/// Its phase, or what its kind has in place of one.
pub(crate) fn phase(object: &Object) -> &str {
    match object.some_text("/status/state") {
        Some(state) => state,
        None => object.phase(),
    }
}

fn judge(object: &Object, tree: &Snapshot, causes: &[Cause]) -> Verdict {
    let blocked = |least: Certainty| causes.iter().any(|cause| !cause.orderly && cause.certainty <= least);
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
        _ => alive(tree, causes),
    }
}

fn alive(tree: &Snapshot, causes: &[Cause]) -> Verdict {
    let current = tree.current();
    if causes.iter().any(|cause| cause.orderly && cause.certainty == Certainty::Certain) && !is_moving(tree) {
        Verdict::Waiting
    } else if current.is_some_and(|node| node.quiet) {
        Verdict::Quiet
    } else if current.is_some_and(|node| node.state == State::Waiting) {
        Verdict::Waiting
    } else {
        Verdict::Moving
    }
}

/// Whether something in it has really moved just now; beginning to wait is no movement.
fn is_moving(tree: &Snapshot) -> bool {
    let counts = |node: &&plimsoll_progress::Node| node.meters.iter().any(|counts| counts.settled() > 0);
    let working = tree.nodes.iter().filter(|node| node.state == State::Running && !node.quiet).filter(counts);
    working.into_iter().any(|node| node.ages.advance < FRESH)
}

fn headline(object: &Object, verdict: Verdict, tree: &Snapshot, causes: &[Cause]) -> String {
    let name = object.reference();
    let first = causes.first().map(|cause| cause.text.as_str()).unwrap_or_default();
    let silence = tree.stall.as_ref().map(|stall| stall.age);
    match verdict {
        Verdict::Stuck if name.kind == Kind::Schedule => format!("{name} makes no good backups"),
        Verdict::Stuck if name.kind == Kind::Location => format!("{name} cannot be used"),
        Verdict::Stuck => match silence {
            Some(silence) => format!("{name} is stuck: nothing has moved for {}", duration_text(silence)),
            None => format!("{name} is stuck"),
        },
        Verdict::Waiting => format!("{name} is waiting, which is in order"),
        Verdict::Quiet => format!("{name} is at work and sends no signal by nature"),
        Verdict::Moving => format!("{name} is moving{}", numbers(tree)),
        Verdict::Fine => format!("{name} is fine: {}", phase(object)),
        Verdict::Failed => format!("{name} has failed"),
        Verdict::PartiallyFailed => format!("{name} has ended, and something is missing"),
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
