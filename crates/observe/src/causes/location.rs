//! Whether the place where backups are kept can be used.

use super::{Cause, Certainty};
use crate::evidence::short;
use crate::kind::Kind;
use crate::object::Object;
use crate::world::World;

/// What is wrong with the location of a backup, or of a restore's backup.
pub(super) fn causes(object: &Object, world: &World) -> Vec<Cause> {
    if !world.has_seen(Kind::Location) {
        return Vec::new();
    }
    let backup = match object.kind() {
        Kind::Restore => world.find(Kind::Backup, object.namespace(), object.text("/spec/backupName")),
        _ => Some(object),
    };
    let Some(backup) = backup else { return Vec::new() };
    named(backup.some_text("/spec/storageLocation"), object.kind() == Kind::Backup, object.namespace(), world)
}

/// What is wrong with a location that is named, or with the default one.
pub(super) fn named(name: Option<&str>, writes: bool, namespace: &str, world: &World) -> Vec<Cause> {
    let here = |location: &&Object| location.namespace() == namespace;
    let found = match name {
        Some(name) => world.find(Kind::Location, namespace, name),
        None => world.all(Kind::Location).iter().filter(here).find(|location| location.flag("/spec/default")),
    };
    let list = format!("kubectl -n {namespace} get backupstoragelocations");
    match (found, name) {
        (Some(location), _) => {
            let mut causes = itself(location);
            if writes && location.text("/spec/accessMode") == "ReadOnly" {
                let text = format!("{} is read-only: no backup can be written to it", location.reference());
                causes.push(Cause::new("LocationReadOnly", Certainty::Certain, text).then(list));
            }
            causes
        }
        (None, Some(name)) => {
            let text = format!("there is no backup-location {name} in namespace {namespace}");
            vec![Cause::new("LocationMissing", Certainty::Certain, text).then(list)]
        }
        (None, None) => {
            let text = "it names no location, and none is the default";
            vec![Cause::new("NoDefaultLocation", Certainty::Certain, text).then(list)]
        }
    }
}

/// What is wrong with this location.
pub(super) fn itself(location: &Object) -> Vec<Cause> {
    if location.phase() != "Unavailable" {
        return Vec::new();
    }
    let (namespace, name) = (location.namespace(), location.name());
    let message = short(location.some_text("/status/message").unwrap_or("the server does not say why"));
    let text = format!("{} is unavailable: {message}", location.reference());
    let cause = Cause::new("LocationUnavailable", Certainty::Certain, text)
        .then(format!("kubectl -n {namespace} describe backupstoragelocation {name}"));
    vec![cause]
}
