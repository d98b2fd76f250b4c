//! What is printed at the end: the times, the slowest tests, what failed.

use std::process::ExitCode;

use crate::suite_result::SuiteResult;

const SLOWEST_TESTS: usize = 20;

/// Prints the summary of a run. `parts` are the steps before it, with their seconds.
pub fn report(results: &[SuiteResult], parts: &[(String, f64)]) -> ExitCode {
    println!("\n== where the time went");
    print_times(results, parts);
    println!("\n== the {SLOWEST_TESTS} slowest tests");
    print_slowest(results);
    let succeeded = print_failed(results);
    let sum = |count: fn(&SuiteResult) -> usize| results.iter().map(count).sum::<usize>();
    println!("\n{} passed, {} failed, {} skipped", sum(|s| s.passed), sum(|s| s.failed), sum(|s| s.ignored));
    if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_times(results: &[SuiteResult], parts: &[(String, f64)]) {
    for (name, seconds) in parts {
        println!("{seconds:8.1} s  {name}");
    }
    let mut by_time: Vec<_> = results.iter().collect();
    by_time.sort_by_key(|suite| std::cmp::Reverse(suite.time));
    for suite in by_time {
        let tests = suite.passed + suite.failed;
        let (time, processor_time) = (suite.time.as_secs_f64(), suite.processor_time.as_secs_f64());
        println!("{time:8.1} s  {}, {tests} tests, {processor_time:.1} s of processor time", suite.suite.name);
    }
}

fn print_slowest(results: &[SuiteResult]) {
    let named = |suite: &'_ SuiteResult| suite.suite.name.clone();
    let mut tests: Vec<_> = results
        .iter()
        .flat_map(|suite| suite.tests.iter().map(move |test| (test.seconds, named(suite), test)))
        .collect();
    tests.sort_by(|(a, ..), (b, ..)| b.total_cmp(a));
    for (seconds, suite, test) in tests.iter().take(SLOWEST_TESTS) {
        println!("{seconds:8.1} s  {suite} {}", test.name);
    }
}

/// Returns whether nothing failed.
fn print_failed(results: &[SuiteResult]) -> bool {
    let failed: Vec<_> = results.iter().filter(|suite| !suite.succeeded).collect();
    if !failed.is_empty() {
        println!(
            "\n== failed: {}",
            failed.iter().map(|result| result.suite.name.as_str()).collect::<Vec<_>>().join(", ")
        );
    }
    for suite in &failed {
        for test in suite.tests.iter().filter(|test| test.failed) {
            println!("           {} {}", suite.suite.name, test.name);
        }
    }
    failed.is_empty()
}
