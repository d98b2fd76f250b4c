//! Whose lock it is: a process by a name that no other process anywhere has.
//!
//! A machine's name and a process's number say too little: pods of two clusters that share a bucket may have the same name,
//! and in a container the numbers are small. So where restic writes the machine's name into a lock, we add what makes it
//! unique. To restic that is a machine it does not know, whose locks it leaves alone for half an hour.
//!
//! ```text
//!  plimsoll-agent-x7k2p/0c4e9a1b5d7f2e38.9f86d081884c7d65.f00002a9.1c5e6b
//!   machine              pod              boot             processes since
//! ```

use std::fmt;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::system;

/// What stands for a pod where there is none.
const NO_POD: &str = "-";
/// Digits kept of an ID that is random anyway.
const DIGITS: usize = 16;

/// The process that holds a lock, without its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    machine: String,
    /// The pod whose only container it runs in.
    pod: Option<String>,
    /// The machine between two starts.
    boot: String,
    /// Where its number counts: a container has numbers of its own.
    processes: u64,
    /// When it started, in ticks since boot: numbers are used again.
    started: u64,
}

/// What this process knows about another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing: it is or was somewhere else.
    Unknown,
    /// It lives.
    Alive,
    /// It lived where we live, and is gone.
    Gone,
}

/// What the system tells about a process number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nobody,
    /// Somebody who started then, if that is told.
    Process(Option<u64>),
}

impl LockHolder {
    /// This process, in the pod with this UID if it is in one. Nothing where the system does not tell enough.
    pub fn me(pod: Option<&str>) -> Option<Self> {
        Some(Self {
            machine: system::hostname(),
            pod: pod.map(digits).filter(|pod| !pod.is_empty()),
            boot: Some(digits(&system::boot()?)).filter(|boot| !boot.is_empty())?,
            processes: system::process_namespace()?,
            started: system::started(std::process::id())?,
        })
    }

    /// The holder, as the `hostname` of a lock names it. Nothing if that is only a machine's name, as restic's is: then it is
    /// nobody's that we know.
    pub fn parse(hostname: &str) -> Option<Self> {
        let (machine, unique) = hostname.split_once('/')?;
        let parts: Vec<&str> = unique.split('.').collect();
        let &[pod, boot, processes, started] = parts.as_slice() else { return None };
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some(Self {
            machine: machine.to_owned(),
            pod: Some(pod).filter(|pod| *pod != NO_POD).map(ToOwned::to_owned),
            boot: Some(boot).filter(|boot| !boot.is_empty())?.to_owned(),
            processes: number(processes)?,
            started: number(started)?,
        })
    }

    /// What can be known here, in the pod with this UID, about this holder with this number.
    pub fn standing(&self, pid: u32, pod: Option<&str>) -> Standing {
        Self::me(pod).map_or(Standing::Unknown, |me| self.seen_by(&me, pid, find))
    }

    fn seen_by(&self, me: &Self, pid: u32, find: impl Fn(u32) -> Option<Found>) -> Standing {
        if self.boot != me.boot {
            return Standing::Unknown;
        }
        if self.processes != me.processes {
            // A container of our own pod on this same machine: it ended before ours began.
            return if self.pod.is_some() && self.pod == me.pod { Standing::Gone } else { Standing::Unknown };
        }
        match find(pid) {
            Some(Found::Process(Some(started))) if started == self.started => Standing::Alive,
            Some(Found::Nobody | Found::Process(Some(_))) => Standing::Gone,
            Some(Found::Process(None)) | None => Standing::Unknown,
        }
    }

    /// Whether it was in an earlier container of the pod with this UID, which is where this process is. On another machine there may
    /// be a copy of a pod: ask this only about what lies in the pod itself.
    pub fn was_before(&self, pod: &str) -> bool {
        Self::me(Some(pod)).is_some_and(|me| self.ended_before(&me))
    }

    fn ended_before(&self, me: &Self) -> bool {
        let container = |holder: &Self| (holder.boot.clone(), holder.processes);
        self.pod.is_some() && self.pod == me.pod && container(self) != container(me)
    }

    /// Whether it is or was in the pod with this UID, on a machine that has run since this boot ID was made.
    pub fn is_in(&self, pod: &str, boot: &str) -> bool {
        self.pod.as_ref() == Some(&digits(pod)) && self.boot == digits(boot)
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, pod, boot, processes, started } = self;
        write!(out, "{machine}/{}.{boot}.{processes:x}.{started:x}", pod.as_deref().unwrap_or(NO_POD))
    }
}

/// The machine alone, of what a lock has as its hostname: for people.
pub fn machine(hostname: &str) -> &str {
    if LockHolder::parse(hostname).is_none() {
        return hostname;
    }
    hostname.split_once('/').map_or(hostname, |(machine, _)| machine)
}

/// The first digits of a random ID.
fn digits(id: &str) -> String {
    id.chars().filter(char::is_ascii_hexdigit).take(DIGITS).collect()
}

fn find(pid: u32) -> Option<Found> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
    Some(match test_kill_process(raw) {
        Err(Errno::SRCH) => Found::Nobody,
        _ => Found::Process(system::started(pid)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(pod: Option<&str>, boot: &str, processes: u64) -> LockHolder {
        let machine = "plimsoll-agent".to_owned();
        LockHolder { machine, pod: pod.map(ToOwned::to_owned), boot: boot.into(), processes, started: 100 }
    }

    #[test]
    fn a_holder_is_read_back_as_it_was_written_and_a_plain_name_is_nobody() {
        for pod in [None, Some("0c4e9a1b5d7f2e38")] {
            let written = holder(pod, "9f86d081884c7d65", 0xf000_0123);
            assert_eq!(LockHolder::parse(&written.to_string()), Some(written.clone()));
            assert_eq!(machine(&written.to_string()), "plimsoll-agent");
        }
        let wrong = ["", "node-1.example", "host/a", "host/-.b.c", "host/-..1.2", "host/-.b.x.2", "h/-.b.1.2.3"];
        for name in wrong {
            assert_eq!(LockHolder::parse(name), None, "{name}");
            assert_eq!(machine(name), name);
        }
    }

    #[test]
    fn only_a_process_of_the_same_boot_and_numbers_or_of_an_earlier_container_of_the_pod_is_known_to_be_gone() {
        use Standing::{Alive, Gone, Unknown};
        let (nobody, same) = (Some(Found::Nobody), Some(Found::Process(Some(100))));
        let (other, untold) = (Some(Found::Process(Some(101))), Some(Found::Process(None)));
        let (pod, twin) = (Some("aaaa"), Some("bbbb"));
        let table = [
            (holder(pod, "boot", 1), nobody, Gone, "no such process"),
            (holder(pod, "boot", 1), same, Alive, "it runs"),
            (holder(pod, "boot", 1), other, Gone, "its number is another's now"),
            (holder(pod, "boot", 1), untold, Unknown, "somebody has its number, nobody says since when"),
            (holder(pod, "boot", 1), None, Unknown, "not the number of a process"),
            (holder(None, "boot", 1), nobody, Gone, "a process beside the pods"),
            (holder(pod, "boot", 2), nobody, Gone, "the container before this one"),
            (holder(pod, "boot", 2), same, Gone, "whatever has its number here"),
            (holder(twin, "boot", 2), nobody, Unknown, "another pod of the machine"),
            (holder(None, "boot", 2), nobody, Unknown, "another container of the machine"),
            (holder(pod, "else", 1), nobody, Unknown, "an equally named machine, or this one before it started"),
            (holder(pod, "else", 2), nobody, Unknown, "a pod of a copied cluster has the same UID"),
        ];
        let me = holder(pod, "boot", 1);
        for (whose, found, expected, why) in table {
            assert_eq!(whose.seen_by(&me, 7, |_| found), expected, "{why}");
        }
        let me = holder(None, "boot", 1);
        assert_eq!(holder(None, "boot", 2).seen_by(&me, 7, |_| nobody), Unknown, "no pod is no common pod");
    }

    #[test]
    fn what_lies_in_a_pod_and_is_of_another_container_is_of_one_before() {
        let me = holder(Some("aaaa"), "boot", 1);
        let ended = |pod, boot, processes| holder(pod, boot, processes).ended_before(&me);
        assert!(ended(Some("aaaa"), "boot", 2) && ended(Some("aaaa"), "else", 1) && ended(Some("aaaa"), "else", 2));
        assert!(!ended(Some("aaaa"), "boot", 1), "it may be at work");
        assert!(!ended(Some("bbbb"), "boot", 2) && !ended(None, "boot", 2));
        assert!(!holder(None, "boot", 2).ended_before(&holder(None, "boot", 1)), "no pod is no common pod");
    }

    #[test]
    fn this_process_lives_and_one_that_has_ended_is_gone() {
        let me = LockHolder::me(None).expect("Linux tells");
        let own = std::process::id();
        assert_eq!(me.standing(own, None), Standing::Alive);
        assert_eq!(me.standing(1, None), Standing::Gone, "the first process of the machine started before this one");
        let mut child = std::process::Command::new("true").spawn().expect("starts");
        child.wait().expect("ends");
        assert_eq!(me.standing(child.id(), None), Standing::Gone);
        assert_eq!(me.standing(0, None), Standing::Unknown);
        assert_eq!(me.standing(u32::MAX, None), Standing::Unknown);
    }

    #[test]
    fn a_pod_is_known_by_its_uid_and_the_boot_of_its_node_together() {
        let (uid, boot) = ("0c4e9a1b-5d7f-4e38-9d12-000000000001", "9f86d081-884c-4d65-8a2f-000000000002");
        let whose = LockHolder { pod: Some(digits(uid)), boot: digits(boot), ..holder(None, "", 1) };
        assert!(whose.is_in(uid, boot));
        assert!(!whose.is_in(boot, boot) && !whose.is_in(uid, uid));
        assert!(!holder(None, &digits(boot), 1).is_in("", boot), "without a pod it is in none");
    }
}
