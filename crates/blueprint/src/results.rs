//! The results of an ActionSet: the states and outputs of its phases, its artifacts and its errors. A state machine without a clock.
//!
//! ```text
//!   phase:   pending ──begin──▶ running ──complete──▶ complete (outputs)
//!                                  └──────fail──────▶ failed
//!   action:  phases in order, then the deferPhase in any case
//!   set:     running until every action has ended; complete only if all of them are
//! ```
//! Progress is not a result: it is in the task tree. [`crate::action_set_status()`] computes the status from both.

use std::collections::BTreeMap;

use plimsoll_api::kanister::v1alpha1::{
    ActionSetStatus, ActionSpec, ActionState, ActionStatus, Artifact, BlueprintAction, BlueprintPhase, ObjectReference,
    Phase,
};
use serde_json::{Map, Value};

use crate::functions::function_spec::{self, ProgressKind};
use crate::output::{MAX_ACTION_SET_BYTES, OutputError};

/// The outputs of a phase.
pub type Outputs = Map<String, Value>;

/// The error of a cancelled ActionSet.
pub const CANCELLED: &str = "Cancelled";

/// A reference to a phase of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PhaseRef {
    /// The index of the action.
    pub action: usize,
    /// The phase.
    pub phase: PhaseIndex,
}

/// The index of a phase in its action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PhaseIndex {
    /// One of the phases that run in order.
    Core(usize),
    /// The deferPhase.
    Defer,
}

/// The result of a phase so far.
#[derive(Clone, Debug)]
pub struct PhaseResult {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: ActionState,
    /// Its outputs, once it is complete.
    pub output: Outputs,
    /// How its progress is measured.
    pub progress: ProgressKind,
    /// The path of its task in the tree, once it has one.
    pub task: Option<String>,
}

/// The result of an action so far.
#[derive(Clone, Debug)]
pub struct ActionResult {
    /// The name of the action in the blueprint.
    pub name: Option<String>,
    /// The object that it runs on.
    pub object: Option<ObjectReference>,
    /// The name of the blueprint.
    pub blueprint: Option<String>,
    /// Its artifacts; templates until it is complete.
    pub artifacts: BTreeMap<String, Artifact>,
    /// Its phases, in order.
    pub phases: Vec<PhaseResult>,
    /// Its deferPhase.
    pub defer_phase: Option<PhaseResult>,
    /// Its state.
    pub state: ActionState,
}

/// The results of an ActionSet.
#[derive(Clone, Debug, Default)]
pub struct ActionSetResults {
    actions: Vec<ActionResult>,
    state: ActionState,
    errors: Vec<String>,
    /// Bytes of outputs and artifacts.
    reserved_bytes: usize,
}

impl ActionSetResults {
    /// An ActionSet that has not started.
    pub fn new<'a>(actions: impl IntoIterator<Item = (&'a ActionSpec, &'a BlueprintAction)>) -> Self {
        let actions = actions.into_iter().map(|(spec, action)| ActionResult::new(spec, action)).collect();
        Self { actions, ..Self::default() }
    }

    /// Restores the results from the status that an earlier process wrote. A changed blueprint is an error.
    pub fn resume(&mut self, saved: &ActionSetStatus) -> Result<(), String> {
        if saved.actions.is_empty() {
            return Ok(());
        }
        if saved.actions.len() != self.actions.len() {
            return Err(format!("status has {} actions, spec has {}", saved.actions.len(), self.actions.len()));
        }
        for (action, saved) in self.actions.iter_mut().zip(&saved.actions) {
            action.resume(saved)?;
        }
        let phases = self.actions.iter().flat_map(ActionResult::all_phases);
        self.reserved_bytes = phases.map(|phase| json_size(&phase.output)).sum();
        self.errors.extend(saved.error.as_ref().and_then(|error| error.message.clone()).filter(|m| !m.is_empty()));
        Ok(())
    }

    /// Starts the ActionSet.
    pub fn start(&mut self) {
        self.state = ActionState::Running;
    }

    /// Sets the path of the task of a phase.
    pub fn set_task(&mut self, phase_ref: PhaseRef, path: &str) {
        if let Some(phase) = self.phase_mut(phase_ref) {
            phase.task = Some(path.to_owned());
        }
    }

    /// Starts a phase.
    pub fn begin(&mut self, phase_ref: PhaseRef) {
        if let Some(phase) = self.phase_mut(phase_ref) {
            phase.state = ActionState::Running;
        }
    }

    /// Completes a phase.
    pub fn complete(&mut self, phase_ref: PhaseRef, outputs: Outputs) {
        if let Some(phase) = self.phase_mut(phase_ref) {
            (phase.state, phase.output) = (ActionState::Complete, outputs);
        }
    }

    /// Fails a phase.
    pub fn fail(&mut self, phase_ref: PhaseRef, error: impl Into<String>) {
        self.errors.push(error.into());
        if let Some(phase) = self.phase_mut(phase_ref) {
            phase.state = ActionState::Failed;
        }
    }

    /// Reserves space in the status for the outputs of a phase.
    pub fn reserve(&mut self, outputs: &Outputs) -> Result<(), OutputError> {
        self.reserve_bytes(json_size(outputs))
    }

    /// Reserves space in the status for the artifacts of an action.
    pub fn reserve_artifacts(&mut self, artifacts: &BTreeMap<String, Artifact>) -> Result<(), OutputError> {
        self.reserve_bytes(json_size(artifacts))
    }

    fn reserve_bytes(&mut self, size: usize) -> Result<(), OutputError> {
        let taken = self.reserved_bytes.saturating_add(size);
        if taken > MAX_ACTION_SET_BYTES {
            return Err(OutputError::ActionSetTooLarge { size, limit: MAX_ACTION_SET_BYTES });
        }
        self.reserved_bytes = taken;
        Ok(())
    }

    /// Fails an action.
    pub fn fail_action(&mut self, action: usize, error: impl Into<String>) {
        self.errors.push(error.into());
        if let Some(action) = self.actions.get_mut(action) {
            action.state = ActionState::Failed;
        }
    }

    /// Completes an action with its artifacts.
    pub fn complete_action(&mut self, action: usize, artifacts: BTreeMap<String, Artifact>) {
        if let Some(action) = self.actions.get_mut(action) {
            (action.state, action.artifacts) = (ActionState::Complete, artifacts);
        }
    }

    /// Ends an action that is not complete: it has failed.
    pub fn end_action(&mut self, action: usize) {
        if let Some(action) = self.actions.get_mut(action).filter(|action| action.state != ActionState::Complete) {
            action.state = ActionState::Failed;
        }
    }

    /// Ends the ActionSet after all actions have ended. `Err` has the errors.
    pub fn end(&mut self, cancelled: bool) -> Result<(), String> {
        let all_complete = self.actions.iter().all(|action| action.state == ActionState::Complete);
        // A cancellation after completion has no effect.
        if all_complete {
            self.state = ActionState::Complete;
            return Ok(());
        }
        self.state = ActionState::Failed;
        if cancelled {
            self.errors.retain(|error| error != CANCELLED);
            self.errors.insert(0, CANCELLED.to_owned());
        }
        Err(self.message())
    }

    /// The actions.
    pub fn actions(&self) -> &[ActionResult] {
        &self.actions
    }

    /// The state of the ActionSet.
    pub fn state(&self) -> &ActionState {
        &self.state
    }

    /// The state of a phase.
    pub fn state_of(&self, phase_ref: PhaseRef) -> Option<&ActionState> {
        self.phase(phase_ref).map(|phase| &phase.state)
    }

    /// The outputs of a phase, if it is complete.
    pub fn output_of(&self, phase_ref: PhaseRef) -> Option<&Outputs> {
        self.phase(phase_ref).filter(|phase| phase.state == ActionState::Complete).map(|phase| &phase.output)
    }

    /// The errors so far.
    pub fn message(&self) -> String {
        self.errors.join("; ")
    }

    fn phase(&self, phase_ref: PhaseRef) -> Option<&PhaseResult> {
        let action = self.actions.get(phase_ref.action)?;
        match phase_ref.phase {
            PhaseIndex::Core(index) => action.phases.get(index),
            PhaseIndex::Defer => action.defer_phase.as_ref(),
        }
    }

    fn phase_mut(&mut self, phase_ref: PhaseRef) -> Option<&mut PhaseResult> {
        let action = self.actions.get_mut(phase_ref.action)?;
        match phase_ref.phase {
            PhaseIndex::Core(index) => action.phases.get_mut(index),
            PhaseIndex::Defer => action.defer_phase.as_mut(),
        }
    }
}

fn json_size(value: &impl serde::Serialize) -> usize {
    serde_json::to_string(value).map_or(0, |text| text.len())
}

impl ActionResult {
    fn new(spec: &ActionSpec, action: &BlueprintAction) -> Self {
        Self {
            name: spec.name.clone(),
            object: spec.object.clone(),
            blueprint: spec.blueprint.clone(),
            artifacts: action.output_artifacts.clone(),
            phases: action.phases.iter().map(PhaseResult::new).collect(),
            defer_phase: action.defer_phase.as_ref().map(PhaseResult::new),
            state: ActionState::Pending,
        }
    }

    /// The phases, and the deferPhase last.
    pub fn all_phases(&self) -> impl Iterator<Item = &PhaseResult> {
        self.phases.iter().chain(&self.defer_phase)
    }

    fn resume(&mut self, saved: &ActionStatus) -> Result<(), String> {
        let names: Vec<_> = saved.phases.iter().filter_map(|phase| phase.name.as_deref()).collect();
        if !self.phases.iter().map(|phase| phase.name.as_str()).eq(names) {
            let name = self.name.as_deref().unwrap_or_default();
            return Err(format!("blueprint of action {name} was changed while it was running: the phases differ"));
        }
        self.phases.iter_mut().zip(&saved.phases).for_each(|(phase, saved)| phase.resume(saved));
        if let (Some(phase), Some(saved)) = (&mut self.defer_phase, &saved.defer_phase) {
            phase.resume(saved);
        }
        Ok(())
    }
}

impl PhaseResult {
    fn new(phase: &BlueprintPhase) -> Self {
        let function = phase.func.as_deref().and_then(function_spec::find);
        Self {
            name: phase.name.clone().unwrap_or_default(),
            state: ActionState::Pending,
            output: Outputs::new(),
            progress: function.map_or(ProgressKind::OnCompletion, |function| function.progress),
            task: None,
        }
    }

    fn resume(&mut self, saved: &Phase) {
        self.state = saved.state.clone().unwrap_or_default();
        self.output = saved.output.clone().into_iter().collect();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn results() -> ActionSetResults {
        let action = json!({ "phases": [{ "name": "p0" }, { "name": "p1" }], "deferPhase": { "name": "last" } });
        let action: BlueprintAction = serde_json::from_value(action).unwrap();
        let spec = ActionSpec { name: Some("backup".into()), ..ActionSpec::default() };
        let mut results = ActionSetResults::new([(&spec, &action)]);
        results.start();
        results
    }

    fn core(phase: usize) -> PhaseRef {
        PhaseRef { action: 0, phase: PhaseIndex::Core(phase) }
    }

    #[test]
    fn an_action_set_is_complete_only_if_all_its_actions_are() {
        let mut results = results();
        results.complete(core(0), Outputs::new());
        results.complete(core(1), Outputs::new());
        results.fail(PhaseRef { action: 0, phase: PhaseIndex::Defer }, "no space");
        results.end_action(0);
        assert_eq!(results.clone().end(false), Err("no space".into()));
        results.complete_action(0, [].into());
        assert_eq!(results.end(true), Ok(()), "a cancellation after completion has no effect");
    }

    #[test]
    fn cancelled_comes_first_in_the_message() {
        let mut results = results();
        results.fail(core(0), "no space");
        results.fail_action(0, CANCELLED);
        assert_eq!(results.end(true), Err("Cancelled; no space".into()));
    }

    #[test]
    fn a_blueprint_that_was_changed_since_is_not_resumed() {
        let saved = json!({ "actions": [{ "name": "backup", "phases": [{ "name": "p0" }, { "name": "other" }] }] });
        let error = results().resume(&serde_json::from_value(saved).unwrap()).unwrap_err();
        assert!(error.contains("was changed while it was running"), "{error}");
        let saved = json!({ "actions": [{}, {}] });
        let error = results().resume(&serde_json::from_value(saved).unwrap()).unwrap_err();
        assert_eq!(error, "status has 2 actions, spec has 1");
    }

    #[test]
    fn all_outputs_of_an_action_set_fit_in_its_status() {
        let large = |size: usize| Outputs::from_iter([("k".to_owned(), json!("x".repeat(size)))]);
        let mut first = results();
        first.reserve(&large(500_000)).unwrap();
        first.reserve(&large(500_000)).unwrap();
        let error = first.reserve(&large(500_000)).unwrap_err();
        assert_eq!(error.reason(), "OutputTooLong");
        assert!(error.to_string().contains("exceed the limit of 1048576 bytes"), "{error}");
        first.reserve(&large(1000)).expect("a rejected reservation takes no space");

        let phase = |name: &str, size| json!({ "name": name, "state": "complete", "output": large(size) });
        let saved = json!({ "actions": [{ "phases": [phase("p0", 500_000), phase("p1", 1)] }] });
        let mut next = results();
        next.resume(&serde_json::from_value(saved).unwrap()).unwrap();
        next.reserve(&large(500_000)).unwrap();
        assert!(next.reserve(&large(500_000)).is_err(), "the reserved bytes are restored from the status");
    }
}
