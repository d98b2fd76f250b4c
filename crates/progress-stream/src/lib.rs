//! Transport of progress trees over HTTP: from an agent to the leader, and from the leader to the command line and the dashboard.
//!
//! ```text
//!   agent                    leader                                        command line, dashboard
//!   Trees ─▶ AgentServer ──▶ follow_agents ─▶ Trees ─▶ TreeSource ──▶ API server's service proxy ──▶ follow_leader ─▶ Trees
//!            GET /api/trees                            GET /api/trees
//! ```
//! The stream is fresh and optional: where a server cannot be reached, its readers use what it writes into the custom resources.
//!
//! It must never hold up the work that it reports, and never send a tree to a client without the token.

mod access_token;
mod agent_server;
mod agents;
mod error;
mod leader;
mod replicas;
mod response;
mod sse;
mod token_source;
mod tree_source;

pub use access_token::{AccessToken, TOKEN_SECRET, presents_token};
pub use agent_server::AgentServer;
pub use agents::{AgentDiscovery, follow_agents};
pub use error::Error;
pub use leader::{LAST_EVENT_ID, LeaderClient, SERVICE, TOKEN_HEADER, follow_leader};
pub use response::{Problem, SERVER_HEADER, add_standard_headers, event_stream};
pub use sse::is_event_stream;
pub use token_source::{TokenSource, require_token};
pub use tree_source::{TreeSource, process_epoch, stream_trees};
