//! Errors of plugins.

use std::time::Duration;

use crate::registry::PluginKind;

/// The result of a plugin call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of a plugin call. `plugin` is the name of the binary, or the registered name in a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process could not be started.
    #[error("failed to start plugin {plugin}: {cause}")]
    StartFailed {
        /// The plugin.
        plugin: String,
        /// The cause.
        cause: String,
    },
    /// No handshake within the timeout.
    #[error("plugin handshake timed out after {}s: {plugin}; is it a Velero plugin?", limit.as_secs())]
    HandshakeTimedOut {
        /// The plugin.
        plugin: String,
        /// The timeout.
        limit: Duration,
    },
    /// The first line of standard output is not a handshake.
    #[error("invalid handshake of plugin {plugin}: {line:?}; a plugin must not write anything else to standard output")]
    HandshakeInvalid {
        /// The plugin.
        plugin: String,
        /// The line, shortened.
        line: String,
    },
    /// The handshake is valid but not compatible.
    #[error("incompatible plugin {plugin}: {what}")]
    Incompatible {
        /// The plugin.
        plugin: String,
        /// What is incompatible.
        what: String,
    },
    /// The process has exited.
    #[error("plugin {plugin} exited ({how}){}", stderr_suffix(stderr))]
    Exited {
        /// The plugin.
        plugin: String,
        /// Exit code or signal.
        how: String,
        /// The last lines of standard error.
        stderr: String,
    },
    /// The health check of a running process failed.
    #[error("health check of plugin {plugin} failed: {cause}; the process was killed")]
    Unhealthy {
        /// The plugin.
        plugin: String,
        /// The cause.
        cause: String,
    },
    /// The call timed out; the process is healthy.
    #[error("plugin {plugin}: {call} timed out after {}s", limit.as_secs())]
    TimedOut {
        /// The plugin.
        plugin: String,
        /// The method.
        call: String,
        /// The timeout.
        limit: Duration,
    },
    /// A message exceeds the size limit.
    #[error("plugin {plugin}: {call}: message too large: {detail}")]
    MessageTooLarge {
        /// The plugin.
        plugin: String,
        /// The method.
        call: String,
        /// The size and the limit, as far as known.
        detail: String,
    },
    /// The process exited too often.
    #[error("plugin {plugin} exited {times} times within {}m and is not restarted for now; last exit: {last}", within.as_secs() / 60)]
    RestartLimitReached {
        /// The plugin.
        plugin: String,
        /// Number of exits.
        times: usize,
        /// The time window.
        within: Duration,
        /// The last exit.
        last: String,
    },
    /// The plugin returned an error.
    #[error("plugin {plugin}: {call}: {message}")]
    CallFailed {
        /// The plugin.
        plugin: String,
        /// The method.
        call: String,
        /// The message of the plugin, sanitized.
        message: String,
    },
    /// The method is not implemented.
    #[error("plugin {plugin}: {call} is not implemented")]
    Unimplemented {
        /// The plugin.
        plugin: String,
        /// The method.
        call: String,
    },
    /// The response is invalid.
    #[error("plugin {plugin}: {call}: invalid response: {detail}")]
    ResponseInvalid {
        /// The plugin.
        plugin: String,
        /// The method.
        call: String,
        /// The cause.
        detail: String,
    },
    /// The list of plugins is invalid.
    #[error("invalid plugin list of {plugin}: {detail}")]
    ListInvalid {
        /// The plugin.
        plugin: String,
        /// The cause.
        detail: String,
    },
    /// No binary implements the plugin.
    #[error("{kind} plugin {name:?} not found: add its image with `plimsoll plugin add`")]
    NotFound {
        /// The kind.
        kind: PluginKind,
        /// The registered name.
        name: String,
    },
}

fn stderr_suffix(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; stderr: {stderr}") }
}

impl Error {
    /// Stable reason for conditions, metrics and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::StartFailed { .. } => "PluginStartFailed",
            Self::HandshakeTimedOut { .. } => "PluginHandshakeTimedOut",
            Self::HandshakeInvalid { .. } => "PluginHandshakeInvalid",
            Self::Incompatible { .. } => "PluginIncompatible",
            Self::Exited { .. } => "PluginExited",
            Self::Unhealthy { .. } => "PluginUnhealthy",
            Self::TimedOut { .. } => "PluginTimedOut",
            Self::MessageTooLarge { .. } => "PluginMessageTooLarge",
            Self::RestartLimitReached { .. } => "PluginRestartLimitReached",
            Self::CallFailed { .. } => "PluginCallFailed",
            Self::Unimplemented { .. } => "PluginMethodUnimplemented",
            Self::ResponseInvalid { .. } => "PluginResponseInvalid",
            Self::ListInvalid { .. } => "PluginListInvalid",
            Self::NotFound { .. } => "PluginNotFound",
        }
    }

    /// Whether a call to a new process may succeed. Whether the call may be repeated is for the caller to decide.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Exited { .. } | Self::Unhealthy { .. } | Self::TimedOut { .. })
    }

    /// Whether the call may have taken effect although it failed.
    pub fn outcome_unknown(&self) -> bool {
        matches!(self, Self::Exited { .. } | Self::Unhealthy { .. } | Self::TimedOut { .. })
    }
}
