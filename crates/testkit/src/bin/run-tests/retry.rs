//! A second try for a few failed tests, where it is asked for.

use std::path::Path;

use crate::suite_process::run_to_end;
use crate::suite_result::SuiteResult;

/// More failures are not flakiness.
const MAX_RETRIED_TESTS: usize = 3;

/// Runs a few failed tests once more, alone. Those that pass then are named, and no longer fail the run.
pub fn retry_failed(results: &mut [SuiteResult], logs: &Path) {
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
        let log = logs.join("retry.log");
        let passed = run_to_end(&result.suite, &arguments, &log).is_ok_and(|ended| ended.status.success());
        println!("== {}: {} alone: {}", result.suite.name, if passed { "passed" } else { "failed" }, names.join(", "));
        if passed {
            println!("== UNSTEADY: {}", names.join(", "));
            result.succeeded = true;
            result.passed += result.failed;
            result.failed = 0;
            result.tests.iter_mut().for_each(|test| test.failed = false);
        }
    }
}
