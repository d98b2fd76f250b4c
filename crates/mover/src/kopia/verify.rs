//! Verification of snapshots by the kopia program.

use plimsoll_progress::{Total, Unit};

use super::client::Client;
use super::{repository, require_id};
use crate::job::Verify;
use crate::outcome::{Damage, VerifyOutcome};
use crate::{MoverError, Result};

/// Verifies snapshots one after the other, so that damage has a name. kopia checks that the data of all files is stored, and reads the
/// percentage of the files.
pub(super) fn run(client: &Client<'_>, verify: &Verify) -> Result<VerifyOutcome> {
    verify.snapshots.iter().try_for_each(|id| require_id(id))?;
    let existing = repository::manifests(client)?;
    let mut outcome = VerifyOutcome { snapshots: verify.snapshots.len() as u64, ..VerifyOutcome::default() };
    let done = client.session.task.meter(Unit::Items);
    done.set_total(Total::Final(outcome.snapshots));
    let percent = format!("--verify-files-percent={}", verify.percent.min(100));
    for id in &verify.snapshots {
        client.session.check_cancel()?;
        client.session.task.say(format!("snapshot {id}"));
        let damage = if existing.iter().any(|manifest| manifest.id == *id) {
            verify_one(client, &percent, id)?
        } else {
            Some(format!("snapshot {id} is missing"))
        };
        if let Some(text) = damage {
            outcome.damage.push(Damage { text, snapshots: vec![id.clone()] });
            outcome.damage_count += 1;
        }
        done.add(1);
    }
    Ok(outcome)
}

/// What is wrong with a snapshot.
fn verify_one(client: &Client<'_>, percent: &str, id: &str) -> Result<Option<String>> {
    // It prints nothing for as long as it reads.
    client.session.task.quiet();
    let verified = client.execute(&["snapshot", "verify", percent, id]);
    client.session.task.loud();
    match verified {
        Ok(_) => Ok(None),
        Err(MoverError::ProgramFailed { message, .. }) => Ok(Some(format!("snapshot {id}: {message}"))),
        Err(error) => Err(error),
    }
}
