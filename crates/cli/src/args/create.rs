//! Arguments of the `create` commands. Names and meanings are Velero's.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use super::options::{CreationOptions, ObjectFormat};
use super::values::{cron, duration};

/// The filters that backups and restores have in common.
#[derive(Debug, Default, Args)]
pub struct Filters {
    /// Namespaces to include; globs are allowed [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub include_namespaces: Vec<String>,
    /// Namespaces to exclude
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub exclude_namespaces: Vec<String>,
    /// Resources to include, e.g. configmaps,deployments.apps [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub include_resources: Vec<String>,
    /// Resources to exclude
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub exclude_resources: Vec<String>,
    /// Include only objects that match this label selector, e.g. app=shop,tier!=cache
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Include only objects that match one of these selectors, e.g. 'app=a or app=b'
    #[arg(long, value_name = "SELECTORS", conflicts_with = "selector")]
    pub or_selector: Option<String>,
    /// Include cluster-scoped objects [default: those that the included namespaced objects need]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub include_cluster_resources: Option<bool>,
    /// ConfigMap with resource policies
    #[arg(long, value_name = "NAME")]
    pub resource_policies_configmap: Option<String>,
    /// Timeout of asynchronous plugin operations, e.g. 4h
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub item_operation_timeout: Option<Duration>,
}

/// Labels and annotations of the object that is created.
#[derive(Debug, Default, Args)]
pub struct MetadataOptions {
    /// Labels of the object, e.g. team=shop,tier=web
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub labels: Vec<String>,
    /// Annotations of the object
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub annotations: Vec<String>,
}

/// The spec of a backup, for a single one and for those of a schedule.
#[derive(Debug, Default, Args)]
pub struct BackupTemplate {
    #[command(flatten)]
    pub filters: Filters,
    /// Cluster-scoped resources to include; excludes the unscoped resource filters
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = UNSCOPED)]
    pub include_cluster_scoped_resources: Vec<String>,
    /// Cluster-scoped resources to exclude
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = UNSCOPED)]
    pub exclude_cluster_scoped_resources: Vec<String>,
    /// Namespaced resources to include
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = UNSCOPED)]
    pub include_namespace_scoped_resources: Vec<String>,
    /// Namespaced resources to exclude
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = UNSCOPED)]
    pub exclude_namespace_scoped_resources: Vec<String>,
    /// Retention of the backup, e.g. 72h
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub ttl: Option<Duration>,
    /// Backup storage location [default: the default location]
    #[arg(long, value_name = "NAME")]
    pub storage_location: Option<String>,
    /// Volume snapshot locations, at most one for each provider
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub volume_snapshot_locations: Vec<String>,
    /// Take snapshots of volumes
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub snapshot_volumes: Option<bool>,
    /// Move the data of snapshots to the backup location
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub snapshot_move_data: Option<bool>,
    /// Data mover [default: the built-in one, also called velero]
    #[arg(long, value_name = "NAME")]
    pub data_mover: Option<String>,
    /// Back up the files of all pod volumes, except those that opt out
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub default_volumes_to_fs_backup: Option<bool>,
    /// Objects to back up first, in order, e.g. 'pods=shop/db-0,shop/db-1;persistentvolumes=pv-1'
    #[arg(long, value_name = "ORDER")]
    pub ordered_resources: Option<String>,
    /// Timeout for a CSI snapshot to be ready
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub csi_snapshot_timeout: Option<Duration>,
    /// Number of files of a volume that are uploaded in parallel
    #[arg(long, value_name = "N")]
    pub parallel_files_upload: Option<u16>,
}

const UNSCOPED: [&str; 3] = ["include_resources", "exclude_resources", "include_cluster_resources"];

#[derive(Debug, Args)]
pub struct CreateBackup {
    /// Name of the backup [default with --from-schedule: name of the schedule and time]
    #[arg(required_unless_present = "from_schedule")]
    pub name: Option<String>,
    /// Create the backup from the template of this schedule; excludes filters
    #[arg(long, value_name = "SCHEDULE")]
    pub from_schedule: Option<String>,
    #[command(flatten)]
    pub template: BackupTemplate,
    #[command(flatten)]
    pub metadata: MetadataOptions,
    #[command(flatten)]
    pub creation: CreationOptions,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("source").required(true))]
pub struct CreateRestore {
    /// Name of the restore [default: name of the backup or schedule and time]
    pub name: Option<String>,
    /// Backup to restore from
    #[arg(long, value_name = "NAME", group = "source")]
    pub from_backup: Option<String>,
    /// Restore from the latest completed backup of this schedule
    #[arg(long, value_name = "NAME", group = "source")]
    pub from_schedule: Option<String>,
    /// With --from-schedule, also accept a backup that is PartiallyFailed
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub allow_partially_failed: Option<bool>,
    #[command(flatten)]
    pub filters: Filters,
    /// Namespaces to restore into, e.g. shop:shop-copy
    #[arg(long, value_name = "OLD:NEW", value_delimiter = ',')]
    pub namespace_mappings: Vec<String>,
    /// Policy for objects that already exist
    #[arg(long, value_name = "POLICY")]
    pub existing_resource_policy: Option<ExistingResourcePolicy>,
    /// Resources whose status is restored; `*` for all
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub status_include_resources: Vec<String>,
    /// Resources whose status is not restored
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub status_exclude_resources: Vec<String>,
    /// Restore volumes from snapshots
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub restore_volumes: Option<bool>,
    /// Preserve the node ports of services
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub preserve_nodeports: Option<bool>,
    /// ConfigMap with resource modifiers
    #[arg(long, value_name = "NAME")]
    pub resource_modifier_configmap: Option<String>,
    /// Write blocks of zeros as holes
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub write_sparse_files: Option<bool>,
    /// Number of files of a volume that are downloaded in parallel
    #[arg(long, value_name = "N")]
    pub parallel_files_download: Option<u16>,
    #[command(flatten)]
    pub metadata: MetadataOptions,
    #[command(flatten)]
    pub creation: CreationOptions,
}

/// Policy for objects that already exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExistingResourcePolicy {
    /// Leave them unchanged
    None,
    /// Update them to the version in the backup
    Update,
}

#[derive(Debug, Args)]
pub struct CreateSchedule {
    /// Name of the schedule
    pub name: String,
    /// Cron expression, e.g. '0 1 * * *', @daily or '@every 6h'
    #[arg(long, value_name = "CRON", value_parser = cron)]
    pub schedule: String,
    /// Create the schedule paused
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, default_value_t = false, hide_default_value = true)]
    pub paused: bool,
    /// Skip a backup that is due immediately
    #[arg(long, value_name = "BOOL")]
    pub skip_immediately: Option<bool>,
    /// Make the schedule the owner of its backups: deleting it deletes them
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, default_value_t = false, hide_default_value = true)]
    pub use_owner_references_in_backup: bool,
    #[command(flatten)]
    pub template: BackupTemplate,
    #[command(flatten)]
    pub metadata: MetadataOptions,
    /// Print the object in this format without creating it
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<ObjectFormat>,
}

#[derive(Debug, Args)]
pub struct CreateLocation {
    /// Name of the location
    pub name: String,
    /// Provider of object storage: aws (and everything compatible with S3), azure, gcp or directory
    #[arg(long, value_name = "NAME")]
    pub provider: String,
    /// Bucket or container; for provider directory, a path
    #[arg(long, value_name = "NAME")]
    pub bucket: String,
    /// Prefix in the bucket
    #[arg(long, value_name = "PATH")]
    pub prefix: Option<String>,
    /// Configuration of the provider, e.g. region=eu-1,s3Url=https://minio.example
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub config: Vec<String>,
    #[command(flatten)]
    pub access: LocationAccess,
    /// Make it the default location
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, default_value_t = false, hide_default_value = true)]
    pub default: bool,
    /// Access mode
    #[arg(long, value_name = "MODE", default_value = "ReadWrite")]
    pub access_mode: AccessModeOption,
    /// Interval of syncing its backups into the cluster; 0s disables it
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub backup_sync_period: Option<Duration>,
    /// Interval of validating it; 0s disables it
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub validation_frequency: Option<Duration>,
    /// Labels of the location
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub labels: Vec<String>,
    /// Print the object in this format without creating it
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<ObjectFormat>,
}

#[derive(Debug, Args)]
pub struct SetLocation {
    /// Name of the location
    pub name: String,
    /// Make it the default location, or not
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub default: Option<bool>,
    #[command(flatten)]
    pub access: LocationAccess,
}

/// Access to object storage.
#[derive(Debug, Default, Args)]
pub struct LocationAccess {
    /// Secret and key with the credentials, e.g. cloud-credentials=cloud
    #[arg(long, value_name = "SECRET=KEY")]
    pub credential: Option<String>,
    /// CA certificates in PEM
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<PathBuf>,
}

/// The access mode of a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AccessModeOption {
    #[value(name = "ReadWrite")]
    ReadWrite,
    #[value(name = "ReadOnly")]
    ReadOnly,
}
