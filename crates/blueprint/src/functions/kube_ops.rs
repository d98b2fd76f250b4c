//! Functions that modify objects of the cluster.

use std::time::Duration;

use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, discovery};
use plimsoll_api::kanister::v1alpha1::ObjectReference;
use plimsoll_progress::{Total, Unit};
use serde_json::{Value, json};

use super::call::Call;
use crate::Error;
use crate::params;
use crate::percent::Step;
use crate::results::Outputs;

/// Interval of reads of an object.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Creates, deletes or patches objects.
pub async fn kube_ops(call: &Call) -> Result<Outputs, Error> {
    let operation = call.arguments.text("operation")?;
    match operation.as_str() {
        "create" => create(call).await,
        "delete" => delete(call).await,
        "patch" => patch(call).await,
        other => Err(Error::argument("operation", format!("expected create, delete or patch, found {other:?}"))),
    }
}

fn object_outputs(resource: &ApiResource, name: &str, namespace: Option<&str>) -> Outputs {
    let fields = json!({
        "apiVersion": resource.version, "group": resource.group, "resource": resource.plural, "kind": resource.kind,
        "name": name, "namespace": namespace.unwrap_or_default(),
    });
    fields.as_object().cloned().unwrap_or_default()
}

async fn create(call: &Call) -> Result<Outputs, Error> {
    let text = call.arguments.text("spec")?;
    let default = call.arguments.optional_text("namespace")?.unwrap_or_else(|| "default".into());
    let mut resolved = Vec::new();
    for document in documents(&text)? {
        resolved.push(resolve(call, document, &default).await?);
    }
    if resolved.is_empty() {
        return Err(Error::argument("spec", "no objects"));
    }
    call.meters.reach(Step::Execution);
    let mut outputs = Outputs::new();
    for (api, resource, object) in resolved {
        call.host.authorize_effect()?;
        call.host.kill_point("phase.object.before");
        let name = object.metadata.name.clone().unwrap_or_default();
        let namespace = object.metadata.namespace.clone();
        let name = match api.create(&PostParams::default(), &object).await {
            Ok(created) => created.metadata.name.unwrap_or(name),
            // An earlier server stopped after it had created the object.
            Err(kube::Error::Api(status)) if status.code == 409 && call.resumed => name,
            Err(error) => return Err(Error::api(format!("create {} {name}", resource.plural), error)),
        };
        call.host.kill_point("phase.object.after");
        outputs = object_outputs(&resource, &name, namespace.as_deref());
    }
    Ok(outputs)
}

/// The documents of a YAML stream.
fn documents(text: &str) -> Result<Vec<Value>, Error> {
    let invalid = |error: String| Error::argument("spec", format!("invalid YAML: {error}"));
    let mut found = Vec::new();
    for part in text.split("\n---") {
        let part = part.trim_start_matches("---");
        if part.trim().is_empty() {
            continue;
        }
        let value: Value = serde_saphyr::from_str(part).map_err(|e| invalid(e.to_string()))?;
        if !value.is_null() {
            found.push(value);
        }
    }
    Ok(found)
}

async fn resolve(
    call: &Call,
    object: Value,
    default: &str,
) -> Result<(Api<DynamicObject>, ApiResource, DynamicObject), Error> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    if api_version.is_empty() || kind.is_empty() {
        return Err(Error::argument("spec", "object without apiVersion or kind"));
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let gvk = GroupVersionKind::gvk(group, version, &kind);
    let found = discovery::oneshot::pinned_kind(&call.client, &gvk).await;
    let (resource, capabilities) = found.map_err(|e| Error::api(format!("discover {api_version} {kind}"), e))?;
    let mut object: DynamicObject =
        serde_json::from_value(object).map_err(|e| Error::argument("spec", e.to_string()))?;
    if capabilities.scope == discovery::Scope::Cluster {
        return Ok((Api::all_with(call.client.clone(), &resource), resource, object));
    }
    let namespace = object.metadata.namespace.get_or_insert_with(|| default.to_owned()).clone();
    Ok((Api::namespaced_with(call.client.clone(), &namespace, &resource), resource, object))
}

/// The object of `objectReference`.
fn referenced_object(call: &Call) -> Result<(Api<DynamicObject>, ApiResource, String, Option<String>), Error> {
    let reference = call.arguments.reference("objectReference")?;
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (name, plural, version) = (text(&reference.name), text(&reference.resource), text(&reference.api_version));
    if name.is_empty() || plural.is_empty() || version.is_empty() {
        return Err(Error::argument("objectReference", "apiVersion, resource and name are required"));
    }
    let (group, version) = match version.split_once('/') {
        Some((group, version)) => (group.to_owned(), version.to_owned()),
        None => (text(&reference.group), version),
    };
    let kind = text(&reference.kind);
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&group, &version, &kind), &plural);
    let own = reference.namespace.filter(|namespace| !namespace.is_empty());
    let namespace = match own {
        Some(namespace) => Some(namespace),
        None => call.arguments.optional_text("namespace")?,
    };
    let api = match &namespace {
        Some(namespace) => Api::namespaced_with(call.client.clone(), namespace, &resource),
        None => Api::all_with(call.client.clone(), &resource),
    };
    Ok((api, resource, name, namespace))
}

async fn delete(call: &Call) -> Result<Outputs, Error> {
    let (api, resource, name, namespace) = referenced_object(call)?;
    call.meters.reach(Step::Execution);
    call.host.authorize_effect()?;
    call.host.kill_point("phase.object.before");
    let deleted = match api.delete(&name, &DeleteParams::default()).await {
        Ok(_) => false,
        Err(kube::Error::Api(status)) if status.code == 404 && call.resumed => true,
        Err(error) => return Err(Error::api(format!("delete {} {name}", resource.plural), error)),
    };
    call.host.kill_point("phase.object.after");
    let _waiting =
        (!deleted).then(|| call.task.wait(format!("waiting for the deletion of {} {name}", resource.plural)));
    while !deleted
        && api.get_opt(&name).await.map_err(|e| Error::api(format!("read {} {name}", resource.plural), e))?.is_some()
    {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(object_outputs(&resource, &name, namespace.as_deref()))
}

async fn patch(call: &Call) -> Result<Outputs, Error> {
    let text = call.arguments.text("spec")?;
    let patch = documents(&text)?.into_iter().next().ok_or_else(|| Error::argument("spec", "empty"))?;
    let (api, resource, name, namespace) = referenced_object(call)?;
    call.meters.reach(Step::Execution);
    call.host.authorize_effect()?;
    let what = || format!("patch {} {name}", resource.plural);
    call.host.kill_point("phase.object.before");
    match api.patch(&name, &PatchParams::default(), &Patch::Strategic(&patch)).await {
        Ok(_) => {}
        // Custom resources do not support strategic merge patches.
        Err(kube::Error::Api(status)) if status.code == 415 => {
            api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
                .await
                .map_err(|e| Error::api(what(), e))?;
        }
        Err(error) => return Err(Error::api(what(), error)),
    }
    call.host.kill_point("phase.object.after");
    Ok(object_outputs(&resource, &name, namespace.as_deref()))
}

/// Scales a workload.
pub async fn scale_workload(call: &Call) -> Result<Outputs, Error> {
    let target = Target::of(call)?;
    let request = call.arguments.count("replicas")?;
    let before = target.read(call).await?;
    // Stored by an earlier server that may have scaled the workload already.
    let original = if let Some(known) = call.host.recall("originalReplicaCount") {
        known
    } else {
        let now = before["spec"]["replicas"].as_u64().unwrap_or(1).to_string();
        call.host.remember("originalReplicaCount", now.clone()).await?;
        now
    };
    target.scale(call, request).await?;
    if call.arguments.flag("waitForReady", true)? {
        target.wait(call, request).await?;
    }
    // A number, as in Kanister. What is not one was recorded by hand.
    let original = original.parse::<u64>().map_or_else(|_| Value::from(original), Value::from);
    Ok(Outputs::from_iter([("originalReplicaCount".to_owned(), original)]))
}

/// A workload with replicas.
struct Target {
    kind: String,
    namespace: String,
    name: String,
}

impl Target {
    fn of(call: &Call) -> Result<Self, Error> {
        let text = |name: &str| call.arguments.optional_text(name);
        let tree = call.params.tree();
        let kinds =
            [("StatefulSet", "statefulset"), ("Deployment", "deployment"), ("DeploymentConfig", "deploymentconfig")];
        let own = kinds.iter().find(|(field, _)| tree[*field].is_object());
        let of_own = |field: &str| own.and_then(|(kind, _)| tree[*kind][field].as_str()).map(str::to_owned);
        let needed = |name: &str, value: Option<String>| {
            value.ok_or_else(|| Error::argument(name, "missing, and the object of the action is not a workload"))
        };
        let kind =
            needed("kind", text("kind")?.or_else(|| own.map(|(_, kind)| (*kind).to_owned())))?.to_ascii_lowercase();
        if !kinds.iter().any(|(_, known)| *known == kind) {
            return Err(Error::argument(
                "kind",
                format!("expected StatefulSet, Deployment or DeploymentConfig, found {kind:?}"),
            ));
        }
        let namespace = needed("namespace", text("namespace")?.or_else(|| of_own("Namespace")))?;
        Ok(Self { kind, namespace, name: needed("name", text("name")?.or_else(|| of_own("Name")))? })
    }

    fn path(&self) -> String {
        format!("{} {}/{}", self.kind, self.namespace, self.name)
    }

    async fn read(&self, call: &Call) -> Result<Value, Error> {
        params::read_workload(&call.client, &self.kind, &self.namespace, &self.name).await
    }

    async fn scale(&self, call: &Call, replicas: u32) -> Result<(), Error> {
        let gvk = match self.kind.as_str() {
            "statefulset" => GroupVersionKind::gvk("apps", "v1", "StatefulSet"),
            "deployment" => GroupVersionKind::gvk("apps", "v1", "Deployment"),
            _ => GroupVersionKind::gvk("apps.openshift.io", "v1", "DeploymentConfig"),
        };
        let api: Api<DynamicObject> =
            Api::namespaced_with(call.client.clone(), &self.namespace, &ApiResource::from_gvk(&gvk));
        call.host.authorize_effect()?;
        call.host.kill_point("phase.scale.before");
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        api.patch(&self.name, &PatchParams::default(), &patch)
            .await
            .map_err(|e| Error::api(format!("scale {}", self.path()), e))?;
        call.host.kill_point("phase.scale.after");
        Ok(())
    }

    async fn wait(&self, call: &Call, request: u32) -> Result<(), Error> {
        let ready = call.task.meter(Unit::Items);
        ready.set_total(Total::Growing(u64::from(request.max(1))));
        let waiting = call.task.wait(format!("waiting for {} to have {request} ready replicas", self.path()));
        loop {
            let (object, pods) = match self.read_until_answered(call, request).await {
                // Retried while the API server is unavailable.
                Err(error) if error.is_retryable() => {
                    call.task.hint(error.to_string());
                    tokio::time::sleep(POLL_INTERVAL).await;
                    continue;
                }
                result => result?,
            };
            let status = |field: &str| object["status"][field].as_u64().unwrap_or(0);
            let seen = status("observedGeneration") >= object["metadata"]["generation"].as_u64().unwrap_or(0);
            let (there, up) = (status("replicas"), status("readyReplicas"));
            ready.set_done(if request > 0 { up.min(u64::from(request)) } else { 0 });
            if seen && there == u64::from(request) && up == u64::from(request) && pods == 0 {
                drop(waiting);
                return Ok(());
            }
            call.task.hint(format!("{up} of {there} replicas ready"));
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// The workload, and the number of pods that still exist.
    async fn read_until_answered(&self, call: &Call, request: u32) -> Result<(Value, usize), Error> {
        let object = self.read(call).await?;
        Ok((object, if request == 0 { self.pods_left(call).await? } else { 0 }))
    }

    /// Pods that still exist keep their volumes attached.
    async fn pods_left(&self, call: &Call) -> Result<usize, Error> {
        let Some(workload) =
            call.params.workload.as_ref().filter(|known| known.name == self.name && known.namespace == self.namespace)
        else {
            return Ok(0);
        };
        let api: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(call.client.clone(), &self.namespace);
        let mut left = 0;
        for pod in &workload.pods {
            let found =
                api.get_opt(pod).await.map_err(|e| Error::api(format!("read pod {}/{pod}", self.namespace), e))?;
            left += usize::from(found.is_some());
        }
        Ok(left)
    }
}

/// Reads an object by reference, for conditions.
pub async fn read(call: &Call, reference: &ObjectReference) -> Result<Value, Error> {
    params::read_reference(&call.client, reference).await
}
