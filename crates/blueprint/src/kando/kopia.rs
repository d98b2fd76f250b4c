//! The commands of `kando` with a profile of a Kopia server: they run the program kopia.
//!
//! As in Kanister, the data of `push` is a file in a snapshot of its own, and the snapshot is the output of the phase.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use plimsoll_progress::{Frame, Meter, Total};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::process::Command;

use super::protocol::Output;
use super::transfer::{RunningCommand, TransferSummary, bytes_of, key};
use super::{KandoError, Result};
use crate::kopia_server::{KopiaServer, Manifest, PASSWORD_VARIABLE, VARIABLES, global_arguments};

/// The directory of a snapshot whose path has none.
const DEFAULT_DIRECTORY: &str = "/kanister-backups";
/// Where our init container puts the program for images that have none.
const INSTALLED: &str = "/plimsoll-tools/kopia";
/// The output of `push` without `--output-name`.
pub const DEFAULT_OUTPUT: &str = "kandoOutput";
const CHUNK_SIZE: usize = 256 * 1024;

/// A snapshot, as `kopiaSnapshot` of an artifact has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotInfo {
    /// The id.
    pub id: String,
    /// Bytes of the data.
    #[serde(default)]
    pub logical_size: u64,
    /// Always 0, as in Kanister.
    #[serde(default)]
    pub physical_size: u64,
}

impl SnapshotInfo {
    /// Parses the value of `--kopia-snapshot`.
    pub fn parse(text: &str) -> Result<Self> {
        let parsed: Option<Self> = serde_json::from_str(text).ok();
        parsed.filter(|info| !info.id.is_empty()).ok_or(KandoError::InvalidSnapshot)
    }

    /// The output of a phase.
    pub fn to_output(&self, name: &str) -> Result<Output> {
        // A string and two numbers: serialization cannot fail.
        Output::new(name, &serde_json::to_string(self).unwrap_or_default())
    }
}

/// kopia, connected to the server of a profile. Its configuration is removed when this is dropped.
#[derive(Debug)]
pub struct KopiaKando {
    server: KopiaServer,
    program: PathBuf,
    directory: PathBuf,
}

impl Drop for KopiaKando {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl KopiaKando {
    /// Connects to the server, with the kopia of the image or the one that was installed with this program.
    pub async fn connect(server: &KopiaServer) -> Result<Self> {
        Self::connect_with(program(&std::env::var_os("PATH").unwrap_or_default()), server).await
    }

    /// Connects to the server with this kopia.
    pub async fn connect_with(program: PathBuf, server: &KopiaServer) -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("kando-kopia-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&directory).map_err(|error| KandoError::local("create a directory for kopia", error))?;
        let kando = Self { server: server.clone(), program, directory };
        kando.output(kando.server.connect(&kando.directory.to_string_lossy())).await?;
        Ok(kando)
    }

    /// Uploads `source` as the file at `path` of a new snapshot. `size` is the size of the source, if known.
    pub async fn push(
        &self,
        path: &str,
        source: impl AsyncRead + Unpin,
        size: Option<u64>,
        report: impl FnMut(&Frame),
    ) -> Result<SnapshotInfo> {
        let (directory, file) = split(path)?;
        let running = RunningCommand::new(None, "push", path);
        let bytes = bytes_of(&running, size);
        let mut saved = None;
        let work = async {
            let mut arguments = global_arguments(&self.directory.to_string_lossy());
            arguments.extend(["snapshot", "create", "--json", "--flush-per-source"].map(str::to_owned));
            arguments.extend([format!("--stdin-file={file}"), directory.clone()]);
            let output = self.feed(arguments, source, &bytes).await?;
            let manifest = Manifest::parse(&output).filter(|manifest| !manifest.id.is_empty());
            let manifest = manifest.ok_or_else(|| KandoError::kopia("printed no snapshot"))?;
            if !manifest.incomplete.is_empty() || manifest.failed() > 0 {
                return Err(KandoError::kopia(format!("the snapshot is incomplete: {}", manifest.incomplete)));
            }
            let moved = TransferSummary { bytes: manifest.size(), objects: 1 };
            saved = Some(SnapshotInfo { id: manifest.id, logical_size: moved.bytes, physical_size: 0 });
            Ok(moved)
        };
        running.run_with_progress(report, work).await?;
        saved.ok_or_else(|| KandoError::kopia("printed no snapshot"))
    }

    /// Downloads the file at `path` of a snapshot.
    pub async fn pull(
        &self,
        path: &str,
        snapshot: &SnapshotInfo,
        target: impl AsyncWrite + Unpin,
        report: impl FnMut(&Frame),
    ) -> Result<TransferSummary> {
        let (_, file) = split(path)?;
        let running = RunningCommand::new(None, "pull", path);
        let bytes = bytes_of(&running, None);
        let work = async {
            let shown = self.output(self.arguments(["manifest", "show", &snapshot.id])).await?;
            let manifest = Manifest::parse(&shown).ok_or_else(|| KandoError::kopia("printed no snapshot"))?;
            let object = manifest.object_of(&file).ok_or_else(|| KandoError::kopia("the snapshot is empty"))?;
            bytes.set_total(Total::Final(manifest.size()));
            let moved = self.drain(self.arguments(["show", &object]), target, &bytes).await?;
            if moved != manifest.size() {
                let (path, expected) = (path.to_owned(), manifest.size());
                return Err(KandoError::Truncated { path, expected, found: moved });
            }
            Ok(TransferSummary { bytes: moved, objects: 1 })
        };
        running.run_with_progress(report, work).await
    }

    /// Deletes a snapshot.
    pub async fn delete(
        &self,
        path: &str,
        snapshot: &SnapshotInfo,
        report: impl FnMut(&Frame),
    ) -> Result<TransferSummary> {
        let running = RunningCommand::new(None, "delete", path);
        let work = async {
            self.output(self.arguments(["snapshot", "delete", "--delete", &snapshot.id])).await?;
            Ok(TransferSummary { bytes: 0, objects: 1 })
        };
        running.run_with_progress(report, work).await
    }

    fn arguments<const N: usize>(&self, more: [&str; N]) -> Vec<String> {
        let mut arguments = global_arguments(&self.directory.to_string_lossy());
        arguments.extend(more.map(str::to_owned));
        arguments
    }

    fn command(&self, arguments: Vec<String>) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).envs(VARIABLES).env(PASSWORD_VARIABLE, self.server.password());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    fn spawn(&self, mut command: Command) -> Result<tokio::process::Child> {
        command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => KandoError::KopiaMissing,
            _ => KandoError::local(format!("start {}", self.program.display()), error),
        })
    }

    /// Runs a command and returns its stdout.
    async fn output(&self, arguments: Vec<String>) -> Result<String> {
        let child = self.spawn(self.command(arguments))?;
        let output = child.wait_with_output().await.map_err(|error| KandoError::local("run kopia", error))?;
        if !output.status.success() {
            return Err(failure(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs a command with `source` as its stdin and returns its stdout.
    async fn feed(&self, arguments: Vec<String>, mut source: impl AsyncRead + Unpin, bytes: &Meter) -> Result<String> {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped());
        let mut child = self.spawn(command)?;
        // Closed at the end of the data only: kopia would store what it has as a whole. After an error it is killed first.
        let mut stdin = child.stdin.take();
        let feeding = async {
            let mut chunk = vec![0; CHUNK_SIZE];
            loop {
                let read = source.read(&mut chunk).await;
                let read = read.map_err(|error| KandoError::local("read the data to push", error))?;
                let written = match &mut stdin {
                    Some(stdin) if read > 0 => stdin.write_all(&chunk[..read]).await.is_ok(),
                    _ => false,
                };
                // A command that has ended reads no more: its error says why.
                if !written {
                    drop(stdin.take());
                    return Ok(());
                }
                bytes.add(read as u64);
            }
        };
        let ending = async {
            let output = child.wait_with_output().await.map_err(|error| KandoError::local("run kopia", error))?;
            if output.status.success() { Ok(output) } else { Err(failure(&output.stderr)) }
        };
        let ((), output) = tokio::try_join!(feeding, ending)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs a command and copies its stdout to `target`.
    async fn drain(&self, arguments: Vec<String>, mut target: impl AsyncWrite + Unpin, bytes: &Meter) -> Result<u64> {
        let mut child = self.spawn(self.command(arguments))?;
        let stdout = child.stdout.take();
        let copying = async {
            let (mut total, Some(mut stdout)) = (0, stdout) else { return Ok(0) };
            let mut chunk = vec![0; CHUNK_SIZE];
            loop {
                let read =
                    stdout.read(&mut chunk).await.map_err(|error| KandoError::local("read from kopia", error))?;
                if read == 0 {
                    let flushed = target.flush().await;
                    return flushed.map(|()| total).map_err(|error| KandoError::local("write the pulled data", error));
                }
                let written = target.write_all(&chunk[..read]).await;
                written.map_err(|error| KandoError::local("write the pulled data", error))?;
                total += read as u64;
                bytes.add(read as u64);
            }
        };
        let ending = async {
            let output = child.wait_with_output().await.map_err(|error| KandoError::local("run kopia", error))?;
            if output.status.success() { Ok(()) } else { Err(failure(&output.stderr)) }
        };
        let (total, ()) = tokio::try_join!(copying, ending)?;
        Ok(total)
    }
}

/// The error of a command, from the end of its stderr.
fn failure(stderr: &[u8]) -> KandoError {
    let text = String::from_utf8_lossy(stderr);
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no reason is given");
    KandoError::kopia(last)
}

/// The program in the image, or the one that our init container installed.
fn program(path: &std::ffi::OsStr) -> PathBuf {
    let found = std::env::split_paths(path).map(|directory| directory.join("kopia")).find(|program| program.is_file());
    let installed = || Some(PathBuf::from(INSTALLED)).filter(|program| program.is_file());
    found.or_else(installed).unwrap_or_else(|| Path::new("kopia").to_owned())
}

/// The directory and the file of a path in a snapshot.
fn split(path: &str) -> Result<(String, String)> {
    let key = key(path)?;
    Ok(match key.rsplit_once('/') {
        Some((directory, file)) => (format!("/{directory}"), file.to_owned()),
        None => (DEFAULT_DIRECTORY.to_owned(), key),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_file_in_a_directory_of_a_snapshot() {
        assert_eq!(split("dump.sql").unwrap(), ("/kanister-backups".into(), "dump.sql".into()));
        assert_eq!(split("/a//b/dump.sql").unwrap(), ("/a/b".into(), "dump.sql".into()));
        assert!(split("/").is_err() && split("a/../b").is_err());
    }

    #[test]
    fn a_snapshot_is_the_json_that_kanister_writes() {
        let info = SnapshotInfo { id: "1f".into(), logical_size: 7, physical_size: 0 };
        let line = info.to_output(DEFAULT_OUTPUT).unwrap();
        assert_eq!(
            (line.key.as_str(), line.value.as_str()),
            ("kandoOutput", r#"{"id":"1f","logicalSize":7,"physicalSize":0}"#)
        );
        assert_eq!(SnapshotInfo::parse(&line.value).unwrap(), info);
        for wrong in ["", "{}", r#"{"id":""}"#, "1f"] {
            assert!(SnapshotInfo::parse(wrong).is_err(), "{wrong}");
        }
    }
}
