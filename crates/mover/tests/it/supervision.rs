//! Processes: who dies with whom, who is silent, who talks nonsense, and what nobody may overhear.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll_mover::{Job, Launch, Outcome, Secret, Work, spawn, spawn_at};
use plimsoll_progress::{Clock, Operation, StallReason, State, VirtualClock};
use plimsoll_testkit::process::Process;
use plimsoll_testkit::require;
use plimsoll_testkit::wait::until_blocking;
use rustix::process::Signal;

use crate::bed::{Bed, Where, Which};
use crate::volume::{fill, fill_much};

fn shell(text: &str) -> Launch {
    Launch { program: "sh".into(), arguments: vec!["-c".into(), text.into()] }
}

#[test]
fn a_process_that_ends_without_a_verdict_is_named_with_its_exit_code_and_last_words() {
    let mut bed = require!(Bed::bare(Which::BuiltIn, Where::Directory));
    bed.launch = shell("echo 'out of cheese' >&2; exit 7");
    let error = bed.run(bed.backup_work()).unwrap_err();
    assert_eq!(error.reason(), "MoverDied");
    assert!(error.to_string().contains("exit code 7") && error.to_string().contains("out of cheese"), "{error}");
    bed.launch = shell("kill -9 $$");
    let error = bed.run(bed.backup_work()).unwrap_err();
    assert!(error.to_string().contains("signal 9"), "{error}");
}

#[test]
fn garbage_on_standard_output_is_named_and_ends_the_process() {
    let mut bed = require!(Bed::bare(Which::BuiltIn, Where::Directory));
    bed.launch = shell("echo 'hello there'; exec sleep 1000");
    let mut pid = 0;
    let error = bed.watch(&bed.job(bed.backup_work()), |sample| pid = sample.pid).unwrap_err();
    assert_eq!(error.reason(), "MoverGarbage");
    assert!(error.to_string().contains("hello there"), "{error}");
    assert!(!Process::find(pid).is_some_and(Process::is_alive));
}

#[test]
fn a_verdict_may_be_long_and_nothing_else_may() {
    let bed = require!(Bed::bare(Which::BuiltIn, Where::Directory));
    // As long as the list of sixty thousand snapshots.
    let said = |beginning: &str, end: &str| {
        let launch = shell(&format!("printf '{beginning}'; head -c 40000000 /dev/zero | tr '\\0' ' '; echo '{end}'"));
        let operation = Operation::new("parent", Clock::system());
        let job = bed.job(Work::Snapshots);
        bed.runtime.block_on(async { spawn(&launch, &job, &operation.root()).unwrap().wait().await })
    };
    assert_eq!(said(r#"{"verdict":"#, r#"{"snapshots":[]}}"#), Ok(Outcome::Snapshots(Vec::new())));
    assert_eq!(said("{", "}").unwrap_err().reason(), "MoverGarbage");
}

#[test]
fn a_process_that_ignores_a_cancel_is_killed_within_five_seconds() {
    let mut bed = require!(Bed::bare(Which::BuiltIn, Where::Directory));
    bed.launch = shell("trap '' INT TERM; sleep 1000 & wait");
    let mut asked = None;
    let result = bed.watch(&bed.job(bed.backup_work()), |sample| {
        asked.get_or_insert_with(|| {
            sample.canceller.cancel();
            Instant::now()
        });
    });
    assert_eq!(result.unwrap_err().reason(), "Cancelled");
    assert!(asked.unwrap().elapsed() < Duration::from_secs(5));
}

#[test]
fn a_mover_that_falls_silent_is_a_stall_by_name() {
    let bed = require!(Bed::new(Which::BuiltIn, Where::Directory));
    fill_much(&bed.source());
    let clock = VirtualClock::new();
    let operation = Operation::new("parent", clock.clock());
    let volume = operation.root().child("volume data");
    bed.runtime.block_on(async {
        let transfer = spawn(&bed.launch, &bed.job(bed.backup_work()), &volume).unwrap();
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
fn a_mover_that_was_killed_looks_at_work_no_more_and_the_next_one_takes_its_place() {
    let bed = require!(Bed::new(Which::BuiltIn, Where::Directory));
    fill_much(&bed.source());
    let clock = VirtualClock::new();
    let operation = Operation::new("parent", clock.clock());
    let volume = operation.root().child("volume data");
    let (place, mut job) = (volume.graft("built-in"), bed.job(bed.backup_work()));
    bed.runtime.block_on(async {
        let transfer = spawn_at(&bed.launch, &job, &place).unwrap();
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
        let waiting = volume.wait_in_queue("waiting to try again");
        clock.advance(Duration::from_mins(2));
        let snapshot = operation.snapshot();
        assert_eq!(snapshot.node("volume data/built-in").map(|node| node.state), Some(State::Interrupted));
        assert_eq!(snapshot.stall, None, "nobody waits for a word of the dead");
        drop(waiting);

        job.epoch += 1;
        spawn_at(&bed.launch, &job, &place).unwrap().wait().await.unwrap();
        let snapshot = operation.snapshot();
        let shown: Vec<_> = snapshot.nodes.iter().skip(2).map(|node| (&*node.path, node.state)).collect();
        assert_eq!(shown, [("volume data/built-in", State::Done)]);
    });
}

/// Not a test: the process that the next test kills.
#[test]
#[ignore = "started by the test that kills it"]
fn a_parent_that_will_be_killed() {
    let job: Job =
        serde_json::from_slice(&std::fs::read(std::env::var_os("PLIMSOLL_TEST_JOB").unwrap()).unwrap()).unwrap();
    let launch = Launch { program: env!("CARGO_BIN_EXE_plimsoll-mover").into(), arguments: Vec::new() };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let operation = Operation::new("parent", Clock::system());
        spawn(&launch, &job, &operation.root()).unwrap().wait().await.unwrap();
    });
}

#[test]
fn a_parent_that_is_killed_takes_the_mover_and_its_program_along_and_leaves_no_secret() {
    for which in [Which::Restic, Which::Kopia] {
        let mut bed = require!(Bed::new(which, Where::Directory));
        // A program that never ends, so that only being killed ends it.
        let real = bed.program.clone().unwrap();
        let text =
            format!("for word; do [ \"$word\" = --json ] && exec sleep 1000; done; exec {} \"$@\"", real.display());
        bed.program = Some(crate::failures::script(&bed, &text));
        fill(&bed.source());
        let file = bed.path("job");
        std::fs::write(&file, serde_json::to_vec(&bed.job(bed.backup_work())).unwrap()).unwrap();
        let mut parent = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "supervision::a_parent_that_will_be_killed", "--ignored"])
            .env("PLIMSOLL_TEST_JOB", &file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (mover, program) = until_blocking("the program at work", Duration::from_secs(20), || {
            let mover = Process::find(parent.id())?.children().into_iter().next()?;
            let program = mover.children().into_iter().find(|one| runs(*one, "sleep"))?;
            Some((mover, program))
        })
        .unwrap();
        assert!(!secrets_of(mover).is_empty(), "it has files to lose");
        parent.kill().unwrap();
        parent.wait().unwrap();
        let gone = || (!mover.is_alive() && !program.is_alive()).then_some(());
        until_blocking("their end", Duration::from_secs(5), gone).unwrap();
        assert_eq!(secrets_of(mover), Vec::<String>::new());
    }
}

#[test]
fn a_mover_that_is_killed_takes_its_program_along_and_its_secrets_are_swept() {
    let mut bed = require!(Bed::new(Which::Restic, Where::Directory));
    let real = bed.program.clone().unwrap();
    let text = format!("for word; do [ \"$word\" = --json ] && exec sleep 1000; done; exec {} \"$@\"", real.display());
    bed.program = Some(crate::failures::script(&bed, &text));
    fill(&bed.source());
    let mut found = None;
    let result = bed.watch(&bed.job(bed.backup_work()), |sample| {
        let Some(mover) = Process::find(sample.pid).filter(|_| found.is_none()) else { return };
        if let Some(program) = mover.children().into_iter().find(|one| runs(*one, "sleep")) {
            found = Some((mover, program));
            mover.signal(Signal::KILL).unwrap();
        }
    });
    assert_eq!(result.unwrap_err().reason(), "MoverDied");
    let (mover, program) = found.unwrap();
    until_blocking("its end", Duration::from_secs(5), || (!program.is_alive()).then_some(())).unwrap();
    assert_eq!(secrets_of(mover), Vec::<String>::new());
}

fn runs(process: Process, name: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{}/comm", process.id())).is_ok_and(|found| found.trim() == name)
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

/// Runs a job with this password, and looks at every process of it, as everybody can, all the time.
fn overhear(bed: &Bed, work: Work, password: &str) -> Outcome {
    let mut job = bed.job(work);
    job.repository.password = Secret::new(password);
    let mut programs = 0;
    let outcome = bed.watch(&job, |sample| {
        let family = family(sample.pid);
        // All but the mover itself.
        programs += family.len().saturating_sub(1);
        for process in family {
            for file in ["cmdline", "environ"] {
                let text = std::fs::read(format!("/proc/{}/{file}", process.id())).unwrap_or_default();
                let text = String::from_utf8_lossy(&text);
                assert!(!text.contains(password), "{file} shows the password");
                let secret_key = plimsoll_testkit::peers::s3::SECRET_KEY;
                assert!(!text.contains(secret_key), "{file} shows the secret key");
            }
        }
    });
    assert!(programs > 5, "looked at {programs} programs only: {:?}", job.work);
    outcome.unwrap()
}

#[test]
fn no_process_shows_a_password_or_a_key_while_a_transfer_runs() {
    for which in [Which::OldRestic, Which::Restic, Which::Kopia] {
        let bed = require!(Bed::bare(which, Where::S3));
        let password = format!("very-secret-{}-{}", std::process::id(), which.kind().name());
        fill_much(&bed.source());
        overhear(&bed, Work::Ensure, &password);
        let Outcome::Backup(done) = overhear(&bed, bed.backup_work(), &password) else { panic!("a backup") };
        let snapshot = done.snapshot.unwrap();
        overhear(&bed, bed.restore_work(&snapshot), &password);
        overhear(&bed, Work::Forget { snapshots: vec![snapshot] }, &password);
    }
}

fn family(pid: u32) -> Vec<Process> {
    let Some(mover) = Process::find(pid) else { return Vec::new() };
    let mut family = mover.children();
    family.push(mover);
    family
}
