//! Finds the BackupRepository of a namespace, or creates it.

use kube::api::{ListParams, ObjectMeta, PostParams};
use plimsoll_api::go::GoDuration;
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{BackupRepository, BackupRepositorySpec, UploaderType};
use plimsoll_engine::{Error, kill};
use plimsoll_mover::MoverKind;

use super::Repositories;
use super::access::{RepositoryKey, repository_name};
use super::check::find_location;
use super::maintenance::default_frequency;

/// The BackupRepository of a key; a missing one is created.
pub(super) async fn find_or_create(
    repositories: &Repositories,
    key: &RepositoryKey,
) -> Result<BackupRepository, Error> {
    if let Some(found) = find(repositories, key).await? {
        return Ok(found);
    }
    repositories.leader.fence.check()?;
    // Without a location it could never become ready.
    find_location(repositories, &key.location).await?;
    let name = repository_name(key);
    kill::point("repository.create.before");
    match repositories.leader.api::<BackupRepository>().create(&PostParams::default(), &new_repository(key)).await {
        Ok(made) => Ok(made),
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let found = repositories.leader.api::<BackupRepository>().get(&name).await;
            let found = found.map_err(|e| Error::api(format!("read BackupRepository {name}"), e))?;
            if RepositoryKey::of(&found) == *key { Ok(found) } else { create_beside(repositories, key, &name).await }
        }
        Err(error) => Err(Error::api(format!("create BackupRepository {name}"), error)),
    }
}

/// Namespace `shop-eu` in location `default` and namespace `shop` in location `eu-default` make the same name. The
/// second one gets a generated name, and is found by its spec.
async fn create_beside(
    repositories: &Repositories,
    key: &RepositoryKey,
    name: &str,
) -> Result<BackupRepository, Error> {
    let mut repository = new_repository(key);
    (repository.metadata.name, repository.metadata.generate_name) = (None, Some(format!("{name}-")));
    let made = repositories.leader.api::<BackupRepository>().create(&PostParams::default(), &repository).await;
    made.map_err(|e| Error::api(format!("create a BackupRepository beside {name}"), e))
}

/// Finds it by its spec. Its name may be random: older versions of Velero generated it.
async fn find(repositories: &Repositories, key: &RepositoryKey) -> Result<Option<BackupRepository>, Error> {
    let all = repositories.leader.api::<BackupRepository>().list(&ListParams::default()).await;
    let all = all.map_err(|e| Error::api("list BackupRepositories", e))?;
    Ok(all.items.into_iter().find(|repository| RepositoryKey::of(repository) == *key))
}

fn new_repository(key: &RepositoryKey) -> BackupRepository {
    let kopia = key.kind() == MoverKind::Kopia;
    let marks = [
        (labels::VOLUME_NAMESPACE, labels::valid_name(&key.namespace)),
        (labels::STORAGE_LOCATION, labels::valid_name(&key.location)),
        (labels::REPOSITORY_TYPE, key.format.to_owned()),
    ];
    let marks = marks.map(|(key, value)| (key.to_owned(), value)).into();
    BackupRepository {
        metadata: ObjectMeta { name: Some(repository_name(key)), labels: Some(marks), ..ObjectMeta::default() },
        spec: BackupRepositorySpec {
            volume_namespace: Some(key.namespace.clone()),
            backup_storage_location: Some(key.location.clone()),
            repository_type: Some(if kopia { UploaderType::Kopia } else { UploaderType::Restic }),
            maintenance_frequency: Some(GoDuration::from(default_frequency(key.kind()))),
            ..BackupRepositorySpec::default()
        },
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;

    use super::*;

    #[test]
    fn a_new_repository_is_found_by_veleros_labels() {
        let made = new_repository(&RepositoryKey::new("shop", "default", MoverKind::Kopia));
        let label = |key: &str| made.labels()[key].clone();
        assert_eq!(made.name_any(), "shop-default-kopia");
        assert_eq!(
            [label(labels::VOLUME_NAMESPACE), label(labels::STORAGE_LOCATION), label(labels::REPOSITORY_TYPE)],
            ["shop", "default", "kopia"]
        );
        assert_eq!(RepositoryKey::of(&made), RepositoryKey::new("shop", "default", MoverKind::Kopia));
    }
}
