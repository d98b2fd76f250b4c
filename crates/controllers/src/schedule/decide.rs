//! Decides what happens to a schedule: pure.

use jiff::Timestamp;

use crate::cron::Cron;

/// The observed state of a schedule.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    pub faults: Vec<String>,
    pub created: Timestamp,
    pub last_backup: Option<Timestamp>,
    pub last_skipped: Option<Timestamp>,
    pub paused: bool,
    /// The user wants no backup before the next time it is due.
    pub skip: bool,
    /// Its backup that has not ended.
    pub busy: Option<String>,
}

/// The decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It is invalid.
    Refuse,
    /// Skip what is due now.
    Skip,
    /// Nothing is due before this time, if ever.
    Wait(Option<Timestamp>),
    /// It is due, and this earlier backup has not ended.
    Hold(String),
    /// It was due at this time.
    Submit(Timestamp),
}

pub(super) fn decide(seen: &Observed, cron: Option<&Cron>, now: Timestamp) -> Decision {
    let Some(cron) = cron.filter(|_| seen.faults.is_empty()) else { return Decision::Refuse };
    if seen.skip {
        return Decision::Skip;
    }
    let last = seen.last_backup.unwrap_or(seen.created);
    let next = cron.next(seen.last_skipped.map_or(last, |skipped| skipped.max(last)));
    match next {
        Some(due) if due < now && !seen.paused => match &seen.busy {
            Some(busy) => Decision::Hold(busy.clone()),
            None => Decision::Submit(due),
        },
        next => Decision::Wait(next.filter(|_| !seen.paused)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn seen() -> Observed {
        Observed { created: at("2026-05-01T10:30:00Z"), ..Observed::default() }
    }

    #[test]
    fn the_table() {
        let cron: Cron = "0 3 * * *".parse().unwrap();
        let busy = Observed { busy: Some("b".into()), ..seen() };
        let skipped = Observed { last_skipped: Some(at("2026-05-02T03:00:10Z")), ..seen() };
        let done = Observed { last_backup: Some(at("2026-05-02T03:00:01Z")), ..seen() };
        let next_day = Decision::Wait(Some(at("2026-05-03T03:00:00Z")));
        let due = Decision::Submit(at("2026-05-02T03:00:00Z"));
        let cases = [
            ("not yet", seen(), "2026-05-01T20:00:00Z", Decision::Wait(Some(at("2026-05-02T03:00:00Z")))),
            ("due", seen(), "2026-05-02T03:00:01Z", due.clone()),
            ("missed runs are one run", seen(), "2026-05-09T12:00:00Z", due),
            ("due, and one is under way", busy, "2026-05-02T03:00:01Z", Decision::Hold("b".into())),
            ("done", done, "2026-05-02T04:00:00Z", next_day.clone()),
            ("left out", skipped, "2026-05-02T04:00:00Z", next_day),
            ("paused", Observed { paused: true, ..seen() }, "2026-05-02T03:00:01Z", Decision::Wait(None)),
            ("skips the first run", Observed { skip: true, ..seen() }, "2026-05-02T03:00:01Z", Decision::Skip),
            ("refused", Observed { faults: vec!["x".into()], ..seen() }, "2026-05-02T03:00:01Z", Decision::Refuse),
        ];
        for (name, seen, now, expected) in cases {
            assert_eq!(decide(&seen, Some(&cron), at(now)), expected, "{name}");
        }
        assert_eq!(decide(&seen(), None, at("2026-05-02T03:00:01Z")), Decision::Refuse);
    }

    /// A month of a schedule on a clock of its own.
    #[test]
    fn a_schedule_makes_a_backup_each_time_it_is_due_and_never_two() {
        let cron: Cron = "TZ=Europe/Berlin 30 2 * * *".parse().unwrap();
        let (mut seen, mut now, mut made) = (
            Observed { created: at("2026-03-25T00:00:00Z"), ..Observed::default() },
            at("2026-03-25T00:00:00Z"),
            vec![],
        );
        while now < at("2026-04-02T00:00:00Z") {
            match decide(&seen, Some(&cron), now) {
                Decision::Submit(due) => {
                    made.push(due.to_string());
                    seen.last_backup = Some(now);
                }
                Decision::Wait(Some(next)) => now = next + jiff::SignedDuration::from_millis(50),
                other => panic!("{other:?}"),
            }
        }
        let expected = ["25T01", "26T01", "27T01", "28T01", "30T00", "31T00"]; // none on the day without half past two
        let expected: Vec<_> = expected.iter().map(|day| format!("2026-03-{day}:30:00Z")).collect();
        assert_eq!(made[..6], expected);
        assert_eq!(made[6..], ["2026-04-01T00:30:00Z"]);
    }
}
