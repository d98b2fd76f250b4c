//! ActionSets whose server is killed at every effect of a phase, and on.

use futures::{StreamExt, stream};
use plimsoll_testkit::peers::S3Server;
use serde_json::{Value, json};

use crate::actions::{
    ProgressWatch, ask, claim, ended, is_ended, make, message, output, profile, shell, state, time_logger,
};
use crate::actions_data::{agent_at_work, bare_blueprint, bare_pod, create_bare_action_set, fill, is_cleaned_up};
use crate::bed::{Bed, Home, eventually};
use crate::killed::{has_no_open_operations, kill_points, name_of, terminate_if_running};

const AT_ONCE: usize = 4;

/// A pod of its own, a workload that is scaled, an object that is made, and a last phase.
async fn prepare<'a>(bed: &'a Bed, name: &str) -> Home<'a> {
    let home = bed.home(name).await;
    make(
        &home,
        "Deployment",
        "web",
        json!({ "spec": { "replicas": 1, "selector": { "matchLabels": { "app": "web" } },
        "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [
            { "name": "web", "image": "any", "command": shell("exec sleep 10000") }] } } } }),
    )
    .await;
    // A command that had run twice would have written it.
    let line = format!("echo ran >> /witness/{name}; sleep 2; {}", output("runs", "once"));
    let witness = bed.directory.path().join("witness");
    std::fs::create_dir_all(&witness).unwrap();
    let pod = json!({
        "volumes": [{ "name": "witness", "hostPath": { "path": witness } }],
        "containers": [{ "name": "container", "volumeMounts": [{ "name": "witness", "mountPath": "/witness" }] }],
    });
    let map = |name: &str| format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}}}");
    let ops = |name: &str, made: &str| {
        json!({ "func": "KubeOps", "name": name,
        "args": { "operation": "create", "namespace": home.namespace, "spec": map(made) } })
    };
    let blueprint = json!({ "actions": { "act": {
        "outputArtifacts": { "a": { "keyValue": { "replicas": "{{ .Phases.scale.Output.originalReplicaCount }}" } } },
        "phases": [
            { "func": "KubeTask", "name": "task", "args": { "image": "any", "command": shell(&line), "podOverride": pod } },
            { "func": "ScaleWorkload", "name": "scale", "args": { "namespace": home.namespace, "name": "web", "kind": "Deployment", "replicas": 0 } },
            ops("object", "made"),
        ],
        "deferPhase": ops("last", "last"),
    } } });
    make(&home, "Blueprint", "bp", blueprint).await;
    ask(&home, "set", "bp", &["act"]).await;
    home
}

/// The fields that must be the same after every kill.
fn essence(set: &Value) -> Value {
    let action = &set["status"]["actions"][0];
    let phases = action["phases"].as_array().unwrap().iter().chain(action.get("deferPhase"));
    let phases: Vec<_> = phases
        .map(|phase| json!([phase["name"], phase["state"], phase["output"], phase["progress"]["progressPercent"]]))
        .collect();
    let mut phases = json!(phases);
    phases.as_array_mut().unwrap().iter_mut().filter_map(|phase| phase[2].as_object_mut()).for_each(|output| {
        output.remove("namespace");
    });
    json!({ "state": state(set), "phases": phases, "artifacts": action["artifacts"], "percent": set["status"]["progress"]["percentCompleted"] })
}

async fn run(home: &Home<'_>, point: Option<&str>) -> Value {
    run_with(home, point, "2s").await
}

/// Runs the set to its end. Where a point is given, its first server, with this term of office, is killed there.
async fn run_with(home: &Home<'_>, point: Option<&str>, term: &str) -> Value {
    let trace = home.bed.directory.path().join(format!("trace-{}", home.namespace)).display().to_string();
    let mut server = match point {
        Some(point) => home.server_with(term, &[("PLIMSOLL_KILL_AT", point)]),
        None => home.server_with("1m", &[("PLIMSOLL_KILL_TRACE", &trace)]),
    };
    let (mut last, mut seen) = (Value::Null, ProgressWatch::default());
    if let Some(point) = point {
        let mut dead = false;
        eventually(&format!("the server is killed at {point}"), async || {
            last = home.get("ActionSet", "set").await;
            seen.record(&last);
            dead = server.try_wait().unwrap().inspect(|status| assert!(!status.success(), "{}", home.log())).is_some();
            // How far it is may change only together with what is written anyway: then it passes there never.
            dead || point.starts_with("status.progress") && is_ended(&last) && has_no_open_operations(home).await
        })
        .await;
        if dead {
            server = home.server_with(term, &[]);
        }
    }
    eventually(&format!("the set has ended, killed at {point:?}"), async || {
        last = home.get("ActionSet", "set").await;
        seen.record(&last);
        is_ended(&last) && has_no_open_operations(home).await && last["metadata"]["finalizers"].is_null()
    })
    .await;
    terminate_if_running(server).await;
    last
}

fn runs(home: &Home<'_>, name: &str) -> usize {
    let path = home.bed.directory.path().join("witness").join(name);
    std::fs::read_to_string(path).unwrap_or_default().lines().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_killed_at_any_effect_ends_as_an_undisturbed_one() {
    let bed = Bed::local_with_pods().await;
    let model = prepare(&bed, "model").await;
    let undisturbed = run(&model, None).await;
    assert_eq!(state(&undisturbed), "complete", "{}\n{}", message(&undisturbed), model.log());
    let trace = std::fs::read_to_string(bed.directory.path().join("trace-model")).unwrap();
    // What other subjects pass as well is tested with them; of several passages the first one is enough, but for an end.
    let own = ["phase.", "subject.", "status.", "journal."];
    let is_own = |point: &String| own.iter().any(|own| point.starts_with(own));
    let is_new = |point: &String| point.ends_with(":1") || point.starts_with("phase.end");
    let points: Vec<_> = kill_points(&trace).into_iter().filter(is_own).filter(is_new).collect();
    assert!(points.len() > 12, "the trace has only {points:?}");

    let (bed, undisturbed) = (&bed, &undisturbed);
    stream::iter(points)
        .map(|point| async move {
            let name = name_of(&point);
            let home = prepare(bed, &name).await;
            let set = run(&home, Some(&point)).await;
            assert_eq!(essence(&set), essence(undisturbed), "killed at {point}: {}\n{}", message(&set), home.log());
            assert_eq!(runs(&home, &name), 1, "killed at {point}: the command has run once");
            assert!(home.list("Pod").await.is_empty(), "killed at {point}: a pod is left");
        })
        .buffer_unordered(AT_ONCE)
        .collect::<()>()
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_in_a_pod_runs_once_unless_declared_idempotent() {
    let bed = Bed::local_with_pods().await;
    for (name, repeatable) in [("never", false), ("again", true)] {
        let home = bed.home(name).await;
        make(&home, "Pod", "app", json!({ "spec": { "containers": [{ "name": "app", "image": "any", "command": shell("exec sleep 10000") }] } })).await;
        eventually("the pod runs", async || home.get("Pod", "app").await["status"]["phase"] == "Running").await;
        let annotations = if repeatable { json!({ "plimsoll.dev/repeatable-phases": "exec" }) } else { json!({}) };
        let blueprint = json!({ "metadata": { "name": "bp", "annotations": annotations }, "actions": { "act": { "phases": [
            { "func": "KubeExec", "name": "exec", "args": { "namespace": home.namespace, "pod": "app", "command": shell("sleep 1") } }] } } });
        make(&home, "Blueprint", "bp", blueprint).await;
        ask(&home, "set", "bp", &["act"]).await;
        let mut server = home.server_with_short_lease(&[("PLIMSOLL_KILL_AT", "phase.exec.before")]);
        server.wait().await.unwrap();
        let _next = home.server_with_short_lease(&[]);
        let set = ended(&home, "set", &mut ProgressWatch::default()).await;
        if repeatable {
            assert_eq!(state(&set), "complete", "{}", message(&set));
        } else {
            assert!(message(&set).contains("phase exec: interrupted"), "{}", message(&set));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_set_deleted_without_a_server_is_finalized_by_the_next_server() {
    let bed = Bed::local_with_pods().await;
    let home = prepare(&bed, "deleted").await;
    let mut server = home.server_with_short_lease(&[("PLIMSOLL_KILL_AT", "phase.pod.after")]);
    server.wait().await.unwrap();
    home.delete("ActionSet", "set").await;
    assert!(home.find("ActionSet", "set").await.is_some(), "it is held until it has ended");
    let _next = home.server_with_short_lease(&[]);
    eventually("it is gone", async || home.find("ActionSet", "set").await.is_none()).await;
    assert!(home.find("ConfigMap", "last").await.is_some(), "its last phase has run");
    assert!(home.find("ConfigMap", "made").await.is_none(), "its other phases have not");
    eventually("its pod is gone", async || {
        home.list("Pod").await.iter().all(|pod| !pod.metadata.name.as_deref().unwrap().starts_with("kanister-job-"))
    })
    .await;
}

/// Data that is backed up, restored, forgotten and cleared, all in one action.
async fn prepare_data<'a>(bed: &'a Bed, s3: &S3Server, name: &str) -> Home<'a> {
    let home = bed.home(name).await;
    s3.create_bucket(name).unwrap();
    profile(&home, s3, name).await;
    claim(&home, "time-log").await;
    time_logger(&home, "any").await;
    let phase = |func: &str, name: &str, mut args: Value| {
        args["namespace"] = json!(home.namespace);
        args["backupArtifactPrefix"] = json!("repo");
        json!({ "func": func, "name": name, "args": args })
    };
    let id = "{{ .Phases.save.Output.backupID }}";
    let clear = json!({ "func": "LocationDelete", "name": "clear", "args": { "artifact": "repo" } });
    let phases = json!([
        phase(
            "BackupData",
            "save",
            json!({ "pod": "{{ index .Deployment.Pods 0 }}", "container": "test-container", "includePath": "/timelog" })
        ),
        phase(
            "RestoreData",
            "load",
            json!({ "image": "any", "volumes": { "time-log": "/timelog" }, "backupIdentifier": id, "restorePath": "/" })
        ),
        phase("DeleteData", "drop", json!({ "image": "any", "backupID": id })),
        clear,
    ]);
    make(&home, "Blueprint", "bp", json!({ "actions": { "act": { "phases": phases } } })).await;
    eventually("the application runs", async || {
        home.get("Deployment", "time-logger").await["status"]["readyReplicas"] == 1
    })
    .await;
    let object = json!({ "kind": "Deployment", "name": "time-logger", "namespace": home.namespace });
    let action = json!({ "name": "act", "blueprint": "bp", "object": object, "profile": { "name": "s3", "namespace": home.namespace } });
    make(&home, "ActionSet", "set", json!({ "spec": { "actions": [action] } })).await;
    home
}

/// Data that the agent of a node moves, because its container has nothing that could.
async fn prepare_bare<'a>(bed: &'a Bed, s3: &S3Server, name: &str) -> Home<'a> {
    let home = bed.home(name).await;
    s3.create_bucket(name).unwrap();
    profile(&home, s3, name).await;
    bare_pod(&home).await;
    fill(&home).await;
    make(&home, "Blueprint", "bare", bare_blueprint()).await;
    create_bare_action_set(&home, "set", "backup", "bare", "/app/deep").await;
    home
}

/// A term of office that survives a machine with other things to do.
const TERM: &str = "6s";

#[tokio::test(flavor = "multi_thread")]
async fn data_movement_completes_if_the_server_is_killed_meanwhile() {
    let bed = Bed::local_with_pods().await;
    let s3 = S3Server::start("127.0.0.1").unwrap();
    let points = ["backup.after", "restore.after", "forget.after", "location.after"];
    let (bed, s3) = (&bed, &s3);
    stream::iter(points)
        .map(|point| async move {
            let home = prepare_data(bed, s3, &point.replace('.', "-")).await;
            let set = run_with(&home, Some(&format!("phase.{point}")), TERM).await;
            assert_eq!(state(&set), "complete", "killed at {point}: {}\n{}", message(&set), home.log());
            let phases = &set["status"]["actions"][0]["phases"];
            // Data of the first attempt need not be uploaded again: the total shows that it was read.
            assert!(phases[0]["progress"]["estimatedUploadSizeB"].as_u64().unwrap() > 0, "{phases:#}");
            assert!(phases[1]["progress"]["sizeDownloadedB"].as_u64().unwrap() > 0, "{phases:#}");
            let own = |name: &str| name.starts_with("restore-data-") || name.starts_with("delete-data-");
            let pods = home.list("Pod").await;
            assert!(
                !pods.iter().any(|pod| own(pod.metadata.name.as_deref().unwrap())),
                "killed at {point}: a pod is left"
            );
        })
        .buffer_unordered(AT_ONCE / 2)
        .collect::<()>()
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn data_moved_by_an_agent_is_found_by_its_tag_after_the_server_is_killed() {
    let bed = Bed::local_with_pods().await;
    let s3 = S3Server::start("127.0.0.1").unwrap();
    let (bed, s3) = (&bed, &s3);
    stream::iter(["transfer.before", "transfer.after"])
        .map(|point| async move {
            let home = prepare_bare(bed, s3, &point.replace('.', "-")).await;
            let _agent = agent_at_work(&home).await;
            let set = run_with(&home, Some(&format!("phase.{point}")), TERM).await;
            // Its second phase restores by the tag that the first one returned.
            assert_eq!(state(&set), "complete", "killed at {point}: {}\n{}", message(&set), home.log());
            assert!(is_cleaned_up(&home).await, "killed at {point}: something of the transfer is left");
        })
        .buffer_unordered(2)
        .collect::<()>()
        .await;
}
