//! What running transfers on this node needs.

use std::sync::Arc;

use kube::Client;
use plimsoll_operations::EventRecorder;
use tokio::sync::Semaphore;

use crate::cache::Caches;
use crate::settings::AgentSettings;
use crate::status_writer::ClusterTransfers;

/// What running transfers on this node needs.
pub(crate) struct AgentServices {
    pub client: Client,
    pub settings: AgentSettings,
    /// One permit for each transfer that may run.
    pub slots: Arc<Semaphore>,
    pub events: EventRecorder,
    pub caches: Caches,
    /// Transfers in the whole cluster, as far as the watches show.
    pub running: ClusterTransfers,
}

impl AgentServices {
    /// Needs a Tokio runtime.
    pub fn new(client: Client, settings: AgentSettings) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(settings.concurrency.max(1))),
            events: EventRecorder::new(client.clone(), &settings.namespace, &settings.identity),
            running: ClusterTransfers::start(),
            caches: Caches::new(settings.cache.clone(), settings.cache_limit),
            client,
            settings,
        }
    }
}
