//! `plimsoll restore-wait`: the first container of a restored pod. It ends once the data of the pod's volumes is there.

use std::io::{Error as IoError, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tokio::time::Instant;

use crate::args::agent::RestoreWait;
use crate::exit::Outcome;
use crate::output;

/// How often the volumes are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long a volume that cannot be read is checked: while data comes the volume's mode and owner may still change. Then
/// it exits with the reason, which the restore reads; a restart checks again.
const UNREADABLE_TIMEOUT: Duration = Duration::from_secs(10);
/// The directory in each volume with the files that end the wait.
const DONE_DIRECTORY: &str = ".velero";

/// Waits, and prints for which volumes.
pub async fn run(options: &RestoreWait) -> anyhow::Result<Outcome> {
    let name = Path::new(&options.restore).file_name();
    ensure!(name.is_some_and(|name| name == options.restore.as_str()), "{:?} is not a UID", options.restore);
    if options.hold {
        std::future::pending::<()>().await;
    }
    wait(options, UNREADABLE_TIMEOUT).await
}

async fn wait(options: &RestoreWait, patience: Duration) -> anyhow::Result<Outcome> {
    let volumes = volumes(&options.directory)?;
    let (mut said, mut kept_out) = (Vec::new(), None);
    loop {
        let VolumeCheck { missing, refusals } = check_volumes(&volumes, &options.restore);
        if missing.is_empty() {
            break;
        }
        if refusals.is_empty() {
            kept_out = None;
        } else if kept_out.get_or_insert_with(Instant::now).elapsed() >= patience {
            bail!("{}", refusals.join("; "));
        }
        if said != missing {
            let names: Vec<String> = missing.iter().map(|volume| volume.display().to_string()).collect();
            output::line(format!("waiting for the data of {}", names.join(", ")));
            said = missing;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    output::line("the data of all volumes is restored");
    for volume in &volumes {
        // What it leaves behind if it may not is a directory that the next restore removes.
        let _ = std::fs::remove_dir_all(volume.join(DONE_DIRECTORY));
    }
    Ok(Outcome::Success)
}

/// The state of the volumes.
struct VolumeCheck<'v> {
    /// Volumes whose data is not known to be restored.
    missing: Vec<&'v PathBuf>,
    /// Why some of them cannot be read.
    refusals: Vec<String>,
}

fn check_volumes<'v>(volumes: &'v [PathBuf], restore: &str) -> VolumeCheck<'v> {
    let mut looked = VolumeCheck { missing: Vec::new(), refusals: Vec::new() };
    for volume in volumes {
        match is_there(&volume.join(DONE_DIRECTORY).join(restore)) {
            Ok(true) => continue,
            Ok(false) => {}
            Err(error) => looked.refusals.push(refusal(volume, &error)),
        }
        looked.missing.push(volume);
    }
    looked
}

/// Whether a file exists. An error means unknown.
fn is_there(file: &Path) -> Result<bool, IoError> {
    match file.symlink_metadata() {
        Ok(_) => Ok(true),
        // A restored object with the name of the directory is replaced when the file is written.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The error text, for the administrator.
fn refusal(volume: &Path, error: &IoError) -> String {
    let words = format!("restore-wait cannot read {}: {error}", volume.display());
    let Some(found) = volume.metadata().ok().filter(|_| error.kind() == ErrorKind::PermissionDenied) else {
        return words;
    };
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    format!(
        "{words}: it belongs to user {} and group {} with mode {:04o}, and this is user {user} and group {group}; name a user who \
         may in runAsUser of the pod, or in secCtxRunAsUser of the ConfigMap of velero.io/pod-volume-restore",
        found.uid(),
        found.gid(),
        found.mode() & 0o7777
    )
}

fn volumes(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = directory.read_dir().with_context(|| format!("cannot read {}", directory.display()))?;
    let mut volumes = Vec::new();
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot read {}", directory.display()))?;
        // By what the directory says of it: a volume that cannot be looked at is not left out for that.
        if entry.file_type().with_context(|| format!("cannot look at {}", entry.path().display()))?.is_dir() {
            volumes.push(entry.path());
        }
    }
    ensure!(!volumes.is_empty(), "no volume is mounted below {}: there is nothing to wait for", directory.display());
    volumes.sort();
    Ok(volumes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_ends_once_every_volume_has_the_marker_of_this_restore_and_removes_the_markers() {
        let mounts = tempfile::tempdir().unwrap();
        for volume in ["a", "b"] {
            std::fs::create_dir_all(mounts.path().join(volume).join(DONE_DIRECTORY)).unwrap();
        }
        let done = |volume: &str, uid: &str| mounts.path().join(volume).join(DONE_DIRECTORY).join(uid);
        std::fs::write(done("a", "uid"), "").unwrap();
        std::fs::write(done("b", "another"), "").unwrap();
        let options = RestoreWait { restore: "uid".into(), directory: mounts.path().to_owned(), hold: false };
        let mut waiting = Box::pin(run(&options));
        assert!(tokio::time::timeout(POLL_INTERVAL / 10, &mut waiting).await.is_err(), "volume b is not there yet");
        std::fs::write(done("b", "uid"), "").unwrap();
        assert_eq!(waiting.await.unwrap(), Outcome::Success);
        assert!(
            !mounts.path().join("a").join(DONE_DIRECTORY).exists()
                && !mounts.path().join("b").join(DONE_DIRECTORY).exists()
        );
    }

    #[tokio::test]
    async fn a_pod_without_volumes_is_an_error() {
        let mounts = tempfile::tempdir().unwrap();
        std::fs::write(mounts.path().join("file"), "").unwrap();
        let options = RestoreWait { restore: "uid".into(), directory: mounts.path().to_owned(), hold: false };
        assert!(run(&options).await.unwrap_err().to_string().starts_with("no volume is mounted below /"));
    }

    /// The result of waiting for a volume of another user, as a user other than root.
    fn wait_for_a_closed(volume: &str) -> anyhow::Result<Outcome> {
        use rustix::process::{Uid, geteuid};
        use std::os::unix::fs::PermissionsExt;
        let mounts = tempfile::tempdir().unwrap();
        let volume = mounts.path().join(volume);
        std::fs::create_dir_all(volume.join(DONE_DIRECTORY)).unwrap();
        std::fs::write(volume.join(DONE_DIRECTORY).join("uid"), "").unwrap();
        let set = |path: &Path, mode: u32| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        set(mounts.path(), 0o755);
        set(&volume, 0o000);
        let options = RestoreWait { restore: "uid".into(), directory: mounts.path().to_owned(), hold: false };
        let waiting = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            if geteuid().is_root() {
                let other = Uid::from_raw(65534);
                rustix::thread::set_thread_res_uid(other, other, other).unwrap();
            }
            runtime.block_on(wait(&options, Duration::ZERO))
        };
        // Only this thread changes its user.
        let answer = std::thread::spawn(waiting).join().unwrap();
        set(&volume, 0o700);
        answer
    }

    #[test]
    fn an_unreadable_volume_is_an_error_that_names_it() {
        let error = wait_for_a_closed("data").unwrap_err().to_string();
        assert!(
            error.starts_with("restore-wait cannot read /") && error.contains("/data: Permission denied"),
            "{error}"
        );
        assert!(error.contains("mode 0000, and this is user"), "{error}");
    }

    #[test]
    fn only_a_missing_marker_is_awaited() {
        let volume = tempfile::tempdir().unwrap();
        let file = volume.path().join(DONE_DIRECTORY).join("uid");
        assert!(!is_there(&file).unwrap(), "nothing is there");
        std::fs::write(volume.path().join(DONE_DIRECTORY), "").unwrap();
        assert!(!is_there(&file).unwrap(), "a file of the user's has the directory's name");
        let endless = volume.path().join("x".repeat(300));
        assert!(is_there(&endless).is_err(), "an error of the system is reported");
    }
}
