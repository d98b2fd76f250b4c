//! A Backup, a Restore or an ActionSet from the first look at it to its end: one controller, generic over the kind.

mod waiting;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject};
use kube::core::NamespaceResourceScope;
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use kube::{Api, Resource, ResourceExt};
use plimsoll_api::plimsoll::v1alpha1::{Operation, OperationState, ReasonCount};
use plimsoll_engine::cluster::collection_path;
use plimsoll_engine::operations::Operations;
use plimsoll_engine::outcome::Results;
use plimsoll_engine::ports::Guard;
use plimsoll_engine::{Error, Patience, kill};
use plimsoll_progress::{Clock, Ending, Snapshot, Task, Wait};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_stream::wrappers::BroadcastStream;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::context::{Context, Settings};
use crate::decide::{Decision, Observed, Stage, decide};
use crate::events::Gravity;
use crate::floor::{Shown, floor};
use crate::history;
use crate::journal::{self, Address, ConfigMapJournal, Known};
use crate::operation::{self, Record, Subject, operation_name};
use crate::report::{Projection, Reporter, Reporting};
use crate::watch_backoff::WatchBackoff;
use crate::{plugins, project};

/// What differs between the kinds of subject.
pub trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
    /// What is done with it: the first half of its Operation's name.
    const VERB: &'static str;
    /// What its own progress fields show.
    const SHOWN: Shown;
    /// Keeps its object until what it left elsewhere is gone.
    const FINALIZER: Option<&'static str> = None;
    /// Whether the finalizer goes when the work has ended: it is there so that a deletion ends the work in order.
    const HELD_WHILE_RUNNING: bool = false;
    /// Where in the object its phase stands.
    const PHASE: &'static str = "/status/phase";
    /// What it keeps in memory while it is worked on, beside the tree.
    type Live: Default + Send + Sync + 'static;

    /// Where a phase is, for our purposes.
    fn stage(phase: &str) -> Stage;
    /// What is wrong with the spec of this object, as far as the object alone tells.
    fn faults(raw: &Value) -> Vec<String>;
    /// What it needs of others: what is wrong with that for good, or what is missing for now.
    fn needs(&self, context: &Context) -> impl Future<Output = Result<Needs, Error>> + Send;
    /// The status of one that waits in the queue, if the kind has one.
    fn queued(position: usize) -> Option<Value>;
    /// The status of one that is not begun because of its faults.
    fn refused(faults: &[String]) -> Value {
        json!({ "phase": "FailedValidation", "validationErrors": faults })
    }
    /// The status of one that failed as a whole.
    fn failed(reason: &str) -> Value {
        json!({ "phase": "Failed", "failureReason": reason, "completionTimestamp": format!("{:.0}", Timestamp::now()) })
    }
    /// The namespaces, of those in the cluster, that no other one of the kind may work on at the same time.
    fn claims(_object: &Value, _namespaces: &[String]) -> BTreeSet<String> {
        BTreeSet::new()
    }
    /// How many of them run at the same time.
    fn at_once(settings: &Settings) -> usize {
        settings.concurrency
    }
    /// Writes its status while it is worked on, if the tree alone does not say it.
    fn projection(_job: &Job<Self>) -> Option<Arc<dyn Projection>> {
        None
    }
    /// Does the work. Returns the status to end with.
    fn work(job: &Job<Self>) -> impl Future<Output = Result<Finished, Error>> + Send;
    /// Undoes what was begun, and leaves what a user needs to see why. Best effort.
    fn give_up(job: &Job<Self>, error: &Error) -> impl Future<Output = ()> + Send;
}

/// The stages of a piece of work, planned from the start: what has not begun counts in the percentage too.
pub struct Stages(Vec<(&'static str, Task)>);

impl Stages {
    /// A stage that somebody else begins.
    pub fn planned(&self, name: &str) -> Task {
        let task = self.0.iter().find(|(known, _)| *known == name).map(|(_, task)| task.clone());
        task.expect("a stage is asked for by a name of the list it was planned from")
    }

    /// Begins a stage.
    pub fn begin(&self, name: &str) -> Task {
        let task = self.planned(name);
        task.start();
        task
    }
}

/// What a subject needs of others.
#[derive(Debug, Default)]
pub struct Needs {
    /// Wrong for good.
    pub faults: Vec<String>,
    /// Not there yet.
    pub missing: Option<String>,
}

/// How the work ended.
#[derive(Debug)]
pub struct Finished {
    /// The last status, as a merge patch.
    pub status: Value,
    /// The state of the Operation.
    pub state: OperationState,
    /// Why items were skipped or failed.
    pub reasons: Vec<ReasonCount>,
    /// How the tree ends, if not well.
    pub ending: Option<Ending>,
}

impl Finished {
    /// The phase and counts that the results mean.
    pub fn with(results: &Results) -> Self {
        let (errors, warnings) = (results.errors.count, results.warnings.count);
        let (phase, state) = match errors {
            0 => ("Completed", OperationState::Succeeded),
            _ => ("PartiallyFailed", OperationState::PartiallyFailed),
        };
        let completed = format!("{:.0}", Timestamp::now());
        let status =
            json!({ "phase": phase, "errors": errors, "warnings": warnings, "completionTimestamp": completed });
        Self { status, state, reasons: project::reasons(results), ending: None }
    }

    /// Counts the work that went on in the background: what failed of it is an error.
    pub fn add_operations(&mut self, verb: &str, operations: &Operations) {
        let counts = operations.counts();
        if counts.attempted == 0 {
            return;
        }
        if let (Some(status), Value::Object(counted)) = (self.status.as_object_mut(), plugins::counts(verb, counts)) {
            status.extend(counted);
        }
        if counts.failed > 0 {
            let errors = self.status.get("errors").and_then(Value::as_u64).unwrap_or(0);
            self.status["errors"] = json!(errors + counts.failed);
            self.status["phase"] = json!("PartiallyFailed");
            self.state = OperationState::PartiallyFailed;
        }
    }
}

/// One piece of work, taken up.
pub struct Job<K: Kind> {
    pub context: Arc<Context>,
    pub subject: K,
    pub id: Subject,
    pub tree: plimsoll_progress::Operation,
    pub record: Arc<Record>,
    pub journal: Arc<ConfigMapJournal>,
    pub known: Vec<Known>,
    pub cancel: CancellationToken,
    pub scratch: tempfile::TempDir,
    pub live: Arc<K::Live>,
}

impl<K: Kind> Job<K> {
    /// The path of the subject's custom resource.
    pub fn path(&self) -> String {
        subject_path(&self.id)
    }

    /// Plans the stages, each with about how long it takes: its weight.
    pub fn plan_stages(&self, stages: &[(&'static str, Duration)]) -> Stages {
        let root = self.tree.root();
        let plan = |(name, expected): &(&'static str, Duration)| {
            let task = root.planned(name);
            task.expect_duration(*expected);
            (*name, task)
        };
        Stages(stages.iter().map(plan).collect())
    }

    /// Reads something of the cluster, and waits for an API server that does not answer.
    pub async fn read<T, F>(&self, attempt: impl FnMut() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        Patience::default().run(&self.tree.root(), attempt).await
    }

    /// Changes the subject by a merge patch, and waits for an API server that does not answer. Returns the subject.
    pub async fn write(&self, patch: &Value) -> Result<Value, Error> {
        self.record.effect()?;
        let (path, body, root) = (self.path(), patch.to_string().into_bytes(), self.tree.root());
        let written = Patience::default().run(&root, || self.context.cluster.merge(&path, body.clone())).await?;
        serde_json::from_slice(&written).map_err(|e| Error::Answer {
            what: format!("write {} {}", self.id.verb, self.id.name),
            detail: e.to_string(),
        })
    }

    /// Fails with `Cancelled` as soon as the user asks, otherwise does the work.
    pub async fn unless_cancelled<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(Error::Cancelled),
            answer = work => answer,
        }
    }
}

fn subject_path(id: &Subject) -> String {
    let plural = id.kind.to_lowercase() + "s";
    format!("{}/{}", collection_path(&id.api_version, &plural, Some(&id.namespace)), id.name)
}

/// Runs the controller of one kind until the future is dropped.
pub async fn control<K: Kind>(context: Arc<Context>) {
    let api_resource = ApiResource::erase::<K>(&());
    let namespace = &context.settings.namespace;
    let api: Api<DynamicObject> = Api::namespaced_with(context.client.clone(), namespace, &api_resource);
    let operations: Api<Operation> = Api::namespaced(context.client.clone(), namespace);
    let endings = BroadcastStream::new(context.runs.endings()).map(|_| ());
    Controller::new_with(api, watcher::Config::default(), api_resource)
        .owns(operations, watcher::Config::default())
        .trigger_backoff(WatchBackoff::default())
        .reconcile_all_on(endings)
        .run(reconcile::<K>, retry, context)
        .for_each(|_| async {})
        .await;
}

fn retry(_: Arc<DynamicObject>, error: &Error, _: Arc<Context>) -> Action {
    warn!("reconciling: {error}");
    Action::requeue(Duration::from_secs(2))
}

async fn reconcile<K: Kind>(object: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action, Error> {
    let seen = observe::<K>(&object, &context).await?;
    act::<K>(decide(&seen), &object, &context).await
}

async fn observe<K: Kind>(object: &DynamicObject, context: &Context) -> Result<Observed, Error> {
    let raw = serde_json::to_value(object).unwrap_or_default();
    let stage = K::stage(raw.pointer(K::PHASE).and_then(Value::as_str).unwrap_or_default());
    let uid = object.uid().unwrap_or_default();
    let mut seen = Observed {
        stage,
        deleted: object.metadata.deletion_timestamp.is_some(),
        held: K::HELD_WHILE_RUNNING && K::FINALIZER.is_some_and(|name| object.finalizers().iter().any(|f| f == name)),
        running_here: context.runs.has(&uid),
        cancelled: false,
        operation_open: false,
        faults: Vec::new(),
        blocked: None,
        missing: None,
    };
    if stage == Stage::Other {
        return Ok(seen);
    }
    observe_operation::<K>(object, context, &mut seen).await?;
    if stage == Stage::New && !seen.running_here {
        observe_needs::<K>(object, &raw, context, &mut seen).await?;
    }
    Ok(seen)
}

async fn observe_operation<K: Kind>(
    object: &DynamicObject,
    context: &Context,
    seen: &mut Observed,
) -> Result<(), Error> {
    let name = operation_name(K::VERB, &object.name_any());
    let api: Api<Operation> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    let found = api.get_opt(&name).await.map_err(|e| Error::api(format!("read operation {name}"), e))?;
    let ours = found.filter(|op| op.spec.subject.as_ref().and_then(|s| s.uid.as_deref()) == object.uid().as_deref());
    seen.cancelled = ours.as_ref().is_some_and(Operation::is_cancelled);
    let state = ours.map(|op| op.status.and_then(|status| status.state));
    seen.operation_open = state.is_some_and(|state| !state.is_some_and(|state| state.is_ended()));
    Ok(())
}

async fn observe_needs<K: Kind>(
    object: &DynamicObject,
    raw: &Value,
    context: &Context,
    seen: &mut Observed,
) -> Result<(), Error> {
    seen.faults = K::faults(raw);
    match serde_json::from_value::<K>(raw.clone()) {
        Err(error) => seen.faults.push(error.to_string()),
        Ok(typed) if seen.faults.is_empty() => {
            let needs = typed.needs(context).await?;
            seen.faults = needs.faults;
            seen.missing = needs.missing;
        }
        Ok(_) => {}
    }
    seen.blocked = waiting::blocked::<K>(object, context).await?;
    Ok(())
}

async fn act<K: Kind>(decision: Decision, object: &DynamicObject, context: &Arc<Context>) -> Result<Action, Error> {
    let id = identify::<K>(object, context);
    match decision {
        Decision::Leave => {}
        Decision::Refuse(faults) => {
            info!("{} {}: refused: {}", K::VERB, id.name, faults.join("; "));
            let status = ended_unbegun(K::refused(&faults), "FailedValidation", &faults.join("; "));
            write_unless_changed(context, &id, object, &status).await?;
            context.events.say(&id.reference(), Gravity::Warning, "FailedValidation", &faults.join("; ")).await;
        }
        Decision::Queue(blocked) => return waiting::wait_in_queue::<K>(&id, object, &blocked, context).await,
        Decision::Wait(reason) => {
            let reason = format!("waiting for {reason}");
            operation::announce(context.client.clone(), &id, &context.holder(), &reason).await?;
            return Ok(Action::requeue(Duration::from_secs(1)));
        }
        Decision::Run => {
            waiting::leave_queue::<K>(&id, object, context).await?;
            start::<K>(id, context);
        }
        Decision::Stop => context.runs.cancel(&id.uid),
        Decision::CancelUnbegun => {
            let status = ended_unbegun(K::failed("Cancelled"), "Cancelled", "cancelled before it began");
            write_unless_changed(context, &id, object, &status).await?;
            context.events.say(&id.reference(), Gravity::Normal, "Cancelled", "cancelled before it began").await;
        }
        Decision::Tidy => tidy::<K>(&id, context, object).await?,
        Decision::Release => release::<K>(context, &id).await?,
    }
    Ok(Action::await_change())
}

fn identify<K: Kind>(object: &DynamicObject, context: &Context) -> Subject {
    Subject {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        namespace: context.settings.namespace.clone(),
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
        verb: K::VERB,
    }
}

async fn write_status(context: &Context, id: &Subject, status: &Value) -> Result<(), Error> {
    context.fence.check()?;
    let patch = json!({ "status": status }).to_string().into_bytes();
    match context.cluster.merge(&subject_path(id), patch).await {
        Err(error) if error.code() == Some(404) => Ok(()),
        answer => answer.map(|_| ()),
    }
}

/// A last status with the conditions that `kubectl wait` asks for.
fn ended_unbegun(mut status: Value, reason: &str, message: &str) -> Value {
    status["conditions"] = json!(project::conditions_unbegun(reason, message, Timestamp::now()));
    status
}

/// A watch may lag behind our own writes: what was decided on an old version of the object is not written over a new one.
async fn write_unless_changed(
    context: &Context,
    id: &Subject,
    object: &DynamicObject,
    status: &Value,
) -> Result<(), Error> {
    context.fence.check()?;
    let patch = json!({ "metadata": { "resourceVersion": object.resource_version() }, "status": status });
    match context.cluster.merge(&subject_path(id), patch.to_string().into_bytes()).await {
        Err(error) if [Some(404), Some(409)].contains(&error.code()) => Ok(()),
        answer => answer.map(|_| ()),
    }
}

/// Closes what a leader left open that died after the last write to the subject.
async fn tidy<K: Kind>(id: &Subject, context: &Context, object: &DynamicObject) -> Result<(), Error> {
    let opened = operation::open(context.client.clone(), id, context.holder()).await?;
    let phase = object.data.pointer(K::PHASE).and_then(Value::as_str).unwrap_or_default();
    let (state, ending) = match phase {
        "Completed" | "Processed" | "complete" => (OperationState::Succeeded, Ending::Succeeded),
        "PartiallyFailed" => (OperationState::PartiallyFailed, Ending::Succeeded),
        other => (OperationState::Failed, Ending::Failed(format!("ended {other}"))),
    };
    let tree = take_up(&opened.record, opened.saved.as_ref(), opened.held_by.as_deref()).0;
    tree.end(ending);
    journal::remove(context.client.clone(), &id.namespace, &id.operation_name()).await?;
    release::<K>(context, id).await?;
    opened.record.end(&tree.snapshot(), &state, Vec::new()).await
}

/// Lets go of an object that was held while it was worked on.
async fn release<K: Kind>(context: &Context, id: &Subject) -> Result<(), Error> {
    let Some(finalizer) = K::FINALIZER.filter(|_| K::HELD_WHILE_RUNNING) else { return Ok(()) };
    context.fence.check()?;
    let Some(found) = context.cluster.get(&subject_path(id)).await? else { return Ok(()) };
    let object: Value = serde_json::from_slice(&found).unwrap_or_default();
    let all = object.pointer("/metadata/finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
    let rest: Vec<_> = all.iter().filter(|name| name.as_str() != Some(finalizer)).collect();
    if rest.len() == all.len() {
        return Ok(());
    }
    let rest = if rest.is_empty() { Value::Null } else { json!(rest) };
    let metadata = json!({ "resourceVersion": object["metadata"]["resourceVersion"], "finalizers": rest });
    kill::point("subject.release.before");
    match context.cluster.merge(&subject_path(id), json!({ "metadata": metadata }).to_string().into_bytes()).await {
        Err(error) if error.code() == Some(404) => Ok(()),
        answer => answer.map(|_| ()),
    }
}

fn take_up(
    record: &Record,
    saved: Option<&Snapshot>,
    held_by: Option<&str>,
) -> (plimsoll_progress::Operation, Option<Wait>) {
    match saved {
        Some(saved) => {
            let who = held_by.unwrap_or("a server that is gone");
            let (tree, gap) = plimsoll_progress::Operation::resume(saved, who, Clock::system());
            (tree, Some(gap))
        }
        None => (plimsoll_progress::Operation::new(record.name(), Clock::system()), None),
    }
}

fn start<K: Kind>(id: Subject, context: &Arc<Context>) {
    let Some(cancel) = context.runs.begin(&id.uid, K::VERB, &id.name, K::at_once(&context.settings)) else { return };
    let context = Arc::clone(context);
    tokio::spawn(async move {
        let uid = id.uid.clone();
        let label = format!("{} {}", id.verb, id.name);
        if let Err(error) = run_current::<K>(&context, id, cancel).await {
            warn!("{label}: {error}; it will be taken up again");
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        context.runs.end(&uid);
    });
}

/// Works on a subject as it is now, which may be newer than what the watch has told: one that has ended is left alone.
async fn run_current<K: Kind>(context: &Arc<Context>, id: Subject, cancel: CancellationToken) -> Result<(), Error> {
    let Some(found) = context.cluster.get(&subject_path(&id)).await? else { return Ok(()) };
    let invalid =
        |e: serde_json::Error| Error::Answer { what: format!("read {} {}", id.verb, id.name), detail: e.to_string() };
    let raw: Value = serde_json::from_slice(&found).map_err(invalid)?;
    let phase = raw.pointer(K::PHASE).and_then(Value::as_str).unwrap_or_default();
    let same = raw.pointer("/metadata/uid").and_then(Value::as_str) == Some(id.uid.as_str());
    if !same || ![Stage::New, Stage::Begun].contains(&K::stage(phase)) {
        return Ok(());
    }
    let subject = serde_json::from_value::<K>(raw).map_err(invalid)?;
    if subject.meta().deletion_timestamp.is_some() {
        cancel.cancel();
    } else {
        hold::<K>(context, &id, &subject).await?;
    }
    run::<K>(Arc::clone(context), subject, id, cancel).await
}

/// Puts the finalizer of its kind on a subject before anything is written elsewhere for it.
async fn hold<K: Kind>(context: &Context, id: &Subject, subject: &K) -> Result<(), Error> {
    let mut finalizers = subject.meta().finalizers.clone().unwrap_or_default();
    let Some(finalizer) = K::FINALIZER.filter(|wanted| !finalizers.iter().any(|known| known == wanted)) else {
        return Ok(());
    };
    context.fence.check()?;
    finalizers.push(finalizer.to_owned());
    let metadata = json!({ "resourceVersion": subject.resource_version(), "finalizers": finalizers });
    let patch = json!({ "metadata": metadata }).to_string().into_bytes();
    context.cluster.merge(&subject_path(id), patch).await.map(|_| ())
}

/// Works on a subject until it has ended. An error means that the end could not be written, or that we no longer lead.
async fn run<K: Kind>(context: Arc<Context>, subject: K, id: Subject, cancel: CancellationToken) -> Result<(), Error> {
    let (job, gap) = match take_job(Arc::clone(&context), subject, &id, cancel).await {
        Err(error @ Error::JournalLost { .. }) => {
            return write_status(&context, &id, &K::failed(&error.to_string())).await;
        }
        job => job?,
    };
    let words = if gap.is_some() { "taken up again" } else { "begun" };
    context.events.say(&job.id.reference(), Gravity::Normal, "Started", words).await;
    let observer = job.tree.observer();
    let _shown = context.settings.trees.register(&job.id.uid, move || Some(observer.snapshot()));
    let reporter = Reporter::start(Reporting {
        tree: job.tree.observer(),
        cluster: context.cluster.clone(),
        record: Arc::clone(&job.record),
        subject: job.id.clone(),
        path: job.path(),
        shown: K::SHOWN,
        scratch: job.scratch.path().to_owned(),
        events: context.events.clone(),
        writes: context.writes.clone(),
        projection: K::projection(&job),
    });
    drop(gap);
    let answer = K::work(&job).await;
    if let Err(error) = &answer
        && !matches!(error, Error::Fenced(_))
    {
        K::give_up(&job, error).await;
    }
    reporter.stop().await;
    end(&job, answer).await
}

async fn take_job<K: Kind>(
    context: Arc<Context>,
    subject: K,
    id: &Subject,
    cancel: CancellationToken,
) -> Result<(Job<K>, Option<Wait>), Error> {
    let opened = operation::open(context.client.clone(), id, context.holder()).await?;
    if opened.cancelled {
        cancel.cancel();
    }
    let address = Address { namespace: id.namespace.clone(), operation: id.operation_name(), owner: id.owner() };
    let (journal, known) = journal::open(context.client.clone(), address, opened.has_journal).await?;
    opened.record.mark_journal().await?;
    let raw = serde_json::to_value(&subject).unwrap_or_default();
    let saved = floor(opened.record.name(), opened.saved, &raw, K::SHOWN);
    let (tree, gap) = take_up(&opened.record, saved.as_ref(), opened.held_by.as_deref());
    tree.expect(history::usual(&context.client, &context.settings.namespace, &subject, K::VERB).await);
    let scratch = tempfile::Builder::new()
        .prefix(&format!("{}-", id.operation_name()))
        .tempdir_in(&context.settings.scratch)
        .map_err(|e| Error::scratch(&context.settings.scratch, e))?;
    info!("{} {}: working (epoch {})", id.verb, id.name, context.epoch);
    let job = Job {
        context,
        subject,
        id: id.clone(),
        tree,
        record: Arc::new(opened.record),
        journal: Arc::new(journal),
        known,
        cancel,
        scratch,
        live: Arc::default(),
    };
    Ok((job, gap))
}

/// The last writes: the subject's end, then the journal goes, then the record's end.
async fn end<K: Kind>(job: &Job<K>, answer: Result<Finished, Error>) -> Result<(), Error> {
    let (finished, ending) = match answer {
        Ok(mut finished) => {
            let ending = finished.ending.take().unwrap_or(Ending::Succeeded);
            (finished, ending)
        }
        Err(error @ Error::Fenced(_)) => return Err(error),
        Err(error) => failed::<K>(&error),
    };
    let words = ending_in_words(&finished, &ending);
    info!("{} {}: {}", job.id.verb, job.id.name, finished.state);
    job.tree.end(ending);
    let snapshot = job.tree.snapshot();
    let status = final_status::<K>(&snapshot, &finished);
    let root = job.tree.root();
    kill::point("status.final.before");
    Patience::default().run(&root, || write_status(&job.context, &job.id, &status)).await?;
    kill::point("status.final.after");
    let gravity = if finished.state == OperationState::Succeeded { Gravity::Normal } else { Gravity::Warning };
    job.context.events.say(&job.id.reference(), gravity, finished.state.as_str(), &words).await;
    // The open record is what makes a successor tidy up, so it is closed last.
    journal::remove(job.context.client.clone(), &job.id.namespace, &job.id.operation_name()).await?;
    kill::point("journal.removed");
    Patience::default().run(&root, || release::<K>(&job.context, &job.id)).await?;
    match job.record.end(&snapshot, &finished.state, finished.reasons).await {
        Err(error) if error.code() == Some(404) => Ok(()),
        answer => answer,
    }
}

/// Phase, counters and summary in one write: nobody sees an ended phase with old numbers.
fn final_status<K: Kind>(snapshot: &Snapshot, finished: &Finished) -> Value {
    let mut status = project::progress(snapshot, K::SHOWN);
    let now = Timestamp::now();
    status["plimsoll"] = crate::report::nulls_for_absent(&project::summary(snapshot, now));
    status["conditions"] = json!(project::conditions(snapshot, &[], now));
    if let (Some(status), Some(last)) = (status.as_object_mut(), finished.status.as_object()) {
        status.extend(last.clone());
    }
    // Where a kind counts its percent by rules of its own, the summary says the same.
    if let Some(percent) = finished.status.pointer("/progress/percentCompleted") {
        status["plimsoll"]["percent"] = percent.clone();
    }
    status
}

fn ending_in_words(finished: &Finished, ending: &Ending) -> String {
    let count = |field: &str| finished.status.get(field).and_then(Value::as_u64).unwrap_or(0);
    match ending {
        Ending::Failed(why) | Ending::Cancelled(why) => why.clone(),
        Ending::Succeeded => format!("ended with {} errors and {} warnings", count("errors"), count("warnings")),
    }
}

fn failed<K: Kind>(error: &Error) -> (Finished, Ending) {
    match error {
        Error::Cancelled => (
            Finished {
                status: K::failed("Cancelled"),
                state: OperationState::Cancelled,
                reasons: Vec::new(),
                ending: None,
            },
            Ending::Cancelled("asked for by its user".into()),
        ),
        error => {
            let reason = error.to_string();
            (
                Finished {
                    status: K::failed(&reason),
                    state: OperationState::Failed,
                    reasons: Vec::new(),
                    ending: None,
                },
                Ending::Failed(reason),
            )
        }
    }
}
