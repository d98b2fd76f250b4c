//! Runs the test binaries of one build side by side and reports where the time went.
//!
//! ```text
//! run-tests <artifacts> [--part <name>=<seconds>]... [-- <arguments of every test binary>]
//! ```
//! `<artifacts>` is what `cargo test --no-run --message-format json` printed. Called by `hack/run-tests`.
//!
//! `cargo test` runs one binary after another, and most tests wait for other processes most of the time: two binaries at once
//! keep the cores busy. The test binaries report the time of each test only with an unstable option, which the environment
//! variable `RUSTC_BOOTSTRAP` permits at run time.

#![expect(clippy::print_stdout, reason = "a command line tool for developers")]

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::Deserialize;

/// How many test binaries run at once.
const LANES: usize = 2;
/// The longest suites start first, so that none of them runs alone at the end.
const LONGEST_FIRST: [&str; 5] = ["cli it", "testkit it", "mover it", "repository it", "local it"];
/// Its tests wait for servers, agents and pods for a fifth of their time: one more than the machine has cores keeps the cores busy.
const WAITING_SUITE: &str = "cli it";
const REPORT_INTERVAL: Duration = Duration::from_secs(30);
const SLOWEST_TESTS: usize = 20;
/// With `PLIMSOLL_TEST_RETRY`, at most this many failed tests are run once more, alone. More failures are not flakiness.
const MAX_RETRIED_TESTS: usize = 3;

fn main() -> Result<ExitCode> {
    let options = Options::from_arguments(std::env::args().skip(1))?;
    let artifacts = fs::read_to_string(&options.artifacts)
        .with_context(|| format!("failed to read {}", options.artifacts.display()))?;
    let suites = find_suites(&artifacts);
    anyhow::ensure!(!suites.is_empty(), "{} names no test binary", options.artifacts.display());
    let logs = options.artifacts.with_file_name("test-logs");
    fs::create_dir_all(&logs)?;
    let run = Run {
        count: suites.len(),
        queue: Mutex::new(suites.into()),
        running: Mutex::default(),
        results: Mutex::default(),
        started: Instant::now(),
        logs,
        arguments: options.arguments,
    };
    run.execute();
    let mut results = std::mem::take(&mut *lock(&run.results));
    if std::env::var_os("PLIMSOLL_TEST_RETRY").is_some() {
        run.retry_failed(&mut results);
    }
    Ok(report(&results, &options.parts))
}

/// The command line.
struct Options {
    artifacts: PathBuf,
    /// Earlier steps with their duration in seconds, listed with the rest.
    parts: Vec<(String, f64)>,
    arguments: Vec<String>,
}

impl Options {
    fn from_arguments(mut given: impl Iterator<Item = String>) -> Result<Self> {
        let artifacts = given.next().context("usage: run-tests <artifacts> [--part <name>=<seconds>]... [-- ...]")?;
        let mut options = Self { artifacts: artifacts.into(), parts: Vec::new(), arguments: Vec::new() };
        while let Some(argument) = given.next() {
            match argument.as_str() {
                "--part" => {
                    let part = given.next().context("--part needs <name>=<seconds>")?;
                    let (name, seconds) = part.split_once('=').context("--part needs <name>=<seconds>")?;
                    options.parts.push((name.to_owned(), seconds.parse()?));
                }
                "--" => options.arguments = given.by_ref().collect(),
                other => anyhow::bail!("unknown argument {other}"),
            }
        }
        Ok(options)
    }
}

/// One line of what cargo prints about a build.
#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// One test binary.
#[derive(Debug, Clone)]
struct Suite {
    /// The crate's directory and the target: `cli it`, `progress lib`.
    name: String,
    executable: PathBuf,
    /// Where cargo would run it.
    directory: PathBuf,
}

fn find_suites(artifacts: &str) -> Vec<Suite> {
    let mut suites: Vec<Suite> = artifacts.lines().filter_map(find_suite).collect();
    suites.sort_by_key(|suite| {
        let longest = LONGEST_FIRST.iter().position(|name| *name == suite.name);
        (longest.unwrap_or(LONGEST_FIRST.len()), suite.name.clone())
    });
    suites
}

fn find_suite(line: &str) -> Option<Suite> {
    let artifact: Artifact = serde_json::from_str(line).ok()?;
    let executable = artifact.executable.filter(|_| artifact.profile.test)?;
    let directory = artifact.manifest_path.parent()?.to_owned();
    let package = directory.file_name()?.to_string_lossy().into_owned();
    let target = match artifact.target.kind.first()?.as_str() {
        "lib" => "lib".to_owned(),
        _ => artifact.target.name,
    };
    Some(Suite { name: format!("{package} {target}"), executable, directory })
}

/// How a suite ended.
#[derive(Debug)]
struct SuiteResult {
    suite: Suite,
    name: String,
    time: Duration,
    succeeded: bool,
    tests: Vec<TestResult>,
    passed: usize,
    failed: usize,
    ignored: usize,
}

#[derive(Debug, Clone, PartialEq)]
struct TestResult {
    name: String,
    failed: bool,
    seconds: f64,
}

struct Run {
    count: usize,
    queue: Mutex<VecDeque<Suite>>,
    /// Names and logs of the suites that run now.
    running: Mutex<Vec<(String, PathBuf)>>,
    results: Mutex<Vec<SuiteResult>>,
    started: Instant,
    logs: PathBuf,
    arguments: Vec<String>,
}

impl Run {
    fn execute(&self) {
        thread::scope(|scope| {
            let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(|| self.run_lane())).collect();
            let mut reported = Instant::now();
            while lanes.iter().any(|lane| !lane.is_finished()) {
                thread::sleep(Duration::from_millis(200));
                if reported.elapsed() >= REPORT_INTERVAL {
                    reported = Instant::now();
                    self.report_progress();
                }
            }
        });
    }

    fn run_lane(&self) {
        loop {
            let next = lock(&self.queue).pop_front();
            let Some(suite) = next else { return };
            let log = self.logs.join(format!("{}.log", suite.name.replace(' ', "-")));
            lock(&self.running).push((suite.name.clone(), log.clone()));
            let result = self.run_suite(suite, &log);
            lock(&self.running).retain(|(name, _)| *name != result.name);
            print_suite(&result, &log);
            lock(&self.results).push(result);
        }
    }

    fn run_suite(&self, suite: Suite, log: &Path) -> SuiteResult {
        let started = Instant::now();
        let status = start_suite(&suite, &self.arguments, log);
        let succeeded = match &status {
            Ok(status) => status.success(),
            Err(error) => {
                println!("== {}: {error:#}", suite.name);
                false
            }
        };
        let text = fs::read_to_string(log).unwrap_or_default();
        let tests: Vec<TestResult> = text.lines().filter_map(parse_test).collect();
        let summary = text.lines().rev().find_map(parse_summary);
        let (passed, failed, ignored) = summary.unwrap_or((0, usize::from(!succeeded), 0));
        // A binary that died in the middle has no summary: it failed, whatever its exit code.
        let succeeded = succeeded && summary.is_some();
        let name = suite.name.clone();
        SuiteResult { suite, name, time: started.elapsed(), succeeded, tests, passed, failed, ignored }
    }

    /// Runs a few failed tests once more, alone. Those that pass then are named, and no longer fail the run.
    fn retry_failed(&self, results: &mut [SuiteResult]) {
        let failed: usize = results.iter().map(|suite| suite.failed).sum();
        if failed > MAX_RETRIED_TESTS {
            return;
        }
        for result in results.iter_mut().filter(|result| !result.succeeded) {
            let names: Vec<String> = result.tests.iter().filter(|t| t.failed).map(|t| t.name.clone()).collect();
            if names.is_empty() {
                continue;
            }
            let arguments: Vec<String> = ["--exact".to_owned()].into_iter().chain(names.iter().cloned()).collect();
            let log = self.logs.join("retry.log");
            let passed = start_suite(&result.suite, &arguments, &log).is_ok_and(|status| status.success());
            println!("== {}: {} alone: {}", result.name, if passed { "passed" } else { "failed" }, names.join(", "));
            if passed {
                println!("== UNSTEADY: {}", names.join(", "));
                result.succeeded = true;
                result.passed += result.failed;
                result.failed = 0;
                result.tests.iter_mut().for_each(|test| test.failed = false);
            }
        }
    }

    fn report_progress(&self) {
        let ended = lock(&self.results).len();
        let running = lock(&self.running).iter().map(|(name, log)| describe_running(name, log)).collect::<Vec<_>>();
        let seconds = self.started.elapsed().as_secs();
        println!("== {seconds} s: {ended} of {} suites done; {}", self.count, running.join(", "));
    }
}

/// Runs a test binary to its end, with its output in a file.
fn start_suite(suite: &Suite, arguments: &[String], log: &Path) -> Result<std::process::ExitStatus> {
    let output = File::create(log)?;
    let mut command = Command::new(&suite.executable);
    command.args(["-Z", "unstable-options", "--report-time"]).args(arguments).args(thread_arguments(suite, arguments));
    command.current_dir(&suite.directory).env("RUSTC_BOOTSTRAP", "1").env("CARGO_MANIFEST_DIR", &suite.directory);
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    command.status().with_context(|| format!("failed to start {}", suite.executable.display()))
}

/// More threads for the suite that waits, unless a number is given.
fn thread_arguments(suite: &Suite, given: &[String]) -> Vec<String> {
    if suite.name != WAITING_SUITE || given.iter().any(|argument| argument.starts_with("--test-threads")) {
        return Vec::new();
    }
    let cores = thread::available_parallelism().map_or(2, std::num::NonZero::get);
    vec![format!("--test-threads={}", cores + 1)]
}

/// A lane that panicked has left no half-written state.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn describe_running(name: &str, log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("running ")?.strip_suffix(" tests")).unwrap_or("?");
    format!("{name} {} of {total}", text.lines().filter_map(parse_test).count())
}

/// Reads `test module::name ... ok <1.234s>`; output of the test itself may stand before `ok`.
fn parse_test(line: &str) -> Option<TestResult> {
    let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let (outcome, time) = rest.rsplit_once(" <")?;
    let seconds = time.strip_suffix("s>")?.parse().ok()?;
    Some(TestResult { name: name.to_owned(), failed: outcome.ends_with("FAILED"), seconds })
}

/// Reads `test result: ok. 12 passed; 0 failed; 1 ignored; …` as (passed, failed, ignored).
fn parse_summary(line: &str) -> Option<(usize, usize, usize)> {
    let counts = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let count = |name: &str| counts.split("; ").find_map(|part| part.strip_suffix(name)?.trim().parse().ok());
    Some((count("passed")?, count("failed")?, count("ignored")?))
}

fn print_suite(result: &SuiteResult, log: &Path) {
    let text = fs::read_to_string(log).unwrap_or_default();
    println!("== {}: {:.0} s", result.name, result.time.as_secs_f64());
    if result.succeeded {
        // The tests by name say nothing that the summary does not.
        text.lines().filter(|line| line.starts_with("test result")).for_each(|line| println!("{line}"));
    } else {
        println!("{text}");
    }
}

fn report(results: &[SuiteResult], parts: &[(String, f64)]) -> ExitCode {
    println!("\n== where the time went");
    for (name, seconds) in parts {
        println!("{seconds:8.1} s  {name}");
    }
    let mut by_time: Vec<_> = results.iter().collect();
    by_time.sort_by_key(|suite| std::cmp::Reverse(suite.time));
    for suite in by_time {
        println!("{:8.1} s  {}, {} tests", suite.time.as_secs_f64(), suite.name, suite.passed + suite.failed);
    }
    println!("\n== the {SLOWEST_TESTS} slowest tests");
    let of = |suite: &SuiteResult, test: &TestResult| (format!("{} {}", suite.name, test.name), test.clone());
    let mut tests: Vec<_> =
        results.iter().flat_map(|suite| suite.tests.iter().map(move |test| of(suite, test))).collect();
    tests.sort_by(|(_, a), (_, b)| b.seconds.total_cmp(&a.seconds));
    for (name, test) in tests.iter().take(SLOWEST_TESTS) {
        println!("{:8.1} s  {name}", test.seconds);
    }
    let failed: Vec<_> = tests.iter().filter(|(_, test)| test.failed).map(|(name, _)| name).collect();
    let broken: Vec<_> = results.iter().filter(|suite| !suite.succeeded).map(|suite| &suite.name).collect();
    if !broken.is_empty() {
        println!("\n== failed: {}", broken.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", "));
        for name in failed {
            println!("           {name}");
        }
    }
    let sum = |count: fn(&SuiteResult) -> usize| results.iter().map(count).sum::<usize>();
    println!("\n{} passed, {} failed, {} skipped", sum(|s| s.passed), sum(|s| s.failed), sum(|s| s.ignored));
    if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::{TestResult, find_suite, parse_summary, parse_test};

    #[test]
    fn a_test_line_gives_name_outcome_and_time() {
        let passed = TestResult { name: "a::b".to_owned(), failed: false, seconds: 1.25 };
        assert_eq!(parse_test("test a::b ... ok <1.250s>"), Some(passed.clone()));
        assert_eq!(parse_test("test a::b ... some output ok <1.250s>"), Some(passed.clone()));
        assert_eq!(parse_test("test a::b ... FAILED <1.250s>"), Some(TestResult { failed: true, ..passed }));
        for other in ["running 3 tests", "test a::b ... ignored", "test a::b has been running for over 60 seconds"] {
            assert_eq!(parse_test(other), None, "{other}");
        }
    }

    #[test]
    fn a_summary_gives_its_counts() {
        let line = "test result: FAILED. 12 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 3.21s";
        assert_eq!(parse_summary(line), Some((12, 2, 1)));
        assert_eq!(parse_summary("test result"), None);
    }

    #[test]
    fn only_test_binaries_are_suites() {
        let artifact = |test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/cli/Cargo.toml",
                "target":{{"kind":["test"],"name":"it"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let suite = find_suite(&artifact(true, r#""/t/it-1""#)).unwrap();
        assert_eq!((suite.name.as_str(), suite.directory.to_str()), ("cli it", Some("/w/crates/cli")));
        assert!(find_suite(&artifact(false, r#""/t/plimsoll""#)).is_none());
        assert!(find_suite(&artifact(true, "null")).is_none());
    }
}
