//! Pods that a phase creates: with a deterministic name, monitored, and deleted at the end.

mod build;
mod cleanup;
mod container_log;
mod request;
mod status;
mod wait;

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;

use self::container_log::ContainerLog;
use super::call::Call;
use crate::Error;

pub use self::cleanup::remove_pods;
pub use self::request::PodRequest;

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
        self.host.kill_point("phase.pod.before");
        let pod = self.build_pod(request, &handle)?;
        match api.create(&PostParams::default(), &pod).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(Error::api(format!("create pod {}", handle.path()), error)),
        }
        self.host.kill_point("phase.pod.after");
        self.host.remember(&key, handle.namespace.clone()).await?;
        Ok(handle)
    }

    async fn get_pod(&self, api: &Api<Pod>, handle: &PodHandle) -> Result<Option<Pod>, Error> {
        api.get_opt(&handle.name).await.map_err(|e| Error::api(format!("read pod {}", handle.path()), e))
    }
}
