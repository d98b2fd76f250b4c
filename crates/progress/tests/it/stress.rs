//! Many threads at once. These tests have been seen to fail when the counters are added to with a load and a store, when
//! the total is read before the counters, and when total and kind are kept in two words.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_progress::{Clock, Ending, Meter, Observer, Operation, Snapshot, State, Total, Unit};

use crate::invariants::{check, check_final_stays, check_nothing_goes_back};

const ROUNDS: u64 = 60_000;

/// Looks again and again while the workers work, checks every look against the one before, and counts the looks.
fn look_until(observer: &Observer, stop: &AtomicBool, also: impl Fn(&Snapshot)) -> u64 {
    let mut looks = 0;
    let mut last = observer.snapshot();
    while !stop.load(Ordering::Acquire) {
        let next = observer.snapshot();
        check(&next);
        check_nothing_goes_back(&last, &next);
        check_final_stays(&last, &next);
        also(&next);
        last = next;
        looks += 1;
    }
    looks
}

fn with_workers(operation: &Operation, workers: &[&(dyn Fn() + Sync)], also: impl Fn(&Snapshot) + Sync) -> u64 {
    let stop = AtomicBool::new(false);
    let start = Barrier::new(workers.len() + 1);
    let observer = operation.observer();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            start.wait();
            look_until(&observer, &stop, &also)
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
        reader.join().expect("every look was consistent")
    })
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
    let looks = with_workers(&operation, &[&work, &work, &work], |snapshot| {
        let counts = snapshot.nodes[0].meters[0];
        assert!(counts.settled() <= counts.total.value().unwrap_or(0), "{counts:?}");
    });
    assert!(looks > 0);
    meter.finalize_total();
    operation.end(Ending::Succeeded);
    let counts = operation.snapshot().nodes[0].meters[0];
    let each = ROUNDS; // three workers, a third of the rounds each way
    assert_eq!((counts.done, counts.skipped, counts.failed), (each, each, each), "no update was lost");
    assert_eq!((counts.total, counts.overrun, counts.shortfall), (Total::Final(3 * ROUNDS), 0, 0));
}

#[test]
fn under_a_final_total_no_update_is_lost_and_none_is_too_many() {
    let operation = Operation::new("stress", Clock::system());
    let meter = operation.root().meter(Unit::Bytes);
    meter.set_total(Total::Final(6 * ROUNDS));
    let work = || (0..2 * ROUNDS).for_each(|_| meter.add(1));
    with_workers(&operation, &[&work, &work, &work], |snapshot| {
        assert_eq!(snapshot.nodes[0].meters[0].overrun, 0);
    });
    let counts = operation.snapshot().nodes[0].meters[0];
    assert_eq!((counts.done, counts.remaining()), (6 * ROUNDS, Some(0)));
}

#[test]
fn a_total_changes_kind_and_number_at_once() {
    let operation = Operation::new("stress", Clock::system());
    let meters: Vec<Meter> =
        (0..2000).map(|n| operation.root().child(format!("task {n}")).meter(Unit::Items)).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for meter in &meters {
                for _ in 0..20 {
                    meter.set_total(Total::Growing(7));
                }
                meter.set_total(Total::Final(9));
            }
            stop.store(true, Ordering::Release);
        });
        while !stop.load(Ordering::Acquire) {
            for total in meters.iter().map(|meter| meter.counts().total) {
                assert!(matches!(total, Total::Unknown | Total::Growing(7) | Total::Final(9)), "{total:?}");
            }
        }
    });
    assert!(meters.iter().all(|meter| meter.counts().total == Total::Final(9)));
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
