//! Runs one pod: starts its containers in order, restarts them according to its policy, and writes its status.

use super::{
    NODE_ADDRESS, conditions, lock,
    log::LogFormatter,
    sandbox::{EXIT_PROGRAM_NOT_FOUND, Sandbox, SandboxConfig, SandboxError},
    volume::{self, Volumes},
};
use crate::{
    Core,
    key::Key,
    object::{now, text},
    status_error::StatusError,
};
use futures::future::join_all;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{sync::watch, time::Instant};

const MAX_BACKOFF: Duration = Duration::from_mins(5);
/// The back-off of a container that ran for this long starts anew.
const BACKOFF_RESET_AFTER: Duration = Duration::from_mins(10);
/// Maximum number of bytes of the log in the status of a failed container.
const MAX_TERMINATION_MESSAGE: usize = 2048;
/// Interval between attempts to get something that was missing.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which the files of a volume are compared with their source.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// A pod that is being run.
pub(super) struct PodRunner {
    core: Arc<Core>,
    pub key: Key,
    pod: Value,
    directory: PathBuf,
    /// By container name.
    statuses: Arc<Mutex<BTreeMap<String, Value>>>,
    /// The grace period in seconds, once the pod is to stop.
    stop: watch::Sender<Option<u64>>,
    /// The process id and the configuration of each running container.
    running: Mutex<BTreeMap<String, (u32, SandboxConfig)>>,
}

/// Whether a container with this exit code is restarted. An init container that succeeded is not.
fn should_restart(pod: &Value, is_init: bool, code: i64) -> bool {
    match text(pod, "/spec/restartPolicy") {
        "Never" => false,
        "OnFailure" => code != 0,
        _ => !is_init || code != 0,
    }
}

impl PodRunner {
    pub fn new(core: &Arc<Core>, key: Key, pod: &Value, directory: PathBuf) -> Self {
        let initial = [("/spec/initContainers", "PodInitializing"), ("/spec/containers", "ContainerCreating")];
        let initial =
            initial.into_iter().flat_map(|(list, reason)| items(pod, list).map(move |one| waiting_status(one, reason)));
        let previous = ["/status/initContainerStatuses", "/status/containerStatuses"];
        let previous = previous.into_iter().flat_map(|list| items(pod, list).cloned().map(mark_interrupted));
        let statuses = initial.chain(previous).map(|status| (text(&status, "/name").to_owned(), status)).collect();
        Self {
            core: Arc::clone(core),
            key,
            pod: pod.clone(),
            directory,
            statuses: Arc::new(Mutex::new(statuses)),
            stop: watch::Sender::new(None),
            running: Mutex::default(),
        }
    }

    pub fn stop(&self, grace: u64) {
        self.stop
            .send_if_modified(|stop| stop.is_none_or(|before| grace < before) && stop.replace(grace) != Some(grace));
    }

    /// The process id and the configuration of a running container, for exec.
    pub fn sandbox_config(&self, container: &str) -> Option<(u32, SandboxConfig)> {
        lock(&self.running).get(container).cloned()
    }

    fn is_stopping(&self) -> bool {
        self.stop.borrow().is_some()
    }

    /// Runs the pod until it is finished or stopped. Returns whether it was stopped.
    pub async fn run(&self) -> bool {
        self.write_status().await;
        if let Some(volumes) = self.set_up_volumes().await {
            tokio::select! {
                () = self.run_containers(&volumes) => {}
                () = self.refresh_volumes() => {}
            }
        }
        self.is_stopping()
    }

    async fn run_containers(&self, volumes: &Volumes) {
        let mut succeeded = true;
        for container in items(&self.pod, "/spec/initContainers") {
            succeeded = succeeded && self.supervise(container, true, volumes).await == 0 && !self.is_stopping();
        }
        if succeeded {
            join_all(items(&self.pod, "/spec/containers").map(|one| self.supervise(one, false, volumes))).await;
        }
    }

    /// Waits until all volumes of the pod are ready: no container starts before. `None` if the pod is stopped first.
    /// A pod whose containers are finished needs no volumes.
    async fn set_up_volumes(&self) -> Option<Volumes> {
        let pending = self.next_containers();
        while !self.is_stopping() && !pending.is_empty() {
            match volume::set_up(&self.core, &self.current_pod(), &self.directory) {
                Ok(volumes) => return Some(volumes),
                Err(error) => {
                    self.report_start_failure(&error, &pending).await;
                    self.pause(RETRY_INTERVAL).await;
                }
            }
        }
        pending.is_empty().then(Volumes::new)
    }

    /// Keeps the files of the volumes up to date until the future is dropped.
    async fn refresh_volumes(&self) {
        if !volume::is_refreshable(&self.pod) {
            std::future::pending::<()>().await;
        }
        loop {
            tokio::time::sleep(REFRESH_INTERVAL).await;
            let pod = self.current_pod();
            for error in volume::refresh(&self.core, &pod, &self.directory) {
                self.core.record_event(&pod, &error).await;
            }
        }
    }

    /// The pod as it is now: its labels and annotations may change while it runs.
    fn current_pod(&self) -> Value {
        self.core.current_pod(&self.pod).ok().flatten().unwrap_or_else(|| self.pod.clone())
    }

    /// The last exit code of a container, if it has run.
    fn last_exit_code(&self, name: &str) -> Option<i64> {
        let previous = lock(&self.statuses).get(name).cloned().unwrap_or_default();
        let ended = ["/state/terminated/exitCode", "/lastState/terminated/exitCode"];
        ended.into_iter().find_map(|pointer| previous.pointer(pointer)?.as_i64())
    }

    /// The names of the containers to start next: init containers, or else the others.
    fn next_containers(&self) -> Vec<&str> {
        let due = |list: &str, is_init: bool| -> Vec<&str> {
            let names = items(&self.pod, list).map(|container| text(container, "/name"));
            names
                .filter(|name| self.last_exit_code(name).is_none_or(|code| should_restart(&self.pod, is_init, code)))
                .collect()
        };
        let first = due("/spec/initContainers", true);
        if first.is_empty() { due("/spec/containers", false) } else { first }
    }

    /// Reports in the status of containers, and in an event, why they do not start.
    async fn report_start_failure(&self, error: &StatusError, containers: &[&str]) {
        self.core.record_event(&self.pod, error).await;
        for name in containers {
            let state = json!({"waiting": {"reason": error.reason, "message": error.message}});
            self.update_status(name, move |status| {
                if !status["state"]["terminated"].is_null() {
                    status["lastState"] = status["state"].take();
                }
                status["state"] = state;
            })
            .await;
        }
    }

    /// Runs a container until its restart policy is fulfilled. Returns its last exit code.
    async fn supervise(&self, container: &Value, is_init: bool, volumes: &Volumes) -> i64 {
        let name = text(container, "/name");
        let mut last = self.last_exit_code(name);
        let mut delay = Duration::ZERO;
        loop {
            if let Some(code) = last {
                if self.is_stopping() || !should_restart(&self.pod, is_init, code) {
                    return code;
                }
                self.back_off(name, code, delay).await;
                delay = (delay * 2).clamp(RETRY_INTERVAL, MAX_BACKOFF);
            }
            let began = Instant::now();
            last = match self.run_container(container, volumes).await {
                Ok(code) => Some(code),
                Err(error) => {
                    self.report_start_failure(&error, &[name]).await;
                    self.pause(RETRY_INTERVAL).await;
                    None
                }
            };
            if began.elapsed() > BACKOFF_RESET_AFTER {
                delay = Duration::ZERO;
            }
            if self.is_stopping() && last.is_none() {
                return 137;
            }
        }
    }

    async fn back_off(&self, name: &str, code: i64, delay: Duration) {
        let seconds = delay.as_secs();
        self.update_status(name, move |status| {
            status["restartCount"] = json!(status["restartCount"].as_u64().unwrap_or_default() + 1);
            if !status["state"]["terminated"].is_null() {
                status["lastState"] = status["state"].take();
            }
            let message = format!("back-off {seconds}s restarting failed container; exit code {code}");
            status["state"] = json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}});
        })
        .await;
        self.pause(delay).await;
    }

    async fn pause(&self, time: Duration) {
        let mut stop = self.stop.subscribe();
        let stopped = async { stop.wait_for(Option::is_some).await.is_ok() };
        // Either of them ends the pause.
        let _ = tokio::time::timeout(time, stopped).await;
    }

    async fn run_container(&self, container: &Value, volumes: &Volumes) -> Result<i64, StatusError> {
        let name = text(container, "/name");
        let count =
            lock(&self.statuses).get(name).and_then(|status| status["restartCount"].as_u64()).unwrap_or_default();
        let config =
            volume::sandbox_config(&self.core, &self.current_pod(), container, volumes, &self.directory, count)?;
        let started = json!(now());
        let mut sandbox = match Sandbox::start(&config).await {
            Ok(sandbox) => sandbox,
            Err(SandboxError::Setup(message)) => return Err(StatusError::new(500, "CreateContainerError", message)),
            Err(SandboxError::ProgramNotFound(message)) => {
                let code = i64::from(EXIT_PROGRAM_NOT_FOUND);
                self.set_terminated(
                    name,
                    json!({"exitCode": code, "reason": "StartError", "message": message, "startedAt": started}),
                )
                .await;
                return Ok(code);
            }
        };
        let running = json!({"running": {"startedAt": started}});
        let log = config.log.clone();
        lock(&self.running).extend(sandbox.process_id().map(|process| (name.to_owned(), (process, config))));
        self.update_status(name, move |status| {
            (status["ready"], status["started"], status["state"]) = (json!(true), json!(true), running);
        })
        .await;
        let code = i64::from(self.wait_or_stop(&mut sandbox).await);
        lock(&self.running).remove(name);
        let reason = if code == 0 { "Completed" } else { "Error" };
        let mut terminated = json!({"exitCode": code, "reason": reason, "startedAt": started});
        if code != 0 && text(container, "/terminationMessagePolicy") == "FallbackToLogsOnError" {
            terminated["message"] = json!(termination_message(&log));
        }
        self.set_terminated(name, terminated).await;
        Ok(code)
    }

    /// Waits for a container and stops it when the pod is stopped; a shorter grace period replaces a longer one.
    async fn wait_or_stop(&self, sandbox: &mut Sandbox) -> i32 {
        let mut stop = self.stop.subscribe();
        loop {
            let grace = *stop.borrow_and_update();
            let work = async {
                match grace {
                    None => sandbox.wait().await,
                    Some(seconds) => sandbox.stop(Duration::from_secs(seconds)).await,
                }
            };
            tokio::select! {
                code = work => return code,
                _ = stop.changed() => {}
            }
        }
    }

    async fn set_terminated(&self, name: &str, mut terminated: Value) {
        terminated["finishedAt"] = json!(now());
        self.update_status(name, move |status| {
            (status["ready"], status["started"], status["state"]) =
                (json!(false), json!(false), json!({"terminated": terminated}));
        })
        .await;
    }

    /// Changes the status of a container and writes the status of the pod.
    async fn update_status(&self, name: &str, change: impl FnOnce(&mut Value)) {
        if let Some(status) = lock(&self.statuses).get_mut(name) {
            change(status);
        }
        self.write_status().await;
    }

    async fn write_status(&self) {
        let (statuses, uid) = (Arc::clone(&self.statuses), self.pod["metadata"]["uid"].clone());
        let update = move |pod: &mut Value| {
            if pod["metadata"]["uid"] == uid {
                pod["status"] = status_of(pod, &lock(&statuses));
            }
        };
        if let Err(failure) = self.core.modify(&self.key, update).await {
            tracing::warn!(pod = self.key.name, error = failure.message, "cannot write the status of a pod");
        }
    }
}

/// The items of a list in an object.
pub(super) fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// The end of the log, as long as the kubelet's termination message.
fn termination_message(log: &std::path::Path) -> String {
    let log = LogFormatter::new(false, None).format(&std::fs::read(log).unwrap_or_default());
    String::from_utf8_lossy(&log[log.len().saturating_sub(MAX_TERMINATION_MESSAGE)..]).into_owned()
}

fn waiting_status(container: &Value, reason: &str) -> Value {
    json!({
        "name": container["name"], "image": container["image"], "imageID": "", "ready": false, "started": false,
        "restartCount": 0, "state": {"waiting": {"reason": reason}}, "lastState": {},
    })
}

/// A container that was running when the previous process ended was killed with it.
fn mark_interrupted(mut status: Value) -> Value {
    if !status["state"]["running"].is_null() {
        let state = json!({"exitCode": 137, "reason": "ContainerStatusUnknown", "finishedAt": now()});
        (status["ready"], status["started"], status["state"]) =
            (json!(false), json!(false), json!({"terminated": state}));
    }
    status
}

/// The status of a pod, from the statuses of its containers.
fn status_of(pod: &Value, statuses: &BTreeMap<String, Value>) -> Value {
    let of = |list: &str| -> Vec<&Value> {
        items(pod, list).filter_map(|container| statuses.get(text(container, "/name"))).collect()
    };
    let (inits, containers) = (of("/spec/initContainers"), of("/spec/containers"));
    let code = |status: &Value| status.pointer("/state/terminated/exitCode").and_then(Value::as_i64);
    let initialized = inits.iter().all(|status| code(status) == Some(0));
    let ready = containers.iter().all(|status| status["ready"] == true);
    let is_finished = |status: &&&Value| code(status).is_some_and(|code| !should_restart(pod, false, code));
    let init_failed =
        inits.iter().any(|status| code(status).is_some_and(|code| code != 0 && !should_restart(pod, true, code)));
    let is_unstarted = |status: &&Value| status["restartCount"] == 0 && !status["state"]["waiting"].is_null();
    let phase = if init_failed {
        "Failed"
    } else if containers.iter().filter(is_finished).count() == containers.len() {
        if containers.iter().all(|status| code(status) == Some(0)) { "Succeeded" } else { "Failed" }
    } else if !initialized || containers.iter().all(is_unstarted) {
        "Pending"
    } else {
        "Running"
    };
    let states = [("PodScheduled", true), ("Initialized", initialized), ("ContainersReady", ready), ("Ready", ready)];
    let started = if pod["status"]["startTime"].is_null() { json!(now()) } else { pod["status"]["startTime"].clone() };
    json!({
        "phase": phase, "startTime": started, "hostIP": NODE_ADDRESS, "podIP": NODE_ADDRESS,
        "podIPs": [{"ip": NODE_ADDRESS}], "qosClass": "BestEffort", "conditions": conditions(pod, &states),
        "initContainerStatuses": inits, "containerStatuses": containers,
    })
}
