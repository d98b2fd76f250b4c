//! An agent's own Lease.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use plimsoll_api::labels;
use plimsoll_engine::Error;
use plimsoll_volumes::transfer::agent_lease::{RENEW_INTERVAL, lease_name};
use serde_json::json;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::settings::AgentSettings;

/// A successor takes over the Lease of an agent that has not renewed it for this long.
const TAKE_OVER_AFTER: Duration = Duration::from_secs(15);

/// The Lease of one agent.
pub struct AgentLease {
    api: Api<Lease>,
    name: String,
    identity: String,
    /// The address at which it serves its progress.
    address: Option<String>,
}

impl AgentLease {
    /// The Lease of an agent.
    pub fn new(client: Client, settings: &AgentSettings) -> Self {
        Self {
            api: Api::namespaced(client, &settings.namespace),
            name: lease_name(&settings.node),
            identity: settings.identity.clone(),
            address: settings.progress_address.map(|address| address.to_string()),
        }
    }

    /// Acquires it. Waits while another agent of this node is alive: two would do the same work.
    pub async fn acquire(&self) -> Result<(), Error> {
        let mut seen: Option<(Option<MicroTime>, Instant)> = None;
        loop {
            let found = self.api.get_opt(&self.name).await;
            let found = found.map_err(|e| Error::api(format!("read Lease {}", self.name), e))?;
            let spec = found.and_then(|lease| lease.spec).unwrap_or_default();
            let holder = spec.holder_identity.clone().unwrap_or_default();
            if holder.is_empty() || holder == self.identity {
                return self.renew().await;
            }
            match &seen {
                Some((renewed, since)) if *renewed == spec.renew_time => {
                    if since.elapsed() >= TAKE_OVER_AFTER {
                        info!("agent {holder} of this node is gone: taking over");
                        return self.renew().await;
                    }
                }
                _ => {
                    info!("waiting for agent {holder} of this node to go");
                    seen = Some((spec.renew_time, Instant::now()));
                }
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Renews it until the future is dropped.
    pub async fn keep_renewed(&self) {
        loop {
            tokio::time::sleep(RENEW_INTERVAL).await;
            match tokio::time::timeout(RENEW_INTERVAL, self.renew()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => warn!("failed to renew the Lease of the agent: {error}"),
                Err(_) => warn!("failed to renew the Lease of the agent: no answer within {RENEW_INTERVAL:?}"),
            }
        }
    }

    /// Releases it, so that the next agent need not wait.
    pub async fn release(&self) {
        let patch = json!({ "metadata": { "annotations": { labels::PROGRESS_ADDRESS: null } }, "spec": { "holderIdentity": null } });
        // A successor that finds it held waits a little longer.
        let _ = self.api.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await;
    }

    async fn renew(&self) -> Result<(), Error> {
        let what = || format!("renew Lease {}", self.name);
        let spec = self.spec();
        let annotations = json!({ labels::PROGRESS_ADDRESS: self.address });
        let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations }, "spec": spec }));
        match self.api.patch(&self.name, &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let address = self.address.clone().map(|address| (labels::PROGRESS_ADDRESS.to_owned(), address));
                let metadata = ObjectMeta {
                    name: Some(self.name.clone()),
                    annotations: Some(address.into_iter().collect()),
                    ..ObjectMeta::default()
                };
                let lease = Lease { metadata, spec: Some(spec) };
                self.api.create(&PostParams::default(), &lease).await.map_err(|e| Error::api(what(), e))?;
                Ok(())
            }
            answer => answer.map(|_| ()).map_err(|e| Error::api(what(), e)),
        }
    }

    fn spec(&self) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(4 * RENEW_INTERVAL.as_secs()).ok(),
            renew_time: Some(MicroTime(Timestamp::now())),
            ..LeaseSpec::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_renewal_without_an_answer_is_given_up_and_the_next_one_is_tried() {
        let attempts = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&attempts);
        let service = tower::service_fn(move |_: Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            async {
                std::future::pending::<()>().await;
                Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
            }
        });
        let api = Api::namespaced(Client::new(service, "velero"), "velero");
        let lease = AgentLease { api, name: "l".into(), identity: "a".into(), address: None };
        let _ = tokio::time::timeout(6 * RENEW_INTERVAL, lease.keep_renewed()).await;
        assert_eq!(attempts.load(Ordering::Relaxed), 3);
    }
}
