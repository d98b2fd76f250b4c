//! What can be typed about volume data.

use clap::{Args, Subcommand};

use super::options::{ListFormat, ObjectFormat};

/// `plimsoll volume`
#[derive(Debug, Subcommand)]
pub enum Volume {
    /// List transfers of volume data and snapshots of plugins: how far, how fast, how long
    #[command(after_help = "Examples:\n  plimsoll volume get\n  plimsoll volume get --backup nightly")]
    Get(VolumeGet),
    /// Tell everything about transfers
    #[command(after_help = "Examples:\n  plimsoll volume describe nightly-x7k2p")]
    Describe(VolumeDescribe),
    /// Show transfers until all of them have ended
    #[command(after_help = "Examples:\n  plimsoll volume watch --backup nightly")]
    Watch(VolumeWatch),
}

/// Which transfers.
#[derive(Debug, Default, Args)]
pub struct Chosen {
    /// Names of transfers (PodVolumeBackup, DataUpload, VolumePluginBackup and their like); all if none is given
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Only those of this backup
    #[arg(long, value_name = "NAME")]
    pub backup: Option<String>,
    /// Only those of this restore
    #[arg(long, value_name = "NAME", conflicts_with = "backup")]
    pub restore: Option<String>,
}

#[derive(Debug, Args)]
pub struct VolumeGet {
    #[command(flatten)]
    pub chosen: Chosen,
    /// How to print them
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    pub output: ListFormat,
}

#[derive(Debug, Args)]
pub struct VolumeDescribe {
    #[command(flatten)]
    pub chosen: Chosen,
    /// How to print it
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<ObjectFormat>,
}

#[derive(Debug, Args)]
pub struct VolumeWatch {
    #[command(flatten)]
    pub chosen: Chosen,
}
