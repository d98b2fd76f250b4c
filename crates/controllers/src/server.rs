//! The server: stands for election, and runs the controllers while it leads.

use std::sync::Arc;

use kube::api::ListParams;
use kube::{Api, Client};
use plimsoll_api::labels;
use plimsoll_api::plimsoll::v1alpha1::Operation;
use plimsoll_engine::Error;
use plimsoll_operations::leader_election::{self, Candidate, fence_client};
use plimsoll_operations::{LeaderClient, leader_label, list_in_pages, peers};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::settings::Settings;
use crate::wiring::Controllers;
use crate::{download_request, plugins};

/// The name of the Lease.
pub const LEASE: &str = "plimsoll";

/// A server, not yet running.
pub struct Server {
    client: Client,
    settings: Settings,
}

impl Server {
    /// Serves the custom resources of one namespace.
    pub fn new(client: Client, settings: Settings) -> Self {
        Self { client, settings }
    }

    /// Runs until `stop`, which hands the Lease back, or until another process leads, which is an error: the process should exit.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        std::fs::create_dir_all(&self.settings.scratch).map_err(|e| Error::scratch(&self.settings.scratch, e))?;
        let downloads = match &self.settings.downloads {
            Some(settings) => Some(
                download_request::download_server::listen(settings, self.client.clone(), &self.settings.namespace)
                    .await?,
            ),
            None => None,
        };
        let candidate = Candidate {
            namespace: self.settings.namespace.clone(),
            lease: LEASE.to_owned(),
            identity: self.settings.identity.clone(),
            term: self.settings.lease_term,
            annotations: [
                (labels::DEFAULT_VOLUMES_TO_FS_BACKUP, self.settings.default_volumes_to_fs_backup),
                (labels::DEFAULT_SNAPSHOT_MOVE_DATA, self.settings.defaults.snapshot_move_data),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_string()))
            .into(),
        };
        let namespace = self.settings.namespace.clone();
        if let Some(pod) = &self.settings.pod
            && let Err(error) = leader_label::remove_label(&self.client, &namespace, pod).await
        {
            warn!("failed to remove the leader label from pod {pod}: {error}");
        }
        let campaign = async {
            peers::wait_until_absent(&self.client, &namespace, peers::Component::Server).await?;
            leader_election::campaign(self.client.clone(), candidate, async || self.largest_epoch().await).await
        };
        let leadership = tokio::select! {
            won = campaign => won?,
            () = stop.cancelled() => return Ok(()),
        };
        if let Some(pod) = self.settings.pod.clone() {
            tokio::spawn(leader_label::set_label(self.client.clone(), namespace.clone(), pod));
        }
        let client = fence_client(self.client, Arc::clone(&leadership.fence));
        let leader = LeaderClient::new(client, &namespace, &leadership).with_page_size(self.settings.client_page_size);
        let plugins = plugins::discover(&self.settings).await;
        let download_base = downloads.as_ref().and_then(|listening| listening.base.clone());
        let controllers = Controllers::new(&leader, self.settings, plugins, download_base);
        tokio::select! {
            () = controllers.run() => Ok(()),
            peer = peers::wait_for_peer(&leader.client, &namespace, peers::Component::Server) => {
                leadership.resign().await;
                Err(Error::Fenced(format!("{peer} serves namespace {namespace} now")))
            }
            () = leadership.lost() => Err(Error::Fenced("lost the Lease".into())),
            () = stop.cancelled() => {
                info!("stopping");
                leadership.resign().await;
                Ok(())
            }
        }
    }

    /// The epoch to count from when the Lease has been deleted.
    async fn largest_epoch(&self) -> Result<u64, Error> {
        let api: Api<Operation> = Api::namespaced(self.client.clone(), &self.settings.namespace);
        let mut largest = 0;
        let compare = |operation: Operation| {
            let epoch = operation.status.and_then(|status| u64::try_from(status.epoch?).ok());
            largest = largest.max(epoch.unwrap_or(0));
        };
        let listed = list_in_pages(&api, &ListParams::default(), self.settings.client_page_size, compare).await;
        listed.map(|()| largest).map_err(|e| Error::api("list operations", e))
    }
}
