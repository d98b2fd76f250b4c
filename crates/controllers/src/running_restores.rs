//! Restores that read a backup: it is not deleted under them.

use kube::ResourceExt;
use kube::api::ListParams;
use plimsoll_api::velero::v1::Restore;
use plimsoll_engine::Error;
use plimsoll_operations::LeaderClient;

/// The Restores that read the backup now, in the words of a wait; `None` if there are none.
pub async fn running_restore(backup: &str, leader: &LeaderClient) -> Result<Option<String>, Error> {
    let all = leader.api::<Restore>().list(&ListParams::default()).await;
    let all = all.map_err(|e| Error::api("list restores", e))?.items;
    let running = |restore: &&Restore| restore.spec.backup_name.as_deref() == Some(backup) && restore.is_running();
    let names: Vec<_> = all.iter().filter(running).map(ResourceExt::name_any).collect();
    Ok((!names.is_empty()).then(|| format!("restore {}, which reads the backup", names.join(", "))))
}
