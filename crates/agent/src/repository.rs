//! The repository of a transfer: its location and its password. An agent never creates one.

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use plimsoll_api::velero::v1::BackupStorageLocation;
use plimsoll_engine::Error;
use plimsoll_mover::{MoverKind, Repository};
use plimsoll_volumes::repositories::{self, RepositoryKey};
use plimsoll_volumes::transfer::{REPOSITORY_KEY, TransferError};

use crate::settings::AgentSettings;

/// The repository of one namespace's volumes in a location.
pub(crate) async fn open(
    client: &Client,
    settings: &AgentSettings,
    location: &str,
    kind: MoverKind,
    namespace: &str,
) -> Result<Repository, TransferError> {
    let locations: Api<BackupStorageLocation> = Api::namespaced(client.clone(), &settings.namespace);
    let found = locations.get_opt(location).await.map_err(|e| Error::api(format!("read location {location}"), e))?;
    let missing = || TransferError::Invalid(format!("BackupStorageLocation {location} not found"));
    let key = RepositoryKey::new(namespace, location, kind);
    Ok(repositories::open(client, &settings.namespace, &found.ok_or_else(missing)?, &key).await?)
}

/// A repository that belongs to no location: the creator of the transfer has put it into a Secret.
pub(crate) async fn from_secret(client: &Client, namespace: &str, secret: &str) -> Result<Repository, TransferError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let found = secrets.get_opt(secret).await.map_err(|e| Error::api(format!("read secret {secret}"), e))?;
    let data = found.and_then(|found| found.data?.remove(REPOSITORY_KEY));
    let repository = data.and_then(|data| serde_json::from_slice(&data.0).ok());
    repository.ok_or_else(|| TransferError::Invalid(format!("secret {secret} holds no repository")))
}
