//! Pods for tests: made from one image, watched to their end, entered with exec.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Pod as KubernetesPod;
use kube::api::{AttachParams, LogParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use crate::image;
use crate::wait;

/// How long a pod may take to reach a state; depends mostly on the load of the machine.
const WAIT_LIMIT: Duration = Duration::from_mins(2);

/// A pod to be created.
#[derive(Debug, Clone)]
pub struct Pod {
    name: String,
    image: String,
    command: Vec<String>,
    mounts: Vec<(String, String)>,
    labels: Value,
    annotations: Value,
    node: Option<String>,
}

impl Pod {
    /// A pod that runs this shell script in busybox and is not restarted.
    pub fn script(name: impl Into<String>, script: impl Into<String>) -> Self {
        let command = vec!["sh".into(), "-ec".into(), script.into()];
        Self {
            name: name.into(),
            image: image::shell(),
            command,
            mounts: Vec::new(),
            labels: json!({}),
            annotations: json!({}),
            node: None,
        }
    }

    /// A pod that waits until it is deleted.
    pub fn idle(name: impl Into<String>) -> Self {
        Self::script(name, "trap exit TERM; sleep 2147483647 & wait")
    }

    /// Uses another image.
    #[must_use]
    pub fn image(mut self, image: impl Into<String>) -> Self {
        self.image = image.into();
        self
    }

    /// Runs another command.
    #[must_use]
    pub fn command<S: Into<String>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.command = words.into_iter().map(Into::into).collect();
        self
    }

    /// Mounts a claim.
    #[must_use]
    pub fn mount(mut self, claim: impl Into<String>, path: impl Into<String>) -> Self {
        self.mounts.push((claim.into(), path.into()));
        self
    }

    /// Runs it on this node, past the scheduler.
    #[must_use]
    pub fn on(mut self, node: impl Into<String>) -> Self {
        self.node = Some(node.into());
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels[key] = value.into();
        self
    }

    /// Adds an annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations[key] = value.into();
        self
    }

    /// Creates it.
    pub async fn create(self, client: &Client, namespace: &str) -> Result<PodHandle> {
        let pods: Api<KubernetesPod> = Api::namespaced(client.clone(), namespace);
        let pod = serde_json::from_value(self.manifest())?;
        pods.create(&PostParams::default(), &pod)
            .await
            .with_context(|| format!("failed to create pod {}", self.name))?;
        Ok(PodHandle { pods, name: self.name })
    }

    fn manifest(&self) -> Value {
        let mounts: Vec<Value> =
            self.mounts.iter().map(|(claim, path)| json!({"name": claim, "mountPath": path})).collect();
        let volume =
            |(claim, _): &(String, String)| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
        json!({
            "metadata": {"name": self.name, "labels": self.labels, "annotations": self.annotations},
            "spec": {
                "nodeName": self.node,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "main", "image": self.image, "imagePullPolicy": image::pull_policy(&self.image),
                    "command": self.command, "volumeMounts": mounts,
                }],
                "volumes": self.mounts.iter().map(volume).collect::<Vec<Value>>(),
            },
        })
    }
}

/// A created pod.
#[derive(Debug, Clone)]
pub struct PodHandle {
    pods: Api<KubernetesPod>,
    name: String,
}

/// The result of a command in a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// Whether its exit code was 0.
    pub success: bool,
}

impl PodHandle {
    /// An existing pod.
    pub fn find(client: &Client, namespace: &str, name: &str) -> Self {
        Self { pods: Api::namespaced(client.clone(), namespace), name: name.to_owned() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its current state.
    pub async fn now(&self) -> Result<KubernetesPod> {
        Ok(self.pods.get(&self.name).await?)
    }

    /// Waits until its container runs.
    pub async fn ready(&self) -> Result<KubernetesPod> {
        self.wait_for("Ready", |pod| {
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
            conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        })
        .await
    }

    /// Waits until it has succeeded, and returns its log. The log of a failed pod is part of the error.
    pub async fn finished(&self) -> Result<String> {
        let pod = self.wait_for("ended", |pod| matches!(phase(pod), "Succeeded" | "Failed")).await?;
        let logs = self.pods.logs(&self.name, &LogParams::default()).await?;
        if phase(&pod) == "Failed" {
            bail!("pod {} failed and printed: {logs}", self.name);
        }
        Ok(logs)
    }

    /// Runs a command in it.
    pub async fn exec<S: Into<String>>(&self, command: impl IntoIterator<Item = S>) -> Result<Output> {
        let command: Vec<String> = command.into_iter().map(Into::into).collect();
        let mut process = self.pods.exec(&self.name, command, &AttachParams::default().stderr(true)).await?;
        let (mut stdout, mut stderr) = (String::new(), String::new());
        let mut out = process.stdout().context("exec has no standard output")?;
        let mut err = process.stderr().context("exec has no standard error")?;
        tokio::try_join!(out.read_to_string(&mut stdout), err.read_to_string(&mut stderr))?;
        let status = process.take_status().context("exec has no status")?.await;
        let success = status.is_some_and(|status| status.status.as_deref() == Some("Success"));
        Ok(Output { stdout, stderr, success })
    }

    async fn wait_for(&self, what: &str, accept: impl Fn(&KubernetesPod) -> bool) -> Result<KubernetesPod> {
        let what = format!("pod {} to be {what}", self.name);
        let outcome = wait::until(what, WAIT_LIMIT, || async {
            self.pods.get(&self.name).await.map(|pod| Some(pod).filter(&accept))
        });
        match outcome.await {
            Ok(pod) => Ok(pod),
            Err(error) => Err(error.context(self.status_text().await)),
        }
    }

    /// The status, which names what a pod waits for.
    async fn status_text(&self) -> String {
        let status = self.pods.get(&self.name).await.ok().and_then(|pod| pod.status);
        serde_json::to_string(&status).unwrap_or_default()
    }
}

fn phase(pod: &KubernetesPod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}
