//! Packs that an interrupted backup stored but did not index. They are looked for only where there is a sign of one, because that
//! lists all packs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::blob_index::BlobIndex;
use crate::format::blob::BlobKind;
use crate::format::id::Id;

/// The blobs of unindexed packs. Until they are known, threads that want to store a blob wait, and all others go on.
#[derive(Default)]
pub(super) struct UnindexedBlobs {
    is_requested: AtomicBool,
    has_ended: Mutex<bool>,
    changed: Condvar,
    found: OnceLock<BlobIndex>,
}

impl UnindexedBlobs {
    /// Asks for the packs: there is a sign that the index is not complete.
    pub(super) fn request(&self) {
        if !self.is_requested.swap(true, Ordering::AcqRel) {
            self.changed.notify_all();
        }
    }

    /// Whether an unindexed pack contains this blob.
    pub(super) fn contains(&self, kind: BlobKind, id: &Id) -> bool {
        self.is_requested.load(Ordering::Acquire) && self.found.wait().contains(kind, id)
    }

    /// Waits until the packs are asked for. Returns `false` if that can no longer happen.
    pub(super) fn wait_for_request(&self, stopped: impl Fn() -> bool) -> bool {
        let mut has_ended = self.has_ended.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.is_requested.load(Ordering::Acquire) {
            if *has_ended || stopped() {
                return false;
            }
            let waited = self.changed.wait_timeout(has_ended, Duration::from_millis(50));
            has_ended = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Sets what was found; empty if nothing was looked for.
    pub(super) fn set(&self, found: BlobIndex) {
        let _ = self.found.set(found);
    }

    /// No more blobs will be stored.
    pub(super) fn end(&self) {
        *self.has_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::blob::PackedBlob;
    use crate::format::index::IndexedPack;

    #[test]
    fn blobs_are_new_unless_packs_were_asked_for_and_found() {
        let (blobs, id) = (UnindexedBlobs::default(), Id::of(b"blob"));
        assert!(!blobs.contains(BlobKind::Data, &id), "without a request nothing is waited for");
        blobs.request();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| blobs.contains(BlobKind::Data, &id));
            assert!(blobs.wait_for_request(|| false));
            let mut found = BlobIndex::default();
            let blob = PackedBlob { id, kind: BlobKind::Data, offset: 0, length: 1, uncompressed: 0 };
            found.add(&IndexedPack { id: Id::of(b"pack"), blobs: vec![blob] });
            blobs.set(found);
            assert!(waiting.join().expect("ends"));
        });
        assert!(!blobs.contains(BlobKind::Tree, &id));
    }

    #[test]
    fn waiting_for_a_request_ends_with_the_backup() {
        let blobs = UnindexedBlobs::default();
        assert!(!blobs.wait_for_request(|| true), "stopped");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| blobs.wait_for_request(|| false));
            blobs.end();
            assert!(!waiting.join().expect("ends"));
        });
    }
}
