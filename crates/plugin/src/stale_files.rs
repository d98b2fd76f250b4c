//! Removes the temporary files of killed servers: sockets of plugins, and credentials.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Prefix of directories with sockets of plugins.
pub(crate) const SOCKET_DIRECTORY_PREFIX: &str = "plimsoll-plugin-";
/// Prefix of files with credentials; the process id follows.
const CREDENTIALS_FILE_PREFIX: &str = "plimsoll-credentials-";
/// Younger files may belong to a process that is starting.
const MIN_AGE: Duration = Duration::from_mins(1);

/// Prefix of files with credentials of this process.
pub(crate) fn credentials_prefix() -> String {
    format!("{CREDENTIALS_FILE_PREFIX}{}-", std::process::id())
}

/// Removes files of processes that no longer exist; returns their number.
pub fn remove_stale_files() -> usize {
    remove_stale_files_in(&std::env::temp_dir(), MIN_AGE)
}

fn remove_stale_files_in(directory: &Path, min_age: Duration) -> usize {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let own = rustix::process::geteuid().as_raw();
    let mut removed = 0;
    for entry in entries.flatten() {
        let (name, path) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
        let Ok(meta) = std::fs::symlink_metadata(&path) else { continue };
        let age = meta.modified().ok().and_then(|time| SystemTime::now().duration_since(time).ok()).unwrap_or_default();
        if meta.uid() != own || age < min_age {
            continue;
        }
        let deleted = if name.starts_with(SOCKET_DIRECTORY_PREFIX) && meta.is_dir() {
            !has_listener(&path) && std::fs::remove_dir_all(&path).is_ok()
        } else if name.starts_with(CREDENTIALS_FILE_PREFIX) && meta.is_file() {
            is_orphaned(&name) && std::fs::remove_file(&path).is_ok()
        } else {
            false
        };
        removed += usize::from(deleted);
    }
    removed
}

/// Whether a plugin still listens on a socket in the directory.
fn has_listener(directory: &Path) -> bool {
    let sockets = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut sockets = sockets.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
    sockets.any(|socket| UnixStream::connect(socket.path()).is_ok())
}

/// Whether the process in the file name no longer exists.
fn is_orphaned(name: &str) -> bool {
    let process =
        name.strip_prefix(CREDENTIALS_FILE_PREFIX).and_then(|rest| rest.split_once('-')).map(|(process, _)| process);
    let process = process.and_then(|process| process.parse::<u32>().ok());
    process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_files_of_exited_processes_are_removed() {
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
        assert_eq!(remove_stale_files_in(directory.path(), Duration::from_hours(1)), 0, "young files are kept");
        assert_eq!(remove_stale_files_in(directory.path(), Duration::ZERO), 3);
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
