//! Options of the server that Velero's server has under the same names: defaults, disabled controllers, limits of requests.

use std::time::Duration;

use clap::{ArgAction, Args};
use plimsoll_api::labels;
use plimsoll_controllers::DisableableController;
use plimsoll_select::resource_order::RestorePriorities;

use super::values::duration;

/// Defaults of backups and restores, and limits of the server.
#[derive(Debug, Args)]
pub struct ServerDefaults {
    /// Move the data of CSI snapshots into the repository, in backups without snapshotMoveData
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", action = ArgAction::Set, overrides_with = "default_snapshot_move_data")]
    pub default_snapshot_move_data: bool,
    /// Timeout of background operations, in backups and restores without itemOperationTimeout
    #[arg(long, value_name = "DURATION", default_value = "4h", value_parser = duration)]
    pub default_item_operation_timeout: Duration,
    /// Name of the default backup location, if none is marked as the default
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub default_backup_storage_location: String,
    /// Default volume snapshot location of a provider with several, e.g. aws:fast,gcp:eu
    #[arg(long, value_name = "PROVIDER:NAME", value_delimiter = ',', value_parser = provider_location)]
    pub default_volume_snapshot_locations: Vec<(String, String)>,
    /// Order of restores, e.g. namespaces,secrets,-,jobs: the first ones, then -, then the last ones [default: Velero's]
    #[arg(long, value_name = "RESOURCES", default_value = "", hide_default_value = true)]
    pub restore_resource_priorities: RestorePriorities,
    /// ConfigMap with volume policies that follow those of each backup
    #[arg(long, value_name = "NAME")]
    pub global_backup_volume_policies_configmap: Option<String>,
    /// ConfigMap with resource modifiers for restores without one
    #[arg(long, value_name = "NAME")]
    pub default_resource_modifier_configmap: Option<String>,
    /// ConfigMap with settings of the pods that hold volumes whose data is moved, in the format of Velero's node agents
    #[arg(long, value_name = "NAME", env = "PLIMSOLL_NODE_AGENT_CONFIGMAP")]
    pub node_agent_configmap: Option<String>,
    /// Interval of checking locations without validationFrequency; 0 checks once
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    pub store_validation_frequency: Duration,
    /// Controllers to disable: backup, backup-deletion, backup-repo, backup-sync, download-request, gc, restore, schedule,
    /// server-status-request
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub disable_controllers: Vec<DisableableController>,
    /// Disable backups, schedules and the deletion of backups
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", action = ArgAction::Set, overrides_with = "restore_only")]
    pub restore_only: bool,
    /// Number of items of a resource, and of pods with hooks, that a backup processes at the same time
    ///
    /// It limits the CSI snapshots that are taken side by side, and the calls of item actions of plugins.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub item_block_worker_count: u16,
    /// Maximum number of requests to the API server in a second, after --client-burst; 0 for no limit
    #[arg(long, value_name = "N", default_value_t = 0.0, value_parser = requests_per_second)]
    pub client_qps: f64,
    /// Number of requests that --client-qps does not delay
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub client_burst: u32,
    /// Page size of lists of objects during a backup; 0 for one page
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub client_page_size: u32,
    /// Label of claims whose volumes are snapshotted together; not supported, so only Velero's default is accepted
    #[arg(long, value_name = "LABEL", hide = true, value_parser = volume_group)]
    pub volume_group_snapshot_label_key: Option<String>,
    /// Feature flags of Velero
    #[arg(long, value_name = "NAMES", hide = true, value_delimiter = ',', value_parser = feature)]
    pub features: Vec<String>,
}

fn provider_location(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((provider, location)) if !provider.is_empty() && !location.is_empty() => {
            Ok((provider.to_owned(), location.to_owned()))
        }
        _ => Err("want PROVIDER:NAME, e.g. aws:fast".to_owned()),
    }
}

fn requests_per_second(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "want a number, e.g. 100".to_owned())?;
    if number.is_finite() && number >= 0.0 { Ok(number) } else { Err("want a number that is not negative".to_owned()) }
}

fn volume_group(key: &str) -> Result<String, String> {
    match key {
        "" | labels::VOLUME_GROUP => Ok(key.to_owned()),
        _ => Err("VolumeGroupSnapshots are not supported; remove the flag".to_owned()),
    }
}

/// CSI snapshots need no flag.
fn feature(name: &str) -> Result<String, String> {
    match name {
        "" | "EnableCSI" => Ok(name.to_owned()),
        "EnableAPIGroupVersions" => {
            Err("it is not supported: backups have the preferred version of each resource only; remove it".to_owned())
        }
        _ => Err("unknown feature; remove it".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        assert!(volume_group("velero.io/volume-group").is_ok() && feature("EnableCSI").is_ok() && feature("").is_ok());
        assert!(volume_group("group").unwrap_err().contains("VolumeGroupSnapshots"));
        assert!(feature("EnableAPIGroupVersions").unwrap_err().contains("preferred version"));
        assert!(feature("EnableLocalMode").unwrap_err().contains("unknown feature"));
    }

    #[test]
    fn a_default_snapshot_location_belongs_to_a_provider() {
        assert_eq!(provider_location("aws:fast"), Ok(("aws".to_owned(), "fast".to_owned())));
        for wrong in ["aws", ":fast", "aws:"] {
            assert!(provider_location(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_rate_is_not_negative() {
        assert_eq!(requests_per_second("20.5"), Ok(20.5));
        for wrong in ["-1", "many", "inf", "NaN"] {
            assert!(requests_per_second(wrong).is_err(), "{wrong}");
        }
    }
}
