//! Document 003's percentages.

use plimsoll_blueprint::functions::table::Shown;
use plimsoll_blueprint::percent::{ALMOST, Bytes, Step, WHOLE, mean, parse, running, shown_mean, text};
use proptest::prelude::*;

fn bytes() -> impl Strategy<Value = Bytes> {
    (any::<u64>(), proptest::option::of(any::<u64>())).prop_map(|(done, total)| Bytes { done, total })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![Just(Step::Prerequisites), Just(Step::Execution), Just(Step::Cleanup)]
}

fn shown() -> impl Strategy<Value = Shown> {
    prop_oneof![Just(Shown::Bytes), Just(Shown::Steps), Just(Shown::AtTheEnd)]
}

#[test]
fn the_example_of_the_document() {
    assert_eq!(text(mean(&[WHOLE, 3000, 0]).unwrap()), "43.33");
    assert_eq!(mean(&[]), None);
}

#[test]
fn functions_that_move_no_data_go_in_thirds() {
    let at = |step| text(running(Shown::Steps, step, Bytes::default()));
    assert_eq!([at(Step::Prerequisites), at(Step::Execution), at(Step::Cleanup)], ["0.00", "33.33", "66.66"]);
}

#[test]
fn a_known_total_moves_inside_the_execution_third_and_an_unknown_one_does_not() {
    let at = |done, total| text(running(Shown::Steps, Step::Execution, Bytes { done, total }));
    assert_eq!(at(0, Some(100)), "33.33");
    assert_eq!(at(50, Some(100)), "49.99");
    assert_eq!(at(100, Some(100)), "66.65");
    assert_eq!(at(1 << 40, None), "33.33");
}

#[test]
fn a_workload_that_is_scaled_stays_at_nothing() {
    assert_eq!(running(Shown::AtTheEnd, Step::Cleanup, Bytes { done: 9, total: Some(9) }), 0);
}

#[test]
fn while_the_phase_at_the_end_has_to_run_the_mean_stays_below_the_whole() {
    assert_eq!(shown_mean(&[WHOLE, WHOLE], true), Some(ALMOST));
    assert_eq!(shown_mean(&[WHOLE, WHOLE], false), Some(WHOLE));
}

proptest! {
    #[test]
    fn what_runs_is_never_whole(shown in shown(), step in step(), bytes in bytes()) {
        prop_assert!(running(shown, step, bytes) < WHOLE);
    }

    #[test]
    fn more_bytes_never_mean_less(shown in shown(), step in step(), done in any::<u64>(), more in any::<u64>(), total in any::<u64>()) {
        let at = |done| running(shown, step, Bytes { done, total: Some(total) });
        prop_assert!(at(done) <= at(done.saturating_add(more)));
    }

    #[test]
    fn a_later_step_never_means_less(bytes in bytes(), other in bytes(), one in step(), two in step()) {
        let (first, second) = (one.min(two), one.max(two));
        if first < second {
            prop_assert!(running(Shown::Steps, first, bytes) <= running(Shown::Steps, second, other));
        }
    }

    #[test]
    fn a_mean_lies_between_its_parts_and_is_cut(parts in prop::collection::vec(0_u16..=WHOLE, 1..20)) {
        let mean = mean(&parts).unwrap();
        prop_assert!(*parts.iter().min().unwrap() <= mean && mean <= *parts.iter().max().unwrap());
        let sum: u64 = parts.iter().map(|part| u64::from(*part)).sum();
        prop_assert!(u64::from(mean) * parts.len() as u64 <= sum);
        prop_assert!((u64::from(mean) + 1) * parts.len() as u64 > sum);
    }

    #[test]
    fn texts_have_two_decimals_and_are_read_back(percent in 0_u16..=WHOLE) {
        let text = text(percent);
        prop_assert_eq!(text.split_once('.').unwrap().1.len(), 2);
        prop_assert_eq!(parse(&text), Some(percent));
    }
}

#[test]
fn what_another_program_wrote_is_read_too() {
    assert_eq!(parse("43"), Some(4300));
    assert_eq!(parse("43.3"), Some(4330));
    for wrong in ["", "x", "101", "100.01", "-1"] {
        assert_eq!(parse(wrong), None, "{wrong}");
    }
}
