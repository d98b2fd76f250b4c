//! One phase: intent, begin, function, result, clean up, end.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use plimsoll_api::kanister::v1alpha1::{ActionState, BlueprintPhase};
use plimsoll_blueprint::Error as PhaseError;
use plimsoll_blueprint::board::{Outputs, PhaseIndex, PhaseRef};
use plimsoll_blueprint::functions::arguments::Arguments;
use plimsoll_blueprint::functions::function_spec::{self, ProgressKind};
use plimsoll_blueprint::functions::{self, Call, Function, PodSettings, ResumePolicy};
use plimsoll_blueprint::params::{self, Params};
use plimsoll_blueprint::percent::Step;
use plimsoll_blueprint::template::render_value;
use plimsoll_engine::Error;
use plimsoll_engine::kill;
use plimsoll_engine::ports::{Effect, Journal};
use plimsoll_operations::{EventType, Job};
use plimsoll_progress::Task;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::ActionSetController;
use super::agent_transfer::Agents;
use super::host::{Left, Server, left};
use super::plan::Planned;
use super::progress_sampler::Running;
use super::status_publisher::Publisher;

/// One phase of one action.
pub struct Phase<'a> {
    pub job: &'a Job<ActionSetController>,
    pub publisher: &'a Arc<Publisher>,
    pub planned: &'a Planned,
    pub place: PhaseRef,
    pub written: &'a BlueprintPhase,
    pub task: &'a Task,
    pub cancel: &'a CancellationToken,
}

/// The result of a phase in the journal, until it is in the status.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum PhaseResult {
    Outputs(Outputs),
    Error(String),
}

impl Left {
    /// The recorded result, if there is one.
    fn ended(&self) -> Option<PhaseResult> {
        self.result.as_deref().and_then(|text| serde_json::from_str(text).ok())
    }
}

/// Makes the objects of a phase that has ended visible again.
pub async fn show_objects(job: &Job<ActionSetController>, phase: &BlueprintPhase, params: &mut Params, defer: bool) {
    if let Ok(objects) = objects(job, phase, params).await {
        params.start_phase(phase.name.as_deref().unwrap_or_default(), &objects, defer);
    }
}

async fn objects(
    job: &Job<ActionSetController>,
    phase: &BlueprintPhase,
    params: &Params,
) -> Result<params::PhaseParams, PhaseError> {
    let raw = serde_json::to_value(&phase.objects).unwrap_or_default();
    let rendered =
        render_value(&raw, params.tree()).map_err(|error| PhaseError::argument("objects", error.to_string()))?;
    let references =
        serde_json::from_value(rendered).map_err(|error| PhaseError::argument("objects", error.to_string()))?;
    params::phase_objects(&job.context.leader.client, &references).await
}

impl Phase<'_> {
    fn name(&self) -> &str {
        self.written.name.as_deref().unwrap_or_default()
    }

    fn is_last(&self) -> bool {
        self.place.phase == PhaseIndex::Defer
    }

    fn left(&self) -> Left {
        left(&self.job.journal_entries, self.place.action, self.name())
    }

    fn is_running(&self) -> bool {
        self.publisher.board().state_of(self.place) == Some(&ActionState::Running)
    }

    /// Whether an earlier process had begun it, and its end is not known.
    pub fn is_open(&self) -> bool {
        self.left().intent.is_some() || self.is_running()
    }

    /// Ends one that an earlier process had begun and that is not gone on with. If it had ended, that is how it ends.
    pub async fn close(&self, params: &mut Params, why: PhaseError) -> Result<Result<(), PhaseError>, Error> {
        let left = self.left();
        let (ended, known) = match left.ended() {
            Some(ended) => {
                if let PhaseResult::Outputs(outputs) = &ended {
                    // There was room for it when it ended.
                    let _ = self.publisher.board().reserve(outputs);
                }
                (ended, true)
            }
            None => (PhaseResult::Error(params.redact(&why.to_string())), false),
        };
        if let Some(intent) = left.intent.filter(|_| !known) {
            self.job.journal.record_result(intent, serde_json::to_string(&ended).unwrap_or_default()).await?;
        }
        self.clean_up_pods(params, &left).await;
        let answer = self.end(params, ended).await?;
        Ok(if known { answer } else { Err(why) })
    }

    /// Runs it. The inner error is how it failed, the outer one that this process must stop.
    pub async fn run(&self, params: &mut Params) -> Result<Result<(), PhaseError>, Error> {
        let left = self.left();
        if left.ended().is_some() || self.cancel.is_cancelled() {
            return self.close(params, PhaseError::Cancelled).await;
        }
        let intent = if let Some(intent) = left.intent {
            intent
        } else {
            let effect = Effect::Phase { action: self.place.action, phase: self.name().to_owned() };
            self.job.journal.record_intent(effect).await?
        };
        let stranded = self.is_running() && left.intent.is_none();
        self.begin().await?;
        let answer = match self.attempt(params, &left, stranded).await {
            Err(PhaseError::Host(why)) => return Err(Error::Fenced(why)),
            answer => answer,
        };
        let answer = answer.and_then(|outputs| {
            self.publisher.board().reserve(&outputs)?;
            Ok(outputs)
        });
        let (ended, cancelled) = match answer {
            Ok(outputs) => (PhaseResult::Outputs(outputs), false),
            Err(error) => {
                (PhaseResult::Error(params.redact(&error.to_string())), matches!(error, PhaseError::Cancelled))
            }
        };
        let result = serde_json::to_string(&ended).unwrap_or_default();
        self.job.journal.record_result(intent, result).await?;
        self.clean_up(params, &left).await;
        let ended = self.end(params, ended).await?;
        Ok(if cancelled { Err(PhaseError::Cancelled) } else { ended })
    }

    async fn begin(&self) -> Result<(), Error> {
        self.task.start();
        self.publisher.board().begin(self.place, Timestamp::now());
        let (reason, label) =
            if self.is_last() { ("StartedDeferPhase", self.label()) } else { ("StartedPhase", self.label()) };
        self.publisher.log().info(format!("{label}: begun"));
        kill::point("phase.begin.before");
        self.publisher.publish(&self.job.tree.snapshot()).await?;
        kill::point("phase.begin.after");
        self.record_event(EventType::Normal, reason, &label).await;
        Ok(())
    }

    fn label(&self) -> String {
        format!("{}/{}", self.planned.name(), self.name())
    }

    async fn record_event(&self, event_type: EventType, reason: &str, message: &str) {
        self.job.context.leader.events.record(&self.job.id.reference(), event_type, reason, message).await;
    }

    async fn attempt(&self, params: &mut Params, left: &Left, stranded: bool) -> Result<Outputs, PhaseError> {
        let func = self.written.func.as_deref().unwrap_or_default();
        let missing = || PhaseError::Unsupported(format!("function {func} cannot be run"));
        let function = functions::find(func).ok_or_else(missing)?;
        let known = function_spec::find(func).ok_or_else(missing)?;
        self.may_run(function, left, stranded)?;
        let objects = objects(self.job, self.written, params).await?;
        params.start_phase(self.name(), &objects, self.is_last());
        let arguments = self.arguments(known, params)?;
        let mut call = self.call(arguments, params.clone(), known.progress, left);
        call.resumed = left.intent.is_some() || stranded;
        let call = Arc::new(call);
        self.publisher.watch(self.place, Running { function, call: Arc::clone(&call) });
        let answer = self.within_limits(function, &call).await;
        if answer.is_ok() {
            call.gauge.reach(Step::Cleanup);
        }
        answer
    }

    /// Whether a phase that had begun may go on.
    fn may_run(&self, function: &dyn Function, left: &Left, stranded: bool) -> Result<(), PhaseError> {
        let begun = left.intent.is_some() || stranded;
        if !begun || self.planned.is_repeatable(self.name()) {
            return Ok(());
        }
        match function.resume_policy() {
            ResumePolicy::Repeat => Ok(()),
            ResumePolicy::Resume if !stranded => Ok(()),
            ResumePolicy::Resume => Err(PhaseError::Interrupted("another controller started it".into())),
            ResumePolicy::Never => {
                Err(PhaseError::Interrupted("a command in an application's pod is never run twice".into()))
            }
        }
    }

    fn arguments(&self, function: &function_spec::FunctionSpec, params: &Params) -> Result<Arguments, PhaseError> {
        let mut rendered = Map::new();
        for (name, value) in &self.written.args {
            let value = if function.rendered {
                render_value(value, params.tree()).map_err(|error| PhaseError::argument(name, error.to_string()))?
            } else {
                value.clone()
            };
            rendered.insert(name.clone(), value);
        }
        Ok(Arguments::new(rendered))
    }

    fn call(&self, arguments: Arguments, params: Params, shown: ProgressKind, left: &Left) -> Call {
        let spec = &self.planned.spec;
        let (job, action) = (self.job, self.place.action.to_string());
        let pod_override =
            (!spec.pod_override.is_empty()).then(|| Value::Object(spec.pod_override.clone().into_iter().collect()));
        let style = PodSettings {
            pod_override,
            labels: spec.pod_labels.clone(),
            annotations: spec.pod_annotations.clone(),
            tools_image: job.context.settings.tools.clone(),
        };
        let host = Server::new(job, self.publisher, self.place.action, self.name(), left);
        let mut call = Call::new(
            job.context.leader.client.clone(),
            job.id.namespace.clone(),
            &[&job.id.uid, &action, self.name()],
            self.label(),
            arguments,
            params,
            style,
            job.id.owner(),
            self.task.clone(),
            shown,
            Arc::new(host),
        );
        call.service_account.clone_from(&job.context.settings.service_account);
        call.data_movers = Some(Arc::new(Agents::new(Arc::clone(&job.context))));
        call
    }

    async fn within_limits(&self, function: &dyn Function, call: &Arc<Call>) -> Result<Outputs, PhaseError> {
        let limit = self.planned.timeout(self.name());
        if let Some(limit) = limit {
            self.task.deadline(limit);
        }
        let overdue = async {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            answer = function.run(call) => answer,
            () = self.cancel.cancelled() => Err(PhaseError::Cancelled),
            () = overdue => Err(PhaseError::TimedOut { what: "the phase to end".into(), limit: limit.unwrap_or(Duration::ZERO) }),
        }
    }

    /// The pods of the function that has just ended, or of one that could not even be called again.
    async fn clean_up(&self, params: &Params, left: &Left) {
        match self.publisher.call_of(self.place) {
            Some(call) => call.clean_up().await,
            None => self.clean_up_pods(params, left).await,
        }
    }

    /// The pods of a function that ran when its server died.
    async fn clean_up_pods(&self, params: &Params, left: &Left) {
        if left.intent.is_some() {
            let call = self.call(Arguments::default(), params.clone(), ProgressKind::OnCompletion, left);
            call.find_pods().await;
            call.clean_up().await;
        }
    }

    /// The last value goes out together with the state.
    async fn end(&self, params: &mut Params, ended: PhaseResult) -> Result<Result<(), PhaseError>, Error> {
        self.publisher.forget(self.place);
        let (now, label) = (Timestamp::now(), self.label());
        let answer = match ended {
            PhaseResult::Outputs(outputs) => {
                params.complete_phase(self.name(), &outputs, self.is_last());
                self.publisher.board().complete(self.place, outputs, now);
                self.task.finish();
                Ok(())
            }
            PhaseResult::Error(text) => {
                self.task.fail(&text);
                let text = format!("action {}, phase {}: {text}", self.planned.name(), self.name());
                self.publisher.board().fail(self.place, &text, now);
                Err(PhaseError::Missing(text))
            }
        };
        let words = answer.as_ref().err().map_or_else(|| format!("{label}: complete"), ToString::to_string);
        self.publisher.log().info(&words);
        kill::point("phase.end.before");
        self.publisher.publish(&self.job.tree.snapshot()).await?;
        kill::point("phase.end.after");
        match (&answer, self.is_last()) {
            (Ok(()), false) => self.record_event(EventType::Normal, "EndedPhase", &label).await,
            (Ok(()), true) => self.record_event(EventType::Normal, "EndedDeferPhase", &label).await,
            (Err(_), _) => self.record_event(EventType::Warning, "PhaseFailed", &words).await,
        }
        Ok(answer)
    }
}
