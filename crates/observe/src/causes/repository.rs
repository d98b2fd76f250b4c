//! Whether the repositories for volume data can be used.

use super::{Cause, Certainty};
use crate::evidence::{namespaces_of, short};
use crate::kind::Kind;
use crate::object::Object;
use crate::transfer::Transfer;
use crate::world::World;

/// What is wrong with the repositories that the volumes of this operation use.
pub(super) fn causes(object: &Object, world: &World) -> Vec<Cause> {
    let namespaces = namespaces_of(object, world);
    let waits = Transfer::of(object, world).iter().any(|transfer| !transfer.is_ended());
    let mine = |repository: &&Object| {
        repository.namespace() == object.namespace()
            && namespaces.iter().any(|name| name == repository.text("/spec/volumeNamespace"))
    };
    let broken = world.all(Kind::Repository).iter().filter(mine).filter(|it| it.phase() == "NotReady");
    broken.map(|repository| cause(repository, waits)).collect()
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
