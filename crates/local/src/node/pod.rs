//! One pod: its containers in order, restarted as its policy says, and what its status tells of them.

use super::{
    ADDRESS, conditions, lock,
    sandbox::{Cell, NO_PROGRAM, Plan, Refused},
    volume::{self, Volumes},
};
use crate::{
    Core,
    failure::Failure,
    key::Key,
    object::{now, text},
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

const LONGEST_BACKOFF: Duration = Duration::from_mins(5);
/// A container that ran for this long starts again without delay.
const STEADY: Duration = Duration::from_mins(10);
/// How much of the log of a container that failed is told in its status.
const LAST_WORDS: usize = 2048;
/// How soon something that was missing is looked for again.
const RETRY: Duration = Duration::from_secs(1);
/// How often the files that a volume is made of are compared with what they are made from.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// A pod that is being run.
pub(super) struct Run {
    core: Arc<Core>,
    pub key: Key,
    pod: Value,
    directory: PathBuf,
    /// By container name.
    statuses: Arc<Mutex<BTreeMap<String, Value>>>,
    /// Set once it is to end: the seconds it has for that.
    stop: watch::Sender<Option<u64>>,
    /// The process and the plan of each running container.
    running: Mutex<BTreeMap<String, (u32, Plan)>>,
}

/// Whether a container that ended like this starts again. An init container that did its work is done.
fn again(pod: &Value, is_init: bool, code: i64) -> bool {
    match text(pod, "/spec/restartPolicy") {
        "Never" => false,
        "OnFailure" => code != 0,
        _ => !is_init || code != 0,
    }
}

impl Run {
    pub fn new(core: &Arc<Core>, key: Key, pod: &Value, directory: PathBuf) -> Self {
        let fresh = [("/spec/initContainers", "PodInitializing"), ("/spec/containers", "ContainerCreating")];
        let fresh = fresh.into_iter().flat_map(|(list, reason)| items(pod, list).map(move |one| waiting(one, reason)));
        let known = ["/status/initContainerStatuses", "/status/containerStatuses"];
        let known = known.into_iter().flat_map(|list| items(pod, list).cloned().map(cut_off));
        let statuses = fresh.chain(known).map(|status| (text(&status, "/name").to_owned(), status)).collect();
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

    /// Where a further command of a container would run.
    pub fn place(&self, container: &str) -> Option<(u32, Plan)> {
        lock(&self.running).get(container).cloned()
    }

    fn is_stopping(&self) -> bool {
        self.stop.borrow().is_some()
    }

    /// Runs the pod to its end, or until it is stopped. Answers whether it was.
    pub async fn run(&self) -> bool {
        self.publish().await;
        if let Some(volumes) = self.set_up_volumes().await {
            tokio::select! {
                () = self.run_containers(&volumes) => {}
                () = self.refresh_volumes() => {}
            }
        }
        self.is_stopping()
    }

    async fn run_containers(&self, volumes: &Volumes) {
        let mut well = true;
        for container in items(&self.pod, "/spec/initContainers") {
            well = well && self.supervise(container, true, volumes).await == 0 && !self.is_stopping();
        }
        if well {
            join_all(items(&self.pod, "/spec/containers").map(|one| self.supervise(one, false, volumes))).await;
        }
    }

    /// Waits until all volumes of the pod are there: no container starts before. None if the pod is stopped
    /// first; none are needed by a pod of which nothing runs any more.
    async fn set_up_volumes(&self) -> Option<Volumes> {
        let waiting = self.next_containers();
        while !self.is_stopping() && !waiting.is_empty() {
            match volume::set_up(&self.core, &self.current_pod(), &self.directory) {
                Ok(volumes) => return Some(volumes),
                Err(refusal) => {
                    self.refuse(&refusal, &waiting).await;
                    self.pause(RETRY).await;
                }
            }
        }
        waiting.is_empty().then(Volumes::new)
    }

    /// Keeps the files of the pod's volumes up to date, for as long as it is asked.
    async fn refresh_volumes(&self) {
        if !volume::is_refreshable(&self.pod) {
            std::future::pending::<()>().await;
        }
        loop {
            tokio::time::sleep(REFRESH_INTERVAL).await;
            let pod = self.current_pod();
            for refusal in volume::refresh(&self.core, &pod, &self.directory) {
                self.core.tell(&pod, &refusal).await;
            }
        }
    }

    /// The pod as it is now: its labels and annotations may change while it runs.
    fn current_pod(&self) -> Value {
        let stored = self.core.read("pods", &self.key.namespace, &self.key.name).ok().flatten();
        let same = stored.filter(|pod| pod["metadata"]["uid"] == self.pod["metadata"]["uid"]);
        same.unwrap_or_else(|| self.pod.clone())
    }

    /// The exit code that a container had last, if it has run.
    fn last_code(&self, name: &str) -> Option<i64> {
        let known = lock(&self.statuses).get(name).cloned().unwrap_or_default();
        let ended = ["/state/terminated/exitCode", "/lastState/terminated/exitCode"];
        ended.into_iter().find_map(|place| known.pointer(place)?.as_i64())
    }

    /// The names of the containers that are to start next: init containers, or else the others.
    fn next_containers(&self) -> Vec<&str> {
        let due = |list: &str, is_init: bool| -> Vec<&str> {
            let names = items(&self.pod, list).map(|container| text(container, "/name"));
            names.filter(|name| self.last_code(name).is_none_or(|code| again(&self.pod, is_init, code))).collect()
        };
        let first = due("/spec/initContainers", true);
        if first.is_empty() { due("/spec/containers", false) } else { first }
    }

    /// Says in the status of containers, and in an event, why they do not start.
    async fn refuse(&self, refusal: &Failure, containers: &[&str]) {
        self.core.tell(&self.pod, refusal).await;
        for name in containers {
            let state = json!({"waiting": {"reason": refusal.reason, "message": refusal.message}});
            self.set(name, move |status| {
                if !status["state"]["terminated"].is_null() {
                    status["lastState"] = status["state"].take();
                }
                status["state"] = state;
            })
            .await;
        }
    }

    /// Runs a container until its policy says that this was it. Answers its last exit code.
    async fn supervise(&self, container: &Value, is_init: bool, volumes: &Volumes) -> i64 {
        let name = text(container, "/name");
        let mut last = self.last_code(name);
        let mut delay = Duration::ZERO;
        loop {
            if let Some(code) = last {
                if self.is_stopping() || !again(&self.pod, is_init, code) {
                    return code;
                }
                self.back_off(name, code, delay).await;
                delay = (delay * 2).clamp(RETRY, LONGEST_BACKOFF);
            }
            let began = Instant::now();
            last = match self.attempt(container, volumes).await {
                Ok(code) => Some(code),
                Err(refusal) => {
                    self.refuse(&refusal, &[name]).await;
                    self.pause(RETRY).await;
                    None
                }
            };
            if began.elapsed() > STEADY {
                delay = Duration::ZERO;
            }
            if self.is_stopping() && last.is_none() {
                return 137;
            }
        }
    }

    async fn back_off(&self, name: &str, code: i64, delay: Duration) {
        let seconds = delay.as_secs();
        self.set(name, move |status| {
            status["restartCount"] = json!(status["restartCount"].as_u64().unwrap_or_default() + 1);
            if !status["state"]["terminated"].is_null() {
                status["lastState"] = status["state"].take();
            }
            let message = format!("exit code {code}; starts again in {seconds} s");
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

    async fn attempt(&self, container: &Value, volumes: &Volumes) -> Result<i64, Failure> {
        let name = text(container, "/name");
        let count =
            lock(&self.statuses).get(name).and_then(|status| status["restartCount"].as_u64()).unwrap_or_default();
        let plan = volume::plan(&self.core, &self.current_pod(), container, volumes, &self.directory, count)?;
        let started = json!(now());
        let mut cell = match Cell::start(&plan).await {
            Ok(cell) => cell,
            Err(Refused::Container(why)) => return Err(Failure::new(500, "CreateContainerError", why)),
            Err(Refused::Program(why)) => {
                let code = i64::from(NO_PROGRAM);
                self.end(name, json!({"exitCode": code, "reason": "StartError", "message": why, "startedAt": started}))
                    .await;
                return Ok(code);
            }
        };
        let running = json!({"running": {"startedAt": started}});
        let log = plan.log.clone();
        lock(&self.running).extend(cell.process().map(|process| (name.to_owned(), (process, plan))));
        self.set(name, move |status| {
            (status["ready"], status["started"], status["state"]) = (json!(true), json!(true), running);
        })
        .await;
        let code = i64::from(self.watch_over(&mut cell).await);
        lock(&self.running).remove(name);
        let reason = if code == 0 { "Completed" } else { "Error" };
        let mut how = json!({"exitCode": code, "reason": reason, "startedAt": started});
        if code != 0 && text(container, "/terminationMessagePolicy") == "FallbackToLogsOnError" {
            how["message"] = json!(last_words(&log));
        }
        self.end(name, how).await;
        Ok(code)
    }

    /// Waits for a container, and ends it when that is asked for; asked again with less time, it gets less.
    async fn watch_over(&self, cell: &mut Cell) -> i32 {
        let mut stop = self.stop.subscribe();
        loop {
            let grace = *stop.borrow_and_update();
            let work = async {
                match grace {
                    None => cell.wait().await,
                    Some(seconds) => cell.stop(Duration::from_secs(seconds)).await,
                }
            };
            tokio::select! {
                code = work => return code,
                _ = stop.changed() => {}
            }
        }
    }

    async fn end(&self, name: &str, mut how: Value) {
        how["finishedAt"] = json!(now());
        self.set(name, move |status| {
            (status["ready"], status["started"], status["state"]) =
                (json!(false), json!(false), json!({"terminated": how}));
        })
        .await;
    }

    /// Changes the status of a container and shows it.
    async fn set(&self, name: &str, change: impl FnOnce(&mut Value)) {
        if let Some(status) = lock(&self.statuses).get_mut(name) {
            change(status);
        }
        self.publish().await;
    }

    async fn publish(&self) {
        let (statuses, uid) = (Arc::clone(&self.statuses), self.pod["metadata"]["uid"].clone());
        let publish = move |pod: &mut Value| {
            if pod["metadata"]["uid"] == uid {
                pod["status"] = status_of(pod, &lock(&statuses));
            }
        };
        if let Err(failure) = self.core.alter(&self.key, publish).await {
            tracing::warn!(pod = self.key.name, error = failure.message, "cannot write the status of a pod");
        }
    }
}

/// The items of a list in an object.
pub(super) fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// The end of a container's log, as much of it as the kubelet takes.
fn last_words(log: &std::path::Path) -> String {
    let log = std::fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&log[log.len().saturating_sub(LAST_WORDS)..]).into_owned()
}

fn waiting(container: &Value, reason: &str) -> Value {
    json!({
        "name": container["name"], "image": container["image"], "imageID": "", "ready": false, "started": false,
        "restartCount": 0, "state": {"waiting": {"reason": reason}}, "lastState": {},
    })
}

/// A container that an earlier process of ours left running was killed with it.
fn cut_off(mut status: Value) -> Value {
    if !status["state"]["running"].is_null() {
        let state = json!({"exitCode": 137, "reason": "ContainerStatusUnknown", "finishedAt": now()});
        (status["ready"], status["started"], status["state"]) =
            (json!(false), json!(false), json!({"terminated": state}));
    }
    status
}

/// The status of a pod whose containers stand like this.
fn status_of(pod: &Value, statuses: &BTreeMap<String, Value>) -> Value {
    let of = |list: &str| -> Vec<&Value> {
        items(pod, list).filter_map(|container| statuses.get(text(container, "/name"))).collect()
    };
    let (inits, containers) = (of("/spec/initContainers"), of("/spec/containers"));
    let code = |status: &Value| status.pointer("/state/terminated/exitCode").and_then(Value::as_i64);
    let initialized = inits.iter().all(|status| code(status) == Some(0));
    let ready = containers.iter().all(|status| status["ready"] == true);
    let over = |status: &&&Value| code(status).is_some_and(|code| !again(pod, false, code));
    let broken = inits.iter().any(|status| code(status).is_some_and(|code| code != 0 && !again(pod, true, code)));
    let untouched = |status: &&Value| status["restartCount"] == 0 && !status["state"]["waiting"].is_null();
    let phase = if broken {
        "Failed"
    } else if containers.iter().filter(over).count() == containers.len() {
        if containers.iter().all(|status| code(status) == Some(0)) { "Succeeded" } else { "Failed" }
    } else if !initialized || containers.iter().all(untouched) {
        "Pending"
    } else {
        "Running"
    };
    let states = [("PodScheduled", true), ("Initialized", initialized), ("ContainersReady", ready), ("Ready", ready)];
    let started = if pod["status"]["startTime"].is_null() { json!(now()) } else { pod["status"]["startTime"].clone() };
    json!({
        "phase": phase, "startTime": started, "hostIP": ADDRESS, "podIP": ADDRESS,
        "podIPs": [{"ip": ADDRESS}], "qosClass": "BestEffort", "conditions": conditions(pod, &states),
        "initContainerStatuses": inits, "containerStatuses": containers,
    })
}
