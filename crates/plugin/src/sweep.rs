//! What servers that were killed left in the directory for temporary files: sockets of plugins, and credentials.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Directories with the sockets of plugins begin like this.
pub(crate) const SOCKETS: &str = "plimsoll-plugin-";
/// Files with credentials begin like this, with the process they belong to.
const CREDENTIALS: &str = "plimsoll-credentials-";
/// What is younger may be of somebody who is just beginning.
const YOUNG: Duration = Duration::from_mins(1);

/// How a file with the credentials of this process begins.
pub(crate) fn credentials_prefix() -> String {
    format!("{CREDENTIALS}{}-", std::process::id())
}

/// Removes what belongs to nobody any longer. Returns how much that was.
pub fn sweep() -> usize {
    sweep_in(&std::env::temp_dir(), YOUNG)
}

fn sweep_in(directory: &Path, young: Duration) -> usize {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let own = rustix::process::geteuid().as_raw();
    let mut removed = 0;
    for entry in entries.flatten() {
        let (name, path) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
        let Ok(meta) = std::fs::symlink_metadata(&path) else { continue };
        let age = meta.modified().ok().and_then(|time| SystemTime::now().duration_since(time).ok()).unwrap_or_default();
        if meta.uid() != own || age < young {
            continue;
        }
        let gone = if name.starts_with(SOCKETS) && meta.is_dir() {
            !is_listened_to(&path) && std::fs::remove_dir_all(&path).is_ok()
        } else if name.starts_with(CREDENTIALS) && meta.is_file() {
            is_of_nobody(&name) && std::fs::remove_file(&path).is_ok()
        } else {
            false
        };
        removed += usize::from(gone);
    }
    removed
}

/// Whether a plugin still answers there.
fn is_listened_to(directory: &Path) -> bool {
    let sockets = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut sockets = sockets.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
    sockets.any(|socket| UnixStream::connect(socket.path()).is_ok())
}

/// Whether the process that a name tells of is no longer there.
fn is_of_nobody(name: &str) -> bool {
    let process = name.strip_prefix(CREDENTIALS).and_then(|rest| rest.split_once('-')).map(|(process, _)| process);
    let process = process.and_then(|process| process.parse::<u32>().ok());
    process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_what_belongs_to_nobody_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["plimsoll-plugin-dead", "plimsoll-plugin-live", "plimsoll-other", "plimsoll-plugin-empty"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        drop(UnixListener::bind(at("plimsoll-plugin-dead/socket")).unwrap());
        let _live = UnixListener::bind(at("plimsoll-plugin-live/socket")).unwrap();
        let ours = format!("{}x", credentials_prefix());
        for name in [ours.as_str(), "plimsoll-credentials-4194305-x", "plimsoll-credentials-odd"] {
            std::fs::write(at(name), "secret").unwrap();
        }
        assert_eq!(sweep_in(directory.path(), Duration::from_hours(1)), 0, "what is young stays");
        assert_eq!(sweep_in(directory.path(), Duration::ZERO), 3);
        let mut left: Vec<_> = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut expected =
            vec![ours, "plimsoll-credentials-odd".into(), "plimsoll-other".into(), "plimsoll-plugin-live".into()];
        expected.sort();
        assert_eq!(left, expected);
    }
}
