//! A set of actions while it runs.

use jiff::{SignedDuration, Timestamp};
use plimsoll_api::kanister::v1alpha1::{ActionSetStatus, ActionSpec, ActionState, BlueprintAction, BlueprintPhase};
use plimsoll_blueprint::board::{Board, CANCELLED, Outputs, PhaseIndex, PhaseRef, Sample};
use plimsoll_blueprint::percent::parse;
use proptest::prelude::*;
use serde_json::json;

fn spec() -> ActionSpec {
    ActionSpec { name: Some("backup".into()), ..ActionSpec::default() }
}

fn action(phases: usize, defer: bool) -> BlueprintAction {
    let phase = |name: String| BlueprintPhase { name: Some(name), ..BlueprintPhase::default() };
    BlueprintAction {
        phases: (0..phases).map(|number| phase(format!("p{number}"))).collect(),
        defer_phase: defer.then(|| phase("last".into())),
        ..BlueprintAction::default()
    }
}

fn core(action: usize, phase: usize) -> PhaseRef {
    PhaseRef { action, phase: PhaseIndex::Core(phase) }
}

fn defer(action: usize) -> PhaseRef {
    PhaseRef { action, phase: PhaseIndex::Defer }
}

fn at(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
}

fn percent(status: &ActionSetStatus) -> String {
    status.progress.clone().unwrap().percent_completed.unwrap()
}

fn phase_percent(status: &ActionSetStatus, action: usize, phase: usize) -> Option<String> {
    status.actions[action].phases[phase].progress.clone().unwrap().progress_percent
}

#[test]
fn the_status_equals_the_example_of_the_document() {
    let (spec, action) = (spec(), action(3, false));
    let mut board = Board::new([(&spec, &action)]);
    board.start();
    board.begin(core(0, 0), at(1));
    board.complete(core(0, 0), Outputs::new(), at(2));
    board.begin(core(0, 1), at(3));
    let sample = Sample {
        percent: 3000,
        uploaded: Some(50_000),
        upload_total: Some(100_000_000),
        seconds_left: Some(120),
        ..Sample::default()
    };
    board.sample(core(0, 1), sample, at(4));
    let status = serde_json::to_value(board.status(at(5))).unwrap();
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
fn a_defer_phase_is_not_in_the_mean_and_keeps_it_below_100_percent() {
    let (spec, action) = (spec(), action(1, true));
    let mut board = Board::new([(&spec, &action)]);
    board.start();
    board.begin(core(0, 0), at(1));
    board.complete(core(0, 0), Outputs::new(), at(2));
    assert_eq!(percent(&board.status(at(3))), "99.99");
    board.begin(defer(0), at(4));
    board.sample(defer(0), Sample { percent: 3333, ..Sample::default() }, at(5));
    let status = board.status(at(6));
    assert_eq!(percent(&status), "99.99");
    assert_eq!(status.progress.clone().unwrap().running_phase.as_deref(), Some("last"));
    assert_eq!(
        status.actions[0].defer_phase.clone().unwrap().progress.unwrap().progress_percent.as_deref(),
        Some("33.33")
    );
    board.complete(defer(0), Outputs::new(), at(7));
    board.complete_action(0, [].into());
    assert_eq!(board.end(false), Ok(()));
    let status = board.status(at(8));
    assert_eq!((percent(&status).as_str(), status.state), ("100.00", Some(ActionState::Complete)));
    assert_eq!(status.progress.unwrap().running_phase.as_deref(), Some(""));
}

#[test]
fn the_bytes_of_an_action_set_are_the_sum_of_its_phases() {
    let (spec, action) = (spec(), action(3, false));
    let mut board = Board::new([(&spec, &action)]);
    board.start();
    for (phase, up, down) in [(0, Some(5), None), (1, Some(7), Some(1)), (2, None, None)] {
        board.begin(core(0, phase), at(1));
        let sample = Sample { percent: 100, uploaded: up, upload_total: up, downloaded: down, ..Sample::default() };
        board.sample(core(0, phase), sample, at(2));
    }
    let status = serde_json::to_value(board.status(at(3))).unwrap();
    assert_eq!((&status["progress"]["sizeUploadedB"], &status["progress"]["sizeDownloadedB"]), (&json!(12), &json!(1)));
    assert_eq!(status["progress"]["estimatedUploadSizeB"], 12);
    let still = &status["actions"][0]["phases"][2]["progress"];
    let fields: Vec<_> = still.as_object().unwrap().keys().cloned().collect();
    assert_eq!(fields, ["lastTransitionTime", "progressPercent"]);
}

#[test]
fn two_actions_with_the_same_phases_are_independent() {
    let (spec, action) = (spec(), action(1, false));
    let mut board = Board::new([(&spec, &action), (&spec, &action)]);
    board.start();
    board.begin(core(0, 0), at(1));
    board.complete(core(0, 0), json!({ "k": "v" }).as_object().unwrap().clone(), at(2));
    board.begin(core(1, 0), at(3));
    board.sample(core(1, 0), Sample { percent: 100, ..Sample::default() }, at(4));
    let status = board.status(at(5));
    assert_eq!(phase_percent(&status, 0, 0).as_deref(), Some("100.00"));
    assert_eq!(phase_percent(&status, 1, 0).as_deref(), Some("1.00"));
    assert!(status.actions[1].phases[0].output.is_empty());
    assert_eq!(percent(&status), "50.50");
}

#[test]
fn a_failed_phase_keeps_its_percent_and_fails_the_action_set() {
    let (spec, action) = (spec(), action(2, true));
    let mut board = Board::new([(&spec, &action)]);
    board.start();
    board.begin(core(0, 0), at(1));
    board.sample(core(0, 0), Sample { percent: 6666, seconds_left: Some(0), ..Sample::default() }, at(2));
    let running = board.status(at(2)).actions[0].phases[0].progress.clone().unwrap();
    assert_eq!(running.estimated_time_seconds, Some(1), "never 0 s while work remains");
    board.fail(core(0, 0), "phase p0: no space", at(3));
    board.begin(defer(0), at(4));
    board.complete(defer(0), Outputs::new(), at(5));
    board.end_action(0);
    assert_eq!(board.end(false), Err("phase p0: no space".into()));
    let status = board.status(at(6));
    assert_eq!((percent(&status).as_str(), status.state.clone()), ("33.33", Some(ActionState::Failed)));
    assert_eq!(status.actions[0].phases[1].state, Some(ActionState::Pending));
    assert_eq!(status.actions[0].phases[0].progress.clone().unwrap().estimated_time_seconds, None);
}

#[test]
fn an_action_set_with_a_failed_phase_is_below_100_percent() {
    let (spec, action) = (spec(), action(1, true));
    let mut board = Board::new([(&spec, &action)]);
    board.start();
    board.complete(core(0, 0), Outputs::new(), at(1));
    board.begin(defer(0), at(2));
    board.fail(defer(0), "no", at(3));
    board.end_action(0);
    assert!(board.end(false).is_err());
    assert_eq!(percent(&board.status(at(4))), "99.99");
}

#[test]
fn cancelled_comes_first_in_the_message() {
    let (spec, action) = (spec(), action(1, false));
    let mut board = Board::new([(&spec, &action)]);
    board.start();
    board.fail(core(0, 0), CANCELLED, at(1));
    assert_eq!(board.end(true), Err("Cancelled".into()));
}

#[test]
fn the_percent_does_not_decrease_after_a_restart() {
    let (spec, action) = (spec(), action(2, false));
    let mut board = Board::new([(&spec, &action)]);
    board.start();
    board.begin(core(0, 0), at(1));
    board.sample(core(0, 0), Sample { percent: 5000, uploaded: Some(10), ..Sample::default() }, at(2));
    let saved = board.status(at(3));
    let mut again = Board::new([(&spec, &action)]);
    again.resume(&saved).unwrap();
    again.start();
    again.begin(core(0, 0), at(10));
    again.sample(core(0, 0), Sample { percent: 100, uploaded: Some(1), ..Sample::default() }, at(11));
    let status = again.status(at(12));
    assert_eq!(phase_percent(&status, 0, 0).as_deref(), Some("50.00"));
    assert_eq!(status.progress.unwrap().size_uploaded_b, Some(10));
    again.sample(core(0, 0), Sample { percent: 6000, ..Sample::default() }, at(13));
    assert_eq!(phase_percent(&again.status(at(14)), 0, 0).as_deref(), Some("60.00"));
    let other = self::action(3, false);
    assert!(Board::new([(&spec, &other)]).resume(&saved).unwrap_err().contains("was changed while it was running"));
}

#[test]
fn transition_times_change_only_with_their_values() {
    let (spec, action) = (spec(), action(1, false));
    let mut board = Board::new([(&spec, &action)]);
    board.start();
    board.begin(core(0, 0), at(1));
    let sample = Sample { percent: 10, seconds_left: Some(9), ..Sample::default() };
    board.sample(core(0, 0), sample, at(2));
    let first = board.status(at(3));
    board.sample(core(0, 0), Sample { seconds_left: Some(8), ..sample }, at(4));
    let second = board.status(at(5));
    let time = |status: &ActionSetStatus| {
        let phase = status.actions[0].phases[0].progress.clone().unwrap().last_transition_time.unwrap().0;
        (phase, status.progress.clone().unwrap().last_transition_time.unwrap().0)
    };
    assert_eq!(time(&first), time(&second));
}

#[derive(Clone, Debug)]
enum Event {
    Begin,
    Sample(u16, Option<u64>),
    Complete,
    Fail,
    Restart,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => Just(Event::Begin),
        6 => (any::<u16>(), proptest::option::of(any::<u64>())).prop_map(|(percent, bytes)| Event::Sample(percent, bytes)),
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
        let spec = spec();
        let actions: Vec<_> = sizes.iter().map(|(phases, defer)| action(*phases, *defer)).collect();
        let pairs = || actions.iter().map(|action| (&spec, action));
        let mut board = Board::new(pairs());
        board.start();
        let mut last: Option<ActionSetStatus> = None;
        for (second, (number, phase, event)) in events.into_iter().enumerate() {
            let number = number % actions.len();
            let place = if phase < actions[number].phases.len() { core(number, phase) } else { defer(number) };
            let (now, state) = (at(i64::try_from(second).unwrap()), board.state_of(place).cloned());
            let ended = state.as_ref().is_none_or(ActionState::is_ended);
            match event {
                Event::Begin if !ended => board.begin(place, now),
                Event::Sample(percent, bytes) => board.sample(place, Sample { percent, uploaded: bytes, ..Sample::default() }, now),
                Event::Complete if !ended => board.complete(place, Outputs::new(), now),
                Event::Fail if !ended => board.fail(place, "broken", now),
                Event::Restart => {
                    let saved = board.status(now);
                    board = Board::new(pairs());
                    board.resume(&saved).unwrap();
                    board.start();
                }
                _ => {}
            }
            let status = board.status(now);
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

#[test]
fn all_outputs_of_an_action_set_fit_in_its_status() {
    let (spec, action) = (spec(), action(3, false));
    let large = |size: usize| Outputs::from_iter([("k".to_owned(), json!("x".repeat(size)))]);
    let mut board = Board::new([(&spec, &action)]);
    board.reserve(&large(500_000)).unwrap();
    board.complete(core(0, 0), large(500_000), at(1));
    board.reserve(&large(500_000)).unwrap();
    let error = board.reserve(&large(500_000)).unwrap_err();
    assert_eq!(error.reason(), "OutputTooLong");
    assert!(error.to_string().contains("exceed the limit of 1048576 bytes"), "{error}");
    board.reserve(&large(1000)).expect("a rejected reservation takes no space");

    let mut next = Board::new([(&spec, &action)]);
    next.resume(&board.status(at(2))).unwrap();
    next.reserve(&large(500_000)).unwrap();
    assert!(next.reserve(&large(500_000)).is_err(), "the reserved bytes are restored from the status");
}
