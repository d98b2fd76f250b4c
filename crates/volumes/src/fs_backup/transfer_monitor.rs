//! The progress of a transfer that an operation waits for, and whether its agent is alive.

use std::sync::Arc;

use plimsoll_api::velero::v1::TransferPhase;
use plimsoll_engine::Error;
use plimsoll_engine::item_operations::ItemOperationProgress;

use super::agent_heartbeat::AgentHeartbeats;
use super::services::TransferServices;
use super::transfer_writes::fail_transfer;
use crate::transfer::{INCOMPLETE, Transfer};

/// Reads transfers, and ends those whose agent is dead.
pub struct TransferMonitor {
    services: Arc<TransferServices>,
    agents: tokio::sync::Mutex<AgentHeartbeats>,
}

impl TransferMonitor {
    /// A monitor for the transfers of one Backup or Restore.
    pub fn new(services: &Arc<TransferServices>) -> Self {
        let agents = AgentHeartbeats::new(
            services.leader.client.clone(),
            &services.leader.namespace,
            services.agent_heartbeat_timeout,
        );
        Self { services: Arc::clone(services), agents: tokio::sync::Mutex::new(agents) }
    }

    /// The progress of a transfer.
    pub async fn read<T: Transfer>(&self, object: &T) -> Result<ItemOperationProgress, Error> {
        let mut reading = reading(object);
        let node = object.node().unwrap_or_default();
        if reading.completed || node.is_empty() {
            return Ok(reading);
        }
        if let Some(missed_heartbeat) = self.agents.lock().await.missed_heartbeat(node).await? {
            if missed_heartbeat.over {
                fail_transfer(
                    &self.services,
                    object,
                    &format!("{}: {}", missed_heartbeat.reason, missed_heartbeat.message),
                )
                .await;
            }
            reading.description = format!("waiting: {}", missed_heartbeat.message);
        }
        Ok(reading)
    }
}

fn reading<T: Transfer>(object: &T) -> ItemOperationProgress {
    let number = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
    let shown = object.progress().cloned().unwrap_or_default();
    let (phase, message) = (object.phase(), object.message().unwrap_or_default());
    let error = match phase {
        TransferPhase::Failed if message.is_empty() => "failed without a message",
        TransferPhase::Failed => message,
        TransferPhase::Canceled => "it was cancelled",
        TransferPhase::Completed if message.starts_with(INCOMPLETE) => message,
        _ => "",
    };
    let mut description = if message.is_empty() { phase.to_string() } else { message.to_owned() };
    if let Some(summary) = object.summary().filter(|_| !phase.is_ended()) {
        let percent = summary.percent.as_ref().map(|percent| format!("{percent} %"));
        for part in [percent, summary.doing.clone()].into_iter().flatten() {
            description = format!("{description}, {part}");
        }
    }
    ItemOperationProgress {
        completed: phase.is_ended(),
        error: error.to_owned(),
        done: number(shown.bytes_done),
        total: number(shown.total_bytes),
        units: "Bytes".into(),
        description,
        ..ItemOperationProgress::default()
    }
}
