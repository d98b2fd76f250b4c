//! Shared code of the object benchmarks: a server on a cluster, a timed operation, a row of figures.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::load::Rate;
use crate::peers::s3::{ACCESS_KEY, SECRET_KEY};
use crate::{Cluster, wait};

/// The namespace of the server that is measured.
pub const NAMESPACE: &str = "plimsoll-bench";

/// The command line of a benchmark: `PLIMSOLL [SIZE] [--FLAG]...`.
pub struct Arguments<Size> {
    /// The program to measure.
    pub plimsoll: PathBuf,
    /// How much work it gets, in units of the benchmark.
    pub size: Size,
    flags: Vec<String>,
}

impl<Size: FromStr> Arguments<Size>
where
    Size::Err: std::error::Error + Send + Sync + 'static,
{
    /// Reads the command line of this process. `usage` is the error if it is invalid.
    pub fn parse(usage: &'static str, default_size: Size) -> Result<Self> {
        let (flags, plain): (_, Vec<_>) = std::env::args().skip(1).partition(|word| word.starts_with("--"));
        let size = plain.get(1).map_or(Ok(default_size), |number| number.parse()).context(usage)?;
        Ok(Self { plimsoll: plain.first().context(usage)?.into(), size, flags })
    }

    /// Whether a flag is set.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|given| given == flag)
    }
}

/// The program that is measured, on a cluster with its definitions and a storage location.
pub struct BenchmarkTarget {
    client: Client,
    plimsoll: PathBuf,
}

/// A server of the target; it ends with this handle.
pub struct Server<'a> {
    target: &'a BenchmarkTarget,
    process: Child,
    scratch: tempfile::TempDir,
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl BenchmarkTarget {
    /// Installs the definitions and a location in a bucket of an S3 server.
    pub async fn prepare(plimsoll: PathBuf, cluster: &Cluster, endpoint: &str, bucket: &str) -> Result<Self> {
        let target = Self { client: cluster.client().await?, plimsoll };
        let install = Command::new(&target.plimsoll)
            .args(["crds", "apply", "--kubeconfig"])
            .arg(cluster.kubeconfig())
            .stdout(Stdio::null())
            .status()?;
        anyhow::ensure!(install.success(), "plimsoll crds apply failed");
        let keys = format!("[default]\naws_access_key_id={ACCESS_KEY}\naws_secret_access_key={SECRET_KEY}\n");
        target.create("v1", "Namespace", None, json!({ "metadata": { "name": NAMESPACE } })).await?;
        let secret = json!({ "metadata": { "name": "keys" }, "stringData": { "cloud": keys } });
        target.create("v1", "Secret", Some(NAMESPACE), secret).await?;
        let location = json!({ "metadata": { "name": "default" }, "spec": { "provider": "aws", "default": true,
            "objectStorage": { "bucket": bucket }, "credential": { "name": "keys", "key": "cloud" },
            "config": { "region": "us-east-1", "s3ForcePathStyle": "true", "s3Url": endpoint } } });
        let created = || target.create("velero.io/v1", "BackupStorageLocation", Some(NAMESPACE), location.clone());
        wait::until("the definitions", Duration::from_secs(30), || async { anyhow::Ok(created().await.ok()) }).await?;
        Ok(target)
    }

    /// Creates an object of any kind.
    pub async fn create(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        mut object: Value,
    ) -> Result<()> {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(())
    }

    /// Starts a server and runs a small backup, so that leader election is not measured.
    pub async fn serve(&self, kubeconfig: &Path, name: &str) -> Result<Server<'_>> {
        let scratch = tempfile::tempdir()?;
        let process = Command::new(&self.plimsoll)
            .args(["server", "--lease-duration", "15s", "--namespace", NAMESPACE, "--kubeconfig"])
            .arg(kubeconfig)
            .arg("--scratch-dir")
            .arg(scratch.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("failed to start plimsoll server")?;
        let server = Server { target: self, process, scratch };
        let spec = json!({ "includedNamespaces": [NAMESPACE], "includedResources": ["secrets"] });
        server.run_operation("Backup", &format!("warm-{name}"), spec).await?;
        Ok(server)
    }
}

impl Server<'_> {
    /// Creates a Backup or Restore and waits until it is completed.
    pub async fn run_operation(&self, kind: &str, name: &str, spec: Value) -> Result<Rate> {
        let started = Instant::now();
        let object = json!({ "metadata": { "name": name }, "spec": spec });
        self.target.create("velero.io/v1", kind, Some(NAMESPACE), object).await?;
        wait_for_operation(&self.target.client, NAMESPACE, kind, name, started).await
    }

    /// Its peak memory in kilobytes.
    pub fn peak_memory(&self) -> u64 {
        peak_memory(self.process.id())
    }

    /// Its scratch directory.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }
}

/// Waits until a Backup or Restore of Plimsoll or Velero is completed, and returns its rate of items.
pub async fn wait_for_operation(
    client: &Client,
    namespace: &str,
    kind: &str,
    name: &str,
    started: Instant,
) -> Result<Rate> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("velero.io", "v1", kind));
    let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let finished = wait::until(format!("{kind} {name} to end"), Duration::from_mins(30), || async {
        let object = objects.get(name).await?;
        let phase = object.data["status"]["phase"].as_str().unwrap_or_default();
        let is_finished = matches!(phase, "Completed" | "PartiallyFailed" | "Failed" | "FailedValidation");
        anyhow::Ok(is_finished.then_some(object))
    });
    let object = finished.await?;
    let time = started.elapsed();
    let status = &object.data["status"];
    anyhow::ensure!(status["phase"] == "Completed", "{kind} {name} ended as {status}");
    let count = status["progress"]["totalItems"].as_u64().context("no totalItems")?;
    Ok(Rate { count: usize::try_from(count)?, time })
}

/// The peak memory of a process in kilobytes.
pub fn peak_memory(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// One line of a benchmark's result; `baseline` is what the time is compared with.
#[expect(clippy::cast_precision_loss, reason = "a benchmark's figures are small")]
pub fn row(what: &str, rate: Rate, baseline: Option<(&str, Rate)>, memory: Option<u64>) -> String {
    let ratio =
        baseline.map(|(other, base)| format!("{:.2} {other}", rate.time.as_secs_f64() / base.time.as_secs_f64()));
    let memory = memory.map(|kilobytes| format!("{:.0} MB at most", kilobytes as f64 / 1024.0));
    let (count, time, speed) = (rate.count, rate.time.as_secs_f64(), rate.per_second());
    let (ratio, memory) = (ratio.unwrap_or_default(), memory.unwrap_or_default());
    format!("{what:<24} {count:>7} objects {time:>8.2} s {speed:>8.0}/s  {ratio:<24} {memory}").trim_end().to_owned()
}
