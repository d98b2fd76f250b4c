//! `restic backup --json`.

use std::path::Path;
use std::time::Instant;

use super::client::Client;
use super::messages::{Message, ReportedTotal, ScanDetector};
use super::{errors, repository, tags};
use crate::job::{Backup, HOST};
use crate::meters::Meters;
use crate::mover::require_directory;
use crate::outcome::{BackupOutcome, Problems};
use crate::program::{Exit, Stream};
use crate::{MoverError, Result, volume_root, volume_scan};

pub(super) fn run(client: &Client<'_>, backup: &Backup) -> Result<BackupOutcome> {
    require_directory(&backup.directory)?;
    client.require_repository()?;
    if volume_scan::is_empty(&backup.directory) {
        // restic makes no snapshots of empty directories.
        Meters::new(&client.session.task).finish(0, 0);
        return Ok(BackupOutcome::default());
    }
    repository::require_single_init_if_unused(&client.probe, &client.name)?;
    let parent = find_parent(client, backup)?;
    let mut arguments = arguments(backup, parent.as_deref())?;
    if let Some(number) = backup.parallel.filter(|_| client.is_at_least(0, 15)) {
        arguments.extend(["--read-concurrency".into(), number.to_string()]);
    }
    let mut command = client.command(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    // A relative path: the root of the snapshot is the volume's root, wherever it is mounted.
    command.arg(".").current_dir(&backup.directory);
    let mut progress = Progress::new(client, &backup.directory);
    let shared = std::cell::RefCell::new(&mut progress);
    let exit = client.program.run(
        command,
        client.session,
        &[],
        &mut |stream, line| shared.borrow_mut().on_line(stream, line),
        &mut |_| shared.borrow_mut().sample(),
    )?;
    progress.finish(client, &exit, parent)
}

fn arguments(backup: &Backup, parent: Option<&str>) -> Result<Vec<String>> {
    let mut arguments: Vec<String> = ["backup", "--json", "--host", HOST].map(String::from).into();
    for tag in tags::format_tags(&volume_root::tags(backup)?)? {
        arguments.extend(["--tag".into(), tag]);
    }
    match parent {
        Some(parent) => arguments.extend(["--parent".into(), parent.into()]),
        None if backup.full => arguments.push("--force".into()),
        // restic then searches for a parent with the same path.
        None => {}
    }
    Ok(arguments)
}

/// The newest snapshot of the same volume. Path and node are not compared: both change with the pod.
fn find_parent(client: &Client<'_>, backup: &Backup) -> Result<Option<String>> {
    let Some(volume) = backup.volume().filter(|_| !backup.full) else { return Ok(None) };
    client.session.task.say("looking for the parent snapshot");
    let snapshots = repository::snapshots(client, Some(volume))?;
    Ok(snapshots.into_iter().max_by_key(|snapshot| snapshot.time).map(|snapshot| snapshot.id))
}

/// The progress of restic.
struct Progress<'p> {
    meters: Meters,
    root: &'p Path,
    last: Option<Message>,
    scan: ScanDetector,
    summary: Option<Message>,
    problems: Problems,
}

impl<'p> Progress<'p> {
    fn new(client: &Client<'_>, root: &'p Path) -> Self {
        let (last, scan, summary, problems) = Default::default();
        Self { meters: Meters::new(&client.session.task), root, last, scan, summary, problems }
    }

    fn on_line(&mut self, stream: Stream, line: &str) {
        let Some(message) = Message::parse(line) else {
            self.meters.hint(line);
            return;
        };
        match message.kind.as_str() {
            "error" if message.during != "scan" => self.problem(&message),
            "summary" => self.summary = Some(message),
            _ if message.action == "scan_finished" => self.scan.finish(),
            "status" if stream == Stream::Out => self.last = Some(message),
            _ => {}
        }
    }

    fn problem(&mut self, message: &Message) {
        let root = self.root.to_string_lossy();
        let path = message.item.strip_prefix(&*root).unwrap_or(&message.item).trim_start_matches('/');
        self.problems.add(path, message.cause());
    }

    /// Evaluates the last status message, once in every interval. Without a number of bytes done nothing is reported.
    fn sample(&mut self) {
        let Some(status) = self.last.take() else { return };
        let trust = self.scan.sample(&status, Instant::now());
        let Some(done) = status.bytes_done else { return };
        match trust {
            ReportedTotal::Scanning => return self.meters.scanning(done, status.total_bytes.unwrap_or(0)),
            ReportedTotal::Estimated(total) => self.meters.estimate(total),
            ReportedTotal::Final(total) => {
                self.meters.total(total);
                if let Some(files) = status.total_files {
                    self.meters.total_files(files);
                }
            }
        }
        self.meters.done(done);
        self.meters.done_files(status.files_done.unwrap_or_default());
        self.meters.item(status.current_files.first().map_or("storing", |file| file.trim_start_matches('/')));
    }

    fn finish(self, client: &Client<'_>, exit: &Exit, parent: Option<String>) -> Result<BackupOutcome> {
        // 3: the snapshot is incomplete, because files could not be read.
        let Some(summary) = self.summary.filter(|_| matches!(exit.code(), Some(0 | 3))) else {
            let classified = errors::classify(exit, &client.name, None);
            return Err(classified.unwrap_or_else(|| client.program.error(exit)));
        };
        let missing = || MoverError::UnexpectedOutput {
            program: "restic".into(),
            output: "summary without a snapshot ID".into(),
        };
        let snapshot = summary.snapshot_id.filter(|id| !id.is_empty()).ok_or_else(missing)?;
        let (bytes, files) = (summary.total_bytes_processed, summary.total_files_processed);
        self.meters.finish(bytes, files);
        let (added, problems) = (summary.data_added, self.problems);
        Ok(BackupOutcome { snapshot: Some(snapshot), parent, bytes, files, added, problems, warnings: Vec::new() })
    }
}
