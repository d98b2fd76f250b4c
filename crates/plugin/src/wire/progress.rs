//! Our extension: how far a VolumeSnapshotter is with a snapshot or a volume.
//!
//! A service of its own on the same connection. A plugin that lacks it answers that it does not know the method, and is not asked
//! again.

use std::collections::HashMap;

use prost::Message;

use super::{Method, OperationProgress, for_plugin};

/// Asks about the snapshot of `volume_id` that was asked for with `tags`, or, once it is known, about `snapshot_id`. During a
/// restore only `snapshot_id` is set: the volume has no name yet.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SnapshotProgressRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    #[prost(string, tag = "2")]
    pub volume_id: String,
    #[prost(string, tag = "3")]
    pub snapshot_id: String,
    #[prost(map = "string, string", tag = "4")]
    pub tags: HashMap<String, String>,
    /// Whether a volume is made from the snapshot, rather than the snapshot from a volume.
    #[prost(bool, tag = "5")]
    pub restoring: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct SnapshotProgressResponse {
    #[prost(message, optional, tag = "1")]
    pub progress: Option<OperationProgress>,
}

pub const SNAPSHOT_PROGRESS: Method<SnapshotProgressRequest, SnapshotProgressResponse> =
    Method::at("/plimsoll.plugin.v1.SnapshotProgress/Progress");

for_plugin!(SnapshotProgressRequest);
