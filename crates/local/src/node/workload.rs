//! From workloads to pods: Deployments to `ReplicaSets`, and sets to the pods they want.

use super::{conditions, is_finished, key_of, pod::items};
use crate::{
    Core,
    failure::Failure,
    object::{field, is_terminating, metadata, text},
};
use plimsoll_select::labels;
use serde_json::{Value, json};
use std::collections::HashMap;

const HASH: &str = "pod-template-hash";
const REVISION: &str = "controller-revision-hash";

/// Brings every workload one step nearer to what it wants.
pub(super) async fn reconcile(core: &Core) -> Result<(), Failure> {
    let mut sets = Controlled::all(core, "replicasets.apps")?;
    for deployment in live(core.all("deployments.apps")?) {
        let sets = adopted(core, &mut sets, &deployment, true).await?;
        deploy(core, &deployment, &sets).await?;
    }
    let mut pods = Controlled::all(core, "pods")?;
    for resource in ["replicasets.apps", "daemonsets.apps", "statefulsets.apps", "jobs.batch"] {
        for owner in live(core.all(resource)?) {
            let pods = adopted(core, &mut pods, &owner, resource != "jobs.batch").await?;
            let status = match resource {
                "jobs.batch" => work_off(core, &owner, pods).await?,
                "statefulsets.apps" => keep_in_order(core, &owner, live(pods)).await?,
                _ => keep_count(core, &owner, live(pods)).await?,
            };
            report(core, resource, &owner, status).await?;
        }
    }
    Ok(())
}

fn live(objects: Vec<Value>) -> Vec<Value> {
    objects.into_iter().filter(|object| !is_terminating(object)).collect()
}

/// All objects of a kind by the uid of who controls them: read once for a pass, however many owners there are.
struct Controlled {
    resource: &'static str,
    by_owner: HashMap<String, Vec<Value>>,
    /// Those that nobody controls.
    free: Vec<Value>,
}

impl Controlled {
    fn all(core: &Core, resource: &'static str) -> Result<Self, Failure> {
        let mut all = Self { resource, by_owner: HashMap::new(), free: Vec::new() };
        for object in core.all(resource)? {
            let owner = items(&object, "/metadata/ownerReferences").find(|owner| owner["controller"] == true);
            match owner.and_then(|owner| owner["uid"].as_str().map(str::to_owned)) {
                Some(uid) => all.by_owner.entry(uid).or_default().push(object),
                None => all.free.push(object),
            }
        }
        Ok(all)
    }
}

/// The objects that an owner controls; those that fit and have no controller, as after a restore, become its own.
async fn adopted(core: &Core, all: &mut Controlled, owner: &Value, adopt: bool) -> Result<Vec<Value>, Failure> {
    let mut own = all.by_owner.remove(text(owner, "/metadata/uid")).unwrap_or_default();
    let selector = serde_json::from_value(owner["spec"]["selector"].clone()).unwrap_or_default();
    let selector = labels::Selector::new(&selector).unwrap_or_default();
    if !adopt || selector.is_empty() {
        return Ok(own);
    }
    let namespace = text(owner, "/metadata/namespace");
    let fits = |object: &mut Value| {
        text(object, "/metadata/namespace") == namespace && selector.matches(&object["metadata"]["labels"])
    };
    for object in all.free.extract_if(.., fits) {
        let (key, reference) = (key_of(all.resource, &object), controller(owner));
        core.alter(&key, move |object| drop(metadata(object).insert("ownerReferences".into(), reference))).await?;
        own.push(object);
    }
    Ok(own)
}

fn controller(owner: &Value) -> Value {
    json!([{"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true}])
}

async fn report(core: &Core, resource: &str, owner: &Value, mut status: Value) -> Result<(), Failure> {
    status["observedGeneration"] = owner["metadata"]["generation"].clone();
    core.alter(&key_of(resource, owner), move |owner| owner["status"] = status).await
}

fn wanted(owner: &Value) -> u64 {
    if owner["kind"] == "DaemonSet" { 1 } else { owner["spec"]["replicas"].as_u64().unwrap_or(1) }
}

/// A name for a template that stays the same while the template does.
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
        labels.remove(HASH);
    }
    template
}

async fn deploy(core: &Core, deployment: &Value, sets: &[Value]) -> Result<(), Failure> {
    let (template, replicas) = (template(deployment), wanted(deployment));
    let (new, old): (Vec<&Value>, Vec<&Value>) = sets.iter().partition(|set| self::template(set) == template);
    let count = |sets: &[&Value], field: &str| sets.iter().filter_map(|set| set["status"][field].as_u64()).sum::<u64>();
    let recreate = text(deployment, "/spec/strategy/type") == "Recreate";
    match new.first() {
        _ if recreate && count(&old, "replicas") > 0 => {}
        Some(set) => scale(core, set, replicas).await?,
        None => core.make("replicasets.apps", new_set(deployment, &template, replicas)).await?,
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
    report(core, "deployments.apps", deployment, status).await
}

async fn scale(core: &Core, set: &Value, replicas: u64) -> Result<(), Failure> {
    core.alter(&key_of("replicasets.apps", set), move |set| set["spec"]["replicas"] = json!(replicas)).await
}

fn new_set(deployment: &Value, template: &Value, replicas: u64) -> Value {
    let hash = json!(hash(template));
    let mut set = json!({
        "metadata": {
            "name": format!("{}-{}", text(deployment, "/metadata/name"), hash.as_str().unwrap_or_default()),
            "namespace": deployment["metadata"]["namespace"], "labels": template["metadata"]["labels"],
            "ownerReferences": controller(deployment),
        },
        "spec": {"replicas": replicas, "selector": deployment["spec"]["selector"], "template": template},
    });
    for place in ["/metadata", "/spec/template/metadata"] {
        set.pointer_mut(place).map(|metadata| field(metadata, "labels").insert(HASH.to_owned(), hash.clone()));
    }
    field(&mut set["spec"]["selector"], "matchLabels").insert(HASH.to_owned(), hash);
    set
}

/// A pod as its owner wants it. A name that ends in `-` is completed by the API.
fn pod_of(owner: &Value, name: &str) -> Value {
    let mut pod = owner["spec"]["template"].clone();
    let which = if name.ends_with('-') { "generateName" } else { "name" };
    let metadata = metadata(&mut pod);
    metadata.insert(which.to_owned(), json!(name));
    metadata.insert("namespace".to_owned(), owner["metadata"]["namespace"].clone());
    metadata.insert("ownerReferences".to_owned(), controller(owner));
    pod
}

async fn keep_count(core: &Core, owner: &Value, pods: Vec<Value>) -> Result<Value, Failure> {
    let (over, mut pods): (Vec<Value>, Vec<Value>) = pods.into_iter().partition(is_finished);
    let replicas = usize::try_from(wanted(owner)).unwrap_or(usize::MAX);
    for _ in pods.len()..replicas {
        core.make("pods", pod_of(owner, &format!("{}-", text(owner, "/metadata/name")))).await?;
    }
    // Those that work stay, and of those the oldest.
    pods.sort_by_key(|pod| (!is_ready(pod), text(pod, "/metadata/creationTimestamp").to_owned()));
    for pod in pods.iter().skip(replicas).chain(&over) {
        core.remove(&key_of("pods", pod), pod).await?;
    }
    let (count, ready) = (pods.len(), pods.iter().filter(|pod| is_ready(pod)).count());
    if owner["kind"] == "DaemonSet" {
        return Ok(json!({"desiredNumberScheduled": 1, "currentNumberScheduled": count, "numberReady": ready,
            "numberAvailable": ready, "updatedNumberScheduled": count, "numberMisscheduled": 0}));
    }
    Ok(json!({"replicas": count, "fullyLabeledReplicas": count, "readyReplicas": ready, "availableReplicas": ready}))
}

/// One after the other by number, each with its claims; upwards when the one before is ready, downwards from the last.
async fn keep_in_order(core: &Core, owner: &Value, pods: Vec<Value>) -> Result<Value, Failure> {
    let (name, revision) = (text(owner, "/metadata/name"), hash(&template(owner)));
    let parallel = text(owner, "/spec/podManagementPolicy") == "Parallel";
    let number = |pod: &Value| text(pod, "/metadata/name").rsplit('-').next().and_then(|end| end.parse::<u64>().ok());
    let is_current = |pod: &Value| pod["metadata"]["labels"][REVISION].as_str().is_none_or(|of| of == revision);
    for ordinal in 0..wanted(owner) {
        let there = pods.iter().find(|pod| number(pod) == Some(ordinal));
        if there.is_none() {
            start_member(core, owner, &format!("{name}-{ordinal}"), &revision).await?;
        }
        if !parallel && !there.is_some_and(is_ready) {
            break;
        }
    }
    let surplus = pods.iter().filter(|pod| number(pod) >= Some(wanted(owner)) || is_finished(pod));
    let stale = pods.iter().filter(|pod| !is_current(pod) && pods.iter().all(is_ready));
    if let Some(pod) = surplus.max_by_key(|pod| number(pod)).or(stale.max_by_key(|pod| number(pod))) {
        core.remove(&key_of("pods", pod), pod).await?;
    }
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let current = pods.iter().filter(|pod| is_current(pod)).count();
    Ok(json!({
        "replicas": pods.len(), "readyReplicas": ready, "availableReplicas": ready, "currentReplicas": current,
        "updatedReplicas": current, "currentRevision": revision, "updateRevision": revision,
    }))
}

async fn start_member(core: &Core, owner: &Value, name: &str, revision: &str) -> Result<(), Failure> {
    let mut pod = pod_of(owner, name);
    let labels = [(REVISION, revision), ("statefulset.kubernetes.io/pod-name", name)];
    field(&mut pod["metadata"], "labels").extend(labels.map(|(label, value)| (label.to_owned(), json!(value))));
    for claim in items(owner, "/spec/volumeClaimTemplates") {
        let volume = text(claim, "/metadata/name");
        let (mut claim, full) = (claim.clone(), json!(format!("{volume}-{name}")));
        metadata(&mut claim).insert("name".to_owned(), full.clone());
        metadata(&mut claim).insert("namespace".to_owned(), owner["metadata"]["namespace"].clone());
        let entry = json!({"name": volume, "persistentVolumeClaim": {"claimName": full}});
        let volumes = field(&mut pod, "spec").entry("volumes").or_insert_with(|| json!([]));
        volumes.as_array_mut().into_iter().for_each(|all| all.push(entry.clone()));
        core.make("persistentvolumeclaims", claim).await?;
    }
    core.make("pods", pod).await
}

async fn work_off(core: &Core, job: &Value, pods: Vec<Value>) -> Result<Value, Failure> {
    let number = |field: &str, otherwise| job["spec"][field].as_u64().unwrap_or(otherwise);
    let count = |phase: &str| pods.iter().filter(|pod| text(pod, "/status/phase") == phase).count() as u64;
    let (done, failed) = (count("Succeeded"), count("Failed"));
    let active = pods.len() as u64 - done - failed;
    let (complete, broken) = (done >= number("completions", 1), failed > number("backoffLimit", 6));
    let more = number("parallelism", 1).min(number("completions", 1).saturating_sub(done)).saturating_sub(active);
    for _ in 0..if complete || broken { 0 } else { more } {
        core.make("pods", pod_of(job, &format!("{}-", text(job, "/metadata/name")))).await?;
    }
    let mut status = json!({"active": active, "succeeded": done, "failed": failed, "ready": active,
        "startTime": job["metadata"]["creationTimestamp"]});
    if complete || broken {
        status["conditions"] = conditions(job, &[(if complete { "Complete" } else { "Failed" }, true)]);
        status["completionTime"] = status["conditions"][0]["lastTransitionTime"].clone();
    }
    Ok(status)
}
