//! `restic restore`, with progress from `--json` (since 0.16) or from the bytes that the process writes.

use std::path::Path;

use serde::Deserialize;

use super::client::Client;
use super::messages::Message;
use super::{errors, repository};
use crate::job::Restore;
use crate::meters::Meters;
use crate::mover::require_directory;
use crate::outcome::{Problems, RestoreOutcome};
use crate::process_io::IoCounters;
use crate::program::Exit;
use crate::volume_root::{self, VolumeRoot};
use crate::volume_scan::{self, DirectoryGrowth};
use crate::{MoverError, Result};

/// The output of `restic stats --json`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Stats {
    total_size: u64,
    total_file_count: u64,
}

pub(super) fn run(client: &Client<'_>, restore: &Restore) -> Result<RestoreOutcome> {
    super::require_id(&restore.snapshot)?;
    require_directory(&restore.directory)?;
    client.require_repository()?;
    let is_volume_in_use = !volume_scan::is_empty(&restore.directory);
    let stats = read_size(client, &restore.snapshot)?;
    let root = read_volume_root(client, &restore.snapshot)?;
    let before = if supports_json(client) { Some(0) } else { measure(client, restore, is_volume_in_use)? };
    let (mut progress, mut exit) = attempt(client, restore, stats, before)?;
    if client.switch_to_no_lock(&exit) {
        (progress, exit) = attempt(client, restore, stats, before)?;
    }
    let mut outcome = progress.finish(client, &exit, restore)?;
    outcome.warnings.extend(client.lock_warning());
    if is_volume_in_use && !client.is_at_least(0, 17) {
        report_missing_files(client, restore, &mut outcome.problems)?;
    }
    match root {
        Ok(Some(root)) => root.restore(&restore.directory, &mut outcome.problems),
        Ok(None) => {}
        Err(error) => volume_root::report_unknown(&mut outcome.problems, &error),
    }
    Ok(outcome)
}

/// Runs restic once.
fn attempt<'p>(
    client: &'p Client<'_>,
    restore: &'p Restore,
    stats: Option<Stats>,
    before: Option<u64>,
) -> Result<(Progress<'p>, Exit)> {
    let mut arguments = vec!["restore", &restore.snapshot];
    if supports_json(client) {
        arguments.push("--json");
    }
    if restore.sparse && client.is_at_least(0, 15) {
        arguments.push("--sparse");
    }
    let mut command = client.command(&arguments);
    command.arg("--target").arg(&restore.directory);
    let progress = std::cell::RefCell::new(Progress::new(client, restore, stats, before));
    let exit = client.program.run(
        command,
        client.session,
        &[],
        &mut |_, line| progress.borrow_mut().on_line(line),
        &mut |pid| progress.borrow_mut().sample(pid),
    )?;
    Ok((progress.into_inner(), exit))
}

/// Whether restic reports the progress of a restore.
fn supports_json(client: &Client<'_>) -> bool {
    client.is_at_least(0, 16)
}

/// The bytes in the volume before the restore. `None` if they are not needed: a system with I/O counters of this process has
/// them for restic too, and a scan of a large volume takes long.
fn measure(client: &Client<'_>, restore: &Restore, is_volume_in_use: bool) -> Result<Option<u64>> {
    if !is_volume_in_use {
        return Ok(Some(0));
    }
    if bytes_written(std::process::id()).is_some() {
        return Ok(None);
    }
    client.session.task.say("measuring the volume");
    let size = volume_scan::size(&restore.directory, &|| client.session.cancel.is_cancelled());
    client.session.check_cancel()?;
    Ok(Some(size))
}

/// An entry in the output of `restic ls --json`.
#[derive(Deserialize)]
struct ListedEntry {
    path: String,
}

/// Reports missing files. An old restic removes a second hard link that exists in the volume, does not restore it, and exits
/// with 0.
fn report_missing_files(client: &Client<'_>, restore: &Restore, problems: &mut Problems) -> Result<()> {
    let output = client.execute(&["ls", "--json", &restore.snapshot])?;
    for entry in output.lines().filter_map(|line| serde_json::from_str::<ListedEntry>(line).ok()) {
        let path = entry.path.trim_start_matches('/');
        // Names that are not UTF-8 are listed changed.
        if !path.contains('\u{fffd}') && restore.directory.join(path).symlink_metadata().is_err() {
            problems.add(path, format!("removed and not restored by restic {}", client.program.version));
        }
    }
    Ok(())
}

/// Reads the size of the snapshot. On most errors the total stays unknown and the restore continues; a missing snapshot or a
/// wrong password ends it.
fn read_size(client: &Client<'_>, snapshot: &str) -> Result<Option<Stats>> {
    client.session.task.say("reading the size of the snapshot");
    match client.execute_read_only(&["stats", "--json", "--mode", "restore-size", snapshot]) {
        Ok(output) => Ok(output.lines().rev().find_map(|line| serde_json::from_str(line).ok())),
        Err(MoverError::SnapshotNotFound { repository, .. }) => {
            Err(MoverError::SnapshotNotFound { snapshot: snapshot.into(), repository })
        }
        Err(error) if is_fatal(&error) => Err(error),
        Err(error) => {
            tracing::warn!("failed to read the size of snapshot {snapshot}: {error}");
            Ok(None)
        }
    }
}

/// Reads owner and mode of the volume root from the snapshot. The inner error does not end the restore.
fn read_volume_root(client: &Client<'_>, snapshot: &str) -> Result<Result<Option<VolumeRoot>>> {
    client.session.task.say("reading the tags of the snapshot");
    match repository::snapshot(client, snapshot) {
        Err(error) if is_fatal(&error) => Err(error),
        snapshot => Ok(snapshot.map(|snapshot| VolumeRoot::from_tags(&snapshot?.tags))),
    }
}

/// Whether the restore cannot start.
fn is_fatal(error: &MoverError) -> bool {
    matches!(
        error,
        MoverError::SnapshotNotFound { .. }
            | MoverError::WrongPassword { .. }
            | MoverError::Locked { .. }
            | MoverError::Cancelled
    )
}

/// The source of the number of restored bytes.
enum ByteSource {
    /// The messages of restic.
    Messages,
    /// The bytes that the process has written. File sizes do not work: restic creates files with their final size.
    Written,
    /// The growth of the volume, on systems without I/O counters.
    Sizes(DirectoryGrowth),
}

struct Progress<'p> {
    meters: Meters,
    root: &'p Path,
    stats: Option<Stats>,
    source: ByteSource,
    last: Option<Message>,
    summary: Option<Message>,
    problems: Problems,
    repository: &'p str,
    /// The first classified error of a file.
    first_error: Option<MoverError>,
    /// The last store error before the circuit breaker of restic opened.
    circuit_breaker_error: Option<String>,
    interval: std::time::Duration,
    /// The bytes in the volume before the restore, if they were measured.
    before: Option<u64>,
}

impl<'p> Progress<'p> {
    fn new(client: &'p Client<'_>, restore: &'p Restore, stats: Option<Stats>, before: Option<u64>) -> Self {
        let meters = Meters::new(&client.session.task);
        if let Some(stats) = stats {
            meters.total(stats.total_size);
        }
        let source = if supports_json(client) { ByteSource::Messages } else { ByteSource::Written };
        let (last, summary, problems, first_error, circuit_breaker_error) = Default::default();
        let (root, interval) = (restore.directory.as_path(), client.session.interval);
        meters.item("restoring");
        let repository = client.name.as_str();
        Self {
            meters,
            root,
            stats,
            source,
            last,
            summary,
            problems,
            repository,
            first_error,
            circuit_breaker_error,
            interval,
            before,
        }
    }

    fn on_line(&mut self, line: &str) {
        match Message::parse(line) {
            Some(message) if message.kind == "error" => self.problem(&message.item, &message.cause()),
            Some(message) if message.kind == "summary" => self.summary = Some(message),
            Some(message) if message.kind == "status" => self.last = Some(message),
            Some(_) => {}
            None => self.on_text(line),
        }
    }

    /// Handles output without `--json`: "ignoring error for /file: reason".
    fn on_text(&mut self, line: &str) {
        let file_error = line.strip_prefix("ignoring error for ").and_then(|rest| rest.split_once(": "));
        if let Some((item, cause)) = file_error {
            return self.problem(item, cause);
        }
        if line.starts_with("Load(") && line.contains(") failed: ") {
            self.circuit_breaker_error = Some(line.to_owned());
        }
        self.meters.hint(line);
    }

    fn problem(&mut self, item: &str, cause: &str) {
        let root = self.root.to_string_lossy();
        if self.first_error.is_none() {
            self.first_error = self.reason(cause, &root);
        }
        self.problems.add(item.strip_prefix(&*root).unwrap_or(item).trim_start_matches('/'), cause);
    }

    /// Classifies the error of a file. An error with a path in the volume is not the repository's, unless the volume is full.
    fn reason(&self, cause: &str, root: &str) -> Option<MoverError> {
        let classify = |text: &str| errors::classify_text(text, self.repository, Some(self.root));
        // Since 0.17 repeated reads of a failed pack report only the circuit breaker.
        let circuit_breaker_error =
            self.circuit_breaker_error.as_deref().filter(|_| cause.contains(errors::CIRCUIT_BREAKER_OPEN));
        let error = circuit_breaker_error.and_then(classify).or_else(|| classify(cause));
        error.filter(|error| !cause.contains(root) || is_full(error))
    }

    fn sample(&mut self, pid: u32) {
        if matches!(self.source, ByteSource::Written) && bytes_written(pid).is_none() {
            self.source = ByteSource::Sizes(DirectoryGrowth::watch(self.root.to_owned(), self.before, self.interval));
        }
        match &self.source {
            ByteSource::Messages => self.sample_message(),
            ByteSource::Written => self.meters.done(bytes_written(pid).unwrap_or_default()),
            ByteSource::Sizes(growth) => self.meters.done(growth.bytes()),
        }
    }

    fn sample_message(&mut self) {
        let Some(status) = &self.last else { return };
        let (Some(total), Some(done)) = (status.total_bytes, status.bytes_restored) else { return };
        if self.stats.is_none() {
            self.meters.estimate(total);
        }
        self.meters.done(done + status.bytes_skipped.unwrap_or(0));
        if let (Some(files), Some(all)) = (status.files_restored, status.total_files) {
            self.meters.total_files(all);
            self.meters.done_files(files + status.files_skipped.unwrap_or(0));
        }
    }

    fn finish(self, client: &Client<'_>, exit: &Exit, restore: &Restore) -> Result<RestoreOutcome> {
        let is_partial = exit.stderr_tail.contains("There were") && self.problems.count > 0;
        if !exit.status.success() {
            let classified = errors::classify(exit, &client.name, Some(&restore.directory));
            // A restic that continued also prints errors that it recovered from: only errors of files count.
            let classified = if is_partial { self.first_error.or(classified.filter(is_full)) } else { classified };
            match classified {
                Some(error) => return Err(error),
                None if is_partial => {}
                None => return Err(client.program.error(exit)),
            }
        }
        let reported = self.summary.map(|summary| Stats {
            total_size: summary.bytes_restored.unwrap_or(0) + summary.bytes_skipped.unwrap_or(0),
            total_file_count: summary.files_restored.unwrap_or(0) + summary.files_skipped.unwrap_or(0),
        });
        let measured = Stats { total_size: self.meters.bytes_done(), total_file_count: 0 };
        let (stats, problems) = (reported.or(self.stats).unwrap_or(measured), self.problems);
        let (bytes, files) = (stats.total_size, stats.total_file_count);
        self.meters.finish(bytes, files);
        Ok(RestoreOutcome { bytes, files, problems, warnings: Vec::new() })
    }
}

fn is_full(error: &MoverError) -> bool {
    matches!(error, MoverError::VolumeFull { .. })
}

/// The bytes that a process has written, to any file.
fn bytes_written(pid: u32) -> Option<u64> {
    IoCounters::of(pid).map(|io| io.written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_written_by_a_process_are_counted() {
        let before = bytes_written(std::process::id()).expect("readable");
        let mut file = tempfile::tempfile().expect("a file");
        std::io::Write::write_all(&mut file, &vec![0; 100_000]).expect("writes");
        assert!(bytes_written(std::process::id()).expect("readable") >= before + 100_000);
        assert_eq!(bytes_written(u32::MAX), None);
    }
}
