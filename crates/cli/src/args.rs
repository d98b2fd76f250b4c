//! What can be typed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::exit;

/// Backs up and restores Kubernetes workloads, and always shows how far it is, how fast, how long it will take and what it is
/// waiting for.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, after_help = exit::HELP, propagate_version = true)]
pub struct Arguments {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Clone, Debug, Args)]
pub struct Global {
    /// Kubeconfig to use; otherwise $KUBECONFIG, ~/.kube/config or the pod's own account
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME", alias = "kubecontext")]
    pub context: Option<String>,
    /// Namespace of the backups and restores
    #[arg(long, short, global = true, env = "PLIMSOLL_NAMESPACE", default_value = "velero")]
    pub namespace: String,
    /// What to log to standard error, e.g. info, debug, plimsoll_controllers=debug
    #[arg(long, global = true, env = "PLIMSOLL_LOG", value_name = "FILTER")]
    pub log: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a Kubernetes API of our own on this machine, with the server beside it
    #[command(after_help = "Examples:\n  plimsoll local\n  plimsoll local --data-dir ./cluster --no-server\n  \
        kubectl --kubeconfig ./cluster/kubeconfig get namespaces")]
    Local(Local),
    /// Run the server: it carries out the Backups and Restores of one namespace
    #[command(
        after_help = "Any number of servers may run; one leads, and when it dies another one goes on with its work.\n\n\
        Examples:\n  plimsoll server\n  plimsoll server --namespace velero --scratch-dir /scratch"
    )]
    Server(Server),
    /// Show the main job on this machine: back up, lose everything, restore, with the server killed in the middle
    Demo(Demo),
    /// Make and look at backups
    #[command(subcommand, visible_alias = "backups")]
    Backup(Backup),
    /// Make and look at restores
    #[command(subcommand, visible_alias = "restores")]
    Restore(Restore),
    /// List backups, restores or operations
    #[command(after_help = "Examples:\n  plimsoll get operations\n  plimsoll get backups -o json")]
    Get(Get),
    /// Tell everything about one backup or restore
    #[command(after_help = "Examples:\n  plimsoll describe backup/nightly\n  plimsoll describe restore/monday -o json")]
    Describe(Describe),
    /// End a running or waiting backup or restore
    #[command(after_help = "Examples:\n  plimsoll cancel backup/nightly\n  plimsoll cancel restore/monday --wait")]
    Cancel(Cancel),
    /// Print or install the custom resource definitions
    #[command(subcommand)]
    Crds(Crds),
    /// Print completions for a shell
    #[command(
        after_help = "Examples:\n  plimsoll completion bash > /etc/bash_completion.d/plimsoll\n  source <(plimsoll completion zsh)"
    )]
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
pub struct Local {
    /// Where the cluster keeps its objects, its credentials and its backups
    #[arg(long, value_name = "DIR", default_value = ".plimsoll")]
    pub data_dir: PathBuf,
    /// Address to listen on; loopback only
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Serve the API only: backups wait until a `plimsoll server` runs
    #[arg(long)]
    pub no_server: bool,
}

#[derive(Debug, Args)]
pub struct Server {
    /// Where spools go while an operation runs
    #[arg(long, value_name = "DIR", env = "PLIMSOLL_SCRATCH_DIR")]
    pub scratch_dir: Option<PathBuf>,
    /// How long a leader may be silent before another server takes over
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub lease_duration: Duration,
    /// How many backups, and how many restores, run at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub concurrency: u16,
    /// How long backups are kept that do not say
    #[arg(long, value_name = "DURATION", default_value = "720h", value_parser = duration)]
    pub default_backup_ttl: Duration,
    /// A request to object storage that moves no bytes for this long is tried again
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    pub store_idle_timeout: Duration,
    /// How long a restore waits for definitions, for additional items and for the containers of its hooks
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    pub resource_timeout: Duration,
    /// How long a restore waits for what is being deleted to be gone
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    pub terminating_resource_timeout: Duration,
}

#[derive(Debug, Args)]
pub struct Demo {
    /// How many objects the application has
    #[arg(long, value_name = "N", default_value_t = 12_000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub objects: u32,
    /// Leave the cluster running at the end, to look around; Ctrl-C ends it
    #[arg(long)]
    pub stay: bool,
}

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "made once, from what was typed")]
pub enum Backup {
    /// Ask for a backup
    #[command(after_help = "Examples:\n  plimsoll backup create nightly --wait\n  \
        plimsoll backup create shop --include-namespaces shop,shop-db -l tier!=cache --wait\n  \
        plimsoll backup create shop --include-namespaces 'shop-*' -o yaml    # print it, create nothing")]
    Create(CreateBackup),
    /// List backups
    Get(Named),
    /// Tell everything about one backup
    Describe(One),
}

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "made once, from what was typed")]
pub enum Restore {
    /// Ask for a restore
    #[command(after_help = "Examples:\n  plimsoll restore create --from-backup nightly --wait\n  \
        plimsoll restore create monday --from-backup nightly --include-namespaces shop --namespace-mappings shop:shop-copy")]
    Create(CreateRestore),
    /// List restores
    Get(Named),
    /// Tell everything about one restore
    Describe(One),
}

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
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub include_cluster_resources: Option<bool>,
    /// Labels for the backup or restore itself, e.g. team=shop
    #[arg(long, value_name = "LABELS", value_delimiter = ',')]
    pub labels: Vec<String>,
}

/// What to do after asking.
#[derive(Debug, Args)]
pub struct Following {
    /// Wait for the end: a live picture on a terminal, plain lines elsewhere; the exit code tells the outcome
    #[arg(long, short)]
    pub wait: bool,
    /// Print the object and create nothing
    #[arg(long, short, value_name = "FORMAT", conflicts_with = "wait")]
    pub output: Option<ObjectFormat>,
}

#[derive(Debug, Args)]
pub struct CreateBackup {
    /// Name of the backup
    pub name: String,
    #[command(flatten)]
    pub filters: Filters,
    /// How long to keep it, e.g. 72h
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub ttl: Option<Duration>,
    /// BackupStorageLocation to store it in
    #[arg(long, value_name = "NAME")]
    pub storage_location: Option<String>,
    #[command(flatten)]
    pub following: Following,
}

#[derive(Debug, Args)]
pub struct CreateRestore {
    /// Name of the restore; by default the backup's name and the time
    pub name: Option<String>,
    /// Backup to restore from
    #[arg(long, value_name = "NAME")]
    pub from_backup: String,
    #[command(flatten)]
    pub filters: Filters,
    /// From namespace to namespace, e.g. shop:shop-copy
    #[arg(long, value_name = "OLD:NEW", value_delimiter = ',')]
    pub namespace_mappings: Vec<String>,
    #[command(flatten)]
    pub following: Following,
}

#[derive(Debug, Args)]
pub struct Named {
    /// Only these
    pub names: Vec<String>,
    /// How to print them
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    pub output: ListFormat,
}

#[derive(Debug, Args)]
pub struct One {
    /// Which one
    pub name: String,
    /// How to print it
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<ObjectFormat>,
}

#[derive(Debug, Args)]
pub struct Get {
    /// backups, restores or operations
    pub kind: ListKind,
    #[command(flatten)]
    pub named: Named,
}

#[derive(Debug, Args)]
pub struct Describe {
    /// Kind and name, e.g. backup/nightly
    #[arg(value_name = "KIND/NAME")]
    pub reference: Reference,
    /// How to print it
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<ObjectFormat>,
}

#[derive(Debug, Args)]
pub struct Cancel {
    /// Kind and name, e.g. backup/nightly
    #[arg(value_name = "KIND/NAME")]
    pub reference: Reference,
    /// Wait until it has ended
    #[arg(long, short)]
    pub wait: bool,
}

#[derive(Debug, Subcommand)]
pub enum Crds {
    /// Print them as YAML
    Print,
    /// Create them in the cluster, or bring them up to date
    Apply,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListKind {
    #[value(alias = "backup")]
    Backups,
    #[value(alias = "restore")]
    Restores,
    #[value(alias = "operation", alias = "ops")]
    Operations,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ObjectFormat {
    Json,
    Yaml,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    Table,
    Json,
    Yaml,
}

/// The two kinds that have a life of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Backup,
    Restore,
}

/// `backup/nightly`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub kind: Kind,
    pub name: String,
}

impl std::str::FromStr for Reference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not KIND/NAME: write backup/NAME or restore/NAME");
        let (kind, name) = text.split_once('/').ok_or_else(wrong)?;
        let kind = match kind.to_lowercase().as_str() {
            "backup" | "backups" => Kind::Backup,
            "restore" | "restores" => Kind::Restore,
            _ => return Err(wrong()),
        };
        if name.is_empty() { Err(wrong()) } else { Ok(Self { kind, name: name.to_owned() }) }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<plimsoll_api::go::GoDuration>().map_err(|e| e.to_string())?;
    parsed.as_std().ok_or_else(|| format!("{text} is negative"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_reference_needs_a_kind_and_a_name() {
        assert_eq!("backup/x".parse(), Ok(Reference { kind: Kind::Backup, name: "x".into() }));
        for wrong in ["x", "backup/", "pod/x", "/x"] {
            assert!(wrong.parse::<Reference>().unwrap_err().contains("KIND/NAME"), "{wrong}");
        }
    }
}
