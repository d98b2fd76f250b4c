//! Why an operation failed, and what its last steps wait for.

use std::time::Duration;

use plimsoll_progress::view::duration_text;

use super::{Cause, Certainty, plugin, transfer};
use crate::cluster_state::ClusterState;
use crate::evidence::shorten;
use crate::kind::Kind;
use crate::object::Object;
use crate::observed_tree::errors;
use crate::transfer::{Transfer, TransferEnd};

/// The server may need this long between two updates.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);

/// Why an operation failed; nothing if it has not ended.
pub(super) fn causes(object: &Object, cluster: &ClusterState) -> Option<Vec<Cause>> {
    let reference = object.reference();
    let describe = format!("plimsoll describe {reference} --details");
    match object.phase() {
        "Completed" => Some(Vec::new()),
        "FailedValidation" => {
            let refused = |fault: &&str| Cause::new("Refused", Certainty::Certain, shorten(fault));
            let mut found: Vec<Cause> = object.texts("/status/validationErrors").iter().map(refused).collect();
            found.extend(super::location::causes(object, cluster));
            Some(found)
        }
        "Failed" => Some(failed(object, cluster, &describe)),
        "PartiallyFailed" => {
            let text = format!("it ended with {}", errors(object));
            let mut found = bad_transfers(object, cluster);
            found.push(
                Cause::new("PartiallyFailed", Certainty::Certain, text)
                    .with_command(describe)
                    .with_command(format!("plimsoll logs {reference}")),
            );
            Some(found)
        }
        _ => None,
    }
}

fn failed(object: &Object, cluster: &ClusterState, describe: &str) -> Vec<Cause> {
    let reason = shorten(object.some_text("/status/failureReason").unwrap_or("it failed without a reason"));
    // Velero's message for operations that a restart interrupted.
    let restart = reason.contains("during the server starting");
    let mut found = if restart { super::server::causes(object, cluster) } else { Vec::new() };
    let name = if restart { "ServerRestarted" } else { "Failed" };
    found.push(Cause::new(name, Certainty::Certain, reason).with_command(describe));
    found.extend(bad_transfers(object, cluster));
    found
}

fn bad_transfers(object: &Object, cluster: &ClusterState) -> Vec<Cause> {
    let bad = |transfer: &Transfer<'_>| matches!(transfer.end(), Some(TransferEnd::Failed | TransferEnd::Cancelled));
    Transfer::of(object, cluster).into_iter().filter(bad).map(transfer::failed).collect()
}

/// What an operation in its last steps waits for, as far as it is known.
pub(super) fn unfinished(object: &Object, cluster: &ClusterState) -> Vec<Cause> {
    let silence = object.last_write().map(|then| cluster.age(then)).unwrap_or_default();
    let moving = Transfer::of(object, cluster).iter().any(|transfer| !transfer.is_ended());
    if silence < SILENCE_LIMIT || moving {
        return Vec::new();
    }
    let since = duration_text(silence);
    let logs = format!("{} --since 1h | grep {}", super::server::logs_command(cluster), object.name());
    match object.phase() {
        phase if phase.starts_with("WaitingForPluginOperations") => vec![plugins(object, cluster, silence, logs)],
        phase if phase.starts_with("Finalizing") => {
            let text =
                format!("the server has been finishing it for {since}: hooks in restored pods, or volumes to be bound");
            vec![Cause::new("Finalizing", hooks_certainty(object), text).with_command(logs)]
        }
        "InProgress" => {
            let text =
                format!("the server has been processing one item for {since}: a hook, a plugin, or the API server");
            let cause = Cause::new("NoProgress", Certainty::Possible, text).with_optional_evidence(hooks(object));
            vec![cause.with_command(logs)]
        }
        "New" | "ReadyToStart" | "Queued" if super::ahead_of(object, cluster).is_none() => {
            let text = format!("no server has started it for {since}");
            vec![Cause::new("NotStarted", Certainty::Possible, text).with_command(logs)]
        }
        _ => Vec::new(),
    }
}

/// A plugin reports its progress to the server, which does not publish it: silence is normal until the timeout is near.
fn plugins(object: &Object, cluster: &ClusterState, silence: Duration, logs: String) -> Cause {
    let prefix = if object.kind() == Kind::Restore { "restore" } else { "backup" };
    let field = |what: &str| object.number(&format!("/status/{prefix}ItemOperations{what}")).unwrap_or(0);
    let left = field("Attempted").saturating_sub(field("Completed") + field("Failed"));
    let since = duration_text(silence);
    let text = match field("Attempted") {
        0 => format!("it has waited for plugins for {since}, without naming them"),
        all => format!("{left} of {all} operations of plugins have not ended, and none has for {since}"),
    };
    let limit = plugin::limit(Some(object));
    let certainty = plugin::certainty_of_silence(silence, limit);
    Cause::new("PluginOperationSilent", certainty, text)
        .with_evidence(format!("the server gives up after {}", duration_text(limit)))
        .with_command(format!("{}  # the operations and what their plugins say", plugin::describe(object, cluster)))
        .with_command(logs)
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

/// Why a deletion of a backup is stuck or failed.
pub(super) fn deletion(request: &Object, cluster: &ClusterState) -> Vec<Cause> {
    let faults = request.texts("/status/errors");
    if !faults.is_empty() {
        let cause = |fault: &&str| Cause::new("DeletionFailed", Certainty::Certain, shorten(fault));
        return faults.iter().map(cause).collect();
    }
    if request.phase() == "Processed" {
        return Vec::new();
    }
    let mut found = super::server::causes(request, cluster);
    if let Some(backup) = cluster.find(Kind::Backup, request.namespace(), request.text("/spec/backupName")) {
        found.extend(super::location::causes(backup, cluster));
    }
    found
}
