//! The messages of CSI and of the plugin registration of the kubelet that the driver uses.
//!
//! Written by hand, as few as possible: unused fields are omitted, and readers skip unknown fields.

use std::collections::HashMap;

use prost::Message;

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Empty {}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct PluginInfo {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub vendor_version: String,
}

/// A capability is a message with one message in it that has one number: for plugins, controllers and nodes alike.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Capability {
    #[prost(message, optional, tag = "1")]
    pub of: Option<CapabilityType>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct CapabilityType {
    #[prost(int32, tag = "1")]
    pub number: i32,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Capabilities {
    #[prost(message, repeated, tag = "1")]
    pub capabilities: Vec<Capability>,
}

impl Capabilities {
    pub fn of(numbers: &[i32]) -> Self {
        let one = |&number: &i32| Capability { of: Some(CapabilityType { number }) };
        Self { capabilities: numbers.iter().map(one).collect() }
    }
}

/// The plugin has the Controller service.
pub const CONTROLLER_SERVICE: i32 = 1;
/// The controller creates and deletes volumes.
pub const CREATE_DELETE_VOLUME: i32 = 1;
/// The controller creates and deletes snapshots.
pub const CREATE_DELETE_SNAPSHOT: i32 = 5;
/// The controller lists snapshots.
pub const LIST_SNAPSHOTS: i32 = 6;

#[derive(Clone, PartialEq, Eq, Message)]
pub struct CreateVolumeRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub capacity_range: Option<CapacityRange>,
    #[prost(map = "string, string", tag = "4")]
    pub parameters: HashMap<String, String>,
    #[prost(message, optional, tag = "6")]
    pub content_source: Option<ContentSource>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct CapacityRange {
    #[prost(int64, tag = "1")]
    pub required_bytes: i64,
}

/// One of the two is set.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContentSource {
    #[prost(message, optional, tag = "1")]
    pub snapshot: Option<SourceId>,
    #[prost(message, optional, tag = "2")]
    pub volume: Option<SourceId>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct SourceId {
    #[prost(string, tag = "1")]
    pub id: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct CreateVolumeResponse {
    #[prost(message, optional, tag = "1")]
    pub volume: Option<Volume>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Volume {
    #[prost(int64, tag = "1")]
    pub capacity_bytes: i64,
    #[prost(string, tag = "2")]
    pub id: String,
    #[prost(message, optional, tag = "4")]
    pub content_source: Option<ContentSource>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeleteRequest {
    #[prost(string, tag = "1")]
    pub id: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct CreateSnapshotRequest {
    #[prost(string, tag = "1")]
    pub source_volume_id: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(map = "string, string", tag = "4")]
    pub parameters: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SnapshotEntry {
    #[prost(message, optional, tag = "1")]
    pub snapshot: Option<Snapshot>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Snapshot {
    #[prost(int64, tag = "1")]
    pub size_bytes: i64,
    #[prost(string, tag = "2")]
    pub id: String,
    #[prost(string, tag = "3")]
    pub source_volume_id: String,
    #[prost(message, optional, tag = "4")]
    pub creation_time: Option<prost_types::Timestamp>,
    #[prost(bool, tag = "5")]
    pub ready_to_use: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ListSnapshotsRequest {
    #[prost(int32, tag = "1")]
    pub max_entries: i32,
    #[prost(string, tag = "3")]
    pub source_volume_id: String,
    #[prost(string, tag = "4")]
    pub snapshot_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ListSnapshotsResponse {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<SnapshotEntry>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct NodePublishVolumeRequest {
    #[prost(string, tag = "1")]
    pub volume_id: String,
    #[prost(string, tag = "4")]
    pub target_path: String,
    #[prost(bool, tag = "6")]
    pub readonly: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct NodeUnpublishVolumeRequest {
    #[prost(string, tag = "1")]
    pub volume_id: String,
    #[prost(string, tag = "2")]
    pub target_path: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct NodeInfo {
    #[prost(string, tag = "1")]
    pub node_id: String,
}

/// The registration of a plugin with the kubelet.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Registration {
    #[prost(string, tag = "1")]
    pub kind: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub endpoint: String,
    #[prost(string, repeated, tag = "4")]
    pub supported_versions: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct RegistrationStatus {
    #[prost(bool, tag = "1")]
    pub registered: bool,
    #[prost(string, tag = "2")]
    pub error: String,
}
