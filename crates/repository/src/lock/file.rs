//! What a lock file says, and what follows from it.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::LockKind;
use super::holder::{LockHolder, Standing, machine};
use crate::format::id::Id;
use crate::format::time::Time;
use crate::system;

/// What a lock file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockFile {
    /// When it was written, by the holder's clock.
    pub time: Time,
    /// Whether it excludes everybody else.
    #[serde(default)]
    pub exclusive: bool,
    /// The holder's machine; of ours [more than that](LockHolder).
    #[serde(default)]
    pub hostname: String,
    /// The holder's name.
    #[serde(default)]
    pub username: String,
    /// The holder's process.
    #[serde(default)]
    pub pid: u32,
    /// The holder's number.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub uid: u32,
    /// The holder's group.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gid: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// A lock that was not refreshed for so long may be taken away by whoever is asked to.
pub(super) const STALE: Duration = Duration::from_mins(30);

impl LockFile {
    /// One for this process, in the pod with this UID if it is in one.
    pub(super) fn mine(kind: LockKind, pod: Option<&str>) -> Self {
        let (uid, gid, username) = system::current_user();
        let exclusive = kind == LockKind::Exclusive;
        let hostname = LockHolder::me(pod).map_or_else(system::hostname, |me| me.to_string());
        Self { time: Time::now(), exclusive, hostname, username, pid: std::process::id(), uid, gid }
    }

    /// Whether the process that wrote it is known to be gone, as it can be known in the pod with this UID. Of one that did not
    /// say more than its machine's name, as restic does not, nothing is known: there may be another machine of that name.
    pub(super) fn holder_is_gone(&self, pod: Option<&str>) -> bool {
        LockHolder::parse(&self.hostname).is_some_and(|holder| holder.standing(self.pid, pod) == Standing::Gone)
    }

    fn holder(&self) -> String {
        let kind = if self.exclusive { "exclusively " } else { "" };
        format!("{kind}{}@{} (process {}) since {}", self.username, machine(&self.hostname), self.pid, self.time)
    }
}

/// A lock of another process, with its age by the store's clock.
pub(super) struct OtherLock {
    pub id: Id,
    /// What it says, or why that cannot be read.
    pub file: Result<LockFile, String>,
    /// By the store's clock.
    pub modified: SystemTime,
    pub age: Duration,
    /// Whether its holder is known to be gone: such a lock is in nobody's way. Age alone proves nothing to one who looks only
    /// once.
    pub is_left_behind: bool,
}

impl OtherLock {
    /// Whether it may go when somebody asks for it.
    pub(super) fn is_stale(&self) -> bool {
        self.age > STALE || self.is_left_behind
    }

    /// What it says; of one that cannot be read, when the store got it.
    pub(super) fn known(self) -> LockFile {
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

    /// Whether it excludes a lock of this kind. One that cannot be read may be exclusive.
    pub(super) fn excludes(&self, kind: LockKind) -> bool {
        kind == LockKind::Exclusive || self.file.as_ref().map_or(true, |file| file.exclusive)
    }

    pub(super) fn holder(&self) -> String {
        match &self.file {
            Ok(file) => file.holder(),
            Err(cause) => format!("somebody whose lock {} cannot be read ({cause})", self.id.short()),
        }
    }
}
