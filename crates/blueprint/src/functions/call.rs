//! One call of a function: what it gets, what it may ask of whoever runs it, and how it says how far it is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use plimsoll_progress::{Task, Total, Unit};
use sha2::{Digest, Sha256};

use super::arguments::Arguments;
use super::movers::Movers;
use super::table::Shown;
use crate::Error;
use crate::board::{Outputs, Sample};
use crate::params::Params;
use crate::percent::{self, Bytes, Step};

/// A function of Kanister that this program can run.
pub trait Function: Send + Sync {
    /// What becomes of a phase whose server died while it ran.
    fn again(&self) -> Again;
    /// Does the work. Dropping the future stops it; what it started in the cluster goes with [`Call::clean_up`].
    fn run<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Outputs, Error>>;
    /// How far it is.
    fn progress(&self, call: &Call) -> Result<Sample, Error> {
        Ok(call.gauge.sample())
    }
}

/// What becomes of a phase whose server died while it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// It may be run again.
    Repeat,
    /// It is taken up again if its pod is still there, or if its pod was never made.
    TakeUp,
    /// Nobody can tell what was done.
    Never,
}

/// What a function asks of the process that runs it.
pub trait Host: Send + Sync {
    /// Leave to act. Asked before every effect.
    fn effect(&self) -> Result<(), Error>;
    /// A place where a test may end this process.
    fn point(&self, name: &'static str);
    /// What was remembered under this key, by this process or by one before it.
    fn recall(&self, key: &str) -> Option<String>;
    /// Remembers something for as long as the phase runs: durable once this returns.
    fn remember<'a>(&'a self, key: &'a str, value: String) -> BoxFuture<'a, Result<(), Error>>;
    /// A line for the log of the set.
    fn log(&self, line: &str);
}

/// How pods of an action look, as its user wants them.
#[derive(Clone, Debug, Default)]
pub struct PodStyle {
    /// Merged over their spec.
    pub overriding: Option<serde_json::Value>,
    /// Their labels.
    pub labels: BTreeMap<String, String>,
    /// Their annotations.
    pub annotations: BTreeMap<String, String>,
    /// How our `kando` is put over the image's own, if it is.
    pub tools: Option<Tools>,
}

/// Our own program for the inside of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tools {
    /// An image that has it.
    pub image: String,
    /// Its path there.
    pub program: String,
}

/// Set, action and phase, made unique: what pods are named after and labelled with.
pub fn identity_of(parts: &[&str]) -> String {
    let digest = Sha256::digest(parts.join("\n"));
    hex::encode(&digest[..6])
}

/// One call of a function.
pub struct Call {
    /// The cluster.
    pub client: Client,
    /// The server's namespace.
    pub home: String,
    /// The service account of pods in the server's namespace.
    pub account: Option<String>,
    /// Set, action and phase, made unique: what pods are named after.
    pub identity: String,
    /// `action/phase`, for messages.
    pub label: String,
    /// The arguments; rendered, unless the function does that itself.
    pub arguments: Arguments,
    /// What templates see.
    pub params: Params,
    /// How its pods look.
    pub style: PodStyle,
    /// The set, as the owner of pods in its own namespace.
    pub owner: OwnerReference,
    /// The task of the phase.
    pub task: Task,
    /// How far it is.
    pub gauge: Gauge,
    /// The process that runs it.
    pub host: Arc<dyn Host>,
    /// What moves data where restic is not.
    pub movers: Option<Arc<dyn Movers>>,
    /// An earlier process had begun with it.
    pub taken_over: bool,
    /// Pods to remove at the end.
    pub(super) pods: Mutex<Vec<(String, String)>>,
}

impl Call {
    /// A call; the gauge reports on `task`.
    #[expect(clippy::too_many_arguments, reason = "each of them is a fact of its own")]
    pub fn new(
        client: Client,
        home: String,
        identity: &[&str],
        label: String,
        arguments: Arguments,
        params: Params,
        style: PodStyle,
        owner: OwnerReference,
        task: Task,
        shown: Shown,
        host: Arc<dyn Host>,
    ) -> Self {
        let identity = identity_of(identity);
        let gauge = Gauge::new(shown, task.clone());
        Self {
            client,
            home,
            account: None,
            identity,
            label,
            arguments,
            params,
            style,
            owner,
            task,
            gauge,
            host,
            movers: None,
            taken_over: false,
            pods: Mutex::default(),
        }
    }

    /// A line for the log, without secrets.
    pub fn log(&self, line: &str) {
        self.host.log(&format!("{}: {}", self.label, self.params.redact(line)));
    }
}

/// Where bytes go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Into the store.
    #[default]
    Up,
    /// Out of it.
    Down,
}

/// What one mover has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Where to.
    pub direction: Direction,
    /// Bytes looked at.
    pub read: u64,
    /// Bytes to look at, if that is known.
    pub total: Option<u64>,
    /// Bytes that really went over the line, once somebody says it.
    pub sent: Option<u64>,
    /// Seconds left, at most.
    pub seconds_left: Option<u64>,
}

/// How far a call is.
pub struct Gauge {
    shown: Shown,
    task: Task,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    step: Step,
    movers: BTreeMap<String, Moved>,
}

impl Gauge {
    fn new(shown: Shown, task: Task) -> Self {
        if shown == Shown::Steps {
            task.meter(Unit::Steps).set_total(Total::Final(3));
        }
        Self { shown, task, state: Mutex::default() }
    }

    /// The next step has been reached.
    pub fn reach(&self, step: Step) {
        let mut state = self.lock();
        state.step = state.step.max(step);
        if self.shown == Shown::Steps {
            self.task.meter(Unit::Steps).set_done(match state.step {
                Step::Prerequisites => 0,
                Step::Execution => 1,
                Step::Cleanup => 2,
            });
        }
        self.task.touch();
    }

    /// What one of several movers has moved so far.
    pub fn moved(&self, mover: &str, moved: Moved) {
        let mut state = self.lock();
        state.movers.insert(mover.to_owned(), moved);
        let bytes = sum(&state.movers);
        let meter = self.task.meter(Unit::Bytes);
        if let Some(total) = bytes.total {
            meter.set_total(Total::Growing(total));
        }
        meter.set_done(bytes.done);
    }

    /// Whether bytes are what its phase goes by.
    pub fn goes_by_bytes(&self) -> bool {
        self.shown == Shown::Bytes
    }

    /// How far it is, for a status.
    pub fn sample(&self) -> Sample {
        let state = self.lock();
        let of = |direction: Direction| {
            state.movers.values().filter(move |moved| moved.direction == direction).copied().collect::<Vec<_>>()
        };
        let (up, down) = (of(Direction::Up), of(Direction::Down));
        let sent = |all: &[Moved]| all.iter().filter_map(|moved| moved.sent).reduce(u64::saturating_add);
        let total =
            |all: &[Moved]| all.iter().map(|moved| moved.total).sum::<Option<u64>>().filter(|_| !all.is_empty());
        Sample {
            percent: percent::running(self.shown, state.step, sum(&state.movers)),
            uploaded: sent(&up),
            upload_total: total(&up),
            downloaded: sent(&down),
            download_total: total(&down),
            seconds_left: state.movers.values().filter_map(|moved| moved.seconds_left).max(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sum(movers: &BTreeMap<String, Moved>) -> Bytes {
    let done = movers.values().fold(0, |sum: u64, moved| sum.saturating_add(moved.read));
    let total = movers.values().map(|moved| moved.total).sum::<Option<u64>>();
    Bytes { done, total: total.filter(|_| !movers.is_empty()) }
}
