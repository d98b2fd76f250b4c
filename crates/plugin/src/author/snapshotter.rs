//! VolumeSnapshotter as a trait, with our progress extension.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tonic::Status;

use super::serve::Plugin;
use crate::catalog::Kind;
use crate::wire::{
    CREATE_SNAPSHOT, CREATE_VOLUME, CreateSnapshotResponse, CreateVolumeResponse, DELETE_SNAPSHOT, Empty,
    GET_VOLUME_ID, GET_VOLUME_INFO, GetVolumeIdResponse, GetVolumeInfoResponse, INIT_SNAPSHOTTER, OperationProgress,
    SET_VOLUME_ID, SNAPSHOT_PROGRESS, SetVolumeIdResponse, SnapshotProgressRequest, SnapshotProgressResponse,
};

/// What a snapshot is taken of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Begun {
    /// The volume, as [`VolumeSnapshotter::volume_id`] named it.
    pub volume: String,
    /// Where it is, if the volume says.
    pub zone: String,
    /// `velero.io/backup` and `velero.io/pv`, and the backup's labels.
    pub tags: HashMap<String, String>,
}

/// Takes snapshots of volumes and makes volumes from them. An error is shown to the user in the plugin's own words.
#[async_trait]
pub trait VolumeSnapshotter: Send + Sync + 'static {
    /// Takes the settings of the snapshot location. Called once, before anything else.
    async fn init(&self, config: HashMap<String, String>) -> Result<(), Status>;
    /// The name of a PersistentVolume's volume; empty where it is not one of this plugin's.
    async fn volume_id(&self, volume: Value) -> Result<String, Status>;
    /// A PersistentVolume that stands for another volume.
    async fn set_volume_id(&self, volume: Value, id: String) -> Result<Value, Status>;
    /// Type and provisioned operations a second of a volume.
    async fn volume_info(&self, id: String) -> Result<(String, i64), Status>;
    /// Takes a snapshot and names it. May return before the data is safe: [`VolumeSnapshotter::progress`] then says when it is.
    async fn create_snapshot(&self, begun: Begun) -> Result<String, Status>;
    /// Makes a volume from a snapshot and names it.
    async fn create_volume(&self, snapshot: String) -> Result<String, Status>;
    /// Deletes a snapshot. One that is not there counts as deleted.
    async fn delete_snapshot(&self, snapshot: String) -> Result<(), Status>;
    /// How far a snapshot or a volume is. Asked each second while the other two run and until it says `completed`.
    async fn progress(&self, subject: SnapshotProgressRequest) -> Result<OperationProgress, Status> {
        let _ = subject;
        Err(Status::unimplemented("this plugin does not report progress"))
    }
}

impl Plugin {
    /// Offers a snapshotter under a registered name.
    #[must_use]
    pub fn snapshotter(self, name: &str, snapshotter: impl VolumeSnapshotter) -> Self {
        let shared = Arc::new(snapshotter);
        let plugin = self.offer(Kind::VolumeSnapshotter, name);
        with_volumes(with_snapshots(plugin, &shared), &shared)
    }
}

fn with_snapshots(plugin: Plugin, shared: &Arc<impl VolumeSnapshotter>) -> Plugin {
    let (one, two, three) = (Arc::clone(shared), Arc::clone(shared), Arc::clone(shared));
    plugin
        .on(CREATE_SNAPSHOT, move |ask| {
            let plugin = Arc::clone(&one);
            let begun = Begun { volume: ask.volume_id, zone: ask.volume_az, tags: ask.tags };
            async move { Ok(CreateSnapshotResponse { snapshot_id: plugin.create_snapshot(begun).await? }) }
        })
        .on(DELETE_SNAPSHOT, move |ask| {
            let plugin = Arc::clone(&two);
            async move { plugin.delete_snapshot(ask.snapshot_id).await.map(|()| Empty {}) }
        })
        .on(SNAPSHOT_PROGRESS, move |ask| {
            let plugin = Arc::clone(&three);
            async move { Ok(SnapshotProgressResponse { progress: Some(plugin.progress(ask).await?) }) }
        })
}

fn with_volumes(plugin: Plugin, shared: &Arc<impl VolumeSnapshotter>) -> Plugin {
    let [init, info, get, set, create] = std::array::from_fn(|_| Arc::clone(shared));
    plugin
        .on(INIT_SNAPSHOTTER, move |ask| {
            let plugin = Arc::clone(&init);
            async move { plugin.init(ask.config).await.map(|()| Empty {}) }
        })
        .on(GET_VOLUME_INFO, move |ask| {
            let plugin = Arc::clone(&info);
            async move {
                let (volume_type, iops) = plugin.volume_info(ask.volume_id).await?;
                Ok(GetVolumeInfoResponse { volume_type, iops })
            }
        })
        .on(GET_VOLUME_ID, move |ask| {
            let plugin = Arc::clone(&get);
            async move { Ok(GetVolumeIdResponse { volume_id: plugin.volume_id(parse(&ask.persistent_volume)?).await? }) }
        })
        .on(SET_VOLUME_ID, move |ask| {
            let plugin = Arc::clone(&set);
            async move {
                let volume = plugin.set_volume_id(parse(&ask.persistent_volume)?, ask.volume_id).await?;
                Ok(SetVolumeIdResponse { persistent_volume: volume.to_string().into() })
            }
        })
        .on(CREATE_VOLUME, move |ask| {
            let plugin = Arc::clone(&create);
            async move { Ok(CreateVolumeResponse { volume_id: plugin.create_volume(ask.snapshot_id).await? }) }
        })
}

fn parse(bytes: &[u8]) -> Result<Value, Status> {
    serde_json::from_slice(bytes).map_err(|error| Status::invalid_argument(format!("no PersistentVolume: {error}")))
}
