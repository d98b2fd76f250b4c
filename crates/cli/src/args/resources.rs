//! Commands for one kind of custom resource: `plimsoll backup`, `restore`, `schedule` and `backup-location`, and `plimsoll create`.

use clap::{Args, Subcommand};

use super::create::{CreateBackup, CreateLocation, CreateRestore, CreateSchedule, SetLocation};
use super::names::NameArguments;
use super::options::{DeleteOptions, DescribeOptions, DownloadOptions, GetOptions, LogsOptions, PauseOptions};
use super::plugins;

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "made once, from what was typed")]
pub enum Backup {
    /// Create a backup
    #[command(after_help = CREATE_BACKUP)]
    Create(CreateBackup),
    /// List backups
    #[command(after_help = "Examples:\n  plimsoll backup get\n  plimsoll backup get nightly -o yaml")]
    Get(NameArguments<GetOptions>),
    /// Show details of backups
    #[command(
        after_help = "Examples:\n  plimsoll backup describe nightly\n  plimsoll backup describe nightly --details"
    )]
    Describe(NameArguments<DescribeOptions>),
    /// Print the log of a backup
    #[command(after_help = "Examples:\n  plimsoll backup logs nightly\n  plimsoll backup logs nightly --follow")]
    Logs(NameArguments<LogsOptions>),
    /// Delete backups with their files, snapshots and restores
    #[command(
        after_help = "Examples:\n  plimsoll backup delete nightly\n  plimsoll backup delete one two --confirm --wait\n  \
        plimsoll backup delete --selector velero.io/schedule-name=daily\n  plimsoll backup delete --all"
    )]
    Delete(NameArguments<DeleteOptions>),
    /// Download the contents of a backup as a tar.gz file
    #[command(
        after_help = "Examples:\n  plimsoll backup download nightly\n  plimsoll backup download nightly -o /tmp/nightly.tar.gz --force"
    )]
    Download(NameArguments<DownloadOptions>),
}

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "made once, from what was typed")]
pub enum Restore {
    /// Create a restore
    #[command(after_help = CREATE_RESTORE)]
    Create(CreateRestore),
    /// List restores
    #[command(after_help = "Examples:\n  plimsoll restore get\n  plimsoll restore get monday -o yaml")]
    Get(NameArguments<GetOptions>),
    /// Show details of restores
    #[command(
        after_help = "Examples:\n  plimsoll restore describe monday\n  plimsoll restore describe monday --details"
    )]
    Describe(NameArguments<DescribeOptions>),
    /// Print the log of a restore
    #[command(after_help = "Examples:\n  plimsoll restore logs monday\n  plimsoll restore logs monday --follow")]
    Logs(NameArguments<LogsOptions>),
    /// Delete restores; the restored objects stay
    #[command(after_help = "Examples:\n  plimsoll restore delete monday\n  plimsoll restore delete --all --confirm")]
    Delete(NameArguments<DeleteOptions>),
}

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "made once, from what was typed")]
pub enum Schedule {
    /// Create a schedule of backups
    #[command(after_help = CREATE_SCHEDULE)]
    Create(CreateSchedule),
    /// List schedules
    #[command(after_help = "Examples:\n  plimsoll schedule get\n  plimsoll schedule get daily -o yaml")]
    Get(NameArguments<GetOptions>),
    /// Show details of schedules
    #[command(after_help = "Examples:\n  plimsoll schedule describe daily")]
    Describe(NameArguments<DescribeOptions>),
    /// Pause schedules
    #[command(after_help = "Examples:\n  plimsoll schedule pause daily weekly\n  plimsoll schedule pause --all")]
    Pause(NameArguments<PauseOptions>),
    /// Resume paused schedules
    #[command(
        after_help = "Examples:\n  plimsoll schedule unpause daily\n  plimsoll schedule unpause daily --skip-immediately true"
    )]
    Unpause(NameArguments<PauseOptions>),
    /// Delete schedules; their backups stay
    #[command(after_help = "Examples:\n  plimsoll schedule delete daily\n  plimsoll schedule delete --all --confirm")]
    Delete(NameArguments<DeleteOptions>),
}

#[derive(Debug, Subcommand)]
pub enum BackupLocation {
    /// Create a backup storage location
    #[command(after_help = CREATE_LOCATION)]
    Create(CreateLocation),
    /// List backup locations
    #[command(after_help = "Examples:\n  plimsoll backup-location get\n  plimsoll backup-location get --default")]
    Get(GetLocations),
    /// Show details of backup locations
    #[command(after_help = "Examples:\n  plimsoll backup-location describe default")]
    Describe(NameArguments<DescribeOptions>),
    /// Change a backup location
    #[command(after_help = "Examples:\n  plimsoll backup-location set offsite --default\n  \
        plimsoll backup-location set offsite --credential offsite-credentials=cloud --cacert ca.pem")]
    Set(SetLocation),
    /// Delete backup locations and their backups from the cluster; files in object storage stay
    #[command(
        after_help = "Examples:\n  plimsoll backup-location delete offsite\n  plimsoll backup-location delete offsite --confirm"
    )]
    Delete(NameArguments<DeleteOptions>),
}

#[derive(Debug, Subcommand)]
pub enum Create {
    /// Create a backup
    #[command(after_help = CREATE_BACKUP)]
    Backup(CreateBackup),
    /// Create a restore
    #[command(after_help = CREATE_RESTORE)]
    Restore(CreateRestore),
    /// Create a schedule of backups
    #[command(after_help = CREATE_SCHEDULE)]
    Schedule(CreateSchedule),
    /// Create a backup storage location
    #[command(visible_alias = "location", after_help = CREATE_LOCATION)]
    BackupLocation(CreateLocation),
    /// Create a volume snapshot location
    #[command(
        after_help = "Examples:\n  plimsoll create snapshot-location default --provider aws --config region=eu-1"
    )]
    SnapshotLocation(plugins::CreateSnapshotLocation),
}

const CREATE_BACKUP: &str = "Examples:
  plimsoll backup create nightly --wait
  plimsoll backup create shop --include-namespaces shop,shop-db -l tier!=cache --wait
  plimsoll backup create shop --include-namespaces 'shop-*' --dry-run    # show what it would contain
  plimsoll backup create shop --include-namespaces 'shop-*' -o yaml      # print the object only
  plimsoll backup create --from-schedule daily --wait";
const CREATE_RESTORE: &str = "Examples:
  plimsoll restore create --from-backup nightly --wait
  plimsoll restore create monday --from-backup nightly --include-namespaces shop --namespace-mappings shop:shop-copy
  plimsoll restore create --from-schedule daily --allow-partially-failed
  plimsoll restore create --from-backup nightly --existing-resource-policy update --dry-run";
const CREATE_SCHEDULE: &str = "Examples:
  plimsoll schedule create daily --schedule '0 1 * * *' --ttl 168h
  plimsoll schedule create often --schedule '@every 6h' --include-namespaces shop";
const CREATE_LOCATION: &str = "Examples:
  plimsoll backup-location create default --provider aws --bucket backups --config region=eu-1 --default
  plimsoll backup-location create minio --provider aws --bucket backups \\
    --config region=minio,s3ForcePathStyle=true,s3Url=https://minio.example --credential minio=cloud --cacert ca.pem
  plimsoll backup-location create disk --provider directory --bucket /var/backups";

#[derive(Debug, Args)]
pub struct GetLocations {
    /// List the default location only
    #[arg(long)]
    pub default: bool,
    #[command(flatten)]
    pub named: NameArguments<GetOptions>,
}
