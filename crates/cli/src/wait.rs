//! Waiting for a backup or restore to end: a live picture on a terminal, plain lines elsewhere.
//!
//! Best is the leader's own tree, read from its memory through the API server. Where that cannot be asked, two sources are watched: the
//! subject, whose own counters are at most a second old, and its Operation, whose tree says what it is doing but is written less
//! often. The picture is then the tree with the subject's numbers put in.

use std::time::Duration;

use anyhow::bail;
use futures::{Stream, StreamExt, stream};
use kube::api::DynamicObject;
use kube::runtime::watcher;
use kube::{Api, Client};
use plimsoll_api::plimsoll::v1alpha1::Operation;
use plimsoll_progress::view::{self, Row};
use plimsoll_progress::{Percent, Snapshot, Trees, Unit};

use crate::args::names::Reference;
use crate::args::options::EventFormat;
use crate::draw::MOST_ROWS;
use crate::events::Events;
use crate::exit::Outcome;
use crate::picture::Picture;
use crate::subjects::{Seen, operation_name};
use crate::{observed, output};

enum News {
    Subject(Option<Box<DynamicObject>>),
    Operation(Option<Box<Operation>>),
    Trouble(String),
    Tick,
}

/// How waiting is shown.
enum Show {
    Picture(Picture, Trees),
    Events(Box<Events>, Trees),
}

impl Show {
    fn news(&mut self, seen: &Seen) {
        match self {
            Self::Picture(picture, trees) => picture.show(&leaders_rows(seen, trees).unwrap_or_else(|| rows(seen))),
            Self::Events(events, trees) => events.tell(seen, leaders_tree(seen, trees).as_ref()),
        }
    }

    fn end(self, seen: &Seen) {
        match self {
            Self::Picture(picture, _) => {
                picture.wipe();
                output::line(verdict(seen));
            }
            Self::Events(mut events, _) => events.tell(seen, None),
        }
    }
}

/// Waits until it has ended and tells how.
pub async fn until_ended(
    client: &Client,
    namespace: &str,
    reference: &Reference,
    events: Option<EventFormat>,
) -> anyhow::Result<Outcome> {
    let (trees, _following) = observed::leaders_trees(client, namespace);
    let mut show = match events {
        Some(EventFormat::Json) => Show::Events(Box::default(), trees),
        None => Show::Picture(Picture::new(), trees),
    };
    let mut seen: Option<Seen> = None;
    let mut news = std::pin::pin!(news(client, namespace, reference));
    while let Some(item) = news.next().await {
        match item {
            News::Subject(Some(object)) => {
                let operation = seen.take().and_then(|seen| seen.operation);
                seen = Some(Seen { kind: reference.kind, object: serde_json::to_value(object)?, operation });
            }
            News::Subject(None) if seen.is_some() => {
                bail!("{} {} was deleted while it was waited for", reference.kind.word(), reference.name)
            }
            News::Operation(operation) => {
                if let Some(seen) = &mut seen {
                    seen.operation = operation.map(|operation| *operation);
                }
            }
            News::Trouble(text) => tracing::warn!("watching: {text}; trying again"),
            News::Subject(None) | News::Tick => {}
        }
        let Some(seen) = &seen else { continue };
        if let Some(outcome) = seen.outcome() {
            show.end(seen);
            return Ok(outcome);
        }
        show.news(seen);
    }
    bail!("the watch ended before {} {} did", reference.kind.word(), reference.name)
}

fn news(client: &Client, namespace: &str, reference: &Reference) -> impl Stream<Item = News> + use<> {
    let subjects = reference.kind.api(client, namespace);
    let operations: Api<Operation> = Api::namespaced(client.clone(), namespace);
    let subject = watcher::watch_object(subjects, &reference.name).map(|event| match event {
        Ok(object) => News::Subject(object.map(Box::new)),
        Err(error) => News::Trouble(error.to_string()),
    });
    let operation = watcher::watch_object(operations, &operation_name(reference)).map(|event| match event {
        Ok(operation) => News::Operation(operation.map(Box::new)),
        Err(error) => News::Trouble(error.to_string()),
    });
    let ticks = stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        Some((News::Tick, ()))
    });
    stream::select(stream::select(subject.boxed(), operation.boxed()), ticks.boxed())
}

/// The tree in the leader's memory, if it can be asked.
fn leaders_tree(seen: &Seen, trees: &Trees) -> Option<Snapshot> {
    trees.snapshot(seen.text("/metadata/uid")?)
}

fn leaders_rows(seen: &Seen, trees: &Trees) -> Option<Vec<Row>> {
    let tree = leaders_tree(seen, trees)?;
    let mut rows = view::rows_within(&tree, MOST_ROWS);
    rows.first_mut()?.label = format!("{} {}", seen.kind.word(), seen.name());
    Some(rows)
}

/// The tree with the subject's own, fresher numbers in it.
pub fn rows(seen: &Seen) -> Vec<Row> {
    let Some(mut tree) = seen.tree() else { return vec![subject_row(seen)] };
    refresh(&mut tree, seen);
    let mut rows = view::rows_within(&tree, MOST_ROWS);
    if let Some(root) = rows.first_mut() {
        root.label = format!("{} {}", seen.kind.word(), seen.name());
    }
    rows
}

fn refresh(tree: &mut Snapshot, seen: &Seen) {
    let items = seen.items();
    for node in tree.nodes.iter_mut().filter(|node| node.parent_path() == Some("")) {
        let counts = node.meters.iter_mut().find(|counts| counts.unit == Unit::Items);
        let Some(counts) = counts.filter(|counts| counts.settled() < items.settled()) else { continue };
        *counts = items;
        let fresh =
            items.total.value().map(|total| Percent::of(items.settled(), total).approximately(!items.total.is_final()));
        node.percent =
            fresh.filter(|fresh| Some(fresh.hundredths()) > node.percent.map(Percent::hundredths)).or(node.percent);
    }
    if let Some(root) = tree.nodes.first_mut()
        && let Some(percent) = seen.text("/status/plimsoll/percent").and_then(|text| text.parse().ok())
    {
        root.percent = Some(percent);
    }
}

fn subject_row(seen: &Seen) -> Row {
    let operation = plimsoll_progress::Operation::new(
        format!("{} {}", seen.kind.word(), seen.name()),
        plimsoll_progress::Clock::system(),
    );
    operation.root().say(seen.phase());
    view::rows(&operation.snapshot()).swap_remove(0)
}

/// One sentence about how it ended, and what to do next.
pub fn verdict(seen: &Seen) -> String {
    let (kind, name, items) = (seen.kind.word(), seen.name(), seen.items());
    let mut text = format!("{kind} {name}: {}", seen.phase());
    if items.total.value().is_some() {
        text += &format!(", {} of {} items {}", items.done, items.total.value().unwrap_or(0), seen.kind.done_word());
    }
    for (count, word) in [(items.skipped, "skipped"), (items.failed, "failed")] {
        if count > 0 {
            text += &format!(", {count} {word}");
        }
    }
    if let Some(percent) = seen.text("/status/progress/percentCompleted") {
        text += &format!(", {percent}%");
    }
    if let Some(reason) = seen.failure() {
        text += &format!(": {reason}");
    }
    for fault in seen.object.pointer("/status/validationErrors").and_then(|v| v.as_array()).into_iter().flatten() {
        text += &format!("\n  {}", fault.as_str().unwrap_or_default());
    }
    let (errors, warnings) = (seen.number("/status/errors"), seen.number("/status/warnings"));
    if errors + warnings > 0 {
        text += &format!(" ({errors} errors, {warnings} warnings: `plimsoll describe {kind}/{name}`)");
    }
    text
}
