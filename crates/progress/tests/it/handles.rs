//! Handles: what happens when work stops, ends twice, or outlives its parent.

use plimsoll_progress::{Clock, Ending, Node, Operation, State, Total, Unit};

fn operation() -> Operation {
    Operation::new("backup-x", Clock::system())
}

fn node(operation: &Operation, path: &str) -> Node {
    operation.snapshot().node(path).expect("there").clone()
}

#[test]
fn a_task_whose_last_handle_is_dropped_is_interrupted() {
    let operation = operation();
    let task = operation.root().child("volume");
    let clone = task.clone();
    drop(task);
    assert_eq!(node(&operation, "volume").state, State::Running, "a handle is still held");
    drop(clone);
    let node = node(&operation, "volume");
    assert_eq!((node.state, node.reason.as_deref()), (State::Interrupted, Some("its work stopped without a word")));
}

#[test]
fn a_task_whose_work_panics_says_so() {
    let operation = operation();
    let task = operation.root().child("volume");
    let result = std::thread::spawn(move || {
        let _task = task;
        std::panic::resume_unwind(Box::new("on purpose"));
    })
    .join();
    assert!(result.is_err());
    assert_eq!(node(&operation, "volume").reason.as_deref(), Some("its work panicked"));
}

#[test]
fn children_meters_and_waits_keep_their_task_from_being_interrupted() {
    let operation = operation();
    let child = operation.root().child("a").child("b");
    let meter = operation.root().child("c").meter(Unit::Items);
    let wait = operation.root().child("d").wait("waiting for a pod");
    for path in ["a", "c", "d"] {
        assert!(node(&operation, path).state.is_active(), "{path}");
    }
    drop((child, meter, wait));
    for path in ["a", "a/b", "c", "d"] {
        assert_eq!(node(&operation, path).state, State::Interrupted, "{path}");
    }
}

#[test]
fn an_observer_does_not_keep_an_operation_alive() {
    let operation = operation();
    let observer = operation.observer();
    assert_eq!(observer.snapshot().state(), State::Running);
    drop(operation);
    assert_eq!(observer.snapshot().state(), State::Interrupted);
}

#[test]
fn the_first_ending_counts_and_nothing_changes_after_it() {
    let operation = operation();
    let task = operation.root().child("volume");
    let meter = task.meter(Unit::Bytes);
    meter.add(3);
    task.fail("disk full");
    task.finish();
    task.say("something");
    meter.add(4);
    let node = node(&operation, "volume");
    assert_eq!((node.state, node.reason.as_deref(), node.item), (State::Failed, Some("disk full"), None));
    assert_eq!(node.meters[0].done, 3);
}

#[test]
fn when_an_operation_ends_so_does_everything_below() {
    let operation = operation();
    let stage = operation.root().child("stage");
    let volume = stage.child("volume");
    operation.end(Ending::Cancelled("the user asked".into()));
    assert_eq!(node(&operation, "stage/volume").state, State::Interrupted);
    let late = volume.child("late");
    assert_eq!(late.state(), State::Interrupted, "over before it began");
}

#[test]
fn two_tasks_of_one_name_are_told_apart_even_if_names_hold_slashes() {
    let operation = operation();
    let tasks = [operation.root().child("a"), operation.root().child("a"), operation.root().child("a/b")];
    let inner = tasks[0].child("b");
    let paths: Vec<String> = operation.snapshot().nodes.iter().map(|node| node.path.to_string()).collect();
    assert_eq!(paths, ["", "a", "a/b#2", "a#2", "a/b"]);
    assert_eq!(inner.name(), "b#2");
    assert_eq!(node(&operation, "a/b").parent_path(), Some(""));
}

#[test]
fn the_latest_reason_to_wait_is_shown_until_all_are_gone() {
    let operation = operation();
    let task = operation.root().child("volume");
    let first = task.wait("waiting for the pod");
    let second = task.wait("waiting for the volume");
    assert_eq!(node(&operation, "volume").reason.as_deref(), Some("waiting for the volume"));
    drop(second);
    assert_eq!(node(&operation, "volume").reason.as_deref(), Some("waiting for the pod"));
    drop(first);
    let node = node(&operation, "volume");
    assert_eq!((node.state, node.reason), (State::Running, None));
}

#[test]
fn a_final_total_stays_and_what_is_counted_beyond_it_is_kept_apart() {
    let operation = operation();
    let meter = operation.root().meter(Unit::Items);
    assert!(meter.set_total(Total::Final(2)));
    assert!(!meter.set_total(Total::Final(9)) && !meter.grow_total(1) && !meter.finalize_total());
    meter.add(2);
    operation.snapshot();
    meter.fail(1);
    let counts = operation.snapshot().nodes[0].meters[0];
    assert_eq!((counts.done, counts.failed, counts.total, counts.overrun), (2, 0, Total::Final(2), 1));
}

#[test]
fn what_is_missing_at_a_good_end_is_named_and_not_invented() {
    let operation = operation();
    let task = operation.root().child("volume");
    let meter = task.meter(Unit::Bytes);
    meter.set_total(Total::Final(10));
    meter.add(7);
    task.finish();
    let counts = node(&operation, "volume").meters[0];
    assert_eq!((counts.done, counts.total, counts.shortfall), (7, Total::Final(7), 3));
}

#[test]
fn a_log_line_cannot_smuggle_escapes_or_fill_the_tree() {
    let operation = operation();
    let task = operation.root().child("volume\u{1b}[31m\n");
    task.hint("x".repeat(100_000));
    let snapshot = operation.snapshot();
    assert_eq!(&*snapshot.nodes[1].name, "volume [31m");
    assert_eq!(snapshot.nodes[1].hint.as_ref().map(|hint| hint.chars().count()), Some(512));
}
