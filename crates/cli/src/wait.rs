//! Waiting for a backup or restore to end: a live picture on a terminal, plain lines elsewhere.
//!
//! Best is the leader's own tree, read from its memory through the API server. Where that cannot be asked, two sources are watched: the
//! subject, whose own counters are at most a second old, and its Operation, whose tree says what it is doing but is written less
//! often. The picture is then the tree with the subject's numbers put in.

use std::time::{Duration, Instant};

use anyhow::bail;
use futures::{Stream, StreamExt, stream};
use kube::api::DynamicObject;
use kube::runtime::watcher;
use kube::{Api, Client};
use plimsoll_api::client_error::error_text;
use plimsoll_api::plimsoll::v1alpha1::Operation;
use plimsoll_observe::Explanation;
use plimsoll_progress::view::{self, Row};
use plimsoll_progress::{Percent, Snapshot, Unit};

use crate::args::names::{Kind, Reference};
use crate::args::options::EventFormat;
use crate::events::Events;
use crate::exit::Outcome;
use crate::observed::Doctor;
use crate::picture::Picture;
use crate::subjects::{Seen, operation_name};
use crate::{draw, observed, output};

enum News {
    Subject(Option<Box<DynamicObject>>),
    Operation(Option<Box<Operation>>),
    WatchFailed(String),
    Tick,
}

/// How waiting is shown.
enum Show {
    Picture { picture: Picture, said: String },
    Events(Box<Events>),
}

impl Show {
    fn news(&mut self, seen: &Seen, leaders: Option<&Snapshot>, told: Option<&Explanation>) {
        match self {
            Self::Picture { picture, said } => {
                let notes = told.map(observed::notes).unwrap_or_default();
                picture.show(&drawn(seen, leaders, &notes, draw::most_rows()));
                if !picture.is_drawn() {
                    observed::say_cause(said, told);
                }
            }
            Self::Events(events) => events.tell(seen, leaders, told),
        }
    }

    fn end(self, seen: &Seen) {
        match self {
            Self::Picture { picture, .. } => {
                picture.wipe();
                output::line(verdict(seen));
            }
            Self::Events(mut events) => events.tell(seen, None, None),
        }
    }
}

/// What has not advanced for this long is asked about.
const SUSPICIOUS: Duration = Duration::from_secs(10);

/// Whether there is no need to ask what holds it up. A tree that was written does not grow older by itself: nothing new is as bad.
fn goes_on(seen: &Seen, leaders: Option<&Snapshot>, silence: Duration) -> bool {
    let advance = |tree: &Snapshot| tree.root().map_or(Duration::ZERO, |root| root.ages.advance);
    let (stands, stalled) = match (leaders, seen.tree()) {
        (Some(tree), _) => (advance(tree), tree.stall.is_some()),
        (None, Some(tree)) => (advance(&tree).max(silence), tree.stall.is_some()),
        (None, None) => (silence, false),
    };
    stands < SUSPICIOUS && !stalled
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
        Some(EventFormat::Json) => Show::Events(Box::default()),
        None => Show::Picture { picture: Picture::new(), said: String::new() },
    };
    let mut doctor = Doctor::new(client, namespace, trees.clone());
    let mut heard = Instant::now();
    let mut seen: Option<Seen> = None;
    let mut news = std::pin::pin!(news(client, namespace, reference));
    while let Some(item) = news.next().await {
        if matches!(item, News::Subject(_) | News::Operation(_)) {
            heard = Instant::now();
        }
        match item {
            News::Subject(Some(object)) => {
                let operation = seen.take().and_then(|seen| seen.operation);
                seen = Some(Seen { kind: reference.kind, object: serde_json::to_value(object)?, operation });
            }
            News::Subject(None) if seen.is_some() => {
                bail!("{} {} was deleted before it ended", reference.kind.word(), reference.name)
            }
            News::Operation(operation) => {
                if let Some(seen) = &mut seen {
                    seen.operation = operation.map(|operation| *operation);
                }
            }
            News::WatchFailed(cause) => tracing::warn!("watch failed, retrying: {cause}"),
            News::Subject(None) | News::Tick => {}
        }
        let Some(seen) = &seen else { continue };
        if let Some(outcome) = seen.outcome() {
            show.end(seen);
            return Ok(outcome);
        }
        let leaders = trees.snapshot(seen.text("/metadata/uid").unwrap_or_default());
        let goes_on = goes_on(seen, leaders.as_ref(), heard.elapsed());
        let told = match observed_kind(reference.kind) {
            Some(kind) => doctor.ask(kind, &reference.name, goes_on).await,
            None => None,
        };
        show.news(seen, leaders.as_ref(), told);
    }
    bail!("the watch ended before {} {} did", reference.kind.word(), reference.name)
}

fn news(client: &Client, namespace: &str, reference: &Reference) -> impl Stream<Item = News> + use<> {
    let subjects = reference.kind.api(client, namespace);
    let operations: Api<Operation> = Api::namespaced(client.clone(), namespace);
    let subject = watcher::watch_object(subjects, &reference.name).map(|event| match event {
        Ok(object) => News::Subject(object.map(Box::new)),
        Err(error) => News::WatchFailed(error_text(&error)),
    });
    let operation = watcher::watch_object(operations, &operation_name(reference)).map(|event| match event {
        Ok(operation) => News::Operation(operation.map(Box::new)),
        Err(error) => News::WatchFailed(error_text(&error)),
    });
    let ticks = stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        Some((News::Tick, ()))
    });
    stream::select(stream::select(subject.boxed(), operation.boxed()), ticks.boxed())
}

/// How those who look on call a kind.
fn observed_kind(kind: Kind) -> Option<plimsoll_observe::Kind> {
    match kind {
        Kind::Backup => Some(plimsoll_observe::Kind::Backup),
        Kind::Restore => Some(plimsoll_observe::Kind::Restore),
        Kind::Action => Some(plimsoll_observe::Kind::ActionSet),
        _ => None,
    }
}

/// The tree with the subject's own, fresher numbers in it.
pub fn rows(seen: &Seen) -> Vec<Row> {
    drawn(seen, None, &[], draw::USUAL_ROWS)
}

/// The leader's tree if it can be had, else the one that it wrote; and below it what there is to say.
fn drawn(seen: &Seen, leaders: Option<&Snapshot>, notes: &[Row], most: usize) -> Vec<Row> {
    let written = || {
        let mut tree = seen.tree()?;
        refresh(&mut tree, seen);
        Some(tree)
    };
    let tree = leaders.cloned().or_else(written);
    let Some(tree) = tree else { return std::iter::once(subject_row(seen)).chain(notes.iter().cloned()).collect() };
    let mut rows = observed::with_notes(&tree, notes, most);
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
