//! What a lock file says, and what follows from it.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::LockKind;
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
    /// The holder's machine.
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
    pub(super) fn mine(kind: LockKind) -> Self {
        let (uid, gid, username) = system::current_user();
        let exclusive = kind == LockKind::Exclusive;
        let (hostname, pid) = (system::hostname(), std::process::id());
        Self { time: Time::now(), exclusive, hostname, username, pid, uid, gid }
    }

    /// Whether the process that wrote it is known to be gone: only its own machine can know.
    pub(super) fn holder_is_gone(&self) -> bool {
        let pid = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw);
        self.hostname == system::hostname()
            && pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
    }

    fn holder(&self) -> String {
        let kind = if self.exclusive { "exclusively " } else { "" };
        format!("{kind}{}@{} (process {}) since {}", self.username, self.hostname, self.pid, self.time)
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
}

impl OtherLock {
    /// Whether its holder is known to be gone: such a lock is in nobody's way. Age alone proves nothing to one who looks only
    /// once.
    pub(super) fn is_left_behind(&self) -> bool {
        self.file.as_ref().is_ok_and(LockFile::holder_is_gone)
    }

    /// Whether it may go when somebody asks for it.
    pub(super) fn is_stale(&self) -> bool {
        self.age > STALE || self.is_left_behind()
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
