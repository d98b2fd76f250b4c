//! The storage of the driver: volumes and snapshots are directories, each with a file that describes it.
//!
//! ```text
//! <root>/volumes/<id>/            <root>/volumes/<id>.json      {size}
//! <root>/snapshots/<id>/          <root>/snapshots/<id>.json    {volume, size, created, ready}
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tonic::Status;

/// The root directory of the storage.
#[derive(Debug, Clone)]
pub struct Directories(PathBuf);

/// The description of a volume.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VolumeRecord {
    pub size: i64,
}

/// The description of a snapshot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SnapshotRecord {
    pub volume: String,
    pub size: i64,
    pub created: SystemTime,
    pub ready: SystemTime,
}

impl SnapshotRecord {
    pub fn is_ready(&self) -> bool {
        self.ready <= SystemTime::now()
    }
}

type DriverResult<T> = Result<T, Box<Status>>;

impl Directories {
    pub fn create(root: &Path) -> std::io::Result<Self> {
        for kind in ["volumes", "snapshots"] {
            fs::create_dir_all(root.join(kind))?;
        }
        Ok(Self(root.to_owned()))
    }

    pub fn volume(&self, id: &str) -> DriverResult<PathBuf> {
        self.path("volumes", id)
    }

    pub fn volume_record(&self, id: &str) -> DriverResult<Option<VolumeRecord>> {
        read(&self.record("volumes", id)?)
    }

    pub fn snapshot_record(&self, id: &str) -> DriverResult<Option<SnapshotRecord>> {
        read(&self.record("snapshots", id)?)
    }

    pub fn snapshots(&self) -> DriverResult<Vec<(String, SnapshotRecord)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.0.join("snapshots")).map_err(internal)? {
            let name = entry.map_err(internal)?.file_name().to_string_lossy().into_owned();
            let Some(id) = name.strip_suffix(".json") else { continue };
            if let Some(record) = self.snapshot_record(id)? {
                found.push((id.to_owned(), record));
            }
        }
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(found)
    }

    /// Creates an empty volume, or one with the content of a snapshot. An existing one is not changed.
    pub fn create_volume(&self, id: &str, size: i64, snapshot: Option<&str>) -> DriverResult<VolumeRecord> {
        if let Some(record) = self.volume_record(id)? {
            return Ok(record);
        }
        let directory = self.volume(id)?;
        match snapshot {
            Some(snapshot) => copy_directory(&self.path("snapshots", snapshot)?, &directory)?,
            None => create_directory(&directory)?,
        }
        write(&self.record("volumes", id)?, VolumeRecord { size })
    }

    /// Creates a copy of a volume that becomes ready after a delay. An existing one is not changed.
    pub fn create_snapshot(&self, id: &str, volume: &str, ready_after: Duration) -> DriverResult<SnapshotRecord> {
        if let Some(record) = self.snapshot_record(id)? {
            return Ok(record);
        }
        let size = match self.volume_record(volume)? {
            Some(record) => record.size,
            None => return Err(Box::new(Status::not_found(format!("there is no volume {volume}")))),
        };
        copy_directory(&self.volume(volume)?, &self.path("snapshots", id)?)?;
        let created = SystemTime::now();
        let record = SnapshotRecord { volume: volume.to_owned(), size, created, ready: created + ready_after };
        write(&self.record("snapshots", id)?, record)
    }

    pub fn delete_volume(&self, id: &str) -> DriverResult<()> {
        self.delete("volumes", id)
    }

    pub fn delete_snapshot(&self, id: &str) -> DriverResult<()> {
        self.delete("snapshots", id)
    }

    fn delete(&self, kind: &str, id: &str) -> DriverResult<()> {
        let (record, directory) = (self.record(kind, id)?, self.path(kind, id)?);
        // The description first: an incomplete directory must never count as a volume.
        for removed in [fs::remove_file(record), fs::remove_dir_all(directory)] {
            match removed {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(internal(error)),
                _ => {}
            }
        }
        Ok(())
    }

    fn path(&self, kind: &str, id: &str) -> DriverResult<PathBuf> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if id.is_empty() || id.starts_with('.') || !id.chars().all(plain) {
            return Err(Box::new(Status::invalid_argument(format!("{id:?} is not an id of this driver"))));
        }
        Ok(self.0.join(kind).join(id))
    }

    fn record(&self, kind: &str, id: &str) -> DriverResult<PathBuf> {
        let mut path = self.path(kind, id)?.into_os_string();
        path.push(".json");
        Ok(path.into())
    }
}

#[expect(clippy::unnecessary_box_returns, reason = "it is the error type of every method")]
fn internal(error: impl std::fmt::Display) -> Box<Status> {
    Box::new(Status::internal(error.to_string()))
}

fn read<T: DeserializeOwned>(path: &Path) -> DriverResult<Option<T>> {
    match fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(internal),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(internal(error)),
    }
}

fn write<T: Serialize>(path: &Path, record: T) -> DriverResult<T> {
    let text = serde_json::to_vec(&record).map_err(internal)?;
    fs::write(path, text).map_err(internal)?;
    Ok(record)
}

/// Writable for all users, as a new file system.
fn create_directory(directory: &Path) -> DriverResult<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::create_dir_all(directory).map_err(internal)?;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).map_err(internal)
}

/// Copies a directory with owners, modes, times and links. An incomplete copy is removed first.
fn copy_directory(from: &Path, to: &Path) -> DriverResult<()> {
    if !from.is_dir() {
        return Err(Box::new(Status::not_found(format!("there is no {}", from.display()))));
    }
    let _ = fs::remove_dir_all(to);
    let output =
        Command::new("cp").args(["--archive", "--reflink=auto"]).args([from, to]).output().map_err(internal)?;
    if !output.status.success() {
        return Err(internal(String::from_utf8_lossy(&output.stderr)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_from_a_snapshot_has_the_content_at_the_time_of_the_snapshot() {
        let root = tempfile::tempdir().unwrap();
        let directories = Directories::create(root.path()).unwrap();
        directories.create_volume("v", 10, None).unwrap();
        let file = directories.volume("v").unwrap().join("file");
        fs::write(&file, "before").unwrap();
        let record = directories.create_snapshot("s", "v", Duration::ZERO).unwrap();
        assert!(record.is_ready() && record.size == 10);
        fs::write(&file, "after").unwrap();
        // A second request returns the same snapshot.
        directories.create_snapshot("s", "v", Duration::ZERO).unwrap();
        directories.create_volume("w", 20, Some("s")).unwrap();
        assert_eq!(fs::read_to_string(directories.volume("w").unwrap().join("file")).unwrap(), "before");
        directories.delete_snapshot("s").unwrap();
        directories.delete_snapshot("s").unwrap();
        assert!(directories.snapshots().unwrap().is_empty());
        assert!(directories.create_volume("x", 1, Some("s")).is_err());
        assert!(directories.volume("../v").is_err());
    }
}
