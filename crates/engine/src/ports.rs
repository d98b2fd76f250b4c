//! What the engine needs of whoever runs it: durable intents, and leave to act.

use std::fmt;

use futures::future::BoxFuture;
use plimsoll_progress::Task;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Error;
use crate::exec::Command;

/// Something that cannot be repeated or must be undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
#[non_exhaustive]
pub enum Effect {
    /// The first write into the location: what lies there afterwards without a commit is ours to remove.
    Begin {
        /// Where it writes, e.g. `backups/x/`.
        prefix: String,
    },
    /// The write that makes the operation's result visible to others.
    Commit {
        /// The object that is written last.
        key: String,
    },
    /// Commands in a pod that come in pairs: what is opened must be closed.
    Hooks {
        /// `namespace/name`.
        pod: String,
        /// Its uid.
        uid: String,
        /// What closes the pair.
        post: Vec<Command>,
    },
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin { prefix } => write!(f, "begin {prefix}"),
            Self::Commit { key } => write!(f, "commit {key}"),
            Self::Hooks { pod, .. } => write!(f, "hooks of pod {pod}"),
        }
    }
}

/// The journal: effects, never items.
///
/// # Guarantees
/// When [`Journal::intend`] returns, the intent is durable and survives this process. When [`Journal::settle`] returns, so
/// does the result. Both may be called at the same time; commits are grouped.
pub trait Journal: Send + Sync {
    /// Makes an intent durable, before its effect.
    fn intend(&self, effect: Effect) -> BoxFuture<'_, Result<IntentId, Error>>;
    /// Makes the result of an effect durable, before anything relies on it.
    fn settle(&self, intent: IntentId, result: String) -> BoxFuture<'_, Result<(), Error>>;
}

/// Names an intent within its journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct IntentId(pub u64);

/// Leave to act: held by whoever leads.
pub trait Guard: Send + Sync {
    /// Asked before every effect. Cheap; an error means that this process must stop.
    fn effect(&self) -> Result<(), Error>;
    /// Asked before a commit. Proves, against the API server, that nobody has taken over.
    fn commit(&self) -> BoxFuture<'_, Result<(), Error>>;
}

/// Backs up what the volumes of pods hold.
pub trait Volumes: Send + Sync {
    /// Whether a pod has volumes to back up.
    fn wants(&self, pod: &Value) -> bool;
    /// Backs them up; called between the pod's pre-hooks and post-hooks. Returns when the pod no longer needs to stand still.
    fn back_up<'a>(&'a self, pod: &'a Value, task: &'a Task) -> BoxFuture<'a, Result<(), Error>>;
}
