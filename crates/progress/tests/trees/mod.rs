//! Plays whole operations on the virtual clock, and grades what is said about them: percentage, time left, range.

mod dice;
mod peers;
pub mod play;
pub mod score;
pub mod stalls;
mod transfer;
pub mod world;

use plimsoll_progress::History;

use play::play;
use score::{Figures, Score};
use stalls::StallFigures;
use world::{Case, Cluster, DataPath, Trouble};

/// Sizes over six decades.
pub const SIZES: [f64; 7] = [1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12];
const QUEUES: [usize; 3] = [1, 3, 8];
/// So many runs of one case: from the third one on there is a history.
const RUNS: u64 = 3;

/// A case and the scores of its first and its last run.
pub struct Graded {
    pub case: Case,
    pub first: Score,
    pub last: Score,
}

/// The cases with these sizes: every path, size and queue, with the rest drawn by their number.
pub fn cases(sizes: &[f64], rounds: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    for round in 0..rounds {
        for path in DataPath::ALL {
            for bytes in sizes {
                for queue in QUEUES {
                    let seed = cases.len() as u64 + 10_000 * round;
                    let trouble = Trouble::ALL[usize::try_from(seed.wrapping_mul(7) / 3 % 4).unwrap_or(0)];
                    let incremental = seed.is_multiple_of(2) && path != DataPath::Restore;
                    cases.push(Case { path, bytes: *bytes, queue, incremental, trouble, seed });
                }
            }
        }
    }
    cases
}

/// Plays a case several times, each with the history of those before.
pub fn grade(case: Case) -> Graded {
    let cluster = Cluster::of(&case);
    let mut history = History::default();
    let mut scores = Vec::new();
    for run in 0..RUNS {
        // What is repeated every night goes well in most nights.
        let quiet = Case { trouble: if run == 1 { Trouble::None } else { case.trouble }, ..case.clone() };
        let played = play(&quiet, &cluster, run, &history);
        played.record(&case, &cluster, run, &mut history);
        scores.push(Score::of(&played, run));
    }
    let last = scores.pop().expect("several runs");
    Graded { case, first: scores.swap_remove(0), last }
}

/// Why runs were called stalled in which nothing is wrong.
pub fn false_stalls(graded: &[Graded]) -> Vec<String> {
    let scores = graded.iter().flat_map(|graded| [(&graded.case, &graded.first), (&graded.case, &graded.last)]);
    scores.filter_map(|(case, score)| Some(format!("{case:?}: {:?}", score.false_stall.as_ref()?))).collect()
}

/// The figures of the first and the last runs of some cases together.
pub fn figures<'a>(graded: impl Iterator<Item = &'a Graded>) -> Figures {
    let scores: Vec<&Score> = graded.flat_map(|graded| [&graded.first, &graded.last]).collect();
    Figures::of(&scores)
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0))
}

/// The tables: all together beside the goals, then the stalls, then a line for each part.
pub fn tables(graded: &[Graded], stalls: &StallFigures) -> Vec<String> {
    let head = ["## Goals", "", "| figure | measured | goal | |", "|---|---|---|---|"];
    let mut lines: Vec<String> = head.into_iter().map(str::to_owned).collect();
    for verdict in figures(graded.iter()).verdicts() {
        lines.push(goal_line(verdict.what, &verdict.value, &verdict.goal, verdict.met));
    }
    lines.extend(stall_lines(stalls));
    lines.extend([String::new(), "## By kind of operation".to_owned(), String::new()]);
    lines.push(
        "| operations | runs | percent: median error | 95th percentile | standing | time left: median error | linear | fixed window | restic's | kopia's | shown | in p10 to p90 | p90/p10 | first time left, from the third run on |".to_owned(),
    );
    lines.push("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|".to_owned());
    for path in DataPath::ALL {
        lines.push(line(path.name(), graded.iter().filter(|graded| graded.case.path == path)));
    }
    for bytes in SIZES {
        let name = format!("{} in all volumes", plimsoll_progress::view::size_text(transfer::whole(bytes)));
        lines.push(line(&name, graded.iter().filter(|graded| graded.case.bytes.total_cmp(&bytes).is_eq())));
    }
    for queue in QUEUES {
        let name = if queue == 1 { "no queue".to_owned() } else { format!("{queue} times as many volumes as slots") };
        lines.push(line(&name, graded.iter().filter(|graded| graded.case.queue == queue)));
    }
    for incremental in [false, true] {
        let name = if incremental { "most data is unchanged" } else { "all data is new" };
        lines.push(line(name, graded.iter().filter(|graded| graded.case.incremental == incremental)));
    }
    for (trouble, name) in
        Trouble::ALL.iter().zip(["no trouble", "server taken over", "agent killed", "a volume fails"])
    {
        lines.push(line(name, graded.iter().filter(|graded| graded.case.trouble == *trouble)));
    }
    lines
}

fn goal_line(what: &str, value: &str, goal: &str, is_met: bool) -> String {
    let met = if is_met { "met" } else { "**missed**" };
    format!("| {what} | {value} | {goal} | {met} |")
}

fn stall_lines(stalls: &StallFigures) -> Vec<String> {
    let (healthy, false_stalls) = (stalls.healthy, stalls.false_stalls.len());
    let what = format!("false stalls in {healthy} runs with hooks, flushes, CSI, plugins and completions");
    let mut lines = vec![goal_line(&what, &false_stalls.to_string(), "0", false_stalls == 0)];
    for named in &stalls.named {
        let what = format!("{}, named: median and worst of {} runs", named.fault.name(), named.runs);
        let worst = named.worst.map_or_else(|| "never".to_owned(), |worst| format!("{worst} s"));
        lines.push(goal_line(&what, &format!("{} s, {worst}", named.median), "at most 300 s", named.is_in_time()));
    }
    lines
}

fn line<'a>(name: &str, graded: impl Iterator<Item = &'a Graded>) -> String {
    let figures = figures(graded);
    let others: Vec<String> = figures.left[1..].iter().map(|error| percent(*error)).collect();
    format!(
        "| {name} | {} | {:.1} | {:.1} | {} | {} | {} | {} | {} | {} | {} |",
        figures.runs,
        figures.percent_median,
        figures.percent_p95,
        percent(Some(figures.standing)),
        percent(figures.left[0]),
        others.join(" | "),
        percent(Some(figures.shown)),
        percent(figures.holds),
        figures.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
        percent(figures.first.map(|first| first.0)),
    )
}
