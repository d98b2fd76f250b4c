//! `kopia snapshot restore`.

use plimsoll_progress::kopia_output::ProgressLine;

use super::client::Client;
use super::interpolation::Interpolation;
use super::manifest::{Manifest, Summary};
use super::{errors, owners};
use crate::job::Restore;
use crate::meters::Meters;
use crate::mover::require_directory;
use crate::outcome::{Problems, RestoreOutcome};
use crate::process_io::IoCounters;
use crate::program::Stream;
use crate::{MoverError, Result};

pub(super) fn run(client: &Client<'_>, restore: &Restore) -> Result<RestoreOutcome> {
    super::require_id(&restore.snapshot)?;
    require_directory(&restore.directory)?;
    client.require_repository()?;
    let warnings = owners::warning(&restore.directory).into_iter().collect();
    let summary = read_size(client, &restore.snapshot)?;
    let meters = Meters::new(&client.session.task);
    if let Some(summary) = &summary {
        meters.total(summary.size);
        meters.total_files(entries(summary));
    }
    meters.item("restoring");
    let arguments = arguments(restore);
    let mut command = client.command(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    command.arg(&restore.directory);
    let last = std::cell::Cell::new(None);
    let mut writing = Interpolation::default();
    let exit = client.program.run(
        command,
        client.session,
        &[],
        &mut |stream, line| match ProgressLine::parse(line) {
            Some(progress) if stream == Stream::Err => last.set(Some(progress)),
            _ => meters.hint(line),
        },
        &mut |pid| {
            let written = IoCounters::of(pid).map(|io| io.written);
            sample(last.get(), summary.is_some(), &mut writing, written, &meters);
        },
    )?;
    if !exit.status.success() {
        let classified = errors::classify(&exit.stderr_tail, &client.name, Some(&restore.directory));
        return Err(classified.unwrap_or_else(|| client.program.error(&exit)));
    }
    let summary = summary.unwrap_or_else(|| summary_of(last.get()));
    let (bytes, files) = (summary.size, summary.files);
    meters.finish(bytes, entries(&summary));
    Ok(RestoreOutcome { bytes, files, problems: Problems::default(), warnings })
}

fn arguments(restore: &Restore) -> Vec<String> {
    let sparse = restore.sparse.then(|| "--write-sparse-files".to_owned());
    let parallel = restore.parallel.map(|number| format!("--parallel={number}"));
    let first = ["snapshot", "restore"].map(String::from).into_iter();
    first.chain(sparse).chain(parallel).chain([restore.snapshot.clone()]).collect()
}

/// kopia counts directories and symbolic links among the restored entries.
fn entries(summary: &Summary) -> u64 {
    summary.files + summary.symlinks + summary.dirs
}

fn summary_of(last: Option<ProgressLine>) -> Summary {
    match last {
        Some(ProgressLine::Restore { entries, bytes, .. }) => {
            Summary { size: bytes, files: entries, ..Summary::default() }
        }
        _ => Summary::default(),
    }
}

/// Reports the progress. Without the snapshot's summary the total is kopia's growing estimate. `written` is what the process has
/// written so far.
fn sample(
    last: Option<ProgressLine>,
    is_total_known: bool,
    writing: &mut Interpolation,
    written: Option<u64>,
    meters: &Meters,
) {
    if let Some(ProgressLine::Restore { entries, restored, found_bytes, .. }) = last {
        if !is_total_known {
            meters.estimate(found_bytes);
        }
        meters.done(writing.bytes(restored, written));
        meters.done_files(entries);
    }
}

/// Reads the size of the snapshot. On most errors the total stays unknown.
fn read_size(client: &Client<'_>, snapshot: &str) -> Result<Option<Summary>> {
    client.session.task.say("reading the size of the snapshot");
    match client.execute(&["manifest", "show", snapshot]) {
        Ok(output) => {
            let json = output.find('{').map_or("", |start| &output[start..]);
            Ok(serde_json::from_str::<Manifest>(json).ok().map(|manifest| manifest.summary()))
        }
        Err(MoverError::ProgramFailed { message, .. }) if message.contains("not found") => {
            Err(MoverError::SnapshotNotFound { snapshot: snapshot.into(), repository: client.name.clone() })
        }
        Err(error @ (MoverError::WrongPassword { .. } | MoverError::Cancelled)) => Err(error),
        Err(error) => {
            tracing::warn!("failed to read the size of snapshot {snapshot}: {error}");
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_a_restore_become_arguments() {
        let mut restore = Restore::new("0123", "/v");
        assert_eq!(arguments(&restore), ["snapshot", "restore", "--write-sparse-files", "0123"]);
        (restore.parallel, restore.sparse) = (Some(3), false);
        assert_eq!(arguments(&restore), ["snapshot", "restore", "--parallel=3", "0123"]);
    }
}
