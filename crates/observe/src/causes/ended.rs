//! How it ended, and what is left to do at the end.

use std::time::Duration;

use plimsoll_progress::view::duration_text;

use super::{Cause, Certainty, plugin, transfer};
use crate::evidence::short;
use crate::kind::Kind;
use crate::object::Object;
use crate::sketches::errors;
use crate::transfer::{End, Transfer};
use crate::world::World;

/// The server may need this long between two words.
const SILENCE: Duration = Duration::from_secs(30);

/// Why it ended as it did; nothing if it has not ended.
pub(super) fn causes(object: &Object, world: &World) -> Option<Vec<Cause>> {
    let reference = object.reference();
    let describe = format!("plimsoll describe {reference} --details");
    match object.phase() {
        "Completed" => Some(Vec::new()),
        "FailedValidation" => {
            let refused = |fault: &&str| Cause::new("Refused", Certainty::Certain, short(fault));
            let mut found: Vec<Cause> = object.texts("/status/validationErrors").iter().map(refused).collect();
            found.extend(super::location::causes(object, world));
            Some(found)
        }
        "Failed" => Some(failed(object, world, &describe)),
        "PartiallyFailed" => {
            let text = format!("it ended with {}", errors(object));
            let mut found = bad_transfers(object, world);
            found.push(
                Cause::new("PartiallyFailed", Certainty::Certain, text)
                    .then(describe)
                    .then(format!("plimsoll logs {reference}")),
            );
            Some(found)
        }
        _ => None,
    }
}

fn failed(object: &Object, world: &World, describe: &str) -> Vec<Cause> {
    let reason = short(object.some_text("/status/failureReason").unwrap_or("it ended Failed, and no reason is given"));
    // Velero's words for what a restart does to whatever runs.
    let restart = reason.contains("during the server starting");
    let mut found = if restart { super::server::causes(object, world) } else { Vec::new() };
    let name = if restart { "ServerRestarted" } else { "Failed" };
    found.push(Cause::new(name, Certainty::Certain, reason).then(describe));
    found.extend(bad_transfers(object, world));
    found
}

fn bad_transfers(object: &Object, world: &World) -> Vec<Cause> {
    let bad = |transfer: &Transfer<'_>| matches!(transfer.end(), Some(End::Failed | End::Cancelled));
    Transfer::of(object, world).into_iter().filter(bad).map(transfer::failed).collect()
}

/// What an operation in its last steps waits for, as far as that can be told at all.
pub(super) fn unfinished(object: &Object, world: &World) -> Vec<Cause> {
    let silence = object.last_write().map(|then| world.age(then)).unwrap_or_default();
    let moving = Transfer::of(object, world).iter().any(|transfer| !transfer.is_ended());
    if silence < SILENCE || moving {
        return Vec::new();
    }
    let since = duration_text(silence);
    let logs = format!("{} --since 1h | grep {}", super::server::logs(world), object.name());
    match object.phase() {
        phase if phase.starts_with("WaitingForPluginOperations") => vec![plugins(object, world, silence, logs)],
        phase if phase.starts_with("Finalizing") => {
            let text =
                format!("the server has been finishing it for {since}: hooks in restored pods, or volumes to be bound");
            vec![Cause::new("Finalizing", hooks_certainty(object), text).then(logs)]
        }
        "InProgress" => {
            let text = format!("the server has not got past an item for {since}: a hook, a plugin, or the API server");
            let cause = Cause::new("NoProgress", Certainty::Possible, text).and(hooks(object));
            vec![cause.then(logs)]
        }
        "New" | "ReadyToStart" | "Queued" if super::next_in_line(object, world).is_none() => {
            let text = format!("nobody has taken it up for {since}");
            vec![Cause::new("NotTakenUp", Certainty::Possible, text).then(logs)]
        }
        _ => Vec::new(),
    }
}

/// A plugin tells the server how far it is, and the server tells nobody: its silence is in order until the server is about to give up.
fn plugins(object: &Object, world: &World, silence: Duration, logs: String) -> Cause {
    let prefix = if object.kind() == Kind::Restore { "restore" } else { "backup" };
    let field = |what: &str| object.number(&format!("/status/{prefix}ItemOperations{what}")).unwrap_or(0);
    let left = field("Attempted").saturating_sub(field("Completed") + field("Failed"));
    let since = duration_text(silence);
    let text = match field("Attempted") {
        0 => format!("it has waited for plugins for {since}, and does not say for which"),
        all => format!("{left} of {all} operations of plugins have not ended, and none has for {since}"),
    };
    let limit = plugin::limit(Some(object));
    let certainty = plugin::certainty_of_silence(silence, limit);
    Cause::new("PluginOperationSilent", certainty, text)
        .because(format!("the server gives up after {}", duration_text(limit)))
        .then(format!("{}  # the operations and what their plugins say", plugin::describe(object, world)))
        .then(logs)
}

fn hooks_certainty(object: &Object) -> Certainty {
    if hooks(object).is_some() { Certainty::Likely } else { Certainty::Possible }
}

fn hooks(object: &Object) -> Option<String> {
    let defined = object.list("/spec/hooks/resources").len();
    (defined > 0).then(|| {
        let done = object.number("/status/hookStatus/hooksAttempted").unwrap_or(0);
        format!("it has hooks: {defined} defined, {done} run so far")
    })
}

/// Why a backup is not deleted.
pub(super) fn deletion(request: &Object, world: &World) -> Vec<Cause> {
    let faults = request.texts("/status/errors");
    if !faults.is_empty() {
        let cause = |fault: &&str| Cause::new("DeletionFailed", Certainty::Certain, short(fault));
        return faults.iter().map(cause).collect();
    }
    if request.phase() == "Processed" {
        return Vec::new();
    }
    let mut found = super::server::causes(request, world);
    if let Some(backup) = world.find(Kind::Backup, request.namespace(), request.text("/spec/backupName")) {
        found.extend(super::location::causes(backup, world));
    }
    found
}
