//! The proof that a cluster made a backup: an HMAC of the files that name snapshots outside of the location.
//!
//! A person who can write to a bucket can write any backup into it, and replace the files of any backup. The key never leaves the
//! cluster, so that no other program can write a proof.

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The SHA-256 of a file.
pub type FileDigest = [u8; 32];

/// What the HMACs begin with: the key is used for nothing else, and this says so.
const PURPOSE: &[u8] = b"plimsoll backup proof 1\n";

/// The digest of content in memory.
pub fn digest(content: &[u8]) -> FileDigest {
    Sha256::digest(content).into()
}

/// The key of a cluster.
#[derive(Clone)]
pub struct ProofKey(Vec<u8>);

impl ProofKey {
    /// Length of a new key.
    pub const LENGTH: usize = 32;

    /// A key; one that is shorter than a digest is none.
    pub fn new(key: Vec<u8>) -> Option<Self> {
        (key.len() >= Self::LENGTH).then_some(Self(key))
    }

    /// The proof of a backup. Each HMAC covers the metadata and one file, so that one file can be checked without the other.
    pub fn prove(&self, files: &ProvenFiles<'_>) -> BackupProof {
        let tag = |(key, digest)| hex::encode(self.mac(files.metadata, (key, digest)).finalize().into_bytes());
        BackupProof { version: 1, contents: tag(files.contents), volume_snapshots: tag(files.volume_snapshots) }
    }

    /// Whether `tag` proves a file of the backup with this metadata.
    pub fn verifies(&self, tag: &str, metadata: NamedDigest<'_>, file: NamedDigest<'_>) -> bool {
        hex::decode(tag).is_ok_and(|tag| self.mac(metadata, file).verify_slice(&tag).is_ok())
    }

    fn mac(&self, metadata: NamedDigest<'_>, file: NamedDigest<'_>) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(PURPOSE);
        for (key, digest) in [metadata, file] {
            mac.update(&(key.len() as u64).to_be_bytes());
            mac.update(key.as_bytes());
            mac.update(digest);
        }
        mac
    }
}

/// The key of a file in its location, and its digest.
pub type NamedDigest<'a> = (&'a str, &'a FileDigest);

/// The files that a proof covers.
#[derive(Clone, Copy, Debug)]
pub struct ProvenFiles<'a> {
    /// `velero-backup.json`.
    pub metadata: NamedDigest<'a>,
    /// The tarball.
    pub contents: NamedDigest<'a>,
    /// The list of the snapshots of volume snapshotters.
    pub volume_snapshots: NamedDigest<'a>,
}

/// The proof, as it lies beside the backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackupProof {
    /// The version of this format.
    pub version: u32,
    /// The HMAC of the tarball.
    pub contents: String,
    /// The HMAC of the list of snapshots.
    pub volume_snapshots: String,
}
