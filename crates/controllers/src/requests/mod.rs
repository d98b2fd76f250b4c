//! What command-line clients ask the server for, by creating an object and waiting for its status.

pub mod deletion;
pub mod download;
mod plugins;
pub mod server_status;
