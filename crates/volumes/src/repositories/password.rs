//! The Secret that opens every repository of this server.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret as KubernetesSecret;
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::{Api, Client};
use plimsoll_api::velero::v1::{BackupRepository, BackupStorageLocation, LocationPhase, RepositoryPhase};
use plimsoll_engine::{Error, kill};
use plimsoll_mover::{DEFAULT_PASSWORD, MoverError, MoverKind, Repository, Secret};
use plimsoll_progress::Task;
use rand::Rng;
use rand::distr::Alphanumeric;
use tracing::info;

use super::Repositories;
use super::access::{self, RepositoryKey, from_mover_error};

/// The Secret with the repositories' password, under Velero's name.
pub const PASSWORD_SECRET: &str = "velero-repo-credentials";
/// The key in it.
pub const PASSWORD_KEY: &str = "repository-password";
/// Length of generated passwords.
const PASSWORD_LENGTH: usize = 40;

/// The password, and which version of the Secret it is from.
pub(super) struct Password {
    pub secret: Secret,
    pub version: String,
}

/// The password; nothing if there is no Secret.
pub(super) async fn read(client: &Client, namespace: &str) -> Result<Option<Password>, Error> {
    let secrets: Api<KubernetesSecret> = Api::namespaced(client.clone(), namespace);
    let found = secrets.get_opt(PASSWORD_SECRET).await;
    let Some(found) = found.map_err(|e| Error::api(format!("read secret {PASSWORD_SECRET}"), e))? else {
        return Ok(None);
    };
    let version = found.metadata.resource_version.unwrap_or_default();
    match found.data.and_then(|mut data| data.remove(PASSWORD_KEY)) {
        Some(value) if !value.0.is_empty() => Ok(Some(Password { secret: Secret::new(value.0), version })),
        _ => Err(Error::Volumes {
            reason: "RepositoryPasswordMissing",
            message: format!("secret {namespace}/{PASSWORD_SECRET} has no key {PASSWORD_KEY}"),
            retryable: false,
        }),
    }
}

/// The message if a required Secret is missing.
pub(super) fn missing(namespace: &str) -> Error {
    Error::Volumes {
        reason: "RepositoryPasswordMissing",
        message: format!("secret {namespace}/{PASSWORD_SECRET} with the password of the repositories not found"),
        retryable: false,
    }
}

/// The password; generated if there is no Secret and no repository that a generated one could not open.
pub(super) async fn ensure(repositories: &Repositories, task: &Task) -> Result<Password, Error> {
    let namespace = &repositories.leader.namespace;
    if let Some(password) = read(&repositories.leader.client, namespace).await? {
        return Ok(password);
    }
    let mut known = None;
    let used = repositories_in_use(repositories).await?;
    for (key, location) in existing(repositories).await? {
        let adopt = repositories.adopt_default_password || is_in_use(&key, &used);
        known = find_default_password(repositories, &key, &location, adopt, task).await?;
        if known.is_some() {
            break;
        }
    }
    let generate = || rand::rng().sample_iter(Alphanumeric).take(PASSWORD_LENGTH).collect();
    create(repositories, &known.unwrap_or_else(generate)).await?;
    read(&repositories.leader.client, namespace).await?.ok_or_else(|| missing(namespace))
}

async fn create(repositories: &Repositories, password: &[u8]) -> Result<(), Error> {
    repositories.leader.fence.check()?;
    let namespace = &repositories.leader.namespace;
    let secrets: Api<KubernetesSecret> = Api::namespaced(repositories.leader.client.clone(), namespace);
    let secret = KubernetesSecret {
        metadata: ObjectMeta { name: Some(PASSWORD_SECRET.into()), ..ObjectMeta::default() },
        data: Some([(PASSWORD_KEY.to_owned(), ByteString(password.to_vec()))].into()),
        type_: Some("Opaque".into()),
        ..KubernetesSecret::default()
    };
    kill::point("repository.secret.before");
    match secrets.create(&PostParams::default(), &secret).await {
        Ok(_) => {
            info!("created secret {namespace}/{PASSWORD_SECRET}: keep a copy, no backup of volumes opens without it");
        }
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => return Err(Error::api(format!("create secret {PASSWORD_SECRET}"), error)),
    }
    kill::point("repository.secret.after");
    Ok(())
}

/// The repositories in the locations. A location that cannot be read may hold some that a generated password would not open.
async fn existing(repositories: &Repositories) -> Result<Vec<(RepositoryKey, BackupStorageLocation)>, Error> {
    let locations = repositories.leader.api::<BackupStorageLocation>().list(&ListParams::default()).await;
    let locations = locations.map_err(|e| Error::api("list locations", e))?.items;
    let mut found = Vec::new();
    for location in locations {
        let name = location.metadata.name.clone().unwrap_or_default();
        if location.status.as_ref().and_then(|status| status.phase.clone()) == Some(LocationPhase::Unavailable) {
            return Err(unknown(&repositories.leader.namespace, &name));
        }
        let store = repositories.storage.open_quickly(&location).await?;
        for kind in [MoverKind::Kopia, MoverKind::BuiltIn] {
            let folders = store.list_directories(&format!("{}/", kind.uploader_type())).await?;
            let namespaces = folders.iter().filter_map(|folder| folder.trim_end_matches('/').rsplit('/').next());
            for namespace in namespaces.filter(|name| !name.is_empty()) {
                found.push((RepositoryKey::new(namespace, name.clone(), kind), location.clone()));
            }
        }
    }
    Ok(found)
}

fn not_adopted(namespace: &str, repository: &str) -> Error {
    Error::Volumes {
        reason: "RepositoryPasswordMissing",
        message: format!(
            "repository {repository} opens with Velero's well-known default password, and this cluster has never used it. If it \
             is yours, start the server with --adopt-default-repository-password, or create the secret \
             {namespace}/{PASSWORD_SECRET} with the key {PASSWORD_KEY}; otherwise remove it from the location"
        ),
        retryable: false,
    }
}

fn unknown(namespace: &str, location: &str) -> Error {
    Error::Volumes {
        reason: "RepositoryPasswordMissing",
        message: format!(
            "secret {namespace}/{PASSWORD_SECRET} not found, and none is created while location {location} is unavailable: it \
             may hold repositories that have a password. Make the location available or remove it, or create the secret with \
             the key {PASSWORD_KEY}"
        ),
        retryable: true,
    }
}

async fn repositories_in_use(repositories: &Repositories) -> Result<Vec<BackupRepository>, Error> {
    let all = repositories.leader.api::<BackupRepository>().list(&ListParams::default()).await;
    Ok(all.map_err(|e| Error::api("list BackupRepositories", e))?.items)
}

/// Whether this cluster has used a repository. Every person who can write to the bucket can put one there that Velero's default
/// password opens, and would then be able to read all that is written into it.
fn is_in_use(key: &RepositoryKey, all: &[BackupRepository]) -> bool {
    let used = |repository: &BackupRepository| {
        let status = repository.status.clone().unwrap_or_default();
        status.phase == Some(RepositoryPhase::Ready) || status.last_maintenance_time.is_some()
    };
    all.iter().any(|repository| RepositoryKey::of(repository) == *key && used(repository))
}

/// Velero's default, if that opens what is there. If not, only its owner knows the password. A folder in which no repository was
/// ever finished has none.
async fn find_default_password(
    repositories: &Repositories,
    key: &RepositoryKey,
    location: &BackupStorageLocation,
    adopt: bool,
    task: &Task,
) -> Result<Option<Vec<u8>>, Error> {
    let place =
        access::repository_location(&repositories.leader.client, &repositories.leader.namespace, location, key).await?;
    let name = place.name();
    let repository = Repository { location: place, password: Secret::new(DEFAULT_PASSWORD) };
    match repositories.run_mover(key, repository, plimsoll_mover::Work::Snapshots, task).await {
        Ok(_) if adopt => Ok(Some(DEFAULT_PASSWORD.to_vec())),
        Ok(_) => Err(not_adopted(&repositories.leader.namespace, &name)),
        Err(MoverError::RepositoryNotFound { .. }) => Ok(None),
        Err(MoverError::WrongPassword { .. }) => Err(Error::Volumes {
            reason: "RepositoryPasswordMissing",
            message: format!(
                "repository {name} is there, but no secret {}/{PASSWORD_SECRET} with its password: copy it from where \
                 the repository was made",
                repositories.leader.namespace
            ),
            retryable: false,
        }),
        Err(error) => Err(from_mover_error(&error)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_repository_that_this_cluster_has_used_may_have_the_default_password() {
        let key = RepositoryKey::new("shop", "default", MoverKind::Kopia);
        let in_use = |namespace: &str, status: serde_json::Value| {
            let repository = json!({ "metadata": { "name": "r" }, "spec": { "volumeNamespace": namespace,
                "backupStorageLocation": "default", "repositoryType": "kopia" }, "status": status });
            is_in_use(&key, &[serde_json::from_value(repository).unwrap()])
        };
        assert!(in_use("shop", json!({ "phase": "Ready" })));
        assert!(in_use("shop", json!({ "phase": "NotReady", "lastMaintenanceTime": "2026-01-01T00:00:00Z" })));
        assert!(!in_use("shop", json!({ "phase": "NotReady" })), "just created by this server");
        assert!(!in_use("other", json!({ "phase": "Ready" })));
        assert!(!is_in_use(&key, &[]));
    }
}
