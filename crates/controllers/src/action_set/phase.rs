//! One phase: intent, begin, function, result, clean up, end.

use std::sync::Arc;

use plimsoll_api::kanister::v1alpha1::{ActionState, BlueprintPhase};
use plimsoll_blueprint::Error as PhaseError;
use plimsoll_blueprint::functions::Call;
use plimsoll_blueprint::params::Params;
use plimsoll_blueprint::results::{PhaseIndex, PhaseRef};
use plimsoll_engine::Error;
use plimsoll_engine::kill;
use plimsoll_engine::ports::{Effect, IntentId, Journal};
use plimsoll_operations::{EventType, Job};
use plimsoll_progress::Task;
use tokio_util::sync::CancellationToken;

use super::ActionSetController;
use super::phase_journal::{PhaseJournal, RecordedResult};
use super::plan::PlannedAction;
use super::running::RunningActionSet;

/// One phase of one action.
pub struct Phase<'a> {
    pub job: &'a Job<ActionSetController>,
    pub set: &'a Arc<RunningActionSet>,
    pub planned: &'a PlannedAction,
    pub position: PhaseRef,
    /// The phase of the blueprint.
    pub spec: &'a BlueprintPhase,
    pub task: &'a Task,
    pub cancel: &'a CancellationToken,
}

impl Phase<'_> {
    pub fn name(&self) -> &str {
        self.spec.name.as_deref().unwrap_or_default()
    }

    pub fn is_defer_phase(&self) -> bool {
        self.position.phase == PhaseIndex::Defer
    }

    /// `action/phase`.
    pub fn label(&self) -> String {
        format!("{}/{}", self.planned.name(), self.name())
    }

    fn journal(&self) -> PhaseJournal {
        PhaseJournal::read(&self.job.journal_entries, self.position.action, self.name())
    }

    fn is_running(&self) -> bool {
        self.set.results().state_of(self.position) == Some(&ActionState::Running)
    }

    /// Whether an earlier process started it, and its end is not in the status.
    pub fn is_open(&self) -> bool {
        self.journal().intent.is_some() || self.is_running()
    }

    /// Ends a phase that an earlier process started and that is not resumed: with its recorded result, or else with `why`.
    pub async fn close(&self, params: &mut Params, why: PhaseError) -> Result<Result<(), PhaseError>, Error> {
        let journal = self.journal();
        let recorded = journal.result();
        let is_recorded = recorded.is_some();
        let result = recorded.unwrap_or_else(|| RecordedResult::Error(params.redact(&why.to_string())));
        if let RecordedResult::Outputs(outputs) = &result {
            // The space was available when the phase ended.
            let _ = self.set.results().reserve(outputs);
        }
        if let Some(intent) = journal.intent.filter(|_| !is_recorded) {
            self.job.journal.record_result(intent, result.to_json()).await?;
        }
        self.clean_up_pods(params, &journal).await;
        let answer = self.end(params, result).await?;
        Ok(if is_recorded { answer } else { Err(why) })
    }

    /// Runs it. The inner error is why it failed, the outer one why this process must stop.
    pub async fn run(&self, params: &mut Params) -> Result<Result<(), PhaseError>, Error> {
        let journal = self.journal();
        if journal.result().is_some() || self.cancel.is_cancelled() {
            return self.close(params, PhaseError::Cancelled).await;
        }
        let intent = self.record_intent(&journal).await?;
        let started_elsewhere = self.is_running() && journal.intent.is_none();
        self.begin().await?;
        let (call, answer) = match self.prepare(params, &journal, started_elsewhere).await {
            Ok((function, call)) => {
                let answer = self.call_function(function, &call).await;
                (Some(call), answer)
            }
            Err(error) => (None, Err(error)),
        };
        let answer = answer.and_then(|outputs| {
            self.set.results().reserve(&outputs)?;
            Ok(outputs)
        });
        let (result, cancelled) = match answer {
            Err(PhaseError::Host(why)) => return Err(Error::Fenced(why)),
            Ok(outputs) => (RecordedResult::Outputs(outputs), false),
            Err(error) => {
                (RecordedResult::Error(params.redact(&error.to_string())), matches!(error, PhaseError::Cancelled))
            }
        };
        self.job.journal.record_result(intent, result.to_json()).await?;
        self.clean_up(call.as_ref(), params, &journal).await;
        let answer = self.end(params, result).await?;
        Ok(if cancelled { Err(PhaseError::Cancelled) } else { answer })
    }

    async fn record_intent(&self, journal: &PhaseJournal) -> Result<IntentId, Error> {
        if let Some(intent) = journal.intent {
            return Ok(intent);
        }
        let effect = Effect::Phase { action: self.position.action, phase: self.name().to_owned() };
        self.job.journal.record_intent(effect).await
    }

    async fn begin(&self) -> Result<(), Error> {
        self.task.start();
        self.set.results().begin(self.position);
        let label = self.label();
        self.set.log().info(format!("{label}: begun"));
        kill::point("phase.begin.before");
        self.job.publish_status().await?;
        kill::point("phase.begin.after");
        let reason = if self.is_defer_phase() { "StartedDeferPhase" } else { "StartedPhase" };
        self.record_event(EventType::Normal, reason, &label).await;
        Ok(())
    }

    async fn record_event(&self, event_type: EventType, reason: &str, message: &str) {
        self.job.context.leader.events.record(&self.job.id.reference(), event_type, reason, message).await;
    }

    /// Deletes the pods of the call, or those of an earlier process if there was no call.
    async fn clean_up(&self, call: Option<&Call>, params: &Params, journal: &PhaseJournal) {
        match call {
            Some(call) => call.clean_up().await,
            None => self.clean_up_pods(params, journal).await,
        }
    }

    /// Ends it. The last progress that its function reported is written together with the state.
    async fn end(&self, params: &mut Params, result: RecordedResult) -> Result<Result<(), PhaseError>, Error> {
        self.set.observe(&self.job.tree.snapshot());
        let label = self.label();
        let answer = match result {
            RecordedResult::Outputs(outputs) => {
                params.complete_phase(self.name(), &outputs, self.is_defer_phase());
                self.set.results().complete(self.position, outputs);
                self.task.finish();
                Ok(())
            }
            RecordedResult::Error(text) => {
                self.task.fail(&text);
                let text = format!("action {}, phase {}: {text}", self.planned.name(), self.name());
                self.set.results().fail(self.position, &text);
                Err(PhaseError::Missing(text))
            }
        };
        let message = answer.as_ref().err().map_or_else(|| format!("{label}: complete"), ToString::to_string);
        self.set.log().info(&message);
        kill::point("phase.end.before");
        self.job.publish_status().await?;
        kill::point("phase.end.after");
        match (&answer, self.is_defer_phase()) {
            (Ok(()), false) => self.record_event(EventType::Normal, "EndedPhase", &label).await,
            (Ok(()), true) => self.record_event(EventType::Normal, "EndedDeferPhase", &label).await,
            (Err(_), _) => self.record_event(EventType::Warning, "PhaseFailed", &message).await,
        }
        Ok(answer)
    }
}
