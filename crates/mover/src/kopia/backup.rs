//! `kopia snapshot create`.

use super::client::{Client, IDENTITY};
use super::manifest::Manifest;
use super::progress::{Line, problem};
use super::{errors, policy, repository};
use crate::job::{Backup, VOLUME_TAG};
use crate::meters::Meters;
use crate::mover::require_directory;
use crate::outcome::BackupOutcome;
use crate::tool::{Exit, Stream, cut};
use crate::{MoverError, Result, survey};

pub(super) fn run(client: &Client<'_>, backup: &Backup) -> Result<BackupOutcome> {
    require_directory(&backup.directory)?;
    client.require_repository()?;
    repository::require_single(client)?;
    let not_kept = survey::Losses::find(backup.directory.clone(), client.session.cancel.clone());
    let parent = find_parent(client, backup)?;
    // kopia compares with the last snapshot of the same source, so a new pod's volume keeps its first pod's name.
    let path = parent.as_ref().map_or_else(|| source(backup), |parent| parent.source.path.clone());
    let arguments = arguments(backup, &path)?;
    let settled = policy::settle(client, &path)?;
    let mut command = client.command(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    command.arg(&backup.directory);
    let meters = Meters::new(&client.session.task);
    let (mut said, mut last) = (String::new(), None);
    let shared = std::cell::RefCell::new(&mut last);
    let exit = client.program.run(
        command,
        client.session,
        &[],
        &mut |stream, line| match stream {
            Stream::Out => said.push_str(line),
            Stream::Err => hear(line, &meters, &mut shared.borrow_mut()),
        },
        &mut |_| sample(**shared.borrow(), &meters),
    )?;
    let parent = parent.map(|manifest| manifest.id);
    let mut outcome = finish(client, &exit, &said, &meters, parent)?;
    let lost = not_kept.join().unwrap_or_default();
    outcome.warnings.extend(lost.warning().into_iter().chain(settled.warning));
    let left_out = if settled.leaves_out { lost.left_out.named } else { Vec::new() };
    for problem in lost.problems.named.into_iter().chain(left_out) {
        outcome.problems.add(problem.path, problem.cause);
    }
    Ok(outcome)
}

fn hear(line: &str, meters: &Meters, last: &mut Option<Line>) {
    match Line::parse(line) {
        Some(progress) => *last = Some(progress),
        // The problems themselves come with the manifest.
        None if problem(line).is_some() => meters.hint(line),
        None => meters.hint(line),
    }
}

fn sample(last: Option<Line>, meters: &Meters) {
    if let Some(Line::Upload { files, bytes, estimate }) = last {
        match estimate {
            Some(estimate) => {
                meters.estimate(estimate);
                meters.item("storing");
            }
            None => meters.item(crate::status::SCANNING),
        }
        meters.done(bytes);
        meters.done_files(files);
    }
}

/// Velero's name for where a snapshot comes from.
fn source(backup: &Backup) -> String {
    format!("{}/kopia/{}", backup.requester, backup.source)
}

fn arguments(backup: &Backup, path: &str) -> Result<Vec<String>> {
    // Flushed before the manifest is printed: otherwise kopia tells of a snapshot first and finds out afterwards
    // whether it can be stored.
    let first = ["snapshot", "create", "--json", "--flush-per-source", "--pin=velero-pin"];
    let mut arguments: Vec<String> = first.map(String::from).into();
    arguments.push(format!("--description={}", concat!("plimsoll ", env!("CARGO_PKG_VERSION"))));
    arguments.push(format!("--override-source={IDENTITY}@{IDENTITY}:{path}"));
    let velero = [("snapshot-requester", backup.requester.as_str()), ("snapshot-uploader", "kopia")];
    let own = backup.tags.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    for (key, value) in velero.into_iter().chain(own) {
        if key.contains(':') {
            return Err(MoverError::InvalidJob { cause: format!("tag {key:?} has a colon in its key") });
        }
        arguments.push(format!("--tags={key}:{value}"));
    }
    if backup.full {
        arguments.push("--force-hash=100".into());
    }
    arguments.extend(backup.parallel.map(|number| format!("--parallel={number}")));
    Ok(arguments)
}

/// The newest complete snapshot of the same volume, whoever made it.
fn find_parent(client: &Client<'_>, backup: &Backup) -> Result<Option<Manifest>> {
    let Some(volume) = backup.volume() else { return Ok(None) };
    client.session.task.say("looking for the last snapshot");
    let manifests = repository::manifests(client)?;
    let same = manifests.into_iter().filter(|one| one.tag(VOLUME_TAG) == Some(volume) && one.incomplete.is_empty());
    Ok(same.max_by_key(Manifest::time))
}

fn finish(
    client: &Client<'_>,
    exit: &Exit,
    said: &str,
    meters: &Meters,
    parent: Option<String>,
) -> Result<BackupOutcome> {
    let manifest = serde_json::from_str::<Manifest>(said).ok().filter(|manifest| !manifest.id.is_empty());
    let Some(manifest) = manifest.filter(|manifest| is_stored(exit, manifest)) else {
        let known = errors::classify(&exit.last_words, &client.name, None);
        let silent = || MoverError::Answer { program: "kopia".into(), answer: format!("no snapshot: {}", cut(said)) };
        let failed = || if exit.status.success() { silent() } else { client.program.failed(exit) };
        return Err(known.unwrap_or_else(failed));
    };
    if !manifest.incomplete.is_empty() {
        let (program, how) = ("kopia".into(), "an incomplete snapshot".into());
        return Err(MoverError::ProgramFailed { program, how, message: manifest.incomplete });
    }
    let summary = manifest.summary();
    let (bytes, files) = (summary.size, summary.files);
    meters.finish(bytes, files);
    let (snapshot, problems) = (Some(manifest.id), summary.problems());
    Ok(BackupOutcome { snapshot, parent, bytes, files, added: None, problems, warnings: Vec::new() })
}

/// Whether the snapshot that was told of is there. kopia ends with 1 for a single file that it could not read, and has
/// stored the rest; whatever else it does not end well for, the manifest proves nothing.
fn is_stored(exit: &Exit, manifest: &Manifest) -> bool {
    let only_lost_files =
        || exit.code() == Some(1) && manifest.summary().failed > 0 && !exit.last_words.contains(NOT_FLUSHED);
    exit.status.success() || only_lost_files()
}

/// What kopia says when the last of a snapshot could not be stored.
const NOT_FLUSHED: &str = "flush error";

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn a_snapshot_is_there_if_kopia_ends_well_or_for_nothing_but_files_that_it_could_not_read() {
        let exit = |status: i32, words: &str| Exit { status: ExitStatus::from_raw(status), last_words: words.into() };
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
    fn what_a_backup_wants_reaches_kopia() {
        let mut backup = Backup::new("/v", "ns/pod/data", [].into());
        let has = |backup: &Backup, word: &str| arguments(backup, "path").unwrap().contains(&word.to_owned());
        assert!(has(&backup, "--flush-per-source"), "the snapshot is stored before it is told of");
        assert!(!has(&backup, "--parallel=7"));
        backup.parallel = Some(7);
        assert!(has(&backup, "--parallel=7"));
    }
}
