//! Arguments of `plimsoll action`. Names and meanings are those of `kanctl create actionset`.

use clap::{Args, Subcommand};

use super::names::NameArguments;
use super::options::{DescribeOptions, EventFormat, GetOptions};

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "made once, from what was typed")]
pub enum Action {
    /// Create an ActionSet that runs an action of a blueprint
    #[command(after_help = CREATE)]
    Create(CreateAction),
    /// List ActionSets
    #[command(after_help = "Examples:\n  plimsoll action get\n  plimsoll action get backup-x7k2p -o yaml")]
    Get(NameArguments<GetOptions>),
    /// Show details of ActionSets: actions, phases, progress, outputs and errors
    #[command(after_help = "Examples:\n  plimsoll action describe backup-x7k2p")]
    Describe(NameArguments<DescribeOptions>),
    /// Watch an ActionSet until it ends; the exit code is its outcome
    #[command(
        after_help = "Examples:\n  plimsoll action watch backup-x7k2p\n  plimsoll action watch backup-x7k2p --events json"
    )]
    Watch(WatchAction),
    /// Cancel a running ActionSet; its deferPhases still run
    #[command(after_help = "Examples:\n  plimsoll action cancel backup-x7k2p --wait")]
    Cancel(CancelAction),
    /// Print the output of the phases of an ActionSet
    #[command(
        after_help = "Examples:\n  plimsoll action logs backup-x7k2p\n  plimsoll action logs backup-x7k2p --follow"
    )]
    Logs(LogsAction),
}

const CREATE: &str = "Examples:
  plimsoll action create --action backup --blueprint mysql --statefulset shop/mysql --profile s3 --wait
  plimsoll action create --action backup --blueprint time-log --deployment default/time-logger --profile kanister/s3
  plimsoll action create --action restore --from backup-x7k2p --wait
  plimsoll action create --action delete --from backup-x7k2p --namespacetargets shop
  plimsoll action create --action backup --blueprint pvc --selector app=shop --kind pvc --selector-namespace shop
  plimsoll action create --action backup --blueprint mysql --statefulset shop/mysql --dry-run   # print the object only";

#[derive(Debug, Default, Args)]
pub struct CreateAction {
    /// Name of the ActionSet [default: action, parent and five random characters]
    #[arg(long, short = 'A', value_name = "NAME")]
    pub name: Option<String>,
    /// Action of the blueprint [default: that of the parent]
    #[arg(long, short = 'a', value_name = "ACTION")]
    pub action: Option<String>,
    /// Complete ActionSet from which action, artifacts, objects and profile are taken
    #[arg(long, short = 'f', value_name = "ACTIONSET")]
    pub from: Option<String>,
    /// Name of the blueprint
    #[arg(long, short = 'b', value_name = "NAME")]
    pub blueprint: Option<String>,
    /// Profile [default namespace: that of the ActionSet]
    #[arg(long, short = 'p', value_name = "[NAMESPACE/]NAME")]
    pub profile: Option<String>,
    /// Kopia repository server [default namespace: that of the ActionSet]
    #[arg(long, short = 'r', value_name = "[NAMESPACE/]NAME")]
    pub repository_server: Option<String>,
    /// Deployments to act on
    #[arg(long, short = 'd', value_name = "NAMESPACE/NAME", value_delimiter = ',')]
    pub deployment: Vec<String>,
    /// StatefulSets to act on
    #[arg(long, short = 't', value_name = "NAMESPACE/NAME", value_delimiter = ',')]
    pub statefulset: Vec<String>,
    /// DeploymentConfigs to act on
    #[arg(long, short = 'D', value_name = "NAMESPACE/NAME", value_delimiter = ',')]
    pub deploymentconfig: Vec<String>,
    /// PersistentVolumeClaims to act on
    #[arg(long, short = 'v', value_name = "NAMESPACE/NAME", value_delimiter = ',')]
    pub pvc: Vec<String>,
    /// Namespaces to act on
    #[arg(long, short = 'T', value_name = "NAMES", value_delimiter = ',')]
    pub namespacetargets: Vec<String>,
    /// Other objects to act on
    #[arg(long, short = 'O', value_name = "GROUP/VERSION/RESOURCE/NAMESPACE/NAME", value_delimiter = ',')]
    pub objects: Vec<String>,
    /// Act on objects that match this label selector
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Kind of the selected objects: all (except namespaces), deployment, deploymentconfig, statefulset, pvc or namespace
    #[arg(long, short = 'k', value_name = "KIND", default_value = "all")]
    pub kind: String,
    /// Namespace of the selected objects
    #[arg(long, value_name = "NAMESPACE", requires = "selector")]
    pub selector_namespace: Option<String>,
    /// Options for templates
    #[arg(long, short = 'o', value_name = "KEY=VALUE", value_delimiter = ',')]
    pub options: Vec<String>,
    /// Secrets for templates
    #[arg(long, short = 's', value_name = "ALIAS=NAMESPACE/NAME", value_delimiter = ',')]
    pub secrets: Vec<String>,
    /// ConfigMaps for templates
    #[arg(long, short = 'c', value_name = "ALIAS=NAMESPACE/NAME", value_delimiter = ',')]
    pub config_maps: Vec<String>,
    /// Labels of the ActionSet
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub labels: Vec<String>,
    /// Labels of the pods that it starts
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub podlabels: Vec<String>,
    /// Annotations of the pods that it starts
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub podannotations: Vec<String>,
    /// Print the object as YAML without creating it
    #[arg(long, conflicts_with_all = ["wait", "events"])]
    pub dry_run: bool,
    /// Skip the check that blueprint, profile, objects, Secrets and ConfigMaps exist
    #[arg(long)]
    pub skip_validation: bool,
    /// Wait until it ends, with live progress; the exit code is the outcome
    #[arg(long, short)]
    pub wait: bool,
    /// Wait until it ends, and print one JSON object on a line for every change (docs/reference/events.md)
    #[arg(long, value_name = "FORMAT")]
    pub events: Option<EventFormat>,
}

#[derive(Debug, Args)]
pub struct WatchAction {
    /// Name of the ActionSet
    pub name: String,
    /// Print one JSON object on a line for every change (docs/reference/events.md)
    #[arg(long, value_name = "FORMAT")]
    pub events: Option<EventFormat>,
}

#[derive(Debug, Args)]
pub struct CancelAction {
    /// Name of the ActionSet
    pub name: String,
    /// Wait until it has ended
    #[arg(long, short)]
    pub wait: bool,
}

#[derive(Debug, Args)]
pub struct LogsAction {
    /// Name of the ActionSet
    pub name: String,
    /// Follow the log until the ActionSet ends
    #[arg(long, short)]
    pub follow: bool,
}
