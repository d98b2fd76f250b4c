//! Initializing repositories, and listing and forgetting snapshots.

use serde::Deserialize;
use serde_json::json;

use super::client::{Client, IDENTITY};
use super::manifest::Manifest;
use super::{policy, require_id};
use crate::lifecycle::password_warnings;
use crate::outcome::{EnsureOutcome, SnapshotInfo};
use crate::program::truncate;
use crate::restic::repository::wait_for_concurrent_init;
use crate::{MoverError, Result};

/// The object that Velero writes when the setup of a repository is complete.
const VELERO_MARKER: &str = "udmrepo.Repository";

/// The unencrypted part of kopia's format file, and of Velero's marker.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Format {
    #[serde(rename = "uniqueID")]
    unique_id: String,
}

/// Opens the repository or initializes it, and completes its setup.
pub(super) fn ensure(client: &Client<'_>) -> Result<EnsureOutcome> {
    let created = !client.probe.exists(client.format_key())? && initialize(client)?;
    let is_setup_missing = marker(client)?.is_none();
    if is_setup_missing {
        require_stable_format(client)?;
    }
    require_single_init(client)?;
    client.session.task.say("opening the repository");
    client.execute(&["repository", "status"])?;
    let format = format(client)?;
    if is_setup_missing {
        // Just initialized, or its setup was interrupted.
        set_policies(client)?;
        let marker = json!({ "uniqueID": format.unique_id }).to_string().into_bytes();
        client.probe.put(&marker_key(client), marker)?;
        require_single_init(client)?;
    }
    let warnings = password_warnings(client.session.repository.password.expose());
    Ok(EnsureOutcome { created, id: format.unique_id, warnings })
}

/// Initializes a repository. Returns whether it was initialized by this process.
fn initialize(client: &Client<'_>) -> Result<bool> {
    client.session.task.say("initializing the repository");
    let created = client.create();
    match created {
        // Another process was faster: open its repository.
        Err(_) if client.probe.exists(client.format_key())? => {}
        Err(error) => return Err(error),
        Ok(()) => {}
    }
    Ok(created.is_ok())
}

/// kopia has one format file: of two concurrent initializations the later one wins, and the data of the earlier one is lost. So
/// nothing is written before a concurrent initialization would have finished.
fn require_stable_format(client: &Client<'_>) -> Result<()> {
    let before = format(client)?;
    wait_for_concurrent_init(client.session)?;
    if before == format(client)? { Ok(()) } else { Err(replaced(client)) }
}

/// Detects a slower concurrent initialization: the marker contains the ID of the repository that was set up.
pub(super) fn require_single_init(client: &Client<'_>) -> Result<()> {
    match marker(client)? {
        Some(marked) if marked != format(client)? => Err(replaced(client)),
        _ => Ok(()),
    }
}

fn replaced(client: &Client<'_>) -> MoverError {
    let found = "format file replaced".into();
    MoverError::InitConflict { repository: client.name.clone(), found }
}

/// Sets policies as Velero does: snapshots are kept until they are deleted, and only `default@default` runs maintenance. Unlike
/// with Velero, no files are ignored.
fn set_policies(client: &Client<'_>) -> Result<()> {
    let forever =
        ["latest", "hourly", "daily", "weekly", "monthly", "annual"].map(|unit| format!("--keep-{unit}={}", i32::MAX));
    let mut arguments = vec!["policy", "set", "--global", "--compression=none"];
    let ignores = policy::disable_ignores_arguments();
    arguments.extend(forever.iter().chain(&ignores).map(String::as_str));
    client.execute(&arguments)?;
    client.execute(&["maintenance", "set", &format!("--owner={IDENTITY}@{IDENTITY}")]).map(drop)
}

fn marker_key(client: &Client<'_>) -> String {
    let suffix = client.format_key().strip_prefix("kopia.repository").unwrap_or_default();
    format!("{VELERO_MARKER}{suffix}")
}

/// Velero's marker, if it exists.
fn marker(client: &Client<'_>) -> Result<Option<Format>> {
    let key = marker_key(client);
    match client.probe.get(&key) {
        Err(MoverError::RepositoryNotFound { .. }) => Ok(None),
        content => parse(client, &key, &content?).map(Some),
    }
}

fn format(client: &Client<'_>) -> Result<Format> {
    let key = client.format_key();
    parse(client, key, &client.probe.get(key)?)
}

fn parse(client: &Client<'_>, key: &str, content: &[u8]) -> Result<Format> {
    let invalid = |error| MoverError::Damaged { repository: client.name.clone(), cause: format!("{key}: {error}") };
    serde_json::from_slice(content).map_err(invalid)
}

pub(super) fn manifests(client: &Client<'_>) -> Result<Vec<Manifest>> {
    let output = client.execute(&["snapshot", "list", "--all", "--json"])?;
    let output = output.trim();
    if output.is_empty() {
        return Ok(Vec::new());
    }
    let invalid = |_| MoverError::UnexpectedOutput { program: "kopia".into(), output: truncate(output) };
    serde_json::from_str::<Option<Vec<Manifest>>>(output).map(Option::unwrap_or_default).map_err(invalid)
}

pub(super) fn snapshots(client: &Client<'_>) -> Result<Vec<SnapshotInfo>> {
    Ok(manifests(client)?.iter().filter_map(Manifest::info).collect())
}

pub(super) fn forget(client: &Client<'_>, snapshots: &[String]) -> Result<usize> {
    snapshots.iter().try_for_each(|id| require_id(id))?;
    let existing = manifests(client)?;
    let mut arguments = vec!["snapshot", "delete", "--delete"];
    arguments.extend(snapshots.iter().filter(|id| existing.iter().any(|one| one.id == **id)).map(String::as_str));
    if arguments.len() > 3 {
        client.execute(&arguments)?;
    }
    Ok(snapshots.len())
}
