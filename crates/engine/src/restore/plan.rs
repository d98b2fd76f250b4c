//! First step: everything selected, in run order, on disk. Nothing is created before the whole archive has been read.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use futures::StreamExt;
use plimsoll_archive::spool::{SealedSpool, Spool};
use plimsoll_archive::tarball::{Item, Reader};
use plimsoll_progress::{Meter, Task, Total, Unit};
use plimsoll_store::Store;
use tokio::sync::mpsc;

use super::action::Adds;
use super::actions::Actions;
use super::namespaces::NAMESPACES;
use crate::Error;
use crate::outcome::Recorder;
use crate::selection::Selecting;

/// What a restore will do.
pub struct RestorePlan {
    /// The selected objects, in run order.
    pub spool: SealedSpool,
    /// Objects that the filters left out and that actions may ask for.
    pub reserve: SealedSpool,
    /// Objects of the backup that the filters left out.
    pub excluded: u64,
    /// Entries of the archive that are damaged, each of which is an error.
    pub damaged: u64,
}

impl RestorePlan {
    /// How many items the restore will settle, as far as is known before it runs.
    pub fn total(&self) -> u64 {
        self.spool.len() as u64 + self.damaged
    }

    /// The total to show before the first object is created: open as long as an action may still add to it.
    pub fn opening_total(&self, actions: &Actions) -> Total {
        let grows = self.spool.resources().any(|(group_resource, _)| self.may_grow(actions, group_resource));
        if grows { Total::Growing(self.total()) } else { Total::Final(self.total()) }
    }

    /// Whether an action on objects of a resource may ask for something that is not planned.
    pub(super) fn may_grow(&self, actions: &Actions, group_resource: &str) -> bool {
        let in_reserve = |wanted: &[&str]| self.reserve.resources().any(|(resource, _)| wanted.contains(&resource));
        actions.wanting(group_resource).any(|action| match action.adds() {
            Adds::Nothing => false,
            Adds::These(wanted) => in_reserve(wanted),
            Adds::Anything => !self.reserve.is_empty(),
        })
    }
}

/// What the plan keeps of what the filters leave out.
#[derive(Debug)]
pub(super) enum Keep {
    These(BTreeSet<&'static str>),
    Everything,
}

impl Keep {
    pub(super) fn for_actions(actions: &Actions) -> Self {
        // A namespace is made from the one in the backup, whether or not that was selected.
        let mut kept = BTreeSet::from([NAMESPACES]);
        for action in actions.actions() {
            match action.adds() {
                Adds::Nothing => {}
                Adds::These(wanted) => kept.extend(wanted),
                Adds::Anything => return Self::Everything,
            }
        }
        Self::These(kept)
    }

    fn keeps(&self, group_resource: &str) -> bool {
        match self {
            Self::These(kept) => kept.contains(group_resource),
            Self::Everything => true,
        }
    }
}

/// A spool may take this much of the scratch directory.
const SPOOL_LIMIT: u64 = 64 << 30;

/// What a spool may take where it is: no more than is free, with a rest for others.
fn spool_limit(scratch: &Path) -> u64 {
    let free = rustix::fs::statvfs(scratch).map_or(SPOOL_LIMIT, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    SPOOL_LIMIT.min(free / 10 * 9)
}

/// Reads the archive at `key` once, from front to back.
///
/// # Cancel safety
/// Dropping the future ends the reading thread with its next read; the spool has no name and goes with it.
pub async fn plan(
    store: &Store,
    key: &str,
    selecting: Arc<Selecting>,
    actions: &Actions,
    scratch: &Path,
    recorder: Arc<Recorder>,
    task: &Task,
) -> Result<RestorePlan, Error> {
    let mut reader = store.reader(key).await?;
    let bytes = task.meter(Unit::Bytes);
    bytes.set_total(Total::Growing(reader.info().size));
    let (pieces, incoming) = mpsc::channel::<Bytes>(4);
    let (name, scratch, keep) = (key.to_owned(), scratch.to_owned(), Keep::for_actions(actions));
    let reading = tokio::task::spawn_blocking(move || {
        let input = Pieces { incoming, current: Bytes::new(), bytes };
        read_archive(input, &selecting, &keep, &scratch, &recorder)
    });
    while let Some(piece) = reader.next().await {
        // After an error of the store the thread sees a truncated archive; the store knows better.
        if pieces.send(piece?).await.is_err() {
            break;
        }
    }
    drop(pieces);
    match reading.await {
        Ok(planned) => planned.map_err(|source| Error::Archive { name, source }),
        Err(panic) => Err(Error::scratch(name.as_ref(), io::Error::other(panic))),
    }
}

/// Reads an archive from wherever it comes. Blocks.
pub(super) fn read_archive(
    input: impl Read,
    selecting: &Selecting,
    keep: &Keep,
    scratch: &Path,
    recorder: &Recorder,
) -> Result<RestorePlan, plimsoll_archive::Error> {
    let limit = spool_limit(scratch);
    let mut collect = Collect {
        selecting,
        recorder,
        keep,
        spool: Spool::create(scratch, limit)?,
        reserve: Spool::create(scratch, limit)?,
        excluded: 0,
        damaged: 0,
    };
    let mut archive = Reader::new(input);
    loop {
        match archive.next_item() {
            Ok(Some(item)) => collect.take(&item)?,
            Ok(None) => break,
            Err(error) if error.is_entry_error() => collect.note_damage(&error),
            Err(error) => return Err(error),
        }
    }
    let rank = |group_resource: &str| selecting.rank(group_resource);
    let (spool, reserve) = (collect.spool.seal(rank)?, collect.reserve.seal(rank)?);
    Ok(RestorePlan { spool, reserve, excluded: collect.excluded, damaged: collect.damaged })
}

struct Collect<'a> {
    selecting: &'a Selecting,
    recorder: &'a Recorder,
    keep: &'a Keep,
    spool: Spool,
    reserve: Spool,
    excluded: u64,
    damaged: u64,
}

impl Collect<'_> {
    fn take(&mut self, item: &Item) -> Result<(), plimsoll_archive::Error> {
        let (resource, namespace) = (item.group_resource.as_str(), item.namespace.as_deref());
        let labels = item.header.metadata.labels.as_ref();
        if self.selecting.restores(resource, &item.header.kind, namespace, &item.name, labels) {
            return self.spool.append(resource, namespace, &item.name, &item.json);
        }
        self.excluded += 1;
        if self.keep.keeps(resource) {
            self.reserve.append(resource, namespace, &item.name, &item.json)?;
        }
        Ok(())
    }

    fn note_damage(&mut self, error: &plimsoll_archive::Error) {
        self.damaged += 1;
        self.recorder.damaged(error.path().unwrap_or_default(), error.reason(), error.to_string());
    }
}

/// What arrives piece by piece, as something to read from.
struct Pieces {
    incoming: mpsc::Receiver<Bytes>,
    current: Bytes,
    bytes: Meter,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.incoming.blocking_recv() {
                Some(piece) => self.current = piece,
                None => return Ok(0),
            }
        }
        let length = buffer.len().min(self.current.len());
        self.current.copy_to_slice(&mut buffer[..length]);
        self.bytes.add(length as u64);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use futures::future::BoxFuture;
    use plimsoll_archive::tarball::Writer;
    use plimsoll_select::resources::DiscoveredResources;
    use serde_json::json;

    use super::*;
    use crate::registry::{AppliesTo, Source};
    use crate::restore::action::{Input, Output, RestoreItemAction};

    struct Asks(Adds);

    impl RestoreItemAction for Asks {
        fn execute<'a>(&'a self, input: Input<'a>) -> BoxFuture<'a, Result<Output, String>> {
            Box::pin(async { Ok(Output::of(input.item)) })
        }

        fn adds(&self) -> Adds {
            self.0
        }
    }

    /// A pod that is selected, and a volume that is not.
    fn plan_with(adds: Adds) -> (RestorePlan, Actions) {
        let mut actions = Actions::default();
        let pods = AppliesTo::resources(["pods"]);
        actions
            .register(Source::BuiltIn(1), "asks", &pods, &DiscoveredResources::default(), Arc::new(Asks(adds)))
            .unwrap();
        let mut archive = Writer::new(Vec::new()).unwrap();
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns"}});
        let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}});
        archive.append_object("pods", "v1", Some("ns"), "p", pod.to_string().as_bytes()).unwrap();
        archive.append_object("persistentvolumes", "v1", None, "v", volume.to_string().as_bytes()).unwrap();
        let spec = serde_json::from_value(json!({"includedNamespaces": ["ns"]})).unwrap();
        let selecting = Selecting::for_restore(&spec, None, &[]).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let recorder = Recorder::create(scratch.path()).unwrap();
        let packed = archive.finish().unwrap();
        let keep = Keep::for_actions(&actions);
        let plan = read_archive(packed.as_slice(), &selecting, &keep, scratch.path(), &recorder).unwrap();
        (plan, actions)
    }

    #[test]
    fn the_total_is_open_only_while_an_action_may_ask_for_what_is_not_planned() {
        for (adds, kept, total) in [
            (Adds::Nothing, 0, Total::Final(1)),
            (Adds::These(&["persistentvolumes"]), 1, Total::Growing(1)),
            (Adds::These(&["priorityclasses.scheduling.k8s.io"]), 0, Total::Final(1)),
            (Adds::Anything, 1, Total::Growing(1)),
        ] {
            let (plan, actions) = plan_with(adds);
            assert_eq!((plan.excluded, plan.reserve.len()), (1, kept), "{adds:?}");
            assert_eq!(plan.opening_total(&actions), total, "{adds:?}");
        }
    }
}
