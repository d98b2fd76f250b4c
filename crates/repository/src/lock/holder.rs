//! The holder of a lock: a globally unique process identity.
//!
//! A host name and a PID are not unique: pods of two clusters that share a bucket may have the same name, and PIDs in containers
//! are small. So the host name in our locks has a unique suffix. For restic that is an unknown host, whose locks are stale after
//! half an hour.
//!
//! ```text
//!  plimsoll-agent-x7k2p/0c4e9a1b5d7f2e38.9f86d081884c7d65.f00002a9.1c5e6b
//!   machine              pod              boot             pid ns.  started
//! ```

use std::fmt;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::system;

/// The placeholder without a pod.
const NO_POD: &str = "-";
/// The number of digits of shortened random IDs.
const ID_DIGITS: usize = 16;

/// The process that holds a lock, without its PID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    machine: String,
    /// The UID of the pod whose only container it runs in, shortened.
    pod: Option<String>,
    /// The boot ID of the machine, shortened.
    boot: String,
    /// The PID namespace: each container has its own.
    pid_namespace: u64,
    /// The start time in ticks since boot: PIDs are reused.
    started: u64,
}

/// The state of a lock's holder, as far as this process can know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderLiveness {
    /// Unknown: it is or was in another PID namespace.
    Unknown,
    /// It is running.
    Alive,
    /// It has ended.
    Gone,
}

/// The process with a PID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcessLookup {
    Missing,
    /// A running process with its start time, if it is readable.
    Running(Option<u64>),
}

impl LockHolder {
    /// The current process, in the pod with this UID. `None` without a readable `/proc`.
    pub fn current(pod: Option<&str>) -> Option<Self> {
        Some(Self {
            machine: system::hostname(),
            pod: pod.map(short_id).filter(|pod| !pod.is_empty()),
            boot: Some(short_id(&system::boot_id()?)).filter(|boot| !boot.is_empty())?,
            pid_namespace: system::pid_namespace()?,
            started: system::start_time(std::process::id())?,
        })
    }

    /// Parses the `hostname` of a lock. `None` for a plain host name, as in restic's locks.
    pub fn parse(hostname: &str) -> Option<Self> {
        let (machine, unique) = hostname.split_once('/')?;
        let parts: Vec<&str> = unique.split('.').collect();
        let &[pod, boot, pid_namespace, started] = parts.as_slice() else { return None };
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some(Self {
            machine: machine.to_owned(),
            pod: Some(pod).filter(|pod| *pod != NO_POD).map(ToOwned::to_owned),
            boot: Some(boot).filter(|boot| !boot.is_empty())?.to_owned(),
            pid_namespace: number(pid_namespace)?,
            started: number(started)?,
        })
    }

    /// The state of this holder with this PID, as seen from the pod with this UID.
    pub fn liveness(&self, pid: u32, pod: Option<&str>) -> HolderLiveness {
        Self::current(pod).map_or(HolderLiveness::Unknown, |current| self.liveness_from(&current, pid, look_up))
    }

    fn liveness_from(
        &self,
        current: &Self,
        pid: u32,
        look_up: impl Fn(u32) -> Option<ProcessLookup>,
    ) -> HolderLiveness {
        if self.boot != current.boot {
            return HolderLiveness::Unknown;
        }
        if self.pid_namespace != current.pid_namespace {
            // An earlier container of this pod on the same machine.
            return if self.pod.is_some() && self.pod == current.pod {
                HolderLiveness::Gone
            } else {
                HolderLiveness::Unknown
            };
        }
        match look_up(pid) {
            Some(ProcessLookup::Running(Some(started))) if started == self.started => HolderLiveness::Alive,
            Some(ProcessLookup::Missing | ProcessLookup::Running(Some(_))) => HolderLiveness::Gone,
            Some(ProcessLookup::Running(None)) | None => HolderLiveness::Unknown,
        }
    }

    /// Whether it was in an earlier container of this process's pod, which has this UID. A copied cluster may have the same pod UID
    /// on another machine, so this is valid only for files in the pod itself.
    pub fn is_earlier_container(&self, pod: &str) -> bool {
        Self::current(Some(pod)).is_some_and(|current| self.ended_before(&current))
    }

    fn ended_before(&self, current: &Self) -> bool {
        let container = |holder: &Self| (holder.boot.clone(), holder.pid_namespace);
        self.pod.is_some() && self.pod == current.pod && container(self) != container(current)
    }

    /// Whether it is or was in the pod with this UID, on a machine with this boot ID.
    pub fn is_in(&self, pod: &str, boot: &str) -> bool {
        self.pod.as_ref() == Some(&short_id(pod)) && self.boot == short_id(boot)
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, pod, boot, pid_namespace, started } = self;
        write!(out, "{machine}/{}.{boot}.{pid_namespace:x}.{started:x}", pod.as_deref().unwrap_or(NO_POD))
    }
}

/// The host name of a lock without the unique suffix, for messages.
pub fn machine(hostname: &str) -> &str {
    if LockHolder::parse(hostname).is_none() {
        return hostname;
    }
    hostname.split_once('/').map_or(hostname, |(machine, _)| machine)
}

/// Shortens a random ID.
fn short_id(id: &str) -> String {
    id.chars().filter(char::is_ascii_hexdigit).take(ID_DIGITS).collect()
}

fn look_up(pid: u32) -> Option<ProcessLookup> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
    Some(match test_kill_process(raw) {
        Err(Errno::SRCH) => ProcessLookup::Missing,
        _ => ProcessLookup::Running(system::start_time(pid)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(pod: Option<&str>, boot: &str, pid_namespace: u64) -> LockHolder {
        let machine = "plimsoll-agent".to_owned();
        LockHolder { machine, pod: pod.map(ToOwned::to_owned), boot: boot.into(), pid_namespace, started: 100 }
    }

    #[test]
    fn a_holder_survives_a_round_trip_and_a_plain_host_name_is_not_a_holder() {
        for pod in [None, Some("0c4e9a1b5d7f2e38")] {
            let written = holder(pod, "9f86d081884c7d65", 0xf000_0123);
            assert_eq!(LockHolder::parse(&written.to_string()), Some(written.clone()));
            assert_eq!(machine(&written.to_string()), "plimsoll-agent");
        }
        let invalid = ["", "node-1.example", "host/a", "host/-.b.c", "host/-..1.2", "host/-.b.x.2", "h/-.b.1.2.3"];
        for name in invalid {
            assert_eq!(LockHolder::parse(name), None, "{name}");
            assert_eq!(machine(name), name);
        }
    }

    #[test]
    fn liveness_is_known_only_in_the_same_pid_namespace_or_pod() {
        use HolderLiveness::{Alive, Gone, Unknown};
        let (missing, same) = (Some(ProcessLookup::Missing), Some(ProcessLookup::Running(Some(100))));
        let (other, unreadable) = (Some(ProcessLookup::Running(Some(101))), Some(ProcessLookup::Running(None)));
        let (pod, twin) = (Some("aaaa"), Some("bbbb"));
        let table = [
            (holder(pod, "boot", 1), missing, Gone, "no such process"),
            (holder(pod, "boot", 1), same, Alive, "it is running"),
            (holder(pod, "boot", 1), other, Gone, "its PID was reused"),
            (holder(pod, "boot", 1), unreadable, Unknown, "the start time is unreadable"),
            (holder(pod, "boot", 1), None, Unknown, "an invalid PID"),
            (holder(None, "boot", 1), missing, Gone, "a process outside of pods"),
            (holder(pod, "boot", 2), missing, Gone, "an earlier container of the pod"),
            (holder(pod, "boot", 2), same, Gone, "an earlier container, whose PID is in use here"),
            (holder(twin, "boot", 2), missing, Unknown, "another pod on the machine"),
            (holder(None, "boot", 2), missing, Unknown, "another container on the machine"),
            (holder(pod, "else", 1), missing, Unknown, "another machine with the same name, or an earlier boot"),
            (holder(pod, "else", 2), missing, Unknown, "a pod of a copied cluster has the same UID"),
        ];
        let current = holder(pod, "boot", 1);
        for (lock_holder, process, expected, case) in table {
            assert_eq!(lock_holder.liveness_from(&current, 7, |_| process), expected, "{case}");
        }
        let current = holder(None, "boot", 1);
        assert_eq!(
            holder(None, "boot", 2).liveness_from(&current, 7, |_| missing),
            Unknown,
            "without a pod there is no common pod"
        );
    }

    #[test]
    fn another_container_of_the_same_pod_is_an_earlier_one() {
        let current = holder(Some("aaaa"), "boot", 1);
        let ended = |pod, boot, pid_namespace| holder(pod, boot, pid_namespace).ended_before(&current);
        assert!(ended(Some("aaaa"), "boot", 2) && ended(Some("aaaa"), "else", 1) && ended(Some("aaaa"), "else", 2));
        assert!(!ended(Some("aaaa"), "boot", 1), "it may be running");
        assert!(!ended(Some("bbbb"), "boot", 2) && !ended(None, "boot", 2));
        assert!(
            !holder(None, "boot", 2).ended_before(&holder(None, "boot", 1)),
            "without a pod there is no common pod"
        );
    }

    #[test]
    fn the_current_process_is_alive_and_an_ended_one_is_gone() {
        let current = LockHolder::current(None).expect("available on Linux");
        let own = std::process::id();
        assert_eq!(current.liveness(own, None), HolderLiveness::Alive);
        assert_eq!(current.liveness(1, None), HolderLiveness::Gone, "the init process started before this one");
        let mut child = std::process::Command::new("true").spawn().expect("starts");
        child.wait().expect("ends");
        assert_eq!(current.liveness(child.id(), None), HolderLiveness::Gone);
        assert_eq!(current.liveness(0, None), HolderLiveness::Unknown);
        assert_eq!(current.liveness(u32::MAX, None), HolderLiveness::Unknown);
    }

    #[test]
    fn a_pod_is_identified_by_its_uid_and_its_nodes_boot_id() {
        let (uid, boot) = ("0c4e9a1b-5d7f-4e38-9d12-000000000001", "9f86d081-884c-4d65-8a2f-000000000002");
        let lock_holder = LockHolder { pod: Some(short_id(uid)), boot: short_id(boot), ..holder(None, "", 1) };
        assert!(lock_holder.is_in(uid, boot));
        assert!(!lock_holder.is_in(boot, boot) && !lock_holder.is_in(uid, uid));
        assert!(!holder(None, &short_id(boot), 1).is_in("", boot), "without a pod");
    }
}
