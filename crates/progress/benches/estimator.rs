//! How good the time left and the stall verdict are, as a table, beside two simple estimators.
//!
//! `cargo bench -p plimsoll-progress --bench estimator`; fails if a bar is missed.

use std::process::ExitCode;

#[path = "../tests/grade/mod.rs"]
mod grade;

const RUNS: u64 = 200;

#[expect(clippy::print_stdout, reason = "a benchmark prints")]
fn main() -> ExitCode {
    let grades = grade::all(RUNS);
    for line in grade::table(&grades) {
        println!("{line}");
    }
    let faults: Vec<String> = grades.iter().flat_map(grade::Grade::faults).collect();
    for fault in &faults {
        println!("MISSED {fault}");
    }
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
