//! What running transfers on this node needs.

use kube::Client;
use plimsoll_operations::EventRecorder;

use crate::cache::Caches;
use crate::settings::AgentSettings;
use crate::slots::Slots;
use crate::status_writer::ClusterTransfers;

/// Services for the transfers of this node.
pub(crate) struct AgentServices {
    pub client: Client,
    pub settings: AgentSettings,
    pub slots: Slots,
    pub events: EventRecorder,
    pub caches: Caches,
    /// Transfers in the whole cluster, as far as the watches show.
    pub running: ClusterTransfers,
}

impl AgentServices {
    /// Needs a Tokio runtime.
    pub fn new(client: Client, settings: AgentSettings) -> Self {
        Self {
            slots: Slots::new(settings.concurrency),
            events: EventRecorder::new(client.clone(), &settings.namespace, &settings.identity),
            running: ClusterTransfers::start(),
            caches: Caches::new(settings.cache.clone(), settings.cache_limit),
            client,
            settings,
        }
    }
}
