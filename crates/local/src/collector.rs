//! The garbage collector: deletes dependents, and the content of namespaces and definitions that are being deleted.
//!
//! ```text
//! committed change ──enqueue──> keys ──process──> jobs, whose changes are enqueued in turn
//! ```
//! Processing starts from the stored state, so it is idempotent, and after a crash it is enough to process everything
//! that could be unfinished.

use crate::{
    Core,
    database::{Draft, Snapshot},
    definition,
    delete::{Deletion, MAX_CONCURRENT_DELETIONS, Propagation},
    history::Event,
    key::{Key, KeyRange},
    kind::Kind,
    object::{
        FOREGROUND_FINALIZER, ORPHAN_FINALIZER, OwnerReference, PartialObject, finalizers, is_terminating, metadata,
        set_finalizers, text,
    },
    status_error::StatusError,
    write::store,
};
use futures::{StreamExt, future::join_all, stream};
use serde_json::Value;
use std::{
    collections::{BTreeSet, HashSet},
    sync::{Arc, Weak},
};
use tokio::sync::mpsc;

/// Finalizer in a namespace's spec.
const KUBERNETES_FINALIZER: &str = "kubernetes";

pub(crate) struct Collector {
    core: Weak<Core>,
    changes: mpsc::UnboundedReceiver<Arc<Event>>,
    queue: BTreeSet<Key>,
    /// Namespaces and definitions that wait until their content is deleted.
    terminating: HashSet<Key>,
}

/// Whether a change can require garbage collection. Runs on the writer thread, so it must be fast.
pub(crate) fn is_relevant(event: &Event) -> bool {
    let mentions = |needle: &[u8]| event.object.windows(needle.len()).any(|window| window == needle);
    event.deleted || mentions(b"\"ownerReferences\"") || mentions(b"\"deletionTimestamp\"")
}

impl Collector {
    pub fn new(core: &Arc<Core>, changes: mpsc::UnboundedReceiver<Arc<Event>>) -> Self {
        Self { core: Arc::downgrade(core), changes, queue: BTreeSet::new(), terminating: HashSet::new() }
    }

    /// Runs until the database is closed.
    pub async fn run(mut self) {
        if let Err(failure) = self.recover() {
            tracing::error!(error = failure.message, "cannot recover unfinished deletions");
        }
        loop {
            while let Ok(event) = self.changes.try_recv() {
                self.enqueue(&event);
            }
            if self.queue.is_empty() {
                match self.changes.recv().await {
                    Some(event) => self.enqueue(&event),
                    None => return,
                }
                continue;
            }
            let Some(core) = self.core.upgrade() else { return };
            let keys: Vec<Key> = (0..MAX_CONCURRENT_DELETIONS).map_while(|_| self.queue.pop_first()).collect();
            let outcomes = join_all(keys.iter().map(|key| core.process(key))).await;
            for (key, outcome) in keys.iter().zip(outcomes) {
                match outcome {
                    Ok(next) => self.queue.extend(next),
                    // Rejected because of another change, which is enqueued too.
                    Err(failure) => {
                        tracing::debug!(?key, error = failure.message, "garbage collection of an object failed");
                    }
                }
            }
        }
    }

    /// Enqueues everything that may be unfinished.
    fn recover(&mut self) -> Result<(), StatusError> {
        let Some(core) = self.core.upgrade() else { return Ok(()) };
        let snapshot = core.database.snapshot()?;
        let pending = snapshot.pending()?;
        self.terminating.extend(pending.iter().filter(|key| contains_objects(key)).cloned());
        self.queue.extend(pending);
        self.queue.extend(snapshot.dependents("")?);
        Ok(())
    }

    fn enqueue(&mut self, event: &Event) {
        let head = PartialObject::of(&event.object);
        if event.deleted {
            self.enqueue_for_deletion(event, &head);
        } else if head.metadata.deletion_timestamp.is_some() {
            if contains_objects(&event.key) {
                self.terminating.insert(event.key.clone());
            }
            self.queue.insert(event.key.clone());
        } else if event.before.as_deref().map(PartialObject::of).is_none_or(|before| before.owners() != head.owners()) {
            self.queue.insert(event.key.clone());
        }
    }

    fn enqueue_for_deletion(&mut self, event: &Event, head: &PartialObject) {
        self.terminating.remove(&event.key);
        let namespace = Key::namespace_object(&event.key.namespace);
        let definition = Key::new(&definition::RESOURCE.into(), "", &event.key.resource);
        self.queue.extend([namespace, definition].into_iter().filter(|key| self.terminating.contains(key)));
        let Some(core) = self.core.upgrade() else { return };
        let owners = head.owners().iter().filter_map(|owner| core.owner_key(owner, &event.key.namespace));
        self.queue.extend(owners);
        match core.database.snapshot().and_then(|snapshot| snapshot.dependents(&head.metadata.uid)) {
            Ok(dependents) => self.queue.extend(dependents),
            Err(failure) => tracing::error!(error = failure.message, "cannot find dependents"),
        }
    }
}

fn contains_objects(key: &Key) -> bool {
    matches!(&*key.resource, "namespaces" | definition::RESOURCE)
}

/// The state of an owner, as its dependent sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnerState {
    Present,
    Absent,
    /// Deleted in the foreground: it waits for its dependents.
    WaitingForDependents,
}

impl Core {
    fn owner_key(&self, owner: &OwnerReference, namespace: &str) -> Option<Key> {
        let kind = self.registry().find_kind(owner.group(), &owner.kind)?;
        Some(kind.key(namespace, &owner.name))
    }

    /// Processes one object. Returns further keys to process.
    async fn process(self: &Arc<Self>, key: &Key) -> Result<Vec<Key>, StatusError> {
        let snapshot = self.database.snapshot()?;
        let Some(stored) = snapshot.get(key)? else { return Ok(Vec::new()) };
        let object: Value = serde_json::from_slice(&stored)?;
        if !is_terminating(&object) {
            return self.delete_if_unowned(&snapshot, key, &object).await;
        }
        match &*key.resource {
            "namespaces" => self.finalize_namespace(key).await?,
            definition::RESOURCE => self.finalize_definition(key).await?,
            _ => {}
        }
        let finalizers_of_object = finalizers(&object);
        if finalizers_of_object.contains(&FOREGROUND_FINALIZER) {
            return self.process_foreground_deletion(&snapshot, key, &object).await;
        }
        if finalizers_of_object.contains(&ORPHAN_FINALIZER) {
            self.orphan_dependents(&snapshot, key, &object).await?;
        }
        Ok(Vec::new())
    }

    fn owner_state(
        &self,
        snapshot: &Snapshot,
        owner: &OwnerReference,
        namespace: &str,
    ) -> Result<OwnerState, StatusError> {
        // An owner of an unknown kind may exist elsewhere: its dependents are not deleted.
        let Some(key) = self.owner_key(owner, namespace) else { return Ok(OwnerState::Present) };
        let Some(stored) = snapshot.get(&key)? else { return Ok(OwnerState::Absent) };
        let object: Value = serde_json::from_slice(&stored)?;
        if text(&object, "/metadata/uid") != owner.uid {
            return Ok(OwnerState::Absent);
        }
        let is_waiting = is_terminating(&object) && finalizers(&object).contains(&FOREGROUND_FINALIZER);
        Ok(if is_waiting { OwnerState::WaitingForDependents } else { OwnerState::Present })
    }

    /// Deletes an object without remaining owners, or removes the references to absent ones.
    async fn delete_if_unowned(
        self: &Arc<Self>,
        snapshot: &Snapshot,
        key: &Key,
        object: &Value,
    ) -> Result<Vec<Key>, StatusError> {
        let head = PartialObject::of(object.to_string().as_bytes());
        let owner_states: Vec<OwnerState> = head
            .owners()
            .iter()
            .map(|owner| self.owner_state(snapshot, owner, &key.namespace))
            .collect::<Result<_, _>>()?;
        if owner_states.iter().all(|owner_state| *owner_state == OwnerState::Present) {
            return Ok(Vec::new());
        }
        if owner_states.contains(&OwnerState::Present) {
            let absent =
                head.owners().iter().zip(&owner_states).filter(|(_, owner_state)| **owner_state != OwnerState::Present);
            self.remove_owner_references(key, absent.map(|(owner, _)| owner.uid.clone()).collect()).await?;
            return Ok(Vec::new());
        }
        let uid = &head.metadata.uid;
        let is_foreground =
            owner_states.contains(&OwnerState::WaitingForDependents) && !snapshot.dependents(uid)?.is_empty();
        let propagation = if is_foreground { Propagation::Foreground } else { Propagation::Default };
        self.delete_if_present(key, uid, propagation).await?;
        Ok(Vec::new())
    }

    pub async fn delete_if_present(&self, key: &Key, uid: &str, propagation: Propagation) -> Result<(), StatusError> {
        let Some(kind) = self.registry().find_resource(&key.resource) else { return Ok(()) };
        match self.delete_object(kind, key.clone(), Deletion::of(uid, propagation)).await {
            Err(failure) if failure.code != 404 => Err(failure),
            _ => Ok(()),
        }
    }

    async fn process_foreground_deletion(
        self: &Arc<Self>,
        snapshot: &Snapshot,
        key: &Key,
        object: &Value,
    ) -> Result<Vec<Key>, StatusError> {
        let uid = text(object, "/metadata/uid");
        let dependents = snapshot.dependents(uid)?;
        let blocks = |key: &Key| -> Result<bool, StatusError> {
            let head = snapshot.get(key)?.map(|stored| PartialObject::of(&stored)).unwrap_or_default();
            Ok(head.owners().iter().any(|owner| owner.uid == uid && owner.block_owner_deletion == Some(true)))
        };
        for dependent in &dependents {
            if blocks(dependent)? {
                return Ok(dependents);
            }
        }
        self.remove_finalizer(key, FOREGROUND_FINALIZER).await?;
        Ok(dependents)
    }

    async fn orphan_dependents(&self, snapshot: &Snapshot, key: &Key, object: &Value) -> Result<(), StatusError> {
        let uid = text(object, "/metadata/uid");
        for dependent in snapshot.dependents(uid)? {
            self.remove_owner_references(&dependent, vec![uid.to_owned()]).await?;
        }
        self.remove_finalizer(key, ORPHAN_FINALIZER).await
    }

    /// Removes owner references by uid.
    async fn remove_owner_references(&self, key: &Key, uids: Vec<String>) -> Result<(), StatusError> {
        self.modify(key, move |object| {
            let owners = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut);
            let Some(owners) = owners else { return };
            owners.retain(|owner| !uids.iter().any(|uid| owner["uid"] == **uid));
            if owners.is_empty() {
                metadata(object).remove("ownerReferences");
            }
        })
        .await
    }

    /// Removes a finalizer.
    pub async fn remove_finalizer(&self, key: &Key, finalizer: &'static str) -> Result<(), StatusError> {
        self.modify(key, move |object| {
            let remaining: Vec<String> =
                finalizers(object).into_iter().filter(|held| *held != finalizer).map(str::to_owned).collect();
            set_finalizers(object, &remaining);
        })
        .await
    }

    pub async fn modify(&self, key: &Key, change: impl FnOnce(&mut Value) + Send + 'static) -> Result<(), StatusError> {
        let key = key.clone();
        let job = move |draft: &mut Draft<'_>| {
            let Some(old) = draft.get(&key)? else { return Ok(()) };
            let mut new = old.clone();
            change(&mut new);
            store(draft, &key, &old, new).map(drop)
        };
        self.database.write(job).await
    }

    /// Deletes the content of a namespace and, when it is empty, removes its finalizer.
    async fn finalize_namespace(self: &Arc<Self>, key: &Key) -> Result<(), StatusError> {
        let kinds = self.registry().namespaced();
        let ranges: Vec<KeyRange> = kinds.iter().map(|kind| kind.range(Some(&key.name))).collect();
        if self.delete_all(&kinds, &ranges).await? {
            self.modify(key, |namespace| {
                if let Some(finalizers_of_object) =
                    namespace.pointer_mut("/spec/finalizers").and_then(Value::as_array_mut)
                {
                    finalizers_of_object.retain(|finalizer| finalizer != KUBERNETES_FINALIZER);
                }
            })
            .await?;
        }
        Ok(())
    }

    /// Deletes the objects of a definition and, when none is left, removes its finalizer.
    async fn finalize_definition(self: &Arc<Self>, key: &Key) -> Result<(), StatusError> {
        let Some(kind) = self.registry().find_resource(&key.name) else {
            return self.remove_finalizer(key, definition::CLEANUP_FINALIZER).await;
        };
        let range = kind.range(None);
        if self.delete_all(&[kind], &[range]).await? {
            self.remove_finalizer(key, definition::CLEANUP_FINALIZER).await?;
        }
        Ok(())
    }

    /// Deletes everything in some ranges and returns whether they are empty.
    async fn delete_all(self: &Arc<Self>, kinds: &[Arc<Kind>], ranges: &[KeyRange]) -> Result<bool, StatusError> {
        let snapshot = self.database.snapshot()?;
        for (kind, range) in kinds.iter().zip(ranges) {
            let keys = snapshot.keys(range, usize::MAX)?;
            let delete = |key: Key| async move {
                let deletion = Deletion::unconditional();
                if let Err(failure) = self.delete_object(Arc::clone(kind), key, deletion).await {
                    tracing::debug!(error = failure.message, "cannot delete an object yet");
                }
            };
            stream::iter(keys).map(delete).buffer_unordered(MAX_CONCURRENT_DELETIONS).for_each(|()| async {}).await;
        }
        let snapshot = self.database.snapshot()?;
        let mut empty = true;
        for range in ranges {
            empty &= snapshot.keys(range, 1)?.is_empty();
        }
        Ok(empty)
    }
}
