//! The workload controllers: Deployments create `ReplicaSets`, and `ReplicaSets`, DaemonSets, StatefulSets and Jobs
//! create pods.

use super::{conditions, is_finished, key_of, pod::items};
use crate::{
    Core,
    object::{field, is_terminating, metadata, text},
    status_error::StatusError,
};
use plimsoll_select::labels;
use serde_json::{Value, json};
use std::collections::HashMap;

const POD_TEMPLATE_HASH_LABEL: &str = "pod-template-hash";
const REVISION_LABEL: &str = "controller-revision-hash";

/// Reconciles every workload.
pub(super) async fn reconcile(core: &Core) -> Result<(), StatusError> {
    let mut sets = OwnedObjects::load(core, "replicasets.apps")?;
    for deployment in without_terminating(core.list_all("deployments.apps")?) {
        let sets = claim_objects(core, &mut sets, &deployment, true).await?;
        reconcile_deployment(core, &deployment, &sets).await?;
    }
    let mut pods = OwnedObjects::load(core, "pods")?;
    for resource in ["replicasets.apps", "daemonsets.apps", "statefulsets.apps", "jobs.batch"] {
        for owner in without_terminating(core.list_all(resource)?) {
            let pods = claim_objects(core, &mut pods, &owner, resource != "jobs.batch").await?;
            let status = match resource {
                "jobs.batch" => reconcile_job(core, &owner, pods).await?,
                "statefulsets.apps" => reconcile_stateful_set(core, &owner, without_terminating(pods)).await?,
                _ => reconcile_replicas(core, &owner, without_terminating(pods)).await?,
            };
            write_status(core, resource, &owner, status).await?;
        }
    }
    Ok(())
}

fn without_terminating(objects: Vec<Value>) -> Vec<Value> {
    objects.into_iter().filter(|object| !is_terminating(object)).collect()
}

/// All objects of a kind by the uid of their controller, read once for each reconciliation.
struct OwnedObjects {
    resource: &'static str,
    by_owner: HashMap<String, Vec<Value>>,
    /// Objects without a controller.
    orphans: Vec<Value>,
}

impl OwnedObjects {
    fn load(core: &Core, resource: &'static str) -> Result<Self, StatusError> {
        let mut all = Self { resource, by_owner: HashMap::new(), orphans: Vec::new() };
        for object in core.list_all(resource)? {
            let owner = items(&object, "/metadata/ownerReferences").find(|owner| owner["controller"] == true);
            match owner.and_then(|owner| owner["uid"].as_str().map(str::to_owned)) {
                Some(uid) => all.by_owner.entry(uid).or_default().push(object),
                None => all.orphans.push(object),
            }
        }
        Ok(all)
    }
}

/// The objects that an owner controls. Matching objects without a controller, as after a restore, are adopted.
async fn claim_objects(
    core: &Core,
    all: &mut OwnedObjects,
    owner: &Value,
    adopt: bool,
) -> Result<Vec<Value>, StatusError> {
    let mut owned = all.by_owner.remove(text(owner, "/metadata/uid")).unwrap_or_default();
    let selector = serde_json::from_value(owner["spec"]["selector"].clone()).unwrap_or_default();
    let selector = labels::Selector::new(&selector).unwrap_or_default();
    if !adopt || selector.is_empty() {
        return Ok(owned);
    }
    let namespace = text(owner, "/metadata/namespace");
    let matches_owner = |object: &mut Value| {
        text(object, "/metadata/namespace") == namespace && selector.matches(&object["metadata"]["labels"])
    };
    for object in all.orphans.extract_if(.., matches_owner) {
        let (key, reference) = (key_of(all.resource, &object), controller_reference(owner));
        core.modify(&key, move |object| drop(metadata(object).insert("ownerReferences".into(), reference))).await?;
        owned.push(object);
    }
    Ok(owned)
}

fn controller_reference(owner: &Value) -> Value {
    json!([{"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true}])
}

async fn write_status(core: &Core, resource: &str, owner: &Value, mut status: Value) -> Result<(), StatusError> {
    status["observedGeneration"] = owner["metadata"]["generation"].clone();
    core.modify(&key_of(resource, owner), move |owner| owner["status"] = status).await
}

fn desired_replicas(owner: &Value) -> u64 {
    if owner["kind"] == "DaemonSet" { 1 } else { owner["spec"]["replicas"].as_u64().unwrap_or(1) }
}

/// A stable hash of a template.
pub(super) fn hash(template: &Value) -> String {
    let fold = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:x}", template.to_string().bytes().fold(0xcbf2_9ce4_8422_2325, fold) >> 24)
}

fn is_ready(pod: &Value) -> bool {
    items(pod, "/status/conditions").any(|one| one["type"] == "Ready" && one["status"] == "True")
}

fn template(owner: &Value) -> Value {
    let mut template = owner["spec"]["template"].clone();
    if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(POD_TEMPLATE_HASH_LABEL);
    }
    template
}

async fn reconcile_deployment(core: &Core, deployment: &Value, sets: &[Value]) -> Result<(), StatusError> {
    let (template, replicas) = (template(deployment), desired_replicas(deployment));
    let (new, old): (Vec<&Value>, Vec<&Value>) = sets.iter().partition(|set| self::template(set) == template);
    let count = |sets: &[&Value], field: &str| sets.iter().filter_map(|set| set["status"][field].as_u64()).sum::<u64>();
    let recreate = text(deployment, "/spec/strategy/type") == "Recreate";
    match new.first() {
        _ if recreate && count(&old, "replicas") > 0 => {}
        Some(set) => scale(core, set, replicas).await?,
        None => core.create_if_absent("replicasets.apps", new_set(deployment, &template, replicas)).await?,
    }
    let available = count(&new, "availableReplicas");
    for set in old.iter().filter(|_| recreate || available >= replicas) {
        scale(core, set, 0).await?;
    }
    let (total, ready) = (count(&new, "replicas") + count(&old, "replicas"), count(&old, "readyReplicas") + available);
    let status = json!({
        "replicas": total, "updatedReplicas": count(&new, "replicas"), "readyReplicas": ready,
        "availableReplicas": ready, "unavailableReplicas": replicas.saturating_sub(ready),
        "conditions": conditions(deployment, &[("Available", ready >= replicas), ("Progressing", true)]),
    });
    write_status(core, "deployments.apps", deployment, status).await
}

async fn scale(core: &Core, set: &Value, replicas: u64) -> Result<(), StatusError> {
    core.modify(&key_of("replicasets.apps", set), move |set| set["spec"]["replicas"] = json!(replicas)).await
}

fn new_set(deployment: &Value, template: &Value, replicas: u64) -> Value {
    let hash = json!(hash(template));
    let mut set = json!({
        "metadata": {
            "name": format!("{}-{}", text(deployment, "/metadata/name"), hash.as_str().unwrap_or_default()),
            "namespace": deployment["metadata"]["namespace"], "labels": template["metadata"]["labels"],
            "ownerReferences": controller_reference(deployment),
        },
        "spec": {"replicas": replicas, "selector": deployment["spec"]["selector"], "template": template},
    });
    for pointer in ["/metadata", "/spec/template/metadata"] {
        set.pointer_mut(pointer)
            .map(|metadata| field(metadata, "labels").insert(POD_TEMPLATE_HASH_LABEL.to_owned(), hash.clone()));
    }
    field(&mut set["spec"]["selector"], "matchLabels").insert(POD_TEMPLATE_HASH_LABEL.to_owned(), hash);
    set
}

/// A pod from the template of its owner. A name that ends in `-` becomes `generateName`.
fn pod_of(owner: &Value, name: &str) -> Value {
    let mut pod = owner["spec"]["template"].clone();
    let name_field = if name.ends_with('-') { "generateName" } else { "name" };
    let metadata = metadata(&mut pod);
    metadata.insert(name_field.to_owned(), json!(name));
    metadata.insert("namespace".to_owned(), owner["metadata"]["namespace"].clone());
    metadata.insert("ownerReferences".to_owned(), controller_reference(owner));
    pod
}

async fn reconcile_replicas(core: &Core, owner: &Value, pods: Vec<Value>) -> Result<Value, StatusError> {
    let (finished, mut pods): (Vec<Value>, Vec<Value>) = pods.into_iter().partition(is_finished);
    let replicas = usize::try_from(desired_replicas(owner)).unwrap_or(usize::MAX);
    for _ in pods.len()..replicas {
        core.create_if_absent("pods", pod_of(owner, &format!("{}-", text(owner, "/metadata/name")))).await?;
    }
    // Ready pods are kept first, then the oldest.
    pods.sort_by_key(|pod| (!is_ready(pod), text(pod, "/metadata/creationTimestamp").to_owned()));
    for pod in pods.iter().skip(replicas).chain(&finished) {
        core.delete_exact(&key_of("pods", pod), pod).await?;
    }
    let (count, ready) = (pods.len(), pods.iter().filter(|pod| is_ready(pod)).count());
    if owner["kind"] == "DaemonSet" {
        return Ok(json!({"desiredNumberScheduled": 1, "currentNumberScheduled": count, "numberReady": ready,
            "numberAvailable": ready, "updatedNumberScheduled": count, "numberMisscheduled": 0}));
    }
    Ok(json!({"replicas": count, "fullyLabeledReplicas": count, "readyReplicas": ready, "availableReplicas": ready}))
}

/// Creates pods in order of their ordinal, each with its claims, after the previous one is ready; deletes from the last.
async fn reconcile_stateful_set(core: &Core, owner: &Value, pods: Vec<Value>) -> Result<Value, StatusError> {
    let (name, revision) = (text(owner, "/metadata/name"), hash(&template(owner)));
    let parallel = text(owner, "/spec/podManagementPolicy") == "Parallel";
    let number = |pod: &Value| text(pod, "/metadata/name").rsplit('-').next().and_then(|end| end.parse::<u64>().ok());
    let is_current = |pod: &Value| pod["metadata"]["labels"][REVISION_LABEL].as_str().is_none_or(|of| of == revision);
    for ordinal in 0..desired_replicas(owner) {
        let existing = pods.iter().find(|pod| number(pod) == Some(ordinal));
        if existing.is_none() {
            create_member(core, owner, &format!("{name}-{ordinal}"), &revision).await?;
        }
        if !parallel && !existing.is_some_and(is_ready) {
            break;
        }
    }
    let surplus = pods.iter().filter(|pod| number(pod) >= Some(desired_replicas(owner)) || is_finished(pod));
    let stale = pods.iter().filter(|pod| !is_current(pod) && pods.iter().all(is_ready));
    if let Some(pod) = surplus.max_by_key(|pod| number(pod)).or(stale.max_by_key(|pod| number(pod))) {
        core.delete_exact(&key_of("pods", pod), pod).await?;
    }
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let current = pods.iter().filter(|pod| is_current(pod)).count();
    Ok(json!({
        "replicas": pods.len(), "readyReplicas": ready, "availableReplicas": ready, "currentReplicas": current,
        "updatedReplicas": current, "currentRevision": revision, "updateRevision": revision,
    }))
}

async fn create_member(core: &Core, owner: &Value, name: &str, revision: &str) -> Result<(), StatusError> {
    let mut pod = pod_of(owner, name);
    let labels = [(REVISION_LABEL, revision), ("statefulset.kubernetes.io/pod-name", name)];
    field(&mut pod["metadata"], "labels").extend(labels.map(|(label, value)| (label.to_owned(), json!(value))));
    for claim in items(owner, "/spec/volumeClaimTemplates") {
        let volume = text(claim, "/metadata/name");
        let (mut claim, claim_name) = (claim.clone(), json!(format!("{volume}-{name}")));
        metadata(&mut claim).insert("name".to_owned(), claim_name.clone());
        metadata(&mut claim).insert("namespace".to_owned(), owner["metadata"]["namespace"].clone());
        let entry = json!({"name": volume, "persistentVolumeClaim": {"claimName": claim_name}});
        let volumes = field(&mut pod, "spec").entry("volumes").or_insert_with(|| json!([]));
        volumes.as_array_mut().into_iter().for_each(|all| all.push(entry.clone()));
        core.create_if_absent("persistentvolumeclaims", claim).await?;
    }
    core.create_if_absent("pods", pod).await
}

async fn reconcile_job(core: &Core, job: &Value, pods: Vec<Value>) -> Result<Value, StatusError> {
    let number = |field: &str, otherwise| job["spec"][field].as_u64().unwrap_or(otherwise);
    let count = |phase: &str| pods.iter().filter(|pod| text(pod, "/status/phase") == phase).count() as u64;
    let (succeeded, failed) = (count("Succeeded"), count("Failed"));
    let active = pods.len() as u64 - succeeded - failed;
    let (complete, is_failed) = (succeeded >= number("completions", 1), failed > number("backoffLimit", 6));
    let missing =
        number("parallelism", 1).min(number("completions", 1).saturating_sub(succeeded)).saturating_sub(active);
    for _ in 0..if complete || is_failed { 0 } else { missing } {
        core.create_if_absent("pods", pod_of(job, &format!("{}-", text(job, "/metadata/name")))).await?;
    }
    let mut status = json!({"active": active, "succeeded": succeeded, "failed": failed, "ready": active,
        "startTime": job["metadata"]["creationTimestamp"]});
    if complete || is_failed {
        status["conditions"] = conditions(job, &[(if complete { "Complete" } else { "Failed" }, true)]);
        status["completionTime"] = status["conditions"][0]["lastTransitionTime"].clone();
    }
    Ok(status)
}
