//! VolumeSnapshotter.

use std::collections::HashMap;

use prost::Message;

use super::{Empty, InitRequest, Method, plugin_requests};

#[derive(Clone, PartialEq, Eq, Message)]
pub struct CreateVolumeRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    #[prost(string, tag = "2")]
    pub snapshot_id: String,
    #[prost(string, tag = "3")]
    pub volume_type: String,
    #[prost(string, tag = "4")]
    pub volume_az: String,
    #[prost(int64, tag = "5")]
    pub iops: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct CreateVolumeResponse {
    #[prost(string, tag = "1")]
    pub volume_id: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct GetVolumeInfoRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    #[prost(string, tag = "2")]
    pub volume_id: String,
    #[prost(string, tag = "3")]
    pub volume_az: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct GetVolumeInfoResponse {
    #[prost(string, tag = "1")]
    pub volume_type: String,
    #[prost(int64, tag = "2")]
    pub iops: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct CreateSnapshotRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    #[prost(string, tag = "2")]
    pub volume_id: String,
    #[prost(string, tag = "3")]
    pub volume_az: String,
    #[prost(map = "string, string", tag = "4")]
    pub tags: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct CreateSnapshotResponse {
    #[prost(string, tag = "1")]
    pub snapshot_id: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeleteSnapshotRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    #[prost(string, tag = "2")]
    pub snapshot_id: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct GetVolumeIdRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    #[prost(bytes = "vec", tag = "2")]
    pub persistent_volume: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct GetVolumeIdResponse {
    #[prost(string, tag = "1")]
    pub volume_id: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct SetVolumeIdRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    #[prost(bytes = "vec", tag = "2")]
    pub persistent_volume: Vec<u8>,
    #[prost(string, tag = "3")]
    pub volume_id: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct SetVolumeIdResponse {
    #[prost(bytes = "vec", tag = "1")]
    pub persistent_volume: Vec<u8>,
}

pub const INIT_SNAPSHOTTER: Method<InitRequest, Empty> = Method::new("/generated.VolumeSnapshotter/Init");
pub const CREATE_VOLUME: Method<CreateVolumeRequest, CreateVolumeResponse> =
    Method::new("/generated.VolumeSnapshotter/CreateVolumeFromSnapshot");
pub const GET_VOLUME_INFO: Method<GetVolumeInfoRequest, GetVolumeInfoResponse> =
    Method::new("/generated.VolumeSnapshotter/GetVolumeInfo");
pub const CREATE_SNAPSHOT: Method<CreateSnapshotRequest, CreateSnapshotResponse> =
    Method::new("/generated.VolumeSnapshotter/CreateSnapshot");
pub const DELETE_SNAPSHOT: Method<DeleteSnapshotRequest, Empty> =
    Method::new("/generated.VolumeSnapshotter/DeleteSnapshot");
pub const GET_VOLUME_ID: Method<GetVolumeIdRequest, GetVolumeIdResponse> =
    Method::new("/generated.VolumeSnapshotter/GetVolumeID");
pub const SET_VOLUME_ID: Method<SetVolumeIdRequest, SetVolumeIdResponse> =
    Method::new("/generated.VolumeSnapshotter/SetVolumeID");

plugin_requests!(
    CreateVolumeRequest,
    GetVolumeInfoRequest,
    CreateSnapshotRequest,
    DeleteSnapshotRequest,
    GetVolumeIdRequest,
    SetVolumeIdRequest
);
