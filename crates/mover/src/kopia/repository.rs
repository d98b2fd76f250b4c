//! Making, listing and forgetting.

use serde::Deserialize;
use serde_json::json;

use super::client::{Client, IDENTITY};
use super::manifest::Manifest;
use super::{policy, require_id};
use crate::lifecycle::password_warnings;
use crate::outcome::{Ensured, SnapshotInfo};
use crate::restic::repository::let_rivals_show;
use crate::tool::cut;
use crate::{MoverError, Result};

/// What Velero writes beside a repository to show that it has finished setting it up.
const VELERO_MARK: &str = "udmrepo.Repository";

/// The readable part of kopia's format file, and Velero's mark.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Format {
    #[serde(rename = "uniqueID")]
    unique_id: String,
}

/// Opens the repository or makes it, and sets it up if nobody has.
pub(super) fn ensure(client: &Client<'_>) -> Result<Ensured> {
    let created = !client.probe.exists(client.format_key())? && make(client)?;
    let unmarked = mark(client)?.is_none();
    if unmarked {
        require_settled(client)?;
    }
    require_single(client)?;
    client.session.task.say("opening the repository");
    client.ask(&["repository", "status"])?;
    let format = format(client)?;
    if unmarked {
        // Made just now, or by somebody who did not get this far.
        settle_policies(client)?;
        let mark = json!({ "uniqueID": format.unique_id }).to_string().into_bytes();
        client.probe.put(&mark_key(client), mark)?;
        require_single(client)?;
    }
    let warnings = password_warnings(client.session.repository.password.expose());
    Ok(Ensured { created, id: format.unique_id, warnings })
}

/// Makes a repository. Whether it is ours.
fn make(client: &Client<'_>) -> Result<bool> {
    client.session.task.say("initialising the repository");
    let made = client.create();
    match made {
        // Somebody was faster: there is one to open.
        Err(_) if client.probe.exists(client.format_key())? => {}
        Err(error) => return Err(error),
        Ok(()) => {}
    }
    Ok(made.is_ok())
}

/// kopia has one format file: of two initialisations the later one wins, and the earlier one's data is lost. So nothing is
/// written before a rival would have shown.
fn require_settled(client: &Client<'_>) -> Result<()> {
    let found = format(client)?;
    let_rivals_show(client.session)?;
    if found == format(client)? { Ok(()) } else { Err(replaced(client)) }
}

/// The same for a rival that was slower than that: the mark names the repository that was set up.
pub(super) fn require_single(client: &Client<'_>) -> Result<()> {
    match mark(client)? {
        Some(marked) if marked != format(client)? => Err(replaced(client)),
        _ => Ok(()),
    }
}

fn replaced(client: &Client<'_>) -> MoverError {
    let found = "the format file was replaced".into();
    MoverError::InitialisedTwice { repository: client.name.clone(), found }
}

/// As Velero sets them: backups are deleted when somebody deletes them, and only `default@default` does maintenance. Unlike
/// Velero's, nothing in a volume is left out.
fn settle_policies(client: &Client<'_>) -> Result<()> {
    let forever =
        ["latest", "hourly", "daily", "weekly", "monthly", "annual"].map(|unit| format!("--keep-{unit}={}", i32::MAX));
    let mut arguments = vec!["policy", "set", "--global", "--compression=none"];
    let whole = policy::leave_nothing_out();
    arguments.extend(forever.iter().chain(&whole).map(String::as_str));
    client.ask(&arguments)?;
    client.ask(&["maintenance", "set", &format!("--owner={IDENTITY}@{IDENTITY}")]).map(drop)
}

fn mark_key(client: &Client<'_>) -> String {
    let ending = client.format_key().strip_prefix("kopia.repository").unwrap_or_default();
    format!("{VELERO_MARK}{ending}")
}

/// Velero's mark, if there is one.
fn mark(client: &Client<'_>) -> Result<Option<Format>> {
    let key = mark_key(client);
    match client.probe.get(&key) {
        Err(MoverError::NoRepository { .. }) => Ok(None),
        content => parse(client, &key, &content?).map(Some),
    }
}

fn format(client: &Client<'_>) -> Result<Format> {
    let key = client.format_key();
    parse(client, key, &client.probe.get(key)?)
}

fn parse(client: &Client<'_>, key: &str, content: &[u8]) -> Result<Format> {
    let damaged = |error| MoverError::Damaged { repository: client.name.clone(), cause: format!("{key}: {error}") };
    serde_json::from_slice(content).map_err(damaged)
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
