//! A restore that does all it can do, killed at every effect of its own.

use serde_json::{Value, json};

use crate::bed::{Bed, Home, on_both_clusters, phase};
use crate::killed::{essence, kill_at_each, kill_points, name_of, points_to_kill, run_with_kill, trace_of};
use crate::planted::{Planted, config_map, create, read};

on_both_clusters! {
    a_restore_with_every_effect_killed_at_any_of_them_ends_as_an_undisturbed_one,
}

const EFFECTS: [&str; 6] =
    ["restore.namespace", "restore.create", "restore.change", "restore.owners", "restore.status", "status.finalizing"];

/// Objects that are created, changed, merged, given a status and given their owners.
async fn plant(home: &Home<'_>, existing: &str, fresh: &str) {
    let applied = json!([{ "manager": "kubectl", "operation": "Apply", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": { "f:data": { "f:k": {} } } }]);
    let mut owned = config_map(fresh, "owned", "1");
    owned["metadata"]["managedFields"] = applied;
    let balancer = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web", "namespace": fresh },
        "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] },
        "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } } });
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "robot", "namespace": existing },
        "imagePullSecrets": [{ "name": "backed-up" }] });
    Planted::new()
        .object("configmaps", &config_map(existing, "changed", "backed up"))
        .object("configmaps", &config_map(existing, "same", "same"))
        .object("configmaps", &owned)
        .object("services", &balancer)
        .object("serviceaccounts", &account)
        .plant(home, "b")
        .await;
}

async fn prepare(bed: &Bed, name: &str) -> (String, String) {
    let existing = bed.application(&format!("there-{name}"), 0).await;
    create(bed, &config_map(&existing, "changed", "here")).await;
    create(bed, &config_map(&existing, "same", "same")).await;
    create(bed, &json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "robot", "namespace": existing } })).await;
    (existing, bed.ns(&format!("fresh-{name}")))
}

fn spec() -> Value {
    json!({ "backupName": "b", "existingResourcePolicy": "update", "restoreStatus": { "includedResources": ["services"] } })
}

async fn left(bed: &Bed, existing: &str, fresh: &str) -> Value {
    let of = async |kind: &str, namespace: &str, name: &str| {
        read(bed, "v1", kind, Some(namespace), name).await.unwrap_or_default()
    };
    let owned = of("ConfigMap", fresh, "owned").await;
    let owners: Vec<Value> = owned["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| entry["manager"].clone())
        .collect();
    let label = |object: &Value| object["metadata"]["labels"]["velero.io/restore-name"].clone();
    let (changed, same) = (of("ConfigMap", existing, "changed").await, of("ConfigMap", existing, "same").await);
    json!({
        "changed": changed["data"], "labels": [label(&changed), label(&same), label(&owned)], "owners": owners,
        "pulls": of("ServiceAccount", existing, "robot").await["imagePullSecrets"],
        "address": of("Service", fresh, "web").await["status"]["loadBalancer"],
    })
}

async fn a_restore_with_every_effect_killed_at_any_of_them_ends_as_an_undisturbed_one(bed: &Bed) {
    let model = bed.home("model").await;
    let (existing, fresh) = prepare(bed, "model").await;
    plant(&model, &existing, &fresh).await;
    model.restore("r", spec()).await;
    let (undisturbed, _) = run_with_kill(&model, None, "Restore", "r").await;
    assert_eq!(phase(&undisturbed), "Completed", "{undisturbed:#}\n{}", model.log());
    let expected = left(bed, &existing, &fresh).await;
    assert_eq!(expected["changed"]["k"], "backed up", "{expected:#}");
    let trace = trace_of(&model, "Restore");
    let is_effect = |point: &String| EFFECTS.iter().any(|effect| point.starts_with(effect));
    let all: Vec<String> = kill_points(&trace).into_iter().filter(is_effect).collect();
    let met = EFFECTS.iter().filter(|effect| all.iter().any(|point| point.starts_with(*effect))).count();
    assert_eq!(met, EFFECTS.len(), "every effect is met: {all:?}");
    let points: Vec<String> = points_to_kill(bed, &trace).into_iter().filter(is_effect).collect();

    let (undisturbed, expected) = (&undisturbed, &expected);
    kill_at_each(points, |point| async move {
        let name = name_of(&point);
        let home = bed.home(&name).await;
        let (existing, fresh) = prepare(bed, &name).await;
        plant(&home, &existing, &fresh).await;
        home.restore("r", spec()).await;
        let (restore, died) = run_with_kill(&home, Some(&point), "Restore", "r").await;
        assert_eq!(essence(&restore), essence(undisturbed), "killed at {point}\n{}", home.log());
        assert_eq!(left(bed, &existing, &fresh).await, *expected, "killed at {point}");
        died
    })
    .await;
}
