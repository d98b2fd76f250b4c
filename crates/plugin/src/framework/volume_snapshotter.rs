//! VolumeSnapshotter as a trait, with the progress extension.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tonic::Status;

use super::serve::Plugin;
use crate::registry::PluginKind;
use crate::wire::{
    CREATE_SNAPSHOT, CREATE_VOLUME, CreateSnapshotResponse, CreateVolumeResponse, DELETE_SNAPSHOT, Empty,
    GET_VOLUME_ID, GET_VOLUME_INFO, GetVolumeIdResponse, GetVolumeInfoResponse, INIT_SNAPSHOTTER, OperationProgress,
    SET_VOLUME_ID, SNAPSHOT_PROGRESS, SetVolumeIdResponse, SnapshotProgressRequest, SnapshotProgressResponse,
};

/// The source and tags of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotRequest {
    /// The id of the volume, from [`VolumeSnapshotter::volume_id`].
    pub volume: String,
    /// The availability zone, if known.
    pub zone: String,
    /// `velero.io/backup` and `velero.io/pv`, and the backup's labels.
    pub tags: HashMap<String, String>,
}

/// Creates snapshots of volumes, and volumes from snapshots. Error messages are shown to the user.
#[async_trait]
pub trait VolumeSnapshotter: Send + Sync + 'static {
    /// Receives the config of the snapshot location. Called once, before any other method.
    async fn init(&self, config: HashMap<String, String>) -> Result<(), Status>;
    /// The volume id of a PersistentVolume; empty if the plugin does not support it.
    async fn volume_id(&self, volume: Value) -> Result<String, Status>;
    /// Returns the PersistentVolume with another volume id.
    async fn set_volume_id(&self, volume: Value, id: String) -> Result<Value, Status>;
    /// Type and provisioned IOPS of a volume.
    async fn volume_info(&self, id: String) -> Result<(String, i64), Status>;
    /// Creates a snapshot; returns its id. May return before the data is complete: [`VolumeSnapshotter::progress`] reports when it
    /// is.
    async fn create_snapshot(&self, request: SnapshotRequest) -> Result<String, Status>;
    /// Creates a volume from a snapshot; returns its id.
    async fn create_volume(&self, snapshot: String) -> Result<String, Status>;
    /// Deletes a snapshot. A missing snapshot is not an error.
    async fn delete_snapshot(&self, snapshot: String) -> Result<(), Status>;
    /// The progress of a snapshot or volume. Called every second while it is created, until `completed` is set.
    async fn progress(&self, subject: SnapshotProgressRequest) -> Result<OperationProgress, Status> {
        let _ = subject;
        Err(Status::unimplemented("progress is not supported"))
    }
}

impl Plugin {
    /// Registers a VolumeSnapshotter.
    #[must_use]
    pub fn snapshotter(self, name: &str, snapshotter: impl VolumeSnapshotter) -> Self {
        let shared = Arc::new(snapshotter);
        let plugin = self.register(PluginKind::VolumeSnapshotter, name);
        with_volumes(with_snapshots(plugin, &shared), &shared)
    }
}

fn with_snapshots(plugin: Plugin, shared: &Arc<impl VolumeSnapshotter>) -> Plugin {
    let (one, two, three) = (Arc::clone(shared), Arc::clone(shared), Arc::clone(shared));
    plugin
        .handle(CREATE_SNAPSHOT, move |request| {
            let plugin = Arc::clone(&one);
            let request = SnapshotRequest { volume: request.volume_id, zone: request.volume_az, tags: request.tags };
            async move { Ok(CreateSnapshotResponse { snapshot_id: plugin.create_snapshot(request).await? }) }
        })
        .handle(DELETE_SNAPSHOT, move |request| {
            let plugin = Arc::clone(&two);
            async move { plugin.delete_snapshot(request.snapshot_id).await.map(|()| Empty {}) }
        })
        .handle(SNAPSHOT_PROGRESS, move |request| {
            let plugin = Arc::clone(&three);
            async move { Ok(SnapshotProgressResponse { progress: Some(plugin.progress(request).await?) }) }
        })
}

fn with_volumes(plugin: Plugin, shared: &Arc<impl VolumeSnapshotter>) -> Plugin {
    let [init, info, get, set, create] = std::array::from_fn(|_| Arc::clone(shared));
    plugin
        .handle(INIT_SNAPSHOTTER, move |request| {
            let plugin = Arc::clone(&init);
            async move { plugin.init(request.config).await.map(|()| Empty {}) }
        })
        .handle(GET_VOLUME_INFO, move |request| {
            let plugin = Arc::clone(&info);
            async move {
                let (volume_type, iops) = plugin.volume_info(request.volume_id).await?;
                Ok(GetVolumeInfoResponse { volume_type, iops })
            }
        })
        .handle(GET_VOLUME_ID, move |request| {
            let plugin = Arc::clone(&get);
            async move { Ok(GetVolumeIdResponse { volume_id: plugin.volume_id(parse(&request.persistent_volume)?).await? }) }
        })
        .handle(SET_VOLUME_ID, move |request| {
            let plugin = Arc::clone(&set);
            async move {
                let volume = plugin.set_volume_id(parse(&request.persistent_volume)?, request.volume_id).await?;
                Ok(SetVolumeIdResponse { persistent_volume: volume.to_string().into() })
            }
        })
        .handle(CREATE_VOLUME, move |request| {
            let plugin = Arc::clone(&create);
            async move { Ok(CreateVolumeResponse { volume_id: plugin.create_volume(request.snapshot_id).await? }) }
        })
}

fn parse(bytes: &[u8]) -> Result<Value, Status> {
    serde_json::from_slice(bytes)
        .map_err(|error| Status::invalid_argument(format!("invalid PersistentVolume: {error}")))
}
