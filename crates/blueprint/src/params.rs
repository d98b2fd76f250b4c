//! The template parameters: `.StatefulSet`, `.Object`, `.Profile`, `.Phases` and the others, with the names of Kanister's `toJson`.
//!
//! They are read once for an action. The target is stored as [`SavedTarget`]: after a restart it is not read from the cluster
//! again, because a phase may have scaled down or deleted the workload meanwhile.

mod repository_server;

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ReplicationController, Secret};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use plimsoll_api::kanister::v1alpha1::{ActionSpec, Artifact, ObjectReference, Profile};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::Error;
use crate::profile::{self, ResolvedProfile};
use crate::results::Outputs;

/// A larger target is not stored, but read again.
const MAX_TARGET_SIZE: usize = 64 << 10;

/// The pods of the target and their containers and claims, at the start of the action.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Workload {
    /// The name.
    pub name: String,
    /// The namespace.
    pub namespace: String,
    /// The running pods.
    pub pods: Vec<String>,
    /// Their containers.
    pub containers: Vec<Vec<String>>,
    /// Mount paths by pod and claim.
    pub persistent_volume_claims: BTreeMap<String, BTreeMap<String, String>>,
}

/// The state of the target at the start of an action, stored while the action runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedTarget {
    /// Start time of the action.
    pub time: String,
    /// The workload.
    pub workload: Option<Workload>,
    /// The target, unless it is too large to store or a Secret.
    #[serde(default)]
    pub target: Option<Value>,
}

/// The parameters, and the secrets in them.
#[derive(Clone, Debug, Default)]
pub struct Params {
    tree: Value,
    /// The profile of the action.
    pub profile: Option<ResolvedProfile>,
    /// The workload of the action.
    pub workload: Option<Workload>,
    /// Values that must not appear in a log.
    pub secrets: Vec<String>,
}

/// The parameters of a phase.
#[derive(Clone, Debug, Default)]
pub struct PhaseParams {
    secrets: Map<String, Value>,
    config_maps: Map<String, Value>,
    output: Option<Outputs>,
}

impl PhaseParams {
    /// The objects of a phase, as the API server returns them.
    pub fn new(secrets: Map<String, Value>, config_maps: Map<String, Value>) -> Self {
        Self { secrets, config_maps, output: None }
    }

    fn tree(&self) -> Value {
        json!({ "Secrets": self.secrets, "ConfigMaps": self.config_maps, "Output": self.output })
    }
}

impl Params {
    /// All parameters.
    pub fn tree(&self) -> &Value {
        &self.tree
    }

    /// The state of the target to store, with the start time of the action.
    pub fn to_saved_target(&self, time: String) -> SavedTarget {
        let mut target = self.tree["Object"].clone();
        if let Some(metadata) = target["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        let kept = target["kind"] != "Secret" && target.to_string().len() <= MAX_TARGET_SIZE;
        SavedTarget { time, workload: self.workload.clone(), target: kept.then_some(target) }
    }

    /// Adds the objects of a phase at its start.
    pub fn start_phase(&mut self, phase: &str, objects: &PhaseParams, defer: bool) {
        let tree = objects.tree();
        self.secrets.extend(secrets_in(&objects.secrets));
        if defer {
            self.tree["DeferPhase"] = tree;
            self.tree["CurrentPhase"] = Value::Null;
        } else {
            self.tree["Phases"][phase] = tree.clone();
            self.tree["CurrentPhase"] = tree;
        }
    }

    /// Adds the output of a complete phase.
    pub fn complete_phase(&mut self, phase: &str, output: &Outputs, defer: bool) {
        let profile = if defer { &mut self.tree["DeferPhase"] } else { &mut self.tree["Phases"][phase] };
        if !profile.is_object() {
            *profile = PhaseParams::default().tree();
        }
        profile["Output"] = Value::Object(output.clone());
    }

    /// Redacts secrets in a text.
    pub fn redact(&self, text: &str) -> String {
        self.secrets
            .iter()
            .filter(|secret| secret.len() > 3)
            .fold(text.to_owned(), |text, secret| text.replace(secret, "***"))
    }
}

fn secrets_in(secrets: &Map<String, Value>) -> Vec<String> {
    let data = secrets.values().filter_map(|secret| secret["data"].as_object()).flat_map(|data| data.values());
    let decoded = data.filter_map(|value| BASE64_STANDARD.decode(value.as_str()?).ok());
    decoded.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect()
}

/// Reads the parameters of an action. A saved target replaces that of the cluster.
pub async fn fetch(
    client: &Client,
    spec: &ActionSpec,
    saved: Option<&SavedTarget>,
    time: &str,
    server_namespace: &str,
) -> Result<Params, Error> {
    let object = spec.object.clone().unwrap_or_default();
    let kind = object.kind.as_deref().unwrap_or_default().to_ascii_lowercase();
    let target = match saved.and_then(|saved| saved.target.clone()) {
        Some(existing) => existing,
        None => read_target(client, &object).await?,
    };
    let workload = match saved.and_then(|saved| saved.workload.clone()) {
        Some(existing) => Some(existing),
        None => workload(client, &kind, &target).await?,
    };
    let profile = match &spec.profile {
        Some(reference) => Some(read_profile(client, reference, server_namespace).await?),
        None => None,
    };
    let repository_server = match &spec.repository_server {
        Some(reference) => Some(repository_server::read(client, reference).await?),
        None => None,
    };
    let mut secrets = Map::new();
    for (alias, reference) in &spec.secrets {
        secrets.insert(alias.clone(), read_secret(client, reference).await?);
    }
    let mut config_maps = Map::new();
    for (alias, reference) in &spec.config_maps {
        config_maps.insert(alias.clone(), read_config_map(client, reference).await?);
    }
    Ok(assemble(ParamParts {
        spec,
        kind: &kind,
        target,
        workload,
        profile,
        repository_server,
        secrets,
        config_maps,
        time,
    }))
}

/// What the parameters of an action are made of.
pub struct ParamParts<'a> {
    /// The action.
    pub spec: &'a ActionSpec,
    /// The kind of its object, in lower case.
    pub kind: &'a str,
    /// Its object.
    pub target: Value,
    /// The pods of its object, if that has pods.
    pub workload: Option<Workload>,
    /// The profile.
    pub profile: Option<ResolvedProfile>,
    /// The Kopia repository server.
    pub repository_server: Option<Value>,
    /// The Secrets of the action, by their names in templates.
    pub secrets: Map<String, Value>,
    /// The ConfigMaps of the action, likewise.
    pub config_maps: Map<String, Value>,
    /// The start of the action.
    pub time: &'a str,
}

/// The parameters of an action.
pub fn assemble(parts: ParamParts<'_>) -> Params {
    let mut hidden = secrets_in(&parts.secrets);
    hidden.extend(parts.profile.iter().flat_map(ResolvedProfile::secrets));
    hidden.extend(parts.repository_server.iter().flat_map(repository_server::secrets));
    let (profile, workload) = (parts.profile.clone(), parts.workload.clone());
    Params { tree: tree(parts), profile, workload, secrets: hidden }
}

fn tree(parts: ParamParts<'_>) -> Value {
    let ParamParts { spec, kind, target, workload, profile, repository_server, secrets, config_maps, time } = parts;
    let object = spec.object.clone().unwrap_or_default();
    let of = |revision: &str| workload.as_ref().filter(|_| kind == revision);
    let named = json!({ "Name": object.name, "Namespace": object.namespace });
    let space = object.namespace.clone().filter(|name| !name.is_empty()).or(object.name);
    let space = json!({ "Name": space, "Namespace": space });
    json!({
        "StatefulSet": of("statefulset"),
        "Deployment": of("deployment"),
        "DeploymentConfig": of("deploymentconfig"),
        "PVC": if kind == "pvc" { named } else { Value::Null },
        "Namespace": if kind == "namespace" { space } else { Value::Null },
        "Object": target,
        "ArtifactsIn": artifacts(&spec.artifacts),
        "Profile": profile.as_ref().map(ResolvedProfile::params),
        "RepositoryServer": repository_server,
        "Options": spec.options,
        "Secrets": secrets,
        "ConfigMaps": config_maps,
        "Time": time,
        "Phases": {},
        "DeferPhase": null,
        "CurrentPhase": null,
        "PodOverride": spec.pod_override,
        "PodAnnotations": spec.pod_annotations,
        "PodLabels": spec.pod_labels,
    })
}

fn artifacts(artifacts: &BTreeMap<String, Artifact>) -> Value {
    let one = |artifact: &Artifact| json!({ "keyValue": artifact.key_value, "kopiaSnapshot": artifact.kopia_snapshot.clone().unwrap_or_default() });
    artifacts.iter().map(|(name, artifact)| (name.clone(), one(artifact))).collect()
}

/// Group, version and plural of a target.
fn resource_of(object: &ObjectReference) -> Result<(ApiResource, bool), Error> {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let kind = text(&object.kind);
    let existing = match kind.to_ascii_lowercase().as_str() {
        "statefulset" => ("apps", "v1", "StatefulSet", "statefulsets", true),
        "deployment" => ("apps", "v1", "Deployment", "deployments", true),
        "deploymentconfig" => ("apps.openshift.io", "v1", "DeploymentConfig", "deploymentconfigs", true),
        "pvc" => ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", true),
        "namespace" => ("", "v1", "Namespace", "namespaces", false),
        _ => {
            let (group, version, plural) = (text(&object.group), text(&object.api_version), text(&object.resource));
            if version.is_empty() || plural.is_empty() {
                return Err(Error::Missing(format!(
                    "object {}: kind {kind:?} requires apiVersion and resource",
                    text(&object.name)
                )));
            }
            let resource = ApiResource::from_gvk_with_plural(
                &GroupVersionKind::gvk(group.trim_end_matches('/'), &version, &kind),
                &plural,
            );
            return Ok((resource, object.namespace.as_deref().is_some_and(|namespace| !namespace.is_empty())));
        }
    };
    let gvk = GroupVersionKind::gvk(existing.0, existing.1, existing.2);
    Ok((ApiResource::from_gvk_with_plural(&gvk, existing.3), existing.4))
}

async fn read_target(client: &Client, object: &ObjectReference) -> Result<Value, Error> {
    let (resource, namespaced) = resource_of(object)?;
    read_object(client, &resource, namespaced, object).await
}

/// Reads an object by reference.
pub async fn read_reference(client: &Client, object: &ObjectReference) -> Result<Value, Error> {
    read_target(client, object).await
}

async fn read_object(
    client: &Client,
    resource: &ApiResource,
    namespaced: bool,
    object: &ObjectReference,
) -> Result<Value, Error> {
    let namespace = object.namespace.clone().unwrap_or_default();
    // A namespace may be in either field.
    let name = object.name.clone().filter(|name| !name.is_empty() || namespaced).unwrap_or_else(|| namespace.clone());
    let api: Api<DynamicObject> = if namespaced {
        Api::namespaced_with(client.clone(), &namespace, resource)
    } else {
        Api::all_with(client.clone(), resource)
    };
    let kind_name = format!("{} {namespace}/{name}", resource.plural);
    match api.get_opt(&name).await.map_err(|e| Error::api(format!("read {kind_name}"), e))? {
        Some(found) => Ok(serde_json::to_value(found).unwrap_or_default()),
        None => Err(Error::Missing(format!("object {kind_name} does not exist"))),
    }
}

async fn workload(client: &Client, kind: &str, target: &Value) -> Result<Option<Workload>, Error> {
    let text = |pointer: &str| target.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    if !["statefulset", "deployment", "deploymentconfig"].contains(&kind) {
        return Ok(None);
    }
    let (namespace, uid) = (text("/metadata/namespace"), text("/metadata/uid"));
    let owners = match kind {
        "deployment" => replica_sets(client, &namespace, &uid, target).await?,
        "deploymentconfig" => replication_controllers(client, &namespace, &uid, target).await?,
        _ => vec![uid],
    };
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let all = pods
        .list(&ListParams::default())
        .await
        .map_err(|e| Error::api(format!("list pods in namespace {namespace}"), e))?;
    let owned = |pod: &Pod| pod.owner_references().iter().any(|owner| owners.contains(&owner.uid));
    let running = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
    };
    let mut found: Vec<Pod> = all.items.into_iter().filter(|pod| owned(pod) && running(pod)).collect();
    found.sort_by_key(ResourceExt::name_any);
    Ok(Some(workload_of_pods(text("/metadata/name"), namespace, &found)))
}

/// The ReplicaSets of the current revision of a Deployment; all of them if it has no revision.
async fn replica_sets(client: &Client, namespace: &str, uid: &str, target: &Value) -> Result<Vec<String>, Error> {
    const REVISION: &str = "deployment.kubernetes.io/revision";
    let revision = target["metadata"]["annotations"][REVISION].as_str().map(str::to_owned);
    let api: Api<ReplicaSet> = Api::namespaced(client.clone(), namespace);
    let all = api.list(&ListParams::default()).await;
    let all = all.map_err(|e| Error::api(format!("list replicasets in namespace {namespace}"), e))?;
    Ok(of_revision(&all.items, uid, REVISION, revision.as_deref()))
}

/// The ReplicationControllers of the latest version of a DeploymentConfig; all of them if it has no version.
async fn replication_controllers(
    client: &Client,
    namespace: &str,
    uid: &str,
    target: &Value,
) -> Result<Vec<String>, Error> {
    const VERSION: &str = "openshift.io/deployment-config.latest-version";
    let revision = target["status"]["latestVersion"].as_u64().map(|version| version.to_string());
    let api: Api<ReplicationController> = Api::namespaced(client.clone(), namespace);
    let all = api.list(&ListParams::default()).await;
    let all = all.map_err(|e| Error::api(format!("list replicationcontrollers in namespace {namespace}"), e))?;
    Ok(of_revision(&all.items, uid, VERSION, revision.as_deref()))
}

/// The uids of the objects with this owner and revision annotation.
fn of_revision<K: ResourceExt>(all: &[K], owner: &str, annotation: &str, revision: Option<&str>) -> Vec<String> {
    let owned = |one: &&K| one.owner_references().iter().any(|existing| existing.uid == owner);
    let current = |one: &&K| revision.is_none() || one.annotations().get(annotation).map(String::as_str) == revision;
    all.iter().filter(owned).filter(current).filter_map(ResourceExt::uid).collect()
}

fn workload_of_pods(name: String, namespace: String, pods: &[Pod]) -> Workload {
    Workload {
        name,
        namespace,
        pods: pods.iter().map(ResourceExt::name_any).collect(),
        containers: pods.iter().map(containers_of).collect(),
        persistent_volume_claims: pods
            .iter()
            .map(|pod| (pod.name_any(), claims_of(pod)))
            .filter(|(_, claims)| !claims.is_empty())
            .collect(),
    }
}

/// The containers of a pod in the order that the kubelet reports; in that of the spec before it has reported any.
fn containers_of(pod: &Pod) -> Vec<String> {
    let reported = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let reported: Vec<_> = reported.map(|container| container.name.clone()).collect();
    if !reported.is_empty() {
        return reported;
    }
    pod.spec.iter().flat_map(|spec| &spec.containers).map(|container| container.name.clone()).collect()
}

/// The claims of a pod and their mount paths.
pub fn claims_of(pod: &Pod) -> BTreeMap<String, String> {
    let Some(spec) = &pod.spec else { return BTreeMap::new() };
    let claim = |volume: &str| {
        let volume = spec.volumes.iter().flatten().find(|existing| existing.name == volume)?;
        Some(volume.persistent_volume_claim.as_ref()?.claim_name.clone())
    };
    let mounts = spec.containers.iter().flat_map(|container| container.volume_mounts.iter().flatten());
    mounts.filter_map(|mount| Some((claim(&mount.name)?, mount.mount_path.clone()))).collect()
}

async fn read_profile(
    client: &Client,
    reference: &ObjectReference,
    server_namespace: &str,
) -> Result<ResolvedProfile, Error> {
    let name = reference.name.clone().unwrap_or_default();
    let namespace = reference.namespace.clone().filter(|namespace| !namespace.is_empty());
    let namespace = namespace.unwrap_or_else(|| server_namespace.to_owned());
    let api: Api<Profile> = Api::namespaced(client.clone(), &namespace);
    let found = api.get_opt(&name).await.map_err(|e| Error::api(format!("read profile {namespace}/{name}"), e))?;
    let profile = found.ok_or_else(|| Error::Missing(format!("profile {namespace}/{name} does not exist")))?;
    open_profile(client, &profile).await
}

/// Reads the credentials of a Profile.
pub async fn open_profile(client: &Client, profile: &Profile) -> Result<ResolvedProfile, Error> {
    let own = profile.namespace().unwrap_or_default();
    let mut secrets = BTreeMap::new();
    for reference in profile::secret_references(profile)? {
        let namespace = reference.0.clone().unwrap_or_else(|| own.clone());
        let secret = get_object::<Secret>(client, &namespace, &reference.1, "secret").await?;
        let data = secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect();
        secrets.insert(reference, data);
    }
    Ok(ResolvedProfile::from_value(profile::resolve(profile, &secrets)?)?)
}

/// The Secrets and ConfigMaps of a phase, by the names in templates. Objects of other kinds are skipped, as in Kanister.
pub async fn phase_objects(client: &Client, objects: &BTreeMap<String, ObjectReference>) -> Result<PhaseParams, Error> {
    let mut found = PhaseParams::default();
    for (alias, reference) in objects {
        let kind = reference.kind.clone().unwrap_or_default();
        match kind.to_ascii_lowercase().as_str() {
            "secret" => drop(found.secrets.insert(alias.clone(), read_secret(client, reference).await?)),
            "configmap" => drop(found.config_maps.insert(alias.clone(), read_config_map(client, reference).await?)),
            _ => {}
        }
    }
    Ok(found)
}

async fn read_secret(client: &Client, reference: &ObjectReference) -> Result<Value, Error> {
    let (namespace, name) =
        (reference.namespace.clone().unwrap_or_default(), reference.name.clone().unwrap_or_default());
    let secret = get_object::<Secret>(client, &namespace, &name, "secret").await?;
    Ok(serde_json::to_value(secret).unwrap_or_default())
}

async fn read_config_map(client: &Client, reference: &ObjectReference) -> Result<Value, Error> {
    let (namespace, name) =
        (reference.namespace.clone().unwrap_or_default(), reference.name.clone().unwrap_or_default());
    let map = get_object::<ConfigMap>(client, &namespace, &name, "configmap").await?;
    Ok(serde_json::to_value(map).unwrap_or_default())
}

async fn get_object<K>(client: &Client, namespace: &str, name: &str, kind_name: &str) -> Result<K, Error>
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let found = api.get_opt(name).await.map_err(|e| Error::api(format!("read {kind_name} {namespace}/{name}"), e))?;
    found.ok_or_else(|| Error::Missing(format!("{kind_name} {namespace}/{name} does not exist")))
}

/// Reads a workload.
pub async fn read_workload(client: &Client, kind: &str, namespace: &str, name: &str) -> Result<Value, Error> {
    let reference = ObjectReference {
        kind: Some(kind.to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        ..ObjectReference::default()
    };
    read_target(client, &reference).await
}
