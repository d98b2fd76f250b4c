//! Updates followed transfers: from the watch of their custom resources, and from the progress trees of agents.

use std::collections::HashSet;
use std::time::Duration;

use futures::StreamExt;
use kube::ResourceExt;
use kube::runtime::{WatchStreamExt, watcher};
use plimsoll_operations::WatchBackoff;
use plimsoll_progress::Trees;
use tokio::time::MissedTickBehavior;
use tracing::debug;

use super::TransferLost;
use super::entries::{Entries, clear_unlisted, lock, mark_lost, update_entry};
use crate::fs_backup::obstacle::BlockableTransfer;
use crate::fs_backup::services::TransferServices;

/// How often the progress trees of agents are read.
const REFRESH_INTERVAL: Duration = Duration::from_millis(200);

pub(super) async fn watch<T: BlockableTransfer>(services: &TransferServices, selector: &str, entries: &Entries<T>) {
    let config = watcher::Config::default().labels(selector);
    let mut events = watcher(services.leader.api::<T>(), config).backoff(WatchBackoff::default()).boxed();
    let mut listed = HashSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => handle_event(event, &mut listed, entries),
            Err(error) => debug!("watching transfers: {error}"),
        }
    }
}

/// Handles a watch event; `listed` has the names of an incomplete list.
pub(super) fn handle_event<T: BlockableTransfer>(
    event: watcher::Event<T>,
    listed: &mut HashSet<String>,
    entries: &Entries<T>,
) {
    match event {
        watcher::Event::Init => listed.clear(),
        watcher::Event::InitApply(object) => {
            listed.insert(object.name_any());
            update_entry(object, entries);
        }
        watcher::Event::InitDone => clear_unlisted(listed, entries),
        watcher::Event::Apply(object) => update_entry(object, entries),
        watcher::Event::Delete(object) => mark_lost(&object.name_any(), TransferLost::Deleted, entries),
    }
}

pub(super) async fn poll_agent_trees<T: BlockableTransfer>(trees: &Trees, entries: &Entries<T>) {
    let mut ticks = tokio::time::interval(REFRESH_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        refresh(trees, entries);
    }
}

/// Shows progress that agents have not written yet.
fn refresh<T: BlockableTransfer>(trees: &Trees, entries: &Entries<T>) {
    if trees.is_empty() {
        return;
    }
    for entry in lock(entries).values() {
        let followed = entry.followed.as_ref().filter(|followed| followed.is_active());
        let uid = entry.latest.as_ref().and_then(|object| object.uid());
        if let (Some(followed), Some(tree)) = (followed, uid.and_then(|uid| trees.snapshot(&uid))) {
            followed.update_from_tree(&tree);
        }
    }
}
