//! The command line: commands, arguments and options.

pub mod action;
pub mod agent;
pub mod blueprint;
pub mod client;
pub mod create;
pub mod dashboard;
pub mod help;
pub mod install;
mod local;
pub mod names;
mod observe;
pub mod options;
pub mod plugins;
pub mod profile;
pub mod repo;
mod resources;
mod server;
pub mod server_defaults;
pub mod values;
pub mod velero_install;
pub mod volume;
pub mod volumes;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use self::action::Action;
use self::agent::Mover;
use self::install::{Install, Uninstall};
pub use self::local::{Demo, Local};
use self::names::KindArguments;
pub use self::observe::{Cancel, Top, TopFormat, Watch, Why};
use self::observe::{TOP, WATCH, WHY};
use self::options::{DeleteOptions, DescribeOptions, GetOptions, LogsOptions};
use self::repo::Repo;
pub use self::resources::{Backup, BackupLocation, Create, Restore, Schedule};
pub use self::server::Server;
use self::values::duration;
use self::volume::Volume;
use crate::{client_config, exit};

/// Back up and restore Kubernetes workloads, with progress, rate, time left and the cause of every stall
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, after_help = exit::HELP, propagate_version = true)]
pub struct Arguments {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = help::GLOBAL_OPTIONS)]
pub struct Global {
    /// Kubeconfig file [default: $KUBECONFIG, ~/.kube/config or the pod's service account]
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME", alias = "kubecontext")]
    pub context: Option<String>,
    /// Namespace of the backups and restores
    #[arg(long, short, global = true, env = "PLIMSOLL_NAMESPACE", default_value_t = default_namespace())]
    pub namespace: String,
    /// Log filter for standard error, e.g. info, debug, plimsoll_controllers=debug
    #[arg(long, global = true, env = "PLIMSOLL_LOG", value_name = "FILTER")]
    pub log: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a local Kubernetes API and the server on this machine
    #[command(after_help = "Examples:\n  plimsoll local\n  plimsoll local --data-dir ./cluster --no-server\n  \
        kubectl --kubeconfig ./cluster/kubeconfig get namespaces")]
    Local(Local),
    /// Run the server, which executes the backups and restores of one namespace
    #[command(
        after_help = "Several servers may run; one is the leader. When it fails, another one resumes its operations.\n\n\
        Examples:\n  plimsoll server\n  plimsoll server --namespace velero --scratch-dir /scratch"
    )]
    Server(Server),
    /// Run the node agent, which transfers the volume data of one node
    #[command(
        after_help = "Run one agent on each node. When it fails, the next one on that node resumes its transfers.\n\n\
        Examples:\n  NODE_NAME=worker-1 plimsoll agent\n  \
        plimsoll agent --node worker-1 --pods-directory /var/lib/kubelet/pods --concurrency 2"
    )]
    Agent(agent::Agent),
    /// Run a demonstration: back up, delete and restore an application while the server is killed
    #[command(
        after_help = "Starts a local cluster whose pods are processes and an application with a database, backs it up, deletes it, \
        restores it, runs an action of a blueprint and stalls a transfer. Removes everything at the end.\n\n\
        Examples:\n  plimsoll demo\n  plimsoll demo --megabytes 1000 --stay"
    )]
    Demo(Demo),
    /// Create, list, describe, download and delete backups
    #[command(subcommand, visible_alias = "backups")]
    Backup(Backup),
    /// Create, list, describe and delete restores
    #[command(subcommand, visible_alias = "restores")]
    Restore(Restore),
    /// Create, list, pause and delete schedules of backups
    #[command(subcommand, visible_alias = "schedules")]
    Schedule(Schedule),
    /// Create, list, change and delete backup storage locations
    #[command(subcommand, visible_alias = "location", aliases = ["locations", "backup-locations"])]
    BackupLocation(BackupLocation),
    /// Validate Kanister blueprints
    #[command(subcommand, visible_alias = "blueprints")]
    Blueprint(blueprint::Blueprint),
    /// Create and validate Kanister profiles
    #[command(subcommand, visible_alias = "profiles")]
    Profile(profile::Profile),
    /// Move data and set outputs inside the pods of a blueprint, as Kanister's kando does
    #[command(
        after_help = "A copy of this program named kando takes these commands directly. Progress is written to standard error, \
        one line for each frame, after ###Phase-progress###:."
    )]
    Kando(blueprint::Kando),
    /// Run, list, watch and cancel actions of Kanister blueprints (ActionSets)
    #[command(subcommand, visible_alias = "actions", alias = "actionset")]
    Action(Action),
    /// List, inspect and unlock the repositories of volume data
    #[command(subcommand, visible_alias = "repos", aliases = ["repository", "repositories"])]
    Repo(Repo),
    /// List, describe and watch transfers of volume data
    #[command(subcommand, visible_alias = "volumes")]
    Volume(Volume),
    /// Install or upgrade the server and the node agents in a cluster
    #[command(after_help = install::EXAMPLES)]
    Install(Box<Install>),
    /// Remove the server and the node agents from a cluster; backups and their data stay
    #[command(after_help = "Examples:\n  plimsoll uninstall\n  plimsoll uninstall --crds --confirm")]
    Uninstall(Uninstall),
    /// Create, list and change volume snapshot locations
    #[command(subcommand, aliases = ["snapshot-locations"])]
    SnapshotLocation(plugins::SnapshotLocation),
    /// List, add and remove plugins of the server
    #[command(subcommand, aliases = ["plugins"])]
    Plugin(plugins::Plugin),
    /// Create a backup, restore, schedule, backup location or snapshot location
    #[command(subcommand)]
    Create(Create),
    /// List backups, restores, schedules, locations, actions, operations, repositories or plugins
    #[command(
        after_help = "Examples:\n  plimsoll get operations\n  plimsoll get snapshot-locations\n  plimsoll get backups -l team=shop\n  \
        plimsoll get backup/nightly -o yaml"
    )]
    Get(KindArguments<GetOptions>),
    /// Show details of backups, restores, schedules, backup locations or actions
    #[command(
        after_help = "Examples:\n  plimsoll describe backup/nightly\n  plimsoll describe restore monday --details\n  \
        plimsoll describe restore/monday -o json"
    )]
    Describe(KindArguments<DescribeOptions>),
    /// Print the log of a backup, restore or action
    #[command(after_help = "Examples:\n  plimsoll logs backup/nightly\n  plimsoll logs restore/monday --follow")]
    Logs(KindArguments<LogsOptions>),
    /// Delete backups, restores, schedules or backup locations
    #[command(after_help = "Examples:\n  plimsoll delete backup/nightly\n  \
        plimsoll delete backups -l velero.io/schedule-name=daily --confirm")]
    Delete(KindArguments<DeleteOptions>),
    /// Cancel a running or queued backup, restore or action
    #[command(after_help = "Examples:\n  plimsoll cancel backup/nightly\n  plimsoll cancel restore/monday --wait")]
    Cancel(Cancel),
    /// Show all operations live, stalled ones first; works with any Velero or Kanister, read-only
    #[command(after_help = TOP)]
    Top(Top),
    /// Open the dashboard in a browser
    #[command(after_help = dashboard::UI)]
    Ui(dashboard::Ui),
    /// Explain why an operation is stalled or failed, and what to do next
    #[command(after_help = WHY)]
    Why(Why),
    /// Watch one operation until it ends
    #[command(after_help = WATCH)]
    Watch(Watch),
    /// Print or install the custom resource definitions
    #[command(subcommand)]
    Crds(Crds),
    /// Collect objects and logs for a bug report, without secrets
    #[command(after_help = "Examples:\n  plimsoll debug\n  plimsoll debug --backup nightly --output bundle.tar.gz")]
    Debug(client::Debug),
    /// Print or change settings of this command line
    #[command(subcommand)]
    Client(client::ClientCommand),
    /// Print the versions of this program and of the server
    #[command(after_help = "Examples:\n  plimsoll version\n  plimsoll version --client-only")]
    Version(Version),
    /// Transfer the data of one volume: read the job from standard input, write progress to standard output
    #[command(hide = true)]
    Mover(Mover),
    /// Wait in a restored pod until the data of its volumes is restored
    #[command(hide = true)]
    RestoreWait(agent::RestoreWait),
    /// Copy this program as `kando` into a directory
    #[command(hide = true)]
    KandoInstall {
        /// Target directory
        directory: PathBuf,
    },
    /// Print a completion script for a shell
    #[command(
        after_help = "Examples:\n  plimsoll completion bash > /etc/bash_completion.d/plimsoll\n  source <(plimsoll completion zsh)"
    )]
    Completion {
        /// Shell to complete for
        shell: clap_complete::Shell,
    },
    /// Print this reference as Markdown
    #[command(hide = true)]
    Reference,
}

#[derive(Debug, Args)]
pub struct Version {
    /// Print the version of this program only
    #[arg(long)]
    pub client_only: bool,
    /// Timeout for the answer of the server
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub timeout: Duration,
}

#[derive(Debug, Subcommand)]
pub enum Crds {
    /// Print the definitions as YAML
    #[command(after_help = "Examples:\n  plimsoll crds print | kubectl apply --server-side -f -")]
    Print,
    /// Create or update the definitions in the cluster, and wait until they are served
    #[command(after_help = "Examples:\n  plimsoll crds apply")]
    Apply,
}

/// The namespace that the `velero` command line uses.
fn default_namespace() -> String {
    let variable = std::env::var("VELERO_NAMESPACE").ok().filter(|name| !name.is_empty());
    variable.or_else(client_config::namespace).unwrap_or_else(|| "velero".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        help::command().debug_assert();
    }
}
