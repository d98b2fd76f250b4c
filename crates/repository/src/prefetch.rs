//! Listings that are requested when a repository is opened, together with its config and keys: each would cost a round trip of its
//! own afterwards.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use futures::stream::TryStreamExt;
use plimsoll_store::{Store, StoreError};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::repository::{FileKind, ListedFile, parse_listed};

/// The kinds of files that backups and restores list first.
const KINDS: [FileKind; 3] = [FileKind::Snapshot, FileKind::Index, FileKind::Lock];

type Listing = JoinHandle<Result<Vec<ListedFile>, StoreError>>;

/// Requested listings, each for the first one who needs it.
#[derive(Default)]
pub(crate) struct Prefetched(Mutex<HashMap<FileKind, Listing>>);

impl Prefetched {
    /// Requests the listings.
    pub(crate) fn start(store: &Store, runtime: &Handle) -> Self {
        let list = |kind: FileKind| {
            let store = store.clone();
            let listing = async move {
                let files =
                    store.list(kind.folder()).try_filter_map(|info| std::future::ready(Ok(parse_listed(&info))));
                files.try_collect().await
            };
            (kind, runtime.spawn(listing))
        };
        Self(Mutex::new(KINDS.into_iter().map(list).collect()))
    }

    /// The listing of this kind, if it was requested and not used yet.
    pub(crate) fn take(&self, kind: FileKind) -> Option<Listing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&kind)
    }
}

impl Drop for Prefetched {
    fn drop(&mut self) {
        let listings = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        listings.values().for_each(JoinHandle::abort);
    }
}
