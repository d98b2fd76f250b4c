//! The percentage, the time left and the stalls of whole operations, graded on played ones.

use crate::trees::score::{Figures, Verdict};
use crate::trees::stalls::{self, Named};
use crate::trees::{cases, false_stalls, figures, grade};

/// Goals that are missed everywhere, and how badly: they must not get worse. The documentation lists them as missed.
///
/// An action's percentage is the plain mean of its phases (document 003), and that of other operations follows bytes, while some of
/// their time goes into work without any.
const MISSED: [(&str, fn(&Figures) -> f64, f64); 1] =
    [("percent, 95th percentile", |figures| figures.percent_p95, 36.0)];

/// What is not good enough of these figures.
fn faults(figures: &Figures) -> Vec<String> {
    let is_known =
        |verdict: &Verdict| MISSED.iter().any(|(what, of, worst)| *what == verdict.what && of(figures) <= *worst);
    let verdicts = figures.verdicts().into_iter().filter(|verdict| !verdict.met && !is_known(verdict));
    verdicts.map(|verdict| format!("{}: {}, {}", verdict.what, verdict.value, verdict.goal)).collect()
}

#[test]
fn played_operations_meet_the_goals_and_what_is_listed_as_missed_gets_no_worse() {
    let graded: Vec<_> = cases(&[1e7, 1e9, 1e10, 1e11], 2).into_iter().map(grade).collect();
    let figures = figures(graded.iter());
    let mut faults = faults(&figures);
    faults.extend(false_stalls(&graded));
    assert!(faults.is_empty(), "{}\n\n{figures:#?}", faults.join("\n"));
    for verdict in figures.verdicts() {
        let is_listed = MISSED.iter().any(|(what, ..)| *what == verdict.what);
        assert_eq!(is_listed, !verdict.met, "{verdict:?}: list what is missed, and only that");
    }
}

#[test]
fn the_time_left_of_played_operations_is_better_than_that_of_every_simple_estimator() {
    let graded: Vec<_> = cases(&[1e9, 1e10], 1).into_iter().map(grade).collect();
    let [ours, others @ ..] = figures(graded.iter()).left;
    let ours = ours.expect("a time left is shown");
    assert!(others.into_iter().flatten().all(|other| ours < other), "{ours} is not less than {others:?}");
}

#[test]
fn healthy_work_is_never_called_stalled_and_what_gains_nothing_is_named_within_five_minutes() {
    let figures = stalls::grade(500);
    assert!(figures.false_stalls.is_empty(), "{:#?}", figures.false_stalls);
    let late: Vec<&Named> = figures.named.iter().filter(|named| !named.is_in_time()).collect();
    assert!(late.is_empty(), "{late:#?}");
}
