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

mod options;
mod report;
mod retry;
mod run;
mod suite;
mod suite_process;
mod suite_result;

use std::fs;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use options::Options;
use run::Run;

fn main() -> Result<ExitCode> {
    let options = Options::from_arguments(std::env::args().skip(1))?;
    let artifacts = fs::read_to_string(&options.artifacts)
        .with_context(|| format!("failed to read {}", options.artifacts.display()))?;
    let suites = suite::find_suites(&artifacts);
    anyhow::ensure!(!suites.is_empty(), "{} names no test binary", options.artifacts.display());
    let logs = options.artifacts.with_file_name("test-logs");
    fs::create_dir_all(&logs)?;
    let mut results = Run::new(suites, logs.clone(), options.arguments).execute();
    if std::env::var_os("PLIMSOLL_TEST_RETRY").is_some() {
        retry::retry_failed(&mut results, &logs);
    }
    Ok(report::report(&results, &options.parts))
}
