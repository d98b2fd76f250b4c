//! Whether the agents of nodes live: each renews a Lease, and its silence has a name.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::{Api, Client};
use plimsoll_engine::Error;
use plimsoll_operations::peers;
use plimsoll_operations::peers::Peer;
use tokio::time::Instant;

use crate::transfer::agent_lease::{RENEW_INTERVAL, lease_name};

/// How often a Lease is read.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The last heartbeats of agents.
pub struct AgentHeartbeats {
    client: Client,
    namespace: String,
    api: Api<Lease>,
    /// An agent without a heartbeat for this long counts as dead.
    timeout: Duration,
    known: HashMap<String, LastHeartbeat>,
}

struct LastHeartbeat {
    looked: Instant,
    renewed: Option<MicroTime>,
    /// Node agents of Velero's, which keep ours from working.
    others: Option<Peer>,
    since: Instant,
}

/// A missed heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissedHeartbeat {
    /// A stable word.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// Whether it has lasted too long.
    pub over: bool,
}

impl AgentHeartbeats {
    /// Reads the Leases of one namespace.
    pub fn new(client: Client, namespace: &str, timeout: Duration) -> Self {
        let api = Api::namespaced(client.clone(), namespace);
        Self { client, namespace: namespace.to_owned(), api, timeout, known: HashMap::new() }
    }

    /// The missed heartbeat of the agent of a node. Only the local clock is used.
    pub async fn missed_heartbeat(&mut self, node: &str) -> Result<Option<MissedHeartbeat>, Error> {
        let now = Instant::now();
        if self.known.get(node).is_none_or(|known| now - known.looked >= POLL_INTERVAL) {
            let name = lease_name(node);
            let found = self.api.get_opt(&name).await.map_err(|e| Error::api(format!("read Lease {name}"), e))?;
            let held = found.and_then(|lease| lease.spec).filter(|spec| spec.holder_identity.is_some());
            let renewed = held.and_then(|spec| spec.renew_time);
            let others = match renewed {
                // Best effort: that the agent is missing is known without it.
                None => peers::node_agents(&self.client, &self.namespace).await.ok().flatten(),
                Some(_) => None,
            };
            self.record(node, renewed, others, now);
        }
        Ok(self.known.get(node).and_then(|known| check_heartbeat(node, known, now, self.timeout)))
    }

    fn record(&mut self, node: &str, renewed: Option<MicroTime>, others: Option<Peer>, now: Instant) {
        let fresh = LastHeartbeat { looked: now, renewed: renewed.clone(), others: None, since: now };
        let known = self.known.entry(node.to_owned()).or_insert(fresh);
        if known.renewed != renewed {
            (known.renewed, known.since) = (renewed, now);
        }
        (known.looked, known.others) = (now, others);
    }
}

fn check_heartbeat(node: &str, known: &LastHeartbeat, now: Instant, timeout: Duration) -> Option<MissedHeartbeat> {
    let silent = now - known.since;
    let seconds = silent.as_secs();
    match &known.renewed {
        None => Some(MissedHeartbeat {
            reason: "NodeAgentMissing",
            message: match &known.others {
                Some(peer) => format!("no Plimsoll agent runs on node {node}, only {peer}"),
                None => format!("no agent runs on node {node}"),
            },
            over: silent >= timeout,
        }),
        // One that lives says so only so often.
        Some(_) if silent >= RENEW_INTERVAL * 2 => Some(MissedHeartbeat {
            reason: "NodeAgentSilent",
            message: format!("no heartbeat from the agent of node {node} for {seconds} s"),
            over: silent >= timeout.max(RENEW_INTERVAL * 3),
        }),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_is_missing_is_named_at_once_and_one_that_falls_silent_after_a_while() {
        let (start, timeout) = (Instant::now(), Duration::from_secs(40));
        let at = |renewed: Option<MicroTime>, seconds: u64| {
            let now = start + Duration::from_secs(seconds);
            check_heartbeat("n", &LastHeartbeat { looked: now, renewed, others: None, since: start }, now, timeout)
        };
        let renewed = Some(MicroTime(jiff::Timestamp::UNIX_EPOCH));
        let missing = at(None, 0).unwrap();
        assert_eq!((missing.reason, missing.over), ("NodeAgentMissing", false));
        assert!(at(None, 40).unwrap().over);
        assert_eq!(at(renewed.clone(), 12), None);
        let silent = at(renewed.clone(), 25).unwrap();
        assert_eq!(silent.message, "no heartbeat from the agent of node n for 25 s");
        assert!(!silent.over && at(renewed, 40).unwrap().over);
    }
}
