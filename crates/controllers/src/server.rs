//! The server: stands for election, and runs the controllers while it leads.

use std::sync::Arc;

use kube::api::ListParams;
use kube::{Api, Client};
use plimsoll_api::kanister::v1alpha1::ActionSet;
use plimsoll_api::labels;
use plimsoll_api::plimsoll::v1alpha1::Operation;
use plimsoll_api::velero::v1::{Backup, DeleteBackupRequest, Restore};
use plimsoll_engine::Error;
use plimsoll_engine::cluster::Cluster;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::context::{Context, Runs, Settings};
use crate::events::Events;
use crate::leader::{self, Candidate};
use crate::live::LiveOperations;
use crate::repositories::{self, Repositories};
use crate::sync::{self, Warnings};
use crate::writes::Writes;
use crate::{
    actionsets, downloads, exposing, garbage, leader_pod, location, peers, plugins, report, requests, restore_files,
    schedule, subject,
};

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

    /// Runs until `stop`, which hands the Lease back, or until somebody else leads, which is an error: the process should end.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        std::fs::create_dir_all(&self.settings.scratch).map_err(|e| Error::scratch(&self.settings.scratch, e))?;
        let downloads = match &self.settings.downloads {
            Some(settings) => Some(downloads::listen(settings, self.client.clone(), &self.settings.namespace).await?),
            None => None,
        };
        let candidate = Candidate {
            namespace: self.settings.namespace.clone(),
            lease: LEASE.to_owned(),
            identity: self.settings.identity.clone(),
            term: self.settings.lease_term,
            notes: [(
                labels::DEFAULT_VOLUMES_TO_FS_BACKUP.to_owned(),
                self.settings.default_volumes_to_fs_backup.to_string(),
            )]
            .into(),
        };
        let namespace = self.settings.namespace.clone();
        if let Some(pod) = &self.settings.pod
            && let Err(error) = leader_pod::unmark(&self.client, &namespace, pod).await
        {
            warn!("taking the leader's mark off pod {pod}: {error}");
        }
        let campaign = async {
            peers::gone(&self.client, &namespace, peers::Side::Server).await?;
            leader::campaign(self.client.clone(), candidate, async || self.largest_epoch().await).await
        };
        let leadership = tokio::select! {
            won = campaign => won?,
            () = stop.cancelled() => return Ok(()),
        };
        if let Some(pod) = self.settings.pod.clone() {
            tokio::spawn(leader_pod::mark(self.client.clone(), namespace.clone(), pod));
        }
        let context = Arc::new(Context {
            events: Events::new(self.client.clone(), &self.settings.namespace, &self.settings.identity),
            live: LiveOperations::default(),
            writes: Writes::start(|| report::DISTANCE),
            repositories: Repositories::default(),
            plugins: plugins::discover(&self.settings).await,
            sync_warnings: Warnings::default(),
            download_base: downloads.as_ref().and_then(|listening| listening.base.clone()),
            cluster: Cluster::new(self.client.clone()),
            client: self.client,
            settings: self.settings,
            epoch: leadership.epoch,
            fence: Arc::clone(&leadership.fence),
            runs: Runs::default(),
        });
        let controllers = async {
            tokio::join!(
                location::control(Arc::clone(&context)),
                subject::control::<Backup>(Arc::clone(&context)),
                subject::control::<Restore>(Arc::clone(&context)),
                subject::control::<DeleteBackupRequest>(Arc::clone(&context)),
                subject::control::<ActionSet>(Arc::clone(&context)),
                actionsets::checks::watch(Arc::clone(&context)),
                requests::deletion::control(Arc::clone(&context)),
                restore_files::control(Arc::clone(&context)),
                garbage::control(Arc::clone(&context)),
                sync::control(Arc::clone(&context)),
                schedule::control(Arc::clone(&context)),
                repositories::control(Arc::clone(&context)),
                requests::server_status::control(Arc::clone(&context)),
                requests::download::control(Arc::clone(&context)),
                exposing::control(Arc::clone(&context)),
            )
        };
        tokio::select! {
            _ = controllers => Ok(()),
            peer = peers::came(&context.client, &namespace, peers::Side::Server) => {
                leadership.resign().await;
                Err(Error::Fenced(format!("{peer} serves namespace {namespace} now")))
            }
            () = leadership.lost() => Err(Error::Fenced("the Lease is lost".into())),
            () = stop.cancelled() => {
                info!("stopping");
                leadership.resign().await;
                Ok(())
            }
        }
    }

    /// Where to count on from when the Lease has been deleted.
    async fn largest_epoch(&self) -> Result<u64, Error> {
        let api: Api<Operation> = Api::namespaced(self.client.clone(), &self.settings.namespace);
        let operations = api.list(&ListParams::default()).await.map_err(|e| Error::api("list operations", e))?;
        let epochs = operations.items.into_iter().filter_map(|op| op.status?.epoch);
        Ok(epochs.max().and_then(|epoch| u64::try_from(epoch).ok()).unwrap_or(0))
    }
}
