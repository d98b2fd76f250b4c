//! The command line: commands, arguments and options.

pub mod action;
pub mod agent;
pub mod blueprint;
pub mod client;
pub mod create;
pub mod dashboard;
pub mod help;
pub mod install;
pub mod names;
pub mod options;
pub mod plugins;
pub mod profile;
pub mod repo;
pub mod server_defaults;
pub mod velero_install;
pub mod volume;
pub mod volumes;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use plimsoll_controllers::cron::Cron;
use plimsoll_select::quantity::Quantity;

use self::action::Action;
use self::create::{CreateBackup, CreateLocation, CreateRestore, CreateSchedule, SetLocation};
use self::install::{Install, Uninstall};
use self::names::{KindArguments, NameArguments, Reference};
use self::options::{
    DeleteOptions, DescribeOptions, DownloadOptions, EventFormat, GetOptions, LogsOptions, ObjectFormat, PauseOptions,
};
use self::repo::Repo;
use self::volume::Volume;
use crate::observation::ObservedReference;
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
pub struct Local {
    /// Directory for the objects, credentials and backups of the cluster
    #[arg(long, value_name = "DIR", default_value = ".plimsoll")]
    pub data_dir: PathBuf,
    /// Address to listen on; loopback only
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Serve the API only; backups stay New until a `plimsoll server` runs
    #[arg(long)]
    pub no_server: bool,
    /// Run pods as processes of this machine
    ///
    /// There is no isolation: a user who may create a pod runs programs on this machine with the permissions of the user who
    /// started the cluster. Image names are ignored; a container runs its command with the programs of this machine, which
    /// it sees read-only.
    #[arg(long)]
    pub run_pods: bool,
}

#[derive(Debug, Args)]
pub struct Server {
    /// Directory for temporary files of running operations
    #[arg(long, value_name = "DIR", env = "PLIMSOLL_SCRATCH_DIR")]
    pub scratch_dir: Option<PathBuf>,
    /// Time without a renewal of the Lease after which another server becomes leader
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub lease_duration: Duration,
    /// Number of backups, and of restores, that run at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64),
        alias = "concurrent-backups")]
    pub concurrency: u16,
    /// Retention of backups without a TTL
    #[arg(long, value_name = "DURATION", default_value = "720h", value_parser = duration)]
    pub default_backup_ttl: Duration,
    /// Time without a transferred byte after which a request to object storage is retried
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    pub store_idle_timeout: Duration,
    /// Timeout of a restore for definitions, additional items and containers of hooks to be ready
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    pub resource_timeout: Duration,
    /// Timeout of a restore for terminating objects to disappear
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    pub terminating_resource_timeout: Duration,
    /// Interval of syncing the backups of locations without one into the cluster; 0 disables it
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    pub backup_sync_period: Duration,
    /// Interval of retrying the deletion of expired backups
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    pub garbage_collection_frequency: Duration,
    /// Skip the immediate first backup of new schedules that do not set skipImmediately
    #[arg(long)]
    pub schedule_skip_immediately: bool,
    /// Directory of plugins; every executable in it is loaded at start
    #[arg(long, value_name = "DIR", default_value = "/plugins", env = "PLIMSOLL_PLUGIN_DIR")]
    pub plugin_dir: PathBuf,
    /// Environment variable to pass to plugins, or a prefix followed by *; may be repeated
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub plugin_env: Vec<String>,
    /// Address to listen on for downloads of files from directory locations, by signed URL
    #[arg(long, value_name = "ADDRESS", env = "PLIMSOLL_DOWNLOAD_ADDRESS")]
    pub download_address: Option<SocketAddr>,
    /// Base URL of the signed URLs, e.g. https://backups.example.com; not needed for a loopback address
    #[arg(long, value_name = "URL", env = "PLIMSOLL_DOWNLOAD_URL", requires = "download_address")]
    pub download_url: Option<String>,
    #[command(flatten)]
    pub dashboard: dashboard::Dashboard,
    #[command(flatten)]
    pub volumes: volumes::Volumes,
    #[command(flatten)]
    pub defaults: server_defaults::ServerDefaults,
    /// Certificate chain in PEM for downloads over HTTPS
    #[arg(long, value_name = "FILE", requires_all = ["download_address", "download_tls_key"])]
    pub download_tls_cert: Option<PathBuf>,
    /// Private key of that certificate in PEM
    #[arg(long, value_name = "FILE", requires = "download_tls_cert")]
    pub download_tls_key: Option<PathBuf>,
    /// Image of this program, from which `kando` is copied into the pods of blueprints, replacing their own
    #[arg(long, value_name = "IMAGE", env = "PLIMSOLL_TOOLS_IMAGE")]
    pub tools_image: Option<String>,
}

#[derive(Debug, Args)]
pub struct Mover {
    /// Execute COMMAND, and exit when the process with this number exits
    #[arg(long, value_name = "PID", requires = "command")]
    pub guard: Option<u32>,
    /// Confine writes of COMMAND to DIR; may be repeated
    #[arg(long, value_name = "DIR", requires = "guard")]
    pub writes: Vec<PathBuf>,
    /// Command to execute
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
pub struct Demo {
    /// Number of objects of the application
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub objects: u32,
    /// Size of its database in MiB
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u64).range(8..=10_000))]
    pub megabytes: u64,
    /// Keep the cluster running at the end, until Ctrl-C
    #[arg(long)]
    pub stay: bool,
}

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

#[derive(Debug, Args)]
pub struct Cancel {
    /// Kind and name, e.g. backup/nightly
    #[arg(value_name = "KIND/NAME")]
    pub reference: Reference,
    /// Wait until it has ended
    #[arg(long, short)]
    pub wait: bool,
}

const TOP: &str = "Reads the cluster with your kubeconfig and changes nothing; no server of Plimsoll is needed. Without a terminal, or with
--once, prints one table and exits, with exit code 7 if an operation is stalled.

Keys: arrows or j/k select, Enter opens, w explains, l shows the log, c cancels (after confirmation), s sorts, / filters, e shows
ended operations, ? shows help, q quits.

Examples:
  plimsoll top
  plimsoll top -n velero --once
  plimsoll top -o json | jq '.operations[] | select(.verdict == \"Stuck\")'";
const WHY: &str = "Examines the operation, its volumes, their pods and events, the queue, the location, the repository, the node agents and the
server. Works with any Velero or Kanister, with your kubeconfig, and lists what it could not read.

Kinds: backup, restore, actionset, schedule, backup-location, deletebackuprequest; for single volumes podvolumebackup (pvb),
podvolumerestore (pvr), dataupload, datadownload, volumepluginbackup, volumepluginrestore.

Exit codes: 0 in progress, queued or succeeded; 7 stalled; 3, 4, 5, 6 as it ended; 1 it could not be read.

Examples:
  plimsoll why backup/nightly
  plimsoll why restore/monday -o json
  plimsoll why schedule/daily
  plimsoll why pvb/nightly-x7k2p";
const WATCH: &str = "On a terminal, draws the tree of tasks with progress bars, rate and time left. Elsewhere, prints plain lines or events.

Examples:
  plimsoll watch restore/monday
  plimsoll watch pvb/nightly-x7k2p --events json";

#[derive(Debug, Args)]
pub struct Top {
    /// Print one table and exit
    #[arg(long)]
    pub once: bool,
    /// Output format; implies --once
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<TopFormat>,
    /// Show only operations whose text contains TEXT
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub filter: String,
}

impl Top {
    /// Whether it draws on the whole terminal.
    pub fn is_drawn(&self) -> bool {
        let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
        !self.once && self.output.is_none() && terminal
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TopFormat {
    Table,
    Json,
}

#[derive(Debug, Args)]
pub struct Why {
    /// Kind and name, e.g. backup/nightly
    #[arg(value_name = "KIND/NAME")]
    pub reference: ObservedReference,
    /// Output format
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<ObjectFormat>,
}

#[derive(Debug, Args)]
pub struct Watch {
    /// Kind and name, e.g. restore/monday
    #[arg(value_name = "KIND/NAME")]
    pub reference: ObservedReference,
    /// Print one JSON object on a line for every change (docs/reference/events.md)
    #[arg(long, value_name = "FORMAT")]
    pub events: Option<EventFormat>,
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

/// A cron expression, as the server reads it.
fn cron(text: &str) -> Result<String, String> {
    text.parse::<Cron>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<plimsoll_api::go::GoDuration>().map_err(|e| e.to_string())?;
    parsed.as_std().ok_or_else(|| "must not be negative".to_owned())
}

/// A quantity of Kubernetes that is not negative, e.g. `100m` or `128Mi`.
fn quantity(text: &str) -> Result<String, String> {
    let is_quantity = Quantity::parse(text).and_then(Quantity::whole).is_some();
    if is_quantity { Ok(text.to_owned()) } else { Err("expected a quantity, e.g. 100m or 128Mi".to_owned()) }
}

/// A size, as Kubernetes writes it.
pub fn bytes(text: &str) -> Result<u64, String> {
    let read = Quantity::parse(text).and_then(Quantity::whole);
    read.ok_or_else(|| "expected a quantity, e.g. 500Mi or 5Gi".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        help::command().debug_assert();
    }

    #[test]
    fn sizes_are_written_as_kubernetes_writes_them() {
        for (text, size) in [("0", Ok(0)), ("5Gi", Ok(5 << 30)), ("1.5k", Ok(1500)), ("100m", Ok(1))] {
            assert_eq!(bytes(text), size, "{text}");
        }
        for text in ["", "-1", "5GB", "much"] {
            assert!(bytes(text).expect_err(text).contains("500Mi"), "{text}");
        }
    }
}
