//! What plugins do with volumes: how far it is, and since when nothing is heard of it.

use std::time::Duration;

use plimsoll_progress::view::{duration_text, size_text};

use super::{Cause, Certainty, server, transfer};
use crate::evidence::{Maker, clean, maker, short};
use crate::kind::Kind;
use crate::object::Object;
use crate::transfer::Transfer;
use crate::world::World;

/// Silence of a plugin that says how far it is, for longer than this, is a stall.
const SILENCE: Duration = Duration::from_secs(30);
/// The server gives operations of plugins this long, unless it is told otherwise.
const USUAL_LIMIT: Duration = Duration::from_hours(4);
/// Silence for this part of that is more than a plugin's nature.
const NEAR_THE_LIMIT: f64 = 0.9;

/// For how long the server waits for the plugins of this backup or restore.
pub(super) fn limit(subject: Option<&Object>) -> Duration {
    let told = subject.and_then(|subject| subject.duration("/spec/itemOperationTimeout"));
    told.filter(|limit| !limit.is_zero()).unwrap_or(USUAL_LIMIT)
}

/// How much the silence of a plugin that says nothing by nature explains.
pub(super) fn certainty_of_silence(silence: Duration, limit: Duration) -> Certainty {
    if silence >= limit.mul_f64(NEAR_THE_LIMIT) { Certainty::Likely } else { Certainty::Possible }
}

/// The command that tells what the plugins of a backup or restore say.
pub(super) fn describe(subject: &Object, world: &World) -> String {
    let (kind, name, namespace) = (subject.kind().word(), subject.name(), subject.namespace());
    match maker(world) {
        Maker::Velero => format!("velero {kind} describe {name} --details -n {namespace}"),
        Maker::Plimsoll => format!("plimsoll describe {kind}/{name} --details -n {namespace}"),
    }
}

/// What a plugin does with a volume has not ended. As long as something is heard of it that is in order.
pub(super) fn cause(transfer: Transfer<'_>, world: &World) -> Cause {
    let (object, silence) = (transfer.object, transfer.silence(world));
    let parent = transfer.parent().and_then(|(kind, name)| world.find(kind, object.namespace(), name));
    let stalled = object.some_text("/status/plimsoll/stalled/message");
    let certainty = if stalled.is_some() || (transfer.counts() && silence >= SILENCE) {
        Certainty::Likely
    } else {
        certainty_of_silence(silence, limit(parent))
    };
    let heard = if silence < SILENCE { "last heard of" } else { "silent for" };
    let ago = if silence < SILENCE { " ago" } else { "" };
    let text = format!("{}; {}, {heard} {}{ago}", what(transfer), how_far(transfer), duration_text(silence));
    let mut found = if silence < SILENCE && stalled.is_none() {
        Cause::new("PluginWorks", Certainty::Likely, text).orderly()
    } else {
        Cause::new("PluginOperationSilent", certainty, text)
    };
    let since = object.created().map(|then| duration_text(world.age(then))).unwrap_or_default();
    found = found.because(format!("{} has been {} for {since}", object.reference(), clean(object.phase())));
    found = found.and(object.some_text("/status/message").map(|said| format!("the plugin says: {}", short(said))));
    found = found.and(stalled.map(|words| format!("the server says: {}", short(words))));
    found = found.then(transfer::get(object));
    match parent.filter(|_| !found.orderly) {
        Some(parent) => found
            .because(format!("the server gives up after {}", duration_text(limit(Some(parent)))))
            .then(format!("{} --since 1h | grep {}", server::logs(world), parent.name())),
        None => found,
    }
}

/// What it does, and with what.
fn what(transfer: Transfer<'_>) -> String {
    let object = transfer.object;
    let by = object.some_text("/spec/plugin").map_or("a plugin".to_owned(), |name| format!("plugin {}", short(name)));
    match object.kind() {
        Kind::VolumePluginRestore => {
            let from = object.some_text("/spec/snapshotID").map(|id| format!(" from snapshot {}", short(id)));
            format!("{by} makes volume {}{}", transfer.label(), from.unwrap_or_default())
        }
        _ => format!("{by} takes a snapshot of volume {}", transfer.label()),
    }
}

/// `60.00 %, 600 B of 1000 B`, or that nobody knows.
fn how_far(transfer: Transfer<'_>) -> String {
    let (done, total) = transfer.bytes();
    match (transfer.percent(), total.value()) {
        (Some(percent), Some(known)) => {
            let about = if total.is_final() { "" } else { "~" };
            format!("{percent} %, {} of {about}{}", size_text(done.min(known)), size_text(known))
        }
        (Some(percent), None) => format!("{percent} %"),
        (None, _) if done > 0 => format!("{} so far", size_text(done)),
        (None, _) => "it does not say how far it is".to_owned(),
    }
}
