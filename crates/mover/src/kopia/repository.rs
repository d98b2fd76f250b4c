//! Making, listing and forgetting.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::client::{Client, IDENTITY};
use super::manifest::Manifest;
use super::require_id;
use crate::lifecycle::password_warnings;
use crate::outcome::{Ensured, SnapshotInfo};
use crate::tool::cut;
use crate::{MoverError, Result};

/// What Velero writes beside a repository to show that it has finished setting it up.
const VELERO_MARK: &str = "udmrepo.Repository";
/// How long another initialisation that began at the same moment may need to show.
const SETTLE: Duration = Duration::from_millis(500);

/// The readable part of kopia's format file.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Format {
    #[serde(rename = "uniqueID")]
    unique_id: String,
}

/// Opens the repository or makes it.
pub(super) fn ensure(client: &Client<'_>) -> Result<Ensured> {
    let created = !client.probe.exists(client.format_key())?;
    if created {
        create(client)?;
    }
    client.session.task.say("opening the repository");
    client.ask(&["repository", "status"])?;
    let warnings = password_warnings(client.session.repository.password.expose());
    Ok(Ensured { created, id: format(client)?.unique_id, warnings })
}

fn create(client: &Client<'_>) -> Result<()> {
    client.session.task.say("initialising the repository");
    client.create()?;
    let ours = format(client)?;
    std::thread::sleep(SETTLE);
    // kopia has one format file: of two initialisations the later one wins, and the earlier one's data is lost.
    let now = format(client)?;
    if ours != now {
        let found = "the format file was replaced".into();
        return Err(MoverError::InitialisedTwice { repository: client.name.clone(), found });
    }
    settle_policies(client)?;
    let mark = json!({ "uniqueID": now.unique_id }).to_string().into_bytes();
    client.probe.put(&mark_key(client), mark)
}

/// As Velero sets them: backups are deleted when somebody deletes them, and only `default@default` does maintenance.
fn settle_policies(client: &Client<'_>) -> Result<()> {
    let forever =
        ["latest", "hourly", "daily", "weekly", "monthly", "annual"].map(|unit| format!("--keep-{unit}={}", i32::MAX));
    let mut policy = vec!["policy", "set", "--global", "--compression=none"];
    policy.extend(forever.iter().map(String::as_str));
    client.ask(&policy)?;
    client.ask(&["maintenance", "set", &format!("--owner={IDENTITY}@{IDENTITY}")]).map(drop)
}

fn mark_key(client: &Client<'_>) -> String {
    let ending = client.format_key().strip_prefix("kopia.repository").unwrap_or_default();
    format!("{VELERO_MARK}{ending}")
}

fn format(client: &Client<'_>) -> Result<Format> {
    let content = client.probe.get(client.format_key())?;
    serde_json::from_slice(&content).map_err(|error| MoverError::Damaged {
        repository: client.name.clone(),
        cause: format!("{}: {error}", client.format_key()),
    })
}

pub(super) fn manifests(client: &Client<'_>) -> Result<Vec<Manifest>> {
    let said = client.ask(&["snapshot", "list", "--all", "--json"])?;
    let said = said.trim();
    if said.is_empty() {
        return Ok(Vec::new());
    }
    let wrong = |_| MoverError::Answer { program: "kopia".into(), answer: cut(said) };
    serde_json::from_str::<Option<Vec<Manifest>>>(said).map(Option::unwrap_or_default).map_err(wrong)
}

pub(super) fn snapshots(client: &Client<'_>) -> Result<Vec<SnapshotInfo>> {
    Ok(manifests(client)?.iter().filter_map(Manifest::info).collect())
}

pub(super) fn forget(client: &Client<'_>, snapshots: &[String]) -> Result<usize> {
    snapshots.iter().try_for_each(|id| require_id(id))?;
    let there = manifests(client)?;
    let mut arguments = vec!["snapshot", "delete", "--delete"];
    arguments.extend(snapshots.iter().filter(|id| there.iter().any(|one| one.id == **id)).map(String::as_str));
    if arguments.len() > 3 {
        client.ask(&arguments)?;
    }
    Ok(snapshots.len())
}
