//! Problems of the backup storage location.

use super::{Cause, Certainty};
use crate::cluster_state::ClusterState;
use crate::evidence::shorten;
use crate::kind::Kind;
use crate::object::Object;

/// Problems of the location of a backup, or of a restore's backup.
pub(super) fn causes(object: &Object, cluster: &ClusterState) -> Vec<Cause> {
    if !cluster.was_read(Kind::Location) {
        return Vec::new();
    }
    let backup = match object.kind() {
        Kind::Restore => cluster.find(Kind::Backup, object.namespace(), object.text("/spec/backupName")),
        _ => Some(object),
    };
    let Some(backup) = backup else { return Vec::new() };
    named(backup.some_text("/spec/storageLocation"), object.kind() == Kind::Backup, object.namespace(), cluster)
}

/// Problems of a named location, or of the default one.
pub(super) fn named(name: Option<&str>, writes: bool, namespace: &str, cluster: &ClusterState) -> Vec<Cause> {
    let here = |location: &&Object| location.namespace() == namespace;
    let found = match name {
        Some(name) => cluster.find(Kind::Location, namespace, name),
        None => cluster.all(Kind::Location).iter().filter(here).find(|location| location.flag("/spec/default")),
    };
    let list = format!("kubectl -n {namespace} get backupstoragelocations");
    match (found, name) {
        (Some(location), _) => {
            let mut causes = causes_of_location(location);
            if writes && location.text("/spec/accessMode") == "ReadOnly" {
                let text = format!("{} is read-only: no backup can be written to it", location.reference());
                causes.push(Cause::new("LocationReadOnly", Certainty::Certain, text).with_command(list));
            }
            causes
        }
        (None, Some(name)) => {
            let text = format!("backup-location {name} not found in namespace {namespace}");
            vec![Cause::new("LocationMissing", Certainty::Certain, text).with_command(list)]
        }
        (None, None) => {
            let text = "it has no storage location, and no location is the default";
            vec![Cause::new("NoDefaultLocation", Certainty::Certain, text).with_command(list)]
        }
    }
}

/// Problems of a location.
pub(super) fn causes_of_location(location: &Object) -> Vec<Cause> {
    if location.phase() != "Unavailable" {
        return Vec::new();
    }
    let (namespace, name) = (location.namespace(), location.name());
    let message = shorten(location.some_text("/status/message").unwrap_or("no error reported"));
    let text = format!("{} is unavailable: {message}", location.reference());
    let cause = Cause::new("LocationUnavailable", Certainty::Certain, text)
        .with_command(format!("kubectl -n {namespace} describe backupstoragelocation {name}"));
    vec![cause]
}
