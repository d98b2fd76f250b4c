//! Transfers of volume data for phases whose container has no restic: with `plimsoll mover` there, or with the agent of its node.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use plimsoll_api::velero::v1::PodVolumeBackup;
use plimsoll_blueprint::Error;
use plimsoll_blueprint::functions::data_movers::{DataMovers, MoverMessage, Repository, VolumeTransfer};
use plimsoll_blueprint::functions::{BackupSummary, Call};
use plimsoll_mover::{self as mover, MoverCommand, MoverError};
use plimsoll_volumes::fs_backup::{Follower, TransferLost};
use plimsoll_volumes::transfer::agent_lease::lease_name;

use super::transfer_objects::{self, Authorize};
use super::{ActionSetContext, mover_job, transfer_status};

/// Note of a phase that has created a transfer.
const TRANSFER_NOTE: &str = "transfer";
/// How often a transfer is read.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The data movers of this server: `plimsoll mover`, and the agents of the nodes.
pub struct NodeAgents {
    context: Arc<ActionSetContext>,
}

impl NodeAgents {
    pub fn new(context: Arc<ActionSetContext>) -> Self {
        Self { context }
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.context.leader.client.clone(), &self.context.leader.namespace)
    }

    /// Creates the repository here: two agents that create it at the same time would lose data.
    async fn ensure_repository(&self, call: &Call, repository: &mover::Repository) -> Result<(), Error> {
        let failed = |error: &MoverError| Error::Command { what: "the repository".into(), detail: error.to_string() };
        let job = mover_job::ensure_repository(repository.clone());
        let task = call.task.child("repository");
        let command = MoverCommand::this_program().map_err(|error| failed(&error))?;
        match mover::spawn(&command, &job, &task).map_err(|error| failed(&error))?.wait().await {
            Ok(_) => task.finish(),
            Err(error) => {
                task.fail(error.to_string());
                return Err(failed(&error));
            }
        }
        Ok(())
    }

    async fn require_agent(&self, node: &str) -> Result<(), Error> {
        let leases: Api<Lease> = Api::namespaced(self.context.leader.client.clone(), &self.context.leader.namespace);
        let name = lease_name(node);
        let found = leases.get_opt(&name).await.map_err(|e| Error::api(format!("read Lease {name}"), e))?;
        let held = found.and_then(|lease| lease.spec?.holder_identity).is_some();
        if held { Ok(()) } else { Err(Error::Missing(format!("no agent runs on node {node}"))) }
    }

    async fn create(
        &self,
        call: &Call,
        name: &str,
        repository: &mover::Repository,
        request: &VolumeTransfer<'_>,
    ) -> Result<(), Error> {
        if call.host.recall(TRANSFER_NOTE).is_none() {
            call.host.remember(TRANSFER_NOTE, request.node.clone()).await?;
        }
        call.host.authorize_effect()?;
        call.host.kill_point("phase.transfer.before");
        let secret = transfer_objects::repository_secret(call, name, repository)?;
        transfer_objects::create(&self.secrets(), &secret, "secret", name).await?;
        let transfer = transfer_objects::pod_volume_backup(call, name, request);
        transfer_objects::create(&self.context.leader.api(), &transfer, "PodVolumeBackup", name).await?;
        call.host.kill_point("phase.transfer.after");
        Ok(())
    }

    /// Waits for the end of a transfer, and reports its progress.
    async fn follow(&self, call: &Call, name: &str, pod: &str) -> Result<(BackupSummary, String), Error> {
        let selector = transfer_objects::selector(&call.identity);
        let follower: Follower<PodVolumeBackup> =
            Follower::start(&self.context.transfers, selector, self.context.fs_backup_timeout);
        let end = follower.follow(name, call.task.child(format!("transfer of pod {pod} by its node's agent")));
        let transfer = tokio::select! {
            transfer = end => transfer,
            () = self.report_progress(call, name, pod) => Err(TransferLost::Unread),
        };
        let failed = |detail: String| Error::Command { what: format!("the transfer of pod {pod}"), detail };
        let transfer = transfer.map_err(|lost| failed(format!("PodVolumeBackup {name} {lost}")))?;
        // A transfer that an earlier process created has the tag of that process.
        let tag = transfer.spec.tags.keys().next().cloned().unwrap_or_default();
        Ok((transfer_status::summary(&transfer).map_err(failed)?, tag))
    }

    /// Reports the progress of a transfer until the future is dropped.
    async fn report_progress(&self, call: &Call, name: &str, pod: &str) {
        let mut ticks = tokio::time::interval(POLL_INTERVAL);
        loop {
            ticks.tick().await;
            if let Ok(Some(transfer)) = self.context.leader.api::<PodVolumeBackup>().get_opt(name).await {
                call.meters.report(pod, transfer_status::progress(&transfer));
            }
        }
    }

    /// Deletes the objects that a phase has created for agents. The agent of a transfer that is deleted stops.
    pub async fn delete_objects(&self, identity: &str, authorize: &Authorize<'_>) -> Result<(), String> {
        let transfers = self.context.leader.api::<PodVolumeBackup>();
        // One of the two may be deleted already: an error with the one does not keep the other.
        let results = [
            transfer_objects::delete_all(authorize, &transfers, identity).await,
            transfer_objects::delete_all(authorize, &self.secrets(), identity).await,
        ];
        results.into_iter().collect()
    }
}

impl DataMovers for NodeAgents {
    fn ensure(&self, repository: &Repository) -> Result<String, Error> {
        mover_job::to_line(&mover_job::ensure_repository(mover_job::repository(repository)))
    }

    fn backup(&self, repository: &Repository, path: &str, tag: &str) -> Result<String, Error> {
        mover_job::to_line(&mover_job::backup(mover_job::repository(repository), path, tag))
    }

    fn parse_message(&self, line: &[u8]) -> MoverMessage {
        mover_job::parse_message(line)
    }

    fn transfer<'a>(
        &'a self,
        call: &'a Call,
        request: &'a VolumeTransfer<'a>,
    ) -> BoxFuture<'a, Result<(BackupSummary, String), Error>> {
        Box::pin(async move {
            self.require_agent(&request.node).await?;
            let repository = mover_job::repository(&request.repository);
            self.ensure_repository(call, &repository).await?;
            let name = transfer_objects::name(call, request.pod);
            call.log(&format!(
                "pod {}/{} has no restic: the agent of node {} reads {}",
                request.namespace, request.pod, request.node, request.path
            ));
            self.create(call, &name, &repository, request).await?;
            self.follow(call, &name, request.pod).await
        })
    }

    fn clean_up<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if call.host.recall(TRANSFER_NOTE).is_none() {
                return;
            }
            let authorize = || call.host.authorize_effect().map_err(|error| error.to_string());
            if let Err(error) = self.delete_objects(&call.identity, &authorize).await {
                call.log(&format!("failed to remove the transfer of an agent: {error}"));
            }
        })
    }
}
