//! The Lease by which a node's agent shows that it is alive.

use std::time::Duration;

use plimsoll_api::labels;

/// In front of a node's name.
pub const LEASE_PREFIX: &str = "plimsoll-agent-";
/// How often an agent renews its Lease.
pub const RENEW_INTERVAL: Duration = Duration::from_secs(10);

/// The name of the Lease of a node's agent.
pub fn lease_name(node: &str) -> String {
    format!("{LEASE_PREFIX}{}", labels::valid_name(node).to_lowercase())
}
