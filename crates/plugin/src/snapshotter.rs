//! A VolumeSnapshotter of a plugin, set up for one snapshot location.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use tempfile::NamedTempFile;

use crate::actions::ASKING;
use crate::catalog::{Catalog, Kind};
use crate::logs::LogSink;
use crate::objects::credentials_file;
use crate::session::{Prime, Session};
use crate::wire::{
    CREATE_SNAPSHOT, CREATE_VOLUME, CreateSnapshotRequest, CreateVolumeRequest, DELETE_SNAPSHOT, DeleteSnapshotRequest,
    GET_VOLUME_ID, GET_VOLUME_INFO, GetVolumeIdRequest, GetVolumeInfoRequest, INIT_SNAPSHOTTER, InitRequest,
    OperationProgress, SET_VOLUME_ID, SNAPSHOT_PROGRESS, SetVolumeIdRequest, SnapshotProgressRequest,
};
use crate::{Error, Result};

/// How long anything but the making of snapshots and volumes may take.
const ANSWERING: Duration = Duration::from_mins(2);

/// What a volume's snapshot must be told again when a volume is made from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeFacts {
    /// The provider's type.
    pub volume_type: String,
    /// Provisioned operations a second.
    pub iops: Option<i64>,
}

/// What to ask about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The volume that a snapshot is taken of.
    pub volume: String,
    /// The snapshot, once it has a name.
    pub snapshot: String,
    /// The tags that came with the request.
    pub tags: BTreeMap<String, String>,
    /// Whether a volume is made from the snapshot.
    pub restoring: bool,
}

/// A snapshotter of one location.
pub struct Snapshotter {
    session: Arc<Session>,
    name: String,
    /// It has said that it does not know our extension.
    mute: AtomicBool,
    _credentials: Option<NamedTempFile>,
}

impl Snapshotter {
    /// The snapshotter that a location's provider names, with the location's settings. Its process starts with the first call.
    pub fn open(
        catalog: &Catalog,
        provider: &str,
        config: &BTreeMap<String, String>,
        logs: Arc<dyn LogSink>,
    ) -> Result<Self> {
        Self::open_with(catalog, provider, config, None, logs)
    }

    /// The same with the credentials of its location, which plugins take as a file. It goes with the snapshotter.
    pub fn open_with(
        catalog: &Catalog,
        provider: &str,
        config: &BTreeMap<String, String>,
        credentials: Option<&[u8]>,
        logs: Arc<dyn LogSink>,
    ) -> Result<Self> {
        let offer = catalog.find(Kind::VolumeSnapshotter, provider)?;
        let mut config: HashMap<_, _> = config.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let unusable = |cause: std::io::Error| Error::NotStarted {
            plugin: offer.name.clone(),
            cause: format!("its credentials cannot be written: {cause}"),
        };
        let credentials = credentials.map(credentials_file).transpose().map_err(unusable)?;
        if let Some(file) = &credentials {
            config.insert("credentialsFile".to_owned(), file.path().display().to_string());
        }
        let init = InitRequest { plugin: offer.name.clone(), config };
        let session = catalog.session(&offer.binary, logs, vec![Prime::Init(INIT_SNAPSHOTTER, init)]);
        Ok(Self { session, name: offer.name.clone(), mute: AtomicBool::new(false), _credentials: credentials })
    }

    /// Its registered name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process it lives in.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The provider's name of a PersistentVolume's volume; none where it is not one of its kind.
    pub async fn volume_id(&self, volume: &Value) -> Result<Option<String>> {
        let request = GetVolumeIdRequest { plugin: self.name.clone(), persistent_volume: volume.to_string().into() };
        let answer = self.session.call(GET_VOLUME_ID, request, ANSWERING).await?;
        self.id(&GET_VOLUME_ID.name(), answer.volume_id)
    }

    /// A PersistentVolume that stands for another volume of the provider.
    pub async fn with_volume_id(&self, volume: &Value, id: &str) -> Result<Value> {
        let request = SetVolumeIdRequest {
            plugin: self.name.clone(),
            persistent_volume: volume.to_string().into(),
            volume_id: id.to_owned(),
        };
        let answer = self.session.call(SET_VOLUME_ID, request, ANSWERING).await?;
        match serde_json::from_slice::<Value>(&answer.persistent_volume) {
            Ok(volume) if volume.is_object() => Ok(volume),
            _ => Err(self.invalid(&SET_VOLUME_ID.name(), "it is no PersistentVolume")),
        }
    }

    /// What must be known of a volume to make another one like it.
    pub async fn facts(&self, id: &str, zone: &str) -> Result<VolumeFacts> {
        let request =
            GetVolumeInfoRequest { plugin: self.name.clone(), volume_id: id.to_owned(), volume_az: zone.to_owned() };
        let answer = self.session.call(GET_VOLUME_INFO, request, ANSWERING).await?;
        Ok(VolumeFacts { volume_type: crate::clean(&answer.volume_type), iops: Some(answer.iops).filter(|n| *n != 0) })
    }

    /// Takes a snapshot and names it.
    pub async fn snapshot(
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
        let answer = self.session.call(CREATE_SNAPSHOT, request, limit).await?;
        let call = CREATE_SNAPSHOT.name();
        self.id(&call, answer.snapshot_id)?.ok_or_else(|| self.invalid(&call, "the snapshot has no name"))
    }

    /// Makes a volume from a snapshot and names it.
    pub async fn volume(&self, snapshot: &str, facts: &VolumeFacts, zone: &str, limit: Duration) -> Result<String> {
        let request = CreateVolumeRequest {
            plugin: self.name.clone(),
            snapshot_id: snapshot.to_owned(),
            volume_type: facts.volume_type.clone(),
            volume_az: zone.to_owned(),
            iops: facts.iops.unwrap_or(0),
        };
        let answer = self.session.call(CREATE_VOLUME, request, limit).await?;
        let call = CREATE_VOLUME.name();
        self.id(&call, answer.volume_id)?.ok_or_else(|| self.invalid(&call, "the volume has no name"))
    }

    /// Deletes a snapshot.
    pub async fn delete(&self, snapshot: &str) -> Result<()> {
        let request = DeleteSnapshotRequest { plugin: self.name.clone(), snapshot_id: snapshot.to_owned() };
        self.session.call(DELETE_SNAPSHOT, request, ANSWERING).await.map(drop)
    }

    /// How far it is with a snapshot or a volume; none where it cannot say. One that does not know the question is not asked
    /// again.
    pub async fn progress(&self, subject: &Subject) -> Result<Option<OperationProgress>> {
        if self.mute.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let request = SnapshotProgressRequest {
            plugin: self.name.clone(),
            volume_id: subject.volume.clone(),
            snapshot_id: subject.snapshot.clone(),
            tags: subject.tags.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
            restoring: subject.restoring,
        };
        match self.session.call(SNAPSHOT_PROGRESS, request, ASKING).await {
            Ok(answer) => Ok(answer.progress),
            Err(Error::Unimplemented { .. }) => {
                self.mute.store(true, Ordering::Relaxed);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether it may still answer [`Snapshotter::progress`].
    pub fn reports_progress(&self) -> bool {
        !self.mute.load(Ordering::Relaxed)
    }

    fn id(&self, call: &str, id: String) -> Result<Option<String>> {
        match id.as_str() {
            "" => Ok(None),
            id if id.len() > 2048 || id.contains(char::is_control) => Err(self.invalid(call, "the name is not usable")),
            _ => Ok(Some(id)),
        }
    }

    fn invalid(&self, call: &str, detail: &str) -> Error {
        Error::AnswerInvalid { plugin: self.name.clone(), call: call.to_owned(), detail: detail.to_owned() }
    }
}
