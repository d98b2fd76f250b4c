//! Arguments of `plimsoll install` and `uninstall`. Names are Velero's where Velero has them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::options::ObjectFormat;
use super::values::{duration, quantity};
use super::velero_install::VeleroServerFlags;

pub const EXAMPLES: &str = "Examples:
  plimsoll install --image registry.example/plimsoll:0.1.0 --provider aws --bucket backups \\
    --secret-file ./credentials --backup-location-config region=eu-1 --wait
  plimsoll install --image registry.example/plimsoll:0.1.0 --provider directory --bucket /backups \\
    --location-volume nfs:nas.example:/export/backups
  plimsoll install --image registry.example/plimsoll:0.1.0 --no-default-backup-location --no-secret
  plimsoll install --image registry.example/plimsoll:0.1.0 --dry-run -o yaml > plimsoll.yaml
  plimsoll install --crds-only";

/// The program that transfers volume data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Uploader {
    /// kopia if this cluster has kopia repositories, else the built-in mover
    Auto,
    /// The built-in mover, which writes restic's format and needs no other program
    BuiltIn,
    /// restic, which must be in the image
    Restic,
    /// kopia, which must be in the image; Velero can read its repositories
    Kopia,
}

/// The volume of a location of provider directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocationVolume {
    /// A directory of every node: the same file system on all of them, or there is only one.
    HostPath(String),
    /// A claim in the server's namespace that many pods may write to.
    Claim(String),
    /// An export of an NFS server.
    Nfs {
        /// Its address.
        server: String,
        /// The exporter.
        path: String,
    },
}

fn location_volume(text: &str) -> Result<LocationVolume, String> {
    const FORMS: &str = "expected hostPath:DIR, pvc:CLAIM or nfs:SERVER:DIR";
    let (kind, rest) = text.split_once(':').ok_or(FORMS)?;
    match (kind, rest.split_once(":/")) {
        ("hostPath", _) if rest.starts_with('/') => Ok(LocationVolume::HostPath(rest.to_owned())),
        ("pvc", _) if !rest.is_empty() => Ok(LocationVolume::Claim(rest.to_owned())),
        ("nfs", Some((server, path))) if !server.is_empty() => {
            Ok(LocationVolume::Nfs { server: server.to_owned(), path: format!("/{path}") })
        }
        _ => Err(FORMS.to_owned()),
    }
}

fn no_windows(text: &str) -> Result<bool, String> {
    refuse(text, "volumes of Windows nodes are not supported; remove the flag")
}

fn no_agents_without_host_path(text: &str) -> Result<bool, String> {
    refuse(text, "node agents read volumes in the directory of the kubelet; remove the flag")
}

/// A switch of Velero that may only be off.
fn refuse(text: &str, why: &str) -> Result<bool, String> {
    match text {
        "false" => Ok(false),
        _ => Err(why.to_owned()),
    }
}

/// `plimsoll install`
#[derive(Clone, Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub struct Install {
    /// Image of the server and the node agents
    #[arg(long, value_name = "IMAGE", default_value = concat!("plimsoll:", env!("CARGO_PKG_VERSION")))]
    pub image: String,
    /// Image pull policy
    #[arg(long, value_name = "POLICY", default_value = "IfNotPresent")]
    pub image_pull_policy: String,
    /// Provider of the default backup location: aws, gcp, azure or directory
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// Bucket of the default backup location
    #[arg(long, value_name = "NAME")]
    pub bucket: Option<String>,
    /// With provider directory, the volume to mount at that path: hostPath:DIR, pvc:CLAIM or nfs:SERVER:DIR
    #[arg(long, value_name = "VOLUME", value_parser = location_volume, requires = "bucket")]
    pub location_volume: Option<LocationVolume>,
    /// Prefix in that bucket
    #[arg(long, value_name = "PREFIX")]
    pub prefix: Option<String>,
    /// Configuration of the default backup location, e.g. region=eu-1,s3Url=https://minio.example
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub backup_location_config: Vec<String>,
    /// CA certificates of the default backup location in PEM
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<PathBuf>,
    /// File with its credentials, stored as Secret cloud-credentials
    #[arg(long, value_name = "FILE", conflicts_with = "no_secret")]
    pub secret_file: Option<PathBuf>,
    /// Install no credentials: the pods have a cloud identity, or the Secret exists
    #[arg(long)]
    pub no_secret: bool,
    /// Create no backup location
    #[arg(long, conflicts_with_all = ["provider", "bucket"])]
    pub no_default_backup_location: bool,
    /// Run a node agent on every node; volume data cannot be transferred without them
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true",
        action = clap::ArgAction::Set)]
    pub use_node_agent: bool,
    /// Run the node agents privileged, where nodes require it to read the volumes of pods
    #[arg(long)]
    pub privileged_node_agent: bool,
    /// Root directory of the kubelet on the nodes
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub kubelet_root_dir: String,
    /// Program that transfers volume data in new backups
    #[arg(long, value_name = "TYPE", default_value = "auto")]
    pub uploader_type: Uploader,
    /// Back up the files of all pod volumes by default, except those that opt out; needs the node agents
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, default_missing_value = "true",
        action = clap::ArgAction::Set)]
    pub default_volumes_to_fs_backup: bool,
    /// Number of servers; one is the leader
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=9))]
    pub replicas: u8,
    /// CPU request of the server; 0 for none
    #[arg(long, value_name = "QUANTITY", value_parser = quantity, default_value = "100m", alias = "velero-pod-cpu-request")]
    pub server_cpu_request: String,
    /// Memory request of the server; 0 for none
    #[arg(long, value_name = "QUANTITY", value_parser = quantity, default_value = "128Mi", alias = "velero-pod-mem-request")]
    pub server_mem_request: String,
    /// CPU limit of the server; 0 for none
    #[arg(long, value_name = "QUANTITY", value_parser = quantity, default_value = "0", alias = "velero-pod-cpu-limit")]
    pub server_cpu_limit: String,
    /// Memory limit of the server; 0 for none
    #[arg(long, value_name = "QUANTITY", value_parser = quantity, default_value = "0", alias = "velero-pod-mem-limit")]
    pub server_mem_limit: String,
    /// CPU request of each node agent; 0 for none
    #[arg(long, value_name = "QUANTITY", value_parser = quantity, default_value = "0", alias = "node-agent-pod-cpu-request")]
    pub agent_cpu_request: String,
    /// Memory request of each node agent; 0 for none
    #[arg(long, value_name = "QUANTITY", value_parser = quantity, default_value = "0", alias = "node-agent-pod-mem-request")]
    pub agent_mem_request: String,
    /// CPU limit of each node agent; 0 for none
    #[arg(long, value_name = "QUANTITY", value_parser = quantity, default_value = "0", alias = "node-agent-pod-cpu-limit")]
    pub agent_cpu_limit: String,
    /// Memory limit of each node agent; 0 for none
    #[arg(long, value_name = "QUANTITY", value_parser = quantity, default_value = "0", alias = "node-agent-pod-mem-limit")]
    pub agent_mem_limit: String,
    /// Priority class of the server
    #[arg(long, value_name = "NAME")]
    pub server_priority_class_name: Option<String>,
    /// Priority class of the node agents
    #[arg(long, value_name = "NAME", alias = "node-agent-priority-class-name")]
    pub agent_priority_class_name: Option<String>,
    /// Annotations of the pods
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub pod_annotations: Vec<String>,
    /// Labels of the pods
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub pod_labels: Vec<String>,
    /// Annotations of the service accounts, e.g. for a cloud identity
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub sa_annotations: Vec<String>,
    /// ConfigMap of Velero's node agents, for the server and the node agents
    #[arg(long, value_name = "NAME")]
    pub node_agent_configmap: Option<String>,
    /// Service account of all pods, which must exist; its roles are created [default: one for the server, one for the agents]
    ///
    /// The agents then have the permissions of the server, and are not bound to the transfers of their node.
    #[arg(long, value_name = "NAME", conflicts_with = "sa_annotations")]
    pub service_account_name: Option<String>,
    /// Images of plugins of the server
    #[arg(long, value_name = "IMAGES", value_delimiter = ',')]
    pub plugins: Vec<String>,
    /// Create the volume snapshot location `default` of the provider [default: true if there are plugins]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub use_volume_snapshots: Option<bool>,
    /// Configuration of that volume snapshot location
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub snapshot_location_config: Vec<String>,
    #[command(flatten)]
    pub velero: VeleroServerFlags,
    /// Run node agents on Windows nodes: not supported
    #[arg(long, hide = true, value_parser = no_windows, num_args = 0..=1, default_missing_value = "true")]
    pub use_node_agent_windows: Option<bool>,
    /// Run node agents without the directory of the kubelet: not supported
    #[arg(long, hide = true, value_parser = no_agents_without_host_path, num_args = 0..=1, default_missing_value = "true")]
    pub node_agent_disable_host_path: Option<bool>,
    /// Accepted as `velero install` does: objects are always applied
    #[arg(long, hide = true)]
    pub apply: bool,
    /// Additional argument of the server; may be repeated
    #[arg(long = "server-argument", value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub server_arguments: Vec<String>,
    /// Additional argument of the node agents, e.g. --agent-argument=--concurrency=2; may be repeated
    #[arg(long = "agent-argument", value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub agent_arguments: Vec<String>,
    /// Install the custom resource definitions only
    #[arg(long)]
    pub crds_only: bool,
    /// Do not install the custom resource definitions
    #[arg(long, conflicts_with = "crds_only")]
    pub no_crds: bool,
    /// Print the objects, or their names without -o, and install nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Output format
    #[arg(long, short, value_name = "FORMAT", requires = "dry_run")]
    pub output: Option<ObjectFormat>,
    /// Wait until a server is leader and the node agents run
    #[arg(long, conflicts_with = "dry_run")]
    pub wait: bool,
    /// Timeout of --wait
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub timeout: Duration,
}

/// `plimsoll uninstall`
#[derive(Debug, Args)]
pub struct Uninstall {
    /// Also delete the custom resource definitions with all Backups, Restores and Schedules; object storage stays
    #[arg(long)]
    pub crds: bool,
    /// Also delete the namespace and everything in it
    #[arg(long)]
    pub delete_namespace: bool,
    /// Skip the confirmation
    #[arg(long, visible_alias = "force")]
    pub confirm: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_volume_is_a_directory_of_the_nodes_a_claim_or_an_export() {
        assert_eq!(location_volume("hostPath:/srv/b"), Ok(LocationVolume::HostPath("/srv/b".into())));
        assert_eq!(location_volume("pvc:backups"), Ok(LocationVolume::Claim("backups".into())));
        let nfs = LocationVolume::Nfs { server: "fd00::1".into(), path: "/export/b".into() };
        assert_eq!(location_volume("nfs:fd00::1:/export/b"), Ok(nfs));
        for wrong in ["/srv/b", "hostPath:srv", "pvc:", "nfs:/export", "nfs:nas"] {
            assert!(location_volume(wrong).unwrap_err().contains("expected hostPath:DIR"), "{wrong}");
        }
    }
}
