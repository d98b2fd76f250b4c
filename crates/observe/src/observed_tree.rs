//! The task tree of an object, as the cluster's objects show it.

use jiff::Timestamp;
use plimsoll_progress::{Counts, Total, Unit};
use serde_json::Value;

use crate::cluster_state::ClusterState;
use crate::evidence::{ahead_in_queue, last_action_report};
use crate::kind::Kind;
use crate::object::Object;
use crate::observed_task::{ObservedTask, TaskStatus};
use crate::transfer::{Transfer, TransferEnd};

/// The task tree of an object at this moment.
pub fn observed_tree(object: &Object, cluster: &ClusterState) -> ObservedTask {
    match object.kind() {
        Kind::Backup | Kind::Restore => subject(object, cluster),
        Kind::ActionSet => action_set(object),
        kind if kind.is_transfer() || kind.is_plugin_volume() => Transfer { object }.observed_task(cluster),
        _ => single_step_task(object),
    }
}

fn subject(object: &Object, cluster: &ClusterState) -> ObservedTask {
    let transfers = Transfer::of(object, cluster);
    let moving = transfers.iter().any(|transfer| !transfer.is_ended());
    let mut children = vec![objects(object, moving)];
    children.extend(volumes(&transfers, cluster));
    children.extend(plugin_operations(object, moving));
    if object.phase().starts_with("Finalizing") {
        let finalizing = ObservedTask::new("finalizing", TaskStatus::Waiting("the server to finish it".into()));
        children.push(finalizing.with_times(object.last_write(), object.last_write()));
    }
    let children = if children.len() == 1 && matches!(object.phase(), "New" | "Queued" | "ReadyToStart") {
        Vec::new()
    } else {
        children
    };
    ObservedTask::new(object.reference().to_string(), subject_status(object, cluster))
        .with_times(object.time("/status/startTimestamp").or_else(|| object.created()), object.last_write())
        .with_end(object.time("/status/completionTimestamp"))
        .with_children(children)
}

fn subject_status(object: &Object, cluster: &ClusterState) -> TaskStatus {
    let reason = object.text("/status/failureReason");
    match object.phase() {
        "Completed" => TaskStatus::Done,
        "PartiallyFailed" => TaskStatus::Failed(format!("PartiallyFailed, {}", errors(object))),
        "FailedValidation" => TaskStatus::Failed(object.texts("/status/validationErrors").join("; ")),
        "Failed" if reason == "Cancelled" => TaskStatus::Cancelled(reason.to_owned()),
        "Failed" if reason.is_empty() => TaskStatus::Failed("Failed without a reason".to_owned()),
        "Failed" => TaskStatus::Failed(reason.to_owned()),
        "Queued" | "New" | "ReadyToStart" => match ahead_in_queue(object, cluster) {
            Some(ahead) => TaskStatus::Queued(format!("its turn, behind {}", ahead.reference())),
            None => TaskStatus::Waiting("the server to start it".to_owned()),
        },
        "Deleting" => TaskStatus::Waiting("the server to delete it".to_owned()),
        _ => TaskStatus::Running,
    }
}

/// `3 errors, 2 warnings`.
pub(crate) fn errors(object: &Object) -> String {
    let number = |field: &str| object.number(&format!("/status/{field}")).unwrap_or(0);
    format!("{} errors, {} warnings", number("errors"), number("warnings"))
}

fn objects(object: &Object, moving: bool) -> ObservedTask {
    let status = match object.phase() {
        "New" | "Queued" | "ReadyToStart" => TaskStatus::Pending,
        // The server waits for the volumes before it continues; they are judged on their own.
        "InProgress" if moving => TaskStatus::Queued("its volumes".to_owned()),
        "InProgress" | "Deleting" => TaskStatus::Running,
        "Failed" | "FailedValidation" => TaskStatus::Failed(String::new()),
        _ => TaskStatus::Done,
    };
    let began = object.time("/status/startTimestamp");
    let mut observed = ObservedTask::new("objects", status).with_times(began, object.last_write());
    observed.meters.push(items(object));
    observed
}

/// Items, from the fields that Velero has and those that we add.
fn items(object: &Object) -> Counts {
    let field = |name: &str| object.number(&format!("/status/progress/{name}")).unwrap_or(0);
    let done = field(if object.kind() == Kind::Restore { "itemsRestored" } else { "itemsBackedUp" });
    let (skipped, failed) = (field("itemsSkipped"), field("itemsFailed"));
    let total = match object.number("/status/progress/totalItems") {
        None => Total::Unknown,
        // Velero calls it an estimate, and corrects it both ways.
        Some(total) if object.phase() == "InProgress" => Total::Growing(total),
        Some(total) => Total::Final(total),
    };
    Counts { done, skipped, failed, total, ..Counts::zero(Unit::Items) }.covered()
}

fn volumes(transfers: &[Transfer<'_>], cluster: &ClusterState) -> Option<ObservedTask> {
    if transfers.is_empty() {
        return None;
    }
    let bad = |transfer: &&Transfer<'_>| matches!(transfer.end(), Some(TransferEnd::Failed | TransferEnd::Cancelled));
    let failed = transfers.iter().filter(bad).count();
    let status = match failed {
        _ if transfers.iter().any(|transfer| !transfer.is_ended()) => TaskStatus::Running,
        0 => TaskStatus::Done,
        failed => TaskStatus::Failed(format!("{failed} of {} failed", transfers.len())),
    };
    let began = transfers.iter().filter_map(Transfer::began).min();
    let written = transfers.iter().filter_map(Transfer::last_report).max();
    let children = transfers.iter().map(|transfer| transfer.observed_task(cluster)).collect();
    Some(ObservedTask::new("volumes", status).with_times(began, written).with_end(written).with_children(children))
}

fn plugin_operations(object: &Object, moving: bool) -> Option<ObservedTask> {
    let prefix = if object.kind() == Kind::Restore { "restore" } else { "backup" };
    let field = |what: &str| object.number(&format!("/status/{prefix}ItemOperations{what}")).unwrap_or(0);
    let (attempted, done, failed) = (field("Attempted"), field("Completed"), field("Failed"));
    if attempted == 0 {
        return None;
    }
    let status = match object.phase() {
        "InProgress" => TaskStatus::Pending,
        phase if phase.starts_with("WaitingForPluginOperations") && moving => TaskStatus::Queued("its volumes".into()),
        // A plugin reports its progress to the server, which publishes nothing until the operation has ended.
        phase if phase.starts_with("WaitingForPluginOperations") => TaskStatus::Quiet,
        "Failed" => TaskStatus::Failed(String::new()),
        _ => TaskStatus::Done,
    };
    let counts = Counts { done, failed, total: Total::Final(attempted), ..Counts::zero(Unit::Steps) }.covered();
    let mut observed =
        ObservedTask::new("plugin operations", status).with_times(object.last_write(), object.last_write());
    observed.meters.push(counts);
    Some(observed)
}

fn action_set(object: &Object) -> ObservedTask {
    let message = object.text("/status/error/message");
    let status = match object.text("/status/state") {
        "complete" => TaskStatus::Done,
        "failed" => TaskStatus::Failed(message.to_owned()),
        "running" => TaskStatus::Running,
        _ => TaskStatus::Waiting("the controller to start it".to_owned()),
    };
    let actions = object.list("/status/actions").iter().map(|action| one_action(action, object, message)).collect();
    let ended = status.is_ended().then(|| last_action_report(object)).flatten();
    let mut observed = ObservedTask::new(object.reference().to_string(), status);
    observed.equal_weights = true;
    observed.with_times(object.created(), last_action_report(object)).with_end(ended).with_children(actions)
}

fn one_action(action: &Value, set: &Object, message: &str) -> ObservedTask {
    let deferred = action.get("deferPhase").filter(|phase| phase["name"].as_str().is_some_and(|name| !name.is_empty()));
    let phases = action["phases"].as_array().into_iter().flatten();
    let mut children: Vec<ObservedTask> = phases.map(|phase| one_phase(phase, set, message)).collect();
    let shares = u32::try_from(children.len()).ok();
    // As in Kanister, the deferPhase is no part of the percentage.
    children.extend(deferred.map(|phase| ObservedTask { shares: Some(0), ..one_phase(phase, set, message) }));
    let about = format!("{} {}", action["object"]["kind"].as_str().unwrap_or_default(), named(&action["object"]));
    let status = if children.iter().any(|phase| matches!(phase.status, TaskStatus::Failed(_))) {
        TaskStatus::Failed(String::new())
    } else if children.iter().all(|phase| phase.status == TaskStatus::Done) {
        TaskStatus::Done
    } else if children.iter().all(|phase| phase.status == TaskStatus::Pending) {
        TaskStatus::Pending
    } else {
        TaskStatus::Running
    };
    let mut observed = ObservedTask::new(format!("{} {}", text(action, "name"), about.trim()), status);
    (observed.equal_weights, observed.shares) = (true, shares);
    observed
        .with_times(set.created(), last_action_report(set))
        .with_end(last_action_report(set))
        .with_children(children)
}

fn one_phase(phase: &Value, set: &Object, message: &str) -> ObservedTask {
    let status = match text(phase, "state") {
        "complete" => TaskStatus::Done,
        "failed" => TaskStatus::Failed(message.to_owned()),
        // Kanister's functions report nothing while they run.
        "running" => TaskStatus::Quiet,
        _ => TaskStatus::Pending,
    };
    let progress = &phase["progress"];
    let changed = progress.get("lastTransitionTime").and_then(crate::object::time);
    let mut observed = ObservedTask::new(text(phase, "name"), status).with_times(changed.or(set.created()), changed);
    let number = |field: &str| progress[field].as_u64();
    let total = number("estimatedUploadSizeB").max(number("estimatedDownloadSizeB")).unwrap_or(0);
    // A mover that reports the size only at the end reports the percentage meanwhile.
    let percent = || progress["progressPercent"].as_str()?.split('.').next()?.parse::<u64>().ok();
    let read = || (total / 100).saturating_mul(percent().unwrap_or(0));
    let done = number("sizeUploadedB").max(number("sizeDownloadedB")).unwrap_or_else(read);
    if done + total > 0 {
        let total = if total > 0 { Total::Growing(total.max(done)) } else { Total::Unknown };
        observed = observed.with_meter(Unit::Bytes, done, total);
    }
    observed.with_end(changed)
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

fn named(object: &Value) -> String {
    let (namespace, name) = (text(object, "namespace"), text(object, "name"));
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// An object whose work is one step, or that never ends.
fn single_step_task(object: &Object) -> ObservedTask {
    let errors = || object.texts("/status/errors").join("; ");
    let status = match (object.kind(), object.phase()) {
        (Kind::DeleteBackupRequest, "Processed") if errors().is_empty() => TaskStatus::Done,
        (Kind::DeleteBackupRequest, "Processed") => TaskStatus::Failed(errors()),
        (Kind::DeleteBackupRequest, "InProgress") => TaskStatus::Running,
        (Kind::DeleteBackupRequest, _) => TaskStatus::Waiting("the server to start it".to_owned()),
        (Kind::Location, "Unavailable") => TaskStatus::Waiting(object.text("/status/message").to_owned()),
        (_, "FailedValidation") => TaskStatus::Failed(object.texts("/status/validationErrors").join("; ")),
        _ => TaskStatus::Quiet,
    };
    let ended: Option<Timestamp> = status.is_ended().then(|| object.last_write()).flatten();
    ObservedTask::new(object.reference().to_string(), status)
        .with_times(object.created(), object.last_write())
        .with_end(ended)
}
