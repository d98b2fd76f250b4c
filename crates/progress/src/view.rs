//! From a tree to rows. Terminal, TUI and dashboard draw these and nothing else, so they all say the same.

use std::time::Duration;

use serde::Serialize;

use crate::counts::{Counts, Total, Unit};
use crate::rate::TimeLeft;
use crate::snapshot::{FoldedCounts, Node, Snapshot, depths, gather};
use crate::state::State;
use crate::truncate::{Limits, truncate};

/// One line to draw.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// How far to indent; the root is at 0.
    pub depth: usize,
    /// Identifies the row from one drawing to the next.
    pub path: String,
    /// What to call it.
    pub label: String,
    /// How it is doing.
    pub look: Look,
    /// How full the bar is, 0 to 1; no bar if nothing is known.
    pub bar: Option<f64>,
    /// `43.33 %`, `~43.33 %`, or empty.
    pub percent: String,
    /// `412/1024 items, 3 skipped, 1 failed`, or empty.
    pub counts: String,
    /// `1.2 GiB of 4.5 GiB`, or empty.
    pub bytes: String,
    /// `35.1 MiB/s`, or empty.
    pub rate: String,
    /// `2m to 4m`, or empty.
    pub left: String,
    /// How long it has been at it, or how long it took.
    pub elapsed: String,
    /// What it is doing, waiting for, or died of.
    pub detail: String,
}

/// How a row looks: the state, or a verdict that matters more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Look {
    /// Not begun.
    Pending,
    /// At work.
    Running,
    /// Waiting for something.
    Waiting,
    /// Sends no signal by nature.
    Quiet,
    /// Should have advanced, and has not.
    Stalled,
    /// Was at work in a process that is gone.
    TakenOver,
    /// Ended well.
    Done,
    /// Was not needed.
    Skipped,
    /// Ended badly.
    Failed,
    /// Cancelled on request.
    Cancelled,
    /// Ended without a word.
    Interrupted,
    /// From a newer process.
    Unknown,
}

impl Look {
    /// The look of a node.
    pub fn of(node: &Node) -> Self {
        match node.state {
            _ if node.stall.is_some() => Self::Stalled,
            State::Running | State::Waiting if node.quiet => Self::Quiet,
            State::Pending => Self::Pending,
            State::Running => Self::Running,
            State::Waiting => Self::Waiting,
            State::TakenOver => Self::TakenOver,
            State::Done => Self::Done,
            State::Skipped => Self::Skipped,
            State::Failed => Self::Failed,
            State::Cancelled => Self::Cancelled,
            State::Interrupted => Self::Interrupted,
            State::Unknown => Self::Unknown,
        }
    }
}

/// A row for every node. The first one speaks for the whole.
pub fn rows(snapshot: &Snapshot) -> Vec<Row> {
    spoken(snapshot)
}

/// At most `most` rows, the most important ones; the rest is counted in them.
pub fn rows_within(snapshot: &Snapshot, most: usize) -> Vec<Row> {
    spoken(&truncate(snapshot, Limits { nodes: most, bytes: usize::MAX }))
}

fn spoken(snapshot: &Snapshot) -> Vec<Row> {
    let (speed, explanation) = (snapshot.speed(), snapshot.explanation());
    let nodes = &snapshot.nodes;
    let bytes = gather(nodes, Unit::Bytes);
    let each = nodes.iter().zip(depths(nodes)).zip(bytes);
    let mut rows: Vec<Row> = each.map(|((node, depth), bytes)| row(node, depth, bytes)).collect();
    if let Some(root) = rows.first_mut() {
        (root.rate, root.left) = (speed.rate_text(), speed.left_text());
        if root.detail.is_empty() {
            root.detail = explanation.map(|why| why.text).unwrap_or_default();
        }
    }
    rows
}

fn row(node: &Node, depth: usize, bytes: Option<Counts>) -> Row {
    Row {
        depth,
        path: node.path.to_string(),
        label: node.name.to_string(),
        look: Look::of(node),
        bar: node.percent.map(crate::Percent::fraction),
        percent: node.percent.map(|percent| format!("{percent} %")).unwrap_or_default(),
        counts: counts_text(node),
        bytes: bytes.map(|counts| bytes_text(&counts)).unwrap_or_default(),
        rate: node.rate.zip(node.primary()).map(|(rate, counts)| rate_text(rate, counts.unit)).unwrap_or_default(),
        left: node.left.map(left_text).unwrap_or_default(),
        elapsed: node.ages.elapsed.map(duration_text).unwrap_or_default(),
        detail: detail(node),
    }
}

/// Everything countable but bytes: `412/1024 items, 3 skipped`.
fn counts_text(node: &Node) -> String {
    let countable = node.meters.iter().filter(|counts| !counts.unit.is_bytes());
    countable.map(count_text).collect::<Vec<_>>().join(", ")
}

fn count_text(counts: &Counts) -> String {
    let settled = counts.settled();
    let main = match counts.total {
        Total::Unknown | Total::Growing(0) => format!("{settled} {}", unit_word(counts.unit, settled)),
        Total::Growing(total) => format!("{settled}/~{total} {}", unit_word(counts.unit, total)),
        Total::Final(total) => format!("{settled}/{total} {}", unit_word(counts.unit, total)),
    };
    let others = [(counts.skipped, "skipped"), (counts.failed, "failed")];
    let others = others.iter().filter(|(number, _)| *number > 0).map(|(number, word)| format!("{number} {word}"));
    std::iter::once(main).chain(others).collect::<Vec<_>>().join(", ")
}

/// What a unit is called, for this many of it.
pub fn unit_word(unit: Unit, number: u64) -> &'static str {
    match (unit, number) {
        (Unit::Items, 1) => "item",
        (Unit::Items, _) => "items",
        (Unit::Bytes | Unit::Uploaded | Unit::Downloaded, 1) => "byte",
        (Unit::Bytes | Unit::Uploaded | Unit::Downloaded, _) => "bytes",
        (Unit::Files, 1) => "file",
        (Unit::Files, _) => "files",
        (Unit::Steps, 1) => "step",
        (Unit::Steps, _) => "steps",
    }
}

/// `1.2 GiB of 4.5 GiB`; empty while nothing is known.
pub fn bytes_text(counts: &Counts) -> String {
    let settled = size_text(counts.settled());
    match counts.total {
        // Nothing is known yet: "0 B" would read as an empty volume.
        Total::Unknown | Total::Growing(0) if counts.settled() == 0 => String::new(),
        Total::Unknown => settled,
        Total::Growing(total) => format!("{settled} of ~{}", size_text(total)),
        Total::Final(total) => format!("{settled} of {}", size_text(total)),
    }
}

/// So many a second: `35.1 MiB/s`, `12 items/s`.
pub fn rate_text(rate: u64, unit: Unit) -> String {
    if unit.is_bytes() { format!("{}/s", size_text(rate)) } else { format!("{rate} {}/s", unit_word(unit, rate)) }
}

/// A size with one decimal: `1.2 GiB`. Cut, not rounded, like every number here.
pub fn size_text(bytes: u64) -> String {
    const NAMES: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let power = (bytes.ilog2() / 10) as usize;
    let tenths = (u128::from(bytes) * 10) >> (10 * power);
    format!("{}.{} {}", tenths / 10, tenths % 10, NAMES[power - 1])
}

/// A duration in its two largest parts: `45s`, `2m10s`, `3h05m`, `2d04h`.
pub fn duration_text(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m{:02}s", seconds % 60),
        3600..86_400 => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

/// A time left: `40s to 1m20s`, or one of them if both read the same.
pub fn left_text(left: TimeLeft) -> String {
    let low = duration_text(Duration::from_secs(left.low));
    let high = duration_text(Duration::from_secs(left.high));
    if low == high { low } else { format!("{low} to {high}") }
}

fn detail(node: &Node) -> String {
    let mut parts = vec![headline(node)];
    if node.overdue {
        parts.push("past its deadline".to_owned());
    }
    parts.push(folded_text(&node.folded));
    parts.retain(|part| !part.is_empty());
    parts.join("; ")
}

/// The one thing to know about it.
fn headline(node: &Node) -> String {
    let since = duration_text(node.ages.advance);
    let reason = node.reason.as_deref().unwrap_or_default();
    match Look::of(node) {
        Look::Stalled => node.stall.as_ref().map_or_else(String::new, |stall| {
            format!("{} for {}: {}", stall.verdict().word(), duration_text(stall.age), stall.message)
        }),
        Look::Quiet if reason.is_empty() => format!("no signal since {since} ago"),
        Look::Quiet | Look::Waiting => format!("{reason} ({since})"),
        Look::Running => node.item.as_deref().unwrap_or_default().to_owned(),
        _ => reason.to_owned(),
    }
}

fn folded_text(folded: &FoldedCounts) -> String {
    let parts = [
        (folded.active, "running"),
        (folded.failed, "failed"),
        (folded.pending, "pending"),
        (folded.done, "done"),
        (folded.skipped, "skipped"),
    ];
    let parts: Vec<String> =
        parts.iter().filter(|(number, _)| *number > 0).map(|(number, word)| format!("{number} {word}")).collect();
    if parts.is_empty() { String::new() } else { format!("and {} not shown", parts.join(", ")) }
}
