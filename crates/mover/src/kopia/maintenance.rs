//! Maintenance of a kopia repository by the kopia program, with its own intervals and safety periods.
//!
//! kopia deletes content only after it has been unused for longer than its safety periods, and after several full maintenances.
//! Nothing here shortens these periods.

use jiff::Timestamp;
use serde::Deserialize;

use super::client::{Client, IDENTITY};
use crate::job::Maintenance;
use crate::outcome::MaintenanceOutcome;
use crate::program::truncate;
use crate::{MoverError, Result};

/// The part of `kopia maintenance info --json` that is used.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Info {
    owner: String,
    schedule: Schedule,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Schedule {
    next_full_maintenance: Option<Timestamp>,
}

/// Runs a full maintenance if it is due by kopia's own schedule, otherwise a quick one.
pub(super) fn run(client: &Client<'_>, maintenance: Maintenance) -> Result<MaintenanceOutcome> {
    let output = client.execute(&["maintenance", "info", "--json"])?;
    let invalid = |_| MoverError::UnexpectedOutput { program: "kopia".into(), output: truncate(&output) };
    let info: Info = serde_json::from_str(output.trim()).map_err(invalid)?;
    require_owner(&client.name, &info.owner)?;
    let (mode, argument) = mode(&info, Timestamp::now());
    let outcome =
        MaintenanceOutcome { dry_run: maintenance.dry_run, mode: Some(mode.into()), ..MaintenanceOutcome::default() };
    if maintenance.dry_run {
        return Ok(outcome);
    }
    client.session.task.say(format!("kopia maintenance ({mode})"));
    // It prints nothing for as long as it takes.
    client.session.task.quiet();
    let done = client.execute(&["maintenance", "run", argument]);
    client.session.task.loud();
    done.map(|_| outcome)
}

/// Velero and Plimsoll maintain as this owner. Another owner maintains the repository already, and two at a time are not safe.
fn require_owner(repository: &str, owner: &str) -> Result<()> {
    let own = format!("{IDENTITY}@{IDENTITY}");
    if owner.is_empty() || owner == own {
        return Ok(());
    }
    Err(MoverError::InvalidJob {
        cause: format!(
            "maintenance of repository {repository} belongs to {owner}: run it there, or take it over with kopia maintenance \
             set --owner={own}"
        ),
    })
}

fn mode(info: &Info, now: Timestamp) -> (&'static str, &'static str) {
    let is_full_due = info.schedule.next_full_maintenance.is_none_or(|next| next <= now);
    if is_full_due { ("full", "--full") } else { ("quick", "--no-full") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_maintenance_runs_when_kopias_schedule_says_so() {
        let now: Timestamp = "2026-11-19T12:00:00Z".parse().expect("a time");
        let info = |json: &str| serde_json::from_str::<Info>(json).expect("valid");
        let next = |time: &str| {
            info(&format!(r#"{{"owner":"default@default","schedule":{{"nextFullMaintenance":"{time}"}}}}"#))
        };
        assert_eq!(mode(&next("2026-11-19T13:00:00Z"), now).0, "quick");
        assert_eq!(mode(&next("2026-11-19T11:00:00Z"), now).0, "full");
        assert_eq!(mode(&info(r#"{"owner":"default@default","quick":{"enabled":true}}"#), now).0, "full", "never run");
    }

    #[test]
    fn a_repository_that_another_owner_maintains_is_left_alone() {
        assert!(require_owner("r", "default@default").is_ok() && require_owner("r", "").is_ok());
        let error = require_owner("r", "admin@laptop").expect_err("another owner");
        assert!(error.to_string().contains("belongs to admin@laptop"), "{error}");
    }
}
