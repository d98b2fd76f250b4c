//! How plugins are started on this machine, and how much is put up with.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use tokio::process::Command;

use crate::environment::Environment;
use crate::handshake::{COOKIE, PROTOCOL};

/// How plugins are started.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// What they see of the environment.
    pub environment: Environment,
    /// Their arguments. Velero's plugins take the flags of its server and ignore those they do not know.
    pub arguments: Vec<String>,
    /// The beginning of a command that takes `--guard <pid> -- <program>` and becomes that program, bound to die with the
    /// process. Without it a plugin outlives a server that is killed.
    pub guard: Vec<OsString>,
    /// How much is put up with.
    pub supervision: Supervision,
}

/// How much is put up with.
#[derive(Clone, Debug)]
pub struct Supervision {
    /// The time for a handshake.
    pub handshake: Duration,
    /// How often a process is asked whether it is well.
    pub health_every: Duration,
    /// The time for its answer.
    pub health_patience: Duration,
    /// How often a process may end within [`Supervision::within`] before it is left alone.
    pub ends: usize,
    /// See [`Supervision::ends`].
    pub within: Duration,
    /// The largest message taken from a plugin, in bytes.
    pub largest_message: usize,
    /// How long a process may take to end after it was asked to.
    pub farewell: Duration,
}

impl Default for Supervision {
    fn default() -> Self {
        Self {
            handshake: Duration::from_mins(1),
            health_every: Duration::from_secs(5),
            health_patience: Duration::from_secs(10),
            ends: 10,
            within: Duration::from_mins(10),
            largest_message: 32 << 20,
            farewell: Duration::from_secs(2),
        }
    }
}

impl Launch {
    /// The command that starts a binary whose socket is to be in `sockets`.
    pub(crate) fn command(&self, binary: &Path, sockets: &Path) -> Command {
        let mut command = match self.guard.split_first() {
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg("--guard").arg(std::process::id().to_string()).arg("--").arg(binary);
                command
            }
            None => Command::new(binary),
        };
        command
            .args(&self.arguments)
            .env_clear()
            .envs(self.environment.variables())
            .env(COOKIE.0, COOKIE.1)
            .env("PLUGIN_PROTOCOL_VERSIONS", PROTOCOL)
            .env("PLUGIN_MIN_PORT", "10000")
            .env("PLUGIN_MAX_PORT", "25000")
            .env("PLUGIN_UNIX_SOCKET_DIR", sockets)
            .env("TMPDIR", sockets);
        command
    }
}
