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

/// How soon it notices.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long it looks at a volume that it cannot look into: while data comes the volume's mode and owner may still change. Then
/// it ends and says why, where the restore can read it; whoever starts it again lets it look again.
const PATIENCE: Duration = Duration::from_secs(10);
/// Where the files lie that end the waiting, below each volume.
const HANDSHAKE: &str = ".velero";

/// Waits, and says for which volumes.
pub async fn run(options: &RestoreWait) -> anyhow::Result<Outcome> {
    let name = Path::new(&options.restore).file_name();
    ensure!(name.is_some_and(|name| name == options.restore.as_str()), "{:?} is no uid", options.restore);
    if options.hold {
        std::future::pending::<()>().await;
    }
    wait(options, PATIENCE).await
}

async fn wait(options: &RestoreWait, patience: Duration) -> anyhow::Result<Outcome> {
    let volumes = volumes(&options.directory)?;
    let (mut said, mut kept_out) = (Vec::new(), None);
    loop {
        let Looked { missing, refusals } = look(&volumes, &options.restore);
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
        tokio::time::sleep(LOOK_EVERY).await;
    }
    output::line("the data of all volumes is restored");
    for volume in &volumes {
        // What it leaves behind if it may not is a directory that the next restore removes.
        let _ = std::fs::remove_dir_all(volume.join(HANDSHAKE));
    }
    Ok(Outcome::Success)
}

/// What was found in the volumes.
struct Looked<'v> {
    /// Those whose data is not known to be there.
    missing: Vec<&'v PathBuf>,
    /// Why some of them cannot even be looked into.
    refusals: Vec<String>,
}

fn look<'v>(volumes: &'v [PathBuf], restore: &str) -> Looked<'v> {
    let mut looked = Looked { missing: Vec::new(), refusals: Vec::new() };
    for volume in volumes {
        match is_there(&volume.join(HANDSHAKE).join(restore)) {
            Ok(true) => continue,
            Ok(false) => {}
            Err(error) => looked.refusals.push(refusal(volume, &error)),
        }
        looked.missing.push(volume);
    }
    looked
}

/// Whether a file is there. An error is that nobody can tell.
fn is_there(file: &Path) -> Result<bool, IoError> {
    match file.symlink_metadata() {
        Ok(_) => Ok(true),
        // What was restored under the directory's name is replaced by whoever puts the file there.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What is wrong, for whoever can mend it.
fn refusal(volume: &Path, error: &IoError) -> String {
    let words = format!("restore-wait cannot look into {}: {error}", volume.display());
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
    async fn it_ends_once_every_volume_has_the_file_of_this_restore_and_takes_the_files_along() {
        let mounts = tempfile::tempdir().unwrap();
        for volume in ["a", "b"] {
            std::fs::create_dir_all(mounts.path().join(volume).join(HANDSHAKE)).unwrap();
        }
        let done = |volume: &str, uid: &str| mounts.path().join(volume).join(HANDSHAKE).join(uid);
        std::fs::write(done("a", "uid"), "").unwrap();
        std::fs::write(done("b", "another"), "").unwrap();
        let options = RestoreWait { restore: "uid".into(), directory: mounts.path().to_owned(), hold: false };
        let mut waiting = Box::pin(run(&options));
        assert!(tokio::time::timeout(LOOK_EVERY / 10, &mut waiting).await.is_err(), "volume b is not there yet");
        std::fs::write(done("b", "uid"), "").unwrap();
        assert_eq!(waiting.await.unwrap(), Outcome::Success);
        assert!(!mounts.path().join("a").join(HANDSHAKE).exists() && !mounts.path().join("b").join(HANDSHAKE).exists());
    }

    #[tokio::test]
    async fn a_pod_without_volumes_to_wait_for_is_not_let_go() {
        let mounts = tempfile::tempdir().unwrap();
        std::fs::write(mounts.path().join("file"), "").unwrap();
        let options = RestoreWait { restore: "uid".into(), directory: mounts.path().to_owned(), hold: false };
        assert!(run(&options).await.unwrap_err().to_string().starts_with("no volume is mounted below /"));
    }

    /// What comes of waiting for a volume that belongs to somebody else. Root may look everywhere, so it is not root who waits.
    fn wait_for_a_closed(volume: &str) -> anyhow::Result<Outcome> {
        use rustix::process::{Uid, geteuid};
        use std::os::unix::fs::PermissionsExt;
        let mounts = tempfile::tempdir().unwrap();
        let volume = mounts.path().join(volume);
        std::fs::create_dir_all(volume.join(HANDSHAKE)).unwrap();
        std::fs::write(volume.join(HANDSHAKE).join("uid"), "").unwrap();
        let set = |path: &Path, mode: u32| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        set(mounts.path(), 0o755);
        set(&volume, 0o000);
        let options = RestoreWait { restore: "uid".into(), directory: mounts.path().to_owned(), hold: false };
        let waiting = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            if geteuid().is_root() {
                let nobody = Uid::from_raw(65534);
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            }
            runtime.block_on(wait(&options, Duration::ZERO))
        };
        // Only this thread becomes somebody else.
        let answer = std::thread::spawn(waiting).join().unwrap();
        set(&volume, 0o700);
        answer
    }

    #[test]
    fn a_volume_that_it_may_not_look_into_is_named_and_not_waited_for_for_ever() {
        let error = wait_for_a_closed("data").unwrap_err().to_string();
        assert!(
            error.starts_with("restore-wait cannot look into /") && error.contains("/data: Permission denied"),
            "{error}"
        );
        assert!(error.contains("mode 0000, and this is user"), "{error}");
    }

    #[test]
    fn only_what_says_nothing_is_waited_for() {
        let volume = tempfile::tempdir().unwrap();
        let file = volume.path().join(HANDSHAKE).join("uid");
        assert!(!is_there(&file).unwrap(), "nothing is there");
        std::fs::write(volume.path().join(HANDSHAKE), "").unwrap();
        assert!(!is_there(&file).unwrap(), "a file of the user's has the directory's name");
        let endless = volume.path().join("x".repeat(300));
        assert!(is_there(&endless).is_err(), "the system has something to say");
    }
}
