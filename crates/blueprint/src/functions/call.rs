//! One call of a function: its inputs, its host and its progress.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use plimsoll_progress::{Task, Total, Unit};
use sha2::{Digest, Sha256};

use super::arguments::Arguments;
use super::data_movers::DataMovers;
use super::function_spec::ProgressKind;
use crate::Error;
use crate::board::{Outputs, Sample};
use crate::params::Params;
use crate::percent::{self, Bytes, Step};

/// A supported function of Kanister.
pub trait Function: Send + Sync {
    /// How to handle a phase whose server stopped while it ran.
    fn resume_policy(&self) -> ResumePolicy;
    /// Runs the function. Dropping the future stops it; [`Call::clean_up`] deletes what it created in the cluster.
    fn run<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Outputs, Error>>;
    /// The progress, for the status.
    fn progress(&self, call: &Call) -> Result<Sample, Error> {
        Ok(call.gauge.sample())
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
    /// A failpoint: a test may kill this process here.
    fn failpoint(&self, name: &'static str);
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
    /// The progress.
    pub gauge: Gauge,
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
    /// A call; the gauge reports on `task`.
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
        shown: ProgressKind,
        host: Arc<dyn Host>,
    ) -> Self {
        let identity = phase_identity(identity);
        let gauge = Gauge::new(shown, task.clone());
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
            gauge,
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

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// To the store.
    #[default]
    Upload,
    /// From the store.
    Download,
}

/// The progress of one data mover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferProgress {
    /// The direction.
    pub direction: Direction,
    /// Bytes processed.
    pub read: u64,
    /// Total bytes, if known.
    pub total: Option<u64>,
    /// Bytes transferred, once reported.
    pub sent: Option<u64>,
    /// Maximum of the seconds left.
    pub seconds_left: Option<u64>,
}

/// The progress of a call.
pub struct Gauge {
    shown: ProgressKind,
    task: Task,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    step: Step,
    data_movers: BTreeMap<String, TransferProgress>,
}

impl Gauge {
    fn new(shown: ProgressKind, task: Task) -> Self {
        if shown == ProgressKind::Steps {
            task.meter(Unit::Steps).set_total(Total::Final(3));
        }
        Self { shown, task, state: Mutex::default() }
    }

    /// Advances to a step.
    pub fn reach(&self, step: Step) {
        let mut state = self.lock();
        state.step = state.step.max(step);
        if self.shown == ProgressKind::Steps {
            self.task.meter(Unit::Steps).set_done(match state.step {
                Step::Prerequisites => 0,
                Step::Execution => 1,
                Step::Cleanup => 2,
            });
        }
        self.task.touch();
    }

    /// Sets the progress of one of several data movers.
    pub fn moved(&self, mover: &str, moved: TransferProgress) {
        let mut state = self.lock();
        state.data_movers.insert(mover.to_owned(), moved);
        let bytes = sum(&state.data_movers);
        let meter = self.task.meter(Unit::Bytes);
        if let Some(total) = bytes.total {
            meter.set_total(Total::Growing(total));
        }
        meter.set_done(bytes.done);
    }

    /// Whether the progress of the phase is measured in bytes.
    pub fn is_measured_in_bytes(&self) -> bool {
        self.shown == ProgressKind::Bytes
    }

    /// The progress, for the status.
    pub fn sample(&self) -> Sample {
        let state = self.lock();
        let of = |direction: Direction| {
            state.data_movers.values().filter(move |moved| moved.direction == direction).copied().collect::<Vec<_>>()
        };
        let (up, down) = (of(Direction::Upload), of(Direction::Download));
        let sent = |all: &[TransferProgress]| all.iter().filter_map(|moved| moved.sent).reduce(u64::saturating_add);
        let total = |all: &[TransferProgress]| {
            all.iter().map(|moved| moved.total).sum::<Option<u64>>().filter(|_| !all.is_empty())
        };
        Sample {
            percent: percent::running(self.shown, state.step, sum(&state.data_movers)),
            uploaded: sent(&up),
            upload_total: total(&up),
            downloaded: sent(&down),
            download_total: total(&down),
            seconds_left: state.data_movers.values().filter_map(|moved| moved.seconds_left).max(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sum(data_movers: &BTreeMap<String, TransferProgress>) -> Bytes {
    let done = data_movers.values().fold(0, |sum: u64, moved| sum.saturating_add(moved.read));
    let total = data_movers.values().map(|moved| moved.total).sum::<Option<u64>>();
    Bytes { done, total: total.filter(|_| !data_movers.is_empty()) }
}
