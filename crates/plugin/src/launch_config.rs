//! How plugin processes are started and supervised.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use tokio::process::Command;

use crate::environment::Environment;
use crate::handshake::{MAGIC_COOKIE, PROTOCOL_VERSION};

/// How plugins are started.
#[derive(Clone, Debug, Default)]
pub struct LaunchConfig {
    /// Their environment variables.
    pub environment: Environment,
    /// Their arguments. Velero's plugins accept the flags of its server and ignore unknown ones.
    pub arguments: Vec<String>,
    /// The prefix of a command that takes `--guard <pid> -- <program>` and executes the program, which is killed when the
    /// process `<pid>` exits. Without it a plugin outlives a killed server.
    pub guard: Vec<OsString>,
    /// Timeouts and limits.
    pub supervision: Supervision,
}

/// Timeouts and limits of plugin processes.
#[derive(Clone, Debug)]
pub struct Supervision {
    /// Timeout of the handshake.
    pub handshake_timeout: Duration,
    /// Interval of health checks.
    pub health_check_interval: Duration,
    /// Timeout of a health check.
    pub health_check_timeout: Duration,
    /// How often a process may exit within [`Supervision::exit_window`] before it is no longer restarted.
    pub max_exits: usize,
    /// See [`Supervision::max_exits`].
    pub exit_window: Duration,
    /// Maximum size of a message from a plugin, in bytes.
    pub max_message_size: usize,
    /// How long a process may take to exit after a shutdown request.
    pub shutdown_timeout: Duration,
}

impl Default for Supervision {
    fn default() -> Self {
        Self {
            handshake_timeout: Duration::from_mins(1),
            health_check_interval: Duration::from_secs(5),
            health_check_timeout: Duration::from_secs(10),
            max_exits: 10,
            exit_window: Duration::from_mins(10),
            max_message_size: 32 << 20,
            shutdown_timeout: Duration::from_secs(2),
        }
    }
}

impl LaunchConfig {
    /// The command that starts a binary with its socket in the directory `sockets`.
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
            .env(MAGIC_COOKIE.0, MAGIC_COOKIE.1)
            .env("PLUGIN_PROTOCOL_VERSIONS", PROTOCOL_VERSION)
            .env("PLUGIN_MIN_PORT", "10000")
            .env("PLUGIN_MAX_PORT", "25000")
            .env("PLUGIN_UNIX_SOCKET_DIR", sockets)
            .env("TMPDIR", sockets);
        command
    }
}
