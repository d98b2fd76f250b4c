//! Snapshots.

use serde::{Deserialize, Serialize};

use super::id::Id;
use super::time::Time;

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// When it began.
    pub time: Time,
    /// The parent snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Id>,
    /// The root tree.
    pub tree: Id,
    /// The recorded paths.
    #[serde(default)]
    pub paths: Vec<String>,
    /// The host name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    /// The user name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub username: String,
    /// The UID.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub uid: u32,
    /// The GID.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gid: u32,
    /// The exclude patterns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excludes: Vec<String>,
    /// The tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The original ID of a rewritten snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<Id>,
    /// The program version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub program_version: String,
    /// The statistics of the backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
}

/// The statistics of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// When it began.
    pub backup_start: Time,
    /// When it ended.
    pub backup_end: Time,
    /// Files the parent does not have.
    pub files_new: u64,
    /// Files that differ from the parent's.
    pub files_changed: u64,
    /// Files that are as in the parent.
    pub files_unmodified: u64,
    /// Directories the parent does not have.
    pub dirs_new: u64,
    /// Directories that differ from the parent's.
    pub dirs_changed: u64,
    /// Directories that are as in the parent.
    pub dirs_unmodified: u64,
    /// New data blobs.
    pub data_blobs: u64,
    /// New tree blobs.
    pub tree_blobs: u64,
    /// Bytes of new blobs before compression.
    pub data_added: u64,
    /// Bytes of new blobs as stored.
    pub data_added_packed: u64,
    /// All processed files.
    pub total_files_processed: u64,
    /// Their bytes.
    pub total_bytes_processed: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

impl Snapshot {
    /// Reads the JSON of a snapshot file.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(json).map_err(|error| error.to_string())
    }

    /// The JSON to store.
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        serde_json::to_vec(self).map_err(|error| error.to_string())
    }
}
