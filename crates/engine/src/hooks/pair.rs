//! Running the hooks of a pod so that no pair stays open, whoever dies.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use plimsoll_progress::Task;
use serde_json::Value;

use super::{Hook, PodHooks};
use crate::cluster::Cluster;
use crate::exec::{Command, ExecError, Printed, exec};
use crate::outcome::{Recorder, Scope};
use crate::ports::{Effect, Guard, IntentId, Journal};
use crate::{Error, kill};

/// How many commands were run, and how many of them failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HookCounts {
    /// Run, well or not.
    pub attempted: u64,
    /// Failed.
    pub failed: u64,
}

/// The post-hooks of a pod whose pre-hooks may have run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenPair {
    /// The pod's uid: a new pod of the same name has nothing to undo.
    pub uid: String,
    /// What closes the pair.
    pub post: Vec<Command>,
}

/// A pod whose pre-hooks have run.
pub struct Opened {
    intent: Option<IntentId>,
    /// A pre-hook failed that the pod depends on: it is not to be backed up.
    pub problem: Option<String>,
}

impl OpenPair {
    fn pod(&self) -> String {
        self.post.first().map(|command| format!("{}/{}", command.namespace, command.pod)).unwrap_or_default()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Pre,
    Post,
}

impl Side {
    fn word(self) -> &'static str {
        match self {
            Self::Pre => "pre-hook",
            Self::Post => "post-hook",
        }
    }
}

/// A pair must be closed: a command that could not be reached is tried again for a while.
async fn exec_stubbornly(client: &Client, command: &Command, task: &Task) -> Result<Printed, ExecError> {
    let mut pause = Duration::from_millis(500);
    loop {
        match exec(client, command).await {
            Err(error @ ExecError::Unreachable { .. }) if pause <= LONGEST_PAUSE => {
                let _waiting = task.wait(format!("trying again: {error}"));
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            answer => return answer,
        }
    }
}

/// Half a minute in all.
const LONGEST_PAUSE: Duration = Duration::from_secs(16);

/// Runs hooks and knows which pairs are open.
pub struct Hooks {
    client: Client,
    journal: Arc<dyn Journal>,
    guard: Arc<dyn Guard>,
    open: Mutex<BTreeMap<IntentId, OpenPair>>,
    attempted: AtomicU64,
    failed: AtomicU64,
}

impl Hooks {
    /// Runs commands through `client`.
    pub fn new(client: Client, journal: Arc<dyn Journal>, guard: Arc<dyn Guard>) -> Self {
        let (attempted, failed) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { client, journal, guard, open: Mutex::default(), attempted, failed }
    }

    /// What was run so far.
    pub fn counts(&self) -> HookCounts {
        HookCounts { attempted: self.attempted.load(Ordering::Relaxed), failed: self.failed.load(Ordering::Relaxed) }
    }

    /// Runs the pre-hooks of a pod. What is returned is to be closed whatever happens, unless somebody else works already.
    pub async fn before(
        &self,
        pod: &Value,
        hooks: &PodHooks,
        task: &Task,
        recorder: &Recorder,
    ) -> Result<Opened, Error> {
        let intent = self.begin(pod, hooks).await?;
        kill::point("hook.pre.before");
        let problem = self.run_all(&hooks.pre, Side::Pre, task, recorder).await?;
        kill::point("hook.pre.after");
        Ok(Opened { intent, problem })
    }

    /// Runs the post-hooks of a pod.
    pub async fn after(&self, opened: Opened, hooks: &PodHooks, task: &Task, recorder: &Recorder) -> Result<(), Error> {
        if let Some(problem) = self.run_all(&hooks.post, Side::Post, task, recorder).await? {
            recorder.error(&Scope::Namespace(hooks.post[0].command.namespace.clone()), problem);
        }
        kill::point("hook.post.after");
        match opened.intent {
            Some(intent) => self.settle(intent, "closed").await,
            None => Ok(()),
        }
    }

    /// A pair with something to undo is written down before it is opened.
    async fn begin(&self, pod: &Value, hooks: &PodHooks) -> Result<Option<IntentId>, Error> {
        if hooks.post.is_empty() {
            return Ok(None);
        }
        let uid = pod.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
        let post: Vec<Command> = hooks.post.iter().map(|hook| hook.command.clone()).collect();
        let pair = OpenPair { uid, post };
        kill::point("hook.intent.before");
        let effect = Effect::Hooks { pod: pair.pod(), uid: pair.uid.clone(), post: pair.post.clone() };
        let intent = self.journal.intend(effect).await?;
        self.open().insert(intent, pair);
        Ok(Some(intent))
    }

    async fn settle(&self, intent: IntentId, result: &str) -> Result<(), Error> {
        self.journal.settle(intent, result.to_owned()).await?;
        self.open().remove(&intent);
        Ok(())
    }

    /// Runs commands one after the other. Stops at one that fails and that the pod depends on, and says why.
    async fn run_all(
        &self,
        hooks: &[Hook],
        side: Side,
        task: &Task,
        recorder: &Recorder,
    ) -> Result<Option<String>, Error> {
        for hook in hooks {
            self.guard.effect()?;
            let text = format!("{} {} in container {}", side.word(), hook.name, hook.command.container);
            task.say(&text);
            let waiting = task.wait(format!("{text} to end, at most {:?}", hook.command.timeout));
            let answer = match side {
                Side::Pre => exec(&self.client, &hook.command).await,
                Side::Post => exec_stubbornly(&self.client, &hook.command, task).await,
            };
            drop(waiting);
            self.attempted.fetch_add(1, Ordering::Relaxed);
            if let Some(problem) = self.judge(hook, &text, answer, recorder) {
                return Ok(Some(problem));
            }
        }
        Ok(None)
    }

    fn judge(
        &self,
        hook: &Hook,
        text: &str,
        answer: Result<Printed, ExecError>,
        recorder: &Recorder,
    ) -> Option<String> {
        let pod = hook.command.path();
        let error = match answer {
            Ok(printed) => {
                let (stdout, stderr) = (printed.stdout.trim(), printed.stderr.trim());
                recorder.log().info(format!("pod {pod}: {text}: stdout {stdout:?}, stderr {stderr:?}"));
                return None;
            }
            Err(error) => error,
        };
        self.failed.fetch_add(1, Ordering::Relaxed);
        let problem = format!("{text}: {error}");
        if hook.fails_pod {
            return Some(problem);
        }
        recorder.warn(&Scope::Namespace(hook.command.namespace.clone()), format!("pod {pod}: {problem}"));
        None
    }

    /// Closes what a run that was cut off left open. What cannot be closed is said, and stays in the journal.
    pub async fn close_open(&self, task: &Task) -> Vec<String> {
        let open: Vec<(IntentId, OpenPair)> = self.open().iter().map(|(id, pair)| (*id, pair.clone())).collect();
        let cluster = Cluster::new(self.client.clone());
        close_left_open(&cluster, open, self.journal.as_ref(), self.guard.as_ref(), task).await
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<IntentId, OpenPair>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs the post-hooks of pairs that somebody left open, and settles them. Returns what went wrong, in words.
pub async fn close_left_open(
    cluster: &Cluster,
    open: Vec<(IntentId, OpenPair)>,
    journal: &dyn Journal,
    guard: &dyn Guard,
    task: &Task,
) -> Vec<String> {
    let mut problems = Vec::new();
    for (intent, pair) in open {
        if guard.effect().is_err() {
            break;
        }
        let result = close(cluster, &pair, task).await;
        let word = match &result {
            Ok(word) => (*word).to_owned(),
            Err(problem) => format!("failed: {problem}"),
        };
        problems.extend(result.err());
        kill::point("hook.close.after");
        if let Err(error) = journal.settle(intent, word).await {
            problems.push(error.to_string());
        }
    }
    problems
}

async fn close(cluster: &Cluster, pair: &OpenPair, task: &Task) -> Result<&'static str, String> {
    let pod = pair.pod();
    if !is_same_pod(cluster, pair).await.map_err(|e| e.to_string())? {
        return Ok("the pod is gone");
    }
    for command in &pair.post {
        let _waiting = task.wait(format!("post-hook of pod {pod}, which an earlier attempt left open"));
        kill::point("hook.close.before");
        exec_stubbornly(cluster.client(), command, task)
            .await
            .map_err(|error| format!("pod {pod}: its post-hook, left open by an earlier attempt: {error}"))?;
    }
    Ok("closed")
}

async fn is_same_pod(cluster: &Cluster, pair: &OpenPair) -> Result<bool, Error> {
    let Some(command) = pair.post.first() else { return Ok(false) };
    let path = format!("/api/v1/namespaces/{}/pods/{}", command.namespace, command.pod);
    let Some(found) = cluster.get(&path).await? else { return Ok(false) };
    let pod: Value = serde_json::from_slice(&found).unwrap_or_default();
    Ok(pod.pointer("/metadata/uid").and_then(Value::as_str) == Some(pair.uid.as_str()))
}
