//! Two suites at a time, from the first to the last.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::suite::Suite;
use crate::suite_process::run_to_end;
use crate::suite_result::{SuiteResult, TestResult, parse_summary, parse_test};

/// How many test binaries run at once.
const LANES: usize = 2;
const REPORT_INTERVAL: Duration = Duration::from_secs(30);

/// A run of all suites.
pub struct Run {
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
    pub fn new(suites: Vec<Suite>, logs: PathBuf, arguments: Vec<String>) -> Self {
        Self {
            count: suites.len(),
            queue: Mutex::new(suites.into()),
            running: Mutex::default(),
            results: Mutex::default(),
            started: Instant::now(),
            logs,
            arguments,
        }
    }

    pub fn execute(self) -> Vec<SuiteResult> {
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
        self.results.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_lane(&self) {
        loop {
            let next = lock(&self.queue).pop_front();
            let Some(suite) = next else { return };
            let log = self.logs.join(format!("{}.log", suite.name.replace(' ', "-")));
            lock(&self.running).push((suite.name.clone(), log.clone()));
            let result = run_suite(suite, &self.arguments, &log);
            lock(&self.running).retain(|(name, _)| *name != result.suite.name);
            print_suite(&result, &log);
            lock(&self.results).push(result);
        }
    }

    fn report_progress(&self) {
        let ended = lock(&self.results).len();
        let running = lock(&self.running).iter().map(|(name, log)| describe_running(name, log)).collect::<Vec<_>>();
        let seconds = self.started.elapsed().as_secs();
        println!("== {seconds} s: {ended} of {} suites done; {}", self.count, running.join(", "));
    }
}

fn run_suite(suite: Suite, arguments: &[String], log: &Path) -> SuiteResult {
    let started = Instant::now();
    let (succeeded, processor_time) = match run_to_end(&suite, arguments, log) {
        Ok(ended) => (ended.status.success(), ended.processor_time),
        Err(error) => {
            println!("== {}: {error:#}", suite.name);
            (false, Duration::ZERO)
        }
    };
    let text = fs::read_to_string(log).unwrap_or_default();
    let tests: Vec<TestResult> = text.lines().filter_map(parse_test).collect();
    let summary = text.lines().rev().find_map(parse_summary);
    let (passed, failed, ignored) = summary.unwrap_or((0, usize::from(!succeeded), 0));
    // A binary that died in the middle has no summary: it failed, whatever its exit code.
    let succeeded = succeeded && summary.is_some();
    SuiteResult { suite, time: started.elapsed(), processor_time, succeeded, tests, passed, failed, ignored }
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

fn print_suite(result: &SuiteResult, log: &Path) {
    let text = fs::read_to_string(log).unwrap_or_default();
    println!("== {}: {:.0} s", result.suite.name, result.time.as_secs_f64());
    if result.succeeded {
        // The tests by name say nothing that the summary does not.
        text.lines().filter(|line| line.starts_with("test result")).for_each(|line| println!("{line}"));
    } else {
        println!("{text}");
    }
}
