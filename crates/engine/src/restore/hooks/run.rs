//! Commands in restored pods: each once its container is up, while the restore goes on; all of them before it ends.

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
use crate::ports::{Effect, Guard, Journal};
use crate::{Error, Patience, kill};

const POLL: Duration = Duration::from_millis(500);

/// A command that an earlier attempt began.
#[derive(Clone, Debug)]
pub struct Earlier {
    /// What was begun.
    pub effect: Effect,
    /// How it ended; none if its server died first.
    pub result: Option<String>,
}

/// How many commands were meant to run, and how many of them did not end well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HookCounts {
    /// All of them.
    pub attempted: u64,
    /// Those that failed, or never came to run.
    pub failed: u64,
}

/// Whom the commands run for.
pub struct HookSetting {
    /// The cluster.
    pub cluster: Cluster,
    /// Remembers what was begun.
    pub journal: Arc<dyn Journal>,
    /// Leave to act.
    pub guard: Arc<dyn Guard>,
    /// Shows what is waited for.
    pub task: Task,
    /// What earlier attempts began.
    pub earlier: Vec<Earlier>,
    /// How long a container is waited for, where the hook does not say.
    pub wait: Duration,
}

/// The commands of one restore.
pub struct PodHooks {
    hooks: Arc<RestoreHooks>,
    setting: Arc<Setting>,
    running: Mutex<JoinSet<Result<(), Error>>>,
}

struct Setting {
    cluster: Cluster,
    journal: Arc<dyn Journal>,
    guard: Arc<dyn Guard>,
    task: Task,
    steps: Meter,
    attempted: AtomicU64,
    earlier: Mutex<Vec<Earlier>>,
    wait: Duration,
}

impl PodHooks {
    /// None begun yet.
    pub fn new(hooks: Arc<RestoreHooks>, setting: HookSetting) -> Self {
        let HookSetting { cluster, journal, guard, task, earlier, wait } = setting;
        let steps = task.meter(Unit::Steps);
        let setting = Setting {
            cluster,
            journal,
            guard,
            steps,
            attempted: AtomicU64::new(0),
            task,
            earlier: Mutex::new(earlier),
            wait,
        };
        Self { hooks, setting: Arc::new(setting), running: Mutex::default() }
    }

    /// Begins the commands of a pod that has just been restored. Returns at once.
    pub(in crate::restore) fn begin(&self, pod: &Value, recorder: &Arc<Recorder>) {
        let commands = self.hooks.commands(pod);
        if commands.is_empty() {
            return;
        }
        let before = self.setting.attempted.fetch_add(commands.len() as u64, Ordering::AcqRel);
        self.setting.steps.set_total(Total::Growing(before + commands.len() as u64));
        let work = PodWork::new(pod, Arc::clone(&self.setting), Arc::clone(recorder));
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.spawn(work.run(commands));
    }

    /// Waits for all commands. Each of them has an end, so this has one.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the commands running; dropping the hooks ends waiting for them.
    pub async fn finish(&self) -> Result<HookCounts, Error> {
        let mut running = {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *running)
        };
        while let Some(ended) = running.join_next().await {
            ended.unwrap_or_else(|panic| {
                Err(Error::Answer { what: "run the hooks of a pod".into(), detail: panic.to_string() })
            })?;
        }
        // What an earlier attempt had counted is counted again: it is settled by what the journal knows.
        let attempted = self.setting.attempted.load(Ordering::Acquire);
        self.setting.steps.set_total(Total::Final(attempted));
        Ok(HookCounts { attempted, failed: self.setting.steps.counts().failed })
    }
}

/// The commands of one pod.
struct PodWork {
    namespace: String,
    name: String,
    uid: String,
    containers: Vec<String>,
    setting: Arc<Setting>,
    recorder: Arc<Recorder>,
}

impl PodWork {
    fn new(pod: &Value, setting: Arc<Setting>, recorder: Arc<Recorder>) -> Self {
        let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let containers = pod.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
        Self {
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
            containers: containers.filter_map(|container| container["name"].as_str().map(str::to_owned)).collect(),
            setting,
            recorder,
        }
    }

    /// One after the other, in their order; once one fails that must not, the rest is not run.
    async fn run(self, commands: Vec<ExecHook>) -> Result<(), Error> {
        let task = self.setting.task.child(format!("hooks of pod {}/{}", self.namespace, self.name));
        let started = Instant::now();
        let mut given_up: Option<String> = None;
        for hook in &commands {
            let ended = match &given_up {
                Some(why) => Err(format!("it was not run: {why}")),
                None => self.run_hook(hook, started, &task).await?,
            };
            match ended {
                Ok(()) => self.setting.steps.add(1),
                Err(problem) => {
                    self.setting.steps.fail(1);
                    let text = format!(
                        "hook {} in container {} of pod {}/{}: {problem}",
                        hook.name, hook.container, self.namespace, self.name
                    );
                    self.recorder.error(&Scope::Namespace(self.namespace.clone()), text);
                    if hook.fails {
                        given_up.get_or_insert_with(|| format!("hook {} failed", hook.name));
                    }
                }
            }
        }
        task.finish();
        Ok(())
    }

    /// Runs one command, unless an earlier attempt did. The inner error is what went wrong with it.
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
        if let Some(earlier) = self.take_earlier(&effect) {
            return Ok(match earlier.result {
                Some(result) if result == DONE => Ok(()),
                Some(problem) => Err(problem),
                None => Err("it was interrupted when its server ended; it is not run again".into()),
            });
        }
        if !self.containers.contains(&hook.container) {
            return Ok(Err("the pod has no such container".into()));
        }
        if let Err(problem) = self.wait_for_container(hook, started, task).await? {
            return Ok(Err(problem));
        }
        self.setting.guard.effect()?;
        let intent = self.setting.journal.intend(effect).await?;
        task.say(hook.command.join(" "));
        kill::point("restore.hook.before");
        let ended = exec::exec(self.setting.cluster.client(), &command).await;
        kill::point("restore.hook.after");
        let result = ended.as_ref().map_or_else(ToString::to_string, |_| DONE.to_owned());
        self.setting.journal.settle(intent, result).await?;
        Ok(ended.map(|_| ()).map_err(|error| error.to_string()))
    }

    fn take_earlier(&self, effect: &Effect) -> Option<Earlier> {
        let mut earlier = self.setting.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        let place = earlier.iter().position(|known| known.effect == *effect)?;
        Some(earlier.remove(place))
    }

    /// Waits until the container is up. The inner error is why it never will be, or that it took too long.
    async fn wait_for_container(
        &self,
        hook: &ExecHook,
        started: Instant,
        task: &Task,
    ) -> Result<Result<(), String>, Error> {
        let limit = hook.wait_timeout.unwrap_or(self.setting.wait);
        let path = format!("{}/{}", collection_path("v1", "pods", Some(&self.namespace)), self.name);
        let mut waiting = None;
        loop {
            let found = Patience::default().run(task, || self.setting.cluster.get(&path)).await?;
            let pod: Value = found.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
            match standing(&pod, &self.uid, hook) {
                Standing::Up => return Ok(Ok(())),
                Standing::Never(why) => return Ok(Err(format!("it was not run: {why}"))),
                Standing::NotYet if started.elapsed() >= limit => {
                    return Ok(Err(format!("it was not run: the container was not up within {limit:?}")));
                }
                Standing::NotYet => {}
            }
            let state = if hook.wait_for_ready { "ready" } else { "running" };
            waiting.get_or_insert_with(|| {
                task.wait(format!(
                    "waiting for container {} of pod {}/{} to be {state}",
                    hook.container, self.namespace, self.name
                ))
            });
            tokio::time::sleep(POLL.min(limit.saturating_sub(started.elapsed()).max(Duration::from_millis(10)))).await;
        }
    }
}

const DONE: &str = "done";

#[derive(Debug, PartialEq, Eq)]
enum Standing {
    Up,
    NotYet,
    Never(&'static str),
}

/// Where a container is.
fn standing(pod: &Value, uid: &str, hook: &ExecHook) -> Standing {
    if pod.pointer("/metadata/uid").and_then(Value::as_str) != Some(uid) {
        return Standing::Never("the pod is gone");
    }
    if let Some("Succeeded" | "Failed") = pod.pointer("/status/phase").and_then(Value::as_str) {
        return Standing::Never("the pod has ended");
    }
    let statuses = pod.pointer("/status/containerStatuses").and_then(Value::as_array).into_iter().flatten();
    let up = |status: &Value| {
        if hook.wait_for_ready { status["ready"] == true } else { status.pointer("/state/running").is_some() }
    };
    match statuses.into_iter().find(|status| status["name"] == hook.container.as_str()) {
        Some(status) if up(status) => Standing::Up,
        _ => Standing::NotYet,
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
    fn a_container_is_up_when_it_runs_or_when_it_is_ready_if_that_is_asked_for() {
        let pod = |status: Value| json!({"metadata": {"uid": "u"}, "status": {"containerStatuses": [status]}});
        let running = pod(json!({"name": "c", "state": {"running": {}}, "ready": false}));
        assert_eq!(standing(&running, "u", &hook(false)), Standing::Up);
        assert_eq!(standing(&running, "u", &hook(true)), Standing::NotYet);
        let ready = pod(json!({"name": "c", "state": {"running": {}}, "ready": true}));
        assert_eq!(standing(&ready, "u", &hook(true)), Standing::Up);
        assert_eq!(standing(&pod(json!({"name": "c", "state": {"waiting": {}}})), "u", &hook(false)), Standing::NotYet);
    }

    #[test]
    fn a_pod_that_ended_or_is_another_one_is_not_waited_for() {
        let ended = json!({"metadata": {"uid": "u"}, "status": {"phase": "Failed"}});
        assert_eq!(standing(&ended, "u", &hook(false)), Standing::Never("the pod has ended"));
        assert_eq!(standing(&ended, "other", &hook(false)), Standing::Never("the pod is gone"));
        assert_eq!(standing(&Value::Null, "u", &hook(false)), Standing::Never("the pod is gone"));
    }
}
