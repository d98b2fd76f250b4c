//! What users see of sets that run, and templates of what the sets are about.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::actions::{ProgressWatch, act_on, ask, completed, ended, make, output, shell, state, task};
use crate::bed::{Bed, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn two_actions_in_the_same_phase_do_not_affect_each_other() {
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let _server = home.server();
    let gate = bed.directory.path().join("gate");
    std::fs::create_dir_all(&gate).unwrap();
    let line = format!(
        "until [ -e /gate/{{{{ .Options.who }}}} ]; do sleep 0.05; done; {}",
        output("who", "{{ .Options.who }}")
    );
    let mut phase = task("same", &line);
    phase["args"]["podOverride"] = json!({
        "volumes": [{ "name": "gate", "hostPath": { "path": gate } }],
        "containers": [{ "name": "container", "volumeMounts": [{ "name": "gate", "mountPath": "/gate" }] }],
    });
    make(&home, "Blueprint", "bp", json!({ "actions": { "act": { "phases": [phase] } } })).await;
    let object = json!({ "kind": "Namespace", "name": home.namespace, "namespace": home.namespace });
    let one = |who: &str| json!({ "name": "act", "blueprint": "bp", "object": object, "options": { "who": who } });
    make(&home, "ActionSet", "set", json!({ "spec": { "actions": [one("first"), one("second")] } })).await;

    let mut seen = ProgressWatch::default();
    let percents = async |seen: &mut ProgressWatch| {
        let set = home.get("ActionSet", "set").await;
        seen.record(&set);
        let of = |at: usize| set["status"]["actions"][at]["phases"][0]["progress"]["progressPercent"].clone();
        (of(0), of(1), set["status"]["progress"]["runningPhases"].clone())
    };
    eventually("both run", async || {
        let (first, second, running) = percents(&mut seen).await;
        first == "33.33" && second == "33.33" && running == json!(["act/same", "act/same"])
    })
    .await;
    std::fs::write(gate.join("second"), "").unwrap();
    eventually("the second one has ended, and the first one is where it was", async || {
        let (first, second, running) = percents(&mut seen).await;
        assert_eq!(first, "33.33");
        second == "100.00" && running == json!(["act/same"])
    })
    .await;
    std::fs::write(gate.join("first"), "").unwrap();
    let set = ended(&home, "set", &mut seen).await;
    assert_eq!(state(&set), "complete", "{set:#}");
    let outputs = [0, 1].map(|at: usize| set["status"]["actions"][at]["phases"][0]["output"]["who"].clone());
    assert_eq!(outputs, ["first", "second"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_is_scaled_shows_how_many_of_its_replicas_are_ready() {
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let _server = home.server();
    let gate = bed.directory.path().join("gate");
    std::fs::create_dir_all(&gate).unwrap();
    let volume = json!([{ "name": "gate", "hostPath": { "path": gate } }]);
    let mount = json!([{ "name": "gate", "mountPath": "/gate" }]);
    let template = json!({ "metadata": { "labels": { "app": "db" } }, "spec": { "volumes": volume,
        "initContainers": [{ "name": "wait", "image": "any", "volumeMounts": mount,
            "command": shell("until [ -e /gate/$HOSTNAME ]; do sleep 0.05; done") }],
        "containers": [{ "name": "db", "image": "any", "command": shell("exec sleep 10000") }] } });
    make(
        &home,
        "StatefulSet",
        "db",
        json!({ "spec": { "replicas": 0, "serviceName": "db", "podManagementPolicy": "Parallel",
        "selector": { "matchLabels": { "app": "db" } }, "template": template } }),
    )
    .await;
    let phase = json!({ "func": "ScaleWorkload", "name": "up", "args": { "replicas": 2 } });
    make(&home, "Blueprint", "bp", json!({ "actions": { "act": { "phases": [phase] } } })).await;
    let object = json!({ "kind": "StatefulSet", "name": "db", "namespace": home.namespace });
    act_on(&home, object).await;
    std::fs::write(gate.join("db-0"), "").unwrap();
    let mut seen = ProgressWatch::default();
    eventually("one of two is ready", async || {
        let set = home.get("ActionSet", "set").await;
        seen.record(&set);
        let percent = &set["status"]["actions"][0]["phases"][0]["progress"]["progressPercent"];
        assert!(percent.is_null() || percent == "0.00", "{set:#}");
        let operation = home.find("Operation", "run-set").await.unwrap_or_default();
        let nodes = operation["status"]["tree"]["nodes"].as_array().cloned().unwrap_or_default();
        let counts = nodes.iter().filter(|node| node["name"] == "up").map(|node| node["meters"][0].clone());
        let ready = |counts: &Value| counts["done"] == 1 && counts["total"] == json!({ "growing": 2 });
        percent == "0.00" && counts.into_iter().any(|counts| counts["unit"] == "items" && ready(&counts))
    })
    .await;
    std::fs::write(gate.join("db-1"), "").unwrap();
    let set = ended(&home, "set", &mut seen).await;
    assert_eq!(state(&set), "complete", "{set:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn following_prints_the_end_of_a_log_longer_than_the_limit() {
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let _server = home.server();
    let gate = bed.directory.path().join("gate");
    std::fs::create_dir_all(&gate).unwrap();
    let until = |name: &str| format!("until [ -e /gate/{name} ]; do sleep 0.05; done");
    let mut phase =
        task("chatty", &format!("echo the beginning; {}; seq -f 'line %.0f of many' 12000; echo the end", until("go")));
    phase["args"]["podOverride"] = json!({
        "volumes": [{ "name": "gate", "hostPath": { "path": gate } }],
        "containers": [{ "name": "container", "volumeMounts": [{ "name": "gate", "mountPath": "/gate" }] }],
    });
    make(&home, "Blueprint", "bp", json!({ "actions": { "act": { "phases": [phase] } } })).await;
    ask(&home, "set", "bp", &["act"]).await;
    let operation = async || home.find("Operation", "run-set").await.unwrap_or_default()["status"]["log"].to_string();
    eventually("its beginning is shown", async || operation().await.contains("the beginning")).await;
    let followed = tokio::spawn(home.command(&["action", "logs", "set", "--follow"]).output());
    std::fs::write(gate.join("go"), "").unwrap();
    let followed = followed.await.unwrap().unwrap();
    let text = String::from_utf8_lossy(&followed.stdout).into_owned();
    let set = completed(&home, "set").await;
    assert_eq!(state(&set), "complete");
    assert!(text.contains("the beginning"), "{}", &text[..text.len().min(2000)]);
    assert!(
        text.contains("act/chatty: the end") && text.contains("line 12000 of many"),
        "{}",
        &text[text.len().saturating_sub(2000)..]
    );
    let mut numbers: Vec<u32> =
        text.lines().filter_map(|line| line.split("line ").nth(1)?.split(' ').next()?.parse().ok()).collect();
    let all = numbers.len();
    numbers.dedup();
    assert_eq!(all, numbers.len(), "nothing is printed twice");
    let later = home.command(&["action", "logs", "set"]).output().await.unwrap();
    let kept = String::from_utf8_lossy(&later.stdout).into_owned();
    assert!(kept.contains("the end") && !kept.contains("the beginning") && kept.len() <= 256 << 10, "{}", kept.len());
    assert!(String::from_utf8_lossy(&later.stderr).contains("bytes of this log were not kept"), "{later:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_a_deployment_config_are_those_of_its_latest_controller() {
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let _server = home.server();
    let of = |version: &str, kind: &str| {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match kind {
            "CustomResourceDefinition" => Api::<DynamicObject>::all_with(bed.client.clone(), &resource),
            _ => Api::namespaced_with(bed.client.clone(), &home.namespace, &resource),
        }
    };
    let create = async |version: &str, kind: &str, fields: Value| {
        let mut object = json!({ "apiVersion": version, "kind": kind });
        object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let made = of(version, kind).create(&PostParams::default(), &object).await.unwrap();
        json!({ "apiVersion": version, "kind": kind, "name": made.metadata.name, "uid": made.metadata.uid, "controller": true })
    };
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    create(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        json!({
            "metadata": { "name": "deploymentconfigs.apps.openshift.io" },
            "spec": { "group": "apps.openshift.io", "scope": "Namespaced",
                "names": { "plural": "deploymentconfigs", "singular": "deploymentconfig", "kind": "DeploymentConfig" },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema }] },
        }),
    )
    .await;
    let configs = of("apps.openshift.io/v1", "DeploymentConfig");
    eventually("the definition is established", async || configs.list(&ListParams::default()).await.is_ok()).await;
    let config = create(
        "apps.openshift.io/v1",
        "DeploymentConfig",
        json!({ "metadata": { "name": "db" }, "status": { "latestVersion": 2 } }),
    )
    .await;
    for version in ["1", "2"] {
        let name = format!("db-{version}");
        let annotations = json!({ "openshift.io/deployment-config.latest-version": version });
        let owned = |name: &str, owner: &Value| json!({ "name": name, "ownerReferences": [owner] });
        let mut metadata = owned(&name, &config);
        metadata["annotations"] = annotations;
        // Without its own pods: the cluster may not run pods.
        let controller = create("v1", "ReplicationController", json!({ "metadata": metadata, "spec": { "replicas": 0,
            "selector": { "v": version }, "template": { "metadata": { "labels": { "v": version } }, "spec": { "containers": [{ "name": "db", "image": "any" }] } } } })).await;
        let pod = format!("{name}-pod");
        create(
            "v1",
            "Pod",
            json!({ "metadata": owned(&pod, &controller), "spec": { "containers": [
            { "name": "db", "image": "any", "command": shell("exec sleep 10000") }] } }),
        )
        .await;
        eventually("the pod runs", async || home.get("Pod", &pod).await["status"]["phase"] == "Running").await;
    }
    let seen = "{{ .DeploymentConfig.Name }} {{ index .DeploymentConfig.Pods 0 }} {{ len .DeploymentConfig.Pods }} {{ index .DeploymentConfig.Containers 0 0 }}";
    make(&home, "Blueprint", "bp", json!({ "actions": { "act": { "phases": [task("see", &output("seen", seen))] } } }))
        .await;
    let object = json!({ "kind": "DeploymentConfig", "name": "db", "namespace": home.namespace });
    act_on(&home, object).await;
    let set = completed(&home, "set").await;
    assert_eq!(set["status"]["actions"][0]["phases"][0]["output"], json!({ "seen": "db db-2-pod 1 db" }));
}
