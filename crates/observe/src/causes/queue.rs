//! Whether it has to wait for its turn.

use super::{Cause, Certainty, causes as causes_of};
use crate::evidence::ahead_in_queue;
use crate::object::Object;
use crate::world::World;

/// What is ahead of it, and whether that goes on.
pub(super) fn causes(object: &Object, world: &World) -> Vec<Cause> {
    let Some(ahead) = next_in_line(object, world) else { return Vec::new() };
    let place = object.number("/status/queuePosition").filter(|place| *place > 0);
    let place = place.map(|place| format!(", at position {place} of the queue")).unwrap_or_default();
    let text = format!("it waits for its turn behind {}{place}", ahead.reference());
    let mut found = vec![
        Cause::new("Queued", Certainty::Certain, text).orderly().then(format!("plimsoll why {}", ahead.reference())),
    ];
    // What holds up the one ahead holds up this one, too.
    let through = |cause: Cause| cause.through(format!("{} is ahead of it, and does not go on", ahead.reference()));
    found.extend(
        causes_of(ahead, world)
            .into_iter()
            .filter(|cause| !cause.orderly && cause.certainty < Certainty::Possible)
            .map(through),
    );
    found
}

/// What has to end before this begins.
pub(crate) fn next_in_line<'w>(object: &Object, world: &'w World) -> Option<&'w Object> {
    let waits = matches!(object.phase(), "New" | "Queued" | "ReadyToStart");
    ahead_in_queue(object, world).filter(|_| waits)
}
