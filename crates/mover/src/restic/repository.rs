//! Initializing repositories, and listing and forgetting snapshots.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Deserialize;

use super::client::Client;
use super::{require_id, tags};
use crate::job::VOLUME_TAG;
use crate::lifecycle::password_warnings;
use crate::mover::Session;
use crate::outcome::{EnsureOutcome, LockInfo, SnapshotInfo};
use crate::probe::{Probe, newest_age};
use crate::{MoverError, Result};

/// Keys without a config that are older than this are from an interrupted initialization: one takes seconds.
const INTERRUPTED_INIT_AGE: Duration = Duration::from_mins(10);

/// An initialization takes about a second between the check for a config and writing it, for the key derivation.
const CONCURRENT_INIT_WAIT: Duration = Duration::from_secs(2);
/// The interval of checks for a cancel.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Deserialize)]
struct Config {
    id: String,
}

/// Opens the repository or initializes it.
pub(super) fn ensure(client: &Client<'_>) -> Result<EnsureOutcome> {
    let created = !client.probe.exists("config")? && initialize(client)?;
    require_single_init_if_unused(&client.probe, &client.name)?;
    client.session.task.say("opening the repository");
    client.require_readable()?;
    let output = client.execute(&["--no-lock", "cat", "config"])?;
    let config: Config = serde_json::from_str(&output).map_err(|_| MoverError::UnexpectedOutput {
        program: "restic".into(),
        output: crate::program::truncate(&output),
    })?;
    let warnings = password_warnings(client.session.repository.password.expose());
    Ok(EnsureOutcome { created, id: config.id, warnings })
}

/// Initializes a repository and waits for concurrent initializations. Returns whether it was initialized by this process.
fn initialize(client: &Client<'_>) -> Result<bool> {
    remove_interrupted_init(&client.probe, &client.name)?;
    client.session.task.say("initializing the repository");
    let created = client.execute(&["init"]);
    match created {
        // Another process was faster: open its repository.
        Err(_) if client.probe.exists("config")? => {}
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    wait_for_concurrent_init(client.session)?;
    Ok(created.is_ok())
}

/// Waits for a concurrent initialization, which checked just before our config existed and writes its own a moment later.
pub(crate) fn wait_for_concurrent_init(session: &Session) -> Result<()> {
    session.task.say("waiting for concurrent initializations of the repository");
    let started = Instant::now();
    while started.elapsed() < CONCURRENT_INIT_WAIT {
        session.check_cancel()?;
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Requires exactly one key and a config. Initialization takes no lock: two at once write two keys, and one config survives.
pub(crate) fn require_single_init(probe: &Probe, name: &str) -> Result<()> {
    let keys = probe.list("keys")?;
    let config = probe.exists("config")?;
    if keys.len() == 1 && config {
        return Ok(());
    }
    let found = format!("{} keys and {} config", keys.len(), if config { "a" } else { "no" });
    Err(MoverError::InitConflict { repository: name.into(), found })
}

/// Requires exactly one key as long as the repository is empty: a concurrent initialization may have been slower than our first
/// check. In a repository in use, more keys are allowed.
pub(crate) fn require_single_init_if_unused(probe: &Probe, name: &str) -> Result<()> {
    let is_used = probe.contains_any("snapshots")? || probe.contains_any("index")?;
    if is_used { Ok(()) } else { require_single_init(probe, name) }
}

/// Removes keys without a config of an initialization that was interrupted long ago. Fails if another one may be running.
pub(crate) fn remove_interrupted_init(probe: &Probe, name: &str) -> Result<()> {
    let keys = probe.list("keys")?;
    if keys.is_empty() {
        return Ok(());
    }
    let age = newest_age(&keys);
    let is_used = probe.contains_any("snapshots")? || probe.contains_any("index")?;
    if is_used {
        let cause = "snapshots or an index without a config".into();
        return Err(MoverError::Damaged { repository: name.into(), cause });
    }
    if age < INTERRUPTED_INIT_AGE {
        return Err(MoverError::InitIncomplete { repository: name.into(), age: age.as_secs() });
    }
    for key in keys {
        probe.delete(&key.key)?;
    }
    Ok(())
}

#[derive(Deserialize)]
struct ListedSnapshot {
    id: String,
    time: String,
    #[serde(default)]
    tags: Option<Vec<String>>,
    #[serde(default)]
    paths: Vec<String>,
    #[serde(default)]
    summary: Option<Summary>,
}

#[derive(Deserialize)]
struct Summary {
    #[serde(default)]
    total_bytes_processed: Option<u64>,
    #[serde(default)]
    backup_end: Option<String>,
}

/// All snapshots, or those of one volume.
pub(super) fn snapshots(client: &Client<'_>, volume: Option<&str>) -> Result<Vec<SnapshotInfo>> {
    let tag = volume.map(|uid| format!("{VOLUME_TAG}={uid}"));
    let tag = tag.as_deref().map(|tag| ["--tag", tag]);
    list(client, tag.iter().flatten())
}

/// One snapshot, if it exists.
pub(super) fn snapshot(client: &Client<'_>, id: &str) -> Result<Option<SnapshotInfo>> {
    Ok(list(client, [&id])?.into_iter().find(|snapshot| snapshot.id.starts_with(id)))
}

fn list<'w>(client: &Client<'_>, filter: impl IntoIterator<Item = &'w &'w str>) -> Result<Vec<SnapshotInfo>> {
    let arguments: Vec<&str> = ["--no-lock", "snapshots", "--json"].iter().chain(filter).copied().collect();
    let output = client.execute(&arguments)?;
    let invalid =
        || MoverError::UnexpectedOutput { program: "restic".into(), output: crate::program::truncate(&output) };
    let listed: Option<Vec<ListedSnapshot>> = serde_json::from_str(output.trim()).map_err(|_| invalid())?;
    listed.unwrap_or_default().into_iter().map(|one| info(one).ok_or_else(invalid)).collect()
}

fn info(listed: ListedSnapshot) -> Option<SnapshotInfo> {
    let summary = listed.summary.as_ref();
    Some(SnapshotInfo {
        time: listed.time.parse::<Timestamp>().ok()?,
        ended: summary.and_then(|summary| summary.backup_end.as_deref()?.parse().ok()),
        tags: tags::parse_tags(listed.tags.iter().flatten()),
        source: listed.paths.join(" "),
        bytes: summary.and_then(|summary| summary.total_bytes_processed),
        id: listed.id,
    })
}

pub(super) fn forget(client: &Client<'_>, snapshots: &[String]) -> Result<usize> {
    snapshots.iter().try_for_each(|id| require_id(id))?;
    let existing = self::snapshots(client, None)?;
    let exists = |id: &&String| existing.iter().any(|snapshot| snapshot.id.starts_with(id.as_str()));
    let mut arguments = vec!["forget"];
    arguments.extend(snapshots.iter().filter(exists).map(String::as_str));
    // Without a snapshot ID restic would apply a policy.
    if arguments.len() > 1 {
        client.execute(&arguments)?;
    }
    Ok(snapshots.len())
}

#[derive(Deserialize)]
struct LockFile {
    time: String,
    #[serde(default)]
    exclusive: bool,
    #[serde(default)]
    hostname: String,
    #[serde(default)]
    pid: u32,
}

pub(super) fn locks(client: &Client<'_>) -> Result<Vec<LockInfo>> {
    let mut locks = Vec::new();
    for object in client.probe.list("locks")? {
        let Some(id) = object.key.rsplit('/').next().filter(|id| require_id(id).is_ok()) else { continue };
        let output = match client.execute(&["--no-lock", "cat", "lock", id]) {
            Ok(output) => output,
            // The lock was removed since it was listed.
            Err(_) if !client.probe.exists(&object.key)? => continue,
            Err(error) => return Err(error),
        };
        let invalid =
            || MoverError::UnexpectedOutput { program: "restic".into(), output: crate::program::truncate(&output) };
        let file: LockFile = serde_json::from_str(&output).map_err(|_| invalid())?;
        let time = file.time.parse().map_err(|_| invalid())?;
        let (hostname, pid, exclusive) = (file.hostname, file.pid, file.exclusive);
        locks.push(LockInfo { id: id.to_owned(), time, hostname, pid, exclusive });
    }
    Ok(locks)
}
