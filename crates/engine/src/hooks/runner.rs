//! Runs the hooks of a pod. Post-hooks follow pre-hooks, even after a crash.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use plimsoll_progress::Task;
use plimsoll_store::RetryPolicy;
use serde_json::Value;

use super::{Hook, PodHooks};
use crate::cluster::Cluster;
use crate::exec::{Command, ExecError, ExecOutput, exec};
use crate::outcome::{Recorder, Scope};
use crate::ports::{Effect, IntentId, Journal, LeadershipGuard};
use crate::{Error, kill};

/// Counts of hooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HookCounts {
    /// Hooks that ran.
    pub attempted: u64,
    /// Hooks that failed.
    pub failed: u64,
}

/// The post-hooks of a pod whose pre-hooks may have run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingPostHooks {
    /// The uid of the pod: a new pod of the same name needs no post-hooks.
    pub uid: String,
    /// The commands.
    pub post: Vec<Command>,
}

/// A pod whose pre-hooks have run.
pub struct StartedHooks {
    intent: Option<IntentId>,
    /// The error of a pre-hook with `onError: Fail`: the pod is not backed up.
    pub problem: Option<String>,
}

impl PendingPostHooks {
    fn pod(&self) -> String {
        self.post.first().map(|command| format!("{}/{}", command.namespace, command.pod)).unwrap_or_default()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HookStage {
    Pre,
    Post,
}

impl HookStage {
    fn as_str(self) -> &'static str {
        match self {
            Self::Pre => "pre-hook",
            Self::Post => "post-hook",
        }
    }
}

/// Runs a post-hook. Retries for a while if the container cannot be reached.
async fn exec_with_retries(client: &Client, command: &Command, task: &Task) -> Result<ExecOutput, ExecError> {
    let is_unreachable = |error: &ExecError| matches!(error, ExecError::Unreachable { .. });
    let show_wait = |error: &ExecError| task.wait(format!("trying again: {error}"));
    POST_HOOK_RETRIES.run(is_unreachable, show_wait, || exec(client, command)).await
}

/// Six retries of a post-hook whose container cannot be reached, within about half a minute.
const POST_HOOK_RETRIES: RetryPolicy = RetryPolicy {
    initial_pause: Duration::from_millis(500),
    max_pause: Duration::from_secs(16),
    timeout: Duration::from_secs(45),
};

/// Runs hooks and tracks which post-hooks are pending.
pub struct HookRunner {
    client: Client,
    journal: Arc<dyn Journal>,
    guard: Arc<dyn LeadershipGuard>,
    open: Mutex<BTreeMap<IntentId, PendingPostHooks>>,
    attempted: AtomicU64,
    failed: AtomicU64,
}

impl HookRunner {
    /// Runs commands through `client`.
    pub fn new(client: Client, journal: Arc<dyn Journal>, guard: Arc<dyn LeadershipGuard>) -> Self {
        let (attempted, failed) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { client, journal, guard, open: Mutex::default(), attempted, failed }
    }

    /// Counts so far.
    pub fn counts(&self) -> HookCounts {
        HookCounts { attempted: self.attempted.load(Ordering::Relaxed), failed: self.failed.load(Ordering::Relaxed) }
    }

    /// Runs the pre-hooks of a pod. The caller must pass the result to [`HookRunner::run_post_hooks`] unless leadership is lost.
    pub async fn run_pre_hooks(
        &self,
        pod: &Value,
        hooks: &PodHooks,
        task: &Task,
        recorder: &Recorder,
    ) -> Result<StartedHooks, Error> {
        let intent = self.record_intent(pod, hooks).await?;
        kill::point("hook.pre.before");
        let problem = self.run_all(&hooks.pre, HookStage::Pre, task, recorder).await?;
        kill::point("hook.pre.after");
        Ok(StartedHooks { intent, problem })
    }

    /// Runs the post-hooks of a pod.
    pub async fn run_post_hooks(
        &self,
        started: StartedHooks,
        hooks: &PodHooks,
        task: &Task,
        recorder: &Recorder,
    ) -> Result<(), Error> {
        if let Some(problem) = self.run_all(&hooks.post, HookStage::Post, task, recorder).await? {
            recorder.error(&Scope::Namespace(hooks.post[0].command.namespace.clone()), problem);
        }
        kill::point("hook.post.after");
        match started.intent {
            Some(intent) => self.record_result(intent, "closed").await,
            None => Ok(()),
        }
    }

    /// Records the post-hooks, if there are any, before the pre-hooks run.
    async fn record_intent(&self, pod: &Value, hooks: &PodHooks) -> Result<Option<IntentId>, Error> {
        if hooks.post.is_empty() {
            return Ok(None);
        }
        let uid = pod.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
        let post: Vec<Command> = hooks.post.iter().map(|hook| hook.command.clone()).collect();
        let pending = PendingPostHooks { uid, post };
        kill::point("hook.intent.before");
        let effect = Effect::Hooks { pod: pending.pod(), uid: pending.uid.clone(), post: pending.post.clone() };
        let intent = self.journal.record_intent(effect).await?;
        self.open().insert(intent, pending);
        Ok(Some(intent))
    }

    async fn record_result(&self, intent: IntentId, result: &str) -> Result<(), Error> {
        self.journal.record_result(intent, result.to_owned()).await?;
        self.open().remove(&intent);
        Ok(())
    }

    /// Runs hooks in order. Stops at the first failed hook with `onError: Fail` and returns its error.
    async fn run_all(
        &self,
        hooks: &[Hook],
        stage: HookStage,
        task: &Task,
        recorder: &Recorder,
    ) -> Result<Option<String>, Error> {
        for hook in hooks {
            self.guard.check_effect()?;
            let text = format!("{} {} in container {}", stage.as_str(), hook.name, hook.command.container);
            task.say(&text);
            let limit = hook.command.timeout;
            let waiting = task.wait_quietly(format!("{text} to end (timeout {limit:?})"), Some(limit));
            let answer = match stage {
                HookStage::Pre => exec(&self.client, &hook.command).await,
                HookStage::Post => exec_with_retries(&self.client, &hook.command, task).await,
            };
            drop(waiting);
            self.attempted.fetch_add(1, Ordering::Relaxed);
            if let Some(problem) = self.check_result(hook, &text, answer, recorder) {
                return Ok(Some(problem));
            }
        }
        Ok(None)
    }

    fn check_result(
        &self,
        hook: &Hook,
        text: &str,
        answer: Result<ExecOutput, ExecError>,
        recorder: &Recorder,
    ) -> Option<String> {
        let pod = hook.command.path();
        let error = match answer {
            Ok(output) => {
                let (stdout, stderr) = (output.stdout.trim(), output.stderr.trim());
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

    /// Runs the pending post-hooks of an interrupted run. Returns the errors.
    pub async fn run_pending(&self, task: &Task) -> Vec<String> {
        let open: Vec<(IntentId, PendingPostHooks)> =
            self.open().iter().map(|(id, pending)| (*id, pending.clone())).collect();
        let cluster = Cluster::new(self.client.clone());
        run_pending_post_hooks(&cluster, open, self.journal.as_ref(), self.guard.as_ref(), task).await
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<IntentId, PendingPostHooks>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs the post-hooks that an earlier attempt left pending, and records the results. Returns the errors.
pub async fn run_pending_post_hooks(
    cluster: &Cluster,
    open: Vec<(IntentId, PendingPostHooks)>,
    journal: &dyn Journal,
    guard: &dyn LeadershipGuard,
    task: &Task,
) -> Vec<String> {
    let mut problems = Vec::new();
    for (intent, pending) in open {
        if guard.check_effect().is_err() {
            break;
        }
        let result = run_post_hooks_of(cluster, &pending, task).await;
        let recorded = match &result {
            Ok(text) => (*text).to_owned(),
            Err(problem) => format!("failed: {problem}"),
        };
        problems.extend(result.err());
        kill::point("hook.close.after");
        if let Err(error) = journal.record_result(intent, recorded).await {
            problems.push(error.to_string());
        }
    }
    problems
}

async fn run_post_hooks_of(cluster: &Cluster, pending: &PendingPostHooks, task: &Task) -> Result<&'static str, String> {
    let pod = pending.pod();
    if !is_same_pod(cluster, pending).await.map_err(|e| e.to_string())? {
        return Ok("the pod is gone");
    }
    for command in &pending.post {
        let words = format!("post-hook of pod {pod}, left pending by an earlier attempt");
        let _waiting = task.wait_quietly(words, Some(command.timeout));
        kill::point("hook.close.before");
        exec_with_retries(cluster.client(), command, task)
            .await
            .map_err(|error| format!("pod {pod}: post-hook left pending by an earlier attempt: {error}"))?;
    }
    Ok("closed")
}

async fn is_same_pod(cluster: &Cluster, pending: &PendingPostHooks) -> Result<bool, Error> {
    let Some(command) = pending.post.first() else { return Ok(false) };
    let path = format!("/api/v1/namespaces/{}/pods/{}", command.namespace, command.pod);
    let Some(found) = cluster.get(&path).await? else { return Ok(false) };
    let pod: Value = serde_json::from_slice(&found).unwrap_or_default();
    Ok(pod.pointer("/metadata/uid").and_then(Value::as_str) == Some(pending.uid.as_str()))
}
