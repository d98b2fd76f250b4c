//! Holders of the locks of a repository.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use plimsoll_api::velero::v1::BackupRepository;
use plimsoll_engine::Error;
use plimsoll_mover::{HolderLiveness, LockHolderStatus, LockInfo, MoverKind};
use plimsoll_progress::{Clock, Operation};
use tokio::time::Instant;
use tracing::{info, warn};

use super::Repositories;
use super::access::RepositoryKey;
use super::answer::{OpenedRepository, report_locks};
use super::check::find_location;
use super::check_state::RepositoryState;
use crate::storage_location::is_read_only;

/// How often the locks of a repository are checked, and how soon again once there are some: checks closer than six minutes
/// count as one.
const LOCK_CHECK_INTERVAL: Duration = Duration::from_mins(30);
const LOCK_RECHECK_INTERVAL: Duration = Duration::from_mins(7);

/// Checks the locks of a repository if they are due, and removes stale ones. Returns the time until the next check.
pub(super) async fn check_if_due(
    repository: &BackupRepository,
    known: &mut RepositoryState,
    repositories: &Repositories,
) -> Result<Duration, Error> {
    let now = Instant::now();
    if let Some(next) = known.locks_due.filter(|next| *next > now) {
        return Ok(next - now);
    }
    let next = match remove_stale_locks(repository, known, repositories).await {
        Err(error @ Error::Fenced(_)) => return Err(error),
        Err(error) => {
            warn!("checking the locks of BackupRepository {}: {error}", repository.name_any());
            LOCK_RECHECK_INTERVAL
        }
        Ok(found) if found > 0 => LOCK_RECHECK_INTERVAL,
        Ok(_) => LOCK_CHECK_INTERVAL,
    };
    known.locks_due = Some(Instant::now() + next);
    Ok(next)
}

/// The number of locks.
async fn remove_stale_locks(
    repository: &BackupRepository,
    known: &mut RepositoryState,
    repositories: &Repositories,
) -> Result<usize, Error> {
    let key = RepositoryKey::of(repository);
    // kopia keeps none.
    if key.kind() == MoverKind::Kopia || is_read_only(&find_location(repositories, &key.location).await?) {
        return Ok(0);
    }
    let operation = Operation::new(format!("locks of {}", repository.name_any()), Clock::system());
    let opened = OpenedRepository::of(repository, repositories, operation.root()).await?;
    let locks = report_locks(&opened, known, true).await?;
    for lock in locks.iter().filter(|lock| lock.removed) {
        let name = repository.name_any();
        info!("BackupRepository {name}: removed the lock {} of {} ({})", lock.id, lock.hostname, lock.holder);
    }
    Ok(locks.iter().filter(|lock| !lock.removed).count())
}

/// What can be known about holders: pods of this namespace, and processes that live where this one does. Names are not
/// enough: another cluster that shares the bucket may have a pod of the same name.
pub(super) struct Holders {
    pods: Vec<KnownPod>,
    own_pod: Option<String>,
}

struct KnownPod {
    uid: String,
    /// The boot ID of its node. A copy of this cluster has pods with the same UIDs, but machines of its own.
    boot: String,
    runs: bool,
}

impl Holders {
    pub(super) async fn read(repositories: &Repositories) -> Result<Self, Error> {
        let pods: Api<Pod> = Api::namespaced(repositories.leader.client.clone(), &repositories.leader.namespace);
        let pods = pods.list(&ListParams::default()).await.map_err(|e| Error::api("list pods", e))?;
        let nodes: Api<Node> = Api::all(repositories.leader.client.clone());
        // Without the right to read them, less is known about pods, and locks have to grow old.
        let nodes = nodes.list(&ListParams::default()).await.map(|all| all.items).unwrap_or_default();
        let boots: HashMap<String, String> = nodes.into_iter().filter_map(boot).collect();
        let pods = pods.into_iter().filter_map(|pod| KnownPod::of(&pod, &boots)).collect();
        Ok(Self { pods, own_pod: plimsoll_mover::own_pod_uid() })
    }

    /// An unknown holder may be another cluster's, however much the name looks like ours: such a lock has to
    /// grow old.
    pub(super) fn of(&self, lock: &LockInfo) -> LockHolderStatus {
        match lock.liveness(self.own_pod.as_deref()) {
            HolderLiveness::Alive => return LockHolderStatus::OursAlive,
            HolderLiveness::Gone => return LockHolderStatus::OursGone,
            HolderLiveness::Unknown => {}
        }
        match self.pods.iter().find(|pod| lock.is_in(&pod.uid, &pod.boot)) {
            Some(pod) if pod.runs => LockHolderStatus::OursInPod,
            Some(_) => LockHolderStatus::OursGone,
            None => LockHolderStatus::Unknown,
        }
    }
}

impl KnownPod {
    /// `None` where it cannot be identified: it has no node yet, or its node does not report when it started.
    fn of(pod: &Pod, boots: &HashMap<String, String>) -> Option<Self> {
        let boot = boots.get(pod.spec.as_ref()?.node_name.as_ref()?)?.clone();
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let runs = !matches!(phase, Some("Succeeded" | "Failed"));
        Some(Self { uid: pod.uid()?, boot, runs })
    }
}

fn boot(node: Node) -> Option<(String, String)> {
    let name = node.name_any();
    let boot = node.status?.node_info?.boot_id;
    (!boot.is_empty()).then_some((name, boot))
}

/// The text of a holder status.
pub(super) fn holder_text(holder: LockHolderStatus) -> &'static str {
    match holder {
        LockHolderStatus::Unknown => "unknown",
        LockHolderStatus::OursAlive => "ours, at work",
        LockHolderStatus::OursInPod => "ours, in a pod that runs",
        LockHolderStatus::OursGone => "ours, gone",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const BOOT: &str = "9f86d081-884c-4d65-8a2f-000000000001";
    const UID: &str = "0c4e9a1b-5d7f-4e38-9d12-000000000001";

    fn lock(hostname: &str, pid: u32) -> LockInfo {
        let time = jiff::Timestamp::UNIX_EPOCH;
        LockInfo { id: "a".into(), time, hostname: hostname.into(), pid, exclusive: false }
    }

    fn in_pod(name: &str, uid: &str, boot: &str) -> LockInfo {
        let digits = |id: &str| id.replace('-', "")[..16].to_owned();
        lock(&format!("{name}/{}.{}.f0000001.1", digits(uid), digits(boot)), 1)
    }

    fn pod(phase: &str, node: Option<&str>) -> Pod {
        let pod = json!({ "metadata": { "name": "agent-0", "uid": UID }, "spec": { "nodeName": node, "containers": [] },
            "status": { "phase": phase } });
        serde_json::from_value(pod).unwrap()
    }

    fn holders(pod: &Pod) -> Holders {
        let boots = [("node-1".to_owned(), BOOT.to_owned())].into();
        Holders { pods: KnownPod::of(pod, &boots).into_iter().collect(), own_pod: None }
    }

    #[test]
    fn a_pod_is_ours_by_its_uid_and_its_nodes_boot_and_never_by_its_name() {
        let (runs, ended) = (holders(&pod("Running", Some("node-1"))), holders(&pod("Failed", Some("node-1"))));
        let ours = in_pod("agent-0", UID, BOOT);
        assert_eq!((runs.of(&ours), ended.of(&ours)), (LockHolderStatus::OursInPod, LockHolderStatus::OursGone));
        let elsewhere = "11111111-884c-4d65-8a2f-000000000001";
        let table = [
            (lock("agent-0", 1), "an equal name in another cluster, or restic's own lock"),
            (in_pod("agent-0", elsewhere, BOOT), "another pod"),
            (in_pod("agent-0", UID, elsewhere), "a copy of this cluster, or the node before it started"),
        ];
        for (lock, why) in table {
            assert_eq!(ended.of(&lock), LockHolderStatus::Unknown, "{why}");
        }
        for nowhere in [None, Some("node-2")] {
            assert_eq!(
                holders(&pod("Failed", nowhere)).of(&ours),
                LockHolderStatus::Unknown,
                "its node does not report its start"
            );
        }
    }

    #[test]
    fn a_process_is_ours_by_more_than_the_machines_name_and_its_number() {
        let holders = holders(&pod("Running", None));
        let me = plimsoll_mover::LockHolder::current(None).unwrap().to_string();
        let here = rustix::system::uname().nodename().to_string_lossy().into_owned();
        // No process has this number: the system gives out smaller ones.
        let unused = 0x7fff_fff0;
        assert_eq!(holders.of(&lock(&me, std::process::id())), LockHolderStatus::OursAlive);
        assert_eq!(holders.of(&lock(&me, unused)), LockHolderStatus::OursGone);
        assert_eq!(holders.of(&lock(&here, unused)), LockHolderStatus::Unknown, "an equally named machine's");
        assert_eq!(holders.of(&lock(&here, std::process::id())), LockHolderStatus::Unknown);
    }
}
