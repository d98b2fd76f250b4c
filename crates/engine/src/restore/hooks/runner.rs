//! Runs hooks in restored pods: each when its container is up, in parallel with the restore, and all before it ends.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll_progress::{Meter, Task, Total, Unit};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{ExecHook, RestoreHooks};
use crate::cluster::{Cluster, collection_path};
use crate::exec::{self, Command};
use crate::outcome::{Recorder, Scope};
use crate::ports::{Effect, Journal, JournalEntry, LeadershipGuard};
use crate::{Error, RetryPolicy, kill};

const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Counts of hooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HookCounts {
    /// All hooks.
    pub attempted: u64,
    /// Hooks that failed or did not run.
    pub failed: u64,
}

/// Dependencies of [`RestoreHookRunner`].
pub struct HookContext {
    /// The cluster.
    pub cluster: Cluster,
    /// The journal.
    pub journal: Arc<dyn Journal>,
    /// Checked before every hook.
    pub guard: Arc<dyn LeadershipGuard>,
    /// Shows the progress.
    pub task: Task,
    /// Hooks of earlier attempts.
    pub previous: Vec<JournalEntry>,
    /// Default timeout of the wait for a container.
    pub wait: Duration,
}

/// Runs the hooks of a restore.
pub struct RestoreHookRunner {
    hooks: Arc<RestoreHooks>,
    context: Arc<RunnerContext>,
    running: Mutex<JoinSet<Result<(), Error>>>,
}

struct RunnerContext {
    cluster: Cluster,
    journal: Arc<dyn Journal>,
    guard: Arc<dyn LeadershipGuard>,
    task: Task,
    steps: Meter,
    attempted: AtomicU64,
    previous: Mutex<Vec<JournalEntry>>,
    wait: Duration,
}

impl RestoreHookRunner {
    /// Without running hooks.
    pub fn new(hooks: Arc<RestoreHooks>, context: HookContext) -> Self {
        let HookContext { cluster, journal, guard, task, previous, wait } = context;
        let steps = task.meter(Unit::Steps);
        let context = RunnerContext {
            cluster,
            journal,
            guard,
            steps,
            attempted: AtomicU64::new(0),
            task,
            previous: Mutex::new(previous),
            wait,
        };
        Self { hooks, context: Arc::new(context), running: Mutex::default() }
    }

    /// Starts the hooks of a pod that was just restored. Returns at once.
    pub(in crate::restore) fn start_pod(&self, pod: &Value, recorder: &Arc<Recorder>) {
        let commands = self.hooks.commands(pod);
        if commands.is_empty() {
            return;
        }
        let before = self.context.attempted.fetch_add(commands.len() as u64, Ordering::AcqRel);
        self.context.steps.set_total(Total::Growing(before + commands.len() as u64));
        let hooks = PodHookTask::new(pod, Arc::clone(&self.context), Arc::clone(recorder));
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.spawn(hooks.run(commands));
    }

    /// Waits for all hooks. Each has a timeout.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the hooks running; dropping the runner stops waiting for them.
    pub async fn finish(&self) -> Result<HookCounts, Error> {
        let mut running = {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *running)
        };
        while let Some(result) = running.join_next().await {
            result.unwrap_or_else(|panic| {
                Err(Error::InvalidResponse { what: "run the hooks of a pod".into(), detail: panic.to_string() })
            })?;
        }
        // Hooks of earlier attempts are counted again, with the result of the journal.
        let attempted = self.context.attempted.load(Ordering::Acquire);
        self.context.steps.set_total(Total::Final(attempted));
        Ok(HookCounts { attempted, failed: self.context.steps.counts().failed })
    }
}

/// The hooks of one pod.
struct PodHookTask {
    namespace: String,
    name: String,
    uid: String,
    containers: Vec<String>,
    context: Arc<RunnerContext>,
    recorder: Arc<Recorder>,
}

impl PodHookTask {
    fn new(pod: &Value, context: Arc<RunnerContext>, recorder: Arc<Recorder>) -> Self {
        let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let containers = pod.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
        Self {
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
            containers: containers.filter_map(|container| container["name"].as_str().map(str::to_owned)).collect(),
            context,
            recorder,
        }
    }

    /// Runs the hooks in order. After a failure with `onError: Fail` the rest does not run.
    async fn run(self, commands: Vec<ExecHook>) -> Result<(), Error> {
        let task = self.context.task.child(format!("hooks of pod {}/{}", self.namespace, self.name));
        let started = Instant::now();
        let mut failed_hook: Option<String> = None;
        for hook in &commands {
            let result = match &failed_hook {
                Some(cause) => Err(format!("not run: {cause}")),
                None => self.run_hook(hook, started, &task).await?,
            };
            match result {
                Ok(()) => self.context.steps.add(1),
                Err(error) => {
                    self.context.steps.fail(1);
                    let text = format!(
                        "hook {} in container {} of pod {}/{}: {error}",
                        hook.name, hook.container, self.namespace, self.name
                    );
                    self.recorder.error(&Scope::Namespace(self.namespace.clone()), text);
                    if hook.fails {
                        failed_hook.get_or_insert_with(|| format!("hook {} failed", hook.name));
                    }
                }
            }
        }
        task.finish();
        Ok(())
    }

    /// Runs one hook, unless an earlier attempt did. The inner error is the failure of the hook.
    async fn run_hook(&self, hook: &ExecHook, started: Instant, task: &Task) -> Result<Result<(), String>, Error> {
        let command = Command {
            namespace: self.namespace.clone(),
            pod: self.name.clone(),
            container: hook.container.clone(),
            command: hook.command.clone(),
            timeout: hook.exec_timeout,
        };
        let pod = format!("{}/{}", self.namespace, self.name);
        let effect = Effect::Hooks { pod, uid: self.uid.clone(), post: vec![command.clone()] };
        if let Some(previous) = self.take_previous(&effect) {
            return Ok(match previous.result {
                Some(result) if result == DONE_RESULT => Ok(()),
                Some(error) => Err(error),
                None => Err("interrupted by a restart of the server; not run again".into()),
            });
        }
        if !self.containers.contains(&hook.container) {
            return Ok(Err("container not found in the pod".into()));
        }
        if let Err(error) = self.wait_for_container(hook, started, task).await? {
            return Ok(Err(error));
        }
        self.context.guard.check_effect()?;
        let intent = self.context.journal.record_intent(effect).await?;
        task.say(hook.command.join(" "));
        kill::point("restore.hook.before");
        let words = format!("hook in container {} to end (timeout {:?})", hook.container, command.timeout);
        let waiting = task.wait_quietly(words, Some(command.timeout));
        let output = exec::exec(self.context.cluster.client(), &command).await;
        drop(waiting);
        kill::point("restore.hook.after");
        let result = output.as_ref().map_or_else(ToString::to_string, |_| DONE_RESULT.to_owned());
        self.context.journal.record_result(intent, result).await?;
        Ok(output.map(|_| ()).map_err(|error| error.to_string()))
    }

    fn take_previous(&self, effect: &Effect) -> Option<JournalEntry> {
        let mut previous = self.context.previous.lock().unwrap_or_else(PoisonError::into_inner);
        let index = previous.iter().position(|previous_hook| previous_hook.effect == *effect)?;
        Some(previous.remove(index))
    }

    /// Waits until the container is up. The inner error is a timeout, or the reason why it will never be up.
    async fn wait_for_container(
        &self,
        hook: &ExecHook,
        started: Instant,
        task: &Task,
    ) -> Result<Result<(), String>, Error> {
        let limit = hook.wait_timeout.unwrap_or(self.context.wait);
        let path = format!("{}/{}", collection_path("v1", "pods", Some(&self.namespace)), self.name);
        let state = if hook.wait_for_ready { "ready" } else { "running" };
        let mut waiting = None;
        loop {
            let found = RetryPolicy::default().run(task, || self.context.cluster.get(&path)).await?;
            let pod: Value = found.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
            match container_state(&pod, &self.uid, hook) {
                ContainerState::Up => return Ok(Ok(())),
                ContainerState::Unreachable(cause) => return Ok(Err(format!("not run: {cause}"))),
                ContainerState::Pending if started.elapsed() >= limit => {
                    return Ok(Err(format!("not run: the container was not {state} within {limit:?}")));
                }
                ContainerState::Pending => {}
            }
            waiting.get_or_insert_with(|| {
                task.wait(format!(
                    "waiting for container {} of pod {}/{} to be {state}",
                    hook.container, self.namespace, self.name
                ))
            });
            tokio::time::sleep(
                POLL_INTERVAL.min(limit.saturating_sub(started.elapsed()).max(Duration::from_millis(10))),
            )
            .await;
        }
    }
}

const DONE_RESULT: &str = "done";

#[derive(Debug, PartialEq, Eq)]
enum ContainerState {
    Up,
    Pending,
    Unreachable(&'static str),
}

/// The state of a container.
fn container_state(pod: &Value, uid: &str, hook: &ExecHook) -> ContainerState {
    if pod.pointer("/metadata/uid").and_then(Value::as_str) != Some(uid) {
        return ContainerState::Unreachable("the pod was deleted");
    }
    if let Some("Succeeded" | "Failed") = pod.pointer("/status/phase").and_then(Value::as_str) {
        return ContainerState::Unreachable("the pod has terminated");
    }
    let statuses = pod.pointer("/status/containerStatuses").and_then(Value::as_array).into_iter().flatten();
    let up = |status: &Value| {
        if hook.wait_for_ready { status["ready"] == true } else { status.pointer("/state/running").is_some() }
    };
    match statuses.into_iter().find(|status| status["name"] == hook.container.as_str()) {
        Some(status) if up(status) => ContainerState::Up,
        _ => ContainerState::Pending,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn hook(wait_for_ready: bool) -> ExecHook {
        ExecHook {
            name: "h".into(),
            container: "c".into(),
            command: vec!["true".into()],
            fails: false,
            exec_timeout: Duration::from_secs(1),
            wait_timeout: None,
            wait_for_ready,
        }
    }

    #[test]
    fn a_container_is_up_when_it_is_running_or_ready() {
        let pod = |status: Value| json!({"metadata": {"uid": "u"}, "status": {"containerStatuses": [status]}});
        let running = pod(json!({"name": "c", "state": {"running": {}}, "ready": false}));
        assert_eq!(container_state(&running, "u", &hook(false)), ContainerState::Up);
        assert_eq!(container_state(&running, "u", &hook(true)), ContainerState::Pending);
        let ready = pod(json!({"name": "c", "state": {"running": {}}, "ready": true}));
        assert_eq!(container_state(&ready, "u", &hook(true)), ContainerState::Up);
        assert_eq!(
            container_state(&pod(json!({"name": "c", "state": {"waiting": {}}})), "u", &hook(false)),
            ContainerState::Pending
        );
    }

    #[test]
    fn a_terminated_or_replaced_pod_is_not_waited_for() {
        let result = json!({"metadata": {"uid": "u"}, "status": {"phase": "Failed"}});
        assert_eq!(container_state(&result, "u", &hook(false)), ContainerState::Unreachable("the pod has terminated"));
        assert_eq!(container_state(&result, "other", &hook(false)), ContainerState::Unreachable("the pod was deleted"));
        assert_eq!(
            container_state(&Value::Null, "u", &hook(false)),
            ContainerState::Unreachable("the pod was deleted")
        );
    }
}
