//! Many threads at once. These tests have been seen to fail when counters are added to with a load and a store, and when
//! the total is read before the counters.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_progress::{Clock, Ending, Meter, Observer, Operation, Snapshot, State, Total, Unit};

use crate::invariants::{check, check_final_stays, check_nothing_goes_back};

const ROUNDS: u64 = 60_000;

/// Looks again and again while the workers work and once after that, and checks every look against the one before.
fn look_until(observer: &Observer, stop: &AtomicBool, also: impl Fn(&Snapshot)) {
    let mut last = observer.snapshot();
    loop {
        let is_last = stop.load(Ordering::Acquire);
        let next = observer.snapshot();
        check(&next);
        check_nothing_goes_back(&last, &next);
        check_final_stays(&last, &next);
        also(&next);
        if is_last {
            return;
        }
        last = next;
    }
}

fn with_workers(operation: &Operation, workers: &[&(dyn Fn() + Sync)], also: impl Fn(&Snapshot) + Sync) {
    let stop = AtomicBool::new(false);
    let start = Barrier::new(workers.len() + 1);
    let observer = operation.observer();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            start.wait();
            look_until(&observer, &stop, &also);
        });
        let threads: Vec<_> = workers
            .iter()
            .map(|work| {
                scope.spawn(|| {
                    start.wait();
                    work();
                })
            })
            .collect();
        let ended: Vec<_> = threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Release);
        assert!(ended.iter().all(Result::is_ok));
        reader.join().expect("every look was consistent");
    });
}

/// Announces one, then settles it, in one of three ways.
fn announce_and_settle(meter: &Meter) {
    for round in 0..ROUNDS {
        meter.grow_total(1);
        match round % 3 {
            0 => meter.add(1),
            1 => meter.skip(1),
            _ => meter.fail(1),
        }
    }
}

#[test]
fn what_is_announced_before_it_is_counted_is_never_seen_counted_before_it_is_announced() {
    let operation = Operation::new("stress", Clock::system());
    let meter = operation.root().meter(Unit::Items);
    let work = || announce_and_settle(&meter);
    with_workers(&operation, &[&work, &work, &work], |snapshot| {
        let counts = snapshot.nodes[0].meters[0];
        assert!(counts.settled() <= counts.total.value().unwrap_or(0), "{counts:?}");
    });
    meter.finalize_total();
    operation.end(Ending::Succeeded);
    let counts = operation.snapshot().nodes[0].meters[0];
    let each = ROUNDS; // three workers, a third of the rounds each way
    assert_eq!((counts.done, counts.skipped, counts.failed), (each, each, each), "no update was lost");
    assert_eq!((counts.total, counts.overrun, counts.shortfall), (Total::Final(3 * ROUNDS), 0, 0));
}

/// More workers than the counter has shards, and enough rounds for two of them to meet even on a busy machine.
#[test]
fn under_a_final_total_no_update_is_lost_and_none_is_too_many() {
    const EACH: u64 = 20 * ROUNDS;
    let operation = Operation::new("stress", Clock::system());
    let meter = operation.root().meter(Unit::Bytes);
    meter.set_total(Total::Final(6 * EACH));
    let work = || (0..EACH).for_each(|_| meter.add(1));
    with_workers(&operation, &[&work, &work, &work, &work, &work, &work], |snapshot| {
        assert_eq!(snapshot.nodes[0].meters[0].overrun, 0);
    });
    let counts = operation.snapshot().nodes[0].meters[0];
    assert_eq!((counts.done, counts.remaining()), (6 * EACH, Some(0)));
}

/// The reading itself, without a snapshot around it: a hundred times as many looks, and so as many chances to be wrong.
#[test]
fn a_reading_is_never_ahead_of_its_total() {
    let operation = Operation::new("stress", Clock::system());
    let meter = operation.root().meter(Unit::Items);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..5 * ROUNDS {
                meter.grow_total(1);
                meter.add(1);
            }
            stop.store(true, Ordering::Release);
        });
        while !stop.load(Ordering::Acquire) {
            let counts = meter.counts();
            assert!(counts.settled() <= counts.total.value().unwrap_or(0), "{counts:?}");
        }
    });
    assert_eq!(meter.counts().settled(), 5 * ROUNDS);
}

#[test]
fn tasks_come_and_go_on_many_threads_and_every_look_is_consistent() {
    let operation = Operation::new("stress", Clock::system());
    let root = operation.root();
    let work = || {
        for round in 0..120_u64 {
            let stage = root.child("stage");
            let volume = stage.child("volume");
            volume.say(format!("file {round}"));
            let meter = volume.meter(Unit::Bytes);
            meter.set_total(Total::Final(10));
            meter.add(10);
            match round % 3 {
                0 => volume.finish(),
                1 => drop(volume),
                _ => stage.finish(),
            }
        }
    };
    with_workers(&operation, &[&work, &work], |_| {});
    let snapshot = operation.snapshot();
    assert_eq!(snapshot.nodes.len(), 1 + 2 * 2 * 120);
    assert!(snapshot.nodes.iter().skip(1).all(|node| node.state.is_ended()), "nothing runs for ever");
    assert_eq!(snapshot.nodes.iter().filter(|node| node.state == State::Done).count(), 2 * 80);
}
