//! Objects as a stock Velero and a stock Kanister leave them.

use jiff::{SignedDuration, Timestamp};
use plimsoll_observe::{ClusterState, Kind};
use serde_json::{Value, json};

/// The moment at which all tests look.
pub fn now() -> Timestamp {
    "2026-11-16T03:00:00Z".parse().unwrap()
}

/// So many seconds before that.
pub fn ago(seconds: i64) -> String {
    (now() - SignedDuration::from_secs(seconds)).to_string()
}

/// An object that was created and last written so many seconds ago.
pub fn object(namespace: &str, name: &str, created: i64, written: i64) -> Value {
    json!({ "metadata": { "name": name, "namespace": namespace, "uid": format!("uid-{name}"),
        "creationTimestamp": ago(created), "managedFields": [{ "manager": "velero", "time": ago(written) }] } })
}

pub fn with(mut object: Value, rest: Value) -> Value {
    for (key, value) in rest.as_object().unwrap().clone() {
        if key == "labels" {
            object["metadata"]["labels"] = value;
        } else {
            object[key] = value;
        }
    }
    object
}

pub fn backup(name: &str, phase: &str, created: i64, written: i64) -> Value {
    with(
        object("velero", name, created, written),
        json!({ "spec": { "storageLocation": "default", "includedNamespaces": ["shop"] },
            "status": { "phase": phase, "startTimestamp": ago(created), "progress": { "totalItems": 400, "itemsBackedUp": 120 } } }),
    )
}

pub fn restore(name: &str, phase: &str, created: i64, written: i64) -> Value {
    with(
        object("velero", name, created, written),
        json!({ "spec": { "backupName": "nightly", "includedNamespaces": ["shop"] },
            "status": { "phase": phase, "startTimestamp": ago(created), "progress": { "totalItems": 40, "itemsRestored": 40 } } }),
    )
}

pub fn volume_backup(name: &str, backup: &str, phase: &str, written: i64, done: u64, total: u64) -> Value {
    with(
        object("velero", name, 600, written),
        json!({ "labels": { "velero.io/backup-name": backup },
            "spec": { "node": "node-1", "volume": "data", "pod": { "namespace": "shop", "name": "db-0" },
                "backupStorageLocation": "default" },
            "status": { "phase": phase, "startTimestamp": ago(600), "progress": { "bytesDone": done, "totalBytes": total } } }),
    )
}

pub fn volume_restore(name: &str, restore: &str, phase: &str, written: i64) -> Value {
    with(
        object("velero", name, 600, written),
        json!({ "labels": { "velero.io/restore-name": restore },
            "spec": { "volume": "data", "pod": { "namespace": "shop", "name": "db-0" },
                "backupStorageLocation": "default", "snapshotSize": 1_048_576 },
            "status": { "phase": phase } }),
    )
}

/// What a plugin writes about its work on a volume. It knows no labels: a server of ours adds them.
pub fn plugin_backup(name: &str, backup: &str, status: Value, written: i64) -> Value {
    with(
        object("velero", name, 600, written),
        json!({ "spec": { "volume": format!("pv-{name}"), "backup": backup, "plugin": "example.io/disks" }, "status": status }),
    )
}

pub fn plugin_restore(name: &str, restore: &str, status: Value, written: i64) -> Value {
    with(
        object("velero", name, 600, written),
        json!({ "labels": { "velero.io/restore-name": restore }, "spec": { "snapshotID": "snap-7", "plugin": "example.io/disks" },
            "status": status }),
    )
}

pub fn location(phase: &str, message: &str, validated: i64) -> Value {
    with(
        object("velero", "default", 90_000, validated),
        json!({ "spec": { "default": true }, "status": { "phase": phase, "message": message, "lastValidationTime": ago(validated) } }),
    )
}

pub fn pod(namespace: &str, name: &str, labels: Value, node: &str, status: Value) -> Value {
    with(object(namespace, name, 600, 600), json!({ "labels": labels, "spec": { "nodeName": node }, "status": status }))
}

pub fn ready() -> Value {
    json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] })
}

pub fn event(namespace: &str, pod: &str, reason: &str, message: &str, seconds: i64) -> Value {
    with(
        object(namespace, &format!("{pod}.{reason}"), seconds, seconds),
        json!({ "type": "Warning", "reason": reason, "message": message, "count": 9, "lastTimestamp": ago(seconds),
            "involvedObject": { "kind": "Pod", "namespace": namespace, "name": pod } }),
    )
}

pub fn server(ready: u64, replicas: u64) -> Value {
    with(
        object("velero", "velero", 90_000, 90_000),
        json!({ "labels": { "component": "velero" }, "spec": { "replicas": replicas }, "status": { "readyReplicas": ready } }),
    )
}

/// A Velero in good health: server, node agent on its node, a location that was looked at just now.
pub fn healthy() -> ClusterState {
    let mut cluster = ClusterState::new("velero", now())
        .with(Kind::Location, location("Available", "", 20))
        .with(Kind::Deployment, server(1, 1))
        .with(Kind::DaemonSet, object("velero", "node-agent", 90_000, 90_000))
        .with(Kind::Node, json!({ "metadata": { "name": "node-1" }, "status": { "conditions": [{ "type": "Ready", "status": "True" }] } }))
        .with(Kind::Pod, pod("velero", "velero-1", json!({ "deploy": "velero", "component": "velero" }), "node-1", ready()))
        .with(Kind::Pod, pod("velero", "node-agent-1", json!({ "name": "node-agent", "component": "velero" }), "node-1", ready()))
        .with(Kind::Pod, pod("shop", "db-0", json!({}), "node-1", ready()));
    for kind in Kind::CUSTOM.into_iter().filter(|kind| *kind != Kind::Location) {
        cluster.put(kind, Vec::new());
    }
    cluster
}

/// The Deployment of our own server.
pub fn our_server(ready: u64, replicas: u64) -> Value {
    with(
        object("velero", "plimsoll", 90_000, 90_000),
        json!({ "labels": { "app.kubernetes.io/name": "plimsoll" }, "spec": { "replicas": replicas }, "status": { "readyReplicas": ready } }),
    )
}

/// Our own server in good health, in the place of Velero's.
pub fn healthy_of_ours() -> ClusterState {
    let mut cluster = healthy();
    for kind in [Kind::Deployment, Kind::DaemonSet] {
        cluster.put(kind, Vec::new());
    }
    let others = cluster.all(Kind::Pod).iter().filter(|pod| pod.namespace() == "shop").cloned().collect();
    cluster.put(Kind::Pod, others);
    let mark = json!({ "app.kubernetes.io/name": "plimsoll" });
    // Longer than a working server may be silent, but not long enough to be reported as late.
    cluster.add(plimsoll_observe::Object::new(Kind::Location, location("Available", "", 50)));
    cluster
        .with(Kind::Deployment, our_server(1, 1))
        .with(Kind::Pod, pod("velero", "plimsoll-1", mark, "node-1", ready()))
}

/// What our own server wrote so many seconds ago about something that it works on.
pub fn operation(verb: &str, subject: &str, written: i64) -> Value {
    let name = format!("{verb}-{subject}");
    let tree = json!({ "operation": name, "nodes": [
        { "path": "", "name": name, "state": "running", "percent": "~43.33", "ages": { "elapsedMs": 60000, "advanceMs": 100 } },
        { "path": "reading", "name": "reading", "state": "running", "item": "secrets in shop", "ages": { "elapsedMs": 50000, "advanceMs": 100 } }] });
    with(
        object("velero", &name, 60, written),
        json!({ "spec": { "subject": { "uid": format!("uid-{subject}") } }, "status": { "state": "Running", "tree": tree } }),
    )
}
