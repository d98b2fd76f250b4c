//! Shared parts of the commands that observe operations: `top`, `watch`, `why`.

use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use kube::Client;
use plimsoll_observe::{
    Cause, Certainty, ClusterReader, ClusterState, ClusterWatch, Explanation, Kind, Object, Overview, Scope, Verdict,
};
use plimsoll_progress::view::{self, Look, Row};
use plimsoll_progress::{Snapshot, Trees};
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;

use crate::args::Global;
use crate::errors::UsageError;
use crate::output;

/// How often the trees of the leader are read.
const TREE_POLL_INTERVAL: Duration = Duration::from_millis(400);
/// How often the cause of a stall is looked for.
const EXPLAIN_INTERVAL: Duration = Duration::from_secs(5);

/// An argument such as `podvolumebackup/x`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedReference {
    pub kind: Kind,
    pub name: String,
}

impl FromStr for ObservedReference {
    type Err = UsageError;

    fn from_str(text: &str) -> Result<Self, UsageError> {
        let wrong = || {
            UsageError(format!(
                "invalid reference {text:?}: expected KIND/NAME, e.g. backup/nightly or podvolumebackup/nightly-x7k2p"
            ))
        };
        let (kind, name) = text.split_once('/').filter(|(_, name)| !name.is_empty()).ok_or_else(wrong)?;
        let kind = kind.parse::<Kind>().map_err(|error| UsageError(error.to_string()))?;
        Ok(Self { kind, name: name.to_owned() })
    }
}

/// Reads the cluster with the permissions of the user.
pub fn cluster_reader(client: &Client, global: &Global) -> ClusterReader {
    ClusterReader::new(client.clone(), Scope { namespace: global.namespace.clone() })
}

/// Copies of the trees in the memory of the leader, updated until the handle is dropped. Empty where no leader of ours is reachable.
pub fn leader_trees(client: &Client, namespace: &str) -> (Trees, AbortOnDropHandle<()>) {
    let trees = Trees::default();
    let token = crate::commands::ui::token_from_environment();
    let following = plimsoll_progress_stream::follow_leader(client.clone(), namespace.to_owned(), token, trees.clone());
    (trees, AbortOnDropHandle::new(tokio::spawn(following)))
}

/// New states, and between them the last one again when the trees of the leader have changed.
pub struct ClusterStateWatcher {
    live: ClusterWatch,
    trees: Trees,
    last: Option<(Arc<ClusterState>, Instant)>,
}

impl ClusterStateWatcher {
    /// Starts to watch.
    pub fn watch(reader: &ClusterReader, trees: Trees) -> Self {
        Self { live: ClusterWatch::start(reader), trees, last: None }
    }

    /// The next one; nothing once there are no more.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn next(&mut self) -> Option<Arc<ClusterState>> {
        let last = self.last.clone().filter(|_| !self.trees.is_empty());
        tokio::select! {
            cluster = self.live.next() => {
                let cluster = cluster?;
                self.last = Some((Arc::clone(&cluster), Instant::now()));
                Some(cluster)
            }
            () = tokio::time::sleep(TREE_POLL_INTERVAL), if last.is_some() => {
                last.map(|(cluster, came)| Arc::new(cluster.advanced_by(came.elapsed())))
            }
        }
    }
}

/// The object with this name in the namespace of the server, or the only one with this name elsewhere.
pub fn find<'c>(cluster: &'c ClusterState, watched: &ObservedReference) -> anyhow::Result<&'c Object> {
    let (word, name, namespace) = (watched.kind.word(), &watched.name, &cluster.namespace);
    if let Some(object) = cluster.find(watched.kind, namespace, name) {
        return Ok(object);
    }
    let mut elsewhere = cluster.all(watched.kind).iter().filter(|object| object.name() == name);
    if let (Some(object), None) = (elsewhere.next(), elsewhere.next()) {
        return Ok(object);
    }
    if let Some(unseen) = cluster.unseen.iter().find(|unseen| unseen.what == watched.kind.plural()) {
        bail!("cannot read {} in namespace {namespace}: {}", unseen.what, unseen.why);
    }
    bail!("{word} {name:?} not found in namespace {namespace}; list operations with `plimsoll top --once`")
}

/// The rows of a tree; below them the cause and the next command if it is stalled.
pub fn rows(explanation: &Explanation, most: usize) -> Vec<Row> {
    with_notes(&explanation.tree, &notes(explanation), most)
}

/// The rows of a tree with notes below it, limited to a number of rows.
pub fn with_notes(tree: &Snapshot, notes: &[Row], most: usize) -> Vec<Row> {
    let mut rows = view::rows_within(tree, most.saturating_sub(notes.len()).max(1));
    rows.extend_from_slice(notes);
    rows
}

/// The cause of a stall and the next command.
pub fn notes(explanation: &Explanation) -> Vec<Row> {
    let sure = |cause: &&Cause| explanation.verdict == Verdict::Stuck && cause.certainty < Certainty::Possible;
    let said = explanation.causes.iter().filter(sure).take(2).flat_map(|cause| {
        let next = cause.next.first().map(|command| note("next", command));
        std::iter::once(note("why", &cause.text)).chain(next)
    });
    said.collect()
}

fn note(label: &str, text: &str) -> Row {
    Row {
        depth: 1,
        path: format!("\n{label} {text}"),
        label: label.to_owned(),
        look: Look::Stalled,
        bar: None,
        percent: String::new(),
        counts: String::new(),
        bytes: String::new(),
        rate: String::new(),
        left: String::new(),
        elapsed: String::new(),
        detail: text.to_owned(),
    }
}

/// Prints the cause once, when it becomes known.
pub fn print_cause(said: &mut String, explanation: Option<&Explanation>) {
    let stuck = explanation.filter(|explanation| explanation.verdict == Verdict::Stuck);
    let cause = stuck.and_then(main_cause);
    let text = cause.map(|cause| cause.text.clone()).unwrap_or_default();
    if text != *said {
        if let Some(cause) = cause {
            output::line(format!("stalled: {}", cause.text));
            cause.next.iter().for_each(|command| output::line(format!("  next: {command}")));
        }
        *said = text;
    }
}

/// Looks for the cause of a stall. Until an operation stalls, nothing is read.
pub struct StallExplainer {
    reader: ClusterReader,
    overview: Option<Overview>,
    asked: Option<Instant>,
    explanation_task: Option<JoinHandle<(Overview, Option<Explanation>)>>,
    explanation: Option<Explanation>,
}

impl StallExplainer {
    /// Reads with the permissions of the user.
    pub fn new(client: &Client, namespace: &str, trees: Trees) -> Self {
        let reader = ClusterReader::new(client.clone(), Scope { namespace: namespace.to_owned() });
        Self {
            reader,
            overview: Some(Overview::with_trees(trees)),
            asked: None,
            explanation_task: None,
            explanation: None,
        }
    }

    /// The cause of the stall as far as it is known. Does not wait.
    pub async fn explain(&mut self, kind: Kind, name: &str, is_progressing: bool) -> Option<&Explanation> {
        if let Some(finished) = self.explanation_task.take_if(|running| running.is_finished())
            && let Ok((overview, explanation)) = finished.await
        {
            (self.overview, self.explanation) = (Some(overview), explanation);
        }
        if is_progressing {
            self.explanation = None;
        } else if self.asked.is_none_or(|asked| asked.elapsed() >= EXPLAIN_INTERVAL)
            && let Some(overview) = self.overview.take()
        {
            self.asked = Some(Instant::now());
            self.explanation_task =
                Some(tokio::spawn(read_explanation(self.reader.clone(), overview, kind, name.to_owned())));
        }
        self.explanation.as_ref()
    }
}

async fn read_explanation(
    reader: ClusterReader,
    mut overview: Overview,
    kind: Kind,
    name: String,
) -> (Overview, Option<Explanation>) {
    let cluster = reader.read().await;
    let explanation =
        find(&cluster, &ObservedReference { kind, name }).ok().map(|object| overview.explain(object, &cluster));
    (overview, explanation)
}

/// The first cause, unless it is only possible.
pub fn main_cause(explanation: &Explanation) -> Option<&Cause> {
    explanation.causes.first().filter(|cause| cause.certainty < Certainty::Possible)
}
