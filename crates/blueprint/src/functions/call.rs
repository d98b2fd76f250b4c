//! One call of a function: its inputs, its host and its task.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use plimsoll_progress::Task;
use sha2::{Digest, Sha256};

use super::arguments::Arguments;
use super::data_movers::DataMovers;
use super::environment::Environment;
use super::function_spec::ProgressKind;
use super::phase_meters::PhaseMeters;
use crate::Error;
use crate::params::Params;
use crate::results::Outputs;

/// The code of a function.
pub(super) type Run = for<'a> fn(&'a Call) -> BoxFuture<'a, Result<Outputs, Error>>;

/// A supported function of Kanister.
pub struct Function {
    /// The name in a phase's `func`.
    pub name: &'static str,
    /// How to handle a phase whose server stopped while it ran.
    pub resume_policy: ResumePolicy,
    pub(super) run: Run,
}

impl Function {
    /// Runs the function. The caller reports the last step, the cleanup. Dropping the future stops it; [`Call::clean_up`]
    /// deletes what it created in the cluster.
    pub fn run<'a>(&self, call: &'a Call) -> BoxFuture<'a, Result<Outputs, Error>> {
        (self.run)(call)
    }
}

/// How to handle a phase whose server stopped while it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumePolicy {
    /// Run it again.
    Repeat,
    /// Resume it if its pod still exists, or if its pod was never created.
    Resume,
    /// Fail it: what was done is unknown.
    Never,
}

/// The process that runs a function.
pub trait Host: Send + Sync {
    /// Called before every effect: fails if the process is no longer the leader.
    fn authorize_effect(&self) -> Result<(), Error>;
    /// A kill point: a test may kill this process here.
    fn kill_point(&self, name: &'static str);
    /// The value stored under this key, by this process or an earlier one.
    fn recall(&self, key: &str) -> Option<String>;
    /// Stores a value while the phase runs; durable once this returns.
    fn remember<'a>(&'a self, key: &'a str, value: String) -> BoxFuture<'a, Result<(), Error>>;
    /// Writes a line to the log of the ActionSet.
    fn log(&self, line: &str);
}

/// Settings of the pods of an action.
#[derive(Clone, Debug, Default)]
pub struct PodSettings {
    /// `podOverride`: merged over the spec.
    pub pod_override: Option<serde_json::Value>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// The image whose `kando` replaces that of the pod's image, if set.
    pub tools_image: Option<ToolsImage>,
    /// The settings with the names of Kanister's variables.
    pub environment: Environment,
}

/// The image with the `kando` program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolsImage {
    /// The image.
    pub image: String,
    /// The path of the program in the image.
    pub program: String,
}

/// A unique id of ActionSet, action and phase, for names and labels of pods.
pub fn phase_identity(parts: &[&str]) -> String {
    let digest = Sha256::digest(parts.join("\n"));
    hex::encode(&digest[..6])
}

/// One call of a function.
pub struct Call {
    /// The cluster.
    pub client: Client,
    /// The namespace of the server.
    pub server_namespace: String,
    /// The service account of pods in the namespace of the server.
    pub service_account: Option<String>,
    /// A unique id of ActionSet, action and phase, for names and labels of pods.
    pub identity: String,
    /// `action/phase`, for messages.
    pub label: String,
    /// The arguments; rendered unless the function renders them itself.
    pub arguments: Arguments,
    /// The template parameters.
    pub params: Params,
    /// Settings of its pods.
    pub pod_settings: PodSettings,
    /// The ActionSet, as the owner of pods in its namespace.
    pub owner: OwnerReference,
    /// The task of the phase.
    pub task: Task,
    /// The meters of its task.
    pub meters: PhaseMeters,
    /// The process that runs it.
    pub host: Arc<dyn Host>,
    /// Data movers for containers without restic.
    pub data_movers: Option<Arc<dyn DataMovers>>,
    /// Whether an earlier process started the phase.
    pub resumed: bool,
    /// Pods to delete at the end.
    pub(super) pods: Mutex<Vec<(String, String)>>,
}

impl Call {
    /// A call that reports its progress to `task`.
    #[expect(clippy::too_many_arguments, reason = "each argument is independent of the others")]
    pub fn new(
        client: Client,
        server_namespace: String,
        identity: &[&str],
        label: String,
        arguments: Arguments,
        params: Params,
        pod_settings: PodSettings,
        owner: OwnerReference,
        task: Task,
        progress: ProgressKind,
        host: Arc<dyn Host>,
    ) -> Self {
        let identity = phase_identity(identity);
        let meters = PhaseMeters::new(progress, task.clone());
        Self {
            client,
            server_namespace,
            service_account: None,
            identity,
            label,
            arguments,
            params,
            pod_settings,
            owner,
            task,
            meters,
            host,
            data_movers: None,
            resumed: false,
            pods: Mutex::default(),
        }
    }

    /// Writes a line to the log, with secrets redacted.
    pub fn log(&self, line: &str) {
        self.host.log(&format!("{}: {}", self.label, self.params.redact(line)));
    }
}
