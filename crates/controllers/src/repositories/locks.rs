//! Who holds the locks of a repository.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use plimsoll_api::velero::v1::BackupRepository;
use plimsoll_engine::Error;
use plimsoll_mover::{Holder, Kind, LockInfo};
use plimsoll_progress::{Clock, Operation};
use tokio::time::Instant;
use tracing::{info, warn};

use super::access::Whose;
use super::ensure::{Known, find_location};
use super::request::{Opened, report_locks};
use crate::context::Context;
use crate::location::is_read_only;

/// How often the locks of a repository are looked at, and how soon again once there are some: looks closer than six minutes
/// count as one.
const LOOK_EVERY: Duration = Duration::from_mins(30);
const LOOK_AGAIN: Duration = Duration::from_mins(7);

/// Looks at the locks of a repository if it is time to, and removes those that nobody holds any more. Returns when it is time
/// again.
pub(super) async fn look(
    repository: &BackupRepository,
    known: &mut Known,
    context: &Context,
) -> Result<Duration, Error> {
    let now = Instant::now();
    if let Some(next) = known.locks_due.filter(|next| *next > now) {
        return Ok(next - now);
    }
    let next = match tidy(repository, known, context).await {
        Err(error @ Error::Fenced(_)) => return Err(error),
        Err(error) => {
            warn!("looking at the locks of BackupRepository {}: {error}", repository.name_any());
            LOOK_AGAIN
        }
        Ok(found) if found > 0 => LOOK_AGAIN,
        Ok(_) => LOOK_EVERY,
    };
    known.locks_due = Some(Instant::now() + next);
    Ok(next)
}

/// How many locks there are.
async fn tidy(repository: &BackupRepository, known: &mut Known, context: &Context) -> Result<usize, Error> {
    let whose = Whose::of(repository);
    // kopia keeps none.
    if whose.kind() == Kind::Kopia || is_read_only(&find_location(context, &whose.location).await?) {
        return Ok(0);
    }
    let operation = Operation::new(format!("locks of {}", repository.name_any()), Clock::system());
    let opened = Opened::of(repository, context, operation.root()).await?;
    let locks = report_locks(&opened, known, true).await?;
    for lock in locks.iter().filter(|lock| lock.removed) {
        let name = repository.name_any();
        info!("BackupRepository {name}: removed the lock {} of {} ({})", lock.id, lock.hostname, lock.holder);
    }
    Ok(locks.iter().filter(|lock| !lock.removed).count())
}

/// What can be known about holders: pods of this namespace by name, and processes of this machine.
pub(super) struct Holders {
    pods: HashMap<String, bool>,
    here: String,
}

impl Holders {
    pub(super) async fn look(context: &Context) -> Result<Self, Error> {
        let api: Api<Pod> = Api::namespaced(context.client.clone(), &context.settings.namespace);
        let pods = api.list(&ListParams::default()).await.map_err(|e| Error::api("list pods", e))?;
        let ended = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            matches!(phase, Some("Succeeded" | "Failed"))
        };
        let pods = pods.items.iter().map(|pod| (pod.name_any(), !ended(pod))).collect();
        let here = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Ok(Self { pods, here })
    }

    /// A name that we have never heard of may be another cluster's pod, however much it looks like ours: such a lock has to
    /// grow old.
    pub(super) fn of(&self, lock: &LockInfo) -> Holder {
        if lock.hostname == self.here {
            let alive = std::path::Path::new("/proc").join(lock.pid.to_string()).exists();
            return if alive { Holder::OursAlive } else { Holder::OursGone };
        }
        match self.pods.get(&lock.hostname) {
            Some(true) => Holder::OursInPod,
            Some(false) => Holder::OursGone,
            None => Holder::Unknown,
        }
    }
}

/// The same in words.
pub(super) fn words(holder: Holder) -> &'static str {
    match holder {
        Holder::Unknown => "unknown",
        Holder::OursAlive => "ours, at work",
        Holder::OursInPod => "ours, in a pod that runs",
        Holder::OursGone => "ours, gone",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_ours_only_if_it_is_known_here() {
        let holders = Holders {
            pods: [("agent-1".to_owned(), true), ("agent-2".to_owned(), false)].into(),
            here: "leader-0".into(),
        };
        let lock = |hostname: &str, pid| LockInfo {
            id: "a".into(),
            time: jiff::Timestamp::UNIX_EPOCH,
            hostname: hostname.into(),
            pid,
            exclusive: false,
        };
        assert_eq!(holders.of(&lock("agent-1", 1)), Holder::OursInPod);
        assert_eq!(holders.of(&lock("agent-2", 1)), Holder::OursGone);
        assert_eq!(holders.of(&lock("agent-3", 1)), Holder::Unknown, "it may be another cluster's");
        assert_eq!(holders.of(&lock("leader-0", std::process::id())), Holder::OursAlive);
        assert_eq!(holders.of(&lock("leader-0", u32::MAX)), Holder::OursGone);
    }
}
