//! What can be typed.

pub mod action;
pub mod agent;
pub mod blueprint;
pub mod create;
pub mod dashboard;
pub mod install;
pub mod names;
pub mod options;
pub mod plugins;
pub mod repo;
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
use self::names::{Any, Named, Reference};
use self::options::{
    DeleteOptions, DescribeOptions, DownloadOptions, EventFormat, GetOptions, LogsOptions, ObjectFormat, PauseOptions,
};
use self::repo::Repo;
use self::volume::Volume;
use crate::exit;
use crate::observed::Watched;

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
    #[arg(long, short, global = true, env = "PLIMSOLL_NAMESPACE", default_value_t = default_namespace())]
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
    /// Run the agent of a node: it moves the data of the volumes of the pods there
    #[command(
        after_help = "One for each node. What an agent that dies was moving, the next one on that node takes up again.\n\n\
        Examples:\n  NODE_NAME=worker-1 plimsoll agent\n  \
        plimsoll agent --node worker-1 --pods-directory /var/lib/kubelet/pods --concurrency 2"
    )]
    Agent(agent::Agent),
    /// Show the main job on this machine: back up, lose everything, restore, with the server killed in the middle
    #[command(
        after_help = "A local cluster whose pods are processes, an application with a database, a backup, a disaster, a restore, an \
        action of a blueprint, and a transfer that is made to hang. Everything is removed at the end.\n\n\
        Examples:\n  plimsoll demo\n  plimsoll demo --megabytes 1000 --stay"
    )]
    Demo(Demo),
    /// Make and look at backups
    #[command(subcommand, visible_alias = "backups")]
    Backup(Backup),
    /// Make and look at restores
    #[command(subcommand, visible_alias = "restores")]
    Restore(Restore),
    /// Make backups again and again
    #[command(subcommand, visible_alias = "schedules")]
    Schedule(Schedule),
    /// Say where backups are kept
    #[command(subcommand, visible_alias = "location", aliases = ["locations", "backup-locations"])]
    BackupLocation(BackupLocation),
    /// Look at Kanister's blueprints
    #[command(subcommand, visible_alias = "blueprints")]
    Blueprint(blueprint::Blueprint),
    /// Be Kanister's kando: move data and give outputs, inside the pods of a blueprint
    #[command(
        after_help = "Under the name kando this program takes these commands directly. Progress goes to standard error, \
        one line for each frame, after ###Phase-progress###:."
    )]
    Kando(blueprint::Kando),
    /// Run actions of Kanister blueprints
    #[command(subcommand, visible_alias = "actions", alias = "actionset")]
    Action(Action),
    /// Look at the repositories of volume data
    #[command(subcommand, visible_alias = "repos", aliases = ["repository", "repositories"])]
    Repo(Repo),
    /// Look at volume data on its way into repositories and back
    #[command(subcommand, visible_alias = "volumes")]
    Volume(Volume),
    /// Put the server, the agents and what they need into a cluster, or bring them up to date
    #[command(after_help = install::EXAMPLES)]
    Install(Box<Install>),
    /// Take the server and the agents out of a cluster; backups, their custom resources and their data stay
    #[command(after_help = "Examples:\n  plimsoll uninstall\n  plimsoll uninstall --crds --confirm")]
    Uninstall(Uninstall),
    /// Say where providers keep volume snapshots
    #[command(subcommand, aliases = ["snapshot-locations"])]
    SnapshotLocation(plugins::SnapshotLocation),
    /// See, add and remove plugins of the server
    #[command(subcommand, aliases = ["plugins"])]
    Plugin(plugins::Plugin),
    /// Create a backup, restore, schedule or backup location
    #[command(subcommand)]
    Create(Create),
    /// List backups, restores, schedules, backup locations or operations
    #[command(after_help = "Examples:\n  plimsoll get operations\n  plimsoll get backups -l team=shop\n  \
        plimsoll get backup/nightly -o yaml")]
    Get(Any<GetOptions>),
    /// Tell everything about a backup, restore, schedule or backup location
    #[command(
        after_help = "Examples:\n  plimsoll describe backup/nightly\n  plimsoll describe restore monday --details\n  \
        plimsoll describe restore/monday -o json"
    )]
    Describe(Any<DescribeOptions>),
    /// Print the log of a backup or restore
    #[command(after_help = "Examples:\n  plimsoll logs backup/nightly\n  plimsoll logs restore/monday --follow")]
    Logs(Any<LogsOptions>),
    /// Delete backups, restores, schedules or backup locations
    #[command(after_help = "Examples:\n  plimsoll delete backup/nightly\n  \
        plimsoll delete backups -l velero.io/schedule-name=daily --confirm")]
    Delete(Any<DeleteOptions>),
    /// End a running or waiting backup or restore
    #[command(after_help = "Examples:\n  plimsoll cancel backup/nightly\n  plimsoll cancel restore/monday --wait")]
    Cancel(Cancel),
    /// Show every operation, live, what is stuck first; beside any Velero or Kanister, read-only
    #[command(after_help = TOP)]
    Top(Top),
    /// Show the dashboard in a browser: every operation, live, its tree, its history
    #[command(after_help = dashboard::UI)]
    Ui(dashboard::Ui),
    /// Say why an operation is stuck, and what to do next
    #[command(after_help = WHY)]
    Why(Why),
    /// Watch one operation until it has ended
    #[command(after_help = WATCH)]
    Watch(Watch),
    /// Print or install the custom resource definitions
    #[command(subcommand)]
    Crds(Crds),
    /// Print the versions of this program and of the server
    #[command(after_help = "Examples:\n  plimsoll version\n  plimsoll version --client-only")]
    Version(Version),
    /// Move one volume's data: the job comes on standard input, progress goes to standard output
    #[command(hide = true)]
    Mover(Mover),
    /// Wait, in a restored pod, for the data of its volumes
    #[command(hide = true)]
    RestoreWait(agent::RestoreWait),
    /// Put this program, as `kando`, into a directory that a pod shares with it
    #[command(hide = true)]
    KandoInstall {
        /// The directory
        directory: PathBuf,
    },
    /// Print completions for a shell
    #[command(
        after_help = "Examples:\n  plimsoll completion bash > /etc/bash_completion.d/plimsoll\n  source <(plimsoll completion zsh)"
    )]
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print this reference as Markdown
    #[command(hide = true)]
    Reference,
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
    /// Run pods, as processes of this machine
    ///
    /// Off unless asked for, because that is no isolation: whoever may create a pod here runs programs on this
    /// machine with the rights of the user who started the cluster. Images are only names; a container runs its
    /// command with the programs of this machine, which it sees read-only.
    #[arg(long)]
    pub run_pods: bool,
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
    /// How often the backups of a location are synced into the cluster, if it does not say; 0 is never
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    pub backup_sync_period: Duration,
    /// How often expired backups that could not be deleted are looked at again
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    pub garbage_collection_frequency: Duration,
    /// New schedules that do not say wait for the next time they are due
    #[arg(long)]
    pub schedule_skip_immediately: bool,
    /// Every executable below this directory is a plugin, asked at the start what it offers
    #[arg(long, value_name = "DIR", default_value = "/plugins", env = "PLIMSOLL_PLUGIN_DIR")]
    pub plugin_dir: PathBuf,
    /// A variable of the environment that plugins may see beside those all of them do, or a beginning with *; may be repeated
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub plugin_env: Vec<String>,
    /// Listen here and serve the files of directory locations to whoever has a signed link
    #[arg(long, value_name = "ADDRESS", env = "PLIMSOLL_DOWNLOAD_ADDRESS")]
    pub download_address: Option<SocketAddr>,
    /// The address in those links, as clients reach it, e.g. https://backups.example.com; a loopback listener knows its own
    #[arg(long, value_name = "URL", env = "PLIMSOLL_DOWNLOAD_URL", requires = "download_address")]
    pub download_url: Option<String>,
    #[command(flatten)]
    pub dashboard: dashboard::Dashboard,
    #[command(flatten)]
    pub volumes: volumes::Volumes,
    /// Certificate chain in PEM, to serve downloads over HTTPS
    #[arg(long, value_name = "FILE", requires_all = ["download_address", "download_tls_key"])]
    pub download_tls_cert: Option<PathBuf>,
    /// Key of that certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "download_tls_cert")]
    pub download_tls_key: Option<PathBuf>,
    /// Image of this program: its `kando` is put into the pods of blueprints, in the place of their image's own
    #[arg(long, value_name = "IMAGE", env = "PLIMSOLL_TOOLS_IMAGE")]
    pub tools_image: Option<String>,
}

#[derive(Debug, Args)]
pub struct Mover {
    /// Become COMMAND, and die with the process of this number
    #[arg(long, value_name = "PID", requires = "command")]
    pub guard: Option<u32>,
    /// Let COMMAND write nowhere but below DIR; may be given several times
    #[arg(long, value_name = "DIR", requires = "guard")]
    pub writes: Vec<PathBuf>,
    /// What to become
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
pub struct Demo {
    /// How many objects the application has
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub objects: u32,
    /// How many mebibytes its database has
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u64).range(8..=10_000))]
    pub megabytes: u64,
    /// Leave the cluster running at the end, to look around; Ctrl-C ends it
    #[arg(long)]
    pub stay: bool,
}

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "made once, from what was typed")]
pub enum Backup {
    /// Ask for a backup
    #[command(after_help = CREATE_BACKUP)]
    Create(CreateBackup),
    /// List backups
    #[command(after_help = "Examples:\n  plimsoll backup get\n  plimsoll backup get nightly -o yaml")]
    Get(Named<GetOptions>),
    /// Tell everything about backups
    #[command(
        after_help = "Examples:\n  plimsoll backup describe nightly\n  plimsoll backup describe nightly --details"
    )]
    Describe(Named<DescribeOptions>),
    /// Print the log of a backup
    #[command(after_help = "Examples:\n  plimsoll backup logs nightly\n  plimsoll backup logs nightly --follow")]
    Logs(Named<LogsOptions>),
    /// Delete backups and all that belongs to them: files, snapshots, restores
    #[command(
        after_help = "Examples:\n  plimsoll backup delete nightly\n  plimsoll backup delete one two --confirm --wait\n  \
        plimsoll backup delete --selector velero.io/schedule-name=daily\n  plimsoll backup delete --all"
    )]
    Delete(Named<DeleteOptions>),
    /// Fetch what a backup holds, as one tar.gz file
    #[command(
        after_help = "Examples:\n  plimsoll backup download nightly\n  plimsoll backup download nightly -o /tmp/nightly.tar.gz --force"
    )]
    Download(Named<DownloadOptions>),
}

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "made once, from what was typed")]
pub enum Restore {
    /// Ask for a restore
    #[command(after_help = CREATE_RESTORE)]
    Create(CreateRestore),
    /// List restores
    #[command(after_help = "Examples:\n  plimsoll restore get\n  plimsoll restore get monday -o yaml")]
    Get(Named<GetOptions>),
    /// Tell everything about restores
    #[command(
        after_help = "Examples:\n  plimsoll restore describe monday\n  plimsoll restore describe monday --details"
    )]
    Describe(Named<DescribeOptions>),
    /// Print the log of a restore
    #[command(after_help = "Examples:\n  plimsoll restore logs monday\n  plimsoll restore logs monday --follow")]
    Logs(Named<LogsOptions>),
    /// Delete the record of restores; what they restored stays
    #[command(after_help = "Examples:\n  plimsoll restore delete monday\n  plimsoll restore delete --all --confirm")]
    Delete(Named<DeleteOptions>),
}

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "made once, from what was typed")]
pub enum Schedule {
    /// Make backups again and again
    #[command(after_help = CREATE_SCHEDULE)]
    Create(CreateSchedule),
    /// List schedules
    #[command(after_help = "Examples:\n  plimsoll schedule get\n  plimsoll schedule get daily -o yaml")]
    Get(Named<GetOptions>),
    /// Tell everything about schedules
    #[command(after_help = "Examples:\n  plimsoll schedule describe daily")]
    Describe(Named<DescribeOptions>),
    /// Make no backups for now
    #[command(after_help = "Examples:\n  plimsoll schedule pause daily weekly\n  plimsoll schedule pause --all")]
    Pause(Named<PauseOptions>),
    /// Make backups again
    #[command(
        after_help = "Examples:\n  plimsoll schedule unpause daily\n  plimsoll schedule unpause daily --skip-immediately true"
    )]
    Unpause(Named<PauseOptions>),
    /// Delete schedules; their backups stay
    #[command(after_help = "Examples:\n  plimsoll schedule delete daily\n  plimsoll schedule delete --all --confirm")]
    Delete(Named<DeleteOptions>),
}

#[derive(Debug, Subcommand)]
pub enum BackupLocation {
    /// Say where backups may be kept
    #[command(after_help = CREATE_LOCATION)]
    Create(CreateLocation),
    /// List backup locations
    #[command(after_help = "Examples:\n  plimsoll backup-location get\n  plimsoll backup-location get --default")]
    Get(GetLocations),
    /// Tell everything about backup locations
    #[command(after_help = "Examples:\n  plimsoll backup-location describe default")]
    Describe(Named<DescribeOptions>),
    /// Change a backup location
    #[command(after_help = "Examples:\n  plimsoll backup-location set offsite --default\n  \
        plimsoll backup-location set offsite --credential offsite-credentials=cloud --cacert ca.pem")]
    Set(SetLocation),
    /// Forget backup locations and their backups; what is in the object store stays
    #[command(
        after_help = "Examples:\n  plimsoll backup-location delete offsite\n  plimsoll backup-location delete offsite --confirm"
    )]
    Delete(Named<DeleteOptions>),
}

#[derive(Debug, Subcommand)]
pub enum Create {
    /// Ask for a backup
    #[command(after_help = CREATE_BACKUP)]
    Backup(CreateBackup),
    /// Ask for a restore
    #[command(after_help = CREATE_RESTORE)]
    Restore(CreateRestore),
    /// Make backups again and again
    #[command(after_help = CREATE_SCHEDULE)]
    Schedule(CreateSchedule),
    /// Say where backups may be kept
    #[command(visible_alias = "location", after_help = CREATE_LOCATION)]
    BackupLocation(CreateLocation),
}

const CREATE_BACKUP: &str = "Examples:
  plimsoll backup create nightly --wait
  plimsoll backup create shop --include-namespaces shop,shop-db -l tier!=cache --wait
  plimsoll backup create shop --include-namespaces 'shop-*' --dry-run    # what it would hold
  plimsoll backup create shop --include-namespaces 'shop-*' -o yaml      # print it, create nothing
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
    /// Only the one that backups go to that name none
    #[arg(long)]
    pub default: bool,
    #[command(flatten)]
    pub named: Named<GetOptions>,
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

const TOP: &str = "It reads what the cluster has, with your own kubeconfig, and changes nothing; nothing of ours needs to be installed.
Without a terminal, or with --once, it prints one table and ends: with exit code 7 if anything is stuck.

Keys: arrows or j/k choose, Enter opens, w why, l log, c cancel (asks first), s sorts, / filters, e shows what has ended, ? helps, q leaves.

Examples:
  plimsoll top
  plimsoll top -n velero --once
  plimsoll top -o json | jq '.operations[] | select(.verdict == \"Stuck\")'";
const WHY: &str = "It walks the evidence: the operation, its volumes, their pods and events, the queue, the location, the repository, node agents
and the server. It works beside any Velero or Kanister, with your own kubeconfig, and says what it could not look at.

Kinds: backup, restore, actionset, schedule, backup-location, deletebackuprequest; of single volumes podvolumebackup (pvb),
podvolumerestore (pvr), dataupload, datadownload, volumepluginbackup, volumepluginrestore.

Exit codes: 0 it moves, waits in order or ended well; 7 it is stuck; 3, 4, 5, 6 as it ended; 1 it could not be looked at.

Examples:
  plimsoll why backup/nightly
  plimsoll why restore/monday -o json
  plimsoll why schedule/daily
  plimsoll why pvb/nightly-x7k2p";
const WATCH: &str = "On a terminal it draws the operation's tree with bars, rate and time left; elsewhere it prints plain lines, or events.

Examples:
  plimsoll watch restore/monday
  plimsoll watch pvb/nightly-x7k2p --events json";

#[derive(Debug, Args)]
pub struct Top {
    /// Print one table and end
    #[arg(long)]
    pub once: bool,
    /// How to print it; anything but a picture ends at once
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<TopFormat>,
    /// Only operations whose text contains this
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
    pub reference: Watched,
    /// How to print it
    #[arg(long, short, value_name = "FORMAT")]
    pub output: Option<ObjectFormat>,
}

#[derive(Debug, Args)]
pub struct Watch {
    /// Kind and name, e.g. restore/monday
    #[arg(value_name = "KIND/NAME")]
    pub reference: Watched,
    /// Print events for scripts
    #[arg(long, value_name = "FORMAT")]
    pub events: Option<EventFormat>,
}

#[derive(Debug, Args)]
pub struct Version {
    /// Do not ask the server
    #[arg(long)]
    pub client_only: bool,
    /// How long to wait for the server's answer
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub timeout: Duration,
}

#[derive(Debug, Subcommand)]
pub enum Crds {
    /// Print them as YAML
    #[command(after_help = "Examples:\n  plimsoll crds print | kubectl apply --server-side -f -")]
    Print,
    /// Create them in the cluster, or bring them up to date
    #[command(after_help = "Examples:\n  plimsoll crds apply")]
    Apply,
}

/// Where a Velero user's habits point, if nothing else is said.
fn default_namespace() -> String {
    std::env::var("VELERO_NAMESPACE").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "velero".into())
}

/// A cron expression, as the server reads it.
fn cron(text: &str) -> Result<String, String> {
    text.parse::<Cron>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<plimsoll_api::go::GoDuration>().map_err(|e| e.to_string())?;
    parsed.as_std().ok_or_else(|| format!("{text} is negative"))
}

/// A quantity of Kubernetes that is not negative, e.g. `100m` or `128Mi`.
fn quantity(text: &str) -> Result<String, String> {
    let is_quantity = Quantity::parse(text).and_then(Quantity::whole).is_some();
    if is_quantity { Ok(text.to_owned()) } else { Err("want a quantity, e.g. 100m or 128Mi".to_owned()) }
}

/// A size, as Kubernetes writes it.
pub fn bytes(text: &str) -> Result<u64, String> {
    let read = Quantity::parse(text).and_then(Quantity::whole);
    read.ok_or_else(|| format!("{text:?} is no size: write it as 500Mi or 5Gi"))
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
    fn sizes_are_written_as_kubernetes_writes_them() {
        for (text, size) in [("0", Ok(0)), ("5Gi", Ok(5 << 30)), ("1.5k", Ok(1500)), ("100m", Ok(1))] {
            assert_eq!(bytes(text), size, "{text}");
        }
        for text in ["", "-1", "5GB", "much"] {
            assert!(bytes(text).expect_err(text).contains("500Mi"), "{text}");
        }
    }
}
