//! Validates a schedule: its cron expression, its own fields, and its template by the same checks as a Backup.

use kube::ResourceExt;
use plimsoll_api::validate;
use plimsoll_api::velero::v1::Schedule;
use plimsoll_operations::Lifecycle;
use serde_json::json;

use crate::backup::BackupController;
use crate::cron::Cron;

/// The errors of a schedule, and its cron expression if it is valid.
pub(super) fn validate_schedule(schedule: &Schedule) -> (Vec<String>, Option<Cron>) {
    let mut raw = serde_json::to_value(schedule).unwrap_or_default();
    raw["apiVersion"] = json!("velero.io/v1");
    raw["kind"] = json!("Schedule");
    let mut faults = validate::check(&raw).err().map(|invalid| invalid.lines()).unwrap_or_default();
    let backup = json!({ "apiVersion": "velero.io/v1", "kind": "Backup", "metadata": { "name": schedule.name_any() },
        "spec": raw.pointer("/spec/template").cloned().unwrap_or_else(|| json!({})) });
    for fault in BackupController::validate(&backup) {
        let fault = fault.replacen("spec.", "spec.template.", 1);
        if !faults.contains(&fault) {
            faults.push(fault);
        }
    }
    let expression = schedule.spec.schedule.as_deref().unwrap_or_default();
    match expression.parse::<Cron>() {
        Ok(cron) => (faults, Some(cron)),
        Err(_) if expression.is_empty() => {
            faults.insert(0, "spec.schedule: must be a non-empty valid cron expression".into());
            (faults, None)
        }
        Err(error) => {
            faults.insert(0, format!("spec.schedule: invalid schedule: {error}"));
            (faults, None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_checked_like_a_backup() {
        let mut schedule = Schedule::fixture();
        assert_eq!(validate_schedule(&schedule).0, Vec::<String>::new());
        schedule.spec.schedule = Some("0 25 * * *".into());
        let policy = serde_json::from_value(json!({ "kind": "Secret", "name": "rules" })).unwrap();
        schedule.spec.template.get_or_insert_default().resource_policy = Some(policy);
        let faults = validate_schedule(&schedule).0;
        assert!(faults[0].starts_with("spec.schedule: invalid schedule: hour \"25\""), "{faults:?}");
        assert!(faults[1].starts_with("spec.template.resourcePolicy"), "{faults:?}");
    }
}
