//! The percentage and the time left of whole operations, graded on played ones.

use crate::trees::score::Verdict;
use crate::trees::{cases, figures, grade, tables};

/// What is not good enough of these figures. The documentation lists the goals that are missed: these must not come back.
fn missed(verdicts: &[Verdict]) -> Vec<String> {
    verdicts
        .iter()
        .filter(|verdict| !verdict.met)
        .map(|verdict| format!("{}: {}, {}", verdict.what, verdict.value, verdict.goal))
        .collect()
}

/// Missed everywhere: an action's percentage is the plain mean of its phases (document 003), and that of other operations follows bytes,
/// while some of their time goes into work without any.
const MISSED: [&str; 1] = ["percent, 95th percentile"];

#[test]
fn played_operations_meet_the_goals_that_are_not_listed_as_missed() {
    let graded: Vec<_> = cases(&[1e7, 1e9, 1e10, 1e11], 2).into_iter().map(grade).collect();
    let mut verdicts = figures(graded.iter()).verdicts();
    verdicts.retain(|verdict| !MISSED.contains(&verdict.what));
    let missed = missed(&verdicts);
    assert!(missed.is_empty(), "{}\n\n{}", missed.join("\n"), tables(&graded).join("\n"));
}

#[test]
fn the_time_left_of_played_operations_is_better_than_that_of_every_simple_estimator() {
    let graded: Vec<_> = cases(&[1e9, 1e10], 1).into_iter().map(grade).collect();
    let [ours, others @ ..] = figures(graded.iter()).left;
    let ours = ours.expect("a time left is shown");
    assert!(others.into_iter().flatten().all(|other| ours < other), "{ours} is not less than {others:?}");
}
