//! kopia in a container, connected to a repository server: commands, progress and errors.

use std::time::Duration;

use plimsoll_progress::kopia_output::{ProgressLine, strip_progress};

use super::call::Call;
use super::exec::{Exec, ExitResult, OutputListener, PROGRAM_NOT_FOUND};
use super::phase_meters::{Direction, TransferProgress};
use crate::Error;
use crate::kopia_server::{self, KopiaServer, Manifest, PASSWORD_VARIABLE, VARIABLES};

/// How often kopia reports its progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
/// Number of last bytes of stderr in an error message.
const TAIL_BYTES: usize = 4 << 10;
/// Maximum size of stdout and of a line of stderr.
const MAX_OUTPUT_SIZE: usize = 4 << 20;

/// kopia in one container.
pub struct Kopia<'a> {
    call: &'a Call,
    namespace: String,
    pod: String,
    container: String,
    server: KopiaServer,
    /// Its configuration and cache in the container.
    directory: String,
}

/// A snapshot that was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KopiaSnapshot {
    /// The id.
    pub id: String,
    /// Bytes of the files.
    pub size: u64,
    /// Bytes sent to the repository.
    pub uploaded: u64,
    /// Files that could not be read.
    pub failed: u64,
}

impl<'a> Kopia<'a> {
    /// Connects to the server in a container (namespace, pod, container).
    pub async fn connect(call: &'a Call, at: (&str, &str, &str), server: KopiaServer) -> Result<Self, Error> {
        let directory = format!("/tmp/plimsoll-kopia-{}", call.identity);
        let (namespace, pod, container) = (at.0.to_owned(), at.1.to_owned(), at.2.to_owned());
        let kopia = Self { call, namespace, pod, container, server, directory };
        match kopia.run(kopia.server.connect(&kopia.directory), None).await {
            Ok(_) => Ok(kopia),
            Err(error) => {
                kopia.disconnect().await;
                Err(error)
            }
        }
    }

    /// Backs up a path.
    pub async fn create_snapshot(&self, path: &str, tags: &[String], mover: &str) -> Result<KopiaSnapshot, Error> {
        let parallel = self.call.pod_settings.environment.parallel_upload;
        let mut arguments = kopia_server::with_progress(&self.directory, PROGRESS_INTERVAL);
        arguments.extend(["snapshot", "create", "--json", "--flush-per-source"].map(str::to_owned));
        arguments.push(format!("--parallel={parallel}"));
        arguments.extend(tags.iter().map(|tag| format!("--tags={tag}")));
        arguments.push(path.to_owned());
        let output = self.run(arguments, Some((mover, Direction::Upload))).await?;
        let failed = |detail: &str| self.failed("snapshot create", detail);
        let manifest = Manifest::parse(&output.stdout()).filter(|manifest| !manifest.id.is_empty());
        let manifest = manifest.ok_or_else(|| failed("exited without a snapshot id"))?;
        if !manifest.incomplete.is_empty() {
            return Err(failed(&format!("the snapshot is incomplete: {}", manifest.incomplete)));
        }
        if manifest.failed() > 0 {
            return Err(failed(&format!("{} files could not be read", manifest.failed())));
        }
        let uploaded = output.progress.sent.unwrap_or(0);
        Ok(KopiaSnapshot { size: manifest.size(), uploaded, failed: 0, id: manifest.id })
    }

    /// The size of a snapshot; `None` if kopia does not say it.
    pub async fn snapshot_size(&self, id: &str) -> Result<Option<u64>, Error> {
        let mut arguments = kopia_server::global_arguments(&self.directory);
        arguments.extend(["manifest", "show", id].map(str::to_owned));
        let output = self.run(arguments, None).await?;
        Ok(Manifest::parse(&output.stdout()).map(|manifest| manifest.size()))
    }

    /// Restores a snapshot to a directory.
    pub async fn restore(
        &self,
        id: &str,
        target: &str,
        sparse: bool,
        total: Option<u64>,
        mover: &str,
    ) -> Result<(), Error> {
        let parallel = self.call.pod_settings.environment.parallel_download;
        let mut arguments = kopia_server::with_progress(&self.directory, PROGRESS_INTERVAL);
        arguments.extend(["snapshot", "restore", "--ignore-permission-errors"].map(str::to_owned));
        arguments.push(format!("--parallel={parallel}"));
        arguments.extend(sparse.then(|| "--write-sparse-files".to_owned()));
        arguments.extend([id.to_owned(), target.to_owned()]);
        let first = TransferProgress { direction: Direction::Download, total, ..TransferProgress::default() };
        self.call.meters.report(mover, first);
        self.run_with(arguments, Some((mover, Direction::Download)), first).await.map(drop)
    }

    /// Deletes a snapshot. One that does not exist is an error.
    pub async fn delete_snapshot(&self, id: &str) -> Result<(), Error> {
        let mut arguments = kopia_server::global_arguments(&self.directory);
        arguments.extend(["snapshot", "delete", "--delete", id].map(str::to_owned));
        self.run(arguments, None).await.map(drop)
    }

    /// Removes the configuration and the cache from the container. An error is logged: the work is done.
    pub async fn disconnect(self) {
        let command = ["rm", "-rf", &self.directory].map(str::to_owned).to_vec();
        let exec = Exec::new(&self.namespace, &self.pod, Some(&self.container), command);
        let ended =
            exec.run(&self.call.client, &mut KopiaOutput::new(self.call, None, TransferProgress::default())).await;
        if !matches!(ended, Ok(ExitResult::Success)) {
            self.call.log(&format!("failed to remove {} from pod {}", self.directory, exec.path()));
        }
    }

    async fn run(&self, arguments: Vec<String>, mover: Option<(&str, Direction)>) -> Result<KopiaOutput<'a>, Error> {
        self.run_with(arguments, mover, TransferProgress::default()).await
    }

    async fn run_with(
        &self,
        arguments: Vec<String>,
        mover: Option<(&str, Direction)>,
        progress: TransferProgress,
    ) -> Result<KopiaOutput<'a>, Error> {
        let what =
            arguments.iter().filter(|word| !word.starts_with('-')).take(2).cloned().collect::<Vec<_>>().join(" ");
        let command = std::iter::once("kopia".to_owned()).chain(arguments).collect();
        let mut variables = vec![(PASSWORD_VARIABLE, self.server.password().to_owned())];
        variables.extend(VARIABLES.map(|(name, value)| (name, value.to_owned())));
        let exec = Exec::new(&self.namespace, &self.pod, Some(&self.container), command).with_variables(&variables)?;
        self.call.host.authorize_effect()?;
        let mover = mover.map(|(name, direction)| (name.to_owned(), direction));
        let mut output = KopiaOutput::new(self.call, mover, progress);
        let ended = exec.run(&self.call.client, &mut output).await?;
        output.end();
        match ended {
            ExitResult::Success => Ok(output),
            ExitResult::ExitCode(code) if PROGRAM_NOT_FOUND.contains(&code) => Err(Error::Unsupported(format!(
                "kopia not found in pod {}, container {}: use an image with kopia, or a sidecar",
                exec.path(),
                self.container
            ))),
            ExitResult::ExitCode(code) => {
                let tail = self.call.params.redact(output.errors.trim());
                Err(self.failed(&what, &format!("exit code {code}: {tail}")))
            }
        }
    }

    fn failed(&self, what: &str, detail: &str) -> Error {
        let what = format!("kopia {what} in container {} of pod {}/{}", self.container, self.namespace, self.pod);
        Error::Command { what, detail: detail.to_owned() }
    }
}

/// The output of one command.
struct KopiaOutput<'a> {
    call: &'a Call,
    mover: Option<(String, Direction)>,
    stdout: Vec<u8>,
    line: Vec<u8>,
    errors: String,
    progress: TransferProgress,
}

impl<'a> KopiaOutput<'a> {
    fn new(call: &'a Call, mover: Option<(String, Direction)>, progress: TransferProgress) -> Self {
        Self { call, mover, stdout: Vec::new(), line: Vec::new(), errors: String::new(), progress }
    }

    fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    fn end(&mut self) {
        let line = std::mem::take(&mut self.line);
        self.process_line(&line);
    }

    fn process_line(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        if let (Some((mover, direction)), Some(parsed)) = (&self.mover, ProgressLine::parse(&line)) {
            self.progress = advance(self.progress, *direction, parsed);
            self.call.meters.report(mover, self.progress);
        }
        let text = strip_progress(&line).trim();
        if !text.is_empty() {
            self.call.log(text);
            self.errors.push_str(text);
            self.errors.push('\n');
            let surplus = self.errors.len().saturating_sub(TAIL_BYTES);
            let start = (surplus..=self.errors.len()).find(|at| self.errors.is_char_boundary(*at)).unwrap_or(0);
            self.errors.drain(..start);
        }
    }
}

/// The progress after a line. A number of kopia may be less than an earlier one.
fn advance(before: TransferProgress, direction: Direction, line: ProgressLine) -> TransferProgress {
    match (direction, line) {
        (Direction::Upload, ProgressLine::Upload { bytes, uploaded, estimate, seconds_left, .. }) => TransferProgress {
            direction,
            read: before.read.max(bytes),
            total: estimate.or(before.total),
            sent: before.sent.max(Some(uploaded)),
            seconds_left,
        },
        (Direction::Download, ProgressLine::Restore { bytes, found_bytes, seconds_left, .. }) => TransferProgress {
            direction,
            read: before.read.max(bytes),
            // The size of the snapshot, if it is known, and not what kopia has found of it so far.
            total: before.total.max(Some(found_bytes)),
            sent: before.sent.max(Some(bytes)),
            seconds_left,
        },
        _ => before,
    }
}

impl OutputListener for KopiaOutput<'_> {
    fn stdout(&mut self, chunk: &[u8]) -> Result<(), Error> {
        if self.stdout.len() + chunk.len() > MAX_OUTPUT_SIZE {
            return Err(Error::Unsupported(format!("kopia wrote more than {MAX_OUTPUT_SIZE} bytes")));
        }
        self.stdout.extend_from_slice(chunk);
        Ok(())
    }

    fn stderr(&mut self, chunk: &[u8]) -> Result<(), Error> {
        // kopia overwrites its progress line: it ends with a carriage return.
        for part in chunk.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") || part.ends_with(b"\r") || self.line.len() > MAX_OUTPUT_SIZE {
                self.end();
            }
        }
        Ok(())
    }
}

/// A size as Kanister prints it, in powers of 1000: `83 MB`, `1.4 GB`.
pub fn decimal_size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 10 {
        return format!("{bytes} B");
    }
    let power = bytes.ilog(1000) as usize;
    let scale = 1000_u128.pow(bytes.ilog(1000));
    // Tenths, rounded.
    let tenths = (u128::from(bytes) * 10 + scale / 2) / scale;
    let unit = UNITS.get(power).copied().unwrap_or_default();
    if tenths >= 100 {
        format!("{} {unit}", (tenths + 5) / 10)
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_bytes_total_and_time_left_are_those_of_kopia() {
        let up = |before: TransferProgress, line: &str| {
            advance(before, Direction::Upload, ProgressLine::parse(line).unwrap())
        };
        let early = up(
            TransferProgress::default(),
            " | 1 hashing, 0 hashed (7 B), 0 cached (0 B), uploaded 0 B, estimating...",
        );
        assert_eq!((early.read, early.total, early.sent), (7, None, Some(0)));
        let line = " / 1 hashing, 118 hashed (500 B), 1 cached (46 B), uploaded 12 B, estimated 900 B (60.6%) 35s left";
        let later = up(early, line);
        assert_eq!((later.read, later.total, later.sent, later.seconds_left), (546, Some(900), Some(12), Some(35)));
        let back = up(later, " / 1 hashing, 2 hashed (5 B), 0 cached (0 B), uploaded 1 B, estimating...");
        assert_eq!((back.read, back.total, back.sent), (546, Some(900), Some(12)), "nothing goes back");
        let known =
            TransferProgress { direction: Direction::Download, total: Some(900), ..TransferProgress::default() };
        let restored =
            advance(known, Direction::Download, ProgressLine::parse("Processed 1 (7 B) of 2 (9 B).").unwrap());
        assert_eq!((restored.read, restored.total, restored.sent), (7, Some(900), Some(7)), "the tree is still read");
    }

    #[test]
    fn sizes_are_formatted_as_kanister_does() {
        let cases = [
            (0, "0 B"),
            (9, "9 B"),
            (10, "10 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (1449, "1.4 kB"),
            (9960, "10 kB"),
            (82_854_982, "83 MB"),
            (1_400_000_000, "1.4 GB"),
            (u64::MAX, "18 EB"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(decimal_size(bytes), expected, "{bytes}");
        }
    }
}
