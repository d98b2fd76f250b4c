//! A set of actions while it runs: what each phase is doing and what its status says. A state machine without a clock of its own.
//!
//! ```text
//!   phase:   pending ──begin──▶ running ──complete──▶ complete (100.00, outputs)
//!                                  └──────fail──────▶ failed   (keeps its last percent)
//!   action:  phases in order, then its deferPhase whatever happened
//!   set:     running until every action has ended; complete only if all of them are
//! ```
//! What is shown never goes back: a phase that is run again after a restart shows its saved percent until it has passed it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plimsoll_api::kanister::v1alpha1::{
    ActionProgress, ActionSetStatus, ActionSpec, ActionState, ActionStatus, Artifact, BlueprintAction, ErrorMessage,
    Phase, PhaseProgress,
};
use serde_json::{Map, Value};

use crate::output::{MOST_OF_A_SET, OutputError};
use crate::percent::{self, ALMOST, Hundredths, WHOLE};

/// What a phase returned.
pub type Outputs = Map<String, Value>;

/// A phase of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The action's place in the set.
    pub action: usize,
    /// Which of its phases.
    pub phase: Which,
}

/// A phase by its place in the action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Which {
    /// One of those that run in order.
    Core(usize),
    /// The one at the end.
    Defer,
}

/// What a function says about itself while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// How far it is.
    pub percent: Hundredths,
    /// Bytes sent.
    pub uploaded: Option<u64>,
    /// Bytes to read for sending.
    pub upload_total: Option<u64>,
    /// Bytes fetched.
    pub downloaded: Option<u64>,
    /// Bytes to fetch.
    pub download_total: Option<u64>,
    /// Seconds left, at most.
    pub seconds_left: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct PhaseRow {
    name: String,
    state: ActionState,
    output: Outputs,
    shown: Sample,
    /// Whether a percent is shown at all.
    begun: bool,
    changed: Option<Timestamp>,
}

#[derive(Clone, Debug, Default)]
struct ActionRow {
    status: ActionStatus,
    phases: Vec<PhaseRow>,
    defer: Option<PhaseRow>,
    state: ActionState,
}

/// The whole set.
#[derive(Clone, Debug, Default)]
pub struct Board {
    actions: Vec<ActionRow>,
    state: ActionState,
    errors: Vec<String>,
    /// What the summary showed last, to know when it changes.
    summary: Option<(Option<Hundredths>, [u64; 4])>,
    changed: Option<Timestamp>,
    /// Bytes that outputs and artifacts take.
    room_taken: usize,
}

impl Board {
    /// A set that has not begun.
    pub fn new<'a>(actions: impl IntoIterator<Item = (&'a ActionSpec, &'a BlueprintAction)>) -> Self {
        let actions = actions.into_iter().map(|(spec, action)| ActionRow::new(spec, action)).collect();
        Self { actions, ..Self::default() }
    }

    /// Takes over what an earlier process has shown and reached. Whatever does not fit the blueprint any more is an error.
    pub fn resume(&mut self, saved: &ActionSetStatus) -> Result<(), String> {
        if saved.actions.is_empty() {
            return Ok(());
        }
        if saved.actions.len() != self.actions.len() {
            return Err(format!("its status has {} actions, its spec {}", saved.actions.len(), self.actions.len()));
        }
        for (row, saved) in self.actions.iter_mut().zip(&saved.actions) {
            row.resume(saved)?;
        }
        let outputs: Vec<_> = self.actions.iter().flat_map(|row| row.phases.iter().chain(&row.defer)).collect();
        let sizes = outputs.iter().map(|phase| serde_json::to_string(&phase.output).map_or(0, |text| text.len()));
        self.room_taken = sizes.sum();
        self.errors.extend(saved.error.as_ref().and_then(|error| error.message.clone()).filter(|m| !m.is_empty()));
        self.changed = saved.progress.as_ref().and_then(|progress| Some(progress.last_transition_time.as_ref()?.0));
        Ok(())
    }

    /// The set runs from now on.
    pub fn start(&mut self) {
        self.state = ActionState::Running;
    }

    /// A phase runs from now on.
    pub fn begin(&mut self, place: Place, now: Timestamp) {
        let Some(row) = self.row(place) else { return };
        row.state = ActionState::Running;
        row.begun = true;
        row.changed = Some(now);
    }

    /// What its function says. Nothing shown falls, and nothing is whole before it has ended well.
    pub fn sample(&mut self, place: Place, sample: Sample, now: Timestamp) {
        let Some(row) = self.row(place).filter(|row| row.state == ActionState::Running) else { return };
        let next = raised(&row.shown, &sample);
        let counted = |sample: &Sample| Sample { seconds_left: None, ..*sample };
        if counted(&next) != counted(&row.shown) {
            row.changed = Some(now);
        }
        row.shown = next;
    }

    /// A phase has ended well.
    pub fn complete(&mut self, place: Place, outputs: Outputs, now: Timestamp) {
        let Some(row) = self.row(place) else { return };
        row.state = ActionState::Complete;
        row.begun = true;
        row.output = outputs;
        row.shown = Sample { percent: WHOLE, seconds_left: None, ..row.shown };
        row.changed = Some(now);
    }

    /// Makes room for what a phase returns; the status has to hold what all of them return, and their artifacts.
    pub fn reserve(&mut self, outputs: &Outputs) -> Result<(), OutputError> {
        self.take_room(serde_json::to_string(outputs).map_or(0, |text| text.len()))
    }

    /// Makes room for what an action leaves.
    pub fn reserve_artifacts(&mut self, artifacts: &BTreeMap<String, Artifact>) -> Result<(), OutputError> {
        self.take_room(serde_json::to_string(artifacts).map_or(0, |text| text.len()))
    }

    fn take_room(&mut self, size: usize) -> Result<(), OutputError> {
        let taken = self.room_taken.saturating_add(size);
        if taken > MOST_OF_A_SET {
            return Err(OutputError::SetTooLarge { size, limit: MOST_OF_A_SET });
        }
        self.room_taken = taken;
        Ok(())
    }

    /// A phase has ended badly.
    pub fn fail(&mut self, place: Place, error: impl Into<String>, now: Timestamp) {
        self.errors.push(error.into());
        let Some(row) = self.row(place) else { return };
        row.state = ActionState::Failed;
        row.shown.seconds_left = None;
        row.changed = Some(now);
    }

    /// Something else went wrong with an action.
    pub fn fail_action(&mut self, action: usize, error: impl Into<String>) {
        self.errors.push(error.into());
        if let Some(row) = self.actions.get_mut(action) {
            row.state = ActionState::Failed;
        }
    }

    /// An action has ended well, and leaves these artifacts.
    pub fn complete_action(&mut self, action: usize, artifacts: BTreeMap<String, Artifact>) {
        if let Some(row) = self.actions.get_mut(action) {
            row.status.artifacts = artifacts;
            row.state = ActionState::Complete;
        }
    }

    /// An action has ended badly.
    pub fn end_action(&mut self, action: usize) {
        if let Some(row) = self.actions.get_mut(action).filter(|row| row.state != ActionState::Complete) {
            row.state = ActionState::Failed;
        }
    }

    /// All actions have ended: so has the set. `Err` is why it failed.
    pub fn end(&mut self, cancelled: bool) -> Result<(), String> {
        let well = self.actions.iter().all(|row| row.state == ActionState::Complete);
        // Whoever cancels too late has nothing left to cancel.
        if well {
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
    pub fn state_of(&self, place: Place) -> Option<&ActionState> {
        let row = self.actions.get(place.action)?;
        match place.phase {
            Which::Core(index) => row.phases.get(index),
            Which::Defer => row.defer.as_ref(),
        }
        .map(|phase| &phase.state)
    }

    /// What a phase returned, if it has ended well.
    pub fn output_of(&self, place: Place) -> Option<&Outputs> {
        let row = self.actions.get(place.action)?;
        let phase = match place.phase {
            Which::Core(index) => row.phases.get(index),
            Which::Defer => row.defer.as_ref(),
        };
        phase.filter(|phase| phase.state == ActionState::Complete).map(|phase| &phase.output)
    }

    /// The phases that run now.
    pub fn running(&self) -> Vec<Place> {
        let places = self.actions.iter().enumerate().flat_map(|(action, row)| {
            let core = row.phases.iter().enumerate().map(move |(index, phase)| (Which::Core(index), phase));
            let all = core.chain(row.defer.iter().map(|phase| (Which::Defer, phase)));
            all.map(move |(which, phase)| (Place { action, phase: which }, phase))
        });
        places.filter(|(_, phase)| phase.state == ActionState::Running).map(|(place, _)| place).collect()
    }

    /// The name of a phase.
    pub fn name_of(&self, place: Place) -> &str {
        let row = self.actions.get(place.action);
        let phase = row.and_then(|row| match place.phase {
            Which::Core(index) => row.phases.get(index),
            Which::Defer => row.defer.as_ref(),
        });
        phase.map_or("", |phase| &phase.name)
    }

    /// Why it failed so far.
    pub fn message(&self) -> String {
        self.errors.join("; ")
    }

    /// The status as it stands now.
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

    /// How far the set is.
    pub fn percent(&self) -> Option<Hundredths> {
        let phases: Vec<_> = self.actions.iter().flat_map(|row| row.phases.iter().map(|p| p.shown.percent)).collect();
        percent::shown_mean(&phases, self.state != ActionState::Complete)
    }

    fn progress(&mut self, now: Timestamp) -> ActionProgress {
        let rows = || self.actions.iter().flat_map(|row| row.phases.iter().chain(&row.defer));
        let sums = sums(&rows());
        let percent = self.percent();
        let shown = Some((percent, sums.map(Option::unwrap_or_default)));
        let running = self.running();
        let names: Vec<_> = running.iter().map(|place| self.name_of(*place).to_owned()).collect();
        let paths =
            running.iter().zip(&names).map(|(place, name)| format!("{}/{name}", self.actions[place.action].name()));
        let paths = paths.collect();
        if self.summary != shown {
            self.summary = shown;
            self.changed = Some(now);
        }
        ActionProgress {
            running_phase: Some(names.into_iter().next().unwrap_or_default()),
            running_phases: paths,
            percent_completed: percent.map(percent::text),
            last_transition_time: self.changed.map(Time),
            ..sized(sums)
        }
    }

    fn row(&mut self, place: Place) -> Option<&mut PhaseRow> {
        let row = self.actions.get_mut(place.action)?;
        match place.phase {
            Which::Core(index) => row.phases.get_mut(index),
            Which::Defer => row.defer.as_mut(),
        }
    }
}

/// What a cancelled set says.
pub const CANCELLED: &str = "Cancelled";

/// The larger of what is shown and what is said, field by field.
fn raised(shown: &Sample, said: &Sample) -> Sample {
    Sample {
        percent: said.percent.min(ALMOST).max(shown.percent),
        uploaded: said.uploaded.max(shown.uploaded),
        upload_total: said.upload_total.or(shown.upload_total),
        downloaded: said.downloaded.max(shown.downloaded),
        download_total: said.download_total.or(shown.download_total),
        seconds_left: said.seconds_left.map(|seconds| seconds.max(1)),
    }
}

/// Downloaded, uploaded, to download, to upload: each absent if no phase has it.
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
            return Err(format!("blueprint of action {name} was changed while it ran: its phases are other ones now"));
        }
        self.phases.iter_mut().zip(&saved.phases).for_each(|(row, saved)| row.resume(saved));
        if let (Some(row), Some(saved)) = (&mut self.defer, &saved.defer_phase) {
            row.resume(saved);
        }
        Ok(())
    }

    fn status(&self) -> ActionStatus {
        let percents: Vec<_> = self.phases.iter().map(|phase| phase.shown.percent).collect();
        let percent = percent::shown_mean(&percents, self.state != ActionState::Complete);
        let progress = ActionProgress {
            percent_completed: percent.map(percent::text),
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
        self.begun = self.state != ActionState::Pending;
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
            progress_percent: self.begun.then(|| percent::text(shown.percent)),
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
