//! The Operation: the leader's record of one operation, and the proof that no other process has taken it over.

use std::sync::{Arc, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use plimsoll_api::plimsoll::v1alpha1::{
    Operation, OperationSpec, OperationState, OperationStatus, ReasonCount, SubjectReference,
};
use plimsoll_engine::log::Tail;
use plimsoll_engine::ports::LeadershipGuard;
use plimsoll_engine::{Error, kill};
use plimsoll_progress::{Chart, Clock, Limits, Sample, Snapshot, truncate};
use plimsoll_store::RetryPolicy;
use serde_json::json;
use tokio::sync::Mutex;

use crate::leader_election::Fence;
use crate::projection;
use crate::record_version;
use crate::subject::Subject;

/// Says that there is a journal, so that its absence is a loss and not a beginning.
const HAS_JOURNAL: &str = "plimsoll.dev/journal";
/// The last writer of the record, for "taken over from".
const HELD_BY: &str = "plimsoll.dev/held-by";

/// The record of one operation, held by the leader.
pub struct OperationRecord {
    api: Api<Operation>,
    name: String,
    holder: Holder,
    known: Mutex<Operation>,
    /// The samples of all attempts.
    chart: std::sync::Mutex<Chart>,
}

/// So many samples are written, or half as many.
const MAX_SAMPLES: usize = 60;

/// The state that an earlier leader left.
pub struct OpenedRecord {
    /// The record, ours from now on.
    pub record: OperationRecord,
    /// The tree as it was last written.
    pub saved: Option<Snapshot>,
    /// The process that wrote it.
    pub held_by: Option<String>,
    /// There was a journal.
    pub has_journal: bool,
    /// Its user has cancelled it.
    pub cancelled: bool,
}

/// The leader that holds an operation.
#[derive(Clone)]
pub struct Holder {
    /// Larger than that of every leader before.
    pub epoch: u64,
    /// Whether it may still have effects.
    pub fence: Arc<Fence>,
    /// Unique for each process.
    pub identity: String,
}

/// Opens the record of an operation: creates it, or takes it over.
pub async fn open(client: Client, subject: &Subject, holder: Holder) -> Result<OpenedRecord, Error> {
    let api: Api<Operation> = Api::namespaced(client, &subject.namespace);
    let name = subject.operation_name();
    loop {
        holder.fence.check()?;
        let found = find_or_create(&api, subject, &name).await?;
        let status = found.status.clone().unwrap_or_default();
        check_epoch(&name, &status, holder.epoch)?;
        kill::point("operation.open.before");
        let Some((claimed, held_by)) = claim(&api, found, &holder).await? else { continue };
        kill::point("operation.open.after");
        // What was written before the first attempt only says what it waited for.
        let begun = status.attempt.unwrap_or(0) > 0;
        return Ok(OpenedRecord {
            saved: status.tree.filter(|_| begun).and_then(|tree| serde_json::from_value(tree).ok()),
            held_by,
            has_journal: claimed.annotations().contains_key(HAS_JOURNAL),
            cancelled: claimed.is_cancelled(),
            record: OperationRecord {
                api,
                name,
                holder,
                known: Mutex::new(claimed),
                chart: std::sync::Mutex::new(projection::chart(&status.samples, MAX_SAMPLES)),
            },
        });
    }
}

/// Opens the record of work that is done again and again: the record of earlier work on the subject that has ended is deleted first,
/// with its cancel request and its times.
pub async fn open_anew(client: Client, subject: &Subject, holder: Holder) -> Result<OpenedRecord, Error> {
    let api: Api<Operation> = Api::namespaced(client.clone(), &subject.namespace);
    let name = subject.operation_name();
    holder.fence.check()?;
    let found = api.get_opt(&name).await.map_err(|e| Error::api(format!("read operation {name}"), e))?;
    if let Some(earlier) = found.filter(|found| state_of(found).is_some_and(OperationState::is_ended)) {
        delete_stale(&api, &earlier).await?;
    }
    open(client, subject, holder).await
}

fn state_of(operation: &Operation) -> Option<&OperationState> {
    operation.status.as_ref()?.state.as_ref()
}

fn check_epoch(name: &str, status: &OperationStatus, epoch: u64) -> Result<(), Error> {
    if status.epoch.unwrap_or(0) > i64::try_from(epoch).unwrap_or(i64::MAX) {
        return Err(Error::Fenced(format!("operation {name} was taken over by a later leader")));
    }
    Ok(())
}

/// Shows what an operation waits for before it starts. Writes only when that has changed.
pub async fn write_wait_reason(client: Client, subject: &Subject, holder: &Holder, reason: &str) -> Result<(), Error> {
    let api: Api<Operation> = Api::namespaced(client, &subject.namespace);
    let name = subject.operation_name();
    holder.fence.check()?;
    let mut found = find_or_create(&api, subject, &name).await?;
    let status = found.status.get_or_insert_default();
    check_epoch(&name, status, holder.epoch)?;
    let shown = status.tree.as_ref().and_then(|tree| tree.pointer("/nodes/0/reason"));
    if shown.and_then(|shown| shown.as_str()) == Some(reason) {
        return Ok(());
    }
    let tree = plimsoll_progress::Operation::new(&name, Clock::system());
    let waiting = tree.root().wait_in_queue(reason);
    let snapshot = tree.snapshot();
    drop(waiting);
    let now = Timestamp::now();
    status.epoch = i64::try_from(holder.epoch).ok();
    status.state = Some(OperationState::Waiting);
    status.conditions = projection::conditions(&snapshot, &status.conditions, now);
    status.plimsoll = Some(projection::summary(&snapshot, now));
    status.tree = serde_json::to_value(snapshot).ok();
    match api.replace_status(&name, &PostParams::default(), &found).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        Err(error) => Err(Error::api(format!("write operation {name}"), error)),
    }
}

async fn find_or_create(api: &Api<Operation>, subject: &Subject, name: &str) -> Result<Operation, Error> {
    let describe = |verb: &str| format!("{verb} operation {name}");
    loop {
        match api.get_opt(name).await.map_err(|e| Error::api(describe("read"), e))? {
            Some(found) if uid_of(&found) == Some(subject.uid.as_str()) => {
                record_version::check(&format!("operation {name}"), &found.metadata)?;
                return Ok(found);
            }
            Some(stale) => delete_stale(api, &stale).await?,
            None => match api.create(&PostParams::default(), &new_operation(subject, name)).await {
                Ok(created) => return Ok(created),
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(Error::api(describe("create"), error)),
            },
        }
    }
}

fn uid_of(operation: &Operation) -> Option<&str> {
    operation.spec.subject.as_ref()?.uid.as_deref()
}

/// The record of an earlier subject of the same name, which garbage collection has not reached yet.
async fn delete_stale(api: &Api<Operation>, stale: &Operation) -> Result<(), Error> {
    let preconditions = Preconditions { uid: stale.uid(), resource_version: None };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match api.delete(&stale.name_any(), &parameters).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        Err(error) => Err(Error::api(format!("delete operation {}", stale.name_any()), error)),
    }
}

fn new_operation(subject: &Subject, name: &str) -> Operation {
    let reference = SubjectReference {
        api_version: Some(subject.api_version.clone()),
        kind: Some(subject.kind.clone()),
        name: Some(subject.name.clone()),
        uid: Some(subject.uid.clone()),
        ..SubjectReference::default()
    };
    let spec =
        OperationSpec { subject: Some(reference), verb: Some(subject.verb.to_owned()), ..OperationSpec::default() };
    Operation {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(subject.namespace.clone()),
            owner_references: Some(vec![subject.owner()]),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}

/// Writes our epoch to the record; `None` if it changed meanwhile. Also returns its previous holder.
async fn claim(
    api: &Api<Operation>,
    mut found: Operation,
    holder: &Holder,
) -> Result<Option<(Operation, Option<String>)>, Error> {
    let name = found.name_any();
    let previous = found.annotations().get(HELD_BY).cloned();
    let status = found.status.get_or_insert_default();
    status.epoch = i64::try_from(holder.epoch).ok();
    status.attempt = Some(status.attempt.unwrap_or(0) + 1);
    status.state = Some(OperationState::Running);
    status.start_timestamp.get_or_insert_with(|| Time(Timestamp::now()));
    status.completion_timestamp = None;
    // A new attempt starts a new log.
    status.log = None;
    let claimed = match api.replace_status(&name, &PostParams::default(), &found).await {
        Ok(claimed) => claimed,
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => return Ok(None),
        Err(error) => return Err(Error::api(format!("claim operation {name}"), error)),
    };
    let version = record_version::RECORD_VERSION.to_string();
    let marks = [(HELD_BY, holder.identity.as_str()), (record_version::RECORD_VERSION_ANNOTATION, &version)];
    let held = annotate(api, &claimed, &marks).await?;
    Ok(Some((held, previous)))
}

async fn annotate(api: &Api<Operation>, operation: &Operation, marks: &[(&str, &str)]) -> Result<Operation, Error> {
    let name = operation.name_any();
    let annotations: serde_json::Map<_, _> =
        marks.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
    api.patch(&name, &PatchParams::default(), &patch)
        .await
        .map_err(|e| Error::api(format!("annotate operation {name}"), e))
}

impl OperationRecord {
    /// The operation's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether its user has cancelled it.
    pub async fn is_cancelled(&self) -> bool {
        match self.api.get_opt(&self.name).await {
            Ok(found) => found.is_some_and(|found| found.is_cancelled()),
            Err(_) => self.known.lock().await.is_cancelled(),
        }
    }

    /// Notes that there is a journal from now on.
    pub async fn mark_journal(&self) -> Result<(), Error> {
        let mut known = self.known.lock().await;
        *known = annotate(&self.api, &known, &[(HAS_JOURNAL, "true")]).await?;
        Ok(())
    }

    /// Takes a sample for the chart of the operation.
    pub(crate) fn add_sample(&self, snapshot: &Snapshot) {
        self.chart().add(Sample::of(snapshot, Timestamp::now().as_millisecond()));
    }

    fn chart(&self) -> MutexGuard<'_, Chart> {
        self.chart.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the tree, cut to size, and the end of the log.
    pub async fn write(&self, snapshot: &Snapshot, log: Option<&Tail>) -> Result<(), Error> {
        let tree = truncate::truncate(snapshot, Limits::STORED);
        let tree = serde_json::to_value(tree).map_err(|e| invalid(&self.name, &e))?;
        let now = Timestamp::now();
        let samples = projection::samples(&self.chart());
        self.update(|status| {
            status.tree = Some(tree.clone());
            status.samples.clone_from(&samples);
            status.state = Some(projection::state(snapshot));
            status.conditions = projection::conditions(snapshot, &status.conditions, now);
            status.plimsoll = Some(projection::summary(snapshot, now));
            status.log = log.map(projection::log_tail);
        })
        .await
    }

    /// Ends the record: stages, their durations, a small tree and the reasons remain.
    pub async fn end(
        &self,
        snapshot: &Snapshot,
        state: &OperationState,
        reasons: Vec<ReasonCount>,
    ) -> Result<(), Error> {
        let now = Timestamp::now();
        let tree = serde_json::to_value(truncate::ended(snapshot)).ok();
        let samples = projection::samples(&self.chart());
        self.update(|status| {
            status.tree.clone_from(&tree);
            status.samples.clone_from(&samples);
            status.log = None;
            status.reasons.clone_from(&reasons);
            status.state = Some(state.clone());
            status.stages = projection::stages(snapshot);
            status.conditions = projection::conditions(snapshot, &status.conditions, now);
            status.plimsoll = Some(projection::summary(snapshot, now));
            status.completion_timestamp = Some(Time(now));
        })
        .await
    }

    /// Changes the status under the version we know. A user's `spec.cancel` changes the version too, so a conflict is read
    /// again; only a later epoch means that the operation is no longer ours.
    async fn update(&self, change: impl Fn(&mut OperationStatus)) -> Result<(), Error> {
        let mut known = self.known.lock().await;
        loop {
            self.holder.fence.check()?;
            let mut next = known.clone();
            change(next.status.get_or_insert_default());
            match self.api.replace_status(&self.name, &PostParams::default(), &next).await {
                Ok(written) => {
                    *known = written;
                    return Ok(());
                }
                Err(kube::Error::Api(status)) if status.code == 409 => *known = self.reread().await?,
                Err(error) => return Err(Error::api(format!("write operation {}", self.name), error)),
            }
        }
    }

    async fn reread(&self) -> Result<Operation, Error> {
        let what = || format!("read operation {}", self.name);
        let found = self.api.get(&self.name).await.map_err(|e| Error::api(what(), e))?;
        let epoch = found.status.as_ref().and_then(|status| status.epoch).unwrap_or(0);
        if u64::try_from(epoch).unwrap_or(0) != self.holder.epoch {
            return Err(Error::Fenced(format!("operation {} was taken over in epoch {epoch}", self.name)));
        }
        Ok(found)
    }

    /// Creates the record again after it was deleted: the work continues.
    pub async fn recreate(&self, subject: &Subject) -> Result<(), Error> {
        let mut known = self.known.lock().await;
        let found = find_or_create(&self.api, subject, &self.name).await?;
        if let Some((claimed, _)) = claim(&self.api, found, &self.holder).await? {
            *known = claimed;
        }
        Ok(())
    }
}

fn invalid(name: &str, error: &serde_json::Error) -> Error {
    Error::InvalidResponse { what: format!("write operation {name}"), detail: error.to_string() }
}

impl LeadershipGuard for OperationRecord {
    fn check_effect(&self) -> Result<(), Error> {
        self.holder.fence.check()
    }

    fn check_commit(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            kill::point("fence.commit.before");
            // Only this write is left: it waits for an API server that does not answer.
            let answer = RetryPolicy::default().run(Error::is_retryable, |_| (), || self.update(|_| {})).await;
            kill::point("fence.commit.after");
            answer
        })
    }
}
