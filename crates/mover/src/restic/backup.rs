//! `restic backup --json`.

use std::path::Path;
use std::time::Instant;

use super::client::Client;
use super::messages::{Message, Scan, Trust};
use super::{errors, repository, tags};
use crate::job::{Backup, HOST};
use crate::meters::Meters;
use crate::mover::require_directory;
use crate::outcome::{BackupOutcome, Problems};
use crate::tool::{Exit, Stream};
use crate::{MoverError, Result, root, survey};

pub(super) fn run(client: &Client<'_>, backup: &Backup) -> Result<BackupOutcome> {
    require_directory(&backup.directory)?;
    client.require_repository()?;
    if survey::is_empty(&backup.directory) {
        // restic refuses to make a snapshot of nothing. There is nothing to restore either.
        Meters::new(&client.session.task).finish(0, 0);
        return Ok(BackupOutcome::default());
    }
    repository::require_single_if_unused(&client.probe, &client.name)?;
    let parent = find_parent(client, backup)?;
    let mut arguments = arguments(backup, parent.as_deref())?;
    if let Some(number) = backup.parallel.filter(|_| client.is(0, 15)) {
        arguments.extend(["--read-concurrency".into(), number.to_string()]);
    }
    let mut command = client.command(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    // A relative path: the snapshot's root is the volume's, wherever it is mounted.
    command.arg(".").current_dir(&backup.directory);
    let mut progress = Progress::new(client, &backup.directory);
    let shared = std::cell::RefCell::new(&mut progress);
    let exit = client.program.run(
        command,
        client.session,
        &[],
        &mut |stream, line| shared.borrow_mut().hear(stream, line),
        &mut |_| shared.borrow_mut().sample(),
    )?;
    progress.finish(client, &exit, parent)
}

fn arguments(backup: &Backup, parent: Option<&str>) -> Result<Vec<String>> {
    let mut arguments: Vec<String> = ["backup", "--json", "--host", HOST].map(String::from).into();
    for word in tags::to_words(&root::tags(backup)?)? {
        arguments.extend(["--tag".into(), word]);
    }
    match parent {
        Some(parent) => arguments.extend(["--parent".into(), parent.into()]),
        None if backup.full => arguments.push("--force".into()),
        // restic then looks for one of the same path: the same pod's.
        None => {}
    }
    Ok(arguments)
}

/// The newest snapshot of the same volume. The path and the node say nothing: both change with the pod.
fn find_parent(client: &Client<'_>, backup: &Backup) -> Result<Option<String>> {
    let Some(volume) = backup.volume().filter(|_| !backup.full) else { return Ok(None) };
    client.session.task.say("looking for the last snapshot");
    let snapshots = repository::snapshots(client, Some(volume))?;
    Ok(snapshots.into_iter().max_by_key(|snapshot| snapshot.time).map(|snapshot| snapshot.id))
}

/// What restic has said so far.
struct Progress<'p> {
    meters: Meters,
    root: &'p Path,
    last: Option<Message>,
    scan: Scan,
    summary: Option<Message>,
    problems: Problems,
}

impl<'p> Progress<'p> {
    fn new(client: &Client<'_>, root: &'p Path) -> Self {
        let (last, scan, summary, problems) = Default::default();
        Self { meters: Meters::new(&client.session.task), root, last, scan, summary, problems }
    }

    fn hear(&mut self, stream: Stream, line: &str) {
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

    /// Once in an interval, the last status line. Nothing counts before restic tells how many bytes are done.
    fn sample(&mut self) {
        let Some(status) = self.last.take() else { return };
        let trust = self.scan.sample(&status, Instant::now());
        let Some(done) = status.bytes_done else { return };
        match trust {
            Trust::Scanning => return self.meters.scanning(done, status.total_bytes.unwrap_or(0)),
            Trust::Settled(total) => self.meters.estimate(total),
            Trust::Known(total) => {
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
        // 3: there is a snapshot, and something could not be read.
        let Some(summary) = self.summary.filter(|_| matches!(exit.code(), Some(0 | 3))) else {
            let known = errors::classify(exit, &client.name, None);
            return Err(known.unwrap_or_else(|| client.program.failed(exit)));
        };
        let missing = || MoverError::Answer { program: "restic".into(), answer: "a summary without a snapshot".into() };
        let snapshot = summary.snapshot_id.filter(|id| !id.is_empty()).ok_or_else(missing)?;
        let (bytes, files) = (summary.total_bytes_processed, summary.total_files_processed);
        self.meters.finish(bytes, files);
        let (added, problems) = (summary.data_added, self.problems);
        Ok(BackupOutcome { snapshot: Some(snapshot), parent, bytes, files, added, problems, warnings: Vec::new() })
    }
}
