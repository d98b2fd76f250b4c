//! Velero as a process outside the cluster: for compatibility of buckets and for benchmarks.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::json;

use super::s3::{ACCESS_KEY, SECRET_KEY};
use super::{free_port, unique_directory};
use crate::cache;
use crate::child_process::ChildProcess;
use crate::cluster::Cluster;
use crate::namespace::Namespace;
use crate::skip::Unavailable;
use crate::wait;

/// A running Velero server with its own namespace and one backup location.
#[derive(Debug)]
pub struct Velero {
    server: ChildProcess,
    namespace: Namespace,
    kubeconfig: PathBuf,
}

impl Velero {
    /// Whether its programs are installed.
    pub fn preflight() -> Result<(), Unavailable> {
        crate::skip::unless_fast("velero")?;
        cache::program("velero").and(cache::program("velero-plugin-for-aws")).map(|_| ())
    }

    /// Starts the server with its AWS plugin, and waits until it can use the bucket. `endpoint` is the address of an
    /// [`S3Server`](super::S3Server) with that bucket, or of a proxy for one.
    pub async fn start(cluster: &Cluster, endpoint: &str, bucket: &str) -> Result<Self> {
        run(velero(cluster.kubeconfig())?.args(["install", "--crds-only"]))
            .context("failed to install Velero's CRDs")?;
        let namespace = cluster.namespace("velero").await?;
        let client = cluster.client().await?;
        create_deployment(&client, namespace.name()).await?;
        create_location(&client, namespace.name(), endpoint, bucket, None).await?;
        let directory = unique_directory("velero");
        write_files(&directory)?;
        let server =
            ChildProcess::start(server_command(cluster.kubeconfig(), &directory, namespace.name())?, directory)?;
        let this = Self { server, namespace, kubeconfig: cluster.kubeconfig().to_owned() };
        location_available(&client, this.namespace()).await.with_context(|| this.server.log())?;
        Ok(this)
    }

    /// The namespace in which its objects are.
    pub fn namespace(&self) -> &str {
        self.namespace.name()
    }

    /// The server's process.
    pub fn server(&self) -> &ChildProcess {
        &self.server
    }

    /// Runs the command line tool of Velero; an error contains its output.
    pub fn cli<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Result<String> {
        cli(&self.kubeconfig, self.namespace(), arguments)
    }
}

pub(super) fn cli<S: AsRef<OsStr>>(
    kubeconfig: &Path,
    namespace: &str,
    arguments: impl IntoIterator<Item = S>,
) -> Result<String> {
    let output = run(velero(kubeconfig)?.args(["--namespace", namespace]).args(arguments))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub(super) async fn location_available(client: &Client, namespace: &str) -> Result<()> {
    let locations = locations(client, namespace);
    wait::until("Velero to reach its bucket", Duration::from_mins(2), || async {
        let location = locations.get("default").await?;
        anyhow::Ok((location.data["status"]["phase"] == "Available").then_some(()))
    })
    .await
}

/// The keys of the S3 servers in the form that Amazon's programs read.
pub(super) fn credentials() -> String {
    format!("[default]\naws_access_key_id={ACCESS_KEY}\naws_secret_access_key={SECRET_KEY}\n")
}

fn velero(kubeconfig: &Path) -> Result<Command, Unavailable> {
    let mut command = Command::new(cache::program("velero")?);
    command.env("KUBECONFIG", kubeconfig);
    Ok(command)
}

fn run(command: &mut Command) -> Result<Output> {
    let output = command.output()?;
    if !output.status.success() {
        let text = [output.stdout, output.stderr].concat();
        bail!("{command:?} ended with {}: {}", output.status, String::from_utf8_lossy(&text));
    }
    Ok(output)
}

fn write_files(directory: &Path) -> Result<()> {
    let plugins = directory.join("plugins");
    fs::create_dir_all(&plugins)?;
    fs::create_dir_all(directory.join("tmp"))?;
    symlink(cache::program("velero-plugin-for-aws")?, plugins.join("velero-plugin-for-aws"))?;
    Ok(fs::write(directory.join("credentials"), credentials())?)
}

fn server_command(kubeconfig: &Path, directory: &Path, namespace: &str) -> Result<Command> {
    let mut command = velero(kubeconfig)?;
    command.args(["server", "--namespace", namespace, "--plugin-dir"]).arg(directory.join("plugins"));
    command.arg(format!("--metrics-address=127.0.0.1:{}", free_port("127.0.0.1")?));
    command.arg(format!("--profiler-address=127.0.0.1:{}", free_port("127.0.0.1")?));
    command.env("AWS_SHARED_CREDENTIALS_FILE", directory.join("credentials")).env("TMPDIR", directory.join("tmp"));
    command.env("VELERO_NAMESPACE", namespace).env("HOME", directory);
    Ok(command)
}

/// The server requires its deployment to exist; it is not run.
async fn create_deployment(client: &Client, namespace: &str) -> Result<()> {
    let labels = json!({"component": "velero"});
    let deployment = json!({
        "metadata": {"name": "velero", "labels": labels},
        "spec": {
            "replicas": 0, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"serviceAccountName": "default", "containers": [{"name": "velero", "image": crate::image::BUSYBOX}]},
            },
        },
    });
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    deployments.create(&PostParams::default(), &serde_json::from_value(deployment)?).await?;
    Ok(())
}

fn locations(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("velero.io", "v1", "BackupStorageLocation"));
    Api::namespaced_with(client.clone(), namespace, &kind)
}

/// `credential` names a Secret with the keys; without one the server has them in its environment.
pub(super) async fn create_location(
    client: &Client,
    namespace: &str,
    endpoint: &str,
    bucket: &str,
    credential: Option<&str>,
) -> Result<()> {
    let mut location = json!({
        "apiVersion": "velero.io/v1", "kind": "BackupStorageLocation", "metadata": {"name": "default"},
        "spec": {
            "provider": "aws", "default": true, "objectStorage": {"bucket": bucket},
            "config": {
                "region": "us-east-1", "s3ForcePathStyle": "true", "s3Url": endpoint, "checksumAlgorithm": "",
            },
        },
    });
    if let Some(name) = credential {
        location["spec"]["credential"] = json!({"name": name, "key": "cloud"});
    }
    let locations = locations(client, namespace);
    let location: DynamicObject = serde_json::from_value(location)?;
    let parameters = PostParams::default();
    // A CRD is served a moment after it is established.
    wait::until("the backup location to be accepted", wait::WAIT_TIMEOUT, || async {
        locations.create(&parameters, &location).await.map(Some)
    })
    .await?;
    Ok(())
}
