//! What can go wrong with a plugin, by name.

use std::time::Duration;

use crate::catalog::Kind;

/// The result of anything that is asked of a plugin.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a plugin did not do what it was asked to. `plugin` is the name of its binary, or its registered name in a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Its process could not be started.
    #[error("plugin {plugin} cannot be started: {cause}")]
    NotStarted {
        /// The plugin.
        plugin: String,
        /// What the system said.
        cause: String,
    },
    /// It said nothing within the time for its handshake.
    #[error("plugin {plugin} did not say hello within {} s: is it a Velero plugin?", limit.as_secs())]
    HandshakeTimedOut {
        /// The plugin.
        plugin: String,
        /// The time it had.
        limit: Duration,
    },
    /// What it wrote to its standard output first is not a handshake.
    #[error("plugin {plugin} wrote {line:?} where its handshake belongs: nothing else may go to standard output")]
    HandshakeInvalid {
        /// The plugin.
        plugin: String,
        /// What it wrote, cut.
        line: String,
    },
    /// Its handshake is valid, but for another host.
    #[error("plugin {plugin} is not compatible: {what}")]
    Incompatible {
        /// The plugin.
        plugin: String,
        /// What does not fit.
        what: String,
    },
    /// Its process has ended.
    #[error("plugin {plugin} ended ({how}){}", last_words(said))]
    Exited {
        /// The plugin.
        plugin: String,
        /// Exit code or signal.
        how: String,
        /// The last thing it wrote to standard error.
        said: String,
    },
    /// Its process is there and does not answer its health check.
    #[error("plugin {plugin} does not answer its health check ({cause}): its process was killed")]
    Unhealthy {
        /// The plugin.
        plugin: String,
        /// What became of the check.
        cause: String,
    },
    /// It did not answer in time; its process is healthy.
    #[error("plugin {plugin}: {call} took longer than {} s", limit.as_secs())]
    TimedOut {
        /// The plugin.
        plugin: String,
        /// The method.
        call: String,
        /// The time it had.
        limit: Duration,
    },
    /// A message is larger than we take.
    #[error("plugin {plugin}: {call}: a message is larger than allowed ({detail})")]
    Oversized {
        /// The plugin.
        plugin: String,
        /// The method.
        call: String,
        /// Its size and the limit, as far as known.
        detail: String,
    },
    /// It ended too often.
    #[error("plugin {plugin} ended {times} times within {} min and is left alone for now; the last time: {last}", within.as_secs() / 60)]
    GivenUp {
        /// The plugin.
        plugin: String,
        /// How often.
        times: usize,
        /// In what time.
        within: Duration,
        /// Its last end.
        last: String,
    },
    /// It said no.
    #[error("plugin {plugin}: {call}: {message}")]
    Refused {
        /// The plugin.
        plugin: String,
        /// The method.
        call: String,
        /// Its words, cleaned.
        message: String,
    },
    /// It does not know this method.
    #[error("plugin {plugin} does not know {call}")]
    Unimplemented {
        /// The plugin.
        plugin: String,
        /// The method.
        call: String,
    },
    /// What it answered makes no sense.
    #[error("plugin {plugin}: {call}: the answer is not valid: {detail}")]
    AnswerInvalid {
        /// The plugin.
        plugin: String,
        /// The method.
        call: String,
        /// What is wrong with it.
        detail: String,
    },
    /// What it says it offers cannot be used.
    #[error("plugin {plugin}: {detail}")]
    ListInvalid {
        /// The plugin.
        plugin: String,
        /// What is wrong with its list.
        detail: String,
    },
    /// No binary offers this.
    #[error("no plugin offers {kind} {name:?}: add its image with `plimsoll plugin add`")]
    NotFound {
        /// What is asked for.
        kind: Kind,
        /// The registered name.
        name: String,
    },
}

fn last_words(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!("; its last words: {said}") }
}

impl Error {
    /// A stable word for conditions, metrics and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotStarted { .. } => "PluginNotStarted",
            Self::HandshakeTimedOut { .. } => "PluginHandshakeTimedOut",
            Self::HandshakeInvalid { .. } => "PluginHandshakeInvalid",
            Self::Incompatible { .. } => "PluginIncompatible",
            Self::Exited { .. } => "PluginExited",
            Self::Unhealthy { .. } => "PluginUnhealthy",
            Self::TimedOut { .. } => "PluginTimedOut",
            Self::Oversized { .. } => "PluginMessageTooLarge",
            Self::GivenUp { .. } => "PluginGivenUp",
            Self::Refused { .. } => "PluginRefused",
            Self::Unimplemented { .. } => "PluginMethodUnknown",
            Self::AnswerInvalid { .. } => "PluginAnswerInvalid",
            Self::ListInvalid { .. } => "PluginListInvalid",
            Self::NotFound { .. } => "PluginNotFound",
        }
    }

    /// Whether a new process may do better. Says nothing about whether the call may be repeated: that is the caller's to know.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Exited { .. } | Self::Unhealthy { .. } | Self::TimedOut { .. })
    }

    /// Whether the plugin may have done what it was asked to, and could no longer say so.
    pub fn leaves_doubt(&self) -> bool {
        matches!(self, Self::Exited { .. } | Self::Unhealthy { .. } | Self::TimedOut { .. })
    }
}
