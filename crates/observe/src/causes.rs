//! Why an operation is stuck or failed: causes with their evidence and the next command.

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

use crate::cluster_state::ClusterState;
use crate::kind::Kind;
use crate::object::Object;

pub(crate) use queue::ahead_of;
pub use server::server_missing;

/// How certain a cause is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Certainty {
    /// The cluster says so.
    Certain,
    /// All evidence points to it.
    Likely,
    /// It would explain the state; nothing else is known.
    Possible,
}

/// One reason why an operation is stuck, waits or failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// Stable name.
    pub reason: &'static str,
    /// How certain it is.
    pub certainty: Certainty,
    /// It is normal and passes by itself, such as a queue.
    pub expected: bool,
    /// One sentence.
    pub text: String,
    /// The evidence.
    pub evidence: Vec<String>,
    /// Commands that show more or help.
    pub next: Vec<String>,
}

impl Cause {
    pub(crate) fn new(reason: &'static str, certainty: Certainty, text: impl Into<String>) -> Self {
        Self { reason, certainty, expected: false, text: text.into(), evidence: Vec::new(), next: Vec::new() }
    }

    pub(crate) fn expected(mut self) -> Self {
        self.expected = true;
        self
    }

    pub(crate) fn with_evidence(mut self, evidence: impl Into<String>) -> Self {
        self.evidence.push(evidence.into());
        self
    }

    pub(crate) fn with_optional_evidence(mut self, evidence: Option<String>) -> Self {
        self.evidence.extend(evidence);
        self
    }

    pub(crate) fn with_command(mut self, command: impl Into<String>) -> Self {
        self.next.push(command.into());
        self
    }

    /// The same cause, for an object that waits for the one that has it.
    pub(crate) fn with_context(mut self, link: impl Into<String>) -> Self {
        self.evidence.insert(0, link.into());
        self
    }
}

/// Why an object is stuck, waits or failed; the most certain cause first.
pub fn causes(object: &Object, cluster: &ClusterState) -> Vec<Cause> {
    let mut found = match object.kind() {
        Kind::Backup | Kind::Restore => subject(object, cluster),
        Kind::ActionSet => kanister::causes(object, cluster),
        Kind::Schedule => schedule::causes(object, cluster),
        Kind::Location => location::causes_of_location(object),
        Kind::DeleteBackupRequest => ended::deletion(object, cluster),
        kind if kind.is_transfer() || kind.is_plugin_volume() => transfer::causes(object, cluster),
        _ => Vec::new(),
    };
    prune(&mut found);
    found
}

fn subject(object: &Object, cluster: &ClusterState) -> Vec<Cause> {
    if let Some(causes) = ended::causes(object, cluster) {
        return causes;
    }
    // The nearest cause comes first: of several equally certain ones it is the one to look at.
    let mut found = transfer::causes_of_all(object, cluster);
    found.extend(queue::causes(object, cluster));
    found.extend(server::causes(object, cluster));
    found.extend(location::causes(object, cluster));
    found.extend(repository::causes(object, cluster));
    found.extend(namespace::causes(object, cluster));
    found.extend(ended::unfinished(object, cluster));
    found
}

/// Sorts by certainty, and drops what a more certain cause makes pointless.
fn prune(causes: &mut Vec<Cause>) {
    causes.sort_by_key(|cause| (cause.certainty, cause.expected));
    let mut seen = std::collections::BTreeSet::new();
    causes.retain(|cause| seen.insert((cause.reason, cause.text.clone())));
    // A report of silence adds nothing to a known cause.
    if causes.iter().any(|cause| cause.certainty == Certainty::Certain && !cause.expected) {
        causes.retain(|cause| !matches!(cause.reason, "NotStarted" | "TransferSilent"));
    }
    if causes.iter().any(|cause| cause.certainty < Certainty::Possible && !cause.expected) {
        causes.retain(|cause| cause.certainty < Certainty::Possible);
    }
}
