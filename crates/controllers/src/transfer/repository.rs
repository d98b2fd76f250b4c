//! The repository of a transfer: where it is and what opens it. An agent makes none.

use std::path::{Path, PathBuf};

use kube::{Api, Client};
use plimsoll_api::velero::v1::BackupStorageLocation;
use plimsoll_mover::{Kind, Repository};
use sha2::{Digest, Sha256};

use super::error::TransferError;
use crate::repositories::{self, Whose};
use crate::{Error, transfer};

/// The repository of one namespace's volumes in a location.
pub(super) async fn open(
    client: &Client,
    settings: &transfer::AgentSettings,
    location: &str,
    kind: Kind,
    namespace: &str,
) -> Result<Repository, TransferError> {
    let locations: Api<BackupStorageLocation> = Api::namespaced(client.clone(), &settings.namespace);
    let found = locations.get_opt(location).await.map_err(|e| Error::api(format!("read location {location}"), e))?;
    let missing = || TransferError::Invalid(format!("there is no BackupStorageLocation {location}"));
    let whose = Whose::new(namespace, location, kind);
    Ok(repositories::open(client, &settings.namespace, &found.ok_or_else(missing)?, &whose).await?)
}

/// A directory of its own for each repository, whatever characters its name has.
pub(super) fn cache(root: &Path, repository: &Repository) -> PathBuf {
    let digest = Sha256::digest(repository.place.name().as_bytes());
    root.join(hex::encode(&digest[..8]))
}
