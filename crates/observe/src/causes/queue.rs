//! Whether an operation is queued.

use super::{Cause, Certainty, causes as causes_of};
use crate::cluster_state::ClusterState;
use crate::evidence::ahead_in_queue;
use crate::object::Object;

/// What is ahead in the queue, and what that one is stuck on.
pub(super) fn causes(object: &Object, cluster: &ClusterState) -> Vec<Cause> {
    let Some(ahead) = ahead_of(object, cluster) else { return Vec::new() };
    let place = object.number("/status/queuePosition").filter(|place| *place > 0);
    let place = place.map(|place| format!(", at position {place} of the queue")).unwrap_or_default();
    let text = format!("queued behind {}{place}", ahead.reference());
    let mut found = vec![
        Cause::new("Queued", Certainty::Certain, text)
            .expected()
            .with_command(format!("plimsoll why {}", ahead.reference())),
    ];
    // What blocks the operation ahead blocks this one, too.
    let through = |cause: Cause| cause.with_context(format!("{} is ahead of it and is stuck", ahead.reference()));
    found.extend(
        causes_of(ahead, cluster)
            .into_iter()
            .filter(|cause| !cause.expected && cause.certainty < Certainty::Possible)
            .map(through),
    );
    found
}

/// The operation that has to end before this one starts.
pub(crate) fn ahead_of<'w>(object: &Object, cluster: &'w ClusterState) -> Option<&'w Object> {
    let waits = matches!(object.phase(), "New" | "Queued" | "ReadyToStart");
    ahead_in_queue(object, cluster).filter(|_| waits)
}
