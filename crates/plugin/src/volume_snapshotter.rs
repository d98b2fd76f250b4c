//! Client of a VolumeSnapshotter plugin, configured for one VolumeSnapshotLocation.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use tempfile::NamedTempFile;

use crate::item_actions::PROGRESS_TIMEOUT;
use crate::log_sink::LogSink;
use crate::object_store::credentials_file;
use crate::registry::{PluginKind, PluginRegistry};
use crate::session::{InitCall, Session};
use crate::wire::{
    CREATE_SNAPSHOT, CREATE_VOLUME, CreateSnapshotRequest, CreateVolumeRequest, DELETE_SNAPSHOT, DeleteSnapshotRequest,
    GET_VOLUME_ID, GET_VOLUME_INFO, GetVolumeIdRequest, GetVolumeInfoRequest, INIT_SNAPSHOTTER, InitRequest,
    OperationProgress, SET_VOLUME_ID, SNAPSHOT_PROGRESS, SetVolumeIdRequest, SnapshotProgressRequest,
};
use crate::{Error, Result};

/// Timeout of all calls except the creation of snapshots and volumes.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(2);

/// Properties of a volume that are needed to create a volume from its snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeInfo {
    /// The provider's volume type.
    pub volume_type: String,
    /// Provisioned I/O operations per second.
    pub iops: Option<i64>,
}

/// The operation whose progress is requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotProgressQuery {
    /// The source volume of the snapshot.
    pub volume: String,
    /// The snapshot id, once known.
    pub snapshot: String,
    /// The tags of the request.
    pub tags: BTreeMap<String, String>,
    /// Whether a volume is created from the snapshot.
    pub restoring: bool,
}

/// A VolumeSnapshotter of one location.
pub struct VolumeSnapshotterClient {
    session: Arc<Session>,
    name: String,
    /// The plugin does not implement the progress extension.
    progress_unsupported: AtomicBool,
    _credentials: Option<NamedTempFile>,
}

impl VolumeSnapshotterClient {
    /// Opens the snapshotter of a provider with the config of a location. The process starts with the first call.
    pub fn open(
        registry: &PluginRegistry,
        provider: &str,
        config: &BTreeMap<String, String>,
        logs: Arc<dyn LogSink>,
    ) -> Result<Self> {
        Self::open_with_credentials(registry, provider, config, None, logs)
    }

    /// As [`Self::open`], with credentials, which are passed as a temporary file.
    pub fn open_with_credentials(
        registry: &PluginRegistry,
        provider: &str,
        config: &BTreeMap<String, String>,
        credentials: Option<&[u8]>,
        logs: Arc<dyn LogSink>,
    ) -> Result<Self> {
        let plugin = registry.find(PluginKind::VolumeSnapshotter, provider)?;
        let mut config: HashMap<_, _> = config.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let write_error = |cause: std::io::Error| Error::StartFailed {
            plugin: plugin.name.clone(),
            cause: format!("failed to write credentials: {cause}"),
        };
        let credentials = credentials.map(credentials_file).transpose().map_err(write_error)?;
        if let Some(file) = &credentials {
            config.insert("credentialsFile".to_owned(), file.path().display().to_string());
        }
        let init = InitRequest { plugin: plugin.name.clone(), config };
        let session = registry.session(&plugin.binary, logs, vec![InitCall::Init(INIT_SNAPSHOTTER, init)]);
        Ok(Self {
            session,
            name: plugin.name.clone(),
            progress_unsupported: AtomicBool::new(false),
            _credentials: credentials,
        })
    }

    /// The registered name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The session of its process.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The provider's id of a PersistentVolume; `None` if the provider does not support the volume.
    pub async fn volume_id(&self, volume: &Value) -> Result<Option<String>> {
        let request = GetVolumeIdRequest { plugin: self.name.clone(), persistent_volume: volume.to_string().into() };
        let response = self.session.call(GET_VOLUME_ID, request, REQUEST_TIMEOUT).await?;
        self.check_id(&GET_VOLUME_ID.name(), response.volume_id)
    }

    /// Returns the PersistentVolume with another volume id.
    pub async fn set_volume_id(&self, volume: &Value, id: &str) -> Result<Value> {
        let request = SetVolumeIdRequest {
            plugin: self.name.clone(),
            persistent_volume: volume.to_string().into(),
            volume_id: id.to_owned(),
        };
        let response = self.session.call(SET_VOLUME_ID, request, REQUEST_TIMEOUT).await?;
        match serde_json::from_slice::<Value>(&response.persistent_volume) {
            Ok(volume) if volume.is_object() => Ok(volume),
            _ => Err(self.invalid(&SET_VOLUME_ID.name(), "not a PersistentVolume")),
        }
    }

    /// Type and IOPS of a volume.
    pub async fn volume_info(&self, id: &str, zone: &str) -> Result<VolumeInfo> {
        let request =
            GetVolumeInfoRequest { plugin: self.name.clone(), volume_id: id.to_owned(), volume_az: zone.to_owned() };
        let response = self.session.call(GET_VOLUME_INFO, request, REQUEST_TIMEOUT).await?;
        Ok(VolumeInfo {
            volume_type: crate::sanitize(&response.volume_type),
            iops: Some(response.iops).filter(|n| *n != 0),
        })
    }

    /// Creates a snapshot; returns its id.
    pub async fn create_snapshot(
        &self,
        id: &str,
        zone: &str,
        tags: &BTreeMap<String, String>,
        limit: Duration,
    ) -> Result<String> {
        let request = CreateSnapshotRequest {
            plugin: self.name.clone(),
            volume_id: id.to_owned(),
            volume_az: zone.to_owned(),
            tags: tags.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        };
        let response = self.session.call(CREATE_SNAPSHOT, request, limit).await?;
        let call = CREATE_SNAPSHOT.name();
        self.check_id(&call, response.snapshot_id)?.ok_or_else(|| self.invalid(&call, "empty snapshot id"))
    }

    /// Creates a volume from a snapshot; returns its id.
    pub async fn create_volume_from_snapshot(
        &self,
        snapshot: &str,
        volume_info: &VolumeInfo,
        zone: &str,
        limit: Duration,
    ) -> Result<String> {
        let request = CreateVolumeRequest {
            plugin: self.name.clone(),
            snapshot_id: snapshot.to_owned(),
            volume_type: volume_info.volume_type.clone(),
            volume_az: zone.to_owned(),
            iops: volume_info.iops.unwrap_or(0),
        };
        let response = self.session.call(CREATE_VOLUME, request, limit).await?;
        let call = CREATE_VOLUME.name();
        self.check_id(&call, response.volume_id)?.ok_or_else(|| self.invalid(&call, "empty volume id"))
    }

    /// Deletes a snapshot.
    pub async fn delete_snapshot(&self, snapshot: &str) -> Result<()> {
        let request = DeleteSnapshotRequest { plugin: self.name.clone(), snapshot_id: snapshot.to_owned() };
        self.session.call(DELETE_SNAPSHOT, request, REQUEST_TIMEOUT).await.map(drop)
    }

    /// The progress of a snapshot or volume; `None` if the plugin does not report any. A plugin without the extension is called
    /// only once.
    pub async fn progress(&self, query: &SnapshotProgressQuery) -> Result<Option<OperationProgress>> {
        if self.progress_unsupported.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let request = SnapshotProgressRequest {
            plugin: self.name.clone(),
            volume_id: query.volume.clone(),
            snapshot_id: query.snapshot.clone(),
            tags: query.tags.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
            restoring: query.restoring,
        };
        match self.session.call(SNAPSHOT_PROGRESS, request, PROGRESS_TIMEOUT).await {
            Ok(response) => Ok(response.progress),
            Err(Error::Unimplemented { .. }) => {
                self.progress_unsupported.store(true, Ordering::Relaxed);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the plugin may implement [`VolumeSnapshotterClient::progress`].
    pub fn reports_progress(&self) -> bool {
        !self.progress_unsupported.load(Ordering::Relaxed)
    }

    fn check_id(&self, call: &str, id: String) -> Result<Option<String>> {
        match id.as_str() {
            "" => Ok(None),
            id if id.len() > 2048 || id.contains(char::is_control) => Err(self.invalid(call, "invalid id")),
            _ => Ok(Some(id)),
        }
    }

    fn invalid(&self, call: &str, detail: &str) -> Error {
        Error::ResponseInvalid { plugin: self.name.clone(), call: call.to_owned(), detail: detail.to_owned() }
    }
}
