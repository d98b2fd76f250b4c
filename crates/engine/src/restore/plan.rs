//! Plans a restore: spools the selected items to disk in restore order. Nothing is created before the archive is read.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use futures::StreamExt;
use plimsoll_archive::spool::{SealedSpool, Spool};
use plimsoll_archive::tarball::{Item, Reader};
use plimsoll_progress::{Task, Total, Unit};
use plimsoll_store::Store;

use super::action::AdditionalResources;
use super::actions::Actions;
use super::namespaces::NAMESPACES;
use crate::Error;
use crate::chunk_reader::chunk_channel;
use crate::item_filter::ItemFilter;
use crate::operation_files::spool_limit;
use crate::outcome::Recorder;

/// The plan of a restore.
pub struct RestorePlan {
    /// The selected items, in restore order.
    pub spool: SealedSpool,
    /// Excluded items that actions may add.
    pub reserve: SealedSpool,
    /// Number of items that the filters exclude.
    pub excluded: u64,
    /// Number of damaged entries of the archive; each is an error.
    pub damaged: u64,
}

impl RestorePlan {
    /// Number of items, as far as known before the run.
    pub fn total(&self) -> u64 {
        self.spool.len() as u64 + self.damaged
    }

    /// The initial total: growing if an action may add items.
    pub fn initial_total(&self, actions: &Actions) -> Total {
        let may_grow = self.spool.resources().any(|(group_resource, _)| self.may_grow(actions, group_resource));
        if may_grow { Total::Growing(self.total()) } else { Total::Final(self.total()) }
    }

    /// Whether an action on a resource may add items that are not planned.
    pub(super) fn may_grow(&self, actions: &Actions, group_resource: &str) -> bool {
        let in_reserve =
            |resources: &[&str]| self.reserve.resources().any(|(resource, _)| resources.contains(&resource));
        actions.for_resource(group_resource).any(|action| match action.additional_resources() {
            AdditionalResources::None => false,
            AdditionalResources::Only(resources) => in_reserve(resources),
            AdditionalResources::Any => !self.reserve.is_empty(),
        })
    }
}

/// Which excluded items the reserve keeps.
#[derive(Debug)]
pub(super) enum ReserveFilter {
    Only(BTreeSet<&'static str>),
    All,
}

impl ReserveFilter {
    pub(super) fn for_actions(actions: &Actions) -> Self {
        // A namespace is created from the backup, even if it was not selected.
        let mut kept = BTreeSet::from([NAMESPACES]);
        for action in actions.actions() {
            match action.additional_resources() {
                AdditionalResources::None => {}
                AdditionalResources::Only(resources) => kept.extend(resources),
                AdditionalResources::Any => return Self::All,
            }
        }
        Self::Only(kept)
    }

    fn includes(&self, group_resource: &str) -> bool {
        match self {
            Self::Only(kept) => kept.contains(group_resource),
            Self::All => true,
        }
    }
}

/// Reads the archive at `key` once.
///
/// # Cancel safety
/// Dropping the future ends the reading thread at its next read; the unlinked spool is freed with it.
pub(super) async fn plan(
    store: &Store,
    key: &str,
    item_filter: Arc<ItemFilter>,
    actions: &Actions,
    scratch: &Path,
    recorder: Arc<Recorder>,
    task: &Task,
) -> Result<RestorePlan, Error> {
    let mut reader = store.reader(key).await?;
    let bytes = task.meter(Unit::Bytes);
    bytes.set_total(Total::Growing(reader.info().size));
    let (chunks, input) = chunk_channel(bytes);
    let (name, scratch, reserve_filter) = (key.to_owned(), scratch.to_owned(), ReserveFilter::for_actions(actions));
    let reading =
        tokio::task::spawn_blocking(move || read_archive(input, &item_filter, &reserve_filter, &scratch, &recorder));
    while let Some(chunk) = reader.next().await {
        // After an error of the store the thread sees a truncated archive; the error of the store is the cause.
        if chunks.send(chunk?).await.is_err() {
            break;
        }
    }
    drop(chunks);
    match reading.await {
        Ok(planned) => planned.map_err(|source| Error::Archive { name, source }),
        Err(panic) => Err(Error::scratch(name.as_ref(), io::Error::other(panic))),
    }
}

/// Reads an archive. Blocks.
pub(super) fn read_archive(
    input: impl Read,
    item_filter: &ItemFilter,
    reserve_filter: &ReserveFilter,
    scratch: &Path,
    recorder: &Recorder,
) -> Result<RestorePlan, plimsoll_archive::Error> {
    let limit = spool_limit(scratch);
    let mut builder = PlanBuilder {
        item_filter,
        recorder,
        reserve_filter,
        spool: Spool::create(scratch, limit)?,
        reserve: Spool::create(scratch, limit)?,
        excluded: 0,
        damaged: 0,
    };
    let mut archive = Reader::new(input);
    loop {
        match archive.next_item() {
            Ok(Some(item)) => builder.add(&item)?,
            Ok(None) => break,
            Err(error) if error.is_entry_error() => builder.record_damage(&error),
            Err(error) => return Err(error),
        }
    }
    let rank = |group_resource: &str| item_filter.rank(group_resource);
    let (spool, reserve) = (builder.spool.seal(rank)?, builder.reserve.seal(rank)?);
    Ok(RestorePlan { spool, reserve, excluded: builder.excluded, damaged: builder.damaged })
}

struct PlanBuilder<'a> {
    item_filter: &'a ItemFilter,
    recorder: &'a Recorder,
    reserve_filter: &'a ReserveFilter,
    spool: Spool,
    reserve: Spool,
    excluded: u64,
    damaged: u64,
}

impl PlanBuilder<'_> {
    fn add(&mut self, item: &Item) -> Result<(), plimsoll_archive::Error> {
        let (resource, namespace) = (item.group_resource.as_str(), item.namespace.as_deref());
        let labels = item.header.metadata.labels.as_ref();
        if self.item_filter.restores_item(resource, &item.header.kind, namespace, &item.name, labels) {
            return self.spool.append(resource, namespace, &item.name, &item.json);
        }
        self.excluded += 1;
        if self.reserve_filter.includes(resource) {
            self.reserve.append(resource, namespace, &item.name, &item.json)?;
        }
        Ok(())
    }

    fn record_damage(&mut self, error: &plimsoll_archive::Error) {
        self.damaged += 1;
        self.recorder.damaged(error.path().unwrap_or_default(), error.reason(), error.to_string());
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
    use crate::restore::action::{RestoreActionInput, RestoreActionOutput, RestoreItemAction};

    struct AddingAction(AdditionalResources);

    impl RestoreItemAction for AddingAction {
        fn execute<'a>(&'a self, input: RestoreActionInput<'a>) -> BoxFuture<'a, Result<RestoreActionOutput, String>> {
            Box::pin(async { Ok(RestoreActionOutput::of(input.item)) })
        }

        fn additional_resources(&self) -> AdditionalResources {
            self.0
        }
    }

    /// A plan with a selected pod and an excluded volume.
    fn plan_with(adds: AdditionalResources) -> (RestorePlan, Actions) {
        let mut actions = Actions::default();
        let pods = AppliesTo::resources(["pods"]);
        actions
            .register(Source::BuiltIn(1), "asks", &pods, &DiscoveredResources::default(), Arc::new(AddingAction(adds)))
            .unwrap();
        let mut archive = Writer::new(Vec::new()).unwrap();
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns"}});
        let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}});
        archive.append_object("pods", "v1", Some("ns"), "p", pod.to_string().as_bytes()).unwrap();
        archive.append_object("persistentvolumes", "v1", None, "v", volume.to_string().as_bytes()).unwrap();
        let spec = serde_json::from_value(json!({"includedNamespaces": ["ns"]})).unwrap();
        let item_filter = ItemFilter::for_restore(&spec, None, &[]).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let recorder = Recorder::create(scratch.path()).unwrap();
        let packed = archive.finish().unwrap();
        let reserve_filter = ReserveFilter::for_actions(&actions);
        let plan = read_archive(packed.as_slice(), &item_filter, &reserve_filter, scratch.path(), &recorder).unwrap();
        (plan, actions)
    }

    #[test]
    fn the_total_grows_only_if_an_action_may_add_items() {
        for (adds, kept, total) in [
            (AdditionalResources::None, 0, Total::Final(1)),
            (AdditionalResources::Only(&["persistentvolumes"]), 1, Total::Growing(1)),
            (AdditionalResources::Only(&["priorityclasses.scheduling.k8s.io"]), 0, Total::Final(1)),
            (AdditionalResources::Any, 1, Total::Growing(1)),
        ] {
            let (plan, actions) = plan_with(adds);
            assert_eq!((plan.excluded, plan.reserve.len()), (1, kept), "{adds:?}");
            assert_eq!(plan.initial_total(&actions), total, "{adds:?}");
        }
    }
}
