//! Forgets the snapshots of a backup that is deleted, and no others.

use std::collections::BTreeMap;

use plimsoll_api::velero::v1::PodVolumeBackup;
use plimsoll_engine::{Error, RetryPolicy, kill};
use plimsoll_mover::{MoverError, Work};
use plimsoll_progress::{Task, Total, Unit};

use super::Repositories;
use super::access::{self, RepositoryKey, from_mover_error};
use super::check::find_location;

/// Which snapshots lie in which repository.
pub(super) fn by_repository(transfers: &[PodVolumeBackup], location: &str) -> BTreeMap<RepositoryKey, Vec<String>> {
    let mut all: BTreeMap<RepositoryKey, Vec<String>> = BTreeMap::new();
    for transfer in transfers {
        let id = transfer.status.as_ref().and_then(|status| status.snapshot_id.clone());
        if let Some(id) = id.filter(|id| !id.is_empty()) {
            // The location may have another name in this cluster than where the backup was made.
            let key = RepositoryKey { location: location.to_owned(), ..RepositoryKey::of_pod_volume_backup(transfer) };
            all.entry(key).or_default().push(id);
        }
    }
    all
}

/// Forgets the snapshots that a backup's PodVolumeBackups name. Returns what could not be forgotten; a repository or a
/// snapshot that is gone already is not among it.
pub async fn forget(
    repositories: &Repositories,
    location: &str,
    transfers: &[PodVolumeBackup],
    task: &Task,
) -> Result<Vec<String>, Error> {
    let all = by_repository(transfers, location);
    let count = all.values().map(Vec::len).sum::<usize>() as u64;
    let meter = task.meter(Unit::Items);
    meter.set_total(Total::Final(count));
    let mut errors = Vec::new();
    for (key, snapshots) in all {
        let names = snapshots.join(", ");
        let done = RetryPolicy::default().run(task, || forget_in(repositories, &key, &snapshots, task)).await;
        match done {
            Ok(()) => meter.add(snapshots.len() as u64),
            Err(error @ (Error::Fenced(_) | Error::Cancelled)) => return Err(error),
            Err(error) => errors.push(format!("error deleting pod volume snapshots {names}: {error}")),
        }
    }
    Ok(errors)
}

async fn forget_in(
    repositories: &Repositories,
    key: &RepositoryKey,
    snapshots: &[String],
    task: &Task,
) -> Result<(), Error> {
    let known = repositories.of(&access::repository_name(key));
    let _alone = known.lock().await;
    repositories.leader.fence.check()?;
    let location = find_location(repositories, &key.location).await?;
    let repository = access::open(&repositories.leader.client, &repositories.leader.namespace, &location, key).await?;
    kill::point("repository.forget.before");
    let work = Work::Forget { snapshots: snapshots.to_vec() };
    match repositories.run_mover(key, repository, work, task).await {
        Ok(_) | Err(MoverError::RepositoryNotFound { .. } | MoverError::SnapshotNotFound { .. }) => {}
        Err(error) => return Err(from_mover_error(&error)),
    }
    kill::point("repository.forget.after");
    Ok(())
}

#[cfg(test)]
mod tests {
    use plimsoll_api::velero::v1::PodVolumeBackup;
    use serde_json::json;

    use super::*;

    #[test]
    fn snapshots_are_forgotten_where_they_lie_and_transfers_without_one_are_left_out() {
        let transfer = |namespace: &str, uploader: &str, id: Option<&str>| -> PodVolumeBackup {
            serde_json::from_value(json!({
                "metadata": { "name": "t" },
                "spec": { "pod": { "namespace": namespace, "name": "p" }, "uploaderType": uploader,
                    "backupStorageLocation": "elsewhere" },
                "status": { "snapshotID": id },
            }))
            .unwrap()
        };
        let transfers = [
            transfer("a", "kopia", Some("1")),
            transfer("a", "kopia", Some("2")),
            transfer("a", "restic", Some("3")),
            transfer("b", "kopia", Some("4")),
            transfer("b", "kopia", None),
            transfer("b", "kopia", Some("")),
        ];
        let found: Vec<_> = by_repository(&transfers, "here").into_iter().collect();
        let key =
            |namespace: &str, format| RepositoryKey { namespace: namespace.into(), location: "here".into(), format };
        assert_eq!(
            found,
            [
                (key("a", "kopia"), vec!["1".to_owned(), "2".to_owned()]),
                (key("a", "restic"), vec!["3".to_owned()]),
                (key("b", "kopia"), vec!["4".to_owned()]),
            ]
        );
    }
}
