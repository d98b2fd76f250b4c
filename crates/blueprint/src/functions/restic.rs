//! restic in a container: commands, `--json` output and exit codes.

use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::call::Call;
use super::exec::{Exec, ExitResult, OutputListener, PROGRAM_NOT_FOUND};
use super::location_delete::profile;
use super::phase_meters::{Direction, TransferProgress};
use crate::Error;

/// Exit code for a missing repository, since restic 0.17.
const NO_REPOSITORY: i32 = 10;
/// Exit code for a wrong password, since restic 0.17.
const WRONG_PASSWORD: i32 = 12;
/// Number of last bytes of output in an error message.
const TAIL_BYTES: usize = 4 << 10;

/// restic in one container, on one repository.
pub struct Restic<'a> {
    call: &'a Call,
    namespace: String,
    pod: String,
    container: Option<String>,
    variables: Vec<(&'static str, String)>,
    options: Vec<String>,
}

/// Why a repository cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepositoryError {
    /// The repository does not exist.
    NotFound,
    /// The password is wrong.
    WrongPassword,
}

/// A line of `--json`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Message {
    #[serde(rename = "message_type")]
    kind: String,
    total_bytes: Option<u64>,
    bytes_done: Option<u64>,
    bytes_restored: Option<u64>,
    bytes_skipped: Option<u64>,
    seconds_remaining: Option<u64>,
    seconds_elapsed: u64,
    current_files: Vec<serde::de::IgnoredAny>,
    snapshot_id: Option<String>,
    total_files_processed: u64,
    total_bytes_processed: u64,
    data_added: Option<u64>,
    data_added_packed: Option<u64>,
}

impl Message {
    /// The progress after this message. restic's estimate of the remaining time is ignored: ours is computed from the bytes.
    fn progress(&self, before: TransferProgress, direction: Direction, scanned: bool) -> TransferProgress {
        let restored = self.bytes_restored.unwrap_or(0).saturating_add(self.bytes_skipped.unwrap_or(0));
        let mut progress = TransferProgress { direction, seconds_left: None, ..before };
        match (self.kind.as_str(), direction) {
            ("summary", Direction::Upload) => return self.saved().progress(),
            ("summary", Direction::Download) => {
                progress.read = self.total_bytes.unwrap_or(restored);
                progress.total = Some(progress.read);
            }
            _ => {
                progress.read = progress.read.max(self.bytes_done.unwrap_or(restored));
                // The total of a backup grows while restic scans.
                if scanned || direction == Direction::Download {
                    progress.total = self.total_bytes.or(progress.total);
                }
            }
        }
        if direction == Direction::Download {
            progress.sent = Some(progress.read);
        }
        progress
    }

    /// Whether everything that restic has found so far was read.
    fn is_all_read(&self) -> bool {
        self.bytes_done.is_some() && self.bytes_done == self.total_bytes && self.current_files.is_empty()
    }

    fn saved(&self) -> BackupSummary {
        BackupSummary {
            id: self.snapshot_id.clone().unwrap_or_default().chars().take(8).collect(),
            files: self.total_files_processed,
            size: self.total_bytes_processed,
            added: self.data_added_packed.or(self.data_added).unwrap_or(0),
        }
    }
}

/// Whether restic has found everything that it backs up: it does not say so.
#[derive(Debug, Default)]
struct Scan {
    /// When everything found was read for the first time: the total, and the seconds since the start.
    all_read: Option<(Option<u64>, u64)>,
}

impl Scan {
    /// Whether the total of a message is known: restic estimates the time left, or it has found nothing more for a second since
    /// everything was read. The latter is so while the data is still uploaded.
    fn is_complete(&mut self, message: &Message) -> bool {
        if message.seconds_remaining.is_some() {
            return true;
        }
        if !message.is_all_read() {
            self.all_read = None;
            return false;
        }
        let now = (message.total_bytes, message.seconds_elapsed);
        if let Some((_, since)) = self.all_read.filter(|(total, _)| *total == now.0) {
            now.1 > since
        } else {
            self.all_read = Some(now);
            false
        }
    }
}

/// The result of a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupSummary {
    /// The short snapshot id, as in Kanister.
    pub id: String,
    /// Number of files.
    pub files: u64,
    /// Size of the files in bytes.
    pub size: u64,
    /// Bytes added to the repository.
    pub added: u64,
}

impl BackupSummary {
    /// The progress of a complete backup.
    pub fn progress(&self) -> TransferProgress {
        let (read, total, sent) = (self.size, Some(self.size), Some(self.added));
        TransferProgress { direction: Direction::Upload, read, total, sent, seconds_left: None }
    }
}

/// A snapshot, as `restic snapshots --json` lists it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// The full id.
    pub id: String,
    /// The paths in the snapshot.
    pub paths: Vec<String>,
}

/// The default password of repositories: the same as Kanister's, for compatibility.
pub fn default_password() -> String {
    hex::encode(Sha256::digest(b"testpassword"))
}

impl<'a> Restic<'a> {
    /// restic in a container, on the repository at `prefix` of the profile's store.
    pub fn new(call: &'a Call, at: (&str, &str, Option<&str>), prefix: &str) -> Result<Self, Error> {
        let profile = profile(call)?;
        let password = call.arguments.optional_text("encryptionKey")?.unwrap_or_else(default_password);
        let mut options = vec!["--no-cache".to_owned()];
        if call.arguments.flag("insecureTLS", false)? || profile.skip_verification {
            options.push("--insecure-tls".into());
        }
        Ok(Self {
            call,
            namespace: at.0.to_owned(),
            pod: at.1.to_owned(),
            container: at.2.map(str::to_owned),
            variables: profile.restic(&profile.with_bucket(prefix), &password)?,
            options,
        })
    }

    fn exec(&self, arguments: &[&str]) -> Result<Exec, Error> {
        let words =
            ["restic"].into_iter().chain(self.options.iter().map(String::as_str)).chain(arguments.iter().copied());
        let command = words.map(str::to_owned).collect();
        Exec::new(&self.namespace, &self.pod, self.container.as_deref(), command).with_variables(&self.variables)
    }

    /// Runs a command; returns its output or failure.
    async fn run(
        &self,
        arguments: &[&str],
        mover: Option<(&str, Direction)>,
    ) -> Result<Result<ResticOutput<'a>, ResticFailure>, Error> {
        let exec = self.exec(arguments)?;
        self.call.host.authorize_effect()?;
        let mut output = ResticOutput {
            call: self.call,
            mover: mover.map(|(name, direction)| (name.to_owned(), direction)),
            ..ResticOutput::new(self.call)
        };
        let ended = exec.run(&self.call.client, &mut output).await?;
        output.end();
        match ended {
            ExitResult::Success => Ok(Ok(output)),
            ExitResult::ExitCode(code) if PROGRAM_NOT_FOUND.contains(&code) => Err(Error::Unsupported(format!(
                "restic not found in pod {}, container {}: use an image with restic, or a sidecar",
                exec.path(),
                self.container.as_deref().unwrap_or("(first)")
            ))),
            ExitResult::ExitCode(code) => {
                let tail = self.call.params.redact(output.output_tail().trim());
                Ok(Err(ResticFailure {
                    repository_error: repository_error(code, &tail),
                    error: exec.failed(code, &tail),
                }))
            }
        }
    }

    async fn run_for_output(&self, arguments: &[&str]) -> Result<String, Error> {
        let result = self.run(arguments, None).await?;
        result.map(ResticOutput::text).map_err(|failed| failed.error)
    }

    /// Whether the container has restic and a shell.
    pub async fn is_available(&self) -> Result<bool, Error> {
        let exec = self.exec(&["version"])?;
        let ended = exec.run(&self.call.client, &mut ResticOutput::new(self.call)).await?;
        Ok(!matches!(ended, ExitResult::ExitCode(code) if PROGRAM_NOT_FOUND.contains(&code)))
    }

    /// Checks the repository; returns the error, if any.
    pub async fn repository_error(&self) -> Result<Option<RepositoryError>, Error> {
        match self.run(&["cat", "config"], None).await? {
            Ok(_) => Ok(None),
            Err(ResticFailure { repository_error: Some(repository_error), .. }) => Ok(Some(repository_error)),
            Err(ResticFailure { error, .. }) => Err(error),
        }
    }

    /// Creates the repository if it does not exist.
    pub async fn ensure(&self) -> Result<(), Error> {
        match self.repository_error().await? {
            None => Ok(()),
            Some(RepositoryError::WrongPassword) => {
                Err(Error::argument("encryptionKey", "wrong password for the repository"))
            }
            Some(RepositoryError::NotFound) => self.run_for_output(&["init"]).await.map(|_| ()),
        }
    }

    /// Backs up a path.
    pub async fn backup(&self, path: &str, tag: &str, mover: &str) -> Result<BackupSummary, Error> {
        let arguments = ["backup", "--json", "--tag", tag, path];
        let result = self.run(&arguments, Some((mover, Direction::Upload))).await?;
        let output = result.map_err(|failed| failed.error)?;
        output.saved.filter(|saved| !saved.id.is_empty()).ok_or_else(|| Error::Command {
            what: format!("restic backup in pod {}", self.pod),
            detail: "exited without a snapshot id".into(),
        })
    }

    /// The snapshots of a tag or an id.
    pub async fn snapshots(&self, selection: &[&str]) -> Result<Vec<Snapshot>, Error> {
        let text = self.run_for_output(&[&["snapshots", "--json"], selection].concat()).await?;
        parse_list(&text)
    }

    /// Bytes and files of a snapshot.
    pub async fn stats(&self, id: &str, mode: &str) -> Result<(u64, u64), Error> {
        let text = self.run_for_output(&["stats", "--json", "--mode", mode, id]).await?;
        let stats: Value = text.lines().rev().find_map(|line| serde_json::from_str(line).ok()).unwrap_or_default();
        Ok((stats["total_size"].as_u64().unwrap_or(0), stats["total_file_count"].as_u64().unwrap_or(0)))
    }

    /// Whether restic can restore a subfolder of a snapshot: since 0.16.
    pub async fn supports_subfolders(&self) -> Result<bool, Error> {
        let text = self.run_for_output(&["version"]).await?;
        Ok(version(&text).is_some_and(|version| version >= (0, 16)))
    }

    /// Restores a snapshot, or some of its paths, to a directory.
    pub async fn restore(&self, snapshot: &str, paths: &[String], target: &str, mover: &str) -> Result<(), Error> {
        let mut arguments = vec!["restore", "--json", snapshot, "--target", target];
        for path in paths {
            arguments.extend(["--include", path]);
        }
        let result = self.run(&arguments, Some((mover, Direction::Download))).await?;
        result.map(|_| ()).map_err(|failed| failed.error)
    }

    /// Forgets a snapshot.
    pub async fn forget(&self, id: &str) -> Result<(), Error> {
        self.run_for_output(&["forget", id]).await.map(|_| ())
    }

    /// Removes unreferenced data; returns the freed bytes, as far as restic reports them.
    pub async fn prune(&self) -> Result<u64, Error> {
        let text = self.run_for_output(&["prune"]).await?;
        Ok(text.lines().find_map(parse_freed).unwrap_or(0))
    }
}

/// `restic 0.16.5 compiled with go1.22`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split_whitespace().nth(1)?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn parse_list(text: &str) -> Result<Vec<Snapshot>, Error> {
    let line = text.lines().find(|line| line.starts_with('[') || *line == "null").unwrap_or("[]");
    let parsed: Option<Vec<Snapshot>> = serde_json::from_str(line)
        .map_err(|error| Error::Command { what: "restic snapshots".into(), detail: error.to_string() })?;
    Ok(parsed.unwrap_or_default())
}

/// `this removes: 3 blobs / 1.234 MiB` and `total prune: 3 blobs / 1.234 MiB`.
fn parse_freed(line: &str) -> Option<u64> {
    let rest = line.trim().strip_prefix("total prune:")?;
    let (_, size) = rest.split_once('/')?;
    let mut words = size.split_whitespace();
    let number: f64 = words.next()?.parse().ok()?;
    let unit = match words.next()? {
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        "TiB" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => 1.0,
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rounded size")]
    Some((number * unit) as u64)
}

struct ResticFailure {
    repository_error: Option<RepositoryError>,
    error: Error,
}

fn repository_error(code: i32, message: &str) -> Option<RepositoryError> {
    let contains = |text: &str| message.contains(text);
    if code == WRONG_PASSWORD || contains("wrong password") {
        return Some(RepositoryError::WrongPassword);
    }
    let absent = contains("Is there a repository at the following location?") || contains("repository does not exist");
    (code == NO_REPOSITORY || absent).then_some(RepositoryError::NotFound)
}

/// The output of restic.
struct ResticOutput<'a> {
    call: &'a Call,
    mover: Option<(String, Direction)>,
    line: Vec<u8>,
    plain: String,
    errors: Vec<u8>,
    saved: Option<BackupSummary>,
    scan: Scan,
    progress: TransferProgress,
}

impl<'a> ResticOutput<'a> {
    fn new(call: &'a Call) -> Self {
        Self {
            call,
            mover: None,
            line: Vec::new(),
            plain: String::new(),
            errors: Vec::new(),
            saved: None,
            scan: Scan::default(),
            progress: TransferProgress::default(),
        }
    }

    fn text(self) -> String {
        self.plain
    }

    fn output_tail(&self) -> String {
        let text = if self.errors.is_empty() { self.plain.as_bytes() } else { &self.errors };
        String::from_utf8_lossy(&text[text.len().saturating_sub(TAIL_BYTES)..]).into_owned()
    }

    fn end(&mut self) {
        let line = std::mem::take(&mut self.line);
        self.process_line(&line);
    }

    fn process_line(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        let Some((mover, direction)) = self.mover.clone() else {
            self.plain += text;
            self.plain.push('\n');
            return;
        };
        match serde_json::from_str::<Message>(text) {
            Ok(message) => self.count(&mover, direction, &message),
            Err(_) => self.call.log(text),
        }
    }

    fn count(&mut self, mover: &str, direction: Direction, message: &Message) {
        if !["status", "summary"].contains(&message.kind.as_str()) {
            return;
        }
        if let ("summary", Direction::Upload) = (message.kind.as_str(), direction) {
            self.saved = Some(message.saved());
        }
        let scanned = self.scan.is_complete(message);
        self.progress = message.progress(self.progress, direction, scanned);
        self.call.meters.report(mover, self.progress);
    }
}

impl OutputListener for ResticOutput<'_> {
    fn stdout(&mut self, chunk: &[u8]) -> Result<(), Error> {
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                self.process_line(&line);
            }
        }
        Ok(())
    }

    fn stderr(&mut self, chunk: &[u8]) -> Result<(), Error> {
        self.errors.extend_from_slice(chunk);
        let surplus = self.errors.len().saturating_sub(2 * TAIL_BYTES);
        self.errors.drain(..surplus);
        Ok(())
    }
}

/// A size as restic prints it: `1.234 MiB`.
pub fn size(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "printed with three decimals")]
    let number = bytes as f64;
    for (unit, name) in [(1_u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= unit {
            #[expect(clippy::cast_precision_loss, reason = "a power of two")]
            let unit = unit as f64;
            return format!("{:.3} {name}", number / unit);
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_password_is_kanisters() {
        assert_eq!(default_password(), "9f735e0df9a1ddc702bf0a1a7b83033f9f7153a00c29de82cedadc9957289b05");
    }

    #[test]
    fn repository_errors_are_recognized_for_every_version() {
        assert_eq!(repository_error(1, "Fatal: wrong password or no key found"), Some(RepositoryError::WrongPassword));
        assert_eq!(repository_error(12, ""), Some(RepositoryError::WrongPassword));
        assert_eq!(repository_error(10, ""), Some(RepositoryError::NotFound));
        assert_eq!(
            repository_error(1, "Is there a repository at the following location?\ns3:x"),
            Some(RepositoryError::NotFound)
        );
        assert_eq!(repository_error(1, "connection refused"), None);
    }

    #[test]
    fn bytes_are_counted_and_the_estimate_of_restic_is_ignored() {
        let after = |before: TransferProgress, direction: Direction, text: &str| {
            let message = serde_json::from_str::<Message>(text).unwrap();
            message.progress(before, direction, Scan::default().is_complete(&message))
        };
        let up = |before: TransferProgress, text: &str| after(before, Direction::Upload, text);
        let scanning = up(TransferProgress::default(), r#"{"message_type":"status","total_bytes":10,"bytes_done":5}"#);
        assert_eq!((scanning.read, scanning.total), (5, None), "the total of a scan still grows");
        let text = r#"{"message_type":"status","total_bytes":100,"bytes_done":40,"seconds_remaining":86400}"#;
        let running = up(scanning, text);
        assert_eq!((running.read, running.total, running.seconds_left), (40, Some(100), None));
        assert_eq!(running.sent, None, "restic reports the bytes sent at the end");
        let text = r#"{"message_type":"summary","total_bytes_processed":100,"data_added":70,"data_added_packed":30}"#;
        assert_eq!(
            up(running, text),
            TransferProgress { read: 100, total: Some(100), sent: Some(30), ..TransferProgress::default() }
        );
        let text = r#"{"message_type":"status","total_bytes":9,"bytes_restored":3,"bytes_skipped":1}"#;
        let down = after(TransferProgress::default(), Direction::Download, text);
        assert_eq!((down.read, down.sent, down.total, down.seconds_left), (4, Some(4), Some(9), None));
    }

    #[test]
    fn a_scan_is_complete_once_all_was_read_for_a_second_or_the_time_left_is_estimated() {
        let mut scan = Scan::default();
        let mut is_complete = |done: u64, total: u64, elapsed: u64, more: Value| {
            let mut text = serde_json::json!({ "message_type": "status", "total_bytes": total, "bytes_done": done, "seconds_elapsed": elapsed });
            text.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            scan.is_complete(&serde_json::from_value(text).unwrap())
        };
        let none = || serde_json::json!({});
        assert!(!is_complete(5, 10, 0, serde_json::json!({ "current_files": ["/f"] })));
        assert!(!is_complete(10, 10, 1, none()), "restic may still find more");
        assert!(!is_complete(12, 12, 2, none()), "it has found more");
        assert!(!is_complete(12, 12, 2, none()));
        assert!(is_complete(12, 12, 3, none()));
        assert!(is_complete(12, 12, 4, none()));
        assert!(!is_complete(12, 20, 5, none()));
        assert!(is_complete(13, 20, 5, serde_json::json!({ "seconds_remaining": 7 })));
    }

    #[test]
    fn the_version_is_parsed_from_the_output() {
        assert_eq!(version("restic 0.16.5 compiled with go1.22.1 on linux/amd64"), Some((0, 16)));
        assert_eq!(version("unknown"), None);
    }

    #[test]
    fn sizes_are_formatted_as_restic_does() {
        assert_eq!(size(512), "512 B");
        assert_eq!(size(1536), "1.500 KiB");
        assert_eq!(size(3 << 30), "3.000 GiB");
        assert_eq!(parse_freed("total prune:  3 blobs / 1.500 KiB"), Some(1536));
        assert_eq!(parse_freed("done"), None);
    }
}
