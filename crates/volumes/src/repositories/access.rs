//! Which repository holds whose volumes, where it is, and what opens it.

use kube::{Client, ResourceExt};
use plimsoll_api::velero::v1::{BackupRepository, BackupStorageLocation, PodVolumeBackup, UploaderType};
use plimsoll_engine::Error;
use plimsoll_mover::{MoverError, MoverKind, Repository, RepositoryLocation, repository_prefix};
use plimsoll_store::Tuning;

use super::password;
use crate::storage_location;

/// Identifies a repository.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepositoryKey {
    /// The namespace whose volumes it holds.
    pub namespace: String,
    /// The BackupStorageLocation it is in.
    pub location: String,
    /// `restic` or `kopia`.
    pub format: &'static str,
}

impl RepositoryKey {
    /// The repository for what a mover of this kind writes.
    pub fn new(namespace: impl Into<String>, location: impl Into<String>, kind: MoverKind) -> Self {
        Self { namespace: namespace.into(), location: location.into(), format: kind.uploader_type() }
    }

    /// The repository of a custom resource.
    pub fn of(repository: &BackupRepository) -> Self {
        let spec = &repository.spec;
        let kind = uploader_kind(spec.repository_type.as_ref());
        let (namespace, location) = (spec.volume_namespace.clone(), spec.backup_storage_location.clone());
        Self::new(namespace.unwrap_or_default(), location.unwrap_or_default(), kind)
    }

    /// The repository with the snapshot of a pod volume.
    pub fn of_pod_volume_backup(transfer: &PodVolumeBackup) -> Self {
        let spec = &transfer.spec;
        let namespace = spec.pod.as_ref().and_then(|pod| pod.namespace.clone());
        let location = spec.backup_storage_location.clone().unwrap_or_default();
        Self::new(namespace.unwrap_or_default(), location, uploader_kind(spec.uploader_type.as_ref()))
    }

    /// The mover that maintains it: for restic's format our own engine, which needs no program.
    pub fn kind(&self) -> MoverKind {
        if self.format == "kopia" { MoverKind::Kopia } else { MoverKind::BuiltIn }
    }
}

/// The name of its BackupRepository, as Velero makes it.
pub fn repository_name(key: &RepositoryKey) -> String {
    format!("{}-{}-{}", key.namespace, key.location, key.format)
}

/// The mover that reads what this type wrote. Objects from before there was a choice are restic's.
pub fn uploader_kind(uploader: Option<&UploaderType>) -> MoverKind {
    match uploader {
        Some(UploaderType::Kopia) => MoverKind::Kopia,
        _ => MoverKind::BuiltIn,
    }
}

/// The repository of a namespace in a location, with what opens it, for a mover's job. The caller has to be allowed to read the
/// Secrets of the server's namespace; it makes nothing.
pub async fn open(
    client: &Client,
    server_namespace: &str,
    location: &BackupStorageLocation,
    key: &RepositoryKey,
) -> Result<Repository, Error> {
    let password = password::read(client, server_namespace).await?;
    let password = password.ok_or_else(|| password::missing(server_namespace))?.secret;
    let place = repository_location(client, server_namespace, location, key).await?;
    Ok(Repository { location: place, password })
}

/// The path of the repository of a namespace in a location.
pub(super) async fn repository_location(
    client: &Client,
    server_namespace: &str,
    location: &BackupStorageLocation,
    key: &RepositoryKey,
) -> Result<RepositoryLocation, Error> {
    let found =
        storage_location::object_store_location(client.clone(), server_namespace, location, Tuning::default()).await?;
    let mut place = RepositoryLocation::from(&found);
    place.prefix = repository_prefix(key.kind(), &found.prefix, &key.namespace);
    if place.provider.is_empty() {
        let cause = format!("BackupStorageLocation {} names no provider", location.name_any());
        return Err(from_mover_error(&MoverError::InvalidLocation { cause }));
    }
    Ok(place)
}

/// A mover's error among ours.
pub fn from_mover_error(error: &MoverError) -> Error {
    match error {
        MoverError::Cancelled => Error::Cancelled,
        error => Error::Volumes { reason: error.reason(), message: error.to_string(), retryable: error.is_retryable() },
    }
}
