//! Waiting for a backup, restore or action to end: live progress on a terminal, plain lines elsewhere.
//!
//! The preferred source is the progress tree of the leader, through the API server. Where it is not reachable, two sources are watched: the
//! object, whose own counters are at most a second old, and its Operation, whose tree has the details but is written less
//! often. The tree is then shown with the counters of the object.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::{Stream, StreamExt, stream};
use kube::api::DynamicObject;
use kube::runtime::watcher;
use kube::{Api, Client};
use plimsoll_api::client_error::error_text;
use plimsoll_api::plimsoll::v1alpha1::Operation;
use plimsoll_observe::Explanation;
use plimsoll_progress::view::{self, Row};
use plimsoll_progress::{Percent, Ratchet, Snapshot, Unit};

use crate::args::names::{Reference, ResourceKind};
use crate::args::options::EventFormat;
use crate::errors::Interrupted;
use crate::events::Events;
use crate::exit::Outcome;
use crate::observation::StallExplainer;
use crate::progress_display::ProgressDisplay;
use crate::subjects::{Subject, operation_name};
use crate::{draw, observation, output};

enum WatchEvent {
    Subject(Option<Box<DynamicObject>>),
    Operation(Option<Box<Operation>>),
    WatchFailed(String),
    Tick,
}

/// How progress is shown.
enum ProgressOutput {
    Display { display: ProgressDisplay, said: String, shown: Ratchet },
    Events(Box<Events>),
}

impl ProgressOutput {
    fn update(&mut self, subject: &Subject, leaders: Option<&Snapshot>, explanation: Option<&Explanation>) {
        match self {
            Self::Display { display, said, shown } => {
                let notes = explanation.map(observation::notes).unwrap_or_default();
                // The written tree is a little older than the one in the server's memory.
                let tree = leaders.cloned().or_else(|| written_tree(subject)).map(|tree| shown.show(tree));
                display.show(&drawn(subject, tree.as_ref(), &notes, draw::max_rows()));
                if !display.is_drawn() {
                    observation::print_cause(said, explanation);
                }
            }
            Self::Events(events) => events.emit(subject, leaders, explanation),
        }
    }

    fn end(self, subject: &Subject) {
        match self {
            Self::Display { display, .. } => {
                display.clear();
                output::line(verdict(subject));
            }
            Self::Events(mut events) => events.emit(subject, None, None),
        }
    }
}

/// The cause of a stall is looked for after this time without progress.
const EXPLAIN_AFTER: Duration = Duration::from_secs(10);

/// Whether it progresses. The ages in a written tree are those of its writing: no new tree counts as no progress.
fn is_progressing(subject: &Subject, leaders: Option<&Snapshot>, silence: Duration) -> bool {
    let advance = |tree: &Snapshot| tree.root().map_or(Duration::ZERO, |root| root.ages.advance);
    let (stands, stalled) = match (leaders, subject.tree()) {
        (Some(tree), _) => (advance(tree), tree.stall.is_some()),
        (None, Some(tree)) => (advance(&tree).max(silence), tree.stall.is_some()),
        (None, None) => (silence, false),
    };
    stands < EXPLAIN_AFTER && !stalled
}

/// Waits until it has ended, and returns the outcome. Ctrl-C ends the wait, not the operation.
pub async fn until_ended(
    client: &Client,
    namespace: &str,
    reference: &Reference,
    events: Option<EventFormat>,
) -> anyhow::Result<Outcome> {
    tokio::select! {
        outcome = follow(client, namespace, reference, events) => outcome,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.context("cannot listen for signals")?;
            bail!(Interrupted(format!("{reference} continues; follow it with `plimsoll watch {reference}`")))
        }
    }
}

/// Shows its progress until it has ended, and returns the outcome.
pub async fn follow(
    client: &Client,
    namespace: &str,
    reference: &Reference,
    events: Option<EventFormat>,
) -> anyhow::Result<Outcome> {
    let (trees, _following) = observation::leader_trees(client, namespace);
    let mut show = match events {
        Some(EventFormat::Json) => ProgressOutput::Events(Box::default()),
        None => {
            ProgressOutput::Display { display: ProgressDisplay::new(), said: String::new(), shown: Ratchet::default() }
        }
    };
    let mut explainer = StallExplainer::new(client, namespace, trees.clone());
    let mut last_event = Instant::now();
    let mut subject: Option<Subject> = None;
    let mut events = std::pin::pin!(watch_events(client, namespace, reference));
    while let Some(item) = events.next().await {
        if matches!(item, WatchEvent::Subject(_) | WatchEvent::Operation(_)) {
            last_event = Instant::now();
        }
        match item {
            WatchEvent::Subject(Some(object)) => {
                let operation = subject.take().and_then(|subject| subject.operation);
                subject = Some(Subject { kind: reference.kind, object: serde_json::to_value(object)?, operation });
            }
            WatchEvent::Subject(None) if subject.is_some() => {
                bail!("{} {} was deleted before it ended", reference.kind.word(), reference.name)
            }
            WatchEvent::Operation(operation) => {
                if let Some(subject) = &mut subject {
                    subject.operation = operation.map(|operation| *operation);
                }
            }
            WatchEvent::WatchFailed(cause) => tracing::warn!("watch failed, retrying: {cause}"),
            WatchEvent::Subject(None) | WatchEvent::Tick => {}
        }
        let Some(subject) = &subject else { continue };
        if let Some(outcome) = subject.outcome() {
            show.end(subject);
            return Ok(outcome);
        }
        let leaders = trees.snapshot(subject.text("/metadata/uid").unwrap_or_default());
        let is_progressing = is_progressing(subject, leaders.as_ref(), last_event.elapsed());
        let explanation = match observed_kind(reference.kind) {
            Some(kind) => explainer.explain(kind, &reference.name, is_progressing).await,
            None => None,
        };
        show.update(subject, leaders.as_ref(), explanation);
    }
    bail!("the watch ended before {} {} did", reference.kind.word(), reference.name)
}

fn watch_events(client: &Client, namespace: &str, reference: &Reference) -> impl Stream<Item = WatchEvent> + use<> {
    let subjects = reference.kind.api(client, namespace);
    let operations: Api<Operation> = Api::namespaced(client.clone(), namespace);
    let subject = watcher::watch_object(subjects, &reference.name).map(|event| match event {
        Ok(object) => WatchEvent::Subject(object.map(Box::new)),
        Err(error) => WatchEvent::WatchFailed(error_text(&error)),
    });
    let operation = watcher::watch_object(operations, &operation_name(reference)).map(|event| match event {
        Ok(operation) => WatchEvent::Operation(operation.map(Box::new)),
        Err(error) => WatchEvent::WatchFailed(error_text(&error)),
    });
    let ticks = stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        Some((WatchEvent::Tick, ()))
    });
    stream::select(stream::select(subject.boxed(), operation.boxed()), ticks.boxed())
}

/// The kind as `plimsoll-observe` names it.
fn observed_kind(kind: ResourceKind) -> Option<plimsoll_observe::Kind> {
    match kind {
        ResourceKind::Backup => Some(plimsoll_observe::Kind::Backup),
        ResourceKind::Restore => Some(plimsoll_observe::Kind::Restore),
        ResourceKind::Action => Some(plimsoll_observe::Kind::ActionSet),
        _ => None,
    }
}

/// The tree with the fresher counters of the object.
pub fn rows(subject: &Subject) -> Vec<Row> {
    drawn(subject, written_tree(subject).as_ref(), &[], draw::DEFAULT_ROWS)
}

/// The tree that the server wrote, with the fresher counters of the object.
fn written_tree(subject: &Subject) -> Option<Snapshot> {
    let mut tree = subject.tree()?;
    refresh(&mut tree, subject);
    Some(tree)
}

/// The rows of a tree, and notes below it.
fn drawn(subject: &Subject, tree: Option<&Snapshot>, notes: &[Row], most: usize) -> Vec<Row> {
    let Some(tree) = tree else { return std::iter::once(subject_row(subject)).chain(notes.iter().cloned()).collect() };
    let mut rows = observation::with_notes(tree, notes, most);
    if let Some(root) = rows.first_mut() {
        root.label = format!("{} {}", subject.kind.word(), subject.name());
    }
    rows
}

fn refresh(tree: &mut Snapshot, subject: &Subject) {
    // Numbers of two moments have no token.
    tree.token = None;
    let items = subject.items();
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
        && let Some(percent) = subject.text("/status/plimsoll/percent").and_then(|text| text.parse().ok())
    {
        root.percent = Some(percent);
    }
}

fn subject_row(subject: &Subject) -> Row {
    let operation = plimsoll_progress::Operation::new(
        format!("{} {}", subject.kind.word(), subject.name()),
        plimsoll_progress::Clock::system(),
    );
    operation.root().say(subject.phase());
    view::rows(&operation.snapshot()).swap_remove(0)
}

/// One line about the outcome, and the next command.
pub fn verdict(subject: &Subject) -> String {
    let (kind, name, items) = (subject.kind.word(), subject.name(), subject.items());
    let mut text = format!("{kind} {name}: {}", subject.phase());
    if items.total.value().is_some() {
        text += &format!(", {} of {} items {}", items.done, items.total.value().unwrap_or(0), subject.kind.done_word());
    }
    for (count, word) in [(items.skipped, "skipped"), (items.failed, "failed")] {
        if count > 0 {
            text += &format!(", {count} {word}");
        }
    }
    if let Some(percent) = subject.text("/status/progress/percentCompleted") {
        text += &format!(", {percent}%");
    }
    if let Some(reason) = subject.failure() {
        text += &format!(": {reason}");
    }
    for fault in subject.object.pointer("/status/validationErrors").and_then(|v| v.as_array()).into_iter().flatten() {
        text += &format!("\n  {}", fault.as_str().unwrap_or_default());
    }
    let (errors, warnings) = (subject.number("/status/errors"), subject.number("/status/warnings"));
    if errors + warnings > 0 {
        text += &format!(" ({errors} errors, {warnings} warnings: `plimsoll describe {kind}/{name}`)");
    }
    text
}
