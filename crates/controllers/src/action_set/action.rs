//! One action: its phases in order, then its deferPhase whatever happened, then its artifacts.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_api::kanister::v1alpha1::{ActionState, Artifact, BlueprintPhase};
use plimsoll_blueprint as blueprint;
use plimsoll_blueprint::board::{CANCELLED, PhaseIndex, PhaseRef};
use plimsoll_blueprint::params::{self, Params, SavedTarget};
use plimsoll_blueprint::template::Template;
use plimsoll_engine::Error;
use plimsoll_engine::ports::{Effect, Journal};
use plimsoll_operations::{EventType, Job};
use plimsoll_progress::Task;

use jiff::Timestamp;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

use super::ActionSetController;
use super::host::left;
use super::phase::{self, Phase};
use super::plan::Planned;
use super::status_publisher::Publisher;

/// Key of the note with the target of an action.
const BEGUN_NOTE: &str = "begun";
const FAILED_BEFORE: &str = "failed before a restart of the server";

/// Runs one action to its end. An error means that this process must stop, not that the action failed.
pub async fn run(
    job: &Job<ActionSetController>,
    publisher: &Arc<Publisher>,
    index: usize,
    planned: &Planned,
) -> Result<(), Error> {
    let task = job.tree.root().child(planned.name());
    task.equal_weights();
    task.expect_duration(Duration::from_secs(planned.action.phases.len().max(1) as u64));
    let run = Run { job, publisher, index, planned, task: task.clone() };
    let ended = run.run().await?;
    match ended {
        ActionEnd::Succeeded => task.finish(),
        ActionEnd::Failed => task.fail("a phase failed"),
        ActionEnd::Cancelled => task.cancel("requested by the user"),
    }
    publisher.publish(&job.tree.snapshot()).await
}

enum ActionEnd {
    Succeeded,
    Failed,
    Cancelled,
}

struct Run<'a> {
    job: &'a Job<ActionSetController>,
    publisher: &'a Arc<Publisher>,
    index: usize,
    planned: &'a Planned,
    task: Task,
}

impl Run<'_> {
    async fn run(&self) -> Result<ActionEnd, Error> {
        let tasks: Vec<_> =
            self.phases().map(|(which, phase)| (which, phase, self.task.planned(name(phase)))).collect();
        let mut params = match self.params().await? {
            Ok(params) => params,
            Err(error) => return self.refuse(&error, &tasks).await,
        };
        let mut end = ActionEnd::Succeeded;
        for (which, phase, task) in tasks.iter().filter(|(which, ..)| *which != PhaseIndex::Defer) {
            end = self.step(*which, phase, task, &mut params, &self.job.cancel).await?;
            if !matches!(end, ActionEnd::Succeeded) {
                break;
            }
        }
        if let Some((which, phase, task)) = tasks.iter().find(|(which, ..)| *which == PhaseIndex::Defer) {
            // Nothing cancels the phase that cleans up.
            let last = self.step(*which, phase, task, &mut params, &CancellationToken::new()).await?;
            end = if matches!(end, ActionEnd::Succeeded) { last } else { end };
        }
        for (.., task) in &tasks {
            task.skip("it was not reached");
        }
        self.finish(end, &params).await
    }

    fn phases(&self) -> impl Iterator<Item = (PhaseIndex, &BlueprintPhase)> {
        let action = &self.planned.action;
        let core = action.phases.iter().enumerate().map(|(index, phase)| (PhaseIndex::Core(index), phase));
        core.chain(action.defer_phase.iter().map(|phase| (PhaseIndex::Defer, phase)))
    }

    fn place(&self, phase: PhaseIndex) -> PhaseRef {
        PhaseRef { action: self.index, phase }
    }

    /// What templates see. What an earlier process knew counts for as long as the action runs.
    async fn params(&self) -> Result<Result<Params, blueprint::Error>, Error> {
        let known = left(&self.job.journal_entries, self.index, "").notes.remove(BEGUN_NOTE);
        let known: Option<SavedTarget> = known.and_then(|text| serde_json::from_str(&text).ok());
        let time = known.as_ref().map_or_else(|| Timestamp::now().to_string(), |begun| begun.time.clone());
        let reading = self.task.wait("reading what its templates need");
        let params = self.fetch(known.as_ref(), &time).await;
        drop(reading);
        if let (Ok(params), None) = (&params, &known) {
            let value = serde_json::to_string(&params.to_saved_target(time)).unwrap_or_default();
            let note = Effect::Note { action: self.index, phase: String::new(), key: BEGUN_NOTE.into(), value };
            self.job.journal.record_intent(note).await?;
        }
        Ok(params)
    }

    /// Retries while the API server is unavailable.
    async fn fetch(&self, known: Option<&SavedTarget>, time: &str) -> Result<Params, blueprint::Error> {
        let mut pause = Duration::from_millis(100);
        loop {
            let home = &self.job.id.namespace;
            let error =
                match params::fetch(&self.job.context.leader.client, &self.planned.spec, known, time, home).await {
                    Err(error) if error.is_retryable() && pause < Duration::from_mins(2) => error,
                    answer => return answer,
                };
            let _waiting = self.task.wait(format!("trying again: {error}"));
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }

    /// The action cannot begin, or cannot go on after its server died: its first phase that is not complete is the one that
    /// failed. Phases that ran are closed; the last phase is not run, since there is nothing to fill its templates with.
    async fn refuse(
        &self,
        error: &blueprint::Error,
        tasks: &[(PhaseIndex, &BlueprintPhase, Task)],
    ) -> Result<ActionEnd, Error> {
        let text = format!("action {}: {error}", self.planned.name());
        self.publisher.log().info(&text);
        let (mut going, mut said) = (true, false);
        for (which, written, task) in tasks {
            let phase = self.phase(*which, written, task, &self.job.cancel);
            match self.state_of(*which) {
                Some(ActionState::Complete) => task.finish(),
                Some(ActionState::Failed) => {
                    task.fail(FAILED_BEFORE);
                    going = false;
                }
                _ if phase.is_open() => {
                    let why = blueprint::Error::Missing(error.to_string());
                    let failed = phase.close(&mut Params::default(), why).await?.is_err();
                    (going, said) = (going && !failed, said || failed);
                }
                _ if going => {
                    self.publisher.board().fail(self.place(*which), &text, Timestamp::now());
                    (going, said) = (false, true);
                }
                _ => {}
            }
            task.skip("the action could not begin");
        }
        if !said {
            self.publisher.board().fail_action(self.index, &text);
        }
        self.publisher.board().end_action(self.index);
        self.record_event(EventType::Warning, "ActionFailed", &text).await;
        self.publisher.publish(&self.job.tree.snapshot()).await?;
        Ok(ActionEnd::Failed)
    }

    async fn record_event(&self, event_type: EventType, reason: &str, message: &str) {
        self.job.context.leader.events.record(&self.job.id.reference(), event_type, reason, message).await;
    }

    /// One phase, unless an earlier process came further than that.
    async fn step(
        &self,
        which: PhaseIndex,
        phase: &BlueprintPhase,
        task: &Task,
        params: &mut Params,
        cancel: &CancellationToken,
    ) -> Result<ActionEnd, Error> {
        let one = self.phase(which, phase, task, cancel);
        match self.state_of(which) {
            Some(ActionState::Complete) => {
                let output = self.publisher.board().output_of(self.place(which)).cloned();
                phase::show_objects(self.job, phase, params, which == PhaseIndex::Defer).await;
                params.complete_phase(name(phase), &output.unwrap_or_default(), which == PhaseIndex::Defer);
                task.finish();
                return Ok(ActionEnd::Succeeded);
            }
            Some(ActionState::Failed) => {
                task.fail(FAILED_BEFORE);
                return Ok(ActionEnd::Failed);
            }
            _ if cancel.is_cancelled() && !one.is_open() => {
                self.publisher.board().fail_action(self.index, CANCELLED);
                return Ok(ActionEnd::Cancelled);
            }
            _ => {}
        }
        Ok(match one.run(params).await? {
            Ok(()) => ActionEnd::Succeeded,
            Err(blueprint::Error::Cancelled) => ActionEnd::Cancelled,
            Err(_) => ActionEnd::Failed,
        })
    }

    fn state_of(&self, which: PhaseIndex) -> Option<ActionState> {
        self.publisher.board().state_of(self.place(which)).cloned()
    }

    fn phase<'a>(
        &'a self,
        which: PhaseIndex,
        written: &'a BlueprintPhase,
        task: &'a Task,
        cancel: &'a CancellationToken,
    ) -> Phase<'a> {
        let (job, publisher, planned) = (self.job, self.publisher, self.planned);
        Phase { job, publisher, planned, place: self.place(which), written, task, cancel }
    }

    /// Renders the artifacts of a successful action.
    async fn finish(&self, end: ActionEnd, params: &Params) -> Result<ActionEnd, Error> {
        if !matches!(end, ActionEnd::Succeeded) {
            self.publisher.board().end_action(self.index);
            return Ok(end);
        }
        let rendered = render(&self.planned.action.output_artifacts, params).and_then(|artifacts| {
            self.publisher.board().reserve_artifacts(&artifacts)?;
            Ok(artifacts)
        });
        match rendered {
            Ok(artifacts) => {
                self.publisher.board().complete_action(self.index, artifacts);
                Ok(ActionEnd::Succeeded)
            }
            Err(error) => {
                let text = format!("action {}: outputArtifacts: {error}", self.planned.name());
                self.publisher.log().info(&text);
                self.publisher.board().fail_action(self.index, &text);
                self.record_event(EventType::Warning, "ActionFailed", &text).await;
                Ok(ActionEnd::Failed)
            }
        }
    }
}

fn name(phase: &BlueprintPhase) -> &str {
    phase.name.as_deref().unwrap_or_default()
}

fn render(
    artifacts: &BTreeMap<String, Artifact>,
    params: &Params,
) -> Result<BTreeMap<String, Artifact>, blueprint::Error> {
    let mut rendered = BTreeMap::new();
    for (name, artifact) in artifacts {
        let fill = |key: &str, text: &str| Template::parse(&format!("{name}.{key}"), text)?.render(params.tree());
        let mut done = artifact.clone();
        for (key, value) in &mut done.key_value {
            *value = fill(key, value)?;
        }
        if let Some(snapshot) = &mut done.kopia_snapshot {
            *snapshot = fill("kopiaSnapshot", snapshot)?;
        }
        rendered.insert(name.clone(), done);
    }
    Ok(rendered)
}
