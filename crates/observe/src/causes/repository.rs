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
    // What plugins do needs no repository.
    let waits = transfers.iter().any(|transfer| transfer.object.kind().is_transfer() && !transfer.is_ended());
    let mine = |repository: &&Object| {
        repository.namespace() == object.namespace()
            && namespaces.iter().any(|name| name == repository.text("/spec/volumeNamespace"))
    };
    broken(world).filter(mine).map(|repository| cause(repository, waits)).collect()
}

/// What is wrong with the repository that this transfer writes to or reads from.
pub(super) fn of(transfer: Transfer<'_>, world: &World) -> Vec<Cause> {
    let Some(mine) = mine(transfer) else { return Vec::new() };
    broken(world).filter(mine).map(|repository| cause(repository, true)).collect()
}

/// The repository that this transfer writes to or reads from, as far as it is known.
pub(super) fn kept_for<'w>(transfer: Transfer<'_>, world: &'w World) -> Option<&'w Object> {
    let mine = mine(transfer)?;
    let format = transfer.object.some_text("/spec/uploaderType");
    let same = |repository: &&Object| {
        repository.some_text("/spec/repositoryType").is_none_or(|kept| format.is_none_or(|format| format == kept))
    };
    world.all(Kind::Repository).iter().filter(mine).find(same)
}

/// Tells whether a repository is that of a transfer.
fn mine(transfer: Transfer<'_>) -> Option<impl Fn(&&Object) -> bool + use<'_>> {
    let object = transfer.object;
    let (namespace, location) = (transfer.repository()?, object.some_text("/spec/backupStorageLocation"));
    Some(move |repository: &&Object| {
        repository.namespace() == object.namespace()
            && repository.text("/spec/volumeNamespace") == namespace
            && repository.some_text("/spec/backupStorageLocation").is_none_or(|kept| Some(kept) == location)
    })
}

fn broken(world: &World) -> impl Iterator<Item = &Object> {
    world.all(Kind::Repository).iter().filter(|repository| repository.phase() == "NotReady")
}

fn cause(repository: &Object, waits: bool) -> Cause {
    let message = repository.some_text("/status/message").unwrap_or("the server does not say why");
    // Before it is cut short: what tells of the lock may stand in the middle.
    let locked = tells_of_lock(message);
    let (name, what) = if locked { ("RepositoryLocked", "locked") } else { ("RepositoryNotReady", "not ready") };
    let message = short(message);
    let certainty = if waits { Certainty::Certain } else { Certainty::Likely };
    let text = format!("{} is {what}: {message}", repository.reference());
    let (namespace, object) = (repository.namespace(), repository.name());
    Cause::new(name, certainty, text).then(format!("kubectl -n {namespace} describe backuprepository {object}"))
}

/// Whether a message names a lock in so many words, as restic's "repository is already locked by …" and "unable to create lock
/// in backend" do. An option or a path with a lock in its name tells of none, nor does the object lock of a bucket.
fn tells_of_lock(message: &str) -> bool {
    let message = message.to_lowercase();
    let within = |letter: char| letter.is_alphanumeric() || "-_./".contains(letter);
    let words = message.split(|letter: char| !within(letter)).map(|word| word.trim_matches('.'));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let is_lock = |place: usize| matches!(words[place], "lock" | "locks" | "locked");
    (0..words.len()).any(|place| is_lock(place) && (place == 0 || words[place - 1] != "object"))
}
