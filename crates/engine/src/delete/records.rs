//! The custom resources of a backup: its Restores, and the Backup itself.

use std::time::Duration;

use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::{Api, ResourceExt};
use plimsoll_api::velero::v1::{Backup, Restore};
use plimsoll_progress::Task;
use tokio::time::Instant;

use super::env::DeleteEnv;
use crate::{Error, RetryPolicy, kill};

/// Timeout of the deletion of the files of restores.
const RESTORE_FILES_TIMEOUT: Duration = Duration::from_mins(1);
/// How often a running Restore is read.
const RESTORE_POLL_INTERVAL: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Waits until no Restore reads the backup. The Backup is marked as being deleted: no other begins.
pub(super) async fn wait_for_restores(backup: &Backup, env: &DeleteEnv<'_>) -> Result<(), Error> {
    let (api, root) = (restores(env), &env.operation.root);
    loop {
        let all = RetryPolicy::default().run(root, || restores_of(&api, backup)).await?;
        let running: Vec<_> = all.iter().filter(|restore| restore.is_running()).map(ResourceExt::name_any).collect();
        if running.is_empty() {
            return Ok(());
        }
        let waiting = root.wait(format!("waiting for restore {}, which reads the backup", running.join(", ")));
        tokio::time::sleep(RESTORE_POLL_INTERVAL).await;
        drop(waiting);
    }
}

fn restores(env: &DeleteEnv<'_>) -> Api<Restore> {
    Api::namespaced(env.operation.cluster.client().clone(), &env.namespace)
}

/// Deletes the Restores of a backup, and waits until their finalizers have deleted their files. Restores that have begun meanwhile end
/// first. Returns those that still exist after the timeout.
pub(super) async fn remove_restores(backup: &Backup, env: &DeleteEnv<'_>, task: &Task) -> Result<Vec<String>, Error> {
    let api = restores(env);
    let mut deadline = Instant::now() + RESTORE_FILES_TIMEOUT;
    loop {
        wait_for_restores(backup, env).await?;
        let left = RetryPolicy::default().run(task, || restores_of(&api, backup)).await?;
        if left.is_empty() {
            return Ok(Vec::new());
        }
        let kept = |restore: &&Restore| restore.metadata.deletion_timestamp.is_none() && !restore.is_running();
        for restore in left.iter().filter(kept) {
            kill::point("deletion.restore.before");
            RetryPolicy::default().run(task, || delete_restore(&api, restore, env)).await?;
            kill::point("deletion.restore.after");
            deadline = Instant::now() + RESTORE_FILES_TIMEOUT;
        }
        let names: Vec<_> = left.iter().map(ResourceExt::name_any).collect();
        if Instant::now() >= deadline {
            return Ok(names.iter().map(|name| format!("error deleting restore {name}: it does not go")).collect());
        }
        let waiting = task.wait(format!("waiting for the files of restore {} to be deleted", names.join(", ")));
        tokio::time::sleep(POLL_INTERVAL).await;
        drop(waiting);
    }
}

async fn restores_of(api: &Api<Restore>, backup: &Backup) -> Result<Vec<Restore>, Error> {
    let all = api.list(&ListParams::default()).await.map_err(|e| Error::api("list restores", e))?;
    let name = backup.name_any();
    let of_backup = |restore: &Restore| restore.spec.backup_name.as_deref() == Some(&name);
    Ok(all.items.into_iter().filter(of_backup).collect())
}

/// Deletes a Restore, unless it has changed: it may have begun.
async fn delete_restore(api: &Api<Restore>, restore: &Restore, env: &DeleteEnv<'_>) -> Result<(), Error> {
    env.operation.guard.check_effect()?;
    let preconditions = Preconditions { uid: restore.uid(), resource_version: restore.resource_version() };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let name = restore.name_any();
    match api.delete(&name, &parameters).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        Err(error) => Err(Error::api(format!("delete Restore {name}"), error)),
    }
}

/// Deletes the Backup, unless it was replaced by another of the same name.
pub(super) async fn remove_backup(backup: &Backup, env: &DeleteEnv<'_>, task: &Task) -> Result<(), Error> {
    env.operation.guard.check_commit().await?;
    let api: Api<Backup> = Api::namespaced(env.operation.cluster.client().clone(), &env.namespace);
    let name = backup.name_any();
    let preconditions = Preconditions { uid: backup.uid(), resource_version: None };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let delete = || async {
        match api.delete(&name, &parameters).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
            Err(error) => Err(Error::api(format!("delete backup {name}"), error)),
        }
    };
    kill::point("deletion.record.before");
    RetryPolicy::default().run(task, delete).await?;
    kill::point("deletion.record.after");
    task.finish();
    Ok(())
}
