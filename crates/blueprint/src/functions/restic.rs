//! restic inside a container: its commands, what it says with `--json`, and what its exit codes mean.

use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::call::{Call, Direction, Moved};
use super::exec::{Ended, Exec, Listener, NO_PROGRAM};
use super::location_delete::place;
use crate::Error;

/// A repository that is not there, since restic 0.17.
const NO_REPOSITORY: i32 = 10;
/// A password that is wrong, since restic 0.17.
const WRONG_PASSWORD: i32 = 12;
/// So much of what it prints is kept for an error message.
const LAST_BYTES: usize = 4 << 10;

/// restic in one container, on one repository.
pub struct Restic<'a> {
    call: &'a Call,
    namespace: String,
    pod: String,
    container: Option<String>,
    variables: Vec<(&'static str, String)>,
    options: Vec<String>,
}

/// Why a repository cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// There is none.
    Absent,
    /// The password is wrong.
    Password,
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
    snapshot_id: Option<String>,
    total_files_processed: u64,
    total_bytes_processed: u64,
    data_added: Option<u64>,
    data_added_packed: Option<u64>,
}

impl Message {
    /// What has been moved after it. restic's own estimate of the time left is not taken over: ours is made from the bytes.
    fn moved(&self, before: Moved, direction: Direction) -> Moved {
        let restored = self.bytes_restored.unwrap_or(0).saturating_add(self.bytes_skipped.unwrap_or(0));
        let mut moved = Moved { direction, seconds_left: None, ..before };
        match (self.kind.as_str(), direction) {
            ("summary", Direction::Up) => return self.saved().moved(),
            ("summary", Direction::Down) => {
                moved.read = self.total_bytes.unwrap_or(restored);
                moved.total = Some(moved.read);
            }
            _ => {
                moved.read = moved.read.max(self.bytes_done.unwrap_or(restored));
                // It counts while it scans: a total is believed once it estimates the time left from it.
                if self.seconds_remaining.is_some() || direction == Direction::Down {
                    moved.total = self.total_bytes.or(moved.total);
                }
            }
        }
        if direction == Direction::Down {
            moved.sent = Some(moved.read);
        }
        moved
    }

    fn saved(&self) -> Saved {
        Saved {
            id: self.snapshot_id.clone().unwrap_or_default().chars().take(8).collect(),
            files: self.total_files_processed,
            size: self.total_bytes_processed,
            added: self.data_added_packed.or(self.data_added).unwrap_or(0),
        }
    }
}

/// What a backup made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// The snapshot, as short as Kanister's users know it.
    pub id: String,
    /// Files looked at.
    pub files: u64,
    /// Their bytes.
    pub size: u64,
    /// Bytes added to the repository.
    pub added: u64,
}

impl Saved {
    /// All of it has been moved.
    pub fn moved(&self) -> Moved {
        let (read, total, sent) = (self.size, Some(self.size), Some(self.added));
        Moved { direction: Direction::Up, read, total, sent, seconds_left: None }
    }
}

/// A snapshot, as `restic snapshots --json` lists it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Its whole id.
    pub id: String,
    /// What it holds.
    pub paths: Vec<String>,
}

/// The password of repositories whose blueprint names none: Kanister's own, so that either can read the other's.
pub fn default_password() -> String {
    hex::encode(Sha256::digest(b"testpassword"))
}

impl<'a> Restic<'a> {
    /// restic in a container, on the repository at `prefix` of the profile's store.
    pub fn new(call: &'a Call, at: (&str, &str, Option<&str>), prefix: &str) -> Result<Self, Error> {
        let place = place(call)?;
        let password = call.arguments.optional_text("encryptionKey")?.unwrap_or_else(default_password);
        let mut options = vec!["--no-cache".to_owned()];
        if call.arguments.flag("insecureTLS", false)? || place.skip_verification {
            options.push("--insecure-tls".into());
        }
        Ok(Self {
            call,
            namespace: at.0.to_owned(),
            pod: at.1.to_owned(),
            container: at.2.map(str::to_owned),
            variables: place.restic(&place.with_bucket(prefix), &password)?,
            options,
        })
    }

    fn exec(&self, arguments: &[&str]) -> Result<Exec, Error> {
        let words =
            ["restic"].into_iter().chain(self.options.iter().map(String::as_str)).chain(arguments.iter().copied());
        let command = words.map(str::to_owned).collect();
        Exec::new(&self.namespace, &self.pod, self.container.as_deref(), command).with_variables(&self.variables)
    }

    /// Runs a command; its output, or how it failed.
    async fn run(
        &self,
        arguments: &[&str],
        mover: Option<(&str, Direction)>,
    ) -> Result<Result<Heard<'a>, Failed>, Error> {
        let exec = self.exec(arguments)?;
        self.call.host.effect()?;
        let mut heard =
            Heard { call: self.call, mover: mover.map(|(name, way)| (name.to_owned(), way)), ..Heard::new(self.call) };
        let ended = exec.run(&self.call.client, &mut heard).await?;
        heard.end();
        match ended {
            Ended::Well => Ok(Ok(heard)),
            Ended::Badly(code) if NO_PROGRAM.contains(&code) => Err(Error::Unsupported(format!(
                "pod {} has no restic in container {}: the function needs it there (use an image that has it, or a sidecar)",
                exec.path(),
                self.container.as_deref().unwrap_or("(the first)")
            ))),
            Ended::Badly(code) => {
                let words = self.call.params.redact(heard.last_words().trim());
                Ok(Err(Failed { trouble: trouble(code, &words), error: exec.failed(code, &words) }))
            }
        }
    }

    async fn ask(&self, arguments: &[&str]) -> Result<String, Error> {
        let answer = self.run(arguments, None).await?;
        answer.map(Heard::text).map_err(|failed| failed.error)
    }

    /// Whether the container has it, and a shell to start it.
    pub async fn is_there(&self) -> Result<bool, Error> {
        let exec = self.exec(&["version"])?;
        let ended = exec.run(&self.call.client, &mut Heard::new(self.call)).await?;
        Ok(!matches!(ended, Ended::Badly(code) if NO_PROGRAM.contains(&code)))
    }

    /// What is wrong with the repository, if anything is.
    pub async fn trouble(&self) -> Result<Option<Trouble>, Error> {
        match self.run(&["cat", "config"], None).await? {
            Ok(_) => Ok(None),
            Err(Failed { trouble: Some(trouble), .. }) => Ok(Some(trouble)),
            Err(Failed { error, .. }) => Err(error),
        }
    }

    /// Makes the repository if there is none.
    pub async fn ensure(&self) -> Result<(), Error> {
        match self.trouble().await? {
            None => Ok(()),
            Some(Trouble::Password) => Err(Error::argument("encryptionKey", "is not the password of the repository")),
            Some(Trouble::Absent) => self.ask(&["init"]).await.map(|_| ()),
        }
    }

    /// Backs up a path.
    pub async fn backup(&self, path: &str, tag: &str, mover: &str) -> Result<Saved, Error> {
        let arguments = ["backup", "--json", "--tag", tag, path];
        let answer = self.run(&arguments, Some((mover, Direction::Up))).await?;
        let heard = answer.map_err(|failed| failed.error)?;
        heard.saved.filter(|saved| !saved.id.is_empty()).ok_or_else(|| Error::Command {
            what: format!("restic backup in pod {}", self.pod),
            detail: "it ended without saying which snapshot it made".into(),
        })
    }

    /// The snapshots of a tag or an id.
    pub async fn snapshots(&self, selection: &[&str]) -> Result<Vec<Snapshot>, Error> {
        let text = self.ask(&[&["snapshots", "--json"], selection].concat()).await?;
        parse_list(&text)
    }

    /// Bytes and files of a snapshot.
    pub async fn stats(&self, id: &str, mode: &str) -> Result<(u64, u64), Error> {
        let text = self.ask(&["stats", "--json", "--mode", mode, id]).await?;
        let stats: Value = text.lines().rev().find_map(|line| serde_json::from_str(line).ok()).unwrap_or_default();
        Ok((stats["total_size"].as_u64().unwrap_or(0), stats["total_file_count"].as_u64().unwrap_or(0)))
    }

    /// Whether a folder of a snapshot can be restored by itself: since 0.16.
    pub async fn knows_folders(&self) -> Result<bool, Error> {
        let text = self.ask(&["version"]).await?;
        Ok(version(&text).is_some_and(|version| version >= (0, 16)))
    }

    /// Restores a snapshot, or those paths of it, below a directory.
    pub async fn restore(&self, snapshot: &str, paths: &[String], target: &str, mover: &str) -> Result<(), Error> {
        let mut arguments = vec!["restore", "--json", snapshot, "--target", target];
        for path in paths {
            arguments.extend(["--include", path]);
        }
        let answer = self.run(&arguments, Some((mover, Direction::Down))).await?;
        answer.map(|_| ()).map_err(|failed| failed.error)
    }

    /// Forgets a snapshot.
    pub async fn forget(&self, id: &str) -> Result<(), Error> {
        self.ask(&["forget", id]).await.map(|_| ())
    }

    /// Removes what no snapshot needs; how many bytes that freed, as far as restic says.
    pub async fn prune(&self) -> Result<u64, Error> {
        let text = self.ask(&["prune"]).await?;
        Ok(text.lines().find_map(freed).unwrap_or(0))
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
fn freed(line: &str) -> Option<u64> {
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
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size that was printed for people")]
    Some((number * unit) as u64)
}

struct Failed {
    trouble: Option<Trouble>,
    error: Error,
}

fn trouble(code: i32, words: &str) -> Option<Trouble> {
    let says = |text: &str| words.contains(text);
    if code == WRONG_PASSWORD || says("wrong password") {
        return Some(Trouble::Password);
    }
    let absent = says("Is there a repository at the following location?") || says("repository does not exist");
    (code == NO_REPOSITORY || absent).then_some(Trouble::Absent)
}

/// What restic has said.
struct Heard<'a> {
    call: &'a Call,
    mover: Option<(String, Direction)>,
    line: Vec<u8>,
    plain: String,
    errors: Vec<u8>,
    saved: Option<Saved>,
    moved: Moved,
}

impl<'a> Heard<'a> {
    fn new(call: &'a Call) -> Self {
        Self {
            call,
            mover: None,
            line: Vec::new(),
            plain: String::new(),
            errors: Vec::new(),
            saved: None,
            moved: Moved::default(),
        }
    }

    fn text(self) -> String {
        self.plain
    }

    fn last_words(&self) -> String {
        let text = if self.errors.is_empty() { self.plain.as_bytes() } else { &self.errors };
        String::from_utf8_lossy(&text[text.len().saturating_sub(LAST_BYTES)..]).into_owned()
    }

    fn end(&mut self) {
        let line = std::mem::take(&mut self.line);
        self.hear(&line);
    }

    fn hear(&mut self, line: &[u8]) {
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
        if let ("summary", Direction::Up) = (message.kind.as_str(), direction) {
            self.saved = Some(message.saved());
        }
        self.moved = message.moved(self.moved, direction);
        self.call.gauge.moved(mover, self.moved);
    }
}

impl Listener for Heard<'_> {
    fn stdout(&mut self, piece: &[u8]) -> Result<(), Error> {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                self.hear(&line);
            }
        }
        Ok(())
    }

    fn stderr(&mut self, piece: &[u8]) -> Result<(), Error> {
        self.errors.extend_from_slice(piece);
        let surplus = self.errors.len().saturating_sub(2 * LAST_BYTES);
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
    fn the_default_password_is_kanister_s() {
        assert_eq!(default_password(), "9f735e0df9a1ddc702bf0a1a7b83033f9f7153a00c29de82cedadc9957289b05");
    }

    #[test]
    fn what_restic_says_about_a_repository_has_a_meaning_in_every_version() {
        assert_eq!(trouble(1, "Fatal: wrong password or no key found"), Some(Trouble::Password));
        assert_eq!(trouble(12, ""), Some(Trouble::Password));
        assert_eq!(trouble(10, ""), Some(Trouble::Absent));
        assert_eq!(trouble(1, "Is there a repository at the following location?\ns3:x"), Some(Trouble::Absent));
        assert_eq!(trouble(1, "connection refused"), None);
    }

    #[test]
    fn bytes_are_counted_and_the_time_that_restic_foretells_is_not_taken_over() {
        let after = |before: Moved, direction: Direction, text: &str| {
            serde_json::from_str::<Message>(text).unwrap().moved(before, direction)
        };
        let up = |before: Moved, text: &str| after(before, Direction::Up, text);
        let scanning = up(Moved::default(), r#"{"message_type":"status","total_bytes":10,"bytes_done":5}"#);
        assert_eq!((scanning.read, scanning.total), (5, None), "the total of a scan still grows");
        let text = r#"{"message_type":"status","total_bytes":100,"bytes_done":40,"seconds_remaining":86400}"#;
        let running = up(scanning, text);
        assert_eq!((running.read, running.total, running.seconds_left), (40, Some(100), None));
        assert_eq!(running.sent, None, "restic says at the end what it has sent");
        let text = r#"{"message_type":"summary","total_bytes_processed":100,"data_added":70,"data_added_packed":30}"#;
        assert_eq!(up(running, text), Moved { read: 100, total: Some(100), sent: Some(30), ..Moved::default() });
        let text = r#"{"message_type":"status","total_bytes":9,"bytes_restored":3,"bytes_skipped":1}"#;
        let down = after(Moved::default(), Direction::Down, text);
        assert_eq!((down.read, down.sent, down.total, down.seconds_left), (4, Some(4), Some(9), None));
    }

    #[test]
    fn the_version_is_read_from_its_own_words() {
        assert_eq!(version("restic 0.16.5 compiled with go1.22.1 on linux/amd64"), Some((0, 16)));
        assert_eq!(version("unknown"), None);
    }

    #[test]
    fn sizes_read_as_restic_prints_them() {
        assert_eq!(size(512), "512 B");
        assert_eq!(size(1536), "1.500 KiB");
        assert_eq!(size(3 << 30), "3.000 GiB");
        assert_eq!(freed("total prune:  3 blobs / 1.500 KiB"), Some(1536));
        assert_eq!(freed("done"), None);
    }
}
