//! `kopia snapshot create`.

use plimsoll_progress::kopia_output::ProgressLine;

use super::client::{Client, IDENTITY};
use super::interpolation::Interpolation;
use super::manifest::Manifest;
use super::{errors, policy, repository};
use crate::job::{Backup, VOLUME_TAG};
use crate::meters::Meters;
use crate::mover::require_directory;
use crate::outcome::BackupOutcome;
use crate::process_io::IoCounters;
use crate::program::{Exit, Stream, truncate};
use crate::{MoverError, Result, volume_scan};

pub(super) fn run(client: &Client<'_>, backup: &Backup) -> Result<BackupOutcome> {
    require_directory(&backup.directory)?;
    client.require_repository()?;
    repository::require_single_init(client)?;
    let losses = volume_scan::LossReport::scan(backup.directory.clone(), client.session.cancel.clone());
    let parent = find_parent(client, backup)?;
    // kopia uses the last snapshot of the same source as parent, so the source keeps the name of the volume's first pod.
    let path = parent.as_ref().map_or_else(|| source(backup), |parent| parent.source.path.clone());
    let arguments = arguments(backup, &path)?;
    let policy = policy::disable_ignores(client, &path)?;
    let mut command = client.command(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    command.arg(&backup.directory);
    let meters = Meters::new(&client.session.task);
    let (mut output, mut last) = (String::new(), None);
    let shared = std::cell::RefCell::new(&mut last);
    let mut hashing = Interpolation::default();
    let exit = client.program.run(
        command,
        client.session,
        &[],
        &mut |stream, line| match stream {
            Stream::Out => output.push_str(line),
            Stream::Err => on_line(line, &meters, &mut shared.borrow_mut()),
        },
        &mut |pid| sample(**shared.borrow(), &mut hashing, IoCounters::of(pid).map(|io| io.read), &meters),
    )?;
    let parent = parent.map(|manifest| manifest.id);
    let mut outcome = finish(client, &exit, &output, &meters, parent)?;
    let losses = losses.join().unwrap_or_default();
    outcome.warnings.extend(losses.warning().into_iter().chain(policy.warning));
    let ignored = if policy.ignores_files { losses.ignored.named } else { Vec::new() };
    for problem in losses.problems.named.into_iter().chain(ignored) {
        outcome.problems.add(problem.path, problem.cause);
    }
    Ok(outcome)
}

fn on_line(line: &str, meters: &Meters, last: &mut Option<ProgressLine>) {
    match ProgressLine::parse(line) {
        Some(progress) => *last = Some(progress),
        None => meters.hint(line),
    }
}

/// Reports the progress. `read` is what the process has read so far.
fn sample(last: Option<ProgressLine>, hashing: &mut Interpolation, read: Option<u64>, meters: &Meters) {
    if let Some(ProgressLine::Upload { files, bytes, hashed, estimate, .. }) = last {
        let cached = bytes.saturating_sub(hashed.low);
        let bytes = cached + hashing.bytes(hashed, read);
        match estimate {
            Some(estimate) => {
                meters.estimate(estimate);
                meters.item("storing");
            }
            None => meters.item(crate::transfer_progress::SCANNING),
        }
        meters.done(bytes);
        meters.done_files(files);
    }
}

/// Velero's name of a snapshot's source.
fn source(backup: &Backup) -> String {
    format!("{}/kopia/{}", backup.requester, backup.source)
}

fn arguments(backup: &Backup, path: &str) -> Result<Vec<String>> {
    // Flush before the manifest is printed: otherwise kopia may print a snapshot that it fails to store.
    let first = ["snapshot", "create", "--json", "--flush-per-source", "--pin=velero-pin"];
    let mut arguments: Vec<String> = first.map(String::from).into();
    arguments.push(format!("--description={}", concat!("plimsoll ", env!("CARGO_PKG_VERSION"))));
    arguments.push(format!("--override-source={IDENTITY}@{IDENTITY}:{path}"));
    let velero = [("snapshot-requester", backup.requester.as_str()), ("snapshot-uploader", "kopia")];
    let own = backup.tags.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    for (key, value) in velero.into_iter().chain(own) {
        if key.contains(':') {
            return Err(MoverError::InvalidJob { cause: format!("tag key {key:?} contains a colon") });
        }
        arguments.push(format!("--tags={key}:{value}"));
    }
    if backup.full {
        arguments.push("--force-hash=100".into());
    }
    arguments.extend(backup.parallel.map(|number| format!("--parallel={number}")));
    Ok(arguments)
}

/// The newest complete snapshot of the same volume, from any program.
fn find_parent(client: &Client<'_>, backup: &Backup) -> Result<Option<Manifest>> {
    let Some(volume) = backup.volume() else { return Ok(None) };
    client.session.task.say("looking for the parent snapshot");
    let manifests = repository::manifests(client)?;
    let same = manifests.into_iter().filter(|one| one.tag(VOLUME_TAG) == Some(volume) && one.incomplete.is_empty());
    Ok(same.max_by_key(Manifest::time))
}

fn finish(
    client: &Client<'_>,
    exit: &Exit,
    output: &str,
    meters: &Meters,
    parent: Option<String>,
) -> Result<BackupOutcome> {
    let manifest = serde_json::from_str::<Manifest>(output).ok().filter(|manifest| !manifest.id.is_empty());
    let Some(manifest) = manifest.filter(|manifest| is_stored(exit, manifest)) else {
        let classified = errors::classify(&exit.stderr_tail, &client.name, None);
        let unexpected = || MoverError::UnexpectedOutput {
            program: "kopia".into(),
            output: format!("no snapshot manifest: {}", truncate(output)),
        };
        let failed = || if exit.status.success() { unexpected() } else { client.program.error(exit) };
        return Err(classified.unwrap_or_else(failed));
    };
    if !manifest.incomplete.is_empty() {
        let (program, status) = ("kopia".into(), "incomplete snapshot".into());
        return Err(MoverError::ProgramFailed { program, status, message: manifest.incomplete });
    }
    let summary = manifest.summary();
    let (bytes, files) = (summary.size, summary.files);
    meters.finish(bytes, files);
    let (snapshot, problems) = (Some(manifest.id), summary.problems());
    Ok(BackupOutcome { snapshot, parent, bytes, files, added: None, problems, warnings: Vec::new() })
}

/// Whether the printed snapshot is stored. kopia exits with 1 for a single unreadable file and stores the rest; on any other
/// failure the manifest proves nothing.
fn is_stored(exit: &Exit, manifest: &Manifest) -> bool {
    let only_unreadable_files =
        || exit.code() == Some(1) && manifest.summary().failed > 0 && !exit.stderr_tail.contains(FLUSH_ERROR);
    exit.status.success() || only_unreadable_files()
}

/// kopia's error when the rest of a snapshot could not be stored.
const FLUSH_ERROR: &str = "flush error";

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn a_snapshot_is_stored_on_success_or_with_only_unreadable_files() {
        let exit = |status: i32, words: &str| Exit { status: ExitStatus::from_raw(status), stderr_tail: words.into() };
        let manifest = |failed: u32| -> Manifest {
            let text = format!(r#"{{"source":{{}},"startTime":"","rootEntry":{{"summ":{{"numFailed":{failed}}}}}}}"#);
            serde_json::from_str(&text).expect("a manifest")
        };
        let lost = "Found 2 fatal error(s) while snapshotting default@default:x.";
        for (status, words, failed, expected) in [
            (0, "", 0, true),
            (1 << 8, lost, 2, true),
            (1 << 8, "error flushing writer: connection refused", 0, false),
            (1 << 8, "flush error: error flushing contents: connection refused", 2, false),
            (2 << 8, lost, 2, false),
            (9, lost, 2, false),
        ] {
            assert_eq!(is_stored(&exit(status, words), &manifest(failed)), expected, "{status} {words:?}");
        }
    }

    #[test]
    fn settings_of_a_backup_become_arguments() {
        let mut backup = Backup::new("/v", "ns/pod/data", [].into());
        let has = |backup: &Backup, word: &str| arguments(backup, "path").unwrap().contains(&word.to_owned());
        assert!(has(&backup, "--flush-per-source"), "the snapshot is stored before it is printed");
        assert!(!has(&backup, "--parallel=7"));
        backup.parallel = Some(7);
        assert!(has(&backup, "--parallel=7"));
    }
}
