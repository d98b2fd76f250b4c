//! Volumes for the data of CSI snapshots: a transfer without a pod of its own gets one that holds its volume on some node.
//!
//! ```text
//!  DataUpload   New ─▶ Accepted: snapshot ─ content and snapshot of ours ─ claim from it ─ pod ─▶ Prepared ─▶ an agent
//!  DataDownload New ─▶ Accepted: claim like the restored one ─────────────────────────── pod ─▶ Prepared ─▶ an agent
//!  ended ─▶ all that goes again; the volume of a download goes to the restored claim ─▶ annotation `plimsoll.dev/cleaned-up`
//! ```
//!
//! Everything is named after the transfer, so that a new leader finds what its predecessor created, and is owned by it, so that
//! nothing stays when it is deleted. Only the leader does this; what the agents do afterwards is in the crate `agent`.

mod download;
mod driver_objects;
mod holder_pod;
mod upload;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::controller::Action;
use plimsoll_api::go::GoDuration;
use plimsoll_api::labels;
use plimsoll_api::velero::DataMovement;
use plimsoll_api::velero::v1::TransferPhase;
use plimsoll_api::velero::v2alpha1::{DataDownload, DataUpload};
use plimsoll_engine::{Error, kill};
use plimsoll_operations::LeaderClient;
use plimsoll_operations::controller::run_controller;
use plimsoll_progress::{Clock, Operation};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tracing::info;

use crate::fs_backup::RestoreHelper;
use crate::node_agent_config::NodeAgentConfig;
use crate::transfer::Transfer;
use crate::transfer::TransferRecord;

/// How often a pending volume is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Minimum timeout of a volume.
const MIN_TIMEOUT: Duration = Duration::from_mins(30);

/// Dependencies of the exposer.
pub struct Exposer {
    /// The connection of the leader.
    pub leader: LeaderClient,
    /// The image and command of the pods that hold volumes.
    pub restore_helper: RestoreHelper,
    /// Settings of these pods, and of their claims.
    pub config: NodeAgentConfig,
    /// Held while a transfer is accepted, so that no more are than may be.
    pub accepting: Mutex<()>,
}

impl Exposer {
    /// Whether as many volumes are being exposed as may be at the same time.
    async fn is_full(&self) -> Result<bool, Error> {
        let Some(limit) = self.config.prepare_queue_length() else { return Ok(false) };
        Ok(self.accepted::<DataUpload>().await? + self.accepted::<DataDownload>().await? >= limit)
    }

    /// How many transfers of a kind wait for their volume.
    async fn accepted<T: Transfer>(&self) -> Result<usize, Error> {
        let all = self.leader.api::<T>().list(&ListParams::default()).await;
        let all = all.map_err(|e| Error::api(format!("list {}", T::plural(&())), e))?;
        Ok(all.items.iter().filter(|object| object.phase() == TransferPhase::Accepted).count())
    }
}

/// The state of the volume of a transfer.
#[derive(Debug, PartialEq, Eq)]
enum ExposeStep {
    /// A pod holds it on this node.
    Held(String),
    /// It waits for something.
    Waiting(String),
    /// It cannot be exposed.
    Refused(String),
}

/// A transfer whose volume has to be exposed.
trait ExposedTransfer: Transfer + DataMovement {
    /// Does the next step to expose the volume.
    fn expose(&self, exposer: &Exposer) -> impl Future<Output = Result<ExposeStep, Error>> + Send;
    /// Does the next clean-up step. Returns whether everything is cleaned up.
    fn clean_up(&self, exposer: &Exposer) -> impl Future<Output = Result<bool, Error>> + Send;
}

/// Exposes the volumes of transfers until the future is dropped.
pub async fn run_exposer(exposer: Arc<Exposer>) {
    tokio::join!(
        run_controller::<DataUpload, _, _, _>(&exposer.leader, Arc::clone(&exposer), reconcile),
        run_controller::<DataDownload, _, _, _>(&exposer.leader, Arc::clone(&exposer), reconcile),
    );
}

async fn reconcile<T: ExposedTransfer>(object: Arc<T>, exposer: Arc<Exposer>) -> Result<Action, Error> {
    // The transfers of other data movers are not ours.
    if !matches!(object.data_mover(), None | Some("" | "velero")) {
        return Ok(Action::await_change());
    }
    exposer.leader.fence.check()?;
    let phase = object.phase();
    match phase {
        TransferPhase::New | TransferPhase::Accepted if object.is_cancelled() => {
            let now = format!("{:.0}", Timestamp::now());
            write(
                &exposer,
                object.as_ref(),
                &json!({ "phase": "Canceled", "message": "cancelled", "completionTimestamp": now }),
            )
            .await
        }
        TransferPhase::New => {
            let _accepting = exposer.accepting.lock().await;
            if exposer.is_full().await? {
                return Ok(Action::requeue(POLL_INTERVAL));
            }
            let now = format!("{:.0}", Timestamp::now());
            let by = &exposer.leader.identity;
            kill::point("exposing.accept.before");
            write(
                &exposer,
                object.as_ref(),
                &json!({ "phase": "Accepted", "acceptedTimestamp": now, "acceptedByNode": by }),
            )
            .await
        }
        TransferPhase::Accepted => {
            let step = object.expose(&exposer).await?;
            apply_step(&exposer, object.as_ref(), step).await
        }
        _ if phase.is_ended() && !object.annotations().contains_key(labels::CLEANED_UP) => {
            clean_up(&exposer, object.as_ref()).await
        }
        _ => Ok(Action::await_change()),
    }
}

async fn apply_step<T: ExposedTransfer>(exposer: &Exposer, object: &T, step: ExposeStep) -> Result<Action, Error> {
    let now = Timestamp::now();
    let failed =
        |message: String| json!({ "phase": "Failed", "message": message, "completionTimestamp": format!("{now:.0}") });
    match step {
        ExposeStep::Held(node) => {
            info!("{} {}: its volume is on node {node}", T::kind(&()), object.name_any());
            kill::point("exposing.prepared.before");
            write(exposer, object, &json!({ "phase": "Prepared", "node": node, "nodeOS": "linux", "message": null }))
                .await
        }
        ExposeStep::Refused(why) => write(exposer, object, &failed(format!("VolumeProvisioningFailed: {why}"))).await,
        ExposeStep::Waiting(why) if is_over(object, now) => {
            write(exposer, object, &failed(format!("VolumeProvisioningFailed: timed out waiting {why}"))).await
        }
        ExposeStep::Waiting(why) => {
            let message = format!("waiting {why}");
            if object.message() != Some(&message) {
                write(exposer, object, &json!({ "message": message })).await?;
            }
            Ok(Action::requeue(POLL_INTERVAL))
        }
    }
}

fn is_over<T: ExposedTransfer>(object: &T, now: Timestamp) -> bool {
    let Some(since) = object.accepted_timestamp() else { return false };
    let limit = object.operation_timeout().and_then(GoDuration::as_std).unwrap_or_default().max(MIN_TIMEOUT);
    now.duration_since(since.0) > SignedDuration::try_from(limit).unwrap_or(SignedDuration::MAX)
}

async fn clean_up<T: ExposedTransfer>(exposer: &Exposer, object: &T) -> Result<Action, Error> {
    if !object.clean_up(exposer).await? {
        return Ok(Action::requeue(POLL_INTERVAL));
    }
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { labels::CLEANED_UP: "true" } } }));
    match exposer.leader.api::<T>().patch(&object.name_any(), &PatchParams::default(), &patch).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Action::await_change()),
        answer => {
            answer.map(|_| Action::await_change()).map_err(|e| Error::api(format!("write {}", object.name_any()), e))
        }
    }
}

async fn write<T: ExposedTransfer>(exposer: &Exposer, object: &T, status: &Value) -> Result<Action, Error> {
    let record = TransferRecord::new(exposer.leader.client.clone(), &exposer.leader.namespace, object);
    let unseen = Operation::new(object.name_any(), Clock::system());
    record.change(&unseen.root(), |_| json!({ "status": status })).await?;
    Ok(Action::await_change())
}
