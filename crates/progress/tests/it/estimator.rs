//! The time left and the stall verdict, graded on simulated and recorded runs.

use crate::grade::{self, Grade, play, simulate::Kind, trace};

/// None of these may go, least of all one that is hard to tell.
const RECORDED: [&str; 15] = [
    "built-in backup",
    "built-in on a starved machine",
    "built-in restore",
    "built-in restore from S3",
    "built-in to a slow line",
    "kopia backup",
    "kopia on a starved machine",
    "kopia restore",
    "objects backup",
    "objects restore",
    "restic backup",
    "restic on a starved machine",
    "restic restore",
    "restic restore on a starved machine",
    "restic to a slow line",
];

#[test]
fn the_time_left_is_good_enough_on_every_kind_of_run_and_every_hung_one_is_named_in_time() {
    let grades = grade::all(25);
    let faults: Vec<String> = grades.iter().flat_map(Grade::faults).collect();
    assert!(faults.is_empty(), "{}\n\n{}", faults.join("\n"), grade::table(&grades).join("\n"));
}

#[test]
fn none_of_ten_thousand_healthy_runs_is_called_stalled() {
    let healthy: Vec<Kind> = Kind::healthy().collect();
    for seed in 0..10_000_u64 {
        let kind = healthy[usize::try_from(seed).expect("small") % healthy.len()];
        let run = kind.run_of(seed, 40, 150);
        let stalled = play::play(&run).into_iter().find(|look| look.stalled);
        assert!(stalled.is_none(), "{} with seed {seed}: {stalled:?}", kind.name());
    }
}

#[test]
fn some_healthy_runs_are_silent_for_almost_as_long_as_a_hung_one_and_longer_if_they_say_so() {
    let longest_silence = |kind: Kind| {
        let silences = (0..100).map(|seed| play::cadence(&play::play(&kind.run_of(seed, 40, 150)), f64::INFINITY));
        silences.fold(0.0, f64::max)
    };
    assert!(longest_silence(Kind::Hiccups) >= 27.0);
    assert!(longest_silence(Kind::Retrying) >= 55.0);
}

#[test]
fn no_recorded_run_is_called_stalled_and_each_of_them_ends_at_its_total() {
    let runs = trace::recorded();
    for name in RECORDED {
        assert!(runs.iter().any(|run| run.name == name), "{name} is gone");
    }
    for run in runs {
        assert!(trace::MOVERS.iter().any(|mover| run.name.starts_with(mover)), "who moved {}?", run.name);
        assert!(play::play(&run).iter().all(|look| !look.stalled), "{}", run.name);
        let last = run.readings.last().expect("a run has readings");
        assert_eq!(last.settled, last.total, "{}", run.name);
    }
}
