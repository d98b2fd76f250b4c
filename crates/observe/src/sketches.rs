//! From an object, and those that belong to it, to a sketch of its tree.

use jiff::Timestamp;
use plimsoll_progress::{Counts, Total, Unit};
use serde_json::Value;

use crate::evidence::ahead_in_queue;
use crate::kind::Kind;
use crate::object::Object;
use crate::sketch::{Sketch, Standing};
use crate::transfer::{End, Transfer};
use crate::world::World;

/// The tree of an object, as the cluster tells it at this moment.
pub fn sketch(object: &Object, world: &World) -> Sketch {
    match object.kind() {
        Kind::Backup | Kind::Restore => subject(object, world),
        Kind::ActionSet => action_set(object),
        kind if kind.is_transfer() || kind.is_plugins() => Transfer { object }.sketch(world),
        _ => plain(object),
    }
}

fn subject(object: &Object, world: &World) -> Sketch {
    let transfers = Transfer::of(object, world);
    let moving = transfers.iter().any(|transfer| !transfer.is_ended());
    let mut children = vec![objects(object, moving)];
    children.extend(volumes(&transfers, world));
    children.extend(plugin_operations(object, moving));
    if object.phase().starts_with("Finalizing") {
        let finalizing = Sketch::new("finalizing", Standing::Waiting("the server to finish it".into()));
        children.push(finalizing.at(object.last_write(), object.last_write()));
    }
    let children = if children.len() == 1 && matches!(object.phase(), "New" | "Queued" | "ReadyToStart") {
        Vec::new()
    } else {
        children
    };
    Sketch::new(object.reference().to_string(), subject_standing(object, world))
        .at(object.time("/status/startTimestamp").or_else(|| object.created()), object.last_write())
        .until(object.time("/status/completionTimestamp"))
        .of(children)
}

fn subject_standing(object: &Object, world: &World) -> Standing {
    let reason = object.text("/status/failureReason");
    match object.phase() {
        "Completed" => Standing::Done,
        "PartiallyFailed" => Standing::Failed(format!("PartiallyFailed, {}", errors(object))),
        "FailedValidation" => Standing::Failed(object.texts("/status/validationErrors").join("; ")),
        "Failed" if reason == "Cancelled" => Standing::Cancelled(reason.to_owned()),
        "Failed" if reason.is_empty() => Standing::Failed("Failed without a reason".to_owned()),
        "Failed" => Standing::Failed(reason.to_owned()),
        "Queued" | "New" | "ReadyToStart" => match ahead_in_queue(object, world) {
            Some(ahead) => Standing::Patient(format!("its turn, behind {}", ahead.reference())),
            None => Standing::Waiting("the server to take it up".to_owned()),
        },
        "Deleting" => Standing::Waiting("the server to delete it".to_owned()),
        _ => Standing::Running,
    }
}

/// `3 errors, 2 warnings`.
pub(crate) fn errors(object: &Object) -> String {
    let number = |field: &str| object.number(&format!("/status/{field}")).unwrap_or(0);
    format!("{} errors, {} warnings", number("errors"), number("warnings"))
}

fn objects(object: &Object, moving: bool) -> Sketch {
    let standing = match object.phase() {
        "New" | "Queued" | "ReadyToStart" => Standing::Pending,
        // The server waits for the volumes before it goes on; they are judged by themselves.
        "InProgress" if moving => Standing::Patient("its volumes".to_owned()),
        "InProgress" | "Deleting" => Standing::Running,
        "Failed" | "FailedValidation" => Standing::Failed(String::new()),
        _ => Standing::Done,
    };
    let began = object.time("/status/startTimestamp");
    let mut sketch = Sketch::new("objects", standing).at(began, object.last_write());
    sketch.meters.push(items(object));
    sketch
}

/// Items, from the fields that Velero has and those that we add.
fn items(object: &Object) -> Counts {
    let field = |name: &str| object.number(&format!("/status/progress/{name}")).unwrap_or(0);
    let done = field(if object.kind() == Kind::Restore { "itemsRestored" } else { "itemsBackedUp" });
    let (skipped, failed) = (field("itemsSkipped"), field("itemsFailed"));
    let total = match object.number("/status/progress/totalItems") {
        None => Total::Unknown,
        // Velero calls it an estimate, and corrects it both ways.
        Some(total) if object.phase() == "InProgress" => Total::Growing(total.max(done + skipped + failed)),
        Some(total) => Total::Final(total.max(done + skipped + failed)),
    };
    Counts { done, skipped, failed, total, ..Counts::zero(Unit::Items) }
}

fn volumes(transfers: &[Transfer<'_>], world: &World) -> Option<Sketch> {
    if transfers.is_empty() {
        return None;
    }
    let bad = |transfer: &&Transfer<'_>| matches!(transfer.end(), Some(End::Failed | End::Cancelled));
    let failed = transfers.iter().filter(bad).count();
    let standing = match failed {
        _ if transfers.iter().any(|transfer| !transfer.is_ended()) => Standing::Running,
        0 => Standing::Done,
        failed => Standing::Failed(format!("{failed} of {} failed", transfers.len())),
    };
    let began = transfers.iter().filter_map(Transfer::began).min();
    let written = transfers.iter().filter_map(Transfer::last_word).max();
    let children = transfers.iter().map(|transfer| transfer.sketch(world)).collect();
    Some(Sketch::new("volumes", standing).at(began, written).until(written).of(children))
}

fn plugin_operations(object: &Object, moving: bool) -> Option<Sketch> {
    let prefix = if object.kind() == Kind::Restore { "restore" } else { "backup" };
    let field = |what: &str| object.number(&format!("/status/{prefix}ItemOperations{what}")).unwrap_or(0);
    let (attempted, done, failed) = (field("Attempted"), field("Completed"), field("Failed"));
    if attempted == 0 {
        return None;
    }
    let standing = match object.phase() {
        "InProgress" => Standing::Pending,
        phase if phase.starts_with("WaitingForPluginOperations") && moving => Standing::Patient("its volumes".into()),
        // A plugin tells the server how far it is, and the server tells nobody before it has ended.
        phase if phase.starts_with("WaitingForPluginOperations") => Standing::Quiet,
        "Failed" => Standing::Failed(String::new()),
        _ => Standing::Done,
    };
    let counts = Counts { done, failed, total: Total::Final(attempted), ..Counts::zero(Unit::Steps) };
    let mut sketch = Sketch::new("plugin operations", standing).at(object.last_write(), object.last_write());
    sketch.meters.push(counts);
    Some(sketch)
}

fn action_set(object: &Object) -> Sketch {
    let message = object.text("/status/error/message");
    let standing = match object.text("/status/state") {
        "complete" => Standing::Done,
        "failed" => Standing::Failed(message.to_owned()),
        "running" => Standing::Running,
        _ => Standing::Waiting("the controller to take it up".to_owned()),
    };
    let actions = object.list("/status/actions").iter().map(|action| one_action(action, object, message)).collect();
    let ended = standing.is_ended().then(|| object.last_write()).flatten();
    let mut sketch = Sketch::new(object.reference().to_string(), standing);
    sketch.equal_weights = true;
    sketch.at(object.created(), object.last_write()).until(ended).of(actions)
}

fn one_action(action: &Value, set: &Object, message: &str) -> Sketch {
    let deferred = action.get("deferPhase").filter(|phase| phase["name"].as_str().is_some_and(|name| !name.is_empty()));
    let phases = action["phases"].as_array().into_iter().flatten().chain(deferred);
    let children: Vec<Sketch> = phases.map(|phase| one_phase(phase, set, message)).collect();
    let about = format!("{} {}", action["object"]["kind"].as_str().unwrap_or_default(), named(&action["object"]));
    let standing = if children.iter().any(|phase| matches!(phase.standing, Standing::Failed(_))) {
        Standing::Failed(String::new())
    } else if children.iter().all(|phase| phase.standing == Standing::Done) {
        Standing::Done
    } else if children.iter().all(|phase| phase.standing == Standing::Pending) {
        Standing::Pending
    } else {
        Standing::Running
    };
    let mut sketch = Sketch::new(format!("{} {}", text(action, "name"), about.trim()), standing);
    sketch.equal_weights = true;
    sketch.at(set.created(), set.last_write()).until(set.last_write()).of(children)
}

fn one_phase(phase: &Value, set: &Object, message: &str) -> Sketch {
    let standing = match text(phase, "state") {
        "complete" => Standing::Done,
        "failed" => Standing::Failed(message.to_owned()),
        // Kanister's functions say nothing while they work.
        "running" => Standing::Quiet,
        _ => Standing::Pending,
    };
    let progress = &phase["progress"];
    let changed = progress.get("lastTransitionTime").and_then(crate::object::time);
    let mut sketch = Sketch::new(text(phase, "name"), standing).at(changed.or(set.created()), changed);
    let number = |field: &str| progress[field].as_u64();
    let total = number("estimatedUploadSizeB").max(number("estimatedDownloadSizeB")).unwrap_or(0);
    // Who says only at the end how much was sent says in percent how much was read.
    let percent = || progress["progressPercent"].as_str()?.split('.').next()?.parse::<u64>().ok();
    let read = || (total / 100).saturating_mul(percent().unwrap_or(0));
    let done = number("sizeUploadedB").max(number("sizeDownloadedB")).unwrap_or_else(read);
    if done + total > 0 {
        let total = if total > 0 { Total::Growing(total.max(done)) } else { Total::Unknown };
        sketch = sketch.counting(Unit::Bytes, done, total);
    }
    sketch.until(changed)
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

fn named(object: &Value) -> String {
    let (namespace, name) = (text(object, "namespace"), text(object, "name"));
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// Something that is done in one step, or never ends.
fn plain(object: &Object) -> Sketch {
    let errors = || object.texts("/status/errors").join("; ");
    let standing = match (object.kind(), object.phase()) {
        (Kind::DeleteBackupRequest, "Processed") if errors().is_empty() => Standing::Done,
        (Kind::DeleteBackupRequest, "Processed") => Standing::Failed(errors()),
        (Kind::DeleteBackupRequest, "InProgress") => Standing::Running,
        (Kind::DeleteBackupRequest, _) => Standing::Waiting("the server to take it up".to_owned()),
        (Kind::Location, "Unavailable") => Standing::Waiting(object.text("/status/message").to_owned()),
        (_, "FailedValidation") => Standing::Failed(object.texts("/status/validationErrors").join("; ")),
        _ => Standing::Quiet,
    };
    let ended: Option<Timestamp> = standing.is_ended().then(|| object.last_write()).flatten();
    Sketch::new(object.reference().to_string(), standing).at(object.created(), object.last_write()).until(ended)
}
