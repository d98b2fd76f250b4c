//! The call of a phase's function: whether it may run, its objects and arguments, its time limit.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::kanister::v1alpha1::BlueprintPhase;
use plimsoll_blueprint::Error as PhaseError;
use plimsoll_blueprint::functions::arguments::Arguments;
use plimsoll_blueprint::functions::function_spec::{self, FunctionSpec, ProgressKind};
use plimsoll_blueprint::functions::{self, Call, Environment, Function, PodSettings, ResumePolicy};
use plimsoll_blueprint::params::{self, Params};
use plimsoll_blueprint::percent::Step;
use plimsoll_blueprint::results::Outputs;
use plimsoll_blueprint::template::render_value;
use plimsoll_operations::Job;
use serde_json::{Map, Value};

use super::ActionSetController;
use super::agent_transfer::NodeAgents;
use super::host::FunctionHost;
use super::phase::Phase;
use super::phase_journal::PhaseJournal;

/// Adds the objects of a complete phase to the template parameters.
pub async fn add_objects(job: &Job<ActionSetController>, phase: &BlueprintPhase, params: &mut Params, defer: bool) {
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
    /// The function and its call, with rendered arguments.
    pub async fn prepare(
        &self,
        params: &mut Params,
        journal: &PhaseJournal,
        started_elsewhere: bool,
    ) -> Result<(&'static Function, Call), PhaseError> {
        let func = self.spec.func.as_deref().unwrap_or_default();
        let missing = || PhaseError::Unsupported(format!("function {func} cannot be run"));
        let function = functions::find(func).ok_or_else(missing)?;
        let function_spec = function_spec::find(func).ok_or_else(missing)?;
        self.check_resume_policy(function, journal, started_elsewhere)?;
        let objects = objects(self.job, self.spec, params).await?;
        params.start_phase(self.name(), &objects, self.is_defer_phase());
        let arguments = self.arguments(function_spec, params)?;
        let mut call = self.call(arguments, params.clone(), function_spec.progress, journal);
        call.resumed = journal.intent.is_some() || started_elsewhere;
        Ok((function, call))
    }

    /// Whether a phase that was started before may run.
    fn check_resume_policy(
        &self,
        function: &Function,
        journal: &PhaseJournal,
        started_elsewhere: bool,
    ) -> Result<(), PhaseError> {
        let started = journal.intent.is_some() || started_elsewhere;
        if !started || self.planned.is_repeatable(self.name()) {
            return Ok(());
        }
        match function.resume_policy {
            ResumePolicy::Repeat => Ok(()),
            ResumePolicy::Resume if !started_elsewhere => Ok(()),
            ResumePolicy::Resume => Err(PhaseError::Interrupted("another controller started it".into())),
            ResumePolicy::Never => {
                Err(PhaseError::Interrupted("a command in an application's pod is never run twice".into()))
            }
        }
    }

    fn arguments(&self, function: &FunctionSpec, params: &Params) -> Result<Arguments, PhaseError> {
        let mut rendered = Map::new();
        for (name, value) in &self.spec.args {
            let value = if function.rendered {
                render_value(value, params.tree()).map_err(|error| PhaseError::argument(name, error.to_string()))?
            } else {
                value.clone()
            };
            rendered.insert(name.clone(), value);
        }
        Ok(Arguments::new(rendered))
    }

    fn call(&self, arguments: Arguments, params: Params, progress: ProgressKind, journal: &PhaseJournal) -> Call {
        let (job, action) = (self.job, self.position.action);
        let host = FunctionHost::new(job, self.set, action, self.name(), journal);
        let mut call = Call::new(
            job.context.leader.client.clone(),
            job.id.namespace.clone(),
            &[&job.id.uid, &action.to_string(), self.name()],
            self.label(),
            arguments,
            params,
            self.pod_settings(),
            job.id.owner(),
            self.task.clone(),
            progress,
            Arc::new(host),
        );
        call.service_account.clone_from(&job.context.service_account);
        call.data_movers = Some(Arc::new(NodeAgents::new(Arc::clone(&job.context))));
        call
    }

    fn pod_settings(&self) -> PodSettings {
        let spec = &self.planned.spec;
        let pod_override =
            (!spec.pod_override.is_empty()).then(|| Value::Object(spec.pod_override.clone().into_iter().collect()));
        PodSettings {
            pod_override,
            labels: spec.pod_labels.clone(),
            annotations: spec.pod_annotations.clone(),
            tools_image: self.job.context.tools.clone(),
            environment: Environment::of_process(),
        }
    }

    /// Runs the function until it ends, is cancelled or exceeds its time limit.
    pub async fn call_function(&self, function: &Function, call: &Call) -> Result<Outputs, PhaseError> {
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
        let outputs = tokio::select! {
            biased;
            answer = function.run(call) => answer?,
            () = self.cancel.cancelled() => return Err(PhaseError::Cancelled),
            () = overdue => return Err(PhaseError::TimedOut { what: "the phase to end".into(), limit: limit.unwrap_or(Duration::ZERO) }),
        };
        call.meters.reach(Step::Cleanup);
        Ok(outputs)
    }

    /// Deletes the pods of a function that ran when its server stopped.
    pub async fn clean_up_pods(&self, params: &Params, journal: &PhaseJournal) {
        if journal.intent.is_some() {
            let call = self.call(Arguments::default(), params.clone(), ProgressKind::OnCompletion, journal);
            call.find_pods().await;
            call.clean_up().await;
        }
    }
}
