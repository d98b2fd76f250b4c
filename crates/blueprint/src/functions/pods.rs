//! Pods that a phase creates: with a deterministic name, monitored, and deleted at the end.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{join_all, try_join};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use plimsoll_select::strategic_merge_patch::{self, PatchSchema};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::call::Call;
use super::pod_io::PodOutput;
use super::pod_log::{LogPosition, read_chunks};
use super::{pod_override, tools_container};
use crate::Error;
use crate::results::Outputs;

/// Interval of reads of a pod.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Annotation in `podAnnotations`: `true` keeps the `kando` of the pod's image.
pub const OWN_KANDO: &str = "plimsoll.dev/own-kando";
/// Label: the phase of a pod.
const PHASE_LABEL: &str = "plimsoll.dev/phase";
/// Key of the note that our `kando` cannot be put into the pods of this phase, and why.
const OWN_KANDO_NOTE: &str = "own-kando";
/// The container name of Kanister's pods.
pub const CONTAINER: &str = "container";
/// The init container of the pods of MultiContainerRun.
pub const INIT_CONTAINER: &str = "init";

/// A pod to create.
#[derive(Clone, Debug)]
pub struct PodRequest {
    /// Prefix of the name.
    pub prefix: &'static str,
    /// The namespace.
    pub namespace: String,
    /// The spec.
    pub spec: Value,
    /// Distinguishes several pods of one phase.
    pub part: String,
    /// Whether it runs a command of the blueprint, which may use `kando`.
    pub runs_a_command: bool,
}

impl PodRequest {
    /// A pod with one container.
    pub fn task(prefix: &'static str, namespace: String, image: &str, command: &[String]) -> Self {
        let spec = json!({
            "restartPolicy": "Never",
            "containers": [{
                "name": CONTAINER, "image": image, "imagePullPolicy": "IfNotPresent", "command": command,
            }],
        });
        Self { prefix, namespace, spec, part: String::new(), runs_a_command: true }
    }

    /// An idle pod with mounted claims.
    pub fn idle(prefix: &'static str, namespace: String, image: &str, claims: &BTreeMap<String, String>) -> Self {
        let command = ["sh", "-c", "tail -f /dev/null"].map(str::to_owned);
        let mut request = Self { runs_a_command: false, ..Self::task(prefix, namespace, image, &command) };
        request.mount(claims);
        request
    }

    /// The same pod with the `kando` of its image, under another name.
    fn without_tools(mut self) -> Self {
        self.part = if self.part.is_empty() { "own".into() } else { format!("{}-own", self.part) };
        self.runs_a_command = false;
        self
    }

    /// Mounts claims in all containers.
    pub fn mount(&mut self, claims: &BTreeMap<String, String>) {
        let name = |index: usize| format!("vol-{index}");
        let volumes: Vec<_> = claims
            .keys()
            .enumerate()
            .map(|(index, claim)| json!({ "name": name(index), "persistentVolumeClaim": { "claimName": claim } }))
            .collect();
        let mounts: Vec<_> = claims
            .values()
            .enumerate()
            .map(|(index, path)| json!({ "name": name(index), "mountPath": path }))
            .collect();
        self.spec["volumes"] = json!(volumes);
        for container in self.spec["containers"].as_array_mut().into_iter().flatten() {
            container["volumeMounts"] = json!(mounts);
        }
    }
}

/// How a pod began.
enum Started {
    /// Its containers run, or have run.
    Running,
    /// Our `kando` could not be put into it, for this reason: none of its containers has run.
    WithoutTools(String),
}

/// An existing pod.
#[derive(Clone, Debug)]
pub struct PodHandle {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl PodHandle {
    /// `namespace/name`.
    pub fn path(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn failed(&self, detail: impl Into<String>) -> Error {
        Error::Pod { pod: self.path(), detail: detail.into() }
    }
}

impl Call {
    fn pods_of(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Creates a pod and waits for its start. Where our `kando` cannot be put into it, it runs with that of its image.
    pub async fn start_pod(&self, request: &PodRequest, repeatable: bool) -> Result<PodHandle, Error> {
        if !self.injects_kando(request)? {
            return self.start(request, repeatable).await;
        }
        if self.host.recall(OWN_KANDO_NOTE).is_some() {
            // An earlier process may not have deleted the pod that could not start.
            self.find_pods().await;
        } else if let Some(handle) = self.start_with_tools(request, repeatable).await? {
            return Ok(handle);
        }
        self.start(&request.clone().without_tools(), repeatable).await
    }

    async fn start(&self, request: &PodRequest, repeatable: bool) -> Result<PodHandle, Error> {
        let handle = self.create_pod(request, repeatable).await?;
        self.wait_with_init(request, &handle).await?;
        Ok(handle)
    }

    /// Waits for the start of a pod, and reads the log of its init container meanwhile.
    async fn wait_with_init(&self, request: &PodRequest, handle: &PodHandle) -> Result<Started, Error> {
        if request.spec["initContainers"].is_null() {
            return self.wait_until_started(handle).await;
        }
        let api = self.pods_of(&handle.namespace);
        let mut log = ContainerLog::new(self, INIT_CONTAINER);
        let started = tokio::select! {
            biased;
            started = self.wait_until_started(handle) => started?,
            () = log.follow(&api, handle) => Started::Running,
        };
        if matches!(started, Started::Running) {
            // It has ended: the rest of its log is there. An invalid output of it is not an error.
            let _ = log.read(&api, handle).await;
        }
        Ok(started)
    }

    /// Starts a pod with our `kando`; `None` if that is not possible.
    async fn start_with_tools(&self, request: &PodRequest, repeatable: bool) -> Result<Option<PodHandle>, Error> {
        let cause = match self.create_pod(request, repeatable).await {
            Ok(handle) => match self.wait_with_init(request, &handle).await? {
                Started::Running => return Ok(Some(handle)),
                Started::WithoutTools(cause) => cause,
            },
            // A quota or an admission policy may admit the pod without the init container.
            Err(error) if error.code() == Some(403) => error.to_string(),
            Err(error) => return Err(error),
        };
        self.log(&format!("plimsoll's kando cannot be installed in the pod, its image's own is used: {cause}"));
        self.host.remember(OWN_KANDO_NOTE, cause).await?;
        self.clean_up().await;
        Ok(None)
    }

    /// Whether a pod gets our `kando`.
    fn injects_kando(&self, request: &PodRequest) -> Result<bool, Error> {
        let own = self
            .arguments
            .map("podAnnotations")?
            .get(OWN_KANDO)
            .or(self.pod_settings.annotations.get(OWN_KANDO))
            .cloned();
        Ok(request.runs_a_command && self.pod_settings.tools_image.is_some() && own.as_deref() != Some("true"))
    }

    /// Creates a pod, or finds the one that an earlier process created. A pod that was created and no longer exists is created
    /// again only if the function is repeatable.
    async fn create_pod(&self, request: &PodRequest, repeatable: bool) -> Result<PodHandle, Error> {
        let mut name = format!("{}{}", request.prefix, self.identity);
        if !request.part.is_empty() {
            name += &format!("-{}", request.part);
        }
        let handle = PodHandle { namespace: request.namespace.clone(), name };
        self.pods
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .push((handle.namespace.clone(), handle.name.clone()));
        let api = self.pods_of(&handle.namespace);
        let key = format!("pod/{}", handle.name);
        let known = self.host.recall(&key).is_some();
        if known && self.get_pod(&api, &handle).await?.is_some() {
            self.log(&format!("resuming pod {}", handle.path()));
            return Ok(handle);
        }
        if known && !repeatable {
            return Err(Error::Interrupted(format!("pod {} no longer exists", handle.path())));
        }
        self.host.authorize_effect()?;
        self.host.failpoint("phase.pod.before");
        let pod = self.build_pod(request, &handle)?;
        match api.create(&PostParams::default(), &pod).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(Error::api(format!("create pod {}", handle.path()), error)),
        }
        self.host.failpoint("phase.pod.after");
        self.host.remember(&key, handle.namespace.clone()).await?;
        Ok(handle)
    }

    async fn get_pod(&self, api: &Api<Pod>, handle: &PodHandle) -> Result<Option<Pod>, Error> {
        api.get_opt(&handle.name).await.map_err(|e| Error::api(format!("read pod {}", handle.path()), e))
    }

    fn build_pod(&self, request: &PodRequest, handle: &PodHandle) -> Result<Pod, Error> {
        let mut labels = self.pod_settings.labels.clone();
        labels.extend(self.arguments.map("podLabels")?);
        labels.insert("createdBy".into(), "kanister".into());
        labels.insert(PHASE_LABEL.into(), self.identity.clone());
        let mut annotations = self.pod_settings.annotations.clone();
        annotations.extend(self.arguments.map("podAnnotations")?);
        let injected = self.injects_kando(request)?;
        let mut spec = request.spec.clone();
        if request.namespace == self.server_namespace
            && spec["serviceAccountName"].is_null()
            && let Some(service_account) = &self.service_account
        {
            spec["serviceAccountName"] = json!(service_account);
        }
        if self.pod_settings.environment.secure_defaults {
            spec["automountServiceAccountToken"] = json!(false);
            spec["serviceAccountName"] = json!("default");
        }
        let containers = pod_override::container_names(&spec);
        for (argument, patch) in [
            ("podOverride", self.arguments.object("podOverride")?),
            (
                "podOverride of the action",
                self.pod_settings.pod_override.as_ref().map(|patch| pod_override::spread(patch, &spec)),
            ),
        ] {
            let Some(patch) = patch.filter(|patch| patch.as_object().is_some_and(|fields| !fields.is_empty())) else {
                continue;
            };
            spec = strategic_merge_patch::merge(&spec, &patch, PatchSchema::POD_SPEC)
                .map_err(|e| Error::argument(argument, e.to_string()))?;
        }
        // After the overrides: it has the security context and the resources that they give to the first container.
        if let Some(tools_image) = self.pod_settings.tools_image.as_ref().filter(|_| injected) {
            tools_container::inject(&mut spec, tools_image, &containers);
        }
        // An owner in another namespace is treated as missing: the pod would be garbage collected.
        let owners = if handle.namespace == self.server_namespace { json!([self.owner]) } else { Value::Null };
        let pod = json!({
            "metadata": { "name": handle.name, "namespace": handle.namespace, "labels": labels, "annotations": annotations, "ownerReferences": owners },
            "spec": spec,
        });
        serde_json::from_value(pod).map_err(|error| Error::argument("podOverride", error.to_string()))
    }

    /// Waits for the start of a pod.
    async fn wait_until_started(&self, handle: &PodHandle) -> Result<Started, Error> {
        let api = self.pods_of(&handle.namespace);
        let limit = self.pod_settings.environment.pod_start_timeout;
        let deadline = Instant::now() + limit;
        let mut waiting: Option<(String, plimsoll_progress::Wait)> = None;
        loop {
            let pod = self.read_until_answered(&api, handle).await?;
            let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
            if let Some(cause) = tools_container::failure(&pod) {
                return Ok(Started::WithoutTools(cause));
            }
            if !phase.is_empty() && phase != "Pending" {
                return Ok(Started::Running);
            }
            let reason = format!("waiting for pod {} to start: {}", handle.path(), pending_reason(&pod));
            if waiting.as_ref().is_none_or(|(known, _)| *known != reason) {
                self.task.hint(&reason);
                // The old wait ends first: otherwise both would be shown briefly.
                drop(waiting.take());
                waiting = Some((reason.clone(), self.task.wait(&reason)));
            }
            if Instant::now() >= deadline {
                return Err(handle.failed(format!("did not start within {limit:?}: {}", pending_reason(&pod))));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Reads a pod; retries while the API server is unavailable.
    async fn read_until_answered(&self, api: &Api<Pod>, handle: &PodHandle) -> Result<Pod, Error> {
        let mut pause = POLL_INTERVAL;
        loop {
            match self.get_pod(api, handle).await {
                Ok(Some(pod)) => return Ok(pod),
                Ok(None) => return Err(handle.failed("was deleted while the phase was running")),
                Err(error) if error.is_retryable() && pause < Duration::from_mins(2) => {
                    let _waiting = self.task.wait(format!("retrying: {error}"));
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the logs of containers until the pod has completed. The first one has the outputs; progress is read from all.
    /// A failed pod is an error if `must_succeed`.
    pub async fn wait_for_completion(
        &self,
        handle: &PodHandle,
        containers: &[&'static str],
        must_succeed: bool,
    ) -> Result<Outputs, Error> {
        let api = self.pods_of(&handle.namespace);
        let mut logs: Vec<_> = containers.iter().map(|container| ContainerLog::new(self, container)).collect();
        let pod = loop {
            let before = self.read_until_answered(&api, handle).await?;
            if let Some((first, rest)) = logs.split_first_mut() {
                // An invalid output of the others is not an error: they have none.
                let rest = join_all(rest.iter_mut().map(|log| log.read(&api, handle)));
                try_join(first.read(&api, handle), rest.map(Ok)).await?;
            }
            // The log is complete only if it was opened after the pod completed.
            if has_completed(&before) {
                break before;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        };
        if must_succeed && let Some(detail) = failure_detail(&pod) {
            let tail = logs.iter().map(|log| log.output.output_tail()).find(|tail| !tail.is_empty());
            let tail = tail.map(|tail| format!(": {tail}")).unwrap_or_default();
            return Err(handle.failed(format!("{detail}{tail}")));
        }
        match logs.into_iter().next() {
            Some(log) => log.output.finish(),
            None => Ok(Outputs::new()),
        }
    }

    /// Deletes the pods of this call. Errors are logged; they do not fail the phase.
    pub async fn clean_up(&self) {
        if let Some(data_movers) = &self.data_movers {
            data_movers.clean_up(self).await;
        }
        let pods = std::mem::take(&mut *self.pods.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        for (namespace, name) in pods {
            if self.host.authorize_effect().is_err() {
                return;
            }
            self.host.failpoint("phase.cleanup.before");
            let immediately = DeleteParams::default().grace_period(0);
            match self.pods_of(&namespace).delete(&name, &immediately).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => self.log(&format!("failed to delete pod {namespace}/{name}: {error}")),
            }
            self.host.failpoint("phase.cleanup.after");
        }
    }

    /// Finds the pods that an earlier process created for this phase, so that they are deleted too. By label, in all namespaces:
    /// that process may have stopped before it stored their namespace.
    pub async fn find_pods(&self) {
        match pods_of_phase(&self.client, &self.identity).await {
            Ok(found) => self.pods.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(found),
            Err(error) => self.log(&format!("failed to list pods of an earlier server: {error}")),
        }
    }
}

/// The log of one container and what has been read of it.
struct ContainerLog<'a> {
    container: &'static str,
    position: LogPosition,
    output: PodOutput<'a>,
}

impl<'a> ContainerLog<'a> {
    fn new(call: &'a Call, container: &'static str) -> Self {
        Self { container, position: LogPosition::default(), output: PodOutput::new(call, container) }
    }

    /// Reads for ever.
    async fn follow(&mut self, api: &Api<Pod>, handle: &PodHandle) {
        loop {
            let _ = self.read(api, handle).await;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Reads from the position to the current end.
    async fn read(&mut self, api: &Api<Pod>, handle: &PodHandle) -> Result<(), Error> {
        // The container has not started yet, or the kubelet is unavailable: the caller reads the pod again.
        let Ok(stream) = api.log_stream(&handle.name, &self.position.log_params(self.container)).await else {
            return Ok(());
        };
        let mut lines = self.position.open();
        let output = &mut self.output;
        read_chunks(stream, |chunk| {
            let new_data = lines.push(chunk);
            if new_data.restarts_line {
                output.discard_partial_line();
            }
            output.push(&new_data.text)
        })
        .await
    }
}

/// The pods of a phase with their namespaces; retries while the API server is unavailable.
async fn pods_of_phase(client: &Client, identity: &str) -> Result<Vec<(String, String)>, Error> {
    let selector = ListParams::default().labels(&format!("{PHASE_LABEL}={identity}"));
    let mut pause = POLL_INTERVAL;
    loop {
        let listed = Api::<Pod>::all(client.clone()).list_metadata(&selector).await;
        match listed.map_err(|error| Error::api(format!("list pods with the label {PHASE_LABEL}={identity}"), error)) {
            Ok(found) => {
                return Ok(found.iter().map(|pod| (pod.namespace().unwrap_or_default(), pod.name_any())).collect());
            }
            Err(error) if error.is_retryable() && pause < Duration::from_secs(30) => tokio::time::sleep(pause).await,
            Err(error) => return Err(error),
        }
        pause *= 2;
    }
}

/// Deletes all pods of a phase. Returns the first error; the other pods are deleted.
pub async fn remove_pods(client: &Client, identity: &str) -> Result<(), Error> {
    let mut result = Ok(());
    for (namespace, name) in pods_of_phase(client, identity).await? {
        let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        match api.delete(&name, &DeleteParams::default().grace_period(0)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => result = result.and(Err(Error::api(format!("delete pod {namespace}/{name}"), error))),
        }
    }
    result
}

/// Why a pod is pending, from its status.
fn pending_reason(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let unscheduled = conditions.iter().find(|one| one.type_ == "PodScheduled" && one.status == "False");
    if let Some(message) = unscheduled.and_then(|one| one.message.clone()) {
        return message;
    }
    let all =
        status.init_container_statuses.into_iter().flatten().chain(status.container_statuses.into_iter().flatten());
    let mut waits = all.filter_map(|one| one.state?.waiting).map(|waiting| {
        let message = waiting.message.map(|message| format!(": {message}")).unwrap_or_default();
        format!("{}{message}", waiting.reason.unwrap_or_default())
    });
    waits.next().unwrap_or_else(|| "not scheduled yet".into())
}

fn has_completed(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Why a pod failed; `None` if it succeeded.
fn failure_detail(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    if status.phase.as_deref() == Some("Succeeded") {
        return None;
    }
    let all = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    let codes: Vec<_> = all
        .filter_map(|one| Some((one.name.clone(), one.state.as_ref()?.terminated.as_ref()?.clone())))
        .filter(|(_, ended)| ended.exit_code != 0)
        .map(|(name, ended)| {
            format!(
                "container {name} exited with code {}{}",
                ended.exit_code,
                ended.reason.filter(|r| r != "Error").map(|r| format!(" ({r})")).unwrap_or_default()
            )
        })
        .collect();
    let message = status.message.clone().or_else(|| status.reason.clone());
    Some(format!(
        "failed: {}",
        if codes.is_empty() { message.unwrap_or_else(|| "no reason reported".into()) } else { codes.join(", ") }
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::future::BoxFuture;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use plimsoll_progress::{Clock, Operation};

    use super::super::arguments::Arguments;
    use super::super::call::{Host, PodSettings, ToolsImage};
    use super::super::function_spec::ProgressKind;
    use super::*;
    use crate::params::Params;

    struct NoopHost;

    impl Host for NoopHost {
        fn authorize_effect(&self) -> Result<(), Error> {
            Ok(())
        }

        fn failpoint(&self, _: &'static str) {}

        fn recall(&self, _: &str) -> Option<String> {
            None
        }

        fn remember<'a>(&'a self, _: &'a str, _: String) -> BoxFuture<'a, Result<(), Error>> {
            Box::pin(async { Ok(()) })
        }

        fn log(&self, _: &str) {}
    }

    /// A call of a server in the namespace `home` with the service account `boss` and a tools image.
    fn call(arguments: &Value, pod_settings: PodSettings) -> Call {
        let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let client = Client::try_from(config).unwrap();
        let tools_image = Some(ToolsImage { image: "ours".into(), program: "/plimsoll".into() });
        let (arguments, pod_settings) =
            (Arguments::new(arguments.as_object().unwrap().clone()), PodSettings { tools_image, ..pod_settings });
        let (task, owner) = (Operation::new("set", Clock::system()).root().child("p"), OwnerReference::default());
        let (server_namespace, label, params) = ("home".to_owned(), "act/p".to_owned(), Params::default());
        let host = Arc::new(NoopHost);
        let mut call = Call::new(
            client,
            server_namespace,
            &["u"],
            label,
            arguments,
            params,
            pod_settings,
            owner,
            task,
            ProgressKind::Steps,
            host,
        );
        call.service_account = Some("boss".into());
        call
    }

    fn built_pod(call: &Call, request: &PodRequest) -> Value {
        let handle = PodHandle { namespace: request.namespace.clone(), name: "pod".into() };
        serde_json::to_value(call.build_pod(request, &handle).unwrap()).unwrap()
    }

    fn task(namespace: &str) -> PodRequest {
        PodRequest::task("kanister-job-", namespace.into(), "image", &["true".to_owned()])
    }

    #[tokio::test]
    async fn kando_is_injected_only_into_pods_that_run_a_command_of_the_blueprint() {
        let is_injected = |pod: &Value| pod["spec"]["initContainers"][0]["image"] == "ours";
        let call = call(&json!({}), PodSettings::default());
        let pod = built_pod(&call, &task("home"));
        assert!(is_injected(&pod), "{pod:#}");
        assert_eq!(pod["spec"]["containers"][0]["volumeMounts"][0]["mountPath"], tools_container::KANDO_PATH);
        let helper = PodRequest::idle("restore-data-", "home".into(), "image", &BTreeMap::new());
        assert!(!is_injected(&built_pod(&call, &helper)), "it is not used there");
    }

    #[tokio::test]
    async fn an_annotation_keeps_the_kando_of_the_image() {
        let off = json!({ "podAnnotations": { OWN_KANDO: "true" } });
        let pod = built_pod(&call(&off, PodSettings::default()), &task("home"));
        assert_eq!(pod["spec"]["initContainers"], Value::Null);
    }

    #[tokio::test]
    async fn pods_in_the_servers_namespace_have_its_service_account_by_default() {
        let service_account =
            |call: &Call, request: &PodRequest| built_pod(call, request)["spec"]["serviceAccountName"].clone();
        let plain = call(&json!({}), PodSettings::default());
        assert_eq!(service_account(&plain, &task("home")), "boss");
        assert_eq!(service_account(&plain, &task("shop")), Value::Null);
        let named = call(&json!({ "podOverride": { "serviceAccountName": "mine" } }), PodSettings::default());
        assert_eq!(service_account(&named, &task("home")), "mine");
    }

    #[tokio::test]
    async fn the_pod_override_of_the_action_is_merged_over_that_of_the_blueprint() {
        let blueprint = json!({ "podOverride": {
            "nodeSelector": { "disk": "fast", "zone": "a" },
            "containers": [{ "name": CONTAINER, "env": [{ "name": "A", "value": "1" }, { "name": "B", "value": "1" }] }],
        } });
        let action = json!({
            "nodeSelector": { "zone": "b" },
            "containers": [{ "name": CONTAINER, "env": [{ "name": "B", "value": "2" }] }],
        });
        let pod_settings = PodSettings { pod_override: Some(action), ..PodSettings::default() };
        let pod = built_pod(&call(&blueprint, pod_settings), &task("home"));
        assert_eq!(pod["spec"]["nodeSelector"], json!({ "disk": "fast", "zone": "b" }));
        let containers = pod["spec"]["containers"].as_array().unwrap();
        assert_eq!(containers.len(), 1);
        let value = |name: &str| {
            let all = containers[0]["env"].as_array().unwrap();
            all.iter().find(|one| one["name"] == name).map(|one| one["value"].clone())
        };
        assert_eq!((value("A"), value("B")), (Some(json!("1")), Some(json!("2"))));
        assert_eq!(containers[0]["image"], "image");
    }
}
