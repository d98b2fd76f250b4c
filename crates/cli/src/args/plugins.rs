//! Plugins and snapshot locations.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::duration;
use super::options::ObjectFormat;

#[derive(Debug, Subcommand)]
pub enum Plugin {
    /// List what the server can do: what is built in and what its plugins offer
    #[command(after_help = "Examples:\n  plimsoll plugin get")]
    Get(GetPlugins),
    /// Add a plugin's image to the server's Deployment, which starts it anew
    #[command(after_help = "Examples:\n  plimsoll plugin add velero/velero-plugin-for-aws:v1.14.3")]
    Add(AddPlugin),
    /// Take a plugin out of the server's Deployment, by its image or the name of its init container
    #[command(after_help = "Examples:\n  plimsoll plugin remove velero-velero-plugin-for-aws")]
    Remove(RemovePlugin),
}

#[derive(Debug, Args)]
pub struct GetPlugins {
    /// How long to wait for the server's answer
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub timeout: Duration,
    /// As JSON or YAML
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<ObjectFormat>,
}

#[derive(Debug, Args)]
pub struct AddPlugin {
    /// The image that brings the plugin
    pub image: String,
    /// When the image is pulled: Always, IfNotPresent or Never
    #[arg(long, value_name = "POLICY", default_value = "IfNotPresent", value_parser = ["Always", "IfNotPresent", "Never"])]
    pub image_pull_policy: String,
}

#[derive(Debug, Args)]
pub struct RemovePlugin {
    /// The image, or the name of the init container
    pub name: String,
}

#[derive(Debug, Subcommand)]
pub enum SnapshotLocation {
    /// Say where a provider keeps snapshots
    #[command(
        after_help = "Examples:\n  plimsoll snapshot-location create default --provider aws --config region=eu-1"
    )]
    Create(CreateSnapshotLocation),
    /// List snapshot locations
    #[command(
        after_help = "Examples:\n  plimsoll snapshot-location get\n  plimsoll snapshot-location get default -o yaml"
    )]
    Get(GetSnapshotLocations),
    /// Change a snapshot location
    #[command(after_help = "Examples:\n  plimsoll snapshot-location set default --credential snapshots=cloud")]
    Set(SetSnapshotLocation),
}

#[derive(Debug, Args)]
pub struct CreateSnapshotLocation {
    /// Name of the location
    pub name: String,
    /// Registered name of the plugin, e.g. velero.io/aws; without a domain Velero's own is meant
    #[arg(long, value_name = "NAME")]
    pub provider: String,
    /// Settings of the provider
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub config: Vec<String>,
    /// Secret and key with the credentials
    #[arg(long, value_name = "SECRET=KEY")]
    pub credential: Option<String>,
    /// Labels for it
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub labels: Vec<String>,
    /// Print the object and create nothing
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<ObjectFormat>,
}

#[derive(Debug, Args)]
pub struct GetSnapshotLocations {
    /// Which ones; all without a name
    pub names: Vec<String>,
    /// As JSON or YAML
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<ObjectFormat>,
}

#[derive(Debug, Args)]
pub struct SetSnapshotLocation {
    /// Which one
    pub name: String,
    /// Secret and key with the credentials
    #[arg(long, value_name = "SECRET=KEY")]
    pub credential: String,
}
