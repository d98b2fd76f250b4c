//! Item operations of a backup or restore: work of plugins and data movers that runs after the items.

use plimsoll_archive::item_operations::{ItemOperationStatus, ResourceIdentifier};
use serde::Serialize;
use serde_json::Value;

use super::page::Section;
use super::subject::time;
use crate::args::names::ResourceKind;
use crate::subjects::Subject;

/// Counts, and the operations themselves where they were read.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ItemOperations {
    attempted: u64,
    completed: u64,
    failed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    operations: Option<Vec<Value>>,
}

/// How many operations the subject has started.
pub fn attempted(subject: &Subject) -> u64 {
    count(subject, "Attempted")
}

fn count(subject: &Subject, what: &str) -> u64 {
    subject.number(&format!("/status/{}ItemOperations{what}", verb(subject.kind)))
}

fn verb(kind: ResourceKind) -> &'static str {
    if kind == ResourceKind::Restore { "restore" } else { "backup" }
}

impl ItemOperations {
    /// `None` if the subject has started none.
    pub fn of(subject: &Subject, operations: Option<Vec<Value>>) -> Option<Self> {
        let attempted = attempted(subject);
        let (completed, failed) = (count(subject, "Completed"), count(subject, "Failed"));
        (attempted > 0).then_some(Self { attempted, completed, failed, operations })
    }

    /// One line with the counts, or a block for each operation.
    pub fn print(&self, section: &mut Section, kind: ResourceKind) {
        let label = if kind == ResourceKind::Restore { "Restore Item Operations" } else { "Backup Item Operations" };
        let Self { attempted, completed, failed, operations } = self;
        let counts = format!("{completed} of {attempted} completed successfully, {failed} failed");
        let Some(operations) = operations else {
            return section.field(label, format!("{counts} (--details shows all)"));
        };
        section.field(label, counts);
        for operation in operations {
            print_one(section, operation, kind);
        }
    }
}

fn print_one(section: &mut Section, operation: &Value, kind: ResourceKind) {
    let spec = |name: &str| operation.pointer(&format!("/spec/{name}")).cloned().unwrap_or_default();
    let text = |name: &str| spec(name).as_str().unwrap_or_default().to_owned();
    let status: ItemOperationStatus =
        serde_json::from_value(operation.get("status").cloned().unwrap_or_default()).unwrap_or_default();
    section.line_at(1, format!("Operation for {}:", item_text(&spec("resourceIdentifier"))));
    let action = if kind == ResourceKind::Restore { "Restore" } else { "Backup" };
    section.field_at(2, &format!("{action} Item Action Plugin"), text(&format!("{}ItemAction", verb(kind))));
    section.field_at(2, "Operation ID", text("operationID"));
    let updated: Vec<_> = spec("postOperationItems").as_array().into_iter().flatten().map(item_text).collect();
    if !updated.is_empty() {
        section.field_at(2, "Items to Update", updated.join("\n"));
    }
    print_status(section, &status);
}

fn print_status(section: &mut Section, status: &ItemOperationStatus) {
    section.field_at(2, "Phase", &status.phase);
    if !status.error.is_empty() {
        section.field_at(2, "Operation Error", &status.error);
    }
    if status.n_completed > 0 || status.n_total > 0 {
        let of = if status.n_total > 0 { format!(" of {}", status.n_total) } else { String::new() };
        let units = &status.operation_units;
        let units = if units.is_empty() { String::new() } else { format!(" ({units})") };
        section.field_at(2, "Progress", format!("{}{of} complete{units}", status.n_completed));
    }
    if !status.description.is_empty() {
        section.field_at(2, "Progress description", &status.description);
    }
    let times = [("Created", &status.created), ("Started", &status.started), ("Updated", &status.updated)];
    for (label, moment) in times {
        if let Some(moment) = moment {
            section.field_at(2, label, time(moment));
        }
    }
}

/// `persistentvolumeclaims shop/data`, `deployments.apps shop/web`.
fn item_text(item: &Value) -> String {
    let ResourceIdentifier { group, resource, namespace, name } =
        serde_json::from_value(item.clone()).unwrap_or_default();
    let resource = if group.is_empty() { resource } else { format!("{resource}.{group}") };
    let path = if namespace.is_empty() { name } else { format!("{namespace}/{name}") };
    format!("{resource} {path}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::describe::page::Page;

    fn printed(operations: Option<Vec<Value>>) -> String {
        let found = ItemOperations { attempted: 2, completed: 1, failed: 1, operations };
        let mut page = Page::default();
        page.section(|section| found.print(section, ResourceKind::Backup));
        page.lines().join("\n")
    }

    #[test]
    fn without_details_only_the_counts_are_shown() {
        let expected = "Backup Item Operations:  1 of 2 completed successfully, 1 failed (--details shows all)";
        assert_eq!(printed(None), expected);
    }

    #[test]
    fn a_failed_operation_is_shown_with_its_item_and_its_error() {
        let operation = json!({
            "spec": { "backupName": "b", "backupItemAction": "velero.io/csi-pvc-backupper", "operationID": "du-1",
                "resourceIdentifier": { "Group": "", "Resource": "persistentvolumeclaims", "Namespace": "shop", "Name": "data" },
                "postOperationItems": [{ "Group": "velero.io", "Resource": "datauploads", "Namespace": "velero", "Name": "x" }] },
            "status": { "phase": "Failed", "error": "no space", "nCompleted": 7, "nTotal": 9, "operationUnits": "Bytes",
                "created": "2026-11-16T05:09:34Z" },
        });
        let text = printed(Some(vec![operation]));
        for line in [
            "Backup Item Operations:  1 of 2 completed successfully, 1 failed",
            "  Operation for persistentvolumeclaims shop/data:",
            "    Backup Item Action Plugin:  velero.io/csi-pvc-backupper",
            "    Items to Update:            datauploads.velero.io velero/x",
            "    Operation Error:            no space",
            "    Progress:                   7 of 9 complete (Bytes)",
            "    Created:                    2026-11-16 05:09:34 UTC",
        ] {
            assert!(text.lines().any(|printed| printed == line), "{line:?} in\n{text}");
        }
    }
}
