//! KindInfo that more than one judgement needs.

use std::time::Duration;

use jiff::Timestamp;
use plimsoll_progress::view::duration_text;

use crate::cluster_state::ClusterState;
use crate::kind::Kind;
use crate::object::Object;
use crate::transfer::Transfer;

/// How often a server validates a location by default.
const DEFAULT_VALIDATION_FREQUENCY: Duration = Duration::from_mins(1);
/// Validations that may be missed before the server counts as silent.
const MAX_MISSED_VALIDATIONS: u32 = 3;
/// Velero checks no more often whether a validation is due.
const MIN_SILENCE: Duration = Duration::from_secs(45);
/// Our own server writes the Operation at least every five seconds.
const OPERATION_SILENCE_LIMIT: Duration = Duration::from_secs(30);
/// The name of our own server's Deployment, and the label value of its pods.
const OUR_SERVER: &str = "plimsoll";
/// The label that holds it.
const NAME_LABEL: &str = "app.kubernetes.io/name";

/// The product that runs in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerProduct {
    /// Velero.
    Velero,
    /// Our own server.
    Plimsoll,
}

impl ServerProduct {
    /// The default name of its Deployment.
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

/// The Deployment of the namespace's server. Of two it is Velero's while that is ready: ours only observes then.
pub(crate) fn server_deployment(cluster: &ClusterState) -> Option<(ServerProduct, &Object)> {
    let here = cluster.all(Kind::Deployment).iter().filter(|deployment| deployment.namespace() == cluster.namespace);
    let known = here.filter_map(|deployment| Some((ServerProduct::of(deployment)?, deployment)));
    known.min_by_key(|(server_product, deployment)| match server_product {
        ServerProduct::Velero if deployment.number("/status/readyReplicas").unwrap_or(0) > 0 => 0,
        ServerProduct::Plimsoll => 1,
        ServerProduct::Velero => 2,
    })
}

/// Whether our own server has run here: only ours creates Operations.
pub(crate) fn has_operations(cluster: &ClusterState) -> bool {
    cluster.all(Kind::Operation).iter().any(|operation| operation.namespace() == cluster.namespace)
}

/// The product of the namespace's server. Our own server outside the cluster has no Deployment, but creates Operations.
pub(crate) fn server_product(cluster: &ClusterState) -> ServerProduct {
    match server_deployment(cluster) {
        Some((server_product, _)) => server_product,
        None if has_operations(cluster) => ServerProduct::Plimsoll,
        None => ServerProduct::Velero,
    }
}

/// A running operation of the same kind, for which this one has to wait.
pub(crate) fn ahead_in_queue<'w>(object: &Object, cluster: &'w ClusterState) -> Option<&'w Object> {
    let others = cluster.all(object.kind()).iter().filter(|other| other.namespace() == object.namespace());
    let mut others = others.filter(|other| other.name() != object.name());
    others.find(|other| matches!(other.phase(), "InProgress" | "ReadyToStart"))
}

/// The last heartbeat of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heartbeat {
    /// It is recent.
    Alive,
    /// It is too old.
    Silent {
        /// For how long.
        since: Duration,
        /// How that is known.
        how: String,
    },
    /// The server leaves no trace that shows it.
    Unknown,
}

/// The server validates its locations periodically and records when: that is its heartbeat.
pub(crate) fn heartbeat(cluster: &ClusterState) -> Heartbeat {
    let here = |object: &&Object| object.namespace() == cluster.namespace;
    let running = cluster.all(Kind::Operation).iter().filter(here).filter(|operation| is_running(operation));
    let words: Vec<_> =
        running.filter_map(|operation| Some((operation.last_write()?, operation.reference()))).collect();
    // While our server runs an operation it writes every few seconds: a validation a minute ago is no substitute.
    let works = !words.is_empty() && server_product(cluster) == ServerProduct::Plimsoll;
    let beats = cluster.all(Kind::Location).iter().filter(here).filter_map(|location| {
        let every = location.duration("/spec/validationFrequency").unwrap_or(DEFAULT_VALIDATION_FREQUENCY);
        let last = location.time("/status/lastValidationTime").filter(|_| !every.is_zero())?;
        let how = format!("it validates {} every {}, last", location.reference(), duration_text(every));
        let longest = if works { OPERATION_SILENCE_LIMIT } else { (every * MAX_MISSED_VALIDATIONS).max(MIN_SILENCE) };
        Some((last, longest, how))
    });
    let words = words.iter().map(|(last, operation)| {
        (*last, OPERATION_SILENCE_LIMIT, format!("it writes {operation} every few seconds, last"))
    });
    let all: Vec<(Timestamp, Duration, String)> = beats.chain(words).collect();
    if all.iter().any(|(last, longest, _)| cluster.age(*last) <= *longest) {
        return Heartbeat::Alive;
    }
    let newest = all.into_iter().max_by_key(|(last, ..)| *last);
    newest.map_or(Heartbeat::Unknown, |(last, _, how)| {
        let since = cluster.age(last);
        Heartbeat::Silent { since, how: format!("{how} {} ago", duration_text(since)) }
    })
}

fn is_running(operation: &Object) -> bool {
    matches!(operation.text("/status/state"), "Running" | "Waiting" | "")
}

/// The newest event about an object; warnings come first.
pub(crate) fn last_event<'w>(kind: &str, namespace: &str, name: &str, cluster: &'w ClusterState) -> Option<&'w Object> {
    let about = |event: &&Object| {
        event.text("/involvedObject/kind") == kind
            && event.text("/involvedObject/name") == name
            && event.text("/involvedObject/namespace") == namespace
    };
    let events = cluster.all(Kind::Event).iter().filter(about);
    events.max_by_key(|event| (event.text("/type") == "Warning", event_time(event)))
}

fn event_time(event: &Object) -> Option<Timestamp> {
    let places = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
    places.iter().find_map(|place| event.time(place))
}

/// An event as a line: `event 32s ago, FailedMount: ...`.
pub(crate) fn event_text(event: &Object, cluster: &ClusterState) -> String {
    let age = event_time(event).map(|then| duration_text(cluster.age(then))).unwrap_or_default();
    let times =
        event.number("/count").filter(|count| *count > 1).map(|count| format!(", {count} times")).unwrap_or_default();
    format!("event {age} ago{times}, {}: {}", event.text("/reason"), shorten(event.text("/message")))
}

/// The last time that the controller of an ActionSet has written something. A listing need not have the managed fields.
pub(crate) fn last_action_report(set: &Object) -> Option<Timestamp> {
    let actions = set.list("/status/actions").iter();
    let phases =
        actions.flat_map(|action| action["phases"].as_array().into_iter().flatten().chain(action.get("deferPhase")));
    let changed = phases.filter_map(|phase| crate::object::time(&phase["progress"]["lastTransitionTime"]));
    changed.chain(set.time("/status/progress/lastTransitionTime")).chain(set.last_write()).max()
}

/// Removes control characters, which a terminal would obey, and marks that change the direction of text.
pub(crate) fn sanitize(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.trim().chars().map(|c| if c.is_control() || turns(c) { ' ' } else { c }).collect()
}

/// Prefixes that programs add to an error at every level.
const WRAPPERS: [&str; 3] =
    ["unable to start container process: ", "\" is unavailable: ", "rpc error: code = Unknown desc = "];

/// The beginning and the end of a long message: the cause is at one of them.
pub(crate) fn shorten(text: &str) -> String {
    const MAX_LETTERS: usize = 240;
    let mut text = sanitize(text).split_whitespace().collect::<Vec<_>>().join(" ");
    for wrapper in WRAPPERS {
        if let Some(place) = text.find(wrapper) {
            text.drain(..place + wrapper.len());
        }
    }
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= MAX_LETTERS {
        return text;
    }
    let (head, tail) = (&letters[..MAX_LETTERS / 2], &letters[letters.len() - MAX_LETTERS / 2..]);
    head.iter().chain(&[' ', '…', ' ']).chain(tail).collect()
}

/// The namespaces of a restore's target or a backup's source, as far as they are named.
pub(crate) fn namespaces_of(object: &Object, cluster: &ClusterState) -> Vec<String> {
    let named = |object: &Object| -> Vec<String> {
        let all = object.texts("/spec/includedNamespaces");
        all.into_iter().filter(|name| !name.contains('*')).map(str::to_owned).collect()
    };
    let mut names = named(object);
    if object.kind() == Kind::Restore {
        let backup = cluster.find(Kind::Backup, object.namespace(), object.text("/spec/backupName"));
        if names.is_empty() {
            names = backup.map(named).unwrap_or_default();
        }
        let mapping = object.at("/spec/namespaceMapping");
        let mapped = |name: String| mapping.and_then(|to| to[&name].as_str()).map(str::to_owned).unwrap_or(name);
        names = names.into_iter().map(mapped).collect();
    }
    let transfers = Transfer::of(object, cluster);
    names.extend(transfers.iter().filter_map(Transfer::namespace).map(str::to_owned));
    names.sort();
    names.dedup();
    names
}
