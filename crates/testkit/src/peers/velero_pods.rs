//! Velero installed as its users install it: server and node agent in pods, with volume data.

use std::path::PathBuf;

use anyhow::Result;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, Config};
use serde_json::json;

use super::velero::{cli, create_location, credentials, location_available};
use crate::cache;
use crate::cluster::{Cluster, Machine};
use crate::image::Image;
use crate::namespace::Namespace;
use crate::skip::Unavailable;

const IMAGE: &str = "plimsoll.test/velero:1";
const PLUGIN: &str = "plimsoll.test/velero-plugin-for-aws:1";

/// Velero in its own namespace, with one backup location.
#[derive(Debug)]
pub struct VeleroInPods {
    namespace: Namespace,
    kubeconfig: PathBuf,
    config: Config,
}

impl VeleroInPods {
    /// Whether its programs are installed.
    pub fn preflight() -> Result<(), Unavailable> {
        super::Velero::preflight()?;
        cache::program("velero-restore-helper").map(|_| ())
    }

    /// Installs it, and waits until it can use the bucket. Pods must reach `endpoint`: see
    /// [`Addresses::host`](crate::enclosure::Addresses::host).
    pub async fn install(cluster: &Cluster, endpoint: &str, bucket: &str) -> Result<Self> {
        Self::install_with(cluster, endpoint, bucket, &[]).await
    }

    /// The same with more arguments for the installer.
    pub async fn install_with(cluster: &Cluster, endpoint: &str, bucket: &str, more: &[&str]) -> Result<Self> {
        load_images(cluster.machine()?)?;
        let namespace = cluster.namespace("velero").await?;
        let (client, config) = (cluster.client().await?, cluster.config().await?);
        let this = Self { namespace, kubeconfig: cluster.kubeconfig().to_owned(), config };
        let usual = [
            "install",
            "--image",
            IMAGE,
            "--plugins",
            PLUGIN,
            "--no-default-backup-location",
            "--use-volume-snapshots=false",
            "--no-secret",
            "--use-node-agent",
            "--velero-pod-cpu-request=0",
        ];
        this.cli(usual.iter().chain(more))?;
        create_secret(&client, this.namespace()).await?;
        create_location(&client, this.namespace(), endpoint, bucket, Some("keys")).await?;
        location_available(&client, this.namespace()).await?;
        Ok(this)
    }

    /// The namespace in which its objects are.
    pub fn namespace(&self) -> &str {
        self.namespace.name()
    }

    /// Runs the command line tool of Velero; an error contains its output.
    pub fn cli<S: AsRef<std::ffi::OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Result<String> {
        cli(&self.kubeconfig, self.namespace(), arguments)
    }
}

impl Drop for VeleroInPods {
    /// Removes the one object outside the namespace.
    fn drop(&mut self) {
        let (binding, config) = (format!("velero-{}", self.namespace()), self.config.clone());
        let _ = crate::blocking::run(async move {
            let bindings: Api<ClusterRoleBinding> = Api::all(Client::try_from(config)?);
            Ok(bindings.delete(&binding, &DeleteParams::default()).await.map(|_| ())?)
        });
    }
}

fn load_images(machine: &Machine) -> Result<()> {
    let server = Image::busybox(IMAGE)
        .with_file(cache::program("velero")?, "/velero")
        .with_file(cache::program("velero-restore-helper")?, "/velero-restore-helper");
    let plugin = Image::busybox(PLUGIN)
        .with_file(cache::program("velero-plugin-for-aws")?, "/plugins/velero-plugin-for-aws")
        .with_entrypoint(["/bin/cp", "/plugins/velero-plugin-for-aws", "/target/"]);
    machine.load_image(&server)?;
    machine.load_image(&plugin)
}

async fn create_secret(client: &Client, namespace: &str) -> Result<()> {
    let secret = json!({"metadata": {"name": "keys"}, "stringData": {"cloud": credentials()}});
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    Ok(())
}
