//! Why it does not go on: from the evidence to causes, and from each cause to the next command.

mod ended;
mod kanister;
mod location;
mod namespace;
mod plugin;
mod pod;
mod queue;
mod repository;
mod schedule;
mod server;
mod transfer;

use serde::Serialize;

use crate::kind::Kind;
use crate::object::Object;
use crate::world::World;

pub(crate) use queue::next_in_line;
pub use server::server_missing;

/// How sure it is that this is the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Certainty {
    /// The cluster says so.
    Certain,
    /// Everything points to it.
    Likely,
    /// It would explain it; nothing else is known.
    Possible,
}

/// One reason why something does not go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// Stable name.
    pub reason: &'static str,
    /// How sure that is.
    pub certainty: Certainty,
    /// It is in order, and will pass by itself: a queue.
    pub orderly: bool,
    /// One sentence.
    pub text: String,
    /// What that is concluded from.
    pub evidence: Vec<String>,
    /// Commands that show more or help.
    pub next: Vec<String>,
}

impl Cause {
    pub(crate) fn new(reason: &'static str, certainty: Certainty, text: impl Into<String>) -> Self {
        Self { reason, certainty, orderly: false, text: text.into(), evidence: Vec::new(), next: Vec::new() }
    }

    pub(crate) fn orderly(mut self) -> Self {
        self.orderly = true;
        self
    }

    pub(crate) fn because(mut self, evidence: impl Into<String>) -> Self {
        self.evidence.push(evidence.into());
        self
    }

    pub(crate) fn and(mut self, evidence: Option<String>) -> Self {
        self.evidence.extend(evidence);
        self
    }

    pub(crate) fn then(mut self, command: impl Into<String>) -> Self {
        self.next.push(command.into());
        self
    }

    /// The same, where it happens to something that something else waits for.
    pub(crate) fn through(mut self, link: impl Into<String>) -> Self {
        self.evidence.insert(0, link.into());
        self
    }
}

/// What keeps this object from going on, or made it end as it did; the surest first.
pub fn causes(object: &Object, world: &World) -> Vec<Cause> {
    let mut found = match object.kind() {
        Kind::Backup | Kind::Restore => subject(object, world),
        Kind::ActionSet => kanister::causes(object, world),
        Kind::Schedule => schedule::causes(object, world),
        Kind::Location => location::itself(object),
        Kind::DeleteBackupRequest => ended::deletion(object, world),
        kind if kind.is_transfer() || kind.is_plugins() => transfer::causes(object, world),
        _ => Vec::new(),
    };
    tidy(&mut found);
    found
}

fn subject(object: &Object, world: &World) -> Vec<Cause> {
    if let Some(causes) = ended::causes(object, world) {
        return causes;
    }
    // What is nearest comes first: of several that are equally sure it is the one to look at.
    let mut found = transfer::all(object, world);
    found.extend(queue::causes(object, world));
    found.extend(server::causes(object, world));
    found.extend(location::causes(object, world));
    found.extend(repository::causes(object, world));
    found.extend(namespace::causes(object, world));
    found.extend(ended::unfinished(object, world));
    found
}

/// The surest first; what cannot happen while something surer does is left out.
fn tidy(causes: &mut Vec<Cause>) {
    causes.sort_by_key(|cause| (cause.certainty, cause.orderly));
    let mut seen = std::collections::BTreeSet::new();
    causes.retain(|cause| seen.insert((cause.reason, cause.text.clone())));
    // Words for "nobody knows" are of no use beside a cause that somebody knows.
    if causes.iter().any(|cause| cause.certainty == Certainty::Certain && !cause.orderly) {
        causes.retain(|cause| !matches!(cause.reason, "NotTakenUp" | "TransferSilent"));
    }
    if causes.iter().any(|cause| cause.certainty < Certainty::Possible && !cause.orderly) {
        causes.retain(|cause| cause.certainty < Certainty::Possible);
    }
}
