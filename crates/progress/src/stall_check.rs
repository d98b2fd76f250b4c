//! Which tasks are stalled, and why.

use std::sync::Arc;
use std::time::Duration;

use crate::gain::GainTracker;
use crate::snapshot::{Node, depths};
use crate::snapshot_builder::Draft;
use crate::stall::{Stall, StallReason};
use crate::state::State;
use crate::view::rate_text;

/// The verdict on one task. A task with active children is judged by them, so the verdict falls on the deepest.
pub(crate) fn judge(draft: &Draft, node: &Node, gain: &GainTracker, age: Duration, now: Duration) -> Option<Stall> {
    if !node.state.is_active() {
        return None;
    }
    if let Some((reason, message)) = &draft.verdict {
        return Some(stall(node, age, *reason, Arc::clone(message)));
    }
    if draft.below.active || draft.patient {
        return None;
    }
    if let Some((who, silence)) = &draft.silent {
        let known = node.hint.as_ref().map(|hint| format!(": {hint}")).unwrap_or_default();
        return Some(stall(node, *silence, StallReason::NoReport, format!("no report from {who}{known}").into()));
    }
    if node.quiet {
        return node.overdue.then(|| stall(node, age, StallReason::DeadlineExceeded, why(node)));
    }
    let reason = if node.state == State::Waiting { StallReason::WaitingTooLong } else { StallReason::NoAdvance };
    if age >= draft.patience {
        return Some(stall(node, age, reason, why(node)));
    }
    judge_gain(draft, node, gain, age, now)
}

/// The verdict on a task that gives signs of life: whether they come to anything.
fn judge_gain(draft: &Draft, node: &Node, gain: &GainTracker, age: Duration, now: Duration) -> Option<Stall> {
    let limit = gain.limit();
    let without_gain = now.saturating_sub(draft.gains.gained);
    let below_usual = now.saturating_sub(draft.gains.usual);
    if without_gain >= limit {
        // Without a signal since its last gain it is only slow.
        let spins = age < without_gain;
        return spins.then(|| stall(node, without_gain, StallReason::NoGain, format!("no gain: {}", why(node)).into()));
    }
    (below_usual >= limit).then(|| {
        let usual = gain.usual_rate().map_or_else(
            || "slower than any transfer should be".to_owned(),
            |(rate, unit)| format!("below 1 % of its usual {}", rate_text(whole_rate(rate), unit)),
        );
        stall(node, below_usual, StallReason::BelowUsualRate, format!("{usual}: {}", why(node)).into())
    })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates are not negative, and saturate")]
fn whole_rate(rate: f64) -> u64 {
    rate as u64
}

fn stall(node: &Node, age: Duration, reason: StallReason, message: Arc<str>) -> Stall {
    Stall { task: Arc::clone(node.label()), age, reason, message }
}

/// Why, as far as it can be known.
fn why(node: &Node) -> Arc<str> {
    let about = node.reason.as_ref().or(node.item.as_ref());
    match (about, &node.hint) {
        (Some(about), Some(hint)) => format!("{about}: {hint}").into(),
        (Some(about), None) => Arc::clone(about),
        (None, Some(hint)) => Arc::clone(hint),
        (None, None) => Arc::from("nothing is known about why"),
    }
}

/// The verdict on the whole tree: the deepest stalled task; among equals the one that has been so for longest.
pub(crate) fn deepest_stall(nodes: &[Node]) -> Option<Stall> {
    if nodes.iter().all(|node| node.stall.is_none()) {
        return None;
    }
    let stalls = nodes.iter().zip(depths(nodes)).filter_map(|(node, depth)| Some((depth, node.stall.as_ref()?)));
    stalls.max_by_key(|(depth, stall)| (*depth, stall.age)).map(|(_, stall)| stall.clone())
}
