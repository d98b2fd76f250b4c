//! Information about this machine and its users.

use std::collections::HashMap;

/// The machine's name.
pub(crate) fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The number of processors that this process may use.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get)
}

/// The boot ID, which changes whenever the machine starts.
pub(crate) fn boot_id() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()
}

/// The PID namespace of this process.
pub(crate) fn pid_namespace() -> Option<u64> {
    let link = std::fs::read_link("/proc/self/ns/pid").ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// The start time of a process, in ticks since boot.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Names of users or groups by ID, from the local files. Names from a directory service would make a tree depend on its
/// availability.
#[derive(Debug, Default)]
pub(crate) struct Names(HashMap<u32, Vec<u8>>);

impl Names {
    pub(crate) fn of_users() -> Self {
        Self::read("/etc/passwd")
    }

    pub(crate) fn of_groups() -> Self {
        Self::read("/etc/group")
    }

    fn read(file: &str) -> Self {
        Self::parse(&std::fs::read(file).unwrap_or_default())
    }

    fn parse(text: &[u8]) -> Self {
        let mut names = HashMap::new();
        for line in text.split(|byte| *byte == b'\n') {
            let mut fields = line.split(|byte| *byte == b':');
            let (name, number) = (fields.next(), fields.nth(1));
            let number = number.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
            if let (Some(name), Some(number)) = (name, number) {
                names.entry(number).or_insert_with(|| name.to_vec());
            }
        }
        Self(names)
    }

    pub(crate) fn get(&self, number: u32) -> Vec<u8> {
        self.0.get(&number).cloned().unwrap_or_default()
    }
}

/// The user of this process: UID, GID and name.
pub(crate) fn current_user() -> (u32, u32, String) {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    (uid, gid, String::from_utf8_lossy(&Names::of_users().get(uid)).into_owned())
}
