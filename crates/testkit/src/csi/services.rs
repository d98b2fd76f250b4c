//! Listens at the unix socket of a CSI service.

use std::path::Path;

use anyhow::{Context as _, Result};
use plimsoll_grpc_server::Router;
use tokio::net::UnixListener;

/// Listens at `socket`, replacing an earlier listener. The returned future serves until it is dropped.
pub fn listen(services: Router, socket: &Path) -> Result<impl Future<Output = std::io::Error> + Send + use<>> {
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket).with_context(|| format!("failed to listen at {}", socket.display()))?;
    Ok(services.serve(listener))
}
