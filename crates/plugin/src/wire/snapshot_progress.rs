//! Extension of the protocol: the progress of a VolumeSnapshotter.
//!
//! A separate service on the same connection. A plugin without it returns `Unimplemented` and is not called again.

use std::collections::HashMap;

use prost::Message;

use super::{Method, OperationProgress, plugin_requests};

/// Requests the progress of the snapshot of `volume_id` with `tags` or, once known, of `snapshot_id`. During a restore only
/// `snapshot_id` is set: the volume has no id yet.
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
    /// Whether a volume is created from the snapshot.
    #[prost(bool, tag = "5")]
    pub restoring: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct SnapshotProgressResponse {
    #[prost(message, optional, tag = "1")]
    pub progress: Option<OperationProgress>,
}

pub const SNAPSHOT_PROGRESS: Method<SnapshotProgressRequest, SnapshotProgressResponse> =
    Method::new("/plimsoll.plugin.v1.SnapshotProgress/Progress");

plugin_requests!(SnapshotProgressRequest);
