//! Whether the repositories for volume data can be used.

use super::{Cause, Certainty};
use crate::evidence::{namespaces_of, short};
use crate::kind::Kind;
use crate::object::Object;
use crate::transfer::Transfer;
use crate::world::World;

/// What is wrong with the repositories that the volumes of this operation use.
pub(super) fn causes(object: &Object, world: &World) -> Vec<Cause> {
    let transfers = Transfer::of(object, world);
    let mut namespaces = namespaces_of(object, world);
    namespaces.extend(transfers.iter().filter_map(Transfer::repository).map(str::to_owned));
    let waits = transfers.iter().any(|transfer| !transfer.is_ended());
    let mine = |repository: &&Object| {
        repository.namespace() == object.namespace()
            && namespaces.iter().any(|name| name == repository.text("/spec/volumeNamespace"))
    };
    broken(world).filter(mine).map(|repository| cause(repository, waits)).collect()
}

/// What is wrong with the repository that this transfer writes to or reads from.
pub(super) fn of(transfer: Transfer<'_>, world: &World) -> Vec<Cause> {
    let object = transfer.object;
    let Some(namespace) = transfer.repository() else { return Vec::new() };
    let location = object.some_text("/spec/backupStorageLocation");
    let mine = |repository: &&Object| {
        repository.namespace() == object.namespace()
            && repository.text("/spec/volumeNamespace") == namespace
            && repository.some_text("/spec/backupStorageLocation").is_none_or(|kept| Some(kept) == location)
    };
    broken(world).filter(mine).map(|repository| cause(repository, true)).collect()
}

fn broken(world: &World) -> impl Iterator<Item = &Object> {
    world.all(Kind::Repository).iter().filter(|repository| repository.phase() == "NotReady")
}

fn cause(repository: &Object, waits: bool) -> Cause {
    let message = short(repository.some_text("/status/message").unwrap_or("the server does not say why"));
    let locked = message.contains("lock");
    let (name, what) = if locked { ("RepositoryLocked", "locked") } else { ("RepositoryNotReady", "not ready") };
    let certainty = if waits { Certainty::Certain } else { Certainty::Likely };
    let text = format!("{} is {what}: {message}", repository.reference());
    let (namespace, object) = (repository.namespace(), repository.name());
    Cause::new(name, certainty, text).then(format!("kubectl -n {namespace} describe backuprepository {object}"))
}
