//! Document 003's percentages.

use plimsoll_blueprint::functions::function_spec::ProgressKind;
use plimsoll_blueprint::percent::{
    Bytes, COMPLETE, MAX_INCOMPLETE, Step, displayed_mean, format, mean, parse, running,
};
use proptest::prelude::*;

fn bytes() -> impl Strategy<Value = Bytes> {
    (any::<u64>(), proptest::option::of(any::<u64>())).prop_map(|(done, total)| Bytes { done, total })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![Just(Step::Prerequisites), Just(Step::Execution), Just(Step::Cleanup)]
}

fn progress_kind() -> impl Strategy<Value = ProgressKind> {
    prop_oneof![Just(ProgressKind::Bytes), Just(ProgressKind::Steps), Just(ProgressKind::OnCompletion)]
}

#[test]
fn the_example_of_the_document() {
    assert_eq!(format(mean(&[COMPLETE, 3000, 0]).unwrap()), "43.33");
    assert_eq!(mean(&[]), None);
}

#[test]
fn functions_without_data_advance_in_thirds() {
    let at = |step| format(running(ProgressKind::Steps, step, Bytes::default()));
    assert_eq!([at(Step::Prerequisites), at(Step::Execution), at(Step::Cleanup)], ["0.00", "33.33", "66.66"]);
}

#[test]
fn only_a_known_total_advances_within_the_execution_third() {
    let at = |done, total| format(running(ProgressKind::Steps, Step::Execution, Bytes { done, total }));
    assert_eq!(at(0, Some(100)), "33.33");
    assert_eq!(at(50, Some(100)), "49.99");
    assert_eq!(at(100, Some(100)), "66.65");
    assert_eq!(at(1 << 40, None), "33.33");
}

#[test]
fn scale_workload_stays_at_zero() {
    assert_eq!(running(ProgressKind::OnCompletion, Step::Cleanup, Bytes { done: 9, total: Some(9) }), 0);
}

#[test]
fn the_mean_is_below_100_percent_until_the_defer_phase_has_run() {
    assert_eq!(displayed_mean(&[COMPLETE, COMPLETE], true), Some(MAX_INCOMPLETE));
    assert_eq!(displayed_mean(&[COMPLETE, COMPLETE], false), Some(COMPLETE));
}

proptest! {
    #[test]
    fn a_running_phase_is_below_100_percent(progress_kind in progress_kind(), step in step(), bytes in bytes()) {
        prop_assert!(running(progress_kind, step, bytes) < COMPLETE);
    }

    #[test]
    fn more_bytes_never_decrease_the_percent(progress_kind in progress_kind(), step in step(), done in any::<u64>(), more in any::<u64>(), total in any::<u64>()) {
        let at = |done| running(progress_kind, step, Bytes { done, total: Some(total) });
        prop_assert!(at(done) <= at(done.saturating_add(more)));
    }

    #[test]
    fn a_later_step_never_decreases_the_percent(bytes in bytes(), other in bytes(), one in step(), two in step()) {
        let (first, second) = (one.min(two), one.max(two));
        if first < second {
            prop_assert!(running(ProgressKind::Steps, first, bytes) <= running(ProgressKind::Steps, second, other));
        }
    }

    #[test]
    fn a_mean_is_between_its_parts_and_truncated(parts in prop::collection::vec(0_u16..=COMPLETE, 1..20)) {
        let mean = mean(&parts).unwrap();
        prop_assert!(*parts.iter().min().unwrap() <= mean && mean <= *parts.iter().max().unwrap());
        let sum: u64 = parts.iter().map(|part| u64::from(*part)).sum();
        prop_assert!(u64::from(mean) * parts.len() as u64 <= sum);
        prop_assert!((u64::from(mean) + 1) * parts.len() as u64 > sum);
    }

    #[test]
    fn formatted_values_have_two_decimals_and_are_parsed_back(percent in 0_u16..=COMPLETE) {
        let format = format(percent);
        prop_assert_eq!(format.split_once('.').unwrap().1.len(), 2);
        prop_assert_eq!(parse(&format), Some(percent));
    }
}

#[test]
fn values_of_other_programs_are_parsed() {
    assert_eq!(parse("43"), Some(4300));
    assert_eq!(parse("43.3"), Some(4330));
    for wrong in ["", "x", "101", "100.01", "-1"] {
        assert_eq!(parse(wrong), None, "{wrong}");
    }
}
