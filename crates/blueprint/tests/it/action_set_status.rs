//! The status of an ActionSet while it runs.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use plimsoll_api::kanister::v1alpha1::{ActionSetStatus, ActionSpec, ActionState, BlueprintAction, BlueprintPhase};
use plimsoll_blueprint::action_set_status;
use plimsoll_blueprint::functions::{PhaseMeters, TransferProgress};
use plimsoll_blueprint::percent::parse;
use plimsoll_blueprint::results::{ActionSetResults, Outputs, PhaseIndex, PhaseRef};
use plimsoll_progress::{Clock, Operation, Task};
use proptest::prelude::*;
use serde_json::json;

fn action(phases: usize, defer: bool) -> BlueprintAction {
    let phase = |name: String| BlueprintPhase {
        name: Some(name),
        func: Some("BackupData".into()),
        ..BlueprintPhase::default()
    };
    BlueprintAction {
        phases: (0..phases).map(|number| phase(format!("p{number}"))).collect(),
        defer_phase: defer.then(|| phase("last".into())),
        ..BlueprintAction::default()
    }
}

fn core(action: usize, phase: usize) -> PhaseRef {
    PhaseRef { action, phase: PhaseIndex::Core(phase) }
}

fn at(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
}

/// An ActionSet with its tree, its results and its status, as the controller holds them.
struct Set {
    actions: Vec<BlueprintAction>,
    tree: Operation,
    tasks: BTreeMap<PhaseRef, (Task, PhaseMeters)>,
    /// Keeps the tasks of the actions open.
    _action_tasks: Vec<Task>,
    results: ActionSetResults,
    shown: ActionSetStatus,
}

impl Set {
    fn new(actions: Vec<BlueprintAction>) -> Self {
        Self::on(actions, Operation::new("run-set", Clock::system()), ActionSetStatus::default())
    }

    fn on(actions: Vec<BlueprintAction>, tree: Operation, shown: ActionSetStatus) -> Self {
        let spec = ActionSpec { name: Some("backup".into()), ..ActionSpec::default() };
        let mut results = ActionSetResults::new(actions.iter().map(|action| (&spec, action)));
        results.resume(&shown).unwrap();
        results.start();
        let (mut tasks, mut action_tasks) = (BTreeMap::new(), Vec::new());
        for (index, action) in results.clone().actions().iter().enumerate() {
            let above = tree.root().child("backup");
            for (number, phase) in action.all_phases().enumerate() {
                let is_core = number < action.phases.len();
                let phase_ref = PhaseRef {
                    action: index,
                    phase: if is_core { PhaseIndex::Core(number) } else { PhaseIndex::Defer },
                };
                let task = above.planned(&phase.name);
                results.set_task(phase_ref, task.path());
                tasks.insert(phase_ref, (task.clone(), PhaseMeters::new(phase.progress, task)));
            }
            action_tasks.push(above);
        }
        Self { actions, tree, tasks, _action_tasks: action_tasks, results, shown }
    }

    /// The same ActionSet in the process that takes over.
    fn restarted(self) -> Self {
        let (tree, gap) = Operation::resume(&self.tree.snapshot(), "a server", Clock::system());
        drop(gap);
        Self::on(self.actions, tree, self.shown)
    }

    fn begin(&mut self, phase_ref: PhaseRef) {
        self.tasks[&phase_ref].0.start();
        self.results.begin(phase_ref);
    }

    fn report(&self, phase_ref: PhaseRef, progress: TransferProgress) {
        self.tasks[&phase_ref].1.report("mover", progress);
    }

    fn complete(&mut self, phase_ref: PhaseRef) {
        self.results.complete(phase_ref, Outputs::new());
        self.tasks[&phase_ref].0.finish();
    }

    fn fail(&mut self, phase_ref: PhaseRef) {
        self.results.fail(phase_ref, "no space");
        self.tasks[&phase_ref].0.fail("no space");
    }

    fn status(&mut self, second: i64) -> ActionSetStatus {
        self.shown = action_set_status(&self.tree.snapshot(), &self.results, &self.shown, at(second));
        self.shown.clone()
    }
}

fn percent(status: &ActionSetStatus) -> String {
    status.progress.clone().unwrap().percent_completed.unwrap()
}

fn phase_percent(status: &ActionSetStatus, action: usize, phase: usize) -> Option<String> {
    status.actions[action].phases[phase].progress.clone().unwrap().progress_percent
}

#[test]
fn the_status_equals_the_example_of_the_document() {
    let mut set = Set::new(vec![action(3, false)]);
    set.begin(core(0, 0));
    set.status(1);
    set.complete(core(0, 0));
    set.status(2);
    set.begin(core(0, 1));
    set.status(3);
    let progress = TransferProgress {
        read: 30_000_000,
        total: Some(100_000_000),
        sent: Some(50_000),
        seconds_left: Some(120),
        ..TransferProgress::default()
    };
    set.report(core(0, 1), progress);
    set.status(4);
    let status = serde_json::to_value(set.status(5)).unwrap();
    assert_eq!(status["state"], "running");
    assert_eq!(status["error"], json!({ "message": "" }));
    assert_eq!(
        status["actions"][0]["phases"],
        json!([
            { "name": "p0", "state": "complete", "progress": { "progressPercent": "100.00", "lastTransitionTime": "1970-01-01T00:00:02Z" } },
            { "name": "p1", "state": "running", "progress": { "progressPercent": "30.00", "sizeUploadedB": 50_000,
                "estimatedUploadSizeB": 100_000_000, "estimatedTimeSeconds": 120, "lastTransitionTime": "1970-01-01T00:00:04Z" } },
            { "name": "p2", "state": "pending", "progress": {} },
        ])
    );
    assert_eq!(status["actions"][0]["progress"]["percentCompleted"], "43.33");
    let progress = &status["progress"];
    assert_eq!((&progress["percentCompleted"], &progress["runningPhase"]), (&json!("43.33"), &json!("p1")));
    assert_eq!((&progress["runningPhases"], &progress["sizeUploadedB"]), (&json!(["backup/p1"]), &json!(50_000)));
}

#[test]
fn two_actions_with_the_same_phases_are_independent_and_their_bytes_are_added() {
    let mut set = Set::new(vec![action(1, false), action(1, false)]);
    let progress =
        |sent: u64| TransferProgress { read: sent, total: Some(500), sent: Some(sent), ..TransferProgress::default() };
    set.begin(core(0, 0));
    set.report(core(0, 0), progress(500));
    set.status(1);
    set.results.complete(core(0, 0), json!({ "k": "v" }).as_object().unwrap().clone());
    set.tasks[&core(0, 0)].0.finish();
    set.begin(core(1, 0));
    set.report(core(1, 0), progress(5));
    let status = set.status(2);
    assert_eq!(phase_percent(&status, 0, 0).as_deref(), Some("100.00"));
    assert_eq!(phase_percent(&status, 1, 0).as_deref(), Some("1.00"));
    assert!(status.actions[1].phases[0].output.is_empty());
    assert_eq!(percent(&status), "50.50");
    let progress = status.progress.unwrap();
    assert_eq!((progress.size_uploaded_b, progress.estimated_upload_size_b), (Some(505), Some(1000)));
    assert_eq!((progress.size_downloaded_b, progress.estimated_download_size_b), (None, None));
}

#[derive(Clone, Debug)]
enum Event {
    Begin,
    Report(u64, Option<u64>),
    Complete,
    Fail,
    Restart,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => Just(Event::Begin),
        6 => (0_u64..2000, proptest::option::of(0_u64..1000)).prop_map(|(read, total)| Event::Report(read, total)),
        2 => Just(Event::Complete),
        1 => Just(Event::Fail),
        1 => Just(Event::Restart),
    ]
}

proptest! {
    #[test]
    fn progress_never_decreases_and_is_below_100_percent_until_complete(
        sizes in prop::collection::vec((1_usize..4, any::<bool>()), 1..4),
        events in prop::collection::vec((0_usize..4, 0_usize..5, event()), 0..60),
    ) {
        let actions: Vec<_> = sizes.iter().map(|(phases, defer)| action(*phases, *defer)).collect();
        let mut set = Set::new(actions.clone());
        let mut last: Option<ActionSetStatus> = None;
        for (second, (number, phase, event)) in events.into_iter().enumerate() {
            let number = number % actions.len();
            let phase_ref =
                if phase < actions[number].phases.len() { core(number, phase) } else { PhaseRef { action: number, phase: PhaseIndex::Defer } };
            let ended = set.results.state_of(phase_ref).is_none_or(ActionState::is_ended);
            let running = set.results.state_of(phase_ref) == Some(&ActionState::Running);
            match event {
                Event::Begin if !ended => set.begin(phase_ref),
                Event::Report(read, total) if running => {
                    set.report(phase_ref, TransferProgress { read, total, sent: total.map(|_| read), ..TransferProgress::default() });
                }
                Event::Complete if !ended => set.complete(phase_ref),
                Event::Fail if !ended => set.fail(phase_ref),
                Event::Restart => set = set.restarted(),
                _ => {}
            }
            let status = set.status(i64::try_from(second).unwrap());
            let whole = parse(&percent(&status)).unwrap();
            prop_assert!(whole < 10_000, "the set has not ended");
            for (number, action) in status.actions.iter().enumerate() {
                let mut sum = 0;
                for (index, phase) in action.phases.iter().enumerate() {
                    let shown = phase_percent(&status, number, index);
                    let state = phase.state.clone().unwrap();
                    prop_assert!(shown.is_none() || state != ActionState::Pending);
                    let shown = shown.and_then(|text| parse(&text)).unwrap_or(0);
                    prop_assert!((shown == 10_000) == (state == ActionState::Complete));
                    sum += u64::from(shown);
                    if let Some(last) = &last {
                        let before = phase_percent(last, number, index).and_then(|text| parse(&text)).unwrap_or(0);
                        prop_assert!(before <= shown, "{before} fell to {shown}");
                    }
                }
                let mean = parse(action.progress.clone().unwrap().percent_completed.as_deref().unwrap()).unwrap();
                prop_assert_eq!(u64::from(mean), (sum / action.phases.len() as u64).min(9_999));
            }
            if let Some(last) = &last {
                prop_assert!(parse(&percent(last)).unwrap() <= whole);
            }
            last = Some(status);
        }
    }
}
