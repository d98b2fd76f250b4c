//! The state of a running ActionSet and its status: a state machine without a clock.
//!
//! ```text
//!   phase:   pending ──begin──▶ running ──complete──▶ complete (100.00, outputs)
//!                                  └──────fail──────▶ failed   (keeps its last percent)
//!   action:  phases in order, then the deferPhase in any case
//!   set:     running until every action has ended; complete only if all of them are
//! ```
//! Displayed progress never decreases: a phase that is repeated after a restart shows its saved percent until it exceeds it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plimsoll_api::kanister::v1alpha1::{
    ActionProgress, ActionSetStatus, ActionSpec, ActionState, ActionStatus, Artifact, BlueprintAction, ErrorMessage,
    Phase, PhaseProgress,
};
use serde_json::{Map, Value};

use crate::output::{MAX_ACTION_SET_BYTES, OutputError};
use crate::percent::{self, COMPLETE, Hundredths, MAX_INCOMPLETE};

/// The outputs of a phase.
pub type Outputs = Map<String, Value>;

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

/// The progress that a function reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Percent complete.
    pub percent: Hundredths,
    /// Bytes uploaded.
    pub uploaded: Option<u64>,
    /// Total bytes to upload.
    pub upload_total: Option<u64>,
    /// Bytes downloaded.
    pub downloaded: Option<u64>,
    /// Total bytes to download.
    pub download_total: Option<u64>,
    /// Maximum of the seconds left.
    pub seconds_left: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct PhaseRow {
    name: String,
    state: ActionState,
    output: Outputs,
    shown: Sample,
    /// Whether a percent is displayed.
    started: bool,
    changed: Option<Timestamp>,
}

#[derive(Clone, Debug, Default)]
struct ActionRow {
    status: ActionStatus,
    phases: Vec<PhaseRow>,
    defer: Option<PhaseRow>,
    state: ActionState,
}

/// The state of an ActionSet.
#[derive(Clone, Debug, Default)]
pub struct Board {
    actions: Vec<ActionRow>,
    state: ActionState,
    errors: Vec<String>,
    /// The last summary, to detect changes.
    summary: Option<(Option<Hundredths>, [u64; 4])>,
    changed: Option<Timestamp>,
    /// Bytes of outputs and artifacts.
    reserved_bytes: usize,
}

impl Board {
    /// An ActionSet that has not started.
    pub fn new<'a>(actions: impl IntoIterator<Item = (&'a ActionSpec, &'a BlueprintAction)>) -> Self {
        let actions = actions.into_iter().map(|(spec, action)| ActionRow::new(spec, action)).collect();
        Self { actions, ..Self::default() }
    }

    /// Restores the state from the status that an earlier process wrote. A changed blueprint is an error.
    pub fn resume(&mut self, saved: &ActionSetStatus) -> Result<(), String> {
        if saved.actions.is_empty() {
            return Ok(());
        }
        if saved.actions.len() != self.actions.len() {
            return Err(format!("status has {} actions, spec has {}", saved.actions.len(), self.actions.len()));
        }
        for (row, saved) in self.actions.iter_mut().zip(&saved.actions) {
            row.resume(saved)?;
        }
        let outputs: Vec<_> = self.actions.iter().flat_map(|row| row.phases.iter().chain(&row.defer)).collect();
        let sizes = outputs.iter().map(|phase| serde_json::to_string(&phase.output).map_or(0, |text| text.len()));
        self.reserved_bytes = sizes.sum();
        self.errors.extend(saved.error.as_ref().and_then(|error| error.message.clone()).filter(|m| !m.is_empty()));
        self.changed = saved.progress.as_ref().and_then(|progress| Some(progress.last_transition_time.as_ref()?.0));
        Ok(())
    }

    /// Starts the ActionSet.
    pub fn start(&mut self) {
        self.state = ActionState::Running;
    }

    /// Starts a phase.
    pub fn begin(&mut self, phase_ref: PhaseRef, now: Timestamp) {
        let Some(row) = self.row(phase_ref) else { return };
        row.state = ActionState::Running;
        row.started = true;
        row.changed = Some(now);
    }

    /// Updates the progress of a phase. It never decreases, and stays below 100 % until the phase is complete.
    pub fn sample(&mut self, phase_ref: PhaseRef, sample: Sample, now: Timestamp) {
        let Some(row) = self.row(phase_ref).filter(|row| row.state == ActionState::Running) else { return };
        let next = merge_samples(&row.shown, &sample);
        let counted = |sample: &Sample| Sample { seconds_left: None, ..*sample };
        if counted(&next) != counted(&row.shown) {
            row.changed = Some(now);
        }
        row.shown = next;
    }

    /// Completes a phase.
    pub fn complete(&mut self, phase_ref: PhaseRef, outputs: Outputs, now: Timestamp) {
        let Some(row) = self.row(phase_ref) else { return };
        row.state = ActionState::Complete;
        row.started = true;
        row.output = outputs;
        row.shown = Sample { percent: COMPLETE, seconds_left: None, ..row.shown };
        row.changed = Some(now);
    }

    /// Reserves space in the status for the outputs of a phase.
    pub fn reserve(&mut self, outputs: &Outputs) -> Result<(), OutputError> {
        self.reserve_bytes(serde_json::to_string(outputs).map_or(0, |text| text.len()))
    }

    /// Reserves space in the status for the artifacts of an action.
    pub fn reserve_artifacts(&mut self, artifacts: &BTreeMap<String, Artifact>) -> Result<(), OutputError> {
        self.reserve_bytes(serde_json::to_string(artifacts).map_or(0, |text| text.len()))
    }

    fn reserve_bytes(&mut self, size: usize) -> Result<(), OutputError> {
        let taken = self.reserved_bytes.saturating_add(size);
        if taken > MAX_ACTION_SET_BYTES {
            return Err(OutputError::ActionSetTooLarge { size, limit: MAX_ACTION_SET_BYTES });
        }
        self.reserved_bytes = taken;
        Ok(())
    }

    /// Fails a phase.
    pub fn fail(&mut self, phase_ref: PhaseRef, error: impl Into<String>, now: Timestamp) {
        self.errors.push(error.into());
        let Some(row) = self.row(phase_ref) else { return };
        row.state = ActionState::Failed;
        row.shown.seconds_left = None;
        row.changed = Some(now);
    }

    /// Fails an action.
    pub fn fail_action(&mut self, action: usize, error: impl Into<String>) {
        self.errors.push(error.into());
        if let Some(row) = self.actions.get_mut(action) {
            row.state = ActionState::Failed;
        }
    }

    /// Completes an action with its artifacts.
    pub fn complete_action(&mut self, action: usize, artifacts: BTreeMap<String, Artifact>) {
        if let Some(row) = self.actions.get_mut(action) {
            row.status.artifacts = artifacts;
            row.state = ActionState::Complete;
        }
    }

    /// Ends an action that is not complete: it has failed.
    pub fn end_action(&mut self, action: usize) {
        if let Some(row) = self.actions.get_mut(action).filter(|row| row.state != ActionState::Complete) {
            row.state = ActionState::Failed;
        }
    }

    /// Ends the ActionSet after all actions have ended. `Err` has the errors.
    pub fn end(&mut self, cancelled: bool) -> Result<(), String> {
        let all_complete = self.actions.iter().all(|row| row.state == ActionState::Complete);
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

    /// The state of a phase.
    pub fn state_of(&self, phase_ref: PhaseRef) -> Option<&ActionState> {
        let row = self.actions.get(phase_ref.action)?;
        match phase_ref.phase {
            PhaseIndex::Core(index) => row.phases.get(index),
            PhaseIndex::Defer => row.defer.as_ref(),
        }
        .map(|phase| &phase.state)
    }

    /// The outputs of a phase, if it is complete.
    pub fn output_of(&self, phase_ref: PhaseRef) -> Option<&Outputs> {
        let row = self.actions.get(phase_ref.action)?;
        let phase = match phase_ref.phase {
            PhaseIndex::Core(index) => row.phases.get(index),
            PhaseIndex::Defer => row.defer.as_ref(),
        };
        phase.filter(|phase| phase.state == ActionState::Complete).map(|phase| &phase.output)
    }

    /// The running phases.
    pub fn running(&self) -> Vec<PhaseRef> {
        let phase_refs = self.actions.iter().enumerate().flat_map(|(action, row)| {
            let core = row.phases.iter().enumerate().map(move |(index, phase)| (PhaseIndex::Core(index), phase));
            let all = core.chain(row.defer.iter().map(|phase| (PhaseIndex::Defer, phase)));
            all.map(move |(which, phase)| (PhaseRef { action, phase: which }, phase))
        });
        phase_refs.filter(|(_, phase)| phase.state == ActionState::Running).map(|(phase_ref, _)| phase_ref).collect()
    }

    /// The name of a phase.
    pub fn name_of(&self, phase_ref: PhaseRef) -> &str {
        let row = self.actions.get(phase_ref.action);
        let phase = row.and_then(|row| match phase_ref.phase {
            PhaseIndex::Core(index) => row.phases.get(index),
            PhaseIndex::Defer => row.defer.as_ref(),
        });
        phase.map_or("", |phase| &phase.name)
    }

    /// The errors so far.
    pub fn message(&self) -> String {
        self.errors.join("; ")
    }

    /// The current status.
    pub fn status(&mut self, now: Timestamp) -> ActionSetStatus {
        let progress = self.progress(now);
        ActionSetStatus {
            state: Some(self.state.clone()),
            actions: self.actions.iter().map(ActionRow::status).collect(),
            error: Some(ErrorMessage { message: Some(self.message()), ..ErrorMessage::default() }),
            progress: Some(progress),
            ..ActionSetStatus::default()
        }
    }

    /// The progress of the ActionSet.
    pub fn percent(&self) -> Option<Hundredths> {
        let phases: Vec<_> = self.actions.iter().flat_map(|row| row.phases.iter().map(|p| p.shown.percent)).collect();
        percent::displayed_mean(&phases, self.state != ActionState::Complete)
    }

    fn progress(&mut self, now: Timestamp) -> ActionProgress {
        let rows = || self.actions.iter().flat_map(|row| row.phases.iter().chain(&row.defer));
        let sums = sums(&rows());
        let percent = self.percent();
        let shown = Some((percent, sums.map(Option::unwrap_or_default)));
        let running = self.running();
        let names: Vec<_> = running.iter().map(|phase_ref| self.name_of(*phase_ref).to_owned()).collect();
        let paths = running
            .iter()
            .zip(&names)
            .map(|(phase_ref, name)| format!("{}/{name}", self.actions[phase_ref.action].name()));
        let paths = paths.collect();
        if self.summary != shown {
            self.summary = shown;
            self.changed = Some(now);
        }
        ActionProgress {
            running_phase: Some(names.into_iter().next().unwrap_or_default()),
            running_phases: paths,
            percent_completed: percent.map(percent::format),
            last_transition_time: self.changed.map(Time),
            ..sized(sums)
        }
    }

    fn row(&mut self, phase_ref: PhaseRef) -> Option<&mut PhaseRow> {
        let row = self.actions.get_mut(phase_ref.action)?;
        match phase_ref.phase {
            PhaseIndex::Core(index) => row.phases.get_mut(index),
            PhaseIndex::Defer => row.defer.as_mut(),
        }
    }
}

/// The error of a cancelled ActionSet.
pub const CANCELLED: &str = "Cancelled";

/// The larger of the displayed and the reported values, field by field.
fn merge_samples(shown: &Sample, reported: &Sample) -> Sample {
    Sample {
        percent: reported.percent.min(MAX_INCOMPLETE).max(shown.percent),
        uploaded: reported.uploaded.max(shown.uploaded),
        upload_total: reported.upload_total.or(shown.upload_total),
        downloaded: reported.downloaded.max(shown.downloaded),
        download_total: reported.download_total.or(shown.download_total),
        seconds_left: reported.seconds_left.map(|seconds| seconds.max(1)),
    }
}

/// Downloaded, uploaded, total to download, total to upload: each absent if no phase has it.
fn sums<'a>(phases: &(impl Iterator<Item = &'a PhaseRow> + Clone)) -> [Option<u64>; 4] {
    let sum = |pick: fn(&Sample) -> Option<u64>| {
        phases.clone().filter_map(|phase| pick(&phase.shown)).reduce(u64::saturating_add)
    };
    [sum(|s| s.downloaded), sum(|s| s.uploaded), sum(|s| s.download_total), sum(|s| s.upload_total)]
}

fn sized([downloaded, uploaded, to_download, to_upload]: [Option<u64>; 4]) -> ActionProgress {
    ActionProgress {
        size_downloaded_b: signed(downloaded),
        size_uploaded_b: signed(uploaded),
        estimated_download_size_b: signed(to_download),
        estimated_upload_size_b: signed(to_upload),
        ..ActionProgress::default()
    }
}

fn signed(number: Option<u64>) -> Option<i64> {
    number.map(|number| i64::try_from(number).unwrap_or(i64::MAX))
}

fn unsigned(number: Option<i64>) -> Option<u64> {
    number.and_then(|number| u64::try_from(number).ok())
}

impl ActionRow {
    fn new(spec: &ActionSpec, action: &BlueprintAction) -> Self {
        let named = |name: &Option<String>| PhaseRow { name: name.clone().unwrap_or_default(), ..PhaseRow::default() };
        Self {
            status: ActionStatus {
                name: spec.name.clone(),
                object: spec.object.clone(),
                blueprint: spec.blueprint.clone(),
                artifacts: action.output_artifacts.clone(),
                ..ActionStatus::default()
            },
            phases: action.phases.iter().map(|phase| named(&phase.name)).collect(),
            defer: action.defer_phase.as_ref().map(|phase| named(&phase.name)),
            state: ActionState::Pending,
        }
    }

    fn name(&self) -> &str {
        self.status.name.as_deref().unwrap_or_default()
    }

    fn resume(&mut self, saved: &ActionStatus) -> Result<(), String> {
        let names = |phases: &[Phase]| phases.iter().filter_map(|phase| phase.name.clone()).collect::<Vec<_>>();
        let own: Vec<_> = self.phases.iter().map(|phase| phase.name.clone()).collect();
        if names(&saved.phases) != own {
            let name = self.name();
            return Err(format!("blueprint of action {name} was changed while it was running: the phases differ"));
        }
        self.phases.iter_mut().zip(&saved.phases).for_each(|(row, saved)| row.resume(saved));
        if let (Some(row), Some(saved)) = (&mut self.defer, &saved.defer_phase) {
            row.resume(saved);
        }
        Ok(())
    }

    fn status(&self) -> ActionStatus {
        let percents: Vec<_> = self.phases.iter().map(|phase| phase.shown.percent).collect();
        let percent = percent::displayed_mean(&percents, self.state != ActionState::Complete);
        let progress = ActionProgress {
            percent_completed: percent.map(percent::format),
            ..sized(sums(&self.phases.iter().chain(&self.defer)))
        };
        ActionStatus {
            phases: self.phases.iter().map(PhaseRow::status).collect(),
            defer_phase: self.defer.as_ref().map(PhaseRow::status),
            progress: Some(progress),
            ..self.status.clone()
        }
    }
}

impl PhaseRow {
    fn resume(&mut self, saved: &Phase) {
        let progress = saved.progress.clone().unwrap_or_default();
        self.state = saved.state.clone().unwrap_or_default();
        self.output = saved.output.clone().into_iter().collect();
        self.started = self.state != ActionState::Pending;
        self.changed = progress.last_transition_time.map(|time| time.0);
        self.shown = Sample {
            percent: progress.progress_percent.as_deref().and_then(percent::parse).unwrap_or(0),
            uploaded: unsigned(progress.size_uploaded_b),
            upload_total: unsigned(progress.estimated_upload_size_b),
            downloaded: unsigned(progress.size_downloaded_b),
            download_total: unsigned(progress.estimated_download_size_b),
            seconds_left: None,
        };
    }

    fn status(&self) -> Phase {
        let shown = &self.shown;
        let progress = PhaseProgress {
            progress_percent: self.started.then(|| percent::format(shown.percent)),
            size_downloaded_b: signed(shown.downloaded),
            size_uploaded_b: signed(shown.uploaded),
            estimated_download_size_b: signed(shown.download_total),
            estimated_upload_size_b: signed(shown.upload_total),
            estimated_time_seconds: signed(shown.seconds_left),
            last_transition_time: self.changed.map(Time),
            ..PhaseProgress::default()
        };
        Phase {
            name: Some(self.name.clone()),
            state: Some(self.state.clone()),
            output: self.output.clone().into_iter().collect(),
            progress: Some(progress),
            ..Phase::default()
        }
    }
}
