//! ActionSet: actions of blueprints, all of them at the same time, their phases one after the other.
//!
//! ```text
//!   work ──▶ plan: blueprints, validated ──▶ one task for each action
//!                 phase: intent ──▶ begin ──▶ function ──▶ result (journal) ──▶ pods gone ──▶ status
//!                                        │
//!             every second: functions are asked how far they are ──▶ board ──▶ status
//! ```

mod action;
mod agent_transfer;
mod host;
mod interrupted;
mod phase;
mod plan;
mod progress_sampler;
mod status_publisher;

use std::sync::{Arc, OnceLock};

use futures::future::{BoxFuture, join_all};
use plimsoll_api::kanister::v1alpha1::{ActionSet, ActionState};
use plimsoll_api::plimsoll::v1alpha1::OperationState;
use plimsoll_api::validate;
use plimsoll_blueprint::board::{Board, CANCELLED};
use plimsoll_engine::log::OperationLog;
use plimsoll_engine::ports::Journal;
use plimsoll_engine::{Error, kill};
use plimsoll_operations::{Completion, ItemCounters, Job, Lifecycle, Projection, Requirements, SubjectState};
use plimsoll_progress::{Ending, Snapshot};
use serde_json::{Value, json};

use self::plan::Planned;
use self::status_publisher::Publisher;
use crate::context::Context;

/// Our finalizer on an ActionSet for as long as it runs: one that is deleted is cancelled first.
pub const FINALIZER: &str = "actionsets.plimsoll.dev/running";
/// Maximum number of ActionSets that run in parallel.
const MAX_CONCURRENT_ACTION_SETS: usize = 100;

/// The progress of an ActionSet.
#[derive(Default)]
pub struct Live(OnceLock<Arc<Publisher>>);

impl Projection for Live {
    fn write<'a>(&'a self, snapshot: &'a Snapshot, more: Value) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Some(publisher) = self.0.get() {
                publisher.refresh(snapshot, more).await;
            }
        })
    }
}

/// The lifecycle of an ActionSet.
pub struct ActionSetController;

impl Lifecycle for ActionSetController {
    type Resource = ActionSet;
    type Context = Context;
    type LiveState = Live;
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

    async fn check_requirements(subject: &ActionSet, context: &Context) -> Result<Requirements, Error> {
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

    fn concurrency(_: &Context) -> usize {
        MAX_CONCURRENT_ACTION_SETS
    }

    fn projection(job: &Job<Self>) -> Option<Arc<dyn Projection>> {
        Some(Arc::clone(&job.live) as Arc<dyn Projection>)
    }

    async fn execute(job: &Job<Self>) -> Result<Completion, Error> {
        let planned = match planned(job).await? {
            Ok(planned) => planned,
            Err(why) => return interrupted::end(job, &why).await,
        };
        let mut board = Board::new(planned.iter().map(|one| (&one.spec, &one.action)));
        if let Err(why) = board.resume(&job.subject.status.clone().unwrap_or_default()) {
            return interrupted::end(job, &why).await;
        }
        board.start();
        let log = OperationLog::create(&job.scratch.path().join("log.gz"))?;
        let publisher = Arc::new(Publisher::new(job, board, log));
        let publisher = job.live.0.get_or_init(|| publisher);
        kill::point("status.begin.before");
        publisher.publish(&job.tree.snapshot()).await?;
        kill::point("status.begin.after");
        let runs = planned.iter().enumerate().map(|(index, one)| action::run(job, publisher, index, one));
        for answer in join_all(runs).await {
            answer?;
        }
        publisher.keep_log(job).await;
        Ok(finish(job, publisher))
    }

    async fn abort(job: &Job<Self>, error: &Error) {
        if let Some(publisher) = job.live.0.get() {
            publisher.log().info(format!("given up: {error}"));
        }
    }
}

/// What was planned when the set began counts to its end. The inner error is what is wrong with the plan.
async fn planned(job: &Job<ActionSetController>) -> Result<Result<Vec<Planned>, String>, Error> {
    if let Some(planned) = plan::remembered(&job.journal_entries) {
        return Ok(Ok(planned));
    }
    let planned = job.read(|| plan::load(&job.subject, &job.context.leader.client, &job.id.namespace)).await?;
    if let Some(note) = planned.as_ref().ok().and_then(|planned| plan::note(planned)) {
        job.journal.record_intent(note).await?;
    }
    Ok(planned.map_err(|faults| faults.join("; ")))
}

/// The set has ended, with all its actions.
fn finish(job: &Job<ActionSetController>, publisher: &Publisher) -> Completion {
    let cancelled = job.cancel.is_cancelled();
    let (ended, status) = publisher.end(cancelled);
    let (state, ending) = match ended {
        Ok(()) => (OperationState::Succeeded, None),
        Err(why) if cancelled && why.starts_with(CANCELLED) => {
            (OperationState::Cancelled, Some(Ending::Cancelled("requested by the user".into())))
        }
        Err(why) => (OperationState::Failed, Some(Ending::Failed(why))),
    };
    Completion { status, state, reasons: Vec::new(), ending }
}
