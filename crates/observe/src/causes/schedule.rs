//! Why a schedule creates no successful backups.

use plimsoll_api::labels;

use super::{Cause, Certainty, causes as causes_of, location, server};
use crate::cluster_state::ClusterState;
use crate::evidence::shorten;
use crate::kind::Kind;
use crate::object::Object;

/// Why a schedule creates no successful backups.
pub(super) fn causes(schedule: &Object, cluster: &ClusterState) -> Vec<Cause> {
    let (namespace, name) = (schedule.namespace(), schedule.name());
    let mut found = Vec::new();
    if schedule.flag("/spec/paused") {
        let text = "it is paused: no backups are created";
        found.push(
            Cause::new("Paused", Certainty::Certain, text)
                .with_command(format!("plimsoll schedule unpause {name} -n {namespace}")),
        );
    }
    if schedule.phase() == "FailedValidation" {
        let refused = |fault: &&str| Cause::new("Refused", Certainty::Certain, shorten(fault));
        found.extend(schedule.texts("/status/validationErrors").iter().map(refused));
    }
    found.extend(server::causes(schedule, cluster));
    found.extend(location::named(schedule.some_text("/spec/template/storageLocation"), true, namespace, cluster));
    found.extend(last_backup(schedule, cluster));
    found
}

/// Velero creates no other backup of a schedule while one has not ended.
fn last_backup(schedule: &Object, cluster: &ClusterState) -> Vec<Cause> {
    let value = labels::valid_name(schedule.name());
    let mine =
        |backup: &&Object| backup.namespace() == schedule.namespace() && backup.label(labels::SCHEDULE_NAME) == value;
    let Some(last) = cluster.all(Kind::Backup).iter().filter(mine).max_by_key(|backup| backup.created()) else {
        return Vec::new();
    };
    let reference = last.reference();
    match last.phase() {
        "Completed" => Vec::new(),
        "Failed" | "PartiallyFailed" | "FailedValidation" => {
            let text = format!("its last backup, {reference}, ended {}", last.phase());
            let cause = Cause::new("LastBackupFailed", Certainty::Certain, text)
                .with_command(format!("plimsoll why {reference}"));
            vec![cause]
        }
        phase => {
            let deeper: Vec<Cause> = causes_of(last, cluster).into_iter().filter(|cause| !cause.expected).collect();
            let text = format!("its last backup, {reference}, has not ended ({phase}): no other is created until then");
            let cause = Cause::new("LastBackupRunning", Certainty::Certain, text)
                .with_command(format!("plimsoll why {reference}"));
            let cause = if deeper.is_empty() { cause.expected() } else { cause };
            let link = format!("{reference} has not ended");
            std::iter::once(cause).chain(deeper.into_iter().map(|it| it.with_context(link.clone()))).collect()
        }
    }
}
