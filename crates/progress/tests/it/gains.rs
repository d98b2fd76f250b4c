//! Busy without gain is not progress, and quiet by nature is no stall.

use std::time::Duration;

use plimsoll_progress::{Operation, StallReason, StallVerdict, Task, Total, Unit, VirtualClock, view};

/// Named within this time.
const LIMIT: u64 = 300;

struct Bed {
    clock: VirtualClock,
    operation: Operation,
    task: Task,
}

impl Bed {
    fn new() -> Self {
        let clock = VirtualClock::new();
        let operation = Operation::new("backup-x", clock.clock());
        let task = operation.root().child("volume");
        Self { clock, operation, task }
    }

    fn verdict(&self) -> Option<StallVerdict> {
        self.operation.snapshot().verdict()
    }

    /// Seconds until it is said to be so, with something done in each of them.
    fn named_after(&self, verdict: StallVerdict, mut each: impl FnMut(u64)) -> Option<u64> {
        (0..2 * LIMIT).find(|second| {
            self.clock.advance(Duration::from_secs(1));
            each(*second);
            self.verdict() == Some(verdict)
        })
    }

    /// Whether anything but silence by nature is said within an hour.
    fn is_faulted(&self, mut each: impl FnMut(u64)) -> bool {
        (0..3600).any(|second| {
            self.clock.advance(Duration::from_secs(1));
            each(second);
            self.operation.snapshot().stall.is_some()
        })
    }

    fn text(&self) -> String {
        view::rows(&self.operation.snapshot())[1].detail.clone()
    }
}

#[test]
fn a_hook_is_quiet_up_to_its_timeout_and_stalled_after_it() {
    let bed = Bed::new();
    let waiting = bed.task.wait_quietly("pre-hook freeze to end", Some(Duration::from_mins(10)));
    for _ in 0..600 {
        bed.clock.advance(Duration::from_secs(1));
        assert_eq!(bed.verdict(), Some(StallVerdict::Quiet));
    }
    assert_eq!(bed.text(), "pre-hook freeze to end (10m00s)");
    bed.clock.advance(Duration::from_secs(1));
    let stall = bed.operation.snapshot().stall.expect("its timeout has passed");
    assert_eq!((stall.reason, &*stall.message), (StallReason::DeadlineExceeded, "pre-hook freeze to end"));
    drop(waiting);
    assert_eq!(bed.verdict(), None);
    bed.clock.advance(Duration::from_secs(30));
    assert_eq!(bed.verdict(), Some(StallVerdict::Stalled), "after the hook silence counts again");
}

#[test]
fn a_flush_of_any_length_is_quiet_and_what_it_counted_before_is_no_reproach() {
    let bed = Bed::new();
    let bytes = bed.task.meter(Unit::Bytes);
    bytes.set_total(Total::Final(1 << 40));
    assert!(!bed.is_faulted(|_| bytes.add(100 << 20)));
    let waiting = bed.task.wait_quietly("flushing the volume", None);
    assert!(!bed.is_faulted(|_| {}), "{}", bed.text());
    drop(waiting);
    bed.clock.advance(Duration::from_secs(1));
    assert_eq!(bed.verdict(), None, "the hour of the flush does not count against it");
}

#[test]
fn a_lock_whose_holder_is_dead_is_named_though_it_is_asked_for_again_and_again() {
    let bed = Bed::new();
    let mut waiting = None;
    let named = bed.named_after(StallVerdict::Spinning, |second| {
        if second % 20 == 0 {
            drop(waiting.take());
            waiting = Some(bed.task.wait("waiting for the lock of host node-7, pid 12"));
        }
    });
    assert!(named.is_some_and(|after| after <= LIMIT), "{named:?}");
    let stall = bed.operation.snapshot().stall.expect("named");
    assert_eq!(stall.reason, StallReason::NoGain);
    assert_eq!(&*stall.message, "no gain: waiting for the lock of host node-7, pid 12");
    assert_eq!(bed.text(), "spinning for 4m00s: no gain: waiting for the lock of host node-7, pid 12");
}

#[test]
fn a_transfer_that_is_sent_again_and_again_spins_and_one_whose_bytes_are_new_does_not() {
    let bed = Bed::new();
    let bytes = bed.task.meter(Unit::Bytes);
    bytes.set_total(Total::Final(1 << 40));
    bytes.add(1 << 30);
    assert!(
        !bed.is_faulted(|_| bed.task.moved(64 << 10)),
        "a pack that takes long on a slow connection: {}",
        bed.text()
    );
    let named = bed.named_after(StallVerdict::Spinning, |_| bed.task.retried());
    assert!(named.is_some_and(|after| after <= LIMIT), "{named:?}");
    bytes.add(1);
    bed.clock.advance(Duration::from_secs(1));
    assert_eq!(bed.verdict(), None, "a gain ends it");
}

#[test]
fn the_input_and_output_of_a_program_is_a_gain_only_as_far_as_it_may_still_be_counted() {
    let bed = Bed::new();
    assert!(!bed.is_faulted(|_| bed.task.process_moved(10 << 20)), "nothing is counted yet: it loads its index");
    let bytes = bed.task.meter(Unit::Bytes);
    bytes.set_total(Total::Final(4 << 40));
    // A counter that is printed with one decimal stands for long.
    assert!(!bed.is_faulted(|second| {
        bed.task.process_moved(100 << 20);
        bytes.set_done((1 << 40) + (second / 1000) * (100 << 30));
    }));
    let other = Bed::new();
    let bytes = other.task.meter(Unit::Bytes);
    bytes.set_total(Total::Final(1 << 40));
    let named = other.named_after(StallVerdict::Spinning, |_| {
        bytes.set_done(50 << 20);
        other.task.process_moved(10 << 20);
    });
    assert!(named.is_some_and(|after| after <= LIMIT), "{named:?}");
}

#[test]
fn a_trickle_is_named_after_a_normal_start_and_from_the_start() {
    for normal in [0, 30, 300, 3000] {
        let bed = Bed::new();
        let bytes = bed.task.meter(Unit::Bytes);
        bytes.set_total(Total::Final(1 << 40));
        for _ in 0..normal {
            bed.clock.advance(Duration::from_secs(1));
            bytes.add(35 << 20);
            assert_eq!(bed.verdict(), None);
        }
        let named = bed.named_after(StallVerdict::Crawling, |_| bytes.add(1));
        assert!(named.is_some_and(|after| after <= LIMIT), "{normal}: {named:?}");
        let stall = bed.operation.snapshot().stall.expect("named");
        assert_eq!(stall.reason, StallReason::BelowUsualRate);
        let why = if normal == 0 { "slower than any transfer should be" } else { "below 1 % of its usual 35.0 MiB/s" };
        assert!(stall.message.starts_with(why), "{stall:?}");
    }
}

#[test]
fn items_crawl_by_their_own_median_and_small_files_after_a_large_one_do_not() {
    let bed = Bed::new();
    let items = bed.task.meter(Unit::Items);
    for _ in 0..60 {
        bed.clock.advance(Duration::from_secs(1));
        items.add(500);
        assert_eq!(bed.verdict(), None);
    }
    let named = bed.named_after(StallVerdict::Crawling, |second| items.add(u64::from(second % 5 == 0)));
    assert!(named.is_some_and(|after| after <= LIMIT), "{named:?}");

    let bed = Bed::new();
    let (bytes, files) = (bed.task.meter(Unit::Bytes), bed.task.meter(Unit::Files));
    assert!(!bed.is_faulted(|second| if second < 600 { bytes.add(1 << 30) } else { files.add(100) }), "{}", bed.text());
}

#[test]
fn measuring_the_work_and_naming_it_are_gains_where_nothing_is_counted() {
    let bed = Bed::new();
    let bytes = bed.task.meter(Unit::Bytes);
    assert!(!bed.is_faulted(|_| {
        bytes.grow_total(1000);
    }));
    assert!(!bed.is_faulted(|second| bed.task.say(format!("snapshot {second}"))));
    bytes.add(1);
    let named = bed.named_after(StallVerdict::Spinning, |second| bed.task.say(format!("attempt {second}")));
    assert!(named.is_some_and(|after| after <= LIMIT), "{named:?}");
}

#[test]
fn what_its_children_gained_is_a_gain_of_a_task() {
    let bed = Bed::new();
    let stage = bed.operation.root().child("items");
    let child = stage.child("item action");
    let items = stage.meter(Unit::Items);
    bed.task.finish();
    let steps = child.meter(Unit::Steps);
    assert!(!bed.is_faulted(|_| steps.add(1)));
    child.fail("no space left on device");
    bed.clock.advance(Duration::from_secs(1));
    assert_eq!(bed.verdict(), None, "{:?}", bed.operation.snapshot().stall);
    assert!(!bed.is_faulted(|_| items.add(1)));
}

#[test]
fn a_queue_that_has_nothing_to_do_is_not_stalled_while_the_task_beside_it_goes_on() {
    let bed = Bed::new();
    let volumes = bed.operation.root().child("volumes");
    volumes.queue(2);
    volumes.child("demo/data").finish();
    assert!(!bed.is_faulted(|_| bed.task.touch()));
    bed.task.finish();
    bed.clock.advance(Duration::from_secs(30));
    let stall = bed.operation.snapshot().stall.expect("nothing goes on");
    assert_eq!((&*stall.task, stall.reason), ("volumes", StallReason::NoAdvance));
}
