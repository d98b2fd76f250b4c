//! What follows a change by itself: garbage collection of dependents, the end of namespaces and of definitions.
//!
//! ```text
//! committed change ──follow──> keys to look at ──check──> jobs, whose changes are followed in turn
//! ```
//! Every check starts from what is stored, so checking once too often does no harm, and after a crash it is enough to
//! check everything that could be unfinished.

use crate::{
    Core,
    database::{Draft, Snapshot},
    definition,
    delete::{Deletion, PARALLEL, Propagation},
    failure::Failure,
    history::Event,
    key::{Key, Span},
    kind::Kind,
    object::{FOREGROUND, Head, ORPHAN, Owner, finalizers, is_terminating, metadata, set_finalizers, text},
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
const KUBERNETES: &str = "kubernetes";

pub(crate) struct Collector {
    core: Weak<Core>,
    changes: mpsc::UnboundedReceiver<Arc<Event>>,
    queue: BTreeSet<Key>,
    /// Namespaces and definitions that wait for their content to go.
    ending: HashSet<Key>,
}

/// Whether a change can have consequences; decided on the writer thread, so it must be quick.
pub(crate) fn is_interesting(event: &Event) -> bool {
    let mentions = |needle: &[u8]| event.object.windows(needle.len()).any(|window| window == needle);
    event.deleted || mentions(b"\"ownerReferences\"") || mentions(b"\"deletionTimestamp\"")
}

impl Collector {
    pub fn new(core: &Arc<Core>, changes: mpsc::UnboundedReceiver<Arc<Event>>) -> Self {
        Self { core: Arc::downgrade(core), changes, queue: BTreeSet::new(), ending: HashSet::new() }
    }

    /// Runs until the database is closed.
    pub async fn run(mut self) {
        if let Err(failure) = self.recover() {
            tracing::error!(error = failure.message, "cannot look for unfinished deletions");
        }
        loop {
            while let Ok(event) = self.changes.try_recv() {
                self.follow(&event);
            }
            if self.queue.is_empty() {
                match self.changes.recv().await {
                    Some(event) => self.follow(&event),
                    None => return,
                }
                continue;
            }
            let Some(core) = self.core.upgrade() else { return };
            let keys: Vec<Key> = (0..PARALLEL).map_while(|_| self.queue.pop_first()).collect();
            let more = join_all(keys.iter().map(|key| core.check(key))).await;
            for (key, outcome) in keys.iter().zip(more) {
                match outcome {
                    Ok(next) => self.queue.extend(next),
                    // Refused because something else changed it: that change is followed too.
                    Err(failure) => tracing::debug!(?key, error = failure.message, "check was refused"),
                }
            }
        }
    }

    /// Everything that may have been left unfinished.
    fn recover(&mut self) -> Result<(), Failure> {
        let Some(core) = self.core.upgrade() else { return Ok(()) };
        let snapshot = core.database.snapshot()?;
        let pending = snapshot.pending()?;
        self.ending.extend(pending.iter().filter(|key| has_content(key)).cloned());
        self.queue.extend(pending);
        self.queue.extend(snapshot.dependents("")?);
        Ok(())
    }

    fn follow(&mut self, event: &Event) {
        let head = Head::of(&event.object);
        if event.deleted {
            self.follow_deletion(event, &head);
        } else if head.metadata.deletion_timestamp.is_some() {
            if has_content(&event.key) {
                self.ending.insert(event.key.clone());
            }
            self.queue.insert(event.key.clone());
        } else if event.before.as_deref().map(Head::of).is_none_or(|before| before.owners() != head.owners()) {
            self.queue.insert(event.key.clone());
        }
    }

    fn follow_deletion(&mut self, event: &Event, head: &Head) {
        self.ending.remove(&event.key);
        let namespace = Key::namespace_object(&event.key.namespace);
        let definition = Key::new(&definition::RESOURCE.into(), "", &event.key.resource);
        self.queue.extend([namespace, definition].into_iter().filter(|key| self.ending.contains(key)));
        let Some(core) = self.core.upgrade() else { return };
        let owners = head.owners().iter().filter_map(|owner| core.owner_key(owner, &event.key.namespace));
        self.queue.extend(owners);
        match core.database.snapshot().and_then(|snapshot| snapshot.dependents(&head.metadata.uid)) {
            Ok(dependents) => self.queue.extend(dependents),
            Err(failure) => tracing::error!(error = failure.message, "cannot find dependents"),
        }
    }
}

fn has_content(key: &Key) -> bool {
    matches!(&*key.resource, "namespaces" | definition::RESOURCE)
}

/// How an owner stands to its dependent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    There,
    Gone,
    /// Being deleted in the foreground: it waits for its dependents.
    Waiting,
}

impl Core {
    fn owner_key(&self, owner: &Owner, namespace: &str) -> Option<Key> {
        let kind = self.registry().find_kind(owner.group(), &owner.kind)?;
        Some(kind.key(namespace, &owner.name))
    }

    /// Does what is due for one object. The answer names others to look at.
    async fn check(self: &Arc<Self>, key: &Key) -> Result<Vec<Key>, Failure> {
        let snapshot = self.database.snapshot()?;
        let Some(stored) = snapshot.get(key)? else { return Ok(Vec::new()) };
        let object: Value = serde_json::from_slice(&stored)?;
        if !is_terminating(&object) {
            return self.reap(&snapshot, key, &object).await;
        }
        match &*key.resource {
            "namespaces" => self.end_namespace(key).await?,
            definition::RESOURCE => self.end_definition(key).await?,
            _ => {}
        }
        let held_by = finalizers(&object);
        if held_by.contains(&FOREGROUND) {
            return self.end_in_foreground(&snapshot, key, &object).await;
        }
        if held_by.contains(&ORPHAN) {
            self.orphan_dependents(&snapshot, key, &object).await?;
        }
        Ok(Vec::new())
    }

    fn standing(&self, snapshot: &Snapshot, owner: &Owner, namespace: &str) -> Result<Standing, Failure> {
        // An owner of a kind that we do not know may exist elsewhere: nothing is deleted on a guess.
        let Some(key) = self.owner_key(owner, namespace) else { return Ok(Standing::There) };
        let Some(stored) = snapshot.get(&key)? else { return Ok(Standing::Gone) };
        let object: Value = serde_json::from_slice(&stored)?;
        if text(&object, "/metadata/uid") != owner.uid {
            return Ok(Standing::Gone);
        }
        let waits = is_terminating(&object) && finalizers(&object).contains(&FOREGROUND);
        Ok(if waits { Standing::Waiting } else { Standing::There })
    }

    /// Deletes an object that no owner keeps, or takes leave of the owners that are gone.
    async fn reap(self: &Arc<Self>, snapshot: &Snapshot, key: &Key, object: &Value) -> Result<Vec<Key>, Failure> {
        let head = Head::of(object.to_string().as_bytes());
        let standings: Vec<Standing> = head
            .owners()
            .iter()
            .map(|owner| self.standing(snapshot, owner, &key.namespace))
            .collect::<Result<_, _>>()?;
        if standings.iter().all(|standing| *standing == Standing::There) {
            return Ok(Vec::new());
        }
        if standings.contains(&Standing::There) {
            let leaving = head.owners().iter().zip(&standings).filter(|(_, standing)| **standing != Standing::There);
            self.disown(key, leaving.map(|(owner, _)| owner.uid.clone()).collect()).await?;
            return Ok(Vec::new());
        }
        let uid = &head.metadata.uid;
        let in_foreground = standings.contains(&Standing::Waiting) && !snapshot.dependents(uid)?.is_empty();
        let propagation = if in_foreground { Propagation::Foreground } else { Propagation::Unsaid };
        self.delete_quietly(key, uid, propagation).await?;
        Ok(Vec::new())
    }

    pub async fn delete_quietly(&self, key: &Key, uid: &str, propagation: Propagation) -> Result<(), Failure> {
        let Some(kind) = self.registry().find_resource(&key.resource) else { return Ok(()) };
        match self.delete_object(kind, key.clone(), Deletion::of(uid, propagation)).await {
            Err(failure) if failure.code != 404 => Err(failure),
            _ => Ok(()),
        }
    }

    async fn end_in_foreground(
        self: &Arc<Self>,
        snapshot: &Snapshot,
        key: &Key,
        object: &Value,
    ) -> Result<Vec<Key>, Failure> {
        let uid = text(object, "/metadata/uid");
        let dependents = snapshot.dependents(uid)?;
        let blocks = |key: &Key| -> Result<bool, Failure> {
            let head = snapshot.get(key)?.map(|stored| Head::of(&stored)).unwrap_or_default();
            Ok(head.owners().iter().any(|owner| owner.uid == uid && owner.block_owner_deletion == Some(true)))
        };
        for dependent in &dependents {
            if blocks(dependent)? {
                return Ok(dependents);
            }
        }
        self.release(key, FOREGROUND).await?;
        Ok(dependents)
    }

    async fn orphan_dependents(&self, snapshot: &Snapshot, key: &Key, object: &Value) -> Result<(), Failure> {
        let uid = text(object, "/metadata/uid");
        for dependent in snapshot.dependents(uid)? {
            self.disown(&dependent, vec![uid.to_owned()]).await?;
        }
        self.release(key, ORPHAN).await
    }

    /// Removes references to owners.
    async fn disown(&self, key: &Key, uids: Vec<String>) -> Result<(), Failure> {
        self.alter(key, move |object| {
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
    pub async fn release(&self, key: &Key, finalizer: &'static str) -> Result<(), Failure> {
        self.alter(key, move |object| {
            let kept: Vec<String> =
                finalizers(object).into_iter().filter(|held| *held != finalizer).map(str::to_owned).collect();
            set_finalizers(object, &kept);
        })
        .await
    }

    pub async fn alter(&self, key: &Key, change: impl FnOnce(&mut Value) + Send + 'static) -> Result<(), Failure> {
        let key = key.clone();
        let job = move |draft: &mut Draft<'_>| {
            let Some(old) = draft.get(&key)? else { return Ok(()) };
            let mut new = old.clone();
            change(&mut new);
            store(draft, &key, &old, new).map(drop)
        };
        self.database.write(job).await
    }

    /// Deletes what is in a namespace; when nothing is left, lets the namespace go.
    async fn end_namespace(self: &Arc<Self>, key: &Key) -> Result<(), Failure> {
        let kinds = self.registry().namespaced();
        let spans: Vec<Span> = kinds.iter().map(|kind| kind.span(Some(&key.name))).collect();
        if self.sweep(&kinds, &spans).await? {
            self.alter(key, |namespace| {
                if let Some(held_by) = namespace.pointer_mut("/spec/finalizers").and_then(Value::as_array_mut) {
                    held_by.retain(|finalizer| finalizer != KUBERNETES);
                }
            })
            .await?;
        }
        Ok(())
    }

    /// Deletes the objects of a definition; when none is left, lets the definition go.
    async fn end_definition(self: &Arc<Self>, key: &Key) -> Result<(), Failure> {
        let Some(kind) = self.registry().find_resource(&key.name) else {
            return self.release(key, definition::CLEANUP).await;
        };
        let span = kind.span(None);
        if self.sweep(&[kind], &[span]).await? {
            self.release(key, definition::CLEANUP).await?;
        }
        Ok(())
    }

    /// Deletes everything in some spans and answers whether they are empty now.
    async fn sweep(self: &Arc<Self>, kinds: &[Arc<Kind>], spans: &[Span]) -> Result<bool, Failure> {
        let snapshot = self.database.snapshot()?;
        for (kind, span) in kinds.iter().zip(spans) {
            let keys = snapshot.keys(span, usize::MAX)?;
            let delete = |key: Key| async move {
                let deletion = Deletion::anything();
                if let Err(failure) = self.delete_object(Arc::clone(kind), key, deletion).await {
                    tracing::debug!(error = failure.message, "left for the next sweep");
                }
            };
            stream::iter(keys).map(delete).buffer_unordered(PARALLEL).for_each(|()| async {}).await;
        }
        let snapshot = self.database.snapshot()?;
        let mut empty = true;
        for span in spans {
            empty &= snapshot.keys(span, 1)?.is_empty();
        }
        Ok(empty)
    }
}
