//! Arguments of `plimsoll plugin` and `snapshot-location`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::options::ObjectFormat;
use super::values::duration;

#[derive(Debug, Subcommand)]
pub enum Plugin {
    /// List the plugins of the server, built-in ones included
    #[command(after_help = "Examples:\n  plimsoll plugin get")]
    Get(GetPlugins),
    /// Add the image of a plugin to the Deployment of the server, which restarts
    #[command(after_help = "Examples:\n  plimsoll plugin add velero/velero-plugin-for-aws:v1.14.3")]
    Add(AddPlugin),
    /// Remove a plugin from the Deployment of the server, which restarts
    #[command(after_help = "Examples:\n  plimsoll plugin remove velero-velero-plugin-for-aws")]
    Remove(RemovePlugin),
}

#[derive(Debug, Args)]
pub struct GetPlugins {
    /// Timeout for the answer of the server
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub timeout: Duration,
    /// Output format
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<ObjectFormat>,
}

#[derive(Debug, Args)]
pub struct AddPlugin {
    /// Image of the plugin
    pub image: String,
    /// Image pull policy
    #[arg(long, value_name = "POLICY", default_value = "IfNotPresent", value_parser = ["Always", "IfNotPresent", "Never"])]
    pub image_pull_policy: String,
}

#[derive(Debug, Args)]
pub struct RemovePlugin {
    /// Image, or name of the init container
    pub name: String,
}

#[derive(Debug, Subcommand)]
pub enum SnapshotLocation {
    /// Create a volume snapshot location
    #[command(
        after_help = "Examples:\n  plimsoll snapshot-location create default --provider aws --config region=eu-1"
    )]
    Create(CreateSnapshotLocation),
    /// List volume snapshot locations
    #[command(
        after_help = "Examples:\n  plimsoll snapshot-location get\n  plimsoll snapshot-location get default -o yaml"
    )]
    Get(GetSnapshotLocations),
    /// Change a volume snapshot location
    #[command(after_help = "Examples:\n  plimsoll snapshot-location set default --credential snapshots=cloud")]
    Set(SetSnapshotLocation),
}

#[derive(Debug, Args)]
pub struct CreateSnapshotLocation {
    /// Name of the location
    pub name: String,
    /// Name of the plugin, e.g. velero.io/aws; without a domain, velero.io/ is prepended
    #[arg(long, value_name = "NAME")]
    pub provider: String,
    /// Configuration of the provider
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub config: Vec<String>,
    /// Secret and key with the credentials
    #[arg(long, value_name = "SECRET=KEY")]
    pub credential: Option<String>,
    /// Labels of the location
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub labels: Vec<String>,
    /// Print the object in this format without creating it
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<ObjectFormat>,
}

#[derive(Debug, Args)]
pub struct GetSnapshotLocations {
    /// Names of the locations [default: all]
    pub names: Vec<String>,
    /// Output format
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<ObjectFormat>,
}

#[derive(Debug, Args)]
pub struct SetSnapshotLocation {
    /// Name of the location
    pub name: String,
    /// Secret and key with the credentials
    #[arg(long, value_name = "SECRET=KEY")]
    pub credential: String,
}
