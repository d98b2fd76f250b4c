//! Namespaces in deletion.

use super::{Cause, Certainty};
use crate::cluster_state::ClusterState;
use crate::evidence::{namespaces_of, shorten};
use crate::kind::Kind;
use crate::object::Object;

/// Namespaces that are stuck in deletion: a restore into one waits.
pub(super) fn causes(object: &Object, cluster: &ClusterState) -> Vec<Cause> {
    if object.kind() != Kind::Restore {
        return Vec::new();
    }
    let named = namespaces_of(object, cluster);
    let leaving = cluster
        .all(Kind::Namespace)
        .iter()
        .filter(|it| it.is_terminating() && named.iter().any(|name| name == it.name()));
    leaving.map(cause).collect()
}

fn cause(namespace: &Object) -> Cause {
    let name = namespace.name();
    let stuck = namespace.list("/status/conditions").iter().filter(|condition| condition["status"] == "True");
    let what = stuck.filter(|it| {
        ["NamespaceFinalizersRemaining", "NamespaceContentRemaining"].iter().any(|kind| it["type"] == *kind)
    });
    let evidence = what.filter_map(|condition| condition["message"].as_str()).map(shorten);
    let text = format!("namespace {name} is being deleted, and the restore waits for that");
    let mut cause = Cause::new("NamespaceTerminating", Certainty::Certain, text)
        .with_command(format!("kubectl get namespace {name} -o yaml"));
    cause.evidence.extend(evidence);
    cause
}
