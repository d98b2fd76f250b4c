//! One action: its phases in order, then its deferPhase in any case, then its artifacts.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::kanister::v1alpha1::{ActionState, BlueprintPhase};
use plimsoll_blueprint as blueprint;
use plimsoll_blueprint::params::Params;
use plimsoll_blueprint::results::{CANCELLED, PhaseIndex, PhaseRef};
use plimsoll_engine::Error;
use plimsoll_operations::{EventType, Job};
use plimsoll_progress::{Task, Work};
use tokio_util::sync::CancellationToken;

use super::phase::Phase;
use super::plan::PlannedAction;
use super::running::RunningActionSet;
use super::{ActionSetController, action_params, artifacts, phase_call};

const FAILED_BEFORE: &str = "failed before a restart of the server";

/// Runs one action to its end. An error means that this process must stop, not that the action failed.
pub async fn run(
    job: &Job<ActionSetController>,
    set: &Arc<RunningActionSet>,
    index: usize,
    planned: &PlannedAction,
) -> Result<(), Error> {
    let task = job.tree.root().child(planned.name());
    task.equal_weights();
    task.shares(u32::try_from(planned.action.phases.len()).unwrap_or(u32::MAX));
    task.plan(Work::assumed(Duration::from_secs(planned.action.phases.len().max(1) as u64)));
    let action = Action { job, set, index, planned, task: task.clone() };
    match action.run().await? {
        ActionEnd::Succeeded => task.finish(),
        ActionEnd::Failed => task.fail("a phase failed"),
        ActionEnd::Cancelled => task.cancel("requested by the user"),
    }
    job.publish_status().await
}

enum ActionEnd {
    Succeeded,
    Failed,
    Cancelled,
}

struct Action<'a> {
    job: &'a Job<ActionSetController>,
    set: &'a Arc<RunningActionSet>,
    index: usize,
    planned: &'a PlannedAction,
    task: Task,
}

/// A phase of the blueprint and its task.
type PlannedPhase<'a> = (PhaseIndex, &'a BlueprintPhase, Task);

impl Action<'_> {
    async fn run(&self) -> Result<ActionEnd, Error> {
        let phases = self.plan_phases();
        let mut params = match action_params::read(self.job, &self.task, self.index, self.planned).await? {
            Ok(params) => params,
            Err(error) => return self.reject(&error, &phases).await,
        };
        let mut end = ActionEnd::Succeeded;
        for (index, phase, task) in phases.iter().filter(|(index, ..)| *index != PhaseIndex::Defer) {
            end = self.run_phase(*index, phase, task, &mut params, &self.job.cancel).await?;
            if !matches!(end, ActionEnd::Succeeded) {
                break;
            }
        }
        if let Some((index, phase, task)) = phases.iter().find(|(index, ..)| *index == PhaseIndex::Defer) {
            // A cancellation does not apply to the deferPhase, which cleans up.
            let last = self.run_phase(*index, phase, task, &mut params, &CancellationToken::new()).await?;
            end = if matches!(end, ActionEnd::Succeeded) { last } else { end };
        }
        for (.., task) in &phases {
            task.skip("it was not reached");
        }
        self.finish(end, &params).await
    }

    /// The phases with a task for each.
    fn plan_phases(&self) -> Vec<PlannedPhase<'_>> {
        let action = &self.planned.action;
        let core = action.phases.iter().enumerate().map(|(index, phase)| (PhaseIndex::Core(index), phase));
        let all = core.chain(action.defer_phase.iter().map(|phase| (PhaseIndex::Defer, phase)));
        all.map(|(index, phase)| {
            let task = self.task.planned(name(phase));
            if index == PhaseIndex::Defer {
                // As in Kanister, the deferPhase is no part of the percentage.
                task.shares(0);
            }
            self.set.results().set_task(self.position(index), task.path());
            (index, phase, task)
        })
        .collect()
    }

    fn position(&self, phase: PhaseIndex) -> PhaseRef {
        PhaseRef { action: self.index, phase }
    }

    /// Ends an action whose template parameters cannot be read: its first phase that is not complete has failed. Phases that
    /// an earlier process started are closed. The deferPhase does not run, since its templates cannot be rendered.
    async fn reject(&self, error: &blueprint::Error, phases: &[PlannedPhase<'_>]) -> Result<ActionEnd, Error> {
        let text = format!("action {}: {error}", self.planned.name());
        self.set.log().info(&text);
        let (mut all_complete, mut reported) = (true, false);
        for (index, spec, task) in phases {
            let phase = self.phase(*index, spec, task, &self.job.cancel);
            match self.state_of(*index) {
                Some(ActionState::Complete) => task.finish(),
                Some(ActionState::Failed) => {
                    task.fail(FAILED_BEFORE);
                    all_complete = false;
                }
                _ if phase.is_open() => {
                    let why = blueprint::Error::Missing(error.to_string());
                    let failed = phase.close(&mut Params::default(), why).await?.is_err();
                    (all_complete, reported) = (all_complete && !failed, reported || failed);
                }
                _ if all_complete => {
                    self.set.results().fail(self.position(*index), &text);
                    (all_complete, reported) = (false, true);
                }
                _ => {}
            }
            task.skip("the action could not begin");
        }
        if !reported {
            self.set.results().fail_action(self.index, &text);
        }
        self.set.results().end_action(self.index);
        self.record_failure(&text).await;
        self.job.publish_status().await?;
        Ok(ActionEnd::Failed)
    }

    async fn record_failure(&self, message: &str) {
        let events = &self.job.context.leader.events;
        events.record(&self.job.id.reference(), EventType::Warning, "ActionFailed", message).await;
    }

    /// Runs one phase, unless it ended in an earlier process.
    async fn run_phase(
        &self,
        index: PhaseIndex,
        spec: &BlueprintPhase,
        task: &Task,
        params: &mut Params,
        cancel: &CancellationToken,
    ) -> Result<ActionEnd, Error> {
        let phase = self.phase(index, spec, task, cancel);
        match self.state_of(index) {
            Some(ActionState::Complete) => {
                let output = self.set.results().output_of(self.position(index)).cloned();
                phase_call::add_objects(self.job, spec, params, index == PhaseIndex::Defer).await;
                params.complete_phase(name(spec), &output.unwrap_or_default(), index == PhaseIndex::Defer);
                task.finish();
                return Ok(ActionEnd::Succeeded);
            }
            Some(ActionState::Failed) => {
                task.fail(FAILED_BEFORE);
                return Ok(ActionEnd::Failed);
            }
            _ if cancel.is_cancelled() && !phase.is_open() => {
                self.set.results().fail_action(self.index, CANCELLED);
                return Ok(ActionEnd::Cancelled);
            }
            _ => {}
        }
        Ok(match phase.run(params).await? {
            Ok(()) => ActionEnd::Succeeded,
            Err(blueprint::Error::Cancelled) => ActionEnd::Cancelled,
            Err(_) => ActionEnd::Failed,
        })
    }

    fn state_of(&self, index: PhaseIndex) -> Option<ActionState> {
        self.set.results().state_of(self.position(index)).cloned()
    }

    fn phase<'a>(
        &'a self,
        index: PhaseIndex,
        spec: &'a BlueprintPhase,
        task: &'a Task,
        cancel: &'a CancellationToken,
    ) -> Phase<'a> {
        let (job, set, planned) = (self.job, self.set, self.planned);
        Phase { job, set, planned, position: self.position(index), spec, task, cancel }
    }

    /// Ends the action; a successful one with its artifacts.
    async fn finish(&self, end: ActionEnd, params: &Params) -> Result<ActionEnd, Error> {
        if !matches!(end, ActionEnd::Succeeded) {
            self.set.results().end_action(self.index);
            return Ok(end);
        }
        let rendered = artifacts::render(&self.planned.action.output_artifacts, params).and_then(|artifacts| {
            self.set.results().reserve_artifacts(&artifacts)?;
            Ok(artifacts)
        });
        match rendered {
            Ok(artifacts) => {
                self.set.results().complete_action(self.index, artifacts);
                Ok(ActionEnd::Succeeded)
            }
            Err(error) => {
                let text = format!("action {}: outputArtifacts: {error}", self.planned.name());
                self.set.log().info(&text);
                self.set.results().fail_action(self.index, &text);
                self.record_failure(&text).await;
                Ok(ActionEnd::Failed)
            }
        }
    }
}

fn name(phase: &BlueprintPhase) -> &str {
    phase.name.as_deref().unwrap_or_default()
}
