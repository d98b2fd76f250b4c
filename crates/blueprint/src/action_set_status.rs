//! The status of an ActionSet: a pure function of the task tree, the results and the status that was shown before.
//!
//! ```text
//!   task tree ──▶ percent, bytes, time left ─┐
//!   results ────▶ states, outputs, errors ───┼──▶ status
//!   shown ──────▶ floors, transition times ──┘
//! ```
//! Displayed progress never decreases and is below 100 % until the work is complete. A phase that is repeated after a restart
//! shows its saved percent until it exceeds it: the status that an earlier process wrote is the one that was shown before.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plimsoll_api::kanister::v1alpha1::{
    ActionProgress, ActionSetStatus, ActionState, ActionStatus, ErrorMessage, Phase, PhaseProgress,
};
use plimsoll_progress::{Counts, Node, Percent, Snapshot, Total, Unit};

use crate::functions::function_spec::ProgressKind;
use crate::percent::{self, COMPLETE, Hundredths, MAX_INCOMPLETE};
use crate::results::{ActionResult, ActionSetResults, PhaseResult};

/// The status now, after `shown`.
pub fn action_set_status(
    tree: &Snapshot,
    results: &ActionSetResults,
    shown: &ActionSetStatus,
    now: Timestamp,
) -> ActionSetStatus {
    let action = |(index, result): (usize, &ActionResult)| {
        action_status(tree, result, &shown.actions.get(index).cloned().unwrap_or_default(), now)
    };
    let actions: Vec<_> = results.actions().iter().enumerate().map(action).collect();
    let shown_progress = shown.progress.clone().unwrap_or_default();
    let progress = set_progress(results.state(), &actions, &shown_progress, now);
    ActionSetStatus {
        state: Some(results.state().clone()),
        actions,
        error: Some(ErrorMessage { message: Some(results.message()), ..ErrorMessage::default() }),
        progress: Some(progress),
        ..ActionSetStatus::default()
    }
}

fn action_status(tree: &Snapshot, result: &ActionResult, shown: &ActionStatus, now: Timestamp) -> ActionStatus {
    let phase = |result: &PhaseResult, shown: Option<&Phase>| {
        let node = result.task.as_deref().and_then(|path| tree.node(path));
        phase_status(node, result, &shown.cloned().unwrap_or_default(), now)
    };
    let phases: Vec<_> =
        result.phases.iter().enumerate().map(|(index, result)| phase(result, shown.phases.get(index))).collect();
    let defer_phase = result.defer_phase.as_ref().map(|result| phase(result, shown.defer_phase.as_ref()));
    let percent = overall_percent(phases.iter(), &result.state, floor(shown.progress.as_ref()));
    let progress =
        ActionProgress { percent_completed: percent.map(percent::format), ..sizes(&phases.iter().chain(&defer_phase)) };
    ActionStatus {
        name: result.name.clone(),
        object: result.object.clone(),
        blueprint: result.blueprint.clone(),
        phases,
        artifacts: result.artifacts.clone(),
        defer_phase,
        progress: Some(progress),
        ..ActionStatus::default()
    }
}

fn set_progress(
    state: &ActionState,
    actions: &[ActionStatus],
    shown: &ActionProgress,
    now: Timestamp,
) -> ActionProgress {
    let all =
        || actions.iter().flat_map(|action| action.phases.iter().chain(&action.defer_phase).map(move |p| (action, p)));
    let running = || all().filter(|(_, phase)| phase.state == Some(ActionState::Running));
    let name = |name: &Option<String>| name.clone().unwrap_or_default();
    let phases = actions.iter().flat_map(|action| &action.phases);
    let percent = overall_percent(phases, state, floor(Some(shown)));
    let counted =
        ActionProgress { percent_completed: percent.map(percent::format), ..sizes(&all().map(|(_, phase)| phase)) };
    let shown_counted = ActionProgress { percent_completed: shown.percent_completed.clone(), ..sizes_of(shown) };
    let unchanged = shown.last_transition_time.clone().filter(|_| counted == shown_counted);
    ActionProgress {
        running_phase: Some(running().next().map(|(_, phase)| name(&phase.name)).unwrap_or_default()),
        running_phases: running()
            .map(|(action, phase)| format!("{}/{}", name(&action.name), name(&phase.name)))
            .collect(),
        last_transition_time: unchanged.or(Some(Time(now))),
        ..counted
    }
}

/// The percentage of an action or an ActionSet: the mean of its phases, without the deferPhase. The task tree shows the same while no
/// phase has failed and none was completed by an earlier process.
fn overall_percent<'a>(
    phases: impl Iterator<Item = &'a Phase>,
    state: &ActionState,
    floor: Hundredths,
) -> Option<Hundredths> {
    let complete = *state == ActionState::Complete;
    let percents: Vec<_> = phases.map(|phase| phase_floor(phase.progress.as_ref())).collect();
    let max = if complete { COMPLETE } else { MAX_INCOMPLETE };
    Some(percent::displayed_mean(&percents, !complete)?.max(floor).min(max))
}

/// The percentage that the tree shows: where there is one, the status shows the same.
fn shown_percent(node: &Node) -> Hundredths {
    node.percent.map_or(0, Percent::hundredths)
}

fn floor(shown: Option<&ActionProgress>) -> Hundredths {
    shown.and_then(|shown| percent::parse(shown.percent_completed.as_deref()?)).unwrap_or(0)
}

fn phase_floor(shown: Option<&PhaseProgress>) -> Hundredths {
    shown.and_then(|shown| percent::parse(shown.progress_percent.as_deref()?)).unwrap_or(0)
}

/// The sums of the phases' bytes; each is absent if no phase has it. A phase without an estimate adds what it has transferred to
/// the sum of the estimates: it is never less than what was transferred.
fn sizes<'a>(phases: &(impl Iterator<Item = &'a Phase> + Clone)) -> ActionProgress {
    let sum = |size: fn(&PhaseProgress) -> Option<i64>| {
        phases.clone().filter_map(|phase| size(phase.progress.as_ref()?)).reduce(i64::saturating_add)
    };
    let estimates = |size: fn(&PhaseProgress) -> Option<i64>, moved: fn(&PhaseProgress) -> Option<i64>| {
        sum(size)?;
        let least = |phase: &Phase| phase.progress.as_ref().and_then(|progress| size(progress).max(moved(progress)));
        phases.clone().filter_map(least).reduce(i64::saturating_add)
    };
    ActionProgress {
        size_downloaded_b: sum(|progress| progress.size_downloaded_b),
        size_uploaded_b: sum(|progress| progress.size_uploaded_b),
        estimated_download_size_b: estimates(
            |progress| progress.estimated_download_size_b,
            |progress| progress.size_downloaded_b,
        ),
        estimated_upload_size_b: estimates(
            |progress| progress.estimated_upload_size_b,
            |progress| progress.size_uploaded_b,
        ),
        ..ActionProgress::default()
    }
}

fn sizes_of(progress: &ActionProgress) -> ActionProgress {
    ActionProgress {
        size_downloaded_b: progress.size_downloaded_b,
        size_uploaded_b: progress.size_uploaded_b,
        estimated_download_size_b: progress.estimated_download_size_b,
        estimated_upload_size_b: progress.estimated_upload_size_b,
        ..ActionProgress::default()
    }
}

fn phase_status(node: Option<&Node>, result: &PhaseResult, shown: &Phase, now: Timestamp) -> Phase {
    let before = PhaseProgress { estimated_time_seconds: None, ..shown.progress.clone().unwrap_or_default() };
    let running = || running_progress(node, result.progress, &before);
    let mut progress = match &result.state {
        ActionState::Running => running(),
        ActionState::Complete => PhaseProgress {
            progress_percent: Some(percent::format(COMPLETE)),
            estimated_time_seconds: None,
            ..with_last_bytes(running(), node, &before)
        },
        // A phase that failed keeps what it has reached.
        _ => before.clone(),
    };
    let same_state = result.state == shown.state.clone().unwrap_or_default();
    // The time left changes all the time, and is no transition.
    if !same_state || before != (PhaseProgress { estimated_time_seconds: None, ..progress.clone() }) {
        progress.last_transition_time = Some(Time(now));
    }
    Phase {
        name: Some(result.name.clone()),
        state: Some(result.state.clone()),
        output: result.output.clone().into_iter().collect(),
        progress: Some(progress),
        ..Phase::default()
    }
}

/// The larger of what was shown and what the task of the phase reports, field by field.
fn running_progress(node: Option<&Node>, kind: ProgressKind, before: &PhaseProgress) -> PhaseProgress {
    let percent = node.map_or(0, shown_percent).max(phase_floor(Some(before))).min(MAX_INCOMPLETE);
    let counts = |unit: Unit| node.and_then(|node| node.counts(unit));
    let size_downloaded_b = counts(Unit::Downloaded).and_then(transferred).max(before.size_downloaded_b);
    let size_uploaded_b = counts(Unit::Uploaded).and_then(transferred).max(before.size_uploaded_b);
    let estimate = |unit: Unit, shown: Option<i64>, moved: Option<i64>| {
        counts(unit).and_then(total).or(shown).map(|estimate| estimate.max(moved.unwrap_or(0)))
    };
    PhaseProgress {
        progress_percent: Some(percent::format(percent)),
        size_downloaded_b,
        size_uploaded_b,
        estimated_download_size_b: estimate(Unit::Downloaded, before.estimated_download_size_b, size_downloaded_b),
        estimated_upload_size_b: estimate(Unit::Uploaded, before.estimated_upload_size_b, size_uploaded_b),
        estimated_time_seconds: node.and_then(|node| seconds_left(node, kind)).map(signed),
        ..before.clone()
    }
}

/// A short transfer reports its bytes when it ends, also that there were none to send. The estimates that were shown stay: at the
/// end there is nothing to estimate.
fn with_last_bytes(ended: PhaseProgress, node: Option<&Node>, before: &PhaseProgress) -> PhaseProgress {
    let done = |unit: Unit| node.and_then(|node| node.counts(unit)).map(|counts| signed(counts.done));
    PhaseProgress {
        size_downloaded_b: ended.size_downloaded_b.or(done(Unit::Downloaded)),
        size_uploaded_b: ended.size_uploaded_b.or(done(Unit::Uploaded)),
        estimated_download_size_b: before.estimated_download_size_b.or(ended.estimated_download_size_b),
        estimated_upload_size_b: before.estimated_upload_size_b.or(ended.estimated_upload_size_b),
        ..ended
    }
}

/// The bytes transferred, once they are reported: restic reports them at the end, but its total before.
fn transferred(counts: &Counts) -> Option<i64> {
    (counts.done > 0 || counts.total == Total::Unknown).then(|| signed(counts.done))
}

fn total(counts: &Counts) -> Option<i64> {
    counts.total.value().map(signed)
}

/// The time left as the data mover reports it, or as the tree has it where bytes are what counts. Never 0: work remains.
fn seconds_left(node: &Node, kind: ProgressKind) -> Option<u64> {
    let has_total = |unit: Unit| node.counts(unit).is_some_and(|counts| counts.total.value().is_some());
    let measured = kind == ProgressKind::Bytes && (has_total(Unit::Uploaded) || has_total(Unit::Downloaded));
    let left = node.reported_left.or_else(|| node.left.filter(|_| measured).map(|left| left.high));
    left.map(|seconds| seconds.max(1))
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_api::kanister::v1alpha1::{ActionSpec, BlueprintAction};
    use plimsoll_progress::{Operation, Task, VirtualClock};
    use serde_json::json;

    use super::*;
    use crate::functions::{Direction, PhaseMeters, TransferProgress};
    use crate::percent::Step;
    use crate::results::{Outputs, PhaseIndex, PhaseRef};

    const FIRST: PhaseRef = PhaseRef { action: 0, phase: PhaseIndex::Core(0) };
    const DEFER: PhaseRef = PhaseRef { action: 0, phase: PhaseIndex::Defer };

    /// An ActionSet of one action, with a tree like that of the controller.
    struct Fixture {
        clock: VirtualClock,
        tree: Operation,
        task: Task,
        _last: Task,
        meters: PhaseMeters,
        results: ActionSetResults,
        shown: ActionSetStatus,
    }

    impl Fixture {
        fn new(func: &str) -> Self {
            let clock = VirtualClock::new();
            let tree = Operation::new("run-set", clock.clock());
            Self::on(tree, clock, func, ActionSetStatus::default())
        }

        fn on(tree: Operation, clock: VirtualClock, func: &str, saved: ActionSetStatus) -> Self {
            let action =
                json!({ "phases": [{ "name": "p", "func": func }], "deferPhase": { "name": "last", "func": func } });
            let action: BlueprintAction = serde_json::from_value(action).unwrap();
            let spec = ActionSpec { name: Some("act".into()), ..ActionSpec::default() };
            let mut results = ActionSetResults::new([(&spec, &action)]);
            results.resume(&saved).unwrap();
            results.start();
            tree.root().equal_weights();
            let action = tree.root().child("act");
            action.equal_weights();
            let (task, last) = (action.planned("p"), action.planned("last"));
            last.shares(0);
            let kind = results.actions()[0].phases[0].progress;
            results.set_task(FIRST, task.path());
            results.begin(FIRST);
            task.start();
            let meters = PhaseMeters::new(kind, task.clone());
            Self { meters, clock, tree, task, _last: last, results, shown: saved }
        }

        /// The same ActionSet in the process that takes over.
        fn killed_and_resumed(self, func: &str) -> Self {
            let saved = self.tree.snapshot();
            let (tree, gap) = Operation::resume(&saved, "a server", self.clock.clock());
            drop(gap);
            Self::on(tree, self.clock, func, self.shown)
        }

        fn report(&self, read: u64, total: Option<u64>) {
            let progress =
                TransferProgress { direction: Direction::Upload, read, total, ..TransferProgress::default() };
            self.meters.report("mover", progress);
        }

        fn status(&mut self) -> &ActionSetStatus {
            let now = Timestamp::try_from(self.clock.clock().wall()).unwrap();
            self.shown = action_set_status(&self.tree.snapshot(), &self.results, &self.shown, now);
            &self.shown
        }

        /// The percentages of the phase and of the ActionSet.
        fn percents(&mut self) -> (String, String) {
            let status = self.status();
            let phase = status.actions[0].phases[0].progress.clone().unwrap();
            let percent = status.progress.clone().unwrap().percent_completed;
            (phase.progress_percent.unwrap(), percent.unwrap())
        }

        fn phase(&mut self) -> PhaseProgress {
            self.status().actions[0].phases[0].progress.clone().unwrap()
        }
    }

    fn percents(phase: &str, set: &str) -> (String, String) {
        (phase.to_owned(), set.to_owned())
    }

    #[test]
    fn the_percent_is_below_100_until_the_action_set_is_complete() {
        let mut set = Fixture::new("BackupData");
        set.report(100, Some(100));
        assert_eq!(set.percents(), percents("99.99", "99.99"));
        set.report(200, Some(100));
        assert_eq!(set.percents(), percents("99.99", "99.99"), "never more than the total");
        set.results.complete(FIRST, Outputs::new());
        set.task.finish();
        assert_eq!(set.percents(), percents("100.00", "99.99"), "the deferPhase has still to run");
        set.results.complete(DEFER, Outputs::new());
        set.results.complete_action(0, [].into());
        set.results.end(false).unwrap();
        assert_eq!(set.percents(), percents("100.00", "100.00"));
        assert_eq!(set.shown.progress.clone().unwrap().running_phase.as_deref(), Some(""));
    }

    #[test]
    fn a_percent_never_decreases() {
        let mut set = Fixture::new("BackupData");
        set.report(50, Some(100));
        assert_eq!(set.percents().0, "50.00");
        set.report(60, Some(1000));
        assert_eq!(set.percents().0, "50.00", "the total was corrected upwards");
        assert_eq!(set.phase().estimated_upload_size_b, Some(1000));
    }

    #[test]
    fn a_phase_that_is_killed_and_resumed_shows_its_percent_until_it_exceeds_it() {
        let mut set = Fixture::new("BackupData");
        set.report(50, Some(100));
        set.status();
        let mut set = set.killed_and_resumed("BackupData");
        assert_eq!(set.percents().0, "50.00");
        set.report(10, Some(100));
        assert_eq!(set.percents().0, "50.00");
        assert_eq!(set.phase().estimated_upload_size_b, Some(100));
        set.report(60, Some(100));
        assert_eq!(set.percents().0, "60.00");
    }

    #[test]
    fn a_status_newer_than_the_saved_tree_is_the_floor() {
        let mut set = Fixture::new("KubeTask");
        set.meters.reach(Step::Execution);
        let saved = set.status().clone();
        let clock = VirtualClock::new();
        let mut next = Fixture::on(Operation::new("run-set", clock.clock()), clock, "KubeTask", saved);
        assert_eq!(next.percents().0, "33.33");
    }

    #[test]
    fn a_phase_without_bytes_advances_in_thirds_and_bytes_with_a_total_within_the_second() {
        let mut set = Fixture::new("KubeTask");
        assert_eq!(set.percents().0, "0.00");
        set.meters.reach(Step::Execution);
        set.report(1 << 40, None);
        assert_eq!(set.percents().0, "33.33", "the total is not known");
        let mut set = Fixture::new("KubeTask");
        set.meters.reach(Step::Execution);
        set.report(50, Some(100));
        assert_eq!(set.percents().0, "49.99");
        set.meters.reach(Step::Cleanup);
        assert_eq!(set.percents().0, "66.66");
    }

    #[test]
    fn a_function_without_steps_stays_at_zero_until_it_is_complete() {
        let mut set = Fixture::new("ScaleWorkload");
        set.task.meter(Unit::Items).set_total(Total::Growing(2));
        set.task.meter(Unit::Items).set_done(1);
        set.meters.reach(Step::Execution);
        assert_eq!(set.percents().0, "0.00");
    }

    #[test]
    fn bytes_that_are_not_reported_yet_are_absent() {
        let mut set = Fixture::new("BackupData");
        set.report(40, Some(100));
        let phase = set.phase();
        assert_eq!((phase.size_uploaded_b, phase.estimated_upload_size_b), (None, Some(100)));
        let summary = TransferProgress { read: 100, total: Some(100), sent: Some(5), ..TransferProgress::default() };
        set.meters.report("mover", summary);
        let phase = set.phase();
        assert_eq!((phase.size_uploaded_b, phase.estimated_upload_size_b), (Some(5), Some(100)));
        set.results.complete(FIRST, Outputs::new());
        set.task.finish();
        let phase = set.phase();
        assert_eq!((phase.size_uploaded_b, phase.estimated_upload_size_b), (Some(5), Some(100)), "the end keeps both");
        let progress = set.shown.progress.clone().unwrap();
        assert_eq!((progress.size_uploaded_b, progress.size_downloaded_b), (Some(5), None));
    }

    #[test]
    fn a_failed_phase_keeps_its_percent_and_one_that_never_began_has_none() {
        let mut set = Fixture::new("KubeTask");
        set.meters.reach(Step::Execution);
        set.status();
        set.results.fail(FIRST, "no space");
        set.results.fail(DEFER, "not reached");
        set.task.fail("no space");
        assert_eq!(set.percents(), percents("33.33", "33.33"));
        let defer = set.shown.actions[0].defer_phase.clone().unwrap();
        assert_eq!((defer.state, defer.progress.unwrap().progress_percent), (Some(ActionState::Failed), None));
        assert_eq!(set.shown.error.clone().unwrap().message.as_deref(), Some("no space; not reached"));
    }

    #[test]
    fn the_time_left_of_the_data_mover_comes_first_and_is_never_zero() {
        let mut set = Fixture::new("KubeTask");
        set.meters.reach(Step::Execution);
        set.report(1, Some(2));
        assert_eq!(set.phase().estimated_time_seconds, None, "steps are no measure of time");
        for (reported, shown) in [(Some(7), Some(7)), (Some(0), Some(1)), (None, None)] {
            let progress =
                TransferProgress { read: 1, total: Some(2), seconds_left: reported, ..TransferProgress::default() };
            set.meters.report("mover", progress);
            assert_eq!(set.phase().estimated_time_seconds, shown);
        }
    }

    #[test]
    fn the_time_left_is_the_upper_end_of_the_tree_s_range_and_absent_while_unknown() {
        let mut set = Fixture::new("BackupData");
        let mut left = Vec::new();
        for second in 0..30 {
            set.report(second * 10, Some(1000));
            left.push(set.phase().estimated_time_seconds);
            set.clock.advance(Duration::from_secs(1));
        }
        assert_eq!(left[0], None, "nothing is known at the start");
        let last = left[29].unwrap();
        assert!((71..=114).contains(&last), "71 s are left at this speed, at most {last}");
    }

    #[test]
    fn transition_times_change_only_with_their_values() {
        let mut set = Fixture::new("BackupData");
        let times = |set: &mut Fixture| {
            let status = set.status();
            let phase = status.actions[0].phases[0].progress.clone().unwrap().last_transition_time;
            (phase.unwrap().0, status.progress.clone().unwrap().last_transition_time.unwrap().0)
        };
        set.report(10, Some(100));
        let first = times(&mut set);
        set.clock.advance(Duration::from_secs(1));
        set.task.report_left(Some(9));
        assert_eq!(times(&mut set), first);
        set.report(20, Some(100));
        assert!(times(&mut set) > first);
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { cases: 10_000, failure_persistence: None, ..Default::default() })]

        #[test]
        fn no_estimate_is_less_than_what_was_transferred(
            phases in proptest::collection::vec(proptest::array::uniform4(proptest::option::of(0..i64::MAX / 8)), 0..5),
        ) {
            let phase = |[size_downloaded_b, size_uploaded_b, download, upload]: [Option<i64>; 4]| {
                let mut tree = PhaseProgress { size_downloaded_b, size_uploaded_b, ..PhaseProgress::default() };
                (tree.estimated_download_size_b, tree.estimated_upload_size_b) = (download, upload);
                Phase { progress: Some(tree), ..Phase::default() }
            };
            let phases: Vec<Phase> = phases.into_iter().map(phase).collect();
            let all = sizes(&phases.iter());
            let holds = |moved: Option<i64>, estimate: Option<i64>| estimate.is_none_or(|estimate| moved.unwrap_or(0) <= estimate);
            proptest::prop_assert!(holds(all.size_uploaded_b, all.estimated_upload_size_b));
            proptest::prop_assert!(holds(all.size_downloaded_b, all.estimated_download_size_b));
        }
    }

    #[test]
    fn the_tree_and_the_status_show_one_percentage_with_a_defer_phase_and_without() {
        let mut set = Fixture::new("KubeTask");
        for (step, bytes, percent) in [
            (Step::Prerequisites, 0, "0.00"),
            (Step::Execution, 0, "33.33"),
            (Step::Execution, 50, "49.99"),
            (Step::Cleanup, 100, "66.66"),
        ] {
            set.meters.reach(step);
            set.report(bytes, Some(100));
            assert_eq!(set.percents(), percents(percent, percent));
            let tree = set.tree.snapshot();
            for path in ["", "act", "act/p"] {
                let shown = tree.node(path).and_then(|node| node.percent).map(|percent| percent.to_string());
                assert_eq!(shown.as_deref(), Some(percent), "{path}: the same digits, and no mark");
            }
        }
    }
}
