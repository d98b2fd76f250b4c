//! Arguments of `plimsoll volume`.

use clap::{Args, Subcommand};

use super::options::{ListFormat, ObjectFormat};

/// `plimsoll volume`
#[derive(Debug, Subcommand)]
pub enum Volume {
    /// List transfers of volume data and plugin snapshots with progress, rate and time left
    #[command(after_help = "Examples:\n  plimsoll volume get\n  plimsoll volume get --backup nightly")]
    Get(VolumeGet),
    /// Show details of transfers
    #[command(after_help = "Examples:\n  plimsoll volume describe nightly-x7k2p")]
    Describe(VolumeDescribe),
    /// Watch transfers until all of them end
    #[command(after_help = "Examples:\n  plimsoll volume watch --backup nightly")]
    Watch(VolumeWatch),
}

/// Selects transfers.
#[derive(Debug, Default, Args)]
pub struct TransferSelection {
    /// Names of PodVolumeBackups, DataUploads, VolumePluginBackups or their restores [default: all]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Select the transfers of this backup
    #[arg(long, value_name = "NAME")]
    pub backup: Option<String>,
    /// Select the transfers of this restore
    #[arg(long, value_name = "NAME", conflicts_with = "backup")]
    pub restore: Option<String>,
}

#[derive(Debug, Args)]
pub struct VolumeGet {
    #[command(flatten)]
    pub selection: TransferSelection,
    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    pub output: ListFormat,
}

#[derive(Debug, Args)]
pub struct VolumeDescribe {
    #[command(flatten)]
    pub selection: TransferSelection,
    /// Output format
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<ObjectFormat>,
}

#[derive(Debug, Args)]
pub struct VolumeWatch {
    #[command(flatten)]
    pub selection: TransferSelection,
}
