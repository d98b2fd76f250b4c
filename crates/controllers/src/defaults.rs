//! Defaults of the server, set in Backups and Restores that leave a field out.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_api::go::GoDuration;
use plimsoll_api::velero::v1::{BackupSpec, RestoreSpec};
use plimsoll_select::resource_order::RestorePriorities;

/// Defaults of the server. The names of the flags are Velero's.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// `--default-snapshot-move-data`.
    pub snapshot_move_data: bool,
    /// `--default-item-operation-timeout`.
    pub item_operation_timeout: Duration,
    /// `--default-backup-storage-location`, where no location says that it is the default.
    pub storage_location: String,
    /// `--default-volume-snapshot-locations`: by provider.
    pub volume_snapshot_locations: BTreeMap<String, String>,
    /// `--restore-resource-priorities`.
    pub restore_priorities: RestorePriorities,
    /// `--global-backup-volume-policies-configmap`: volume policies that follow those of a Backup.
    pub volume_policies: Option<String>,
    /// `--default-resource-modifier-configmap`: the resource modifier of Restores without one.
    pub resource_modifier: Option<String>,
}

impl Default for Defaults {
    /// Velero's.
    fn default() -> Self {
        Self {
            snapshot_move_data: false,
            item_operation_timeout: Duration::from_hours(4),
            storage_location: "default".to_owned(),
            volume_snapshot_locations: BTreeMap::new(),
            restore_priorities: RestorePriorities::default(),
            volume_policies: None,
            resource_modifier: None,
        }
    }
}

impl Defaults {
    /// Sets what a Backup leaves out.
    pub fn set_in_backup(&self, spec: &mut BackupSpec) {
        spec.snapshot_move_data.get_or_insert(self.snapshot_move_data);
        self.set_timeout(&mut spec.item_operation_timeout);
    }

    /// Sets what a Restore leaves out.
    pub fn set_in_restore(&self, spec: &mut RestoreSpec) {
        self.set_timeout(&mut spec.item_operation_timeout);
    }

    /// Zero means the default too, as in Velero.
    fn set_timeout(&self, timeout: &mut Option<GoDuration>) {
        let given = timeout.as_ref().and_then(GoDuration::as_std).is_some_and(|given| !given.is_zero());
        if !given {
            *timeout = Some(GoDuration::from(self.item_operation_timeout));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults() -> Defaults {
        Defaults { snapshot_move_data: true, item_operation_timeout: Duration::from_hours(9), ..Defaults::default() }
    }

    #[test]
    fn a_field_that_is_left_out_gets_the_default() {
        let (mut backup, mut restore) = (BackupSpec::default(), RestoreSpec::default());
        backup.item_operation_timeout = Some(GoDuration::from_secs(0));
        defaults().set_in_backup(&mut backup);
        defaults().set_in_restore(&mut restore);
        assert_eq!(backup.snapshot_move_data, Some(true));
        for timeout in [&backup.item_operation_timeout, &restore.item_operation_timeout] {
            assert_eq!(timeout.as_ref().and_then(GoDuration::as_std), Some(Duration::from_hours(9)));
        }
    }

    #[test]
    fn a_field_that_is_set_stays() {
        let timeout = Some(GoDuration::from_secs(60));
        let mut backup = BackupSpec {
            snapshot_move_data: Some(false),
            item_operation_timeout: timeout.clone(),
            ..BackupSpec::default()
        };
        let unchanged = backup.clone();
        defaults().set_in_backup(&mut backup);
        assert_eq!(backup, unchanged);
    }
}
