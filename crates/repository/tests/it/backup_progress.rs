//! Progress of a backup: what is counted, and when the total is final.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use plimsoll_progress::{Clock, Counts, Meter, Operation, Total, Unit};
use plimsoll_repository::{Cancel, OpenOptions};
use rustix::fs::{CWD, FileType, Mode};

use crate::faulty_store::BlockedWrites;
use crate::locking::{open_with_fault, until};
use crate::round_trip::fill;
use crate::testbed::{Testbed, random_bytes};
use crate::walk_hooks::{Exclude, is_walk, single_walker, when_walked_to};

#[test]
fn totals_are_final_and_reached_at_the_end() {
    let testbed = Testbed::new();
    fill(&testbed);
    let repository = testbed.init();
    let operation = Operation::new("backup", Clock::system());
    let outcome = repository.backup(&testbed.options(), &operation.root(), &Cancel::default()).expect("backs up");
    for unit in [Unit::Bytes, Unit::Files] {
        let node = operation.snapshot().nodes.into_iter().next().expect("the root");
        let counts = *node.meters.iter().find(|counts| counts.unit == unit).expect("a meter");
        let expected = match unit {
            Unit::Bytes => outcome.summary.total_bytes_processed,
            _ => outcome.summary.total_files_processed,
        };
        assert_eq!((counts.done, counts.settled(), counts.total.value()), (expected, expected, Some(expected)));
        assert!(counts.total.is_final());
    }
}

/// Calls `then` when the walk reaches `z/last`, the last path, and the scan is complete.
fn when_all_is_counted(bytes: Meter, then: impl Fn() + Send + Sync + 'static) -> Exclude {
    when_walked_to("z/last", move || {
        while !bytes.counts().total.is_final() {
            std::thread::yield_now();
        }
        then();
    })
}

#[test]
fn unchanged_removed_and_unreadable_files_are_counted() {
    let testbed = Testbed::new();
    testbed.write("a/kept", random_bytes(1, 50_000));
    let repository = testbed.init();
    testbed.backup(&repository);
    for (name, size) in [("a/vanishing", 1000), ("a/unreadable", 20_000), ("a/new", 300_000), ("z/last", 4_000_000)] {
        testbed.write(name, random_bytes(2, size));
    }
    let (vanishing, unreadable) = (testbed.source().join("a/vanishing"), testbed.source().join("a/unreadable"));
    let operation = Operation::new("backup", Clock::system());
    let mut options = single_walker(&testbed);
    options.exclude = Some(when_all_is_counted(operation.root().meter(Unit::Bytes), move || {
        fs::remove_file(&vanishing).expect("removes");
        fs::remove_file(&unreadable).expect("removes");
        rustix::fs::mknodat(CWD, &unreadable, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a fifo");
    }));
    let outcome = repository.backup(&options, &operation.root(), &Cancel::default()).expect("backs up");
    assert_eq!(outcome.problem_count, 1, "{:?}", outcome.problems);
    let counts = |unit| {
        let counts = operation.root().meter(unit).counts();
        (counts.done, counts.skipped, counts.failed, counts.total.value().expect("known"))
    };
    assert_eq!(counts(Unit::Files), (2, 2, 1, 5));
    assert_eq!(counts(Unit::Bytes), (4_300_000, 51_000, 20_000, 4_371_000));
}

#[test]
fn new_bytes_count_when_they_are_stored_and_existing_ones_at_once() {
    let testbed = Testbed::new();
    testbed.write("known", random_bytes(1, 50_000));
    testbed.backup(&testbed.init());
    testbed.write("a copy", random_bytes(1, 50_000));
    testbed.write("new", random_bytes(2, 300_000));
    let holding = BlockedWrites::of("data");
    let repository = open_with_fault(&testbed, holding.clone(), OpenOptions::default());
    let operation = Operation::new("backup", Clock::system());
    let bytes = operation.root().meter(Unit::Bytes);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| repository.backup(&testbed.options(), &operation.root(), &Cancel::default()));
        until("its packs are on their way", || {
            assert!(!running.is_finished(), "it ended before it was held");
            holding.is_blocking()
        });
        let counts = bytes.counts();
        holding.release();
        running.join().expect("no panic").expect("backs up");
        assert_eq!((counts.done, counts.skipped), (50_000, 50_000), "{counts:?}");
    });
    let counts = bytes.counts();
    assert_eq!((counts.done, counts.settled(), counts.total), (350_000, 400_000, Total::Final(400_000)));
}

#[test]
fn the_total_grows_during_the_scan_and_is_final_at_the_end() {
    let testbed = Testbed::new();
    testbed.write("first", random_bytes(1, 50_000));
    testbed.write("z/last", random_bytes(2, 30_000));
    let repository = testbed.init();
    let operation = Operation::new("backup", Clock::system());
    let bytes = operation.root().meter(Unit::Bytes);
    let go_on = Arc::new(AtomicBool::new(false));
    let waits = go_on.clone();
    let mut options = testbed.options();
    options.exclude = Some(Arc::new(move |path: &Path| {
        while path.ends_with("z/last") && !waits.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        false
    }));
    std::thread::scope(|scope| {
        let running = scope.spawn(|| repository.backup(&options, &operation.root(), &Cancel::default()));
        while bytes.counts().total != Total::Growing(50_000) {
            assert!(!running.is_finished(), "{:?}", bytes.counts());
            std::thread::yield_now();
        }
        let root = operation.snapshot().nodes.into_iter().next().expect("the root");
        let shown = *root.meters.iter().find(|counts| counts.unit == Unit::Bytes).expect("a meter");
        assert_eq!(shown.total, Total::Growing(50_000));
        go_on.store(true, Ordering::SeqCst);
        running.join().expect("no panic").expect("backs up");
    });
    assert_eq!((bytes.counts().done, bytes.counts().total), (80_000, Total::Final(80_000)));
}

#[test]
fn done_never_exceeds_the_total_and_is_not_close_to_a_growing_total() {
    let testbed = Testbed::new();
    for number in 0..10 {
        testbed.write(&format!("{number}"), "x");
    }
    for number in 0..3000 {
        testbed.write(&format!("many/{number}"), "xy");
    }
    let repository = testbed.init();
    testbed.backup(&repository);
    let operation = Operation::new("backup", Clock::system());
    let (files, bytes) = (operation.root().meter(Unit::Files), operation.root().meter(Unit::Bytes));
    let (walked, most, wrong) = <(Arc<AtomicBool>, Arc<AtomicU64>, Arc<Mutex<Vec<Counts>>>)>::default();
    let (is_walked, seen, found) = (walked, most.clone(), wrong.clone());
    let mut options = single_walker(&testbed);
    options.exclude = Some(Arc::new(move |path: &Path| {
        let is_among_many = path.parent().is_some_and(|above| above.ends_with("many"));
        if !is_walk() {
            while is_among_many && !is_walked.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            return false;
        }
        // The scan is not ahead: the walk's total is all, and nearly all of it is done.
        let is_shown = |counts: &Counts| counts.total != Total::Unknown;
        found.lock().expect("not poisoned").extend([files.counts(), bytes.counts()].into_iter().filter(is_shown));
        seen.fetch_max(files.counts().settled(), Ordering::SeqCst);
        is_walked.store(path.ends_with("many/999"), Ordering::SeqCst);
        false
    }));
    let outcome = repository.backup(&options, &operation.root(), &Cancel::default()).expect("backs up");
    assert_eq!((outcome.summary.files_unmodified, outcome.problem_count), (3010, 0));
    assert_eq!(most.load(Ordering::SeqCst), 3009, "the walk was at its end before the scan went on");
    let wrong = wrong.lock().expect("not poisoned");
    assert_eq!(wrong.first(), None, "{} times", wrong.len());
    assert_eq!(operation.root().meter(Unit::Files).counts().total, Total::Final(3010));
}

#[test]
fn the_total_grows_also_within_one_directory() {
    let testbed = Testbed::new();
    for number in 0..2500 {
        testbed.write(&format!("{number}"), "x");
    }
    let repository = testbed.init();
    let operation = Operation::new("backup", Clock::system());
    let files = operation.root().meter(Unit::Files);
    let (asked, seen) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
    let shown = seen.clone();
    let mut options = single_walker(&testbed);
    options.exclude = Some(Arc::new(move |_: &Path| {
        if is_walk() {
            while shown.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
        } else if asked.fetch_add(1, Ordering::SeqCst) == 2400 {
            shown.store(files.counts().total.value().unwrap_or(1), Ordering::SeqCst);
        }
        false
    }));
    repository.backup(&options, &operation.root(), &Cancel::default()).expect("backs up");
    assert_eq!(seen.load(Ordering::SeqCst), 2000);
}

#[test]
fn a_target_behind_a_link_is_counted() {
    let testbed = Testbed::new();
    testbed.write("file", random_bytes(1, 1000));
    testbed.write("d/file", random_bytes(2, 2000));
    let link = testbed.path("link");
    symlink(testbed.source(), &link).expect("a link");
    let repository = testbed.init();
    for only in [None, Some("d".into())] {
        let expected = if only.is_some() { 2000 } else { 3000 };
        let mut options = single_walker(&testbed);
        options.target = plimsoll_repository::backup::Target::Placed { directory: link.clone(), at: "/".into(), only };
        let operation = Operation::new("backup", Clock::system());
        let bytes = operation.root().meter(Unit::Bytes);
        let known = Arc::new(Mutex::new(Total::Unknown));
        let total = known.clone();
        options.exclude = Some(when_walked_to("d/file", move || {
            while !bytes.counts().total.is_final() {
                std::thread::yield_now();
            }
            *total.lock().expect("not poisoned") = bytes.counts().total;
        }));
        let outcome = repository.backup(&options, &operation.root(), &Cancel::default()).expect("backs up");
        assert_eq!((outcome.problem_count, outcome.summary.total_bytes_processed), (0, expected));
        assert_eq!(*known.lock().expect("not poisoned"), Total::Final(expected), "before it was read");
    }
}
