//! How good the percentage, the time left and the stalls of whole operations are, as tables beside the goals and other estimators.
//!
//! `cargo bench -p plimsoll-progress --bench trees` prints what `hack/generate-accuracy` puts into the documentation. A goal that is
//! missed is printed as missed.

#[path = "../tests/trees/mod.rs"]
mod trees;

/// Runs in which nothing is wrong.
const HEALTHY_RUNS: u64 = 10_000;
/// Rounds of all cases.
const ROUNDS: u64 = 3;

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints")]
fn main() {
    let rounds = std::env::var("PLIMSOLL_BENCH_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS);
    let graded: Vec<trees::Graded> = trees::cases(&trees::SIZES, rounds).into_iter().map(trees::grade).collect();
    let stalls = trees::stalls::grade(HEALTHY_RUNS);
    for stall in trees::false_stalls(&graded).iter().chain(&stalls.false_stalls) {
        eprintln!("false stall: {stall}");
    }
    for line in trees::tables(&graded, &stalls) {
        println!("{line}");
    }
}
