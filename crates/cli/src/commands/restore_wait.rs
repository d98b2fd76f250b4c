//! `plimsoll restore-wait`: the first container of a restored pod. It ends once the data of the pod's volumes is there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::args::agent::RestoreWait;
use crate::exit::Outcome;
use crate::output;

/// How soon it notices.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Where the files lie that end the waiting, below each volume.
const HANDSHAKE: &str = ".velero";

/// Waits, and says for which volumes.
pub async fn run(options: &RestoreWait) -> anyhow::Result<Outcome> {
    let name = Path::new(&options.restore).file_name();
    ensure!(name.is_some_and(|name| name == options.restore.as_str()), "{:?} is no uid", options.restore);
    let volumes = volumes(&options.directory)?;
    let mut said = Vec::new();
    loop {
        let missing: Vec<&PathBuf> =
            volumes.iter().filter(|volume| !volume.join(HANDSHAKE).join(&options.restore).exists()).collect();
        if missing.is_empty() {
            break;
        }
        if said != missing {
            let names: Vec<String> = missing.iter().map(|volume| volume.display().to_string()).collect();
            output::line(format!("waiting for the data of {}", names.join(", ")));
            said = missing;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    output::line("the data of all volumes is there");
    for volume in &volumes {
        // What it leaves behind if it may not is a directory that the next restore removes.
        let _ = std::fs::remove_dir_all(volume.join(HANDSHAKE));
    }
    Ok(Outcome::Success)
}

fn volumes(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = directory.read_dir().with_context(|| format!("cannot read {}", directory.display()))?;
    let mut volumes: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
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
        let options = RestoreWait { restore: "uid".into(), directory: mounts.path().to_owned() };
        let mut waiting = Box::pin(run(&options));
        assert!(tokio::time::timeout(LOOK_EVERY / 10, &mut waiting).await.is_err(), "volume b is not there yet");
        std::fs::write(done("b", "uid"), "").unwrap();
        assert_eq!(waiting.await.unwrap(), Outcome::Success);
        assert!(!mounts.path().join("a").join(HANDSHAKE).exists() && !mounts.path().join("b").join(HANDSHAKE).exists());
    }
}
