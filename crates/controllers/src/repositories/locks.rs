//! Who holds the locks of a repository.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use plimsoll_engine::Error;
use plimsoll_mover::{Holder, LockInfo};

use crate::context::Context;

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
            Some(true) => Holder::OursAlive,
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
        assert_eq!(holders.of(&lock("agent-1", 1)), Holder::OursAlive);
        assert_eq!(holders.of(&lock("agent-2", 1)), Holder::OursGone);
        assert_eq!(holders.of(&lock("agent-3", 1)), Holder::Unknown, "it may be another cluster's");
        assert_eq!(holders.of(&lock("leader-0", std::process::id())), Holder::OursAlive);
        assert_eq!(holders.of(&lock("leader-0", u32::MAX)), Holder::OursGone);
    }
}
