//! Whether a namespace is in the way.

use super::{Cause, Certainty};
use crate::evidence::{namespaces_of, short};
use crate::kind::Kind;
use crate::object::Object;
use crate::world::World;

/// Namespaces that are being deleted and do not go: a restore into one waits.
pub(super) fn causes(object: &Object, world: &World) -> Vec<Cause> {
    if object.kind() != Kind::Restore {
        return Vec::new();
    }
    let named = namespaces_of(object, world);
    let leaving =
        world.all(Kind::Namespace).iter().filter(|it| it.is_leaving() && named.iter().any(|name| name == it.name()));
    leaving.map(cause).collect()
}

fn cause(namespace: &Object) -> Cause {
    let name = namespace.name();
    let stuck = namespace.list("/status/conditions").iter().filter(|condition| condition["status"] == "True");
    let what = stuck.filter(|it| {
        ["NamespaceFinalizersRemaining", "NamespaceContentRemaining"].iter().any(|kind| it["type"] == *kind)
    });
    let evidence = what.filter_map(|condition| condition["message"].as_str()).map(short);
    let text = format!("namespace {name} is being deleted, and the restore waits for it to be gone");
    let mut cause = Cause::new("NamespaceTerminating", Certainty::Certain, text)
        .then(format!("kubectl get namespace {name} -o yaml"));
    cause.evidence.extend(evidence);
    cause
}
