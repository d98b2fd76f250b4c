//! What can be said about a backup, restore, schedule or location that is asked for. Names and meanings are Velero's.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use super::options::{Following, ObjectFormat};
use super::{cron, duration};

/// The filters that backups and restores have in common.
#[derive(Debug, Default, Args)]
pub struct Filters {
    /// Namespaces to include; `*` and globs are allowed
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub include_namespaces: Vec<String>,
    /// Namespaces to leave out
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub exclude_namespaces: Vec<String>,
    /// Resources to include, e.g. configmaps,deployments.apps
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub include_resources: Vec<String>,
    /// Resources to leave out
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub exclude_resources: Vec<String>,
    /// Only objects with these labels, e.g. app=shop,tier!=cache
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Only objects that any of these selectors chooses, e.g. 'app=a or app=b'
    #[arg(long, value_name = "SELECTORS", conflicts_with = "selector")]
    pub or_selector: Option<String>,
    /// Whether cluster-scoped objects are included; by default those that the namespaced ones need
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub include_cluster_resources: Option<bool>,
    /// ConfigMap with resource policies: volume policies and fine-grained filters
    #[arg(long, value_name = "NAME")]
    pub resource_policies_configmap: Option<String>,
    /// How long to wait for what plugins do in the background, e.g. 4h
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub item_operation_timeout: Option<Duration>,
}

/// Labels and annotations of the object that is created.
#[derive(Debug, Default, Args)]
pub struct Marks {
    /// Labels for it, e.g. team=shop,tier=web
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub labels: Vec<String>,
    /// Annotations for it
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub annotations: Vec<String>,
}

/// What a backup is to hold: the same for one that is asked for and for those that a schedule makes.
#[derive(Debug, Default, Args)]
pub struct BackupTemplate {
    #[command(flatten)]
    pub filters: Filters,
    /// Cluster-scoped resources to include; not together with the unscoped resource filters
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = UNSCOPED)]
    pub include_cluster_scoped_resources: Vec<String>,
    /// Cluster-scoped resources to leave out
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = UNSCOPED)]
    pub exclude_cluster_scoped_resources: Vec<String>,
    /// Namespaced resources to include
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = UNSCOPED)]
    pub include_namespace_scoped_resources: Vec<String>,
    /// Namespaced resources to leave out
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = UNSCOPED)]
    pub exclude_namespace_scoped_resources: Vec<String>,
    /// How long to keep it, e.g. 72h
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub ttl: Option<Duration>,
    /// Backup location to store it in
    #[arg(long, value_name = "NAME")]
    pub storage_location: Option<String>,
    /// Snapshot locations to use, at most one for each provider
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub volume_snapshot_locations: Vec<String>,
    /// Whether volumes are snapshotted
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub snapshot_volumes: Option<bool>,
    /// Whether the data of snapshots is moved to the backup location
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub snapshot_move_data: Option<bool>,
    /// Data mover to use; without it, or with `velero`, the built-in one
    #[arg(long, value_name = "NAME")]
    pub data_mover: Option<String>,
    /// Whether the files of every pod volume are copied unless its pod opts out
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub default_volumes_to_fs_backup: Option<bool>,
    /// Objects to back up first and in which order, e.g. 'pods=shop/db-0,shop/db-1;persistentvolumes=pv-1'
    #[arg(long, value_name = "ORDER")]
    pub ordered_resources: Option<String>,
    /// How long to wait for a CSI snapshot to be ready
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub csi_snapshot_timeout: Option<Duration>,
    /// How many files of a volume are uploaded at a time
    #[arg(long, value_name = "N")]
    pub parallel_files_upload: Option<u16>,
}

const UNSCOPED: [&str; 3] = ["include_resources", "exclude_resources", "include_cluster_resources"];

#[derive(Debug, Args)]
pub struct CreateBackup {
    /// Name of the backup; with --from-schedule by default the schedule's name and the time
    #[arg(required_unless_present = "from_schedule")]
    pub name: Option<String>,
    /// Make it as this schedule would; not together with filters
    #[arg(long, value_name = "SCHEDULE")]
    pub from_schedule: Option<String>,
    #[command(flatten)]
    pub template: BackupTemplate,
    #[command(flatten)]
    pub marks: Marks,
    #[command(flatten)]
    pub following: Following,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("source").required(true))]
pub struct CreateRestore {
    /// Name of the restore; by default the backup's or schedule's name and the time
    pub name: Option<String>,
    /// Backup to restore from
    #[arg(long, value_name = "NAME", group = "source")]
    pub from_backup: Option<String>,
    /// Restore from the latest good backup of this schedule
    #[arg(long, value_name = "NAME", group = "source")]
    pub from_schedule: Option<String>,
    /// With --from-schedule: whether a backup that is PartiallyFailed is good enough
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub allow_partially_failed: Option<bool>,
    #[command(flatten)]
    pub filters: Filters,
    /// From namespace to namespace, e.g. shop:shop-copy
    #[arg(long, value_name = "OLD:NEW", value_delimiter = ',')]
    pub namespace_mappings: Vec<String>,
    /// What happens to objects that exist already
    #[arg(long, value_name = "POLICY")]
    pub existing_resource_policy: Option<ExistingPolicy>,
    /// Resources whose status is restored too; `*` for all
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub status_include_resources: Vec<String>,
    /// Resources whose status is not restored
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub status_exclude_resources: Vec<String>,
    /// Whether volumes are restored from snapshots
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub restore_volumes: Option<bool>,
    /// Whether services keep their node ports
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub preserve_nodeports: Option<bool>,
    /// ConfigMap with rules that change objects on their way
    #[arg(long, value_name = "NAME")]
    pub resource_modifier_configmap: Option<String>,
    /// Whether blocks of zeros in volumes are written as holes
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub write_sparse_files: Option<bool>,
    /// How many files of a volume are downloaded at a time
    #[arg(long, value_name = "N")]
    pub parallel_files_download: Option<u16>,
    #[command(flatten)]
    pub marks: Marks,
    #[command(flatten)]
    pub following: Following,
}

/// What happens to objects that exist already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExistingPolicy {
    /// They are left as they are
    None,
    /// They are changed to what the backup has
    Update,
}

#[derive(Debug, Args)]
pub struct CreateSchedule {
    /// Name of the schedule
    pub name: String,
    /// When, as a cron expression or @every DURATION, e.g. '0 1 * * *'
    #[arg(long, value_name = "CRON", value_parser = cron)]
    pub schedule: String,
    /// Make no backups for now
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, default_value_t = false, hide_default_value = true)]
    pub paused: bool,
    /// Whether a backup that is due right away is left out
    #[arg(long, value_name = "BOOL")]
    pub skip_immediately: Option<bool>,
    /// Backups belong to the schedule: deleting it deletes them
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, default_value_t = false, hide_default_value = true)]
    pub use_owner_references_in_backup: bool,
    #[command(flatten)]
    pub template: BackupTemplate,
    #[command(flatten)]
    pub marks: Marks,
    /// Print the object and create nothing
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<ObjectFormat>,
}

#[derive(Debug, Args)]
pub struct CreateLocation {
    /// Name of the location
    pub name: String,
    /// Provider of the object store: aws (and all that speak S3), azure, gcp or directory
    #[arg(long, value_name = "NAME")]
    pub provider: String,
    /// Bucket or container; for the provider `directory` its path
    #[arg(long, value_name = "NAME")]
    pub bucket: String,
    /// Where in the bucket
    #[arg(long, value_name = "PATH")]
    pub prefix: Option<String>,
    /// Settings of the provider, e.g. region=eu-1,s3Url=https://minio.example
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub config: Vec<String>,
    #[command(flatten)]
    pub access: Access,
    /// Backups that name no location go here
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, default_value_t = false, hide_default_value = true)]
    pub default: bool,
    /// Whether backups may be written
    #[arg(long, value_name = "MODE", default_value = "ReadWrite")]
    pub access_mode: Mode,
    /// How often its backups are synced into the cluster; 0s is never
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub backup_sync_period: Option<Duration>,
    /// How often it is checked; 0s is never
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub validation_frequency: Option<Duration>,
    /// Labels for it
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub labels: Vec<String>,
    /// Print the object and create nothing
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<ObjectFormat>,
}

#[derive(Debug, Args)]
pub struct SetLocation {
    /// Which one
    pub name: String,
    /// Whether backups that name no location go here
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub default: Option<bool>,
    #[command(flatten)]
    pub access: Access,
}

/// How to get into the object store.
#[derive(Debug, Default, Args)]
pub struct Access {
    /// Secret and its key with the provider's credentials, e.g. cloud-credentials=cloud
    #[arg(long, value_name = "SECRET=KEY")]
    pub credential: Option<String>,
    /// Certificates to trust, in PEM
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<PathBuf>,
}

/// Whether backups may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    #[value(name = "ReadWrite")]
    ReadWrite,
    #[value(name = "ReadOnly")]
    ReadOnly,
}
