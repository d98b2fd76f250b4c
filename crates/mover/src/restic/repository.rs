//! Making, listing and forgetting.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Deserialize;

use super::client::Client;
use super::{require_id, tags};
use crate::job::VOLUME_TAG;
use crate::lifecycle::password_warnings;
use crate::mover::Session;
use crate::outcome::{Ensured, LockInfo, SnapshotInfo};
use crate::probe::{Probe, youngest};
use crate::{MoverError, Result};

/// Keys without a config for this long are what an interrupted initialisation left: one takes seconds.
const INTERRUPTED: Duration = Duration::from_mins(10);

/// Between looking for a config and writing one an initialisation takes a second: it stretches a password.
const RIVALS_SHOW_WITHIN: Duration = Duration::from_secs(2);
/// How soon a cancel ends that.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Deserialize)]
struct Config {
    id: String,
}

/// Opens the repository or makes it.
pub(super) fn ensure(client: &Client<'_>) -> Result<Ensured> {
    let created = !client.probe.exists("config")? && make(client)?;
    require_single_if_unused(&client.probe, &client.name)?;
    client.session.task.say("opening the repository");
    client.require_readable()?;
    let said = client.ask(&["--no-lock", "cat", "config"])?;
    let config: Config = serde_json::from_str(&said)
        .map_err(|_| MoverError::Answer { program: "restic".into(), answer: crate::tool::cut(&said) })?;
    let warnings = password_warnings(client.session.repository.password.expose());
    Ok(Ensured { created, id: config.id, warnings })
}

/// Makes a repository and waits until a rival would be seen. Whether it is ours.
fn make(client: &Client<'_>) -> Result<bool> {
    clear_interrupted(&client.probe, &client.name)?;
    client.session.task.say("initialising the repository");
    let made = client.ask(&["init"]);
    match made {
        // Somebody was faster: there is one to open.
        Err(_) if client.probe.exists("config")? => {}
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    let_rivals_show(client.session)?;
    Ok(made.is_ok())
}

/// Whoever looked just before our config was there writes his own a moment later.
pub(crate) fn let_rivals_show(session: &Session) -> Result<()> {
    session.task.say("waiting for others that may make the same repository");
    let begun = Instant::now();
    while begun.elapsed() < RIVALS_SHOW_WITHIN {
        session.check_cancel()?;
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Initialising takes no lock that another cluster would see: two at once write two keys, and one config survives.
pub(crate) fn require_single(probe: &Probe, name: &str) -> Result<()> {
    let keys = probe.list("keys")?;
    let config = probe.exists("config")?;
    if keys.len() == 1 && config {
        return Ok(());
    }
    let found = format!("{} keys and {} config", keys.len(), if config { "a" } else { "no" });
    Err(MoverError::InitialisedTwice { repository: name.into(), found })
}

/// The same as long as nothing refers to anything: whoever made the other one may have been slower than our first look, and
/// keys that are added later belong to a repository that is in use.
pub(crate) fn require_single_if_unused(probe: &Probe, name: &str) -> Result<()> {
    let used = probe.holds_any("snapshots")? || probe.holds_any("index")?;
    if used { Ok(()) } else { require_single(probe, name) }
}

/// Keys without a config: somebody is at it right now, or was interrupted. What was interrupted long ago, and holds
/// nothing, is cleared away.
pub(crate) fn clear_interrupted(probe: &Probe, name: &str) -> Result<()> {
    let keys = probe.list("keys")?;
    if keys.is_empty() {
        return Ok(());
    }
    let age = youngest(&keys);
    let used = probe.holds_any("snapshots")? || probe.holds_any("index")?;
    if used {
        let cause = "it has snapshots or an index but no config".into();
        return Err(MoverError::Damaged { repository: name.into(), cause });
    }
    if age < INTERRUPTED {
        return Err(MoverError::HalfInitialised { repository: name.into(), age: age.as_secs() });
    }
    for key in keys {
        probe.delete(&key.key)?;
    }
    Ok(())
}

#[derive(Deserialize)]
struct Listed {
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

/// One snapshot, if it is there.
pub(super) fn snapshot(client: &Client<'_>, id: &str) -> Result<Option<SnapshotInfo>> {
    Ok(list(client, [&id])?.into_iter().find(|snapshot| snapshot.id.starts_with(id)))
}

fn list<'w>(client: &Client<'_>, which: impl IntoIterator<Item = &'w &'w str>) -> Result<Vec<SnapshotInfo>> {
    let words: Vec<&str> = ["--no-lock", "snapshots", "--json"].iter().chain(which).copied().collect();
    let said = client.ask(&words)?;
    let wrong = || MoverError::Answer { program: "restic".into(), answer: crate::tool::cut(&said) };
    let listed: Option<Vec<Listed>> = serde_json::from_str(said.trim()).map_err(|_| wrong())?;
    listed.unwrap_or_default().into_iter().map(|one| info(one).ok_or_else(wrong)).collect()
}

fn info(listed: Listed) -> Option<SnapshotInfo> {
    let summary = listed.summary.as_ref();
    Some(SnapshotInfo {
        time: listed.time.parse::<Timestamp>().ok()?,
        ended: summary.and_then(|summary| summary.backup_end.as_deref()?.parse().ok()),
        tags: tags::from_words(listed.tags.iter().flatten()),
        source: listed.paths.join(" "),
        bytes: summary.and_then(|summary| summary.total_bytes_processed),
        id: listed.id,
    })
}

pub(super) fn forget(client: &Client<'_>, snapshots: &[String]) -> Result<usize> {
    snapshots.iter().try_for_each(|id| require_id(id))?;
    let there = self::snapshots(client, None)?;
    let found = |id: &&String| there.iter().any(|snapshot| snapshot.id.starts_with(id.as_str()));
    let mut arguments = vec!["forget"];
    arguments.extend(snapshots.iter().filter(found).map(String::as_str));
    // Without a snapshot's name restic would go by a policy.
    if arguments.len() > 1 {
        client.ask(&arguments)?;
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
        let said = match client.ask(&["--no-lock", "cat", "lock", id]) {
            Ok(said) => said,
            // Locks come and go.
            Err(_) if !client.probe.exists(&object.key)? => continue,
            Err(error) => return Err(error),
        };
        let wrong = || MoverError::Answer { program: "restic".into(), answer: crate::tool::cut(&said) };
        let file: LockFile = serde_json::from_str(&said).map_err(|_| wrong())?;
        let time = file.time.parse().map_err(|_| wrong())?;
        let (hostname, pid, exclusive) = (file.hostname, file.pid, file.exclusive);
        locks.push(LockInfo { id: id.to_owned(), time, hostname, pid, exclusive });
    }
    Ok(locks)
}
