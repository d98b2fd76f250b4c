//! Lock files and their evaluation.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::LockKind;
use super::holder::{HolderLiveness, LockHolder, machine};
use crate::format::id::Id;
use crate::format::time::Time;
use crate::system;

/// The content of a lock file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockFile {
    /// When it was created, by the holder's clock.
    pub time: Time,
    /// Whether it is exclusive.
    #[serde(default)]
    pub exclusive: bool,
    /// The holder's host name; our locks have a [`LockHolder`].
    #[serde(default)]
    pub hostname: String,
    /// The holder's user name.
    #[serde(default)]
    pub username: String,
    /// The holder's process ID.
    #[serde(default)]
    pub pid: u32,
    /// The holder's UID.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub uid: u32,
    /// The holder's GID.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gid: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// A lock that was not refreshed for this long is stale and may be removed on request.
pub(super) const STALE_AGE: Duration = Duration::from_mins(30);

impl LockFile {
    /// The lock file of this process, in the pod with this UID.
    pub(super) fn current(kind: LockKind, pod: Option<&str>) -> Self {
        let (uid, gid, username) = system::current_user();
        let exclusive = kind == LockKind::Exclusive;
        let hostname = LockHolder::current(pod).map_or_else(system::hostname, |holder| holder.to_string());
        Self { time: Time::now(), exclusive, hostname, username, pid: std::process::id(), uid, gid }
    }

    /// Whether its process is known to have ended, as seen from the pod with this UID. Unknown for locks with a plain host name, as
    /// of restic: another machine may have the same name.
    pub(super) fn holder_has_ended(&self, pod: Option<&str>) -> bool {
        LockHolder::parse(&self.hostname).is_some_and(|holder| holder.liveness(self.pid, pod) == HolderLiveness::Gone)
    }

    fn holder(&self) -> String {
        let kind = if self.exclusive { "exclusively " } else { "" };
        format!("{kind}{}@{} (process {}) since {}", self.username, machine(&self.hostname), self.pid, self.time)
    }
}

/// A lock of another process, with its age by the store's clock.
pub(super) struct OtherLock {
    pub id: Id,
    /// Its content, or why it cannot be read.
    pub file: Result<LockFile, String>,
    /// By the store's clock.
    pub modified: SystemTime,
    pub age: Duration,
    /// Whether its holder is known to have ended. Age alone does not prove that in a single observation.
    pub is_orphaned: bool,
}

impl OtherLock {
    /// Whether `unlock` may remove it.
    pub(super) fn is_stale(&self) -> bool {
        self.age > STALE_AGE || self.is_orphaned
    }

    /// Its content. For an unreadable lock, the store's time and an exclusive lock.
    pub(super) fn into_file(self) -> LockFile {
        let unknown = LockFile {
            time: self.modified.into(),
            exclusive: true,
            hostname: String::new(),
            username: String::new(),
            pid: 0,
            uid: 0,
            gid: 0,
        };
        self.file.unwrap_or(unknown)
    }

    /// Whether it conflicts with a lock of this kind. An unreadable lock may be exclusive.
    pub(super) fn conflicts_with(&self, kind: LockKind) -> bool {
        kind == LockKind::Exclusive || self.file.as_ref().map_or(true, |file| file.exclusive)
    }

    pub(super) fn holder(&self) -> String {
        match &self.file {
            Ok(file) => file.holder(),
            Err(cause) => format!("an unknown process with unreadable lock {} ({cause})", self.id.short()),
        }
    }
}
