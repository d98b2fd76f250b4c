//! Whether an expired backup may delete anything outside of its location.

use plimsoll_archive::proof::{BackupProof, FileDigest, ProofKey, digest};
use plimsoll_archive::{codec, layout};
use plimsoll_progress::Task;
use plimsoll_store::Store;

use super::env::{DeleteEnv, DeletionCause};
use crate::{Error, RetryPolicy};

/// Maximum size of a proof.
const MAX_PROOF_BYTES: u64 = 64 << 10;

/// The reference for the files of a backup.
pub(super) enum ProofCheck {
    /// A person requested the deletion: nothing is checked.
    NotNeeded,
    /// There is no usable proof.
    Missing,
    /// The proof that lies beside the backup, its metadata, and the key of this cluster.
    Present(BackupProof, FileDigest, ProofKey),
}

impl ProofCheck {
    /// Reads the proof of a backup.
    pub(super) async fn read(env: &DeleteEnv<'_>, store: &Store, name: &str, task: &Task) -> Result<Self, Error> {
        if env.cause == DeletionCause::Requested {
            return Ok(Self::NotNeeded);
        }
        let Some(key) = RetryPolicy::default().run(task, || env.extensions.proof_key()).await? else {
            return Ok(Self::Missing);
        };
        let proof = get(store, &layout::backup_proof(name), MAX_PROOF_BYTES, task).await?;
        let metadata = get(store, &layout::backup_metadata(name), codec::MAX_BACKUP_OBJECT_BYTES, task).await?;
        let proof = proof.and_then(|packed| codec::read_gzip_json(packed.as_ref(), MAX_PROOF_BYTES).ok());
        Ok(match (proof, metadata) {
            (Some(proof), Some(metadata)) => Self::Present(proof, digest(&metadata), key),
            _ => Self::Missing,
        })
    }

    /// Whether the tarball may be trusted.
    pub(super) fn covers_contents(&self, name: &str, contents: &FileDigest) -> bool {
        self.covers(name, (&layout::backup_contents(name), contents), |proof| &proof.contents)
    }

    /// Whether the list of snapshots may be trusted.
    pub(super) fn covers_snapshots(&self, name: &str, snapshots: &[u8]) -> bool {
        let file = (&*layout::backup_volume_snapshots(name), &digest(snapshots));
        self.covers(name, file, |proof| &proof.volume_snapshots)
    }

    fn covers(&self, name: &str, file: (&str, &FileDigest), tag: impl Fn(&BackupProof) -> &str) -> bool {
        match self {
            Self::NotNeeded => true,
            Self::Missing => false,
            Self::Present(proof, metadata, key) => {
                key.verifies(tag(proof), (&layout::backup_metadata(name), metadata), file)
            }
        }
    }
}

/// Reads a small file; `None` if it does not exist or is too large to be one.
async fn get(store: &Store, key: &str, limit: u64, task: &Task) -> Result<Option<bytes::Bytes>, Error> {
    let read = || async { Ok(store.get_at_most(key, limit).await?) };
    match RetryPolicy::default().run(task, read).await {
        Ok(content) => Ok(Some(content)),
        Err(Error::Store(error)) if !error.is_retryable() => Ok(None),
        Err(error) => Err(error),
    }
}
