//! What a dry run says about a claim whose files no pod brings into the backup: pure.

use plimsoll_select::resource_policies::{ResourcePolicies, VolumeAction, VolumeActionType, VolumeProperties};
use serde_json::Value;

use super::Method;
use crate::csi;
use crate::snapshot_choice::{SnapshotChoice, snapshot_choice};

/// Why a CSI driver takes a snapshot, and no plugin.
const BY_CLASS: &str = "VolumeSnapshotClass";

/// The request of a backup for snapshots.
#[derive(Clone, Copy, Debug, Default)]
pub struct SnapshotRequest {
    /// `snapshotVolumes`.
    pub wanted: Option<bool>,
    /// `snapshotMoveData`.
    pub moves_data: bool,
}

/// The support of the cluster for snapshots.
#[derive(Clone, Debug, Default)]
pub(super) struct SnapshotSupport {
    /// The VolumeSnapshotClasses; `None` if the cluster does not serve VolumeSnapshots.
    pub classes: Option<Vec<Value>>,
    /// The names of the VolumeSnapshotLocations.
    pub locations: Vec<String>,
}

/// The method of a claim, and why.
pub(super) fn method_of(
    claim: &Value,
    volume: Option<&Value>,
    policies: Option<&ResourcePolicies>,
    request: SnapshotRequest,
    support: &SnapshotSupport,
) -> (Method, String) {
    let text = |value: &Value, place: &str| value.pointer(place).and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(volume) = volume.filter(|_| text(claim, "/status/phase") == "Bound") else {
        return (Method::None, "the claim is not bound".to_owned());
    };
    let properties = VolumeProperties::of_persistent_volume(volume, Some(claim));
    let action = policies.and_then(|policies| policies.action(&properties));
    let policy = action.map(|action| action.kind);
    let explicit = match (snapshot_choice(request.wanted, policy), policy) {
        (SnapshotChoice::Skip, _) => return (Method::Skipped, "skipped due to policy".to_owned()),
        (SnapshotChoice::Leave, Some(VolumeActionType::FsBackup)) => {
            return (Method::Refused, "a policy wants its files, and no running pod mounts it".to_owned());
        }
        (SnapshotChoice::Leave, Some(_)) => return (Method::None, "a policy leaves it to a plugin".to_owned()),
        (SnapshotChoice::Leave, None) => return (Method::None, "snapshotVolumes is false".to_owned()),
        (SnapshotChoice::Take { explicit }, _) => explicit || request.moves_data,
    };
    let driver = text(volume, "/spec/csi/driver");
    let chosen = match &support.classes {
        Some(classes) if !driver.is_empty() => {
            csi::choose_class(classes, &driver, claim, action.and_then(VolumeAction::snapshot_class))
        }
        _ => Ok(None),
    };
    let block = text(claim, "/spec/volumeMode") == "Block";
    match chosen {
        Err(why) => (Method::Refused, why),
        Ok(Some(_)) if request.moves_data && block => {
            (Method::Refused, "it is a block device (volumeMode: Block), which has no files to move".to_owned())
        }
        Ok(Some(class)) if request.moves_data => (Method::Moved, format!("{BY_CLASS} {class}")),
        Ok(Some(class)) => (Method::Snapshot, format!("{BY_CLASS} {class}")),
        Ok(None) => without_class(&driver, explicit, support),
    }
}

/// Whether a CSI driver takes the snapshot, for this reason.
pub(super) fn is_by_class(reason: &str) -> bool {
    reason.starts_with(BY_CLASS)
}

/// Plugins take what no class is for.
fn without_class(driver: &str, explicit: bool, support: &SnapshotSupport) -> (Method, String) {
    if !support.locations.is_empty() {
        let locations = support.locations.join(", ");
        return (Method::Snapshot, format!("if a plugin of VolumeSnapshotLocation {locations} supports it"));
    }
    let why = match (driver, &support.classes) {
        ("", _) => "it has no CSI driver, and there is no VolumeSnapshotLocation".to_owned(),
        (_, None) => "the cluster does not serve VolumeSnapshots".to_owned(),
        (driver, Some(_)) => format!("no VolumeSnapshotClass for driver {driver}"),
    };
    (if explicit { Method::Refused } else { Method::None }, why)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(mode: &str, phase: &str) -> Value {
        json!({ "metadata": { "name": "data", "namespace": "n", "labels": { "app": "db" } },
            "spec": { "volumeMode": mode, "volumeName": "v" }, "status": { "phase": phase } })
    }

    fn volume(driver: Option<&str>) -> Value {
        let source = driver.map_or_else(|| json!({ "nfs": {} }), |driver| json!({ "csi": { "driver": driver } }));
        json!({ "metadata": { "name": "v" }, "spec": source })
    }

    fn support(classes: Option<&[&str]>, locations: &[&str]) -> SnapshotSupport {
        let class = |driver: &&str| json!({ "metadata": { "name": format!("{driver}-class") }, "driver": driver });
        SnapshotSupport {
            classes: classes.map(|drivers| drivers.iter().map(class).collect()),
            locations: locations.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    fn policy(action: &str) -> ResourcePolicies {
        let text = format!(
            "version: v1\nvolumePolicies:\n- conditions: {{pvcLabels: {{app: db}}}}\n  action: {{type: {action}}}\n"
        );
        ResourcePolicies::parse(&text).unwrap()
    }

    #[test]
    fn a_claim_gets_the_method_that_the_backup_would_use() {
        let (bound, csi) = (claim("Filesystem", "Bound"), volume(Some("d")));
        let move_data = SnapshotRequest { wanted: None, moves_data: true };
        let wanted = |wanted| SnapshotRequest { wanted, moves_data: false };
        let (class, plugin, none) = (support(Some(&["d"]), &[]), support(None, &["aws"]), support(None, &[]));
        let other = support(Some(&["other"]), &[]);
        for (claim, volume, request, support, method, why) in [
            (&bound, &csi, wanted(None), &class, Method::Snapshot, "VolumeSnapshotClass d-class"),
            (&bound, &csi, move_data, &class, Method::Moved, "VolumeSnapshotClass d-class"),
            (&claim("Block", "Bound"), &csi, move_data, &class, Method::Refused, "block device"),
            (&claim("Block", "Bound"), &csi, wanted(None), &class, Method::Snapshot, "d-class"),
            (&claim("Filesystem", "Pending"), &csi, wanted(None), &class, Method::None, "not bound"),
            (&bound, &csi, wanted(Some(false)), &class, Method::None, "snapshotVolumes is false"),
            (&bound, &csi, wanted(None), &other, Method::None, "no VolumeSnapshotClass for driver d"),
            (&bound, &csi, wanted(Some(true)), &other, Method::Refused, "no VolumeSnapshotClass for driver d"),
            (&bound, &csi, move_data, &none, Method::Refused, "does not serve VolumeSnapshots"),
            (&bound, &volume(None), wanted(None), &plugin, Method::Snapshot, "VolumeSnapshotLocation aws"),
            (&bound, &volume(None), wanted(None), &class, Method::None, "no CSI driver"),
        ] {
            let (found, reason) = method_of(claim, Some(volume), None, request, support);
            assert_eq!(found, method, "{reason}, {request:?}");
            assert!(reason.contains(why), "{reason}");
        }
    }

    #[test]
    fn a_policy_decides_first() {
        let (claim, csi, class) = (claim("Filesystem", "Bound"), volume(Some("d")), support(Some(&["d"]), &[]));
        for (action, wanted, method) in [
            ("skip", None, Method::Skipped),
            ("custom", Some(true), Method::None),
            ("fs-backup", Some(true), Method::Refused),
            ("snapshot", Some(false), Method::Snapshot),
        ] {
            let request = SnapshotRequest { wanted, moves_data: false };
            let found = method_of(&claim, Some(&csi), Some(&policy(action)), request, &class);
            assert_eq!(found.0, method, "{action}: {}", found.1);
        }
    }
}
