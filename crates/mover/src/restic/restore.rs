//! `restic restore`, with progress from `--json` where restic has it (0.16) and from what it writes where it has not.

use std::path::Path;

use serde::Deserialize;

use super::client::Client;
use super::messages::Message;
use super::{errors, repository};
use crate::job::Restore;
use crate::meters::Meters;
use crate::mover::require_directory;
use crate::outcome::{Problems, RestoreOutcome};
use crate::root::{self, Root};
use crate::survey::{self, Growth};
use crate::tool::Exit;
use crate::{MoverError, Result};

/// What `restic stats --json` says.
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
    let shared_volume = !survey::is_empty(&restore.directory);
    let stats = ask_size(client, &restore.snapshot)?;
    let root = ask_root(client, &restore.snapshot)?;
    let before = if speaks(client) { Some(0) } else { measure(client, restore, shared_volume)? };
    let (mut progress, mut exit) = attempt(client, restore, stats, before)?;
    if client.gives_up_locking(&exit) {
        (progress, exit) = attempt(client, restore, stats, before)?;
    }
    let mut outcome = progress.finish(client, &exit, restore)?;
    outcome.warnings.extend(client.lock_warning());
    if shared_volume && !client.is(0, 17) {
        name_lost(client, restore, &mut outcome.problems)?;
    }
    match root {
        Ok(Some(root)) => root.restore(&restore.directory, &mut outcome.problems),
        Ok(None) => {}
        Err(error) => root::unknown(&mut outcome.problems, &error),
    }
    Ok(outcome)
}

/// Runs restic once, to its end.
fn attempt<'p>(
    client: &'p Client<'_>,
    restore: &'p Restore,
    stats: Option<Stats>,
    before: Option<u64>,
) -> Result<(Progress<'p>, Exit)> {
    let mut arguments = vec!["restore", &restore.snapshot];
    if speaks(client) {
        arguments.push("--json");
    }
    if restore.sparse && client.is(0, 15) {
        arguments.push("--sparse");
    }
    let mut command = client.command(&arguments);
    command.arg("--target").arg(&restore.directory);
    let progress = std::cell::RefCell::new(Progress::new(client, restore, stats, before));
    let exit = client.program.run(
        command,
        client.session,
        &[],
        &mut |_, line| progress.borrow_mut().hear(line),
        &mut |pid| progress.borrow_mut().sample(pid),
    )?;
    Ok((progress.into_inner(), exit))
}

/// Whether restic tells how far a restore is.
fn speaks(client: &Client<'_>) -> bool {
    client.is(0, 16)
}

/// The bytes in the volume, counted while nobody writes yet. Nothing where they will hardly be needed: a system that tells what
/// this process writes tells it of restic too, and a large volume takes long to look through.
fn measure(client: &Client<'_>, restore: &Restore, shared_volume: bool) -> Result<Option<u64>> {
    if !shared_volume {
        return Ok(Some(0));
    }
    if written_by(std::process::id()).is_some() {
        return Ok(None);
    }
    client.session.task.say("looking at what is in the volume");
    let size = survey::size(&restore.directory, &|| client.session.cancel.is_cancelled());
    client.session.check_cancel()?;
    Ok(Some(size))
}

/// What `restic ls --json` says of an entry.
#[derive(Deserialize)]
struct Listed {
    path: String,
}

/// An old restic that finds the second name of a file in the volume removes it, does not restore it, and ends with 0. What
/// is not there afterwards is named.
fn name_lost(client: &Client<'_>, restore: &Restore, problems: &mut Problems) -> Result<()> {
    let said = client.ask(&["ls", "--json", &restore.snapshot])?;
    for entry in said.lines().filter_map(|line| serde_json::from_str::<Listed>(line).ok()) {
        let path = entry.path.trim_start_matches('/');
        // A name that is not UTF-8 is not listed as it is.
        if !path.contains('\u{fffd}') && restore.directory.join(path).symlink_metadata().is_err() {
            problems.add(path, format!("restic {} removed it and did not restore it", client.program.version));
        }
    }
    Ok(())
}

/// How much there is. Without an answer the total is unknown and the restore goes on; a snapshot that is not there, or a
/// password that does not open, is no reason to begin.
fn ask_size(client: &Client<'_>, snapshot: &str) -> Result<Option<Stats>> {
    client.session.task.say("asking for the snapshot's size");
    match client.ask_reading(&["stats", "--json", "--mode", "restore-size", snapshot]) {
        Ok(answer) => Ok(answer.lines().rev().find_map(|line| serde_json::from_str(line).ok())),
        Err(MoverError::NoSnapshot { repository, .. }) => {
            Err(MoverError::NoSnapshot { snapshot: snapshot.into(), repository })
        }
        Err(error) if is_refusal(&error) => Err(error),
        Err(error) => {
            tracing::warn!("the size of snapshot {snapshot} is unknown: {error}");
            Ok(None)
        }
    }
}

/// What is known of the volume's root, or why that could not be asked for.
fn ask_root(client: &Client<'_>, snapshot: &str) -> Result<Result<Option<Root>>> {
    client.session.task.say("asking for the snapshot's tags");
    match repository::snapshot(client, snapshot) {
        Err(error) if is_refusal(&error) => Err(error),
        found => Ok(found.map(|found| Root::in_tags(&found?.tags))),
    }
}

/// Whether there is no reason to begin.
fn is_refusal(error: &MoverError) -> bool {
    matches!(
        error,
        MoverError::NoSnapshot { .. }
            | MoverError::WrongPassword { .. }
            | MoverError::Locked { .. }
            | MoverError::Cancelled
    )
}

/// Where the restored bytes are read from.
enum Source {
    /// From restic's own messages.
    Messages,
    /// From what the process has written. Sizes of files would not do: restic makes them whole before it fills them.
    Written,
    /// From the sizes of files after all, where the system does not tell what a process writes.
    Sizes(Growth),
}

struct Progress<'p> {
    meters: Meters,
    root: &'p Path,
    stats: Option<Stats>,
    source: Source,
    last: Option<Message>,
    summary: Option<Message>,
    problems: Problems,
    repository: &'p str,
    /// The first reason with a name that a file was lost for.
    lost_to: Option<MoverError>,
    /// What the store last said to a restic that gave up asking.
    given_up: Option<String>,
    interval: std::time::Duration,
    /// Bytes that were in the volume before, if they were counted.
    before: Option<u64>,
}

impl<'p> Progress<'p> {
    fn new(client: &'p Client<'_>, restore: &'p Restore, stats: Option<Stats>, before: Option<u64>) -> Self {
        let meters = Meters::new(&client.session.task);
        if let Some(stats) = stats {
            meters.total(stats.total_size);
        }
        let source = if speaks(client) { Source::Messages } else { Source::Written };
        let (last, summary, problems, lost_to, given_up) = Default::default();
        let (root, interval) = (restore.directory.as_path(), client.session.interval);
        meters.item("restoring");
        let repository = client.name.as_str();
        Self { meters, root, stats, source, last, summary, problems, repository, lost_to, given_up, interval, before }
    }

    fn hear(&mut self, line: &str) {
        match Message::parse(line) {
            Some(message) if message.kind == "error" => self.problem(&message.item, &message.cause()),
            Some(message) if message.kind == "summary" => self.summary = Some(message),
            Some(message) if message.kind == "status" => self.last = Some(message),
            Some(_) => {}
            None => self.hear_words(line),
        }
    }

    /// "ignoring error for /file: reason": what restic says of a file without `--json`.
    fn hear_words(&mut self, line: &str) {
        let named = line.strip_prefix("ignoring error for ").and_then(|rest| rest.split_once(": "));
        if let Some((item, cause)) = named {
            return self.problem(item, cause);
        }
        if line.starts_with("Load(") && line.contains(") failed: ") {
            self.given_up = Some(line.to_owned());
        }
        self.meters.hint(line);
    }

    fn problem(&mut self, item: &str, cause: &str) {
        let root = self.root.to_string_lossy();
        if self.lost_to.is_none() {
            self.lost_to = self.reason(cause, &root);
        }
        self.problems.add(item.strip_prefix(&*root).unwrap_or(item).trim_start_matches('/'), cause);
    }

    /// Why a file was lost, if that has a name. Of an error that names a place in the volume, the volume is the cause.
    fn reason(&self, cause: &str, root: &str) -> Option<MoverError> {
        let of = |words: &str| errors::of_words(words, self.repository, Some(self.root));
        // Since 0.17 whoever asks again for what the store did not give is told no more than this.
        let given_up = self.given_up.as_deref().filter(|_| cause.contains(errors::GIVEN_UP));
        let known = given_up.and_then(of).or_else(|| of(cause));
        known.filter(|error| !cause.contains(root) || is_full(error))
    }

    fn sample(&mut self, pid: u32) {
        if matches!(self.source, Source::Written) && written_by(pid).is_none() {
            self.source = Source::Sizes(Growth::watch(self.root.to_owned(), self.before, self.interval));
        }
        match &self.source {
            Source::Messages => self.sample_message(),
            Source::Written => self.meters.done(written_by(pid).unwrap_or_default()),
            Source::Sizes(growth) => self.meters.done(growth.bytes()),
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
        let partly = exit.last_words.contains("There were") && self.problems.count > 0;
        if !exit.status.success() {
            let known = errors::classify(exit, &client.name, Some(&restore.directory));
            // A restic that goes on to its end tells in its last words what it got over, too: only what files were lost to counts.
            let known = if partly { self.lost_to.or(known.filter(is_full)) } else { known };
            match known {
                Some(error) => return Err(error),
                None if partly => {}
                None => return Err(client.program.failed(exit)),
            }
        }
        let counted = self.summary.map(|summary| Stats {
            total_size: summary.bytes_restored.unwrap_or(0) + summary.bytes_skipped.unwrap_or(0),
            total_file_count: summary.files_restored.unwrap_or(0) + summary.files_skipped.unwrap_or(0),
        });
        let seen = Stats { total_size: self.meters.bytes_done(), total_file_count: 0 };
        let (stats, problems) = (counted.or(self.stats).unwrap_or(seen), self.problems);
        let (bytes, files) = (stats.total_size, stats.total_file_count);
        self.meters.finish(bytes, files);
        Ok(RestoreOutcome { bytes, files, problems, warnings: Vec::new() })
    }
}

fn is_full(error: &MoverError) -> bool {
    matches!(error, MoverError::VolumeFull { .. })
}

/// The bytes a process has written by now, wherever to.
fn written_by(pid: u32) -> Option<u64> {
    let io = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    io.lines().find_map(|line| line.strip_prefix("wchar: "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_tells_what_a_process_has_written() {
        let before = written_by(std::process::id()).expect("readable");
        let mut file = tempfile::tempfile().expect("a file");
        std::io::Write::write_all(&mut file, &vec![0; 100_000]).expect("writes");
        assert!(written_by(std::process::id()).expect("readable") >= before + 100_000);
        assert_eq!(written_by(u32::MAX), None);
    }
}
