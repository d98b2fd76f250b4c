//! Why a schedule makes no backups.

use plimsoll_api::labels;

use super::{Cause, Certainty, causes as causes_of, location, server};
use crate::evidence::short;
use crate::kind::Kind;
use crate::object::Object;
use crate::world::World;

/// What keeps a schedule from making good backups.
pub(super) fn causes(schedule: &Object, world: &World) -> Vec<Cause> {
    let (namespace, name) = (schedule.namespace(), schedule.name());
    let mut found = Vec::new();
    if schedule.flag("/spec/paused") {
        let text = "it is paused: no backups are made";
        found.push(
            Cause::new("Paused", Certainty::Certain, text)
                .then(format!("plimsoll schedule unpause {name} -n {namespace}")),
        );
    }
    if schedule.phase() == "FailedValidation" {
        let refused = |fault: &&str| Cause::new("Refused", Certainty::Certain, short(fault));
        found.extend(schedule.texts("/status/validationErrors").iter().map(refused));
    }
    found.extend(server::causes(schedule, world));
    found.extend(location::named(schedule.some_text("/spec/template/storageLocation"), true, namespace, world));
    found.extend(last_backup(schedule, world));
    found
}

/// While one of its backups has not ended Velero makes no other.
fn last_backup(schedule: &Object, world: &World) -> Vec<Cause> {
    let value = labels::valid_name(schedule.name());
    let mine =
        |backup: &&Object| backup.namespace() == schedule.namespace() && backup.label(labels::SCHEDULE_NAME) == value;
    let Some(last) = world.all(Kind::Backup).iter().filter(mine).max_by_key(|backup| backup.created()) else {
        return Vec::new();
    };
    let reference = last.reference();
    match last.phase() {
        "Completed" => Vec::new(),
        "Failed" | "PartiallyFailed" | "FailedValidation" => {
            let text = format!("its last backup, {reference}, ended {}", last.phase());
            let cause =
                Cause::new("LastBackupFailed", Certainty::Certain, text).then(format!("plimsoll why {reference}"));
            vec![cause]
        }
        phase => {
            let deeper: Vec<Cause> = causes_of(last, world).into_iter().filter(|cause| !cause.orderly).collect();
            let text = format!("its last backup, {reference}, has not ended ({phase}): until then no other is made");
            let cause =
                Cause::new("LastBackupRuns", Certainty::Certain, text).then(format!("plimsoll why {reference}"));
            let cause = if deeper.is_empty() { cause.orderly() } else { cause };
            let link = format!("{reference} has not ended");
            std::iter::once(cause).chain(deeper.into_iter().map(|it| it.through(link.clone()))).collect()
        }
    }
}
