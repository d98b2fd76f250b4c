//! Problems of the backup repositories.

use super::{Cause, Certainty};
use crate::cluster_state::ClusterState;
use crate::evidence::{namespaces_of, shorten};
use crate::kind::Kind;
use crate::object::Object;
use crate::transfer::Transfer;

/// Problems of the repositories that the volumes of an operation use.
pub(super) fn causes(object: &Object, cluster: &ClusterState) -> Vec<Cause> {
    let transfers = Transfer::of(object, cluster);
    let mut namespaces = namespaces_of(object, cluster);
    namespaces.extend(transfers.iter().filter_map(Transfer::repository).map(str::to_owned));
    // Plugins need no repository.
    let waits = transfers.iter().any(|transfer| transfer.object.kind().is_transfer() && !transfer.is_ended());
    let is_own = |repository: &&Object| {
        repository.namespace() == object.namespace()
            && namespaces.iter().any(|name| name == repository.text("/spec/volumeNamespace"))
    };
    broken(cluster).filter(is_own).map(|repository| cause(repository, waits)).collect()
}

/// Problems of the repository of a transfer.
pub(super) fn causes_of_transfer(transfer: Transfer<'_>, cluster: &ClusterState) -> Vec<Cause> {
    let Some(is_own) = is_repository_of(transfer) else { return Vec::new() };
    broken(cluster).filter(is_own).map(|repository| cause(repository, true)).collect()
}

/// The repository of a transfer, as far as it is known.
pub(super) fn find_repository<'w>(transfer: Transfer<'_>, cluster: &'w ClusterState) -> Option<&'w Object> {
    let is_own = is_repository_of(transfer)?;
    let format = transfer.object.some_text("/spec/uploaderType");
    let same = |repository: &&Object| {
        repository.some_text("/spec/repositoryType").is_none_or(|kept| format.is_none_or(|format| format == kept))
    };
    cluster.all(Kind::Repository).iter().filter(is_own).find(same)
}

/// A predicate for the repository of a transfer.
fn is_repository_of(transfer: Transfer<'_>) -> Option<impl Fn(&&Object) -> bool + use<'_>> {
    let object = transfer.object;
    let (namespace, location) = (transfer.repository()?, object.some_text("/spec/backupStorageLocation"));
    Some(move |repository: &&Object| {
        repository.namespace() == object.namespace()
            && repository.text("/spec/volumeNamespace") == namespace
            && repository.some_text("/spec/backupStorageLocation").is_none_or(|kept| Some(kept) == location)
    })
}

fn broken(cluster: &ClusterState) -> impl Iterator<Item = &Object> {
    cluster.all(Kind::Repository).iter().filter(|repository| repository.phase() == "NotReady")
}

fn cause(repository: &Object, waits: bool) -> Cause {
    let message = repository.some_text("/status/message").unwrap_or("no error reported");
    // Before it is shortened: the lock may be mentioned in the middle.
    let locked = mentions_lock(message);
    let (name, what) = if locked { ("RepositoryLocked", "locked") } else { ("RepositoryNotReady", "not ready") };
    let message = shorten(message);
    let certainty = if waits { Certainty::Certain } else { Certainty::Likely };
    let text = format!("{} is {what}: {message}", repository.reference());
    let (namespace, object) = (repository.namespace(), repository.name());
    Cause::new(name, certainty, text).with_command(format!("kubectl -n {namespace} describe backuprepository {object}"))
}

/// Whether a message mentions a lock, as restic's "repository is already locked by …" and "unable to create lock in backend" do. An
/// option or a path with a lock in its name does not count, nor does the object lock of a bucket.
fn mentions_lock(message: &str) -> bool {
    let message = message.to_lowercase();
    let within = |letter: char| letter.is_alphanumeric() || "-_./".contains(letter);
    let words = message.split(|letter: char| !within(letter)).map(|word| word.trim_matches('.'));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let is_lock = |place: usize| matches!(words[place], "lock" | "locks" | "locked");
    (0..words.len()).any(|place| is_lock(place) && (place == 0 || words[place - 1] != "object"))
}
