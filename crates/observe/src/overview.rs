//! All operations, the stuck ones first.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_progress::view::{Look, duration_text};
use plimsoll_progress::{Node, Percent, Ratchet, Snapshot, Speed, Stall, StallReason, TimeLeft, Trees, Unit};
use serde::Serialize;

use crate::cluster_state::ClusterState;
use crate::evidence::shorten;
use crate::explain::{Explanation, Verdict, explain, phase};
use crate::kind::Kind;
use crate::object::{Object, Reference};
use crate::observed_task::ObservedTask;
use crate::observed_tree::observed_tree;
use crate::progress_tracker::ProgressTracker;
use crate::transfer::Transfer;

/// Our own server writes an Operation at least every five seconds.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);

/// One operation in the overview.
#[derive(Clone, Debug)]
pub struct OperationSummary {
    /// The object.
    pub reference: Reference,
    /// The icon and colour.
    pub look: Look,
    /// Verdict, causes and tree.
    pub explanation: Explanation,
    /// Its activity, its wait or its failure.
    pub doing: String,
    /// The time since it was created.
    pub age: Duration,
    /// The time since it ended, if it has.
    pub ended_ago: Option<Duration>,
    /// Whether our own server runs it, so that it can be cancelled.
    pub has_operation: bool,
}

/// Tracks every operation from one state to the next.
#[derive(Debug, Default)]
pub struct Overview {
    operations: HashMap<String, ProgressTracker>,
    volumes: HashMap<String, ProgressTracker>,
    /// What was shown of each operation and volume, from whichever source.
    shown: HashMap<String, Ratchet>,
    shown_volumes: HashMap<String, Ratchet>,
    trees: Trees,
    transfers: Trees,
}

/// The progress of one volume.
#[derive(Clone, Debug)]
pub struct VolumeProgress<'w> {
    /// The transfer's object.
    pub transfer: Transfer<'w>,
    /// Its tree: from the memory of its agent, or what its object shows.
    pub tree: Snapshot,
    /// Rate and time left while it runs.
    pub speed: Option<Speed>,
}

impl Overview {
    /// An overview that prefers these trees, by the uid of their subject, to the cluster's objects: they are newer.
    pub fn with_trees(trees: Trees) -> Self {
        Self { trees, ..Self::default() }
    }

    /// The same for the trees of volume transfers.
    #[must_use]
    pub fn with_transfer_trees(self, transfers: Trees) -> Self {
        Self { transfers, ..self }
    }

    /// At most `most` volumes: running ones, then the latest of the others.
    pub fn volumes<'w>(&mut self, cluster: &'w ClusterState, most: usize) -> Vec<VolumeProgress<'w>> {
        let all = Kind::VOLUMES.iter().flat_map(|kind| cluster.all(*kind)).map(|object| Transfer { object });
        let mut all: Vec<Transfer<'w>> = all.collect();
        all.sort_by_key(|transfer| (transfer.is_ended(), std::cmp::Reverse(transfer.object.created())));
        all.truncate(most);
        let open = all.iter().filter(|transfer| !transfer.is_ended());
        let known: HashSet<String> = open.map(|transfer| key(transfer.object)).collect();
        self.volumes.retain(|key, _| known.contains(key));
        self.shown_volumes.retain(|key, _| known.contains(key));
        all.into_iter().map(|transfer| self.volume_progress(transfer, cluster)).collect()
    }

    fn volume_progress<'w>(&mut self, transfer: Transfer<'w>, cluster: &'w ClusterState) -> VolumeProgress<'w> {
        if transfer.is_ended() {
            return VolumeProgress { transfer, tree: transfer.written_tree(), speed: None };
        }
        let live = live_tree(transfer.object, [&self.trees, &self.transfers]);
        // Its own process knows best, then what it has written; else the rate comes from observation.
        let speed =
            live.as_ref().map(Snapshot::speed).or_else(|| written_speed(transfer.object)).unwrap_or_else(|| {
                let observed = transfer.observed_task(cluster);
                track(&mut self.volumes, key(transfer.object), &observed, cluster).speed()
            });
        let shown = self.shown_volumes.entry(key(transfer.object)).or_default();
        let tree = shown.show(live.as_ref().map_or_else(|| transfer.written_tree(), root_alone));
        VolumeProgress { transfer, tree, speed: Some(speed) }
    }

    /// All operations.
    pub fn list_operations(&mut self, cluster: &ClusterState) -> Vec<OperationSummary> {
        let objects = requested_objects(cluster);
        let known: HashSet<String> = objects.iter().map(|object| key(object)).collect();
        self.operations.retain(|key, _| known.contains(key));
        self.shown.retain(|key, _| known.contains(key));
        let mut lines: Vec<OperationSummary> = objects.into_iter().map(|object| self.line(object, cluster)).collect();
        // Of running operations the oldest comes first, because others may wait for it. Of ended ones the latest.
        lines.sort_by_key(|line| (rank(line), line.ended_ago, std::cmp::Reverse(line.age)));
        lines
    }

    /// The tree of one object. Nothing that was shown of it goes back, whichever source it comes from now.
    pub fn tree(&mut self, object: &Object, cluster: &ClusterState) -> Snapshot {
        let live = live_tree(object, [&self.trees, &self.transfers]);
        let tree = live.or_else(|| own_tree(object, cluster));
        let tree = tree.unwrap_or_else(|| self.observed_tree(object, cluster));
        let key = key(object);
        if !tree.state().is_ended() {
            return self.shown.entry(key).or_default().show(tree);
        }
        // What has ended is shown as it was written from now on.
        match self.shown.remove(&key) {
            Some(mut shown) => shown.show(tree),
            None => tree,
        }
    }

    /// The tree that the objects of the cluster show, with the percentage that our own server wrote.
    fn observed_tree(&mut self, object: &Object, cluster: &ClusterState) -> Snapshot {
        let mut tree = track(&mut self.operations, key(object), &observed_tree(object, cluster), cluster);
        if let (Some(root), Some(percent)) = (tree.nodes.first_mut(), written_percent(object)) {
            root.percent = Some(percent);
        }
        tree
    }

    /// Explains one object.
    pub fn explain(&mut self, object: &Object, cluster: &ClusterState) -> Explanation {
        let tree = self.tree(object, cluster);
        explain(object, cluster, tree)
    }

    fn line(&mut self, object: &Object, cluster: &ClusterState) -> OperationSummary {
        let explanation = self.explain(object, cluster);
        let ended_ago = explanation.verdict.is_ended().then(|| ended_ago(object, cluster));
        OperationSummary {
            reference: object.reference(),
            look: verdict_look(&explanation),
            doing: activity_text(&explanation, object),
            age: object.created().map(|then| cluster.age(then)).unwrap_or_default(),
            ended_ago,
            has_operation: operation_of(object, cluster).is_some(),
            explanation,
        }
    }
}

/// The tree of an object that is tracked from one state to the next.
fn track(
    trackers: &mut HashMap<String, ProgressTracker>,
    key: String,
    observed: &ObservedTask,
    cluster: &ClusterState,
) -> Snapshot {
    match trackers.entry(key) {
        Entry::Occupied(known) => {
            let known = known.into_mut();
            known.observe(observed, cluster.now);
            known.snapshot()
        }
        Entry::Vacant(place) => place.insert(ProgressTracker::new(observed, cluster.now)).snapshot(),
    }
}

/// The root of a volume's tree with all its bytes: the same shape as what its object shows.
fn root_alone(tree: &Snapshot) -> Snapshot {
    let root = tree.root().map(|root| Node { meters: tree.sum(Unit::Bytes).into_iter().collect(), ..root.clone() });
    Snapshot { nodes: root.into_iter().collect(), ..tree.clone() }
}

/// The percentage that our own server has written: the sketch of an ended operation weighs its parts differently.
fn written_percent(object: &Object) -> Option<Percent> {
    let places = ["/status/plimsoll/percent", "/status/progress/percentCompleted"];
    places.iter().find_map(|place| object.some_text(place)?.parse().ok())
}

/// The rate and time left that our own server or agent has written.
fn written_speed(object: &Object) -> Option<Speed> {
    let rate = object.number("/status/plimsoll/rate");
    let left = match object.list("/status/plimsoll/secondsLeft") {
        [low, high] => low.as_u64().zip(high.as_u64()).map(|(low, high)| TimeLeft { low, high }),
        _ => None,
    };
    let unit = object.at("/status/plimsoll/unit").and_then(|unit| serde_json::from_value(unit.clone()).ok());
    object.at("/status/plimsoll").map(|_| Speed { rate, unit: unit.unwrap_or(Unit::Bytes), left })
}

fn key(object: &Object) -> String {
    format!("{} {} {} {}", object.kind().word(), object.namespace(), object.name(), object.text("/metadata/uid"))
}

fn ended_ago(object: &Object, cluster: &ClusterState) -> Duration {
    let end = object.time("/status/completionTimestamp").or_else(|| object.last_write());
    end.map(|then| cluster.age(then)).unwrap_or_default()
}

/// Objects that users requested, and transfers whose Backup or Restore does not exist.
fn requested_objects(cluster: &ClusterState) -> Vec<&Object> {
    let mut found: Vec<&Object> =
        [Kind::Backup, Kind::Restore, Kind::ActionSet].iter().flat_map(|kind| cluster.all(*kind)).collect();
    let open = |request: &&Object| request.phase() != "Processed" || !request.list("/status/errors").is_empty();
    found.extend(cluster.all(Kind::DeleteBackupRequest).iter().filter(open));
    let orphan = |object: &&Object| {
        let transfer = Transfer { object };
        let known = |(kind, name): (Kind, &str)| cluster.find(kind, object.namespace(), name).is_some();
        !transfer.is_ended() && !transfer.parent().is_some_and(known)
    };
    found.extend(Kind::VOLUMES.iter().flat_map(|kind| cluster.all(*kind)).filter(orphan));
    found
}

fn rank(line: &OperationSummary) -> u8 {
    match line.explanation.verdict {
        Verdict::Stuck => 0,
        Verdict::Quiet | Verdict::Moving => 1,
        Verdict::Waiting => 2,
        _ => 3,
    }
}

fn verdict_look(explanation: &Explanation) -> Look {
    match explanation.verdict {
        Verdict::Stuck => Look::Stalled,
        Verdict::Failed | Verdict::PartiallyFailed | Verdict::Refused => Look::Failed,
        Verdict::Cancelled => Look::Cancelled,
        Verdict::Quiet => Look::Quiet,
        Verdict::Waiting => Look::Waiting,
        Verdict::Moving => Look::Running,
        Verdict::Fine => Look::Done,
    }
}

fn activity_text(explanation: &Explanation, object: &Object) -> String {
    let cause = explanation.causes.first();
    let stall = explanation.tree.stall.as_ref();
    match explanation.verdict {
        Verdict::Stuck => match (cause, stall) {
            (Some(cause), _) => cause.text.clone(),
            (None, Some(stall)) => {
                let word = stall.verdict().word();
                format!("{word} for {}: {}: {}", duration_text(stall.age), stall.task, stall.message)
            }
            (None, None) => phase(object).to_owned(),
        },
        Verdict::Failed | Verdict::PartiallyFailed | Verdict::Refused => {
            cause.map_or_else(|| phase(object).to_owned(), |cause| cause.text.clone())
        }
        Verdict::Waiting | Verdict::Quiet | Verdict::Moving => {
            current(explanation).unwrap_or_else(|| phase(object).to_owned())
        }
        Verdict::Cancelled | Verdict::Fine => phase(object).to_owned(),
    }
}

/// The deepest running task and its item.
fn current(explanation: &Explanation) -> Option<String> {
    let node = explanation.tree.current()?;
    let what = node.reason.as_deref().or(node.item.as_deref()).unwrap_or_default();
    let name = if node.path.is_empty() { "" } else { &*node.name };
    let joined = [name, what].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ");
    Some(shorten(&joined)).filter(|text| !text.is_empty())
}

/// The Operation of an object, if our own server runs it.
pub fn operation_of<'w>(object: &Object, cluster: &'w ClusterState) -> Option<&'w Object> {
    let uid = object.some_text("/metadata/uid")?;
    cluster.all(Kind::Operation).iter().find(|operation| operation.text("/spec/subject/uid") == uid)
}

/// The tree of an object in memory.
fn live_tree(object: &Object, trees: [&Trees; 2]) -> Option<Snapshot> {
    let uid = object.some_text("/metadata/uid")?;
    let mut tree = trees.iter().find_map(|trees| trees.snapshot(uid))?;
    tree.nodes.first_mut()?.name = Arc::from(object.reference().to_string());
    Some(tree)
}

/// The tree that our own server has written.
fn own_tree(object: &Object, cluster: &ClusterState) -> Option<Snapshot> {
    let operation = operation_of(object, cluster)?;
    let mut tree: Snapshot = serde_json::from_value(operation.at("/status/tree")?.clone()).ok()?;
    let age = operation.last_write().map(|then| cluster.age(then)).unwrap_or_default();
    for node in tree.nodes.iter_mut().filter(|node| node.state.is_active()) {
        node.ages.advance += age;
        node.ages.elapsed = node.ages.elapsed.map(|elapsed| elapsed + age);
    }
    let root = tree.nodes.first_mut()?;
    root.name = Arc::from(object.reference().to_string());
    if age > SILENCE_LIMIT && root.state.is_active() {
        let message = Arc::from("no update from the server that runs it");
        let stall = Stall { task: Arc::clone(&root.name), age, reason: StallReason::NoReport, message };
        root.stall = Some(stall.clone());
        tree.stall = Some(stall);
    }
    Some(tree)
}

impl Serialize for OperationSummary {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let (root, speed) = (self.explanation.tree.root(), self.explanation.tree.speed());
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("operation", &self.reference)?;
        map.serialize_entry("namespace", &self.reference.namespace)?;
        map.serialize_entry("phase", &self.explanation.phase)?;
        map.serialize_entry("verdict", &self.explanation.verdict)?;
        map.serialize_entry("doing", &self.doing)?;
        map.serialize_entry("ageSeconds", &self.age.as_secs())?;
        map.serialize_entry("endedSecondsAgo", &self.ended_ago.map(|ago| ago.as_secs()))?;
        map.serialize_entry("percent", &root.and_then(|root| root.percent))?;
        map.serialize_entry("rate", &speed.rate)?;
        map.serialize_entry("unit", &speed.rate.map(|_| speed.unit))?;
        map.serialize_entry("secondsLeft", &speed.left.map(|left| [left.low, left.high]))?;
        map.serialize_entry("token", &self.explanation.tree.token)?;
        map.serialize_entry("causes", &self.explanation.causes)?;
        map.end()
    }
}
