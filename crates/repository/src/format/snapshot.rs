//! Snapshots: what was backed up, when, and the tree it became.

use serde::{Deserialize, Serialize};

use super::id::Id;
use super::time::Time;

/// One backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// When it began.
    pub time: Time,
    /// The snapshot it was compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Id>,
    /// Its root directory.
    pub tree: Id,
    /// What was backed up.
    #[serde(default)]
    pub paths: Vec<String>,
    /// The machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    /// Who did it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub username: String,
    /// Who did it, as a number.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub uid: u32,
    /// And the group.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gid: u32,
    /// Patterns that were left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excludes: Vec<String>,
    /// Words to find it by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The first form of a snapshot that was rewritten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<Id>,
    /// The program that wrote it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub program_version: String,
    /// What the backup found and did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
}

/// What a backup found and did.
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
    /// Files looked at.
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
