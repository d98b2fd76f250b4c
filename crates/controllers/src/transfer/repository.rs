//! The repository of a transfer: where it is and what opens it.

use std::path::Path;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use plimsoll_api::velero::v1::BackupStorageLocation;
use plimsoll_mover::{Kind, Place, Repository, repository_prefix};
use plimsoll_store::Tuning;
use sha2::{Digest, Sha256};

use super::error::TransferError;
use crate::{Error, location};

/// The Secret with the password of every repository, and its key: Velero's.
pub const SECRET: &str = "velero-repo-credentials";
/// See [`SECRET`].
pub const KEY: &str = "repository-password";

/// The repository of one namespace's volumes in a location.
pub async fn open(
    client: &Client,
    home: &str,
    location: &str,
    kind: Kind,
    namespace: &str,
) -> Result<Repository, TransferError> {
    let locations: Api<BackupStorageLocation> = Api::namespaced(client.clone(), home);
    let found = locations.get_opt(location).await.map_err(|e| Error::api(format!("read location {location}"), e))?;
    let found = found.ok_or_else(|| TransferError::Invalid(format!("there is no BackupStorageLocation {location}")))?;
    let found = location::place(client.clone(), home, &found, Tuning::default()).await?;
    let prefix = repository_prefix(kind, &found.prefix, namespace);
    let place = Place { prefix, ..Place::from(&found) };
    Ok(Repository { place, password: password(client, home).await? })
}

/// The password that opens every repository.
pub async fn password(client: &Client, home: &str) -> Result<plimsoll_mover::Secret, TransferError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), home);
    let found = secrets.get_opt(SECRET).await.map_err(|e| Error::api(format!("read secret {SECRET}"), e))?;
    let value = found.and_then(|secret| secret.data?.remove(KEY));
    value
        .map(|bytes| plimsoll_mover::Secret::new(bytes.0))
        .ok_or(TransferError::NoPassword { secret: SECRET, key: KEY })
}

/// A directory of its own for each repository, whatever characters its name has.
pub(super) fn cache(root: &Path, repository: &Repository) -> std::path::PathBuf {
    let digest = Sha256::digest(repository.place.name().as_bytes());
    root.join(hex::encode(&digest[..8]))
}
