//! What the driver keeps: volumes and snapshots as directories, and what is known of each as a file beside it.
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

/// The directory below which everything is.
#[derive(Debug, Clone)]
pub struct Directories(PathBuf);

/// What is known of a volume.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VolumeFacts {
    pub size: i64,
}

/// What is known of a snapshot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SnapshotFacts {
    pub volume: String,
    pub size: i64,
    pub created: SystemTime,
    pub ready: SystemTime,
}

impl SnapshotFacts {
    pub fn is_ready(&self) -> bool {
        self.ready <= SystemTime::now()
    }
}

type Answer<T> = Result<T, Box<Status>>;

impl Directories {
    pub fn below(root: &Path) -> std::io::Result<Self> {
        for kind in ["volumes", "snapshots"] {
            fs::create_dir_all(root.join(kind))?;
        }
        Ok(Self(root.to_owned()))
    }

    pub fn volume(&self, id: &str) -> Answer<PathBuf> {
        self.path("volumes", id)
    }

    pub fn volume_facts(&self, id: &str) -> Answer<Option<VolumeFacts>> {
        read(&self.facts("volumes", id)?)
    }

    pub fn snapshot_facts(&self, id: &str) -> Answer<Option<SnapshotFacts>> {
        read(&self.facts("snapshots", id)?)
    }

    pub fn snapshots(&self) -> Answer<Vec<(String, SnapshotFacts)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.0.join("snapshots")).map_err(internal)? {
            let name = entry.map_err(internal)?.file_name().to_string_lossy().into_owned();
            let Some(id) = name.strip_suffix(".json") else { continue };
            if let Some(facts) = self.snapshot_facts(id)? {
                found.push((id.to_owned(), facts));
            }
        }
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(found)
    }

    /// An empty volume, or one with the content of a snapshot. One that is there already stays as it is.
    pub fn create_volume(&self, id: &str, size: i64, snapshot: Option<&str>) -> Answer<VolumeFacts> {
        if let Some(facts) = self.volume_facts(id)? {
            return Ok(facts);
        }
        let directory = self.volume(id)?;
        match snapshot {
            Some(snapshot) => copy(&self.path("snapshots", snapshot)?, &directory)?,
            None => make(&directory)?,
        }
        write(&self.facts("volumes", id)?, VolumeFacts { size })
    }

    /// A copy of a volume that becomes ready after a while. One that is there already stays as it is.
    pub fn create_snapshot(&self, id: &str, volume: &str, ready_after: Duration) -> Answer<SnapshotFacts> {
        if let Some(facts) = self.snapshot_facts(id)? {
            return Ok(facts);
        }
        let size = match self.volume_facts(volume)? {
            Some(facts) => facts.size,
            None => return Err(Box::new(Status::not_found(format!("there is no volume {volume}")))),
        };
        copy(&self.volume(volume)?, &self.path("snapshots", id)?)?;
        let created = SystemTime::now();
        let facts = SnapshotFacts { volume: volume.to_owned(), size, created, ready: created + ready_after };
        write(&self.facts("snapshots", id)?, facts)
    }

    pub fn delete_volume(&self, id: &str) -> Answer<()> {
        self.delete("volumes", id)
    }

    pub fn delete_snapshot(&self, id: &str) -> Answer<()> {
        self.delete("snapshots", id)
    }

    fn delete(&self, kind: &str, id: &str) -> Answer<()> {
        let (facts, directory) = (self.facts(kind, id)?, self.path(kind, id)?);
        // First what says that it is there: half a directory must never count as a volume.
        for gone in [fs::remove_file(facts), fs::remove_dir_all(directory)] {
            match gone {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(internal(error)),
                _ => {}
            }
        }
        Ok(())
    }

    fn path(&self, kind: &str, id: &str) -> Answer<PathBuf> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if id.is_empty() || id.starts_with('.') || !id.chars().all(plain) {
            return Err(Box::new(Status::invalid_argument(format!("{id:?} is no name that this driver gives"))));
        }
        Ok(self.0.join(kind).join(id))
    }

    fn facts(&self, kind: &str, id: &str) -> Answer<PathBuf> {
        let mut path = self.path(kind, id)?.into_os_string();
        path.push(".json");
        Ok(path.into())
    }
}

#[expect(clippy::unnecessary_box_returns, reason = "it is the error of every answer here")]
fn internal(error: impl std::fmt::Display) -> Box<Status> {
    Box::new(Status::internal(error.to_string()))
}

fn read<T: DeserializeOwned>(path: &Path) -> Answer<Option<T>> {
    match fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(internal),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(internal(error)),
    }
}

fn write<T: Serialize>(path: &Path, facts: T) -> Answer<T> {
    let text = serde_json::to_vec(&facts).map_err(internal)?;
    fs::write(path, text).map_err(internal)?;
    Ok(facts)
}

/// Anybody may write there, as on a new disk with a file system of its own.
fn make(directory: &Path) -> Answer<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::create_dir_all(directory).map_err(internal)?;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).map_err(internal)
}

/// Everything, with owners, modes, times and links; what an earlier try has left is removed first.
fn copy(from: &Path, to: &Path) -> Answer<()> {
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
    fn a_volume_from_a_snapshot_has_what_the_volume_had_when_it_was_taken() {
        let root = tempfile::tempdir().unwrap();
        let directories = Directories::below(root.path()).unwrap();
        directories.create_volume("v", 10, None).unwrap();
        let file = directories.volume("v").unwrap().join("file");
        fs::write(&file, "before").unwrap();
        let facts = directories.create_snapshot("s", "v", Duration::ZERO).unwrap();
        assert!(facts.is_ready() && facts.size == 10);
        fs::write(&file, "after").unwrap();
        // Asked again, it is the same one.
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
