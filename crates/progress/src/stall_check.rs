//! Which tasks are stalled, and why.

use std::sync::Arc;
use std::time::Duration;

use crate::snapshot::{Node, depths};
use crate::snapshot_builder::Draft;
use crate::stall::{Stall, StallReason};
use crate::state::State;

/// The verdict on one task. A task with active children is judged by them, so the verdict falls on the deepest.
pub(crate) fn judge(draft: &Draft, node: &Node, age: Duration) -> Option<Stall> {
    if !node.state.is_active() {
        return None;
    }
    if let Some(liveness) = &draft.liveness {
        return Some(stall(node, age, StallReason::LivenessFailed, Arc::clone(liveness)));
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
    (age >= draft.patience).then(|| stall(node, age, reason, why(node)))
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
