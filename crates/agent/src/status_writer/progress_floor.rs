//! The status of a transfer from its progress tree. Nothing that was shown goes back.

use jiff::Timestamp;
use plimsoll_mover::{TransferProgress as Shown, transfer_progress, transfer_progress_with_total};
use plimsoll_operations::{next_epoch, projection, summary_patch};
use plimsoll_progress::{Clock, Counts, Operation, Percent, Snapshot, State, Token, Total, Unit};
use plimsoll_volumes::transfer::{Transfer, progress};
use serde_json::{Value, json};

/// The progress that was shown before. A mover that is started again counts from the beginning: the shown progress stays until it
/// has caught up, unless the new total is less than what was done before.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProgressFloor {
    bytes: Option<Shown>,
    /// The greatest percentage. Where a total grows, it stays too.
    percent: Option<Percent>,
    files: (Option<i64>, Option<i64>),
}

impl ProgressFloor {
    /// The progress in the custom resource.
    pub fn of<T: Transfer>(object: &T) -> Self {
        let number = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
        let (shown, summary) =
            (object.progress().cloned().unwrap_or_default(), object.summary().cloned().unwrap_or_default());
        let both = number(shown.total_bytes).zip(number(shown.bytes_done));
        let bytes = both.map(|(total_bytes, bytes_done)| Shown { total_bytes, bytes_done });
        let percent = bytes.map(|shown| Percent::of(shown.bytes_done, shown.total_bytes));
        Self { bytes, percent, files: (summary.files_done, summary.total_files) }
    }

    /// Raises the floor to these bytes, and returns the bytes to show.
    fn raise(&mut self, counted: Shown) -> Shown {
        let before = self.bytes.filter(|before| before.bytes_done < counted.total_bytes);
        let least = before.map_or(0, |before| before.bytes_done);
        let below = counted.total_bytes.saturating_sub(1);
        let shown = Shown { bytes_done: counted.bytes_done.max(least).min(below), ..counted };
        let percent = Percent::of(shown.bytes_done, shown.total_bytes);
        let held = self.percent.filter(|held| before.is_some() && held.hundredths() > percent.hundredths());
        (self.bytes, self.percent) = (Some(shown), Some(held.unwrap_or(percent)));
        shown
    }

    /// The same for files. Unknown counts leave the floor as it is.
    fn raise_file_counts(&mut self, (done, total): (Option<i64>, Option<i64>)) -> (Option<i64>, Option<i64>) {
        let fits = |least: &i64| total.is_none_or(|total| *least <= total);
        let raised = done.max(self.files.0.filter(fits));
        self.files = (raised, total.or(self.files.1.filter(|total| Some(*total) >= raised)));
        self.files
    }
}

/// The status that shows a tree.
pub(crate) fn status(snapshot: &Snapshot, floor: &mut ProgressFloor, expected: Option<u64>) -> Value {
    // The mover's own tree hangs below the root.
    let movers = || snapshot.nodes.iter().skip(1);
    let towards = |total| movers().find_map(|node| transfer_progress_with_total(node, total));
    let counted = movers().find_map(transfer_progress).or_else(|| expected.and_then(towards));
    // 0 of 0 would look complete.
    let shown = counted.filter(|counted| counted.total_bytes > 0).map(|counted| floor.raise(counted));
    let mut summary = projection::summary(snapshot, Timestamp::now());
    if snapshot.state() != State::Done {
        // The percentage of the shown bytes. It is approximate while the mover still scans its volume.
        let bytes = movers().find_map(|node| node.counts(Unit::Bytes));
        let grows = bytes.is_none_or(|bytes| !bytes.total.is_final());
        summary.percent = floor.percent.map(|percent| percent.approximately(grows).to_string());
    }
    // Where the resource holds more than the tree shows, its numbers are not those of the tree.
    summary.token = summary.token.filter(|_| summary.percent == snapshot.percent().map(|percent| percent.to_string()));
    summary.doing = progress::current_activity(snapshot).map(str::to_owned);
    (summary.files_done, summary.total_files) = floor.raise_file_counts(progress::files(snapshot));
    let mut status = json!({ "plimsoll": summary_patch(&summary) });
    if summary.doing.is_none() {
        status["plimsoll"]["doing"] = Value::Null;
    }
    if let Some(shown) = shown {
        status["progress"] = json!({ "totalBytes": shown.total_bytes, "bytesDone": shown.bytes_done });
    }
    status
}

/// The tree of a transfer. It shows nothing less than what the custom resource shows of an earlier agent's work.
pub(crate) fn resumed_tree<T: Transfer>(object: &T, mover: Option<&str>) -> Operation {
    let name = object.meta().name.clone().unwrap_or_default();
    let saved = mover.and_then(|mover| saved_tree(&name, mover, &ProgressFloor::of(object)));
    let tree = match saved {
        // The gap is shown by the wait for a slot.
        Some(saved) => Operation::resume(&saved, "an agent that is gone", Clock::system()).0,
        None => Operation::new(name, Clock::system()),
    };
    let written = object.summary().and_then(|summary| summary.token.as_deref()?.parse::<Token>().ok());
    tree.begin_epoch(next_epoch(written));
    tree
}

/// What the custom resource shows, as the tree of its mover.
fn saved_tree(name: &str, mover: &str, floor: &ProgressFloor) -> Option<Snapshot> {
    let counts = |unit: Unit, done: u64, total: Total| Counts { done, total, ..Counts::zero(unit) }.covered();
    let bytes = floor.bytes.map(|shown| counts(Unit::Bytes, shown.bytes_done, Total::Growing(shown.total_bytes)));
    let number = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
    let files = number(floor.files.0)
        .map(|done| counts(Unit::Files, done, number(floor.files.1).map_or(Total::Unknown, Total::Growing)));
    let meters: Vec<Counts> = bytes.into_iter().chain(files).collect();
    let percent = floor.percent.map(|percent| percent.to_string());
    let root = json!({ "path": "", "name": name, "state": "running", "percent": percent });
    let below = json!({ "path": mover, "name": mover, "state": "running", "percent": percent, "meters": meters });
    let saved = json!({ "operation": name, "nodes": [root, below] });
    (!meters.is_empty()).then(|| serde_json::from_value(saved).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_progress::{Frame, VirtualClock};

    use super::*;

    #[test]
    fn a_transfer_says_what_it_does_and_what_it_waits_for_and_counts_files_that_are_known() {
        let tree = Operation::new("t", Clock::system());
        let mover = tree.root().child("built-in");
        let files = mover.meter(Unit::Files);
        let shown = || status(&tree.snapshot(), &mut ProgressFloor::default(), None)["plimsoll"].clone();
        assert_eq!((&shown()["doing"], &shown()["filesDone"]), (&Value::Null, &Value::Null));
        mover.say("scanning");
        assert_eq!(shown()["doing"], "scanning");
        files.set_total(Total::Growing(7));
        files.set_done(2);
        mover.say("deep/noise");
        assert_eq!((&shown()["filesDone"], &shown()["totalFiles"]), (&json!(2), &Value::Null), "it may still grow");
        files.set_total(Total::Final(9));
        let now = shown();
        assert_eq!(
            (&now["doing"], &now["filesDone"], &now["totalFiles"]),
            (&json!("deep/noise"), &json!(2), &json!(9))
        );
        let waiting = tree.root().wait("trying again: RepositoryLocked: by another process");
        assert_eq!(shown()["doing"], "trying again: RepositoryLocked: by another process");
        drop(waiting);
        assert_eq!(shown()["doing"], "deep/noise");
        tree.end(plimsoll_progress::Ending::Succeeded);
        assert_eq!(shown()["doing"], Value::Null);
    }

    #[test]
    fn a_mover_has_begun_once_it_knows_what_there_is_to_do_and_the_next_one_begins_for_itself() {
        let tree = Operation::new("t", Clock::system());
        let mover = tree.root().graft("built-in");
        let mover_has_started = || mover.has_counted();
        let report = |attempt, sequence, total| {
            let reported = Operation::new("m", Clock::system());
            reported.root().meter(Unit::Bytes).set_total(total);
            mover.apply(&Frame::full(&reported.snapshot(), attempt, sequence)).unwrap();
        };
        assert!(!mover_has_started(), "there is none");
        report(1, 1, Total::Unknown);
        assert!(!mover_has_started(), "it may wait for anything");
        report(1, 2, Total::Growing(7));
        assert!(mover_has_started(), "it has looked into the volume");
        mover.interrupt("mover process ended");
        mover.restart();
        assert!(!mover_has_started(), "this is another one");
        report(2, 1, Total::Unknown);
        assert!(!mover_has_started(), "which may wait for anything, too");
    }

    /// The floor that a resource is which shows this.
    fn floor(bytes_done: u64, total_bytes: u64) -> ProgressFloor {
        let percent = Some(Percent::of(bytes_done, total_bytes));
        ProgressFloor { bytes: Some(Shown { total_bytes, bytes_done }), percent, ..ProgressFloor::default() }
    }

    fn progress(tree: &Operation, floor: &mut ProgressFloor) -> (Value, Value) {
        let shown = status(&tree.snapshot(), floor, None);
        (shown["progress"]["bytesDone"].clone(), shown["progress"]["totalBytes"].clone())
    }

    #[test]
    fn nothing_shown_goes_back_when_a_transfer_is_taken_up_again_and_nothing_reads_a_hundred_percent() {
        let tree = Operation::new("t", Clock::system());
        let mover = tree.root().child("built-in");
        let bytes = mover.meter(Unit::Bytes);
        assert_eq!(status(&tree.snapshot(), &mut ProgressFloor::default(), None).get("progress"), None);
        bytes.set_total(Total::Final(100));
        bytes.set_done(10);
        assert_eq!(progress(&tree, &mut ProgressFloor::default()), (json!(10), json!(100)));
        let mut before = floor(60, 100);
        let shown = status(&tree.snapshot(), &mut before, None);
        assert_eq!(shown["progress"]["bytesDone"], 60);
        assert_eq!(shown["plimsoll"]["percent"], "60.00", "both show the same");
        bytes.set_done(100);
        assert_eq!(progress(&tree, &mut before), (json!(99), json!(100)));
    }

    #[test]
    fn an_agent_that_begins_again_shows_the_bytes_and_the_percentage_of_the_resource() {
        let saved = saved_tree("t", "built-in", &floor(60, 100)).unwrap();
        let (tree, gap) = Operation::resume(&saved, "an agent that is gone", Clock::system());
        drop(gap);
        let mover = tree.root().graft("built-in");
        let mut floor = floor(60, 100);
        let mut shown = |done, total| {
            mover.apply(&frame(1, done, done, total)).unwrap();
            let (live, written) = (tree.snapshot(), status(&tree.snapshot(), &mut floor, None));
            let bytes = live.sum(Unit::Bytes).unwrap();
            let row = &plimsoll_progress::view::rows(&live)[0];
            assert_eq!(row.percent.trim_start_matches('~').replace(" %", ""), live.percent().unwrap().plain());
            let written = written["plimsoll"]["percent"].as_str().unwrap().trim_start_matches('~').to_owned();
            assert_eq!(written, live.percent().unwrap().plain(), "the resource and the tree agree");
            (bytes.settled(), bytes.total.value(), written)
        };
        assert_eq!(shown(5, Total::Growing(7)), (60, Some(100), "60.00".into()));
        assert_eq!(shown(30, Total::Final(100)), (60, Some(100), "60.00".into()));
        assert_eq!(shown(75, Total::Final(100)), (75, Some(100), "75.00".into()));
    }

    #[test]
    fn a_volume_that_shrank_between_two_attempts_shows_what_the_second_one_has_done() {
        let tree = Operation::new("t", Clock::system());
        let bytes = tree.root().child("built-in").meter(Unit::Bytes);
        bytes.set_total(Total::Final(50));
        let mut before = floor(80, 100);
        for done in [0, 5, 49] {
            bytes.set_done(done);
            assert_eq!(progress(&tree, &mut before), (json!(done), json!(50)));
            let percent = status(&tree.snapshot(), &mut before, None)["plimsoll"]["percent"].clone();
            assert_eq!(percent, Percent::of(done, 50).to_string());
        }
    }

    #[test]
    fn a_volume_that_is_still_looked_through_has_no_percentage_that_would_have_to_wait_for_the_truth() {
        let tree = Operation::new("t", Clock::system());
        let bytes = tree.root().child("built-in").meter(Unit::Bytes);
        let percent = || status(&tree.snapshot(), &mut ProgressFloor::default(), None)["plimsoll"]["percent"].clone();
        bytes.set_total(Total::Growing(100));
        bytes.skip(99);
        assert_eq!(percent(), Value::Null, "99 % of what it has found so far");
        bytes.set_total(Total::Final(1000));
        assert_eq!(percent(), "9.90");
    }

    #[test]
    fn a_percentage_of_an_estimate_that_grows_waits_until_the_work_has_caught_up() {
        let tree = Operation::new("t", Clock::system());
        let bytes = tree.root().child("kopia").meter(Unit::Bytes);
        let mut floor = ProgressFloor::default();
        let mut percent = |done, total| {
            bytes.set_total(Total::Growing(total));
            bytes.set_done(done);
            status(&tree.snapshot(), &mut floor, None)["plimsoll"]["percent"].clone()
        };
        assert_eq!(percent(50, 100), "~50.00");
        assert_eq!(percent(60, 200), "~50.00");
        assert_eq!(percent(120, 200), "~60.00");
    }

    #[test]
    fn files_that_are_empty_show_no_bytes_before_the_transfer_has_ended() {
        let tree = Operation::new("t", Clock::system());
        let mover = tree.root().child("built-in");
        mover.meter(Unit::Bytes).set_total(Total::Final(0));
        assert_eq!(status(&tree.snapshot(), &mut ProgressFloor::default(), None).get("progress"), None);
        // The mover has ended, and the pod has not yet seen its data.
        mover.finish();
        assert_eq!(status(&tree.snapshot(), &mut ProgressFloor::default(), None).get("progress"), None);
    }

    /// A frame of a mover that has done so much of a hundred bytes and ten files.
    fn frame(attempt: u64, sequence: u64, done: u64, total: Total) -> Frame {
        let mover = Operation::new("m", Clock::system());
        let (bytes, files) = (mover.root().meter(Unit::Bytes), mover.root().meter(Unit::Files));
        bytes.set_total(total);
        bytes.set_done(done);
        files.set_total(Total::Final(10));
        files.set_done(done / 10);
        Frame::full(&mover.snapshot(), attempt, sequence)
    }

    #[test]
    fn after_a_killed_mover_the_bytes_of_the_next_one_are_shown_and_nothing_goes_back_or_looks_stalled() {
        let clock = VirtualClock::new();
        let tree = Operation::new("t", clock.clock());
        let (mover, mut floor) = (tree.root().graft("built-in"), ProgressFloor::default());
        let locked = std::cell::Cell::new(false);
        let mut shown = || {
            let all = status(&tree.snapshot(), &mut floor, None);
            let (progress, summary) = (&all["progress"], &all["plimsoll"]);
            let stall = summary["stalled"]["message"].as_str();
            // Minutes of waiting for one lock after the other are named for what they are, and nothing else is.
            assert!(stall.is_none_or(|stall| locked.get() && stall.starts_with("no gain: ")), "{summary:#}");
            (progress["bytesDone"].as_u64(), summary["percent"].clone(), summary["filesDone"].clone())
        };
        mover.apply(&frame(1, 1, 60, Total::Final(100))).unwrap();
        assert_eq!(shown(), (Some(60), json!("60.00"), json!(6)));

        mover.interrupt("mover process ended");
        locked.set(true);
        for _ in 0..20 {
            // One lock after the other: what waits has a word for it, and what is gone has none.
            let _waiting = tree.root().wait("trying again: RepositoryLocked");
            clock.advance(Duration::from_secs(15));
            assert_eq!(shown(), (Some(60), json!("60.00"), json!(6)));
        }
        mover.restart();
        assert_eq!(shown(), (Some(60), json!("60.00"), json!(6)), "what was shown stays");
        mover.apply(&frame(2, 1, 5, Total::Growing(7))).unwrap();
        locked.set(false);
        assert_eq!(shown(), (None, json!("~60.00"), json!(6)), "it looks through the volume again");
        let live = tree.snapshot();
        assert_eq!(live.percent().map(Percent::plain).as_deref(), Some("60.00"), "the tree shows the same");
        assert_eq!(live.sum(Unit::Bytes).map(|bytes| bytes.settled()), Some(60));
        mover.apply(&frame(2, 2, 30, Total::Final(100))).unwrap();
        assert_eq!(shown(), (Some(60), json!("60.00"), json!(6)));
        mover.apply(&frame(2, 3, 75, Total::Final(100))).unwrap();
        assert_eq!(shown(), (Some(75), json!("75.00"), json!(7)));
        let movers: Vec<_> = tree.snapshot().nodes.iter().skip(1).map(|node| node.name.to_string()).collect();
        assert_eq!(movers, ["built-in"]);
    }
}
