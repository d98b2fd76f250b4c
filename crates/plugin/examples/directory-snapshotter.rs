//! A VolumeSnapshotter for volumes that are directories of the node: snapshots are copies. A template for plugins in Rust.
//!
//! It runs under Plimsoll and under Velero, and implements the progress extension. Config of the snapshot location: `root`, the
//! directory of snapshots and restored volumes (required); `pace`, the pause after each file in milliseconds, to observe the
//! progress; `background`, `true` to continue a copy after its call has returned.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_plugin::LogLevel;
use plimsoll_plugin::framework::{Plugin, SnapshotRequest, Status, VolumeSnapshotter, log};
use plimsoll_plugin::wire::{OperationProgress, SnapshotProgressRequest};
use serde_json::{Value, json};

/// A domain that you own, and a name.
const NAME: &str = "plimsoll.dev/directory-snapshotter";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    Plugin::new().snapshotter(NAME, Directories::default()).serve().await?;
    Ok(())
}

#[derive(Default)]
struct Directories(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    root: PathBuf,
    pace: Duration,
    background: bool,
    /// Progress by backup and path of the volume, or by snapshot id.
    copies: HashMap<String, OperationProgress>,
}

impl Directories {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies a directory on a blocking thread and counts the bytes.
    async fn copy(&self, from: PathBuf, to: PathBuf, key: String) -> Result<(), Status> {
        let (state, pace) = (Arc::clone(&self.0), self.state().pace);
        let background = self.state().background;
        let copied = tokio::task::spawn_blocking(move || {
            let mut copy = Copy { state: &state, key: &key, pace };
            let done = copy.copy_all(&from, &to);
            copy.update(|progress| {
                progress.completed = true;
                progress.err = done.as_ref().err().map(ToString::to_string).unwrap_or_default();
            });
            done
        });
        if background {
            return Ok(());
        }
        match copied.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Status::internal(format!("failed to copy: {error}"))),
            Err(_) => Err(Status::internal("the copy panicked")),
        }
    }
}

struct Copy<'a> {
    state: &'a Mutex<State>,
    key: &'a str,
    pace: Duration,
}

impl Copy<'_> {
    fn update(&mut self, change: impl FnOnce(&mut OperationProgress)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(state.copies.entry(self.key.to_owned()).or_default());
    }

    fn copy_all(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let total = size_of(from)?;
        let operation_units = "Bytes".to_owned();
        self.update(|progress| {
            *progress = OperationProgress { n_total: total, operation_units, ..OperationProgress::default() }
        });
        // An interrupted copy must not look like a snapshot.
        let partial = to.with_extension("partial");
        let _ = std::fs::remove_dir_all(&partial);
        self.copy_directory(from, &partial)?;
        // A repeated request replaces the snapshot.
        let _ = std::fs::remove_dir_all(to);
        std::fs::rename(&partial, to)
    }

    fn copy_directory(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::create_dir_all(to)?;
        for entry in std::fs::read_dir(from)? {
            let entry = entry?;
            let (source, target) = (entry.path(), to.join(entry.file_name()));
            if entry.file_type()?.is_dir() {
                self.copy_directory(&source, &target)?;
                continue;
            }
            let copied = i64::try_from(std::fs::copy(&source, &target)?).unwrap_or(i64::MAX);
            self.update(|progress| {
                progress.n_completed += copied;
                progress.description = format!("copied {}", source.display());
            });
            std::thread::sleep(self.pace);
        }
        Ok(())
    }
}

fn size_of(directory: &Path) -> io::Result<i64> {
    let mut total = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        total += if meta.is_dir() { size_of(&entry.path())? } else { i64::try_from(meta.len()).unwrap_or(0) };
    }
    Ok(total)
}

/// The key of the copy of a volume for a backup, before the snapshot has an id.
fn key_of(volume: &str, tags: &HashMap<String, String>) -> String {
    format!("{} {volume}", tags.get("velero.io/backup").map_or("", String::as_str))
}

#[async_trait::async_trait]
impl VolumeSnapshotter for Directories {
    async fn init(&self, config: HashMap<String, String>) -> Result<(), Status> {
        let root = config.get("root").ok_or_else(|| Status::invalid_argument("config root is missing"))?;
        let pace = config.get("pace").and_then(|pace| pace.parse().ok()).unwrap_or(0);
        let background = config.get("background").is_some_and(|value| value == "true");
        let mut state = self.state();
        (state.root, state.pace, state.background) = (PathBuf::from(root), Duration::from_millis(pace), background);
        log(LogLevel::Info, &format!("snapshots are stored in {root}"));
        Ok(())
    }

    async fn volume_id(&self, volume: Value) -> Result<String, Status> {
        let path = ["/spec/hostPath/path", "/spec/local/path"].iter().find_map(|at| volume.pointer(at));
        Ok(path.and_then(Value::as_str).unwrap_or_default().to_owned())
    }

    async fn set_volume_id(&self, mut volume: Value, id: String) -> Result<Value, Status> {
        let kind = if volume.pointer("/spec/local").is_some() { "local" } else { "hostPath" };
        volume["spec"][kind]["path"] = json!(id);
        Ok(volume)
    }

    async fn volume_info(&self, _: String) -> Result<(String, i64), Status> {
        Ok(("directory".to_owned(), 0))
    }

    async fn create_snapshot(&self, request: SnapshotRequest) -> Result<String, Status> {
        let tag = |key: &str| request.tags.get(key).map_or("unnamed", String::as_str);
        let name = format!("{}-{}", tag("velero.io/backup"), tag("velero.io/pv"));
        let to = self.state().root.join("snapshots").join(&name);
        self.copy(PathBuf::from(&request.volume), to, key_of(&request.volume, &request.tags)).await?;
        Ok(name)
    }

    async fn create_volume(&self, snapshot: String) -> Result<String, Status> {
        let root = self.state().root.clone();
        let to = root.join("volumes").join(format!("{snapshot}-{}", std::process::id()));
        self.copy(root.join("snapshots").join(&snapshot), to.clone(), snapshot).await?;
        Ok(to.display().to_string())
    }

    async fn delete_snapshot(&self, snapshot: String) -> Result<(), Status> {
        match std::fs::remove_dir_all(self.state().root.join("snapshots").join(snapshot)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Status::internal(error.to_string())),
            _ => Ok(()),
        }
    }

    async fn progress(&self, request: SnapshotProgressRequest) -> Result<OperationProgress, Status> {
        let snapshot_key = key_of(&request.volume_id, &request.tags);
        let key = if request.restoring { request.snapshot_id.clone() } else { snapshot_key };
        let state = self.state();
        let exists = state.root.join("snapshots").join(&request.snapshot_id).is_dir();
        match state.copies.get(&key) {
            Some(progress) => Ok(progress.clone()),
            // EngineFuture about what another process has made.
            None if exists && !request.snapshot_id.is_empty() => {
                Ok(OperationProgress { completed: true, ..OperationProgress::default() })
            }
            None => Ok(OperationProgress::default()),
        }
    }
}
