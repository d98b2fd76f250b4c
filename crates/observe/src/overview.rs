//! Every operation there is, the one that needs a person first.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_progress::view::{Look, duration_text};
use plimsoll_progress::{Snapshot, Speed, Stall, StallReason, TimeLeft, Trees, Unit};
use serde::Serialize;

use crate::evidence::short;
use crate::explain::{Explanation, Verdict, explain, phase};
use crate::follow::Follower;
use crate::kind::Kind;
use crate::object::{Object, Reference};
use crate::sketch::Sketch;
use crate::sketches::sketch;
use crate::transfer::Transfer;
use crate::world::World;

/// Our own server writes an Operation at least every five seconds.
const SILENCE: Duration = Duration::from_secs(30);

/// When it ended, and how long that took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// How long ago.
    pub ago: Duration,
}

/// One operation in the list.
#[derive(Clone, Debug)]
pub struct Line {
    /// What it is.
    pub reference: Reference,
    /// How it looks.
    pub look: Look,
    /// Everything about it.
    pub told: Explanation,
    /// What it is doing, waiting for or died of: the one thing to know.
    pub doing: String,
    /// How long since it was asked for.
    pub age: Duration,
    /// Whether it has ended.
    pub ended: Option<Ended>,
    /// Whether it has an Operation of ours, which can be cancelled.
    pub ours: bool,
}

/// Follows every operation from one look to the next.
#[derive(Debug, Default)]
pub struct Overview {
    followers: HashMap<String, Follower>,
    /// Of single volumes.
    carriers: HashMap<String, Follower>,
    trees: Trees,
    transfers: Trees,
}

/// The data of one volume, and how far it is.
#[derive(Clone, Debug)]
pub struct Carried<'w> {
    /// What the cluster says.
    pub transfer: Transfer<'w>,
    /// What is in the memory of whoever moves it.
    pub live: Option<Snapshot>,
    /// How fast it goes and how long it will take, for as long as it does.
    pub speed: Option<Speed>,
}

impl Overview {
    /// One that prefers these trees, by the uid of their subject, to what the cluster says of them: the server that works knows it
    /// before it has written it.
    pub fn with(trees: Trees) -> Self {
        Self { trees, ..Self::default() }
    }

    /// The same for the trees of single volumes, which are in the memory of those who move them.
    #[must_use]
    pub fn and_transfers(self, transfers: Trees) -> Self {
        Self { transfers, ..self }
    }

    /// At most so many volumes as they are now: those on their way, and of the others the latest.
    pub fn volumes<'w>(&mut self, world: &'w World, most: usize) -> Vec<Carried<'w>> {
        let all = Kind::VOLUMES.iter().flat_map(|kind| world.all(*kind)).map(|object| Transfer { object });
        let mut all: Vec<Transfer<'w>> = all.collect();
        all.sort_by_key(|transfer| (transfer.is_ended(), std::cmp::Reverse(transfer.object.created())));
        all.truncate(most);
        let open = all.iter().filter(|transfer| !transfer.is_ended());
        let known: HashSet<String> = open.map(|transfer| key(transfer.object)).collect();
        self.carriers.retain(|key, _| known.contains(key));
        all.into_iter().map(|transfer| self.carried(transfer, world)).collect()
    }

    fn carried<'w>(&mut self, transfer: Transfer<'w>, world: &'w World) -> Carried<'w> {
        if transfer.is_ended() {
            return Carried { transfer, live: None, speed: None };
        }
        let live = live_tree(transfer.object, [&self.trees, &self.transfers]);
        // Somebody who is closer has said it; else it is what can be told from watching.
        let speed =
            live.as_ref().map(Snapshot::speed).or_else(|| written_speed(transfer.object)).unwrap_or_else(|| {
                let sketch = transfer.sketch(world);
                observed(&mut self.carriers, key(transfer.object), &sketch, world).speed()
            });
        Carried { transfer, live, speed: Some(speed) }
    }

    /// All operations as they are now.
    pub fn look(&mut self, world: &World) -> Vec<Line> {
        let objects = operations(world);
        let known: HashSet<String> = objects.iter().map(|object| key(object)).collect();
        self.followers.retain(|key, _| known.contains(key));
        let mut lines: Vec<Line> = objects.into_iter().map(|object| self.line(object, world)).collect();
        // Of what is open the oldest comes first: others may only wait for it. Of what has ended the latest.
        lines.sort_by_key(|line| (rank(line), line.ended.map(|ended| ended.ago), std::cmp::Reverse(line.age)));
        lines
    }

    /// The tree of one object as it is now.
    pub fn tree(&mut self, object: &Object, world: &World) -> Snapshot {
        let live = live_tree(object, [&self.trees, &self.transfers]);
        if let Some(tree) = live.or_else(|| own_tree(object, world)) {
            return tree;
        }
        observed(&mut self.followers, key(object), &sketch(object, world), world)
    }

    /// Everything about one object.
    pub fn explain(&mut self, object: &Object, world: &World) -> Explanation {
        let tree = self.tree(object, world);
        explain(object, world, tree)
    }

    fn line(&mut self, object: &Object, world: &World) -> Line {
        let told = self.explain(object, world);
        let ended = told.verdict.is_ended().then(|| Ended { ago: ago(object, world) });
        Line {
            reference: object.reference(),
            look: look(&told),
            doing: doing(&told, object),
            age: object.created().map(|then| world.age(then)).unwrap_or_default(),
            ended,
            ours: operation_of(object, world).is_some(),
            told,
        }
    }
}

/// The tree of something that is followed from one look to the next.
fn observed(followers: &mut HashMap<String, Follower>, key: String, sketch: &Sketch, world: &World) -> Snapshot {
    match followers.entry(key) {
        Entry::Occupied(known) => {
            let known = known.into_mut();
            known.observe(sketch, world.now);
            known.snapshot()
        }
        Entry::Vacant(place) => place.insert(Follower::new(sketch, world.now)).snapshot(),
    }
}

/// How fast a transfer goes in the words of our own server or agent.
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

fn ago(object: &Object, world: &World) -> Duration {
    let end = object.time("/status/completionTimestamp").or_else(|| object.last_write());
    end.map(|then| world.age(then)).unwrap_or_default()
}

/// Whatever somebody asked for: transfers only if nothing in sight has asked for them.
fn operations(world: &World) -> Vec<&Object> {
    let mut found: Vec<&Object> =
        [Kind::Backup, Kind::Restore, Kind::ActionSet].iter().flat_map(|kind| world.all(*kind)).collect();
    let open = |request: &&Object| request.phase() != "Processed" || !request.list("/status/errors").is_empty();
    found.extend(world.all(Kind::DeleteBackupRequest).iter().filter(open));
    let orphan = |object: &&Object| {
        let transfer = Transfer { object };
        let known = |(kind, name): (Kind, &str)| world.find(kind, object.namespace(), name).is_some();
        !transfer.is_ended() && !transfer.parent().is_some_and(known)
    };
    found.extend(Kind::VOLUMES.iter().flat_map(|kind| world.all(*kind)).filter(orphan));
    found
}

fn rank(line: &Line) -> u8 {
    match line.told.verdict {
        Verdict::Stuck => 0,
        Verdict::Quiet | Verdict::Moving => 1,
        Verdict::Waiting => 2,
        _ => 3,
    }
}

fn look(told: &Explanation) -> Look {
    match told.verdict {
        Verdict::Stuck => Look::Stalled,
        Verdict::Failed | Verdict::PartiallyFailed | Verdict::Refused => Look::Failed,
        Verdict::Cancelled => Look::Cancelled,
        Verdict::Quiet => Look::Quiet,
        Verdict::Waiting => Look::Waiting,
        Verdict::Moving => Look::Running,
        Verdict::Fine => Look::Done,
    }
}

fn doing(told: &Explanation, object: &Object) -> String {
    let cause = told.causes.first();
    let stall = told.tree.stall.as_ref();
    match told.verdict {
        Verdict::Stuck => match (cause, stall) {
            (Some(cause), _) => cause.text.clone(),
            (None, Some(stall)) => format!("{}: {}: {}", duration_text(stall.age), stall.task, stall.message),
            (None, None) => phase(object).to_owned(),
        },
        Verdict::Failed | Verdict::PartiallyFailed | Verdict::Refused => {
            cause.map_or_else(|| phase(object).to_owned(), |cause| cause.text.clone())
        }
        Verdict::Waiting | Verdict::Quiet | Verdict::Moving => {
            current(told).unwrap_or_else(|| phase(object).to_owned())
        }
        Verdict::Cancelled | Verdict::Fine => phase(object).to_owned(),
    }
}

/// What the deepest task at work is, and what it does.
fn current(told: &Explanation) -> Option<String> {
    let node = told.tree.current()?;
    let what = node.reason.as_deref().or(node.item.as_deref()).unwrap_or_default();
    let name = if node.path.is_empty() { "" } else { &*node.name };
    let joined = [name, what].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ");
    Some(short(&joined)).filter(|text| !text.is_empty())
}

/// What our own server has written down about its work on this.
pub fn operation_of<'w>(object: &Object, world: &'w World) -> Option<&'w Object> {
    let uid = object.some_text("/metadata/uid")?;
    world.all(Kind::Operation).iter().find(|operation| operation.text("/spec/subject/uid") == uid)
}

/// The tree in the memory of the server that works on this.
fn live_tree(object: &Object, trees: [&Trees; 2]) -> Option<Snapshot> {
    let uid = object.some_text("/metadata/uid")?;
    let mut tree = trees.iter().find_map(|trees| trees.snapshot(uid))?;
    tree.nodes.first_mut()?.name = Arc::from(object.reference().to_string());
    Some(tree)
}

/// The tree that our own server wrote, if it works on this.
fn own_tree(object: &Object, world: &World) -> Option<Snapshot> {
    let operation = operation_of(object, world)?;
    let mut tree: Snapshot = serde_json::from_value(operation.at("/status/tree")?.clone()).ok()?;
    let age = operation.last_write().map(|then| world.age(then)).unwrap_or_default();
    for node in tree.nodes.iter_mut().filter(|node| node.state.is_active()) {
        node.ages.advance += age;
        node.ages.elapsed = node.ages.elapsed.map(|elapsed| elapsed + age);
    }
    let root = tree.nodes.first_mut()?;
    root.name = Arc::from(object.reference().to_string());
    if age > SILENCE && root.state.is_active() {
        let message = Arc::from("the server that works on it has fallen silent");
        let stall = Stall { task: Arc::clone(&root.name), age, reason: StallReason::NoWord, message };
        root.stall = Some(stall.clone());
        tree.stall = Some(stall);
    }
    Some(tree)
}

impl Serialize for Line {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let (root, speed) = (self.told.tree.root(), self.told.tree.speed());
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("operation", &self.reference)?;
        map.serialize_entry("namespace", &self.reference.namespace)?;
        map.serialize_entry("phase", &self.told.phase)?;
        map.serialize_entry("verdict", &self.told.verdict)?;
        map.serialize_entry("doing", &self.doing)?;
        map.serialize_entry("ageSeconds", &self.age.as_secs())?;
        map.serialize_entry("endedSecondsAgo", &self.ended.map(|ended| ended.ago.as_secs()))?;
        map.serialize_entry("percent", &root.and_then(|root| root.percent))?;
        map.serialize_entry("rate", &speed.rate)?;
        map.serialize_entry("unit", &speed.rate.map(|_| speed.unit))?;
        map.serialize_entry("secondsLeft", &speed.left.map(|left| [left.low, left.high]))?;
        map.serialize_entry("causes", &self.told.causes)?;
        map.end()
    }
}
