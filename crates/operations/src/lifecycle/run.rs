//! One operation from its start, or its take-over, to its last write.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::DynamicObject;
use kube::{Resource, ResourceExt};
use plimsoll_api::plimsoll::v1alpha1::OperationState;
use plimsoll_engine::{Error, RetryPolicy, kill};
use plimsoll_progress::{Clock, Ending, Snapshot, Wait};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::decide::SubjectState;
use super::reconcile::{LifecycleController, final_status_before_start};
use super::{Completion, Job, Lifecycle, OperationRuntime};
use crate::epoch::next_epoch;
use crate::event_recorder::EventType;
use crate::history::HistoryRecord;
use crate::journal::{self, JournalLocation};
use crate::leader_client::LeaderClient;
use crate::observed_generation::write_final_status;
use crate::operation_record::{self, OperationRecord};
use crate::panics::catch_panic;
use crate::progress_floor::progress_floor;
use crate::projection;
use crate::status_writer::{StatusWriter, StatusWriterSettings};
use crate::subject::Subject;
use crate::subject_status::{SubjectStatus, extend, summary_patch};

/// Starts an operation, unless it runs or the limit of its kind is reached.
pub(super) fn start<K: Lifecycle>(id: Subject, controller: &Arc<LifecycleController<K>>) {
    let limit = K::concurrency(&controller.context);
    let Some(cancel) = controller.runtime.active.begin(&id.uid, K::VERB, &id.name, limit) else { return };
    let controller = Arc::clone(controller);
    tokio::spawn(async move {
        let _place = ActivePlace { runtime: Arc::clone(&controller.runtime), uid: id.uid.clone() };
        let label = format!("{} {}", id.verb, id.name);
        if let Err(error) = catch_panic(&label, run_current::<K>(&controller, id, cancel)).await {
            warn!("{label}: {error}; it will be retried");
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    });
}

/// The place of an operation among the active ones. It is free again when this is dropped, also by a panic.
struct ActivePlace {
    runtime: Arc<OperationRuntime>,
    uid: String,
}

impl Drop for ActivePlace {
    fn drop(&mut self) {
        self.runtime.active.end(&self.uid);
    }
}

/// Runs the operation of a subject as it is now, which may be newer than what the watch has delivered: a subject that has ended is
/// left alone.
async fn run_current<K: Lifecycle>(
    controller: &LifecycleController<K>,
    id: Subject,
    cancel: CancellationToken,
) -> Result<(), Error> {
    let Some(found) = controller.leader().cluster.get(&id.path()).await? else { return Ok(()) };
    let invalid = |e: serde_json::Error| Error::InvalidResponse {
        what: format!("read {} {}", id.verb, id.name),
        detail: e.to_string(),
    };
    let raw: Value = serde_json::from_slice(&found).map_err(invalid)?;
    let phase = raw.pointer(K::PHASE_POINTER).and_then(Value::as_str).unwrap_or_default();
    let same = raw.pointer("/metadata/uid").and_then(Value::as_str) == Some(id.uid.as_str());
    if !same || ![SubjectState::New, SubjectState::InProgress].contains(&K::state(phase)) {
        return Ok(());
    }
    let mut subject = serde_json::from_value::<K::Resource>(raw).map_err(invalid)?;
    K::set_defaults(&mut subject, &controller.context);
    if subject.meta().deletion_timestamp.is_some() {
        cancel.cancel();
    } else {
        add_finalizer::<K>(controller.leader(), &id, &subject).await?;
    }
    run::<K>(controller, subject, id, cancel).await
}

/// Adds the finalizer of its kind to a subject before anything is written elsewhere for it.
async fn add_finalizer<K: Lifecycle>(leader: &LeaderClient, id: &Subject, subject: &K::Resource) -> Result<(), Error> {
    let mut finalizers = subject.meta().finalizers.clone().unwrap_or_default();
    let Some(finalizer) = K::FINALIZER.filter(|wanted| !finalizers.iter().any(|known| known == wanted)) else {
        return Ok(());
    };
    leader.fence.check()?;
    finalizers.push(finalizer.to_owned());
    let metadata = json!({ "resourceVersion": subject.resource_version(), "finalizers": finalizers });
    let patch = json!({ "metadata": metadata }).to_string().into_bytes();
    leader.cluster.merge(&id.path(), patch).await.map(|_| ())
}

/// Removes the finalizer of a subject that was kept while its operation ran.
pub(super) async fn remove_finalizer<K: Lifecycle>(leader: &LeaderClient, id: &Subject) -> Result<(), Error> {
    let Some(finalizer) = K::FINALIZER.filter(|_| K::FINALIZER_WHILE_RUNNING) else { return Ok(()) };
    leader.fence.check()?;
    let Some(found) = leader.cluster.get(&id.path()).await? else { return Ok(()) };
    let object: Value = serde_json::from_slice(&found).unwrap_or_default();
    let all = object.pointer("/metadata/finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
    let rest: Vec<_> = all.iter().filter(|name| name.as_str() != Some(finalizer)).collect();
    if rest.len() == all.len() {
        return Ok(());
    }
    let rest = if rest.is_empty() { Value::Null } else { json!(rest) };
    let metadata = json!({ "resourceVersion": object["metadata"]["resourceVersion"], "finalizers": rest });
    kill::point("subject.release.before");
    match leader.cluster.merge(&id.path(), json!({ "metadata": metadata }).to_string().into_bytes()).await {
        Err(error) if error.code() == Some(404) => Ok(()),
        answer => answer.map(|_| ()),
    }
}

/// Closes what a leader left open that died after the last write to the subject.
pub(super) async fn clean_up<K: Lifecycle>(
    id: &Subject,
    leader: &LeaderClient,
    object: &DynamicObject,
) -> Result<(), Error> {
    let opened = operation_record::open(leader.client.clone(), id, leader.holder()).await?;
    let phase = object.data.pointer(K::PHASE_POINTER).and_then(Value::as_str).unwrap_or_default();
    let (state, ending) = match phase {
        "Completed" | "Processed" | "complete" => (OperationState::Succeeded, Ending::Succeeded),
        "PartiallyFailed" => (OperationState::PartiallyFailed, Ending::Succeeded),
        other => (OperationState::Failed, Ending::Failed(format!("ended {other}"))),
    };
    let raw = serde_json::to_value(object).unwrap_or_default();
    let saved = progress_floor(opened.record.name(), opened.saved, &raw, K::ITEM_COUNTERS);
    let tree = resume_tree(&opened.record, saved.as_ref(), opened.held_by.as_deref()).0;
    tree.end(ending);
    journal::remove(leader.client.clone(), &id.namespace, &id.operation_name()).await?;
    remove_finalizer::<K>(leader, id).await?;
    opened.record.end(&tree.snapshot(), &state, Vec::new()).await
}

/// The saved tree, with a task for the gap since it was saved, or a new one.
fn resume_tree(
    record: &OperationRecord,
    saved: Option<&Snapshot>,
    held_by: Option<&str>,
) -> (plimsoll_progress::Operation, Option<Wait>) {
    match saved {
        Some(saved) => {
            let holder = held_by.unwrap_or("a server that is gone");
            let (tree, gap) = plimsoll_progress::Operation::resume(saved, holder, Clock::system());
            (tree, Some(gap))
        }
        None => (plimsoll_progress::Operation::new(record.name(), Clock::system()), None),
    }
}

/// Runs an operation to its end. An error means that the end could not be written, or that this process no longer leads.
async fn run<K: Lifecycle>(
    controller: &LifecycleController<K>,
    subject: K::Resource,
    id: Subject,
    cancel: CancellationToken,
) -> Result<(), Error> {
    let (runtime, leader) = (&controller.runtime, controller.leader());
    let (job, gap) = match open_job(controller, subject, &id, cancel).await {
        Err(error @ Error::JournalLost { .. }) => {
            let reason = error.to_string();
            let status = final_status_before_start(K::failed_status(&reason), error.reason(), &reason);
            return write_final_status(leader, &id, &status).await;
        }
        Err(error @ Error::NewerRecord { .. }) => {
            leader.events.record(&id.reference(), EventType::Warning, error.reason(), &error.to_string()).await;
            return Err(error);
        }
        job => job?,
    };
    let message = if gap.is_some() { "resumed" } else { "started" };
    leader.events.record(&job.id.reference(), EventType::Normal, "Started", message).await;
    let observer = job.tree.observer();
    let _shown = runtime.trees.register(&job.id.uid, move || Some(observer.snapshot()));
    let status_writer = StatusWriter::start(StatusWriterSettings {
        tree: job.tree.observer(),
        status: Some(Arc::clone(&job.status)),
        record: Arc::clone(&job.record),
        subject: job.id.clone(),
        scratch: Some(job.scratch.path().to_owned()),
        events: leader.events.clone(),
        write_budget: runtime.write_budget.clone(),
    });
    drop(gap);
    let answer = catch_panic(&format!("{} {}", job.id.verb, job.id.name), K::execute(&job)).await;
    if let Err(error) = &answer
        && !matches!(error, Error::Fenced(_))
    {
        K::abort(&job, error).await;
    }
    status_writer.stop().await;
    finish(&job, answer).await
}

async fn open_job<K: Lifecycle>(
    controller: &LifecycleController<K>,
    subject: K::Resource,
    id: &Subject,
    cancel: CancellationToken,
) -> Result<(Job<K>, Option<Wait>), Error> {
    let (runtime, leader) = (&controller.runtime, controller.leader());
    let opened = operation_record::open(leader.client.clone(), id, leader.holder()).await?;
    if opened.cancelled {
        cancel.cancel();
    }
    let location =
        JournalLocation { namespace: id.namespace.clone(), operation: id.operation_name(), owner: id.owner() };
    let (journal, journal_entries) = journal::open(leader.client.clone(), location, opened.has_journal).await?;
    opened.record.mark_journal().await?;
    let raw = serde_json::to_value(&subject).unwrap_or_default();
    let saved = progress_floor(opened.record.name(), opened.saved, &raw, K::ITEM_COUNTERS);
    let (tree, gap) = resume_tree(&opened.record, saved.as_ref(), opened.held_by.as_deref());
    let written = raw.pointer("/status/plimsoll/token").and_then(Value::as_str).and_then(|text| text.parse().ok());
    tree.begin_epoch(next_epoch(written));
    let history = Arc::new(HistoryRecord::open(leader, K::VERB, &raw).await);
    tree.expect(history.earlier());
    let scratch = tempfile::Builder::new()
        .prefix(&format!("{}-", id.operation_name()))
        .tempdir_in(&runtime.scratch)
        .map_err(|e| Error::scratch(&runtime.scratch, e))?;
    info!("{} {}: running (epoch {})", id.verb, id.name, leader.epoch);
    let (record, live) = (Arc::new(opened.record), Arc::<K::LiveState>::default());
    let job = Job {
        runtime: Arc::clone(runtime),
        context: Arc::clone(&controller.context),
        subject,
        id: id.clone(),
        tree,
        status: Arc::new(subject_status::<K>(leader, id, &record, &live)),
        record,
        journal: Arc::new(journal),
        journal_entries,
        cancel,
        scratch,
        live,
        history,
    };
    Ok((job, gap))
}

fn subject_status<K: Lifecycle>(
    leader: &LeaderClient,
    id: &Subject,
    record: &Arc<OperationRecord>,
    live: &Arc<K::LiveState>,
) -> SubjectStatus {
    let live = Arc::clone(live);
    let fields = Box::new(move |snapshot: &Snapshot| K::status_fields(&live, snapshot));
    SubjectStatus::new(leader.cluster.clone(), Arc::clone(record), id.path(), K::ITEM_COUNTERS, fields)
}

/// The last writes: the final status of the subject, then the journal is removed, then the record ends.
async fn finish<K: Lifecycle>(job: &Job<K>, answer: Result<Completion, Error>) -> Result<(), Error> {
    let leader = &job.runtime.leader;
    let (completion, ending) = match answer {
        Ok(mut completion) => {
            let ending = completion.ending.take().unwrap_or(Ending::Succeeded);
            (completion, ending)
        }
        Err(error @ Error::Fenced(_)) => return Err(error),
        Err(error) => failure::<K>(&error),
    };
    let message = describe_ending(&completion, &ending);
    info!("{} {}: {}", job.id.verb, job.id.name, completion.state);
    job.tree.end(ending);
    let snapshot = job.tree.snapshot();
    let status = final_status::<K>(&snapshot, &completion);
    let root = job.tree.root();
    kill::point("status.final.before");
    RetryPolicy::default().run(&root, || write_final_status(leader, &job.id, &status)).await?;
    kill::point("status.final.after");
    let event_type = if completion.state == OperationState::Succeeded { EventType::Normal } else { EventType::Warning };
    let (about, state) = (job.id.reference(), completion.state.as_str());
    leader.events.record_at(&about, event_type, state, &message, snapshot.token).await;
    // The open record is what makes a successor clean up, so it is closed last.
    journal::remove(leader.client.clone(), &job.id.namespace, &job.id.operation_name()).await?;
    kill::point("journal.removed");
    RetryPolicy::default().run(&root, || remove_finalizer::<K>(leader, &job.id)).await?;
    if K::KEEPS_HISTORY && completion.state == OperationState::Succeeded {
        job.history.add(&snapshot).await;
    }
    match job.record.end(&snapshot, &completion.state, completion.reasons).await {
        Err(error) if error.code() == Some(404) => Ok(()),
        answer => answer,
    }
}

/// Phase, counters and summary in one write: no reader sees an ended phase with old numbers.
fn final_status<K: Lifecycle>(snapshot: &Snapshot, completion: &Completion) -> Value {
    let mut status = projection::progress(snapshot, K::ITEM_COUNTERS);
    let now = Timestamp::now();
    status["plimsoll"] = summary_patch(&projection::summary(snapshot, now));
    status["conditions"] = json!(projection::conditions(snapshot, &[], now));
    extend(&mut status, &completion.status);
    status
}

fn describe_ending(completion: &Completion, ending: &Ending) -> String {
    let count = |field: &str| completion.status.get(field).and_then(Value::as_u64).unwrap_or(0);
    match ending {
        Ending::Failed(why) | Ending::Cancelled(why) => why.clone(),
        Ending::Succeeded => format!("ended with {} errors and {} warnings", count("errors"), count("warnings")),
    }
}

fn failure<K: Lifecycle>(error: &Error) -> (Completion, Ending) {
    let (reason, state, ending) = match error {
        Error::Cancelled => {
            ("Cancelled".to_owned(), OperationState::Cancelled, Ending::Cancelled("requested by the user".into()))
        }
        error => (error.to_string(), OperationState::Failed, Ending::Failed(error.to_string())),
    };
    (Completion { status: K::failed_status(&reason), state, reasons: Vec::new(), ending: None }, ending)
}
