//! ActionSet: actions of blueprints, all of them at the same time, their phases one after the other.
//!
//! ```text
//!   work ──▶ plan: blueprints, validated ──▶ one task for each action
//!                 phase: intent ──▶ begin ──▶ function ──▶ result (journal) ──▶ pods gone ──▶ status
//!                                        │
//!             every second: functions are asked how far they are ──▶ board ──▶ status
//! ```

mod action;
mod broken;
pub mod checks;
mod host;
mod movers;
mod phase;
mod plan;
mod publish;
mod sample;

use std::sync::{Arc, OnceLock};

use futures::future::{BoxFuture, join_all};
use plimsoll_api::kanister::v1alpha1::{ActionSet, ActionState};
use plimsoll_api::plimsoll::v1alpha1::OperationState;
use plimsoll_api::validate;
use plimsoll_blueprint::board::{Board, CANCELLED};
use plimsoll_engine::log::OperationLog;
use plimsoll_engine::ports::Journal;
use plimsoll_engine::{Error, kill};
use plimsoll_progress::{Ending, Snapshot};
use serde_json::{Value, json};

use self::plan::Planned;
use self::publish::Publisher;
use crate::context::{Context, Settings};
use crate::decide::Stage;
use crate::floor::Shown;
use crate::report::Projection;
use crate::subject::{Finished, Job, Kind, Needs};

/// Our finalizer on an ActionSet for as long as it runs: one that is deleted is cancelled first.
pub const FINALIZER: &str = "actionsets.plimsoll.dev/running";
/// How many sets run at the same time; more wait.
const AT_ONCE: usize = 100;

/// What is shown of a set while it runs.
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

impl Kind for ActionSet {
    const VERB: &'static str = "run";
    const SHOWN: Shown = Shown::NOTHING;
    const FINALIZER: Option<&'static str> = Some(FINALIZER);
    const HELD_WHILE_RUNNING: bool = true;
    const PHASE: &'static str = "/status/state";
    type Live = Live;

    fn stage(state: &str) -> Stage {
        match ActionState::from(state) {
            ActionState::Pending => Stage::New,
            ActionState::Running => Stage::Begun,
            ActionState::Complete | ActionState::Failed => Stage::Ended,
            ActionState::Other(text) if text.is_empty() => Stage::New,
            ActionState::Other(_) => Stage::Other,
        }
    }

    fn faults(raw: &Value) -> Vec<String> {
        validate::check(raw).err().map(|invalid| invalid.lines()).unwrap_or_default()
    }

    async fn needs(&self, context: &Context) -> Result<Needs, Error> {
        let faults = match plan::load(self, &context.client, &context.settings.namespace).await? {
            Ok(_) => Vec::new(),
            Err(faults) => faults,
        };
        Ok(Needs { faults, missing: None })
    }

    fn queued(_: usize) -> Option<Value> {
        None
    }

    fn refused(faults: &[String]) -> Value {
        Self::failed(&faults.join("; "))
    }

    fn failed(reason: &str) -> Value {
        json!({ "state": "failed", "error": { "message": reason } })
    }

    fn at_once(_: &Settings) -> usize {
        AT_ONCE
    }

    fn projection(job: &Job<Self>) -> Option<Arc<dyn Projection>> {
        Some(Arc::clone(&job.live) as Arc<dyn Projection>)
    }

    async fn work(job: &Job<Self>) -> Result<Finished, Error> {
        let planned = match planned(job).await? {
            Ok(planned) => planned,
            Err(why) => return broken::end(job, &why).await,
        };
        let mut board = Board::new(planned.iter().map(|one| (&one.spec, &one.action)));
        if let Err(why) = board.resume(&job.subject.status.clone().unwrap_or_default()) {
            return broken::end(job, &why).await;
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

    async fn give_up(job: &Job<Self>, error: &Error) {
        if let Some(publisher) = job.live.0.get() {
            publisher.log().info(format!("given up: {error}"));
        }
    }
}

/// What was planned when the set began counts to its end. The inner error is what is wrong with the plan.
async fn planned(job: &Job<ActionSet>) -> Result<Result<Vec<Planned>, String>, Error> {
    if let Some(planned) = plan::remembered(&job.known) {
        return Ok(Ok(planned));
    }
    let planned = job.read(|| plan::load(&job.subject, &job.context.client, &job.id.namespace)).await?;
    if let Some(note) = planned.as_ref().ok().and_then(|planned| plan::note(planned)) {
        job.journal.intend(note).await?;
    }
    Ok(planned.map_err(|faults| faults.join("; ")))
}

/// The set has ended, with all its actions.
fn finish(job: &Job<ActionSet>, publisher: &Publisher) -> Finished {
    let cancelled = job.cancel.is_cancelled();
    let (ended, status) = publisher.end(cancelled);
    let (state, ending) = match ended {
        Ok(()) => (OperationState::Succeeded, None),
        Err(why) if cancelled && why.starts_with(CANCELLED) => {
            (OperationState::Cancelled, Some(Ending::Cancelled("asked for by its user".into())))
        }
        Err(why) => (OperationState::Failed, Some(Ending::Failed(why))),
    };
    Finished { status, state, reasons: Vec::new(), ending }
}
