//! Cron expressions, compared with the library that Velero uses.

use jiff::Timestamp;
use plimsoll_controllers::cron::Cron;

/// Generated with the library that Velero uses: an expression, and from each start its next three runs.
const GOLDEN: &str = include_str!("cron.tsv");

#[test]
fn every_expression_runs_when_velero_would_run_it() {
    for line in GOLDEN.lines() {
        let (expression, expected) = line.split_once('\t').unwrap();
        match expression.parse::<Cron>() {
            Err(error) => assert_eq!(expected, "invalid", "{expression:?}: {error}"),
            Ok(cron) => {
                assert_ne!(expected, "invalid", "{expression:?}");
                expected.split(' ').for_each(|group| check(&cron, expression, group));
            }
        }
    }
}

fn check(cron: &Cron, expression: &str, group: &str) {
    let (start, runs) = group.split_once('>').unwrap();
    let mut at: Timestamp = start.parse().unwrap();
    for run in runs.split(',') {
        let next = cron.next(at);
        let shown = next.map_or("never".to_owned(), |next| next.to_string());
        assert_eq!(shown, run, "{expression:?} after {at}");
        at = next.unwrap_or(at);
    }
}

#[test]
fn what_is_wrong_is_named() {
    let cases = [
        ("0 24 * * *", "hour \"24\": above the maximum (23)"),
        ("0 0 * * 5-1", "day of week \"5-1\": its beginning is beyond its end"),
        ("*/0 * * * *", "minute \"*/0\": a step of zero leads nowhere"),
        ("* * * *", "expected exactly 5 fields, found 4: \"* * * *\""),
        ("TZ=Mars/Olympus 0 0 * * *", "unknown time zone \"Mars/Olympus\""),
    ];
    for (expression, expected) in cases {
        assert_eq!(expression.parse::<Cron>().unwrap_err().to_string(), expected);
    }
}
