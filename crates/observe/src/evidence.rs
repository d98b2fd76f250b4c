//! Facts that more than one judgement needs.

use std::time::Duration;

use jiff::Timestamp;
use plimsoll_progress::view::duration_text;

use crate::kind::Kind;
use crate::object::Object;
use crate::transfer::Transfer;
use crate::world::World;

/// How often a server looks at a location, unless that says otherwise.
const USUAL_FREQUENCY: Duration = Duration::from_mins(1);
/// So many looks may be missing before anybody is called silent.
const MISSED_LOOKS: u32 = 3;
/// Velero wakes up for this only so often.
const SHORTEST_SILENCE: Duration = Duration::from_secs(45);
/// Our own server writes the Operation at least every five seconds.
const OPERATION_SILENCE: Duration = Duration::from_secs(30);
/// What our own server is called: its Deployment, and the mark of its pods.
const OUR_SERVER: &str = "plimsoll";
/// The label of that mark.
const NAME_LABEL: &str = "app.kubernetes.io/name";

/// Who made the server that serves a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Maker {
    /// A stock Velero.
    Velero,
    /// Our own.
    Plimsoll,
}

impl Maker {
    /// How its Deployment is called where nobody has chosen another name.
    pub(crate) fn deployment(self) -> &'static str {
        match self {
            Self::Velero => "velero",
            Self::Plimsoll => OUR_SERVER,
        }
    }

    fn of(deployment: &Object) -> Option<Self> {
        if deployment.name() == OUR_SERVER || deployment.label(NAME_LABEL) == OUR_SERVER {
            return Some(Self::Plimsoll);
        }
        (deployment.name() == "velero" || deployment.label("component") == "velero").then_some(Self::Velero)
    }

    /// Whether this is a pod of its server, not of its agents.
    pub(crate) fn runs(self, pod: &Object) -> bool {
        let named = pod.label(NAME_LABEL);
        match self {
            Self::Plimsoll => named == OUR_SERVER,
            Self::Velero => {
                let agent = pod.label("name") == "node-agent" || pod.label("role") == "node-agent";
                (pod.label("deploy") == "velero" || named == "velero") && !agent
            }
        }
    }
}

/// The Deployment that serves the namespace. Of two it is Velero's while that works: ours only looks on then.
pub(crate) fn servers_deployment(world: &World) -> Option<(Maker, &Object)> {
    let here = world.all(Kind::Deployment).iter().filter(|deployment| deployment.namespace() == world.namespace);
    let known = here.filter_map(|deployment| Some((Maker::of(deployment)?, deployment)));
    known.min_by_key(|(maker, deployment)| match maker {
        Maker::Velero if deployment.number("/status/readyReplicas").unwrap_or(0) > 0 => 0,
        Maker::Plimsoll => 1,
        Maker::Velero => 2,
    })
}

/// Whether a server of ours has worked here: only ours leaves Operations.
pub(crate) fn has_operations(world: &World) -> bool {
    world.all(Kind::Operation).iter().any(|operation| operation.namespace() == world.namespace)
}

/// Who serves the namespace. A server of ours beside the cluster has no Deployment, but leaves Operations.
pub(crate) fn maker(world: &World) -> Maker {
    match servers_deployment(world) {
        Some((maker, _)) => maker,
        None if has_operations(world) => Maker::Plimsoll,
        None => Maker::Velero,
    }
}

/// Another one that runs, so that this one has to wait for its turn.
pub(crate) fn ahead_in_queue<'w>(object: &Object, world: &'w World) -> Option<&'w Object> {
    let others = world.all(object.kind()).iter().filter(|other| other.namespace() == object.namespace());
    let mut others = others.filter(|other| other.name() != object.name());
    others.find(|other| matches!(other.phase(), "InProgress" | "ReadyToStart"))
}

/// What is known of the server's last sign of life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pulse {
    /// Something was heard of it not too long ago.
    Alive,
    /// Nothing was heard for longer than it may be silent.
    Silent {
        /// For how long.
        since: Duration,
        /// How that is known.
        how: String,
    },
    /// It gives no signs by which that could be told.
    Unknown,
}

/// The server checks its locations again and again, and writes down when: that is its pulse.
pub(crate) fn pulse(world: &World) -> Pulse {
    let here = |object: &&Object| object.namespace() == world.namespace;
    let running = world.all(Kind::Operation).iter().filter(here).filter(|operation| is_running(operation));
    let words: Vec<_> =
        running.filter_map(|operation| Some((operation.last_write()?, operation.reference()))).collect();
    // Where our server works it writes every few seconds: a look at a location a minute ago does not make up for that.
    let works = !words.is_empty() && maker(world) == Maker::Plimsoll;
    let beats = world.all(Kind::Location).iter().filter(here).filter_map(|location| {
        let every = location.duration("/spec/validationFrequency").unwrap_or(USUAL_FREQUENCY);
        let last = location.time("/status/lastValidationTime").filter(|_| !every.is_zero())?;
        let how = format!("it looks at {} every {} and did so last", location.reference(), duration_text(every));
        let longest = if works { OPERATION_SILENCE } else { (every * MISSED_LOOKS).max(SHORTEST_SILENCE) };
        Some((last, longest, how))
    });
    let words = words.iter().map(|(last, operation)| {
        (*last, OPERATION_SILENCE, format!("it writes {operation} every few seconds and did so last"))
    });
    let all: Vec<(Timestamp, Duration, String)> = beats.chain(words).collect();
    if all.iter().any(|(last, longest, _)| world.age(*last) <= *longest) {
        return Pulse::Alive;
    }
    let newest = all.into_iter().max_by_key(|(last, ..)| *last);
    newest.map_or(Pulse::Unknown, |(last, _, how)| {
        let since = world.age(last);
        Pulse::Silent { since, how: format!("{how} {} ago", duration_text(since)) }
    })
}

fn is_running(operation: &Object) -> bool {
    matches!(operation.text("/status/state"), "Running" | "Waiting" | "")
}

/// The newest event about an object; warnings come first.
pub(crate) fn last_event<'w>(kind: &str, namespace: &str, name: &str, world: &'w World) -> Option<&'w Object> {
    let about = |event: &&Object| {
        event.text("/involvedObject/kind") == kind
            && event.text("/involvedObject/name") == name
            && event.text("/involvedObject/namespace") == namespace
    };
    let events = world.all(Kind::Event).iter().filter(about);
    events.max_by_key(|event| (event.text("/type") == "Warning", event_time(event)))
}

fn event_time(event: &Object) -> Option<Timestamp> {
    let places = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
    places.iter().find_map(|place| event.time(place))
}

/// An event as a line: `event 32s ago, FailedMount: ...`.
pub(crate) fn event_text(event: &Object, world: &World) -> String {
    let age = event_time(event).map(|then| duration_text(world.age(then))).unwrap_or_default();
    let times =
        event.number("/count").filter(|count| *count > 1).map(|count| format!(", {count} times")).unwrap_or_default();
    format!("event {age} ago{times}, {}: {}", event.text("/reason"), short(event.text("/message")))
}

/// Text of others, as it may be shown: a terminal obeys control characters, and a reader is misled by marks that turn the direction.
pub(crate) fn clean(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.trim().chars().map(|c| if c.is_control() || turns(c) { ' ' } else { c }).collect()
}

/// What programs put before every error, at every level.
const WRAPPERS: [&str; 3] =
    ["unable to start container process: ", "\" is unavailable: ", "rpc error: code = Unknown desc = "];

/// Beginning and end: what failed stands at one of them. Messages of container runtimes and cloud libraries tell the whole
/// story at every level.
pub(crate) fn short(text: &str) -> String {
    const LONGEST: usize = 240;
    let mut text = clean(text).split_whitespace().collect::<Vec<_>>().join(" ");
    for wrapper in WRAPPERS {
        if let Some(place) = text.find(wrapper) {
            text.drain(..place + wrapper.len());
        }
    }
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= LONGEST {
        return text;
    }
    let (head, tail) = (&letters[..LONGEST / 2], &letters[letters.len() - LONGEST / 2..]);
    head.iter().chain(&[' ', '…', ' ']).chain(tail).collect()
}

/// The namespaces into which a restore puts things, or from which a backup takes them, as far as they are named.
pub(crate) fn namespaces_of(object: &Object, world: &World) -> Vec<String> {
    let named = |object: &Object| -> Vec<String> {
        let all = object.texts("/spec/includedNamespaces");
        all.into_iter().filter(|name| !name.contains('*')).map(str::to_owned).collect()
    };
    let mut names = named(object);
    if object.kind() == Kind::Restore {
        let backup = world.find(Kind::Backup, object.namespace(), object.text("/spec/backupName"));
        if names.is_empty() {
            names = backup.map(named).unwrap_or_default();
        }
        let mapping = object.at("/spec/namespaceMapping");
        let mapped = |name: String| mapping.and_then(|to| to[&name].as_str()).map(str::to_owned).unwrap_or(name);
        names = names.into_iter().map(mapped).collect();
    }
    let transfers = Transfer::of(object, world);
    names.extend(transfers.iter().filter_map(Transfer::namespace).map(str::to_owned));
    names.sort();
    names.dedup();
    names
}
