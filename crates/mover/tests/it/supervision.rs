//! Supervision of processes: their end, silence, protocol errors, and the secrecy of passwords.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use plimsoll_mover::{Job, MoverCommand, Outcome, Secret, Work, spawn, spawn_at};
use plimsoll_progress::{Clock, Operation, StallReason, State, VirtualClock};
use plimsoll_testkit::process::Process;
use plimsoll_testkit::wait::{WAIT_TIMEOUT, until_blocking};
use plimsoll_testkit::{Stopwatch, require};
use rustix::process::Signal;

use crate::testbed::{StoreKind, TestMover, Testbed};
use crate::volume::{fill, fill_large};

fn shell(text: &str) -> MoverCommand {
    MoverCommand { program: "sh".into(), arguments: vec!["-c".into(), text.into()] }
}

#[test]
fn a_process_without_a_result_is_reported_with_its_exit_code_and_last_log_line() {
    let mut bed = require!(Testbed::without_repository(TestMover::BuiltIn, StoreKind::Directory));
    bed.command = shell("echo 'out of memory' >&2; exit 7");
    let error = bed.run(bed.backup_work()).unwrap_err();
    assert_eq!(error.reason(), "MoverDied");
    assert!(error.to_string().contains("exit code 7") && error.to_string().contains("out of memory"), "{error}");
    bed.command = shell("kill -9 $$");
    let error = bed.run(bed.backup_work()).unwrap_err();
    assert!(error.to_string().contains("signal 9"), "{error}");
}

#[test]
fn an_invalid_line_is_a_protocol_error_and_ends_the_process() {
    let mut bed = require!(Testbed::without_repository(TestMover::BuiltIn, StoreKind::Directory));
    bed.command = shell("echo 'hello there'; exec sleep 1000");
    let mut pid = 0;
    let error = bed.watch(&bed.job(bed.backup_work()), |sample| pid = sample.pid).unwrap_err();
    assert_eq!(error.reason(), "MoverProtocolError");
    assert!(error.to_string().contains("hello there"), "{error}");
    assert!(!Process::find(pid).is_some_and(Process::is_alive));
}

#[test]
fn a_result_may_be_longer_than_other_lines() {
    let bed = require!(Testbed::without_repository(TestMover::BuiltIn, StoreKind::Directory));
    // As long as a list of sixty thousand snapshots.
    let result_of = |beginning: &str, end: &str| {
        let command = shell(&format!("printf '{beginning}'; head -c 40000000 /dev/zero | tr '\\0' ' '; echo '{end}'"));
        let operation = Operation::new("parent", Clock::system());
        let job = bed.job(Work::Snapshots);
        bed.runtime.block_on(async { spawn(&command, &job, &operation.root()).unwrap().wait().await })
    };
    assert_eq!(result_of(r#"{"outcome":"#, r#"{"snapshots":[]}}"#), Ok(Outcome::Snapshots(Vec::new())));
    assert_eq!(result_of("{", "}").unwrap_err().reason(), "MoverProtocolError");
}

#[test]
fn a_process_that_ignores_a_cancel_is_killed_within_five_seconds() {
    let mut bed = require!(Testbed::without_repository(TestMover::BuiltIn, StoreKind::Directory));
    bed.command = shell("trap '' INT TERM; sleep 1000 & wait");
    let mut cancelled_at = None;
    let result = bed.watch(&bed.job(bed.backup_work()), |sample| {
        cancelled_at.get_or_insert_with(|| {
            sample.canceller.cancel();
            Stopwatch::start()
        });
    });
    assert_eq!(result.unwrap_err().reason(), "Cancelled");
    assert!(cancelled_at.unwrap().elapsed() < Duration::from_secs(5));
}

#[test]
fn a_mover_without_frames_is_a_stall() {
    let bed = require!(Testbed::new(TestMover::BuiltIn, StoreKind::Directory));
    fill_large(&bed.source());
    let clock = VirtualClock::new();
    let operation = Operation::new("parent", clock.clock());
    let volume = operation.root().child("volume data");
    bed.runtime.block_on(async {
        let transfer = spawn(&bed.command, &bed.job(bed.backup_work()), &volume).unwrap();
        let process = Process::find(transfer.id().unwrap()).unwrap();
        let mut end = std::pin::pin!(transfer.wait());
        loop {
            tokio::select! {
                result = &mut end => panic!("ended before it could be stopped: {result:?}"),
                () = tokio::time::sleep(Duration::from_millis(10)) => {}
            }
            if operation.snapshot().node("volume data/built-in").is_some() {
                break;
            }
        }
        process.signal(Signal::STOP).unwrap();
        clock.advance(Duration::from_mins(2));
        let stall = operation.snapshot().stall.unwrap();
        assert_eq!(stall.reason, StallReason::NoReport);
        assert!(stall.task.contains("volume data"), "{stall:?}");
    });
}

#[test]
fn a_killed_mover_is_interrupted_and_replaced_by_the_next_attempt() {
    let bed = require!(Testbed::new(TestMover::BuiltIn, StoreKind::Directory));
    fill_large(&bed.source());
    let clock = VirtualClock::new();
    let operation = Operation::new("parent", clock.clock());
    let volume = operation.root().child("volume data");
    let (graft, mut job) = (volume.graft("built-in"), bed.job(bed.backup_work()));
    bed.runtime.block_on(async {
        let transfer = spawn_at(&bed.command, &job, &graft).unwrap();
        let process = Process::find(transfer.id().unwrap()).unwrap();
        let mut end = std::pin::pin!(transfer.wait());
        let killed = loop {
            tokio::select! {
                result = &mut end => break result,
                () = tokio::time::sleep(Duration::from_millis(10)) => {}
            }
            if operation.snapshot().node("volume data/built-in").is_some() {
                process.signal(Signal::KILL).unwrap();
            }
        };
        assert_eq!(killed.unwrap_err().reason(), "MoverDied");
        let waiting = volume.wait_in_queue("waiting to retry");
        clock.advance(Duration::from_mins(2));
        let snapshot = operation.snapshot();
        assert_eq!(snapshot.node("volume data/built-in").map(|node| node.state), Some(State::Interrupted));
        assert_eq!(snapshot.stall, None, "an interrupted task is not a stall");
        drop(waiting);

        job.epoch += 1;
        spawn_at(&bed.command, &job, &graft).unwrap().wait().await.unwrap();
        let snapshot = operation.snapshot();
        let shown: Vec<_> = snapshot.nodes.iter().skip(2).map(|node| (&*node.path, node.state)).collect();
        assert_eq!(shown, [("volume data/built-in", State::Done)]);
    });
}

/// The process that the next test kills.
#[test]
#[ignore = "started by the test that kills it"]
fn parent_process() {
    let job: Job =
        serde_json::from_slice(&std::fs::read(std::env::var_os("PLIMSOLL_TEST_JOB").unwrap()).unwrap()).unwrap();
    let command = MoverCommand { program: env!("CARGO_BIN_EXE_plimsoll-mover").into(), arguments: Vec::new() };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let operation = Operation::new("parent", Clock::system());
        spawn(&command, &job, &operation.root()).unwrap().wait().await.unwrap();
    });
}

#[test]
fn mover_and_program_die_with_their_parent_and_leave_no_secrets() {
    for mover_kind in [TestMover::Restic, TestMover::Kopia] {
        let mut bed = require!(Testbed::new(mover_kind, StoreKind::Directory));
        // A program that ends only when it is killed.
        let real = bed.program.clone().unwrap();
        let text =
            format!("for word; do [ \"$word\" = --json ] && exec sleep 1000; done; exec {} \"$@\"", real.display());
        bed.program = Some(crate::failures::script(&bed, &text));
        fill(&bed.source());
        let file = bed.path("job");
        std::fs::write(&file, serde_json::to_vec(&bed.job(bed.backup_work())).unwrap()).unwrap();
        let mut parent = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "supervision::parent_process", "--ignored"])
            .env("PLIMSOLL_TEST_JOB", &file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (mover, program) = until_blocking("the running program", WAIT_TIMEOUT, || {
            let mover = Process::find(parent.id())?.children().into_iter().next()?;
            let program = mover.children().into_iter().find(|one| runs(*one, "sleep"))?;
            Some((mover, program))
        })
        .unwrap();
        assert!(!secrets_of(mover).is_empty(), "it has secret files");
        parent.kill().unwrap();
        parent.wait().unwrap();
        let ended = || (!mover.is_alive() && !program.is_alive()).then_some(());
        until_blocking("their end", WAIT_TIMEOUT, ended).unwrap();
        assert_eq!(secrets_of(mover), Vec::<String>::new());
    }
}

/// The pipe breaks before the mover sees that its parent is gone.
#[test]
fn a_mover_whose_output_is_closed_leaves_no_secrets() {
    let mut bed = require!(Testbed::new(TestMover::Restic, StoreKind::Directory));
    let real = bed.program.clone().unwrap();
    let text = format!("for word; do [ \"$word\" = --json ] && exec sleep 1000; done; exec {} \"$@\"", real.display());
    bed.program = Some(crate::failures::script(&bed, &text));
    fill(&bed.source());
    let mut mover = Command::new(&bed.command.program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    let mut input = mover.stdin.take().unwrap();
    let job = serde_json::to_string(&bed.job(bed.backup_work())).unwrap();
    input.write_all(format!("{job}\n").as_bytes()).unwrap();
    let process = Process::find(mover.id()).unwrap();
    let runs_program = || process.children().into_iter().find(|one| runs(*one, "sleep"));
    let program = until_blocking("the running program", WAIT_TIMEOUT, runs_program).unwrap();
    assert!(!secrets_of(process).is_empty(), "it has secret files");
    drop(mover.stdout.take());
    mover.wait().unwrap();
    until_blocking("the end of the program", WAIT_TIMEOUT, || (!program.is_alive()).then_some(())).unwrap();
    assert_eq!(secrets_of(process), Vec::<String>::new());
}

#[test]
fn a_program_dies_with_its_mover_and_its_secrets_are_removed() {
    let mut bed = require!(Testbed::new(TestMover::Restic, StoreKind::Directory));
    let real = bed.program.clone().unwrap();
    let text = format!("for word; do [ \"$word\" = --json ] && exec sleep 1000; done; exec {} \"$@\"", real.display());
    bed.program = Some(crate::failures::script(&bed, &text));
    fill(&bed.source());
    let mut processes = None;
    let result = bed.watch(&bed.job(bed.backup_work()), |sample| {
        let Some(mover) = Process::find(sample.pid).filter(|_| processes.is_none()) else { return };
        if let Some(program) = mover.children().into_iter().find(|one| runs(*one, "sleep")) {
            processes = Some((mover, program));
            mover.signal(Signal::KILL).unwrap();
        }
    });
    assert_eq!(result.unwrap_err().reason(), "MoverDied");
    let (mover, program) = processes.unwrap();
    until_blocking("its end", WAIT_TIMEOUT, || (!program.is_alive()).then_some(())).unwrap();
    assert_eq!(secrets_of(mover), Vec::<String>::new());
}

fn runs(process: Process, name: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{}/comm", process.id())).is_ok_and(|comm| comm.trim() == name)
}

/// The private directories of a mover.
fn secrets_of(process: Process) -> Vec<String> {
    let marker = format!("-{}-", process.id());
    let folders = [Path::new("/dev/shm").to_owned(), std::env::temp_dir()];
    let names = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()).filter_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        (name.starts_with("plimsoll-mover-") && name.contains(&marker)).then_some(name)
    });
    names.collect()
}

/// Runs a job with this password and checks arguments and environment of its processes all the time.
fn run_without_leaks(bed: &Testbed, work: Work, password: &str) -> Outcome {
    let mut job = bed.job(work);
    job.repository.password = Secret::new(password);
    let mut programs = 0;
    let outcome = bed.watch(&job, |sample| {
        let processes = process_tree(sample.pid);
        // Without the mover itself.
        programs += processes.len().saturating_sub(1);
        for process in processes {
            for file in ["cmdline", "environ"] {
                let text = std::fs::read(format!("/proc/{}/{file}", process.id())).unwrap_or_default();
                let text = String::from_utf8_lossy(&text);
                assert!(!text.contains(password), "{file} shows the password");
                let secret_key = plimsoll_testkit::peers::s3::SECRET_KEY;
                assert!(!text.contains(secret_key), "{file} shows the secret key");
            }
        }
    });
    assert!(programs > 5, "checked {programs} programs only: {:?}", job.work);
    outcome.unwrap()
}

#[test]
fn no_process_shows_a_password_or_a_key_while_a_transfer_runs() {
    for mover_kind in [TestMover::OldRestic, TestMover::Restic, TestMover::Kopia] {
        let bed = require!(Testbed::without_repository(mover_kind, StoreKind::S3));
        let password = format!("very-secret-{}-{}", std::process::id(), mover_kind.kind().name());
        fill_large(&bed.source());
        run_without_leaks(&bed, Work::Ensure, &password);
        let Outcome::Backup(done) = run_without_leaks(&bed, bed.backup_work(), &password) else { panic!("a backup") };
        let snapshot = done.snapshot.unwrap();
        run_without_leaks(&bed, bed.restore_work(&snapshot), &password);
        run_without_leaks(&bed, Work::Forget { snapshots: vec![snapshot] }, &password);
    }
}

fn process_tree(pid: u32) -> Vec<Process> {
    let Some(mover) = Process::find(pid) else { return Vec::new() };
    let mut processes = mover.children();
    processes.push(mover);
    processes
}
