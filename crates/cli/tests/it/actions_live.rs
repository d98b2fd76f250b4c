//! Live progress of a phase whose command moves its own data, and the flags of `kanctl`.

use plimsoll_testkit::peers::S3Server;
use serde_json::{Value, json};

use crate::actions::{ProgressWatch, ended, make, message, profile, shell, state};
use crate::bed::{Bed, Home, eventually};

const FIRST: u64 = 3_000_000;
const WHOLE: u64 = FIRST + 1000;

/// Two pods' worth of pipes that stand still until a file is there, and a command in a running pod.
fn blueprint(home: &Home<'_>) -> Value {
    let gate = home.bed.directory.path().join("gate");
    std::fs::create_dir_all(&gate).unwrap();
    let pod = json!({ "volumes": [{ "name": "gate", "hostPath": { "path": gate } }],
        "containers": [{ "name": "container", "volumeMounts": [{ "name": "gate", "mountPath": "/gate" }] }] });
    let until = |name: &str| format!("until [ -e /gate/{name} ]; do sleep 0.1; done");
    let kando = |verb: &str| format!("kando location {verb} --profile '{{{{ toJson .Profile }}}}' --path big");
    let task = |name: &str, line: String| json!({ "func": "KubeTask", "name": name, "args": { "image": "any", "podOverride": pod, "command": shell(&line) } });
    let push =
        format!("{{ head -c {FIRST} /dev/zero; {}; head -c 1000 /dev/zero; }} | {} -", until("push"), kando("push"));
    let pull = format!("{} - | {{ head -c 1000000 > /dev/null; {}; cat > /dev/null; }}", kando("pull"), until("pull"));
    let own =
        format!("head -c 5000 /dev/zero > /tmp/file; {} {} /tmp/file", env!("CARGO_BIN_EXE_plimsoll"), kando("push"));
    let exec = json!({ "func": "KubeExec", "name": "exec", "args": { "namespace": home.namespace, "pod": "app", "command": shell(&own) } });
    json!({ "actions": { "act": { "phases": [task("push", push), task("pull", pull), exec] } } })
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_moved_by_a_pipe_in_a_pod_are_shown_live() {
    let bed = Bed::local_with_pods().await;
    let s3 = S3Server::start("127.0.0.1").unwrap();
    s3.create_bucket("live").unwrap();
    let home = bed.home("home").await;
    let arguments = ["--lease-duration", "15s", "--tools-image", "plimsoll"];
    let _server = home.server_through(&bed.kubeconfig, &arguments, &[]);
    profile(&home, &s3, "live").await;
    make(
        &home,
        "Pod",
        "app",
        json!({ "spec": { "containers": [{ "name": "app", "image": "any", "command": shell("exec sleep 10000") }] } }),
    )
    .await;
    make(&home, "Blueprint", "live", blueprint(&home)).await;
    let object = json!({ "kind": "Namespace", "name": home.namespace, "namespace": home.namespace });
    let action = json!({ "name": "act", "blueprint": "live", "object": object, "profile": { "name": "s3", "namespace": home.namespace } });
    make(&home, "ActionSet", "set", json!({ "spec": { "actions": [action] } })).await;

    let mut seen = ProgressWatch::default();
    let open = |gate: &str| std::fs::write(bed.directory.path().join("gate").join(gate), "").unwrap();
    eventually("the bytes of the pipe are counted", async || {
        let set = home.get("ActionSet", "set").await;
        seen.record(&set);
        let progress = &set["status"]["actions"][0]["phases"][0]["progress"];
        let sent = progress["sizeUploadedB"].as_u64().unwrap_or(0);
        // The total is not known.
        assert!(sent == 0 || progress["progressPercent"] == "33.33", "{progress:#}");
        assert!(
            progress["estimatedUploadSizeB"].is_null() && progress["estimatedTimeSeconds"].is_null(),
            "{progress:#}"
        );
        sent > FIRST / 2
    })
    .await;
    open("push");
    eventually("the pull moves inside the second third", async || {
        let set = home.get("ActionSet", "set").await;
        seen.record(&set);
        assert_ne!(state(&set), "failed", "{}\n{}", message(&set), home.log());
        let progress = &set["status"]["actions"][0]["phases"][1]["progress"];
        let percent: f64 = progress["progressPercent"].as_str().unwrap_or("0").parse().unwrap();
        assert!(percent < 66.66, "{progress:#}");
        percent > 33.33 && progress["estimatedDownloadSizeB"] == WHOLE && progress["sizeDownloadedB"].as_u64() > Some(0)
    })
    .await;
    open("pull");
    let set = ended(&home, "set", &mut seen).await;
    assert_eq!(state(&set), "complete", "{}\n{}", message(&set), home.log());
    let phases = &set["status"]["actions"][0]["phases"];
    assert_eq!(phases[0]["progress"]["sizeUploadedB"], WHOLE);
    assert_eq!(phases[1]["progress"]["sizeDownloadedB"], WHOLE);
    assert_eq!(phases[2]["progress"]["sizeUploadedB"], 5000, "read from standard error: {:#}", phases[2]);
    assert_eq!(set["status"]["progress"]["sizeUploadedB"], WHOLE + 5000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_action_is_not_reported_as_stalled() {
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let _server = home.server();
    let gate = bed.directory.path().join("gate");
    std::fs::create_dir_all(&gate).unwrap();
    let pod = json!({ "volumes": [{ "name": "gate", "hostPath": { "path": gate } }],
        "containers": [{ "name": "container", "volumeMounts": [{ "name": "gate", "mountPath": "/gate" }] }] });
    let wait = "until [ -e /gate/open ]; do sleep 0.1; done";
    let task = json!({ "func": "KubeTask", "name": "wait", "args": { "image": "any", "podOverride": pod, "command": shell(wait) } });
    make(&home, "Blueprint", "waits", json!({ "actions": { "act": { "phases": [task] } } })).await;
    let object = json!({ "kind": "Namespace", "name": home.namespace, "namespace": home.namespace });
    let action = json!({ "name": "act", "blueprint": "waits", "object": object });
    make(&home, "ActionSet", "set", json!({ "spec": { "actions": [action] } })).await;
    eventually("it is at work", async || state(&home.get("ActionSet", "set").await) == "running").await;
    let output = home.command(&["top", "-o", "json"]).output().await.unwrap();
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let line = &listed["operations"][0];
    assert_eq!(output.status.code(), Some(0), "{listed:#}");
    assert!(line["verdict"] != "Stuck" && line["causes"].as_array().is_some_and(Vec::is_empty), "{listed:#}");
    std::fs::write(gate.join("open"), "").unwrap();
    let set = ended(&home, "set", &mut ProgressWatch::default()).await;
    assert_eq!(state(&set), "complete", "{}\n{}", message(&set), home.log());
}

/// What would be made, or why not.
async fn dry_run(home: &Home<'_>, arguments: &[&str]) -> Result<Value, String> {
    let all = [&["action", "create", "--dry-run"], arguments].concat();
    let output = home.command(&all).output().await.unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(serde_saphyr::from_str(&String::from_utf8_lossy(&output.stdout)).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_flags_of_kanctl_create_actionset_have_the_same_meaning() {
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    let short = "-a backup -b bp -A mine -d shop/web -t shop/db -D shop/dc -v shop/pvc -T shop -O apps/v1/replicasets/shop/rs \
        -c conf=shop/map -s login=shop/secret -o a=1,b=x=y -p other/s3 --labels l=1 --podlabels p=2 --podannotations q=3";
    let set = dry_run(&home, &short.split_whitespace().collect::<Vec<_>>()).await.unwrap();
    assert_eq!((&set["metadata"]["name"], &set["metadata"]["labels"]), (&json!("mine"), &json!({ "l": "1" })));
    let actions = set["spec"]["actions"].as_array().unwrap();
    let objects: Vec<_> = actions.iter().map(|action| action["object"].clone()).collect();
    let of = |kind: &str, name: &str| json!({ "kind": kind, "name": name, "namespace": "shop" });
    assert_eq!(
        objects[..5],
        [
            of("deployment", "web"),
            of("statefulset", "db"),
            of("deploymentconfig", "dc"),
            of("pvc", "pvc"),
            of("namespace", "shop")
        ]
    );
    assert_eq!(
        objects[5],
        json!({ "group": "apps", "apiVersion": "v1", "resource": "replicasets", "namespace": "shop", "name": "rs" })
    );
    for action in actions {
        assert_eq!((&action["name"], &action["blueprint"]), (&json!("backup"), &json!("bp")));
        assert_eq!((&action["profile"]["namespace"], &action["profile"]["name"]), (&json!("other"), &json!("s3")));
        assert_eq!(action["options"], json!({ "a": "1", "b": "x=y" }));
        assert_eq!(
            (&action["configMaps"]["conf"]["name"], &action["secrets"]["login"]["name"]),
            (&json!("map"), &json!("secret"))
        );
        assert_eq!((&action["podLabels"], &action["podAnnotations"]), (&json!({ "p": "2" }), &json!({ "q": "3" })));
    }

    let labelled = json!({ "name": "web", "labels": { "app": "shop" } });
    make(&home, "Deployment", "web", json!({ "metadata": labelled, "spec": { "replicas": 0, "selector": { "matchLabels": { "app": "shop" } },
        "template": { "metadata": { "labels": { "app": "shop" } }, "spec": { "containers": [{ "name": "c", "image": "any" }] } } } })).await;
    let chosen =
        dry_run(&home, &["-a", "backup", "-b", "bp", "-l", "app=shop", "--selector-namespace", &home.namespace])
            .await
            .unwrap();
    assert_eq!(
        chosen["spec"]["actions"][0]["object"],
        json!({ "kind": "deployment", "name": "web", "namespace": home.namespace })
    );
    let name = chosen["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("backup-") && name.len() == "backup-".len() + 5, "{name}");
    let spaces = dry_run(&home, &["-a", "b", "-b", "bp", "-l", &mine(&home), "-k", "namespace"]).await.unwrap();
    let itself = json!({ "kind": "namespace", "name": home.namespace, "namespace": home.namespace });
    assert_eq!(spaces["spec"]["actions"].as_array().unwrap().len(), 1);
    assert_eq!(spaces["spec"]["actions"][0]["object"], itself);
    let refused = [
        (vec!["-a", "backup", "-b", "bp", "-l", "app=shop", "-k", "deploymentconfig"], "Error from server (NotFound)"),
        (vec!["-a", "backup", "-b", "bp", "-l", "app=shop", "-k", "pvc"], "no object matches selector"),
        (vec!["-a", "backup", "-b", "bp", "-d", "web"], "NAMESPACE/NAME"),
        (vec!["-a", "backup", "-b", "bp"], "no target: pass"),
        (vec!["-b", "bp", "-d", "shop/web"], "--action is required"),
        (vec!["-a", "backup", "-d", "shop/web"], "--blueprint is required"),
    ];
    for (arguments, expected) in refused {
        let error = dry_run(&home, &arguments).await.unwrap_err();
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    a_child_action_set_inherits_omitted_fields(&home).await;
    missing_objects_are_reported_before_an_object_is_created(&home).await;
}

/// The label that every namespace has.
fn mine(home: &Home<'_>) -> String {
    format!("kubernetes.io/metadata.name={}", home.namespace)
}

async fn missing_objects_are_reported_before_an_object_is_created(home: &Home<'_>) {
    let phase = json!({ "func": "KubeTask", "name": "p", "args": { "image": "any", "command": shell("true") } });
    make(home, "Blueprint", "bp", json!({ "actions": { "act": { "phases": [phase] } } })).await;
    let web = format!("{}/web", home.namespace);
    let (secret, map) = (format!("s={}/none", home.namespace), format!("c={}/none", home.namespace));
    let missing = format!("{}/none", home.namespace);
    let cases = [
        (vec!["-d", &missing], "deployments"),
        (vec!["-d", &web, "-s", &secret], "secrets"),
        (vec!["-d", &web, "-c", &map], "configmaps"),
    ];
    for (arguments, expected) in cases {
        let all = [&["action", "create", "-a", "act", "-b", "bp", "-A", "refused"], arguments.as_slice()].concat();
        let output = home.command(&all).output().await.unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(&format!("{expected} {missing} does not exist")), "{error}");
    }
    assert!(home.find("ActionSet", "refused").await.is_none());
}

/// From a parent that is complete: artifacts, objects, blueprint, profile; options are added to.
async fn a_child_action_set_inherits_omitted_fields(home: &Home<'_>) {
    let object = json!({ "kind": "StatefulSet", "name": "db", "namespace": "shop" });
    let action = json!({ "name": "backup", "blueprint": "bp", "object": object, "options": { "a": "1", "b": "2" },
        "profile": { "kind": "Profile", "name": "s3", "namespace": "other" } });
    let artifacts = json!({ "dump": { "keyValue": { "path": "/p" } } });
    make(home, "ActionSet", "parent", json!({ "spec": { "actions": [action] }, "status": { "state": "running" } }))
        .await;
    let error = dry_run(home, &["-a", "restore", "-f", "parent"]).await.unwrap_err();
    assert!(error.contains("ActionSet parent is running; only a complete one"), "{error}");
    home.patch(
        "ActionSet",
        "parent",
        json!({ "status": { "state": "complete", "actions": [{ "artifacts": artifacts }] } }),
    )
    .await;
    let child = dry_run(home, &["-a", "restore", "-f", "parent", "-o", "b=3"]).await.unwrap();
    assert!(child["metadata"]["name"].as_str().unwrap().starts_with("restore-parent-"), "{child:#}");
    let action = &child["spec"]["actions"][0];
    assert_eq!((&action["artifacts"], &action["object"]), (&artifacts, &object));
    assert_eq!((&action["blueprint"], &action["profile"]["name"]), (&json!("bp"), &json!("s3")));
    assert_eq!(action["options"], json!({ "a": "1", "b": "3" }));
    let same = dry_run(home, &["-f", "parent"]).await.unwrap();
    assert_eq!(same["spec"]["actions"][0]["name"], "backup", "what is not said is the parent's");
    let name = same["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("parent-") && name.len() == "parent-".len() + 5, "{name}");
}
