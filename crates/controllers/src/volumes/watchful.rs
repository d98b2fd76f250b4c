//! How far a transfer is that an operation waits for, and whether anybody works on it.

use std::sync::Arc;

use plimsoll_api::velero::v1::TransferPhase;
use plimsoll_engine::operations::Reading;

use super::agents::Agents;
use super::follow::give_up;
use crate::Error;
use crate::context::Context;
use crate::transfer::kind::{INCOMPLETE, Transfer};

/// Reads transfers, and ends those whose agent is dead.
pub(crate) struct Watchful {
    context: Arc<Context>,
    agents: tokio::sync::Mutex<Agents>,
}

impl Watchful {
    pub fn new(context: &Arc<Context>) -> Self {
        let settings = &context.settings;
        let agents = Agents::new(context.leader.client.clone(), &settings.namespace, settings.agent_silence);
        Self { context: Arc::clone(context), agents: tokio::sync::Mutex::new(agents) }
    }

    /// How far it is.
    pub async fn read<T: Transfer>(&self, object: &T) -> Result<Reading, Error> {
        let mut reading = reading(object);
        let node = object.node().unwrap_or_default();
        if reading.completed || node.is_empty() {
            return Ok(reading);
        }
        if let Some(silence) = self.agents.lock().await.silence(node).await? {
            if silence.over {
                give_up(&self.context, object, &format!("{}: {}", silence.reason, silence.message)).await;
            }
            reading.description = format!("waiting: {}", silence.message);
        }
        Ok(reading)
    }
}

fn reading<T: Transfer>(object: &T) -> Reading {
    let number = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
    let shown = object.shown().unwrap_or_default();
    let (phase, message) = (object.phase(), object.message().unwrap_or_default());
    let error = match phase {
        TransferPhase::Failed if message.is_empty() => "it failed and does not say why",
        TransferPhase::Failed => message,
        TransferPhase::Canceled => "it was cancelled",
        TransferPhase::Completed if message.starts_with(INCOMPLETE) => message,
        _ => "",
    };
    let mut description = if message.is_empty() { phase.to_string() } else { message.to_owned() };
    if let Some(summary) = object.summary().filter(|_| !phase.is_ended()) {
        let percent = summary.percent.map(|percent| format!("{percent} %"));
        for part in [percent, summary.doing].into_iter().flatten() {
            description = format!("{description}, {part}");
        }
    }
    Reading {
        completed: phase.is_ended(),
        error: error.to_owned(),
        done: number(shown.bytes_done),
        total: number(shown.total_bytes),
        units: "Bytes".into(),
        description,
        ..Reading::default()
    }
}
