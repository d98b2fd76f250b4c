//! The list as cells: the same for the screen and for the plain table.

use plimsoll_observe::causes::{self, Cause};
use plimsoll_observe::{ClusterState, OperationSummary, Verdict};
use plimsoll_progress::view::{self, duration_text};

use crate::commands::why;
use crate::output;

/// The texts of one line, by column.
pub struct Cells {
    pub name: String,
    pub status: String,
    pub percent: String,
    pub done: String,
    pub rate: String,
    pub left: String,
    pub age: String,
    pub what: String,
}

impl Cells {
    pub fn of(line: &OperationSummary) -> Self {
        let rows = view::rows(&line.explanation.tree);
        let first = |cell: fn(&view::Row) -> &String| rows.iter().map(cell).find(|text| !text.is_empty()).cloned();
        let bytes = rows.first().map(|row| row.bytes.clone()).filter(|text| !text.is_empty());
        let whole = rows.first().filter(|_| line.ended_ago.is_none());
        Self {
            name: line.reference.to_string(),
            status: status(line),
            percent: rows.first().map(|row| row.percent.replace(' ', "")).unwrap_or_default(),
            done: bytes.or_else(|| first(|row| &row.counts)).unwrap_or_default(),
            rate: whole.map(|row| row.rate.clone()).unwrap_or_default(),
            left: whole.map(|row| row.left.clone()).unwrap_or_default(),
            age: duration_text(line.age),
            what: line.doing.clone(),
        }
    }
}

/// One word, in capitals if it needs attention.
pub fn status(line: &OperationSummary) -> String {
    match line.explanation.verdict {
        Verdict::Stuck => "STUCK".to_owned(),
        Verdict::Quiet => "no signal".to_owned(),
        Verdict::Waiting => "waiting".to_owned(),
        _ => line.explanation.phase.clone(),
    }
}

/// Whether it matches a filter.
pub fn matches(line: &OperationSummary, filter: &str) -> bool {
    let filter = filter.to_lowercase();
    let texts = [line.reference.to_string(), status(line), line.doing.clone()];
    filter.is_empty() || texts.iter().any(|text| text.to_lowercase().contains(&filter))
}

/// The number of operations by verdict.
pub fn summary(lines: &[OperationSummary]) -> String {
    let count = |verdicts: &[Verdict]| lines.iter().filter(|line| verdicts.contains(&line.explanation.verdict)).count();
    let ended = lines.iter().filter(|line| line.ended_ago.is_some()).count();
    format!(
        "{} stuck, {} running, {} waiting, {ended} ended",
        count(&[Verdict::Stuck]),
        count(&[Verdict::Moving, Verdict::Quiet]),
        count(&[Verdict::Waiting])
    )
}

/// The message for an empty list. Without a server it stays empty, so that is reported.
pub fn empty_text(namespace: &str, missing: Option<&Cause>) -> Vec<String> {
    let mut text = vec![format!("No backups, restores or actions found in namespace {namespace}.")];
    if let Some(cause) = missing {
        text.extend([String::new(), format!("  {:6} {}", why::word(cause), cause.text)]);
        text.extend(cause.next.iter().map(|command| format!("  next   {command}")));
    }
    text
}

/// One plain table, and below it the explanations of stuck operations.
pub fn plain_table(lines: &[OperationSummary], cluster: &ClusterState) -> Vec<String> {
    if lines.is_empty() && cluster.unseen.is_empty() {
        return empty_text(&cluster.namespace, causes::server_missing(cluster).as_ref());
    }
    let header = ["NAME", "STATUS", "PROGRESS", "DONE", "AGE", "WHAT"].map(str::to_owned);
    let row = |line: &OperationSummary| {
        let cells = Cells::of(line);
        vec![cells.name, cells.status, cells.percent, cells.done, cells.age, cells.what]
    };
    let mut text = output::table(&header, &lines.iter().map(row).collect::<Vec<_>>());
    for line in lines.iter().filter(|line| line.explanation.verdict == Verdict::Stuck) {
        text.push(String::new());
        text.extend(why::text(&plimsoll_observe::Explanation { unseen: Vec::new(), ..line.explanation.clone() }));
    }
    if !cluster.unseen.is_empty() {
        let unseen: Vec<_> = cluster.unseen.iter().map(|unseen| format!("{} ({})", unseen.what, unseen.why)).collect();
        text.extend([String::new(), format!("Not read: {}", unseen.join(", "))]);
    }
    text
}
