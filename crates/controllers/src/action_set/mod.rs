//! ActionSet: actions of blueprints, all of them at the same time, their phases one after the other.
//!
//! ```text
//!   plan: blueprints, validated ──▶ one task for each action, one below it for each phase
//!          phase: intent ──▶ begin ──▶ function ──▶ result (journal) ──▶ pods deleted ──▶ status
//!                                         │
//!                          meters of its task ──▶ status, every second
//! ```
//! The status is a pure function of the task tree and the results ([`plimsoll_blueprint::action_set_status()`]). The status writer of
//! every operation writes it; a change of the results is written before the work continues.

mod action;
mod action_params;
mod agent_transfer;
mod artifacts;
mod host;
mod interrupted;
mod log_config_map;
mod mover_job;
mod phase;
mod phase_call;
mod phase_journal;
mod plan;
mod running;
mod transfer_objects;
mod transfer_status;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::join_all;
use plimsoll_api::kanister::v1alpha1::{ActionSet, ActionState};
use plimsoll_api::plimsoll::v1alpha1::OperationState;
use plimsoll_api::validate;
use plimsoll_blueprint::functions::ToolsImage;
use plimsoll_blueprint::results::{ActionSetResults, CANCELLED};
use plimsoll_engine::log::OperationLog;
use plimsoll_engine::ports::Journal;
use plimsoll_engine::{Error, kill};
use plimsoll_operations::{Completion, ItemCounters, Job, LeaderClient, Lifecycle, Requirements, SubjectState};
use plimsoll_progress::{Ending, Snapshot};
use plimsoll_volumes::fs_backup::TransferServices;
use serde_json::{Value, json};

use self::plan::PlannedAction;
use self::running::RunningActionSet;

/// Our finalizer on an ActionSet while it runs: an ActionSet that is deleted is cancelled first.
pub const FINALIZER: &str = "actionsets.plimsoll.dev/running";
/// Maximum number of ActionSets that run in parallel.
const MAX_CONCURRENT_ACTION_SETS: usize = 100;

/// The ActionSet of an operation, once its plan is known.
#[derive(Default)]
pub struct LiveState(OnceLock<Arc<RunningActionSet>>);

/// Context of the controller.
pub struct ActionSetContext {
    pub leader: LeaderClient,
    /// Creates and follows transfers of volume data.
    pub transfers: Arc<TransferServices>,
    /// The timeout of a transfer.
    pub fs_backup_timeout: Duration,
    /// The ServiceAccount of pods that functions create.
    pub service_account: Option<String>,
    /// The image with the tools of functions.
    pub tools: Option<ToolsImage>,
}

/// The lifecycle of an ActionSet.
pub struct ActionSetController;

impl Lifecycle for ActionSetController {
    type Resource = ActionSet;
    type Context = ActionSetContext;
    type LiveState = LiveState;
    const VERB: &'static str = "run";
    const ITEM_COUNTERS: ItemCounters = ItemCounters::NONE;
    const FINALIZER: Option<&'static str> = Some(FINALIZER);
    const FINALIZER_WHILE_RUNNING: bool = true;
    const PHASE_POINTER: &'static str = "/status/state";

    fn state(state: &str) -> SubjectState {
        match ActionState::from(state) {
            ActionState::Pending => SubjectState::New,
            ActionState::Running => SubjectState::InProgress,
            ActionState::Complete | ActionState::Failed => SubjectState::Ended,
            ActionState::Other(text) if text.is_empty() => SubjectState::New,
            ActionState::Other(_) => SubjectState::Unmanaged,
        }
    }

    fn validate(raw: &Value) -> Vec<String> {
        validate::check(raw).err().map(|invalid| invalid.lines()).unwrap_or_default()
    }

    async fn check_requirements(subject: &ActionSet, context: &ActionSetContext) -> Result<Requirements, Error> {
        let faults = match plan::load(subject, &context.leader.client, &context.leader.namespace).await? {
            Ok(_) => Vec::new(),
            Err(faults) => faults,
        };
        Ok(Requirements { faults, missing: None })
    }

    fn queued_status(_: usize) -> Option<Value> {
        None
    }

    fn rejected_status(faults: &[String]) -> Value {
        Self::failed_status(&faults.join("; "))
    }

    fn failed_status(reason: &str) -> Value {
        json!({ "state": "failed", "error": { "message": reason } })
    }

    fn concurrency(_: &ActionSetContext) -> usize {
        MAX_CONCURRENT_ACTION_SETS
    }

    fn status_fields(live: &LiveState, snapshot: &Snapshot) -> Option<Value> {
        live.0.get().map(|set| set.status_patch(snapshot))
    }

    async fn execute(job: &Job<Self>) -> Result<Completion, Error> {
        let planned = match planned(job).await? {
            Ok(planned) => planned,
            Err(why) => return interrupted::end(job, &why).await,
        };
        let saved = job.subject.status.clone().unwrap_or_default();
        let mut results = ActionSetResults::new(planned.iter().map(|action| (&action.spec, &action.action)));
        if let Err(why) = results.resume(&saved) {
            return interrupted::end(job, &why).await;
        }
        results.start();
        job.tree.root().equal_weights();
        let log = OperationLog::create(&job.scratch.path().join("log.gz"))?;
        let set = job.live.0.get_or_init(|| Arc::new(RunningActionSet::new(results, saved, log)));
        kill::point("status.begin.before");
        job.publish_status().await?;
        kill::point("status.begin.after");
        let runs = planned.iter().enumerate().map(|(index, planned)| action::run(job, set, index, planned));
        for answer in join_all(runs).await {
            answer?;
        }
        log_config_map::write(job).await;
        Ok(finish(job, set))
    }

    async fn abort(job: &Job<Self>, error: &Error) {
        if let Some(set) = job.live.0.get() {
            set.log().info(format!("given up: {error}"));
        }
    }
}

/// The plan from when the ActionSet started: it is valid to its end. The inner error is why the plan is invalid.
async fn planned(job: &Job<ActionSetController>) -> Result<Result<Vec<PlannedAction>, String>, Error> {
    if let Some(planned) = plan::from_journal(&job.journal_entries) {
        return Ok(Ok(planned));
    }
    let planned = job.read(|| plan::load(&job.subject, &job.context.leader.client, &job.id.namespace)).await?;
    if let Some(note) = planned.as_ref().ok().and_then(|planned| plan::journal_note(planned)) {
        job.journal.record_intent(note).await?;
    }
    Ok(planned.map_err(|faults| faults.join("; ")))
}

/// Ends the ActionSet after all its actions have ended.
fn finish(job: &Job<ActionSetController>, set: &RunningActionSet) -> Completion {
    let cancelled = job.cancel.is_cancelled();
    let result = set.results().end(cancelled);
    let status = set.status_patch(&job.tree.snapshot());
    let (state, ending) = match result {
        Ok(()) => (OperationState::Succeeded, None),
        Err(why) if cancelled && why.starts_with(CANCELLED) => {
            (OperationState::Cancelled, Some(Ending::Cancelled("requested by the user".into())))
        }
        Err(why) => (OperationState::Failed, Some(Ending::Failed(why))),
    };
    Completion { status, state, reasons: Vec::new(), ending }
}
