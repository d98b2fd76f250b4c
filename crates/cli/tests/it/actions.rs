//! ActionSets on the embedded cluster, whose pods are processes: real commands, a real S3 server, the real restic.

use std::path::{Path, PathBuf};

use plimsoll_testkit::peers::S3Server;
use plimsoll_testkit::peers::s3::{ACCESS_KEY, SECRET_KEY};
use serde_json::{Value, json};

use crate::bed::{Bed, Home, condition_status, eventually};

pub fn state(set: &Value) -> &str {
    set.pointer("/status/state").and_then(Value::as_str).unwrap_or_default()
}

pub fn message(set: &Value) -> &str {
    set.pointer("/status/error/message").and_then(Value::as_str).unwrap_or_default()
}

pub async fn make(home: &Home<'_>, kind: &str, name: &str, fields: Value) {
    let (group, kind) = match kind {
        "ActionSet" | "Blueprint" | "Profile" => ("cr.kanister.io/v1alpha1", kind),
        "Deployment" | "StatefulSet" => ("apps/v1", kind),
        _ => ("v1", kind),
    };
    let mut object = json!({ "apiVersion": group, "kind": kind, "metadata": { "name": name } });
    object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    home.create(object).await.unwrap();
}

/// A set with these actions of a blueprint, on the server's own namespace.
pub async fn ask(home: &Home<'_>, name: &str, blueprint: &str, actions: &[&str]) {
    let object = json!({ "kind": "Namespace", "name": home.namespace, "namespace": home.namespace });
    let one = |action: &&str| json!({ "name": action, "blueprint": blueprint, "object": object });
    make(home, "ActionSet", name, json!({ "spec": { "actions": actions.iter().map(one).collect::<Vec<_>>() } })).await;
}

/// The set `set` with the action `act` of the blueprint `bp` on an object.
pub async fn act_on(home: &Home<'_>, object: Value) {
    let action = json!({ "name": "act", "blueprint": "bp", "object": object });
    make(home, "ActionSet", "set", json!({ "spec": { "actions": [action] } })).await;
}

pub fn is_ended(set: &Value) -> bool {
    ["complete", "failed"].contains(&state(set))
}

/// Everything that a user may see of a set while it runs.
#[derive(Default)]
pub struct ProgressWatch {
    pub percents: Vec<f64>,
    pub phases: Vec<(String, String)>,
}

impl ProgressWatch {
    /// Progress never decreases and is 100 % only after success.
    pub fn record(&mut self, set: &Value) {
        let number = |value: &Value| value.as_str().map(|text| text.parse::<f64>().unwrap());
        if let Some(percent) = number(&set["status"]["progress"]["percentCompleted"]) {
            let last = self.percents.last().copied().unwrap_or(0.0);
            assert!(percent >= last, "the percent fell from {last} to {percent}: {set:#}");
            assert!(percent < 100.0 || state(set) == "complete", "100 before the end: {set:#}");
            self.percents.push(percent);
        }
        for action in set["status"]["actions"].as_array().into_iter().flatten() {
            for phase in action["phases"].as_array().into_iter().flatten().chain(action.get("deferPhase")) {
                let percent = phase["progress"]["progressPercent"].as_str().unwrap_or("none").to_owned();
                assert_eq!(percent == "100.00", phase["state"] == "complete", "{phase:#}");
                self.phases.push((phase["name"].as_str().unwrap_or_default().to_owned(), percent));
            }
        }
    }

    pub fn has_seen(&self, phase: &str, percent: &str) -> bool {
        self.phases.iter().any(|seen| *seen == (phase.to_owned(), percent.to_owned()))
    }
}

/// Watches a set to its end.
pub async fn ended(home: &Home<'_>, name: &str, seen: &mut ProgressWatch) -> Value {
    let mut last = Value::Null;
    eventually(&format!("set {name} has ended\n{}", home.log()), async || {
        last = home.get("ActionSet", name).await;
        seen.record(&last);
        is_ended(&last)
    })
    .await;
    last
}

pub async fn completed(home: &Home<'_>, name: &str) -> Value {
    let set = ended(home, name, &mut ProgressWatch::default()).await;
    assert_eq!(state(&set), "complete", "{set:#}\n{}", home.log());
    set
}

pub fn shell(line: &str) -> Value {
    json!(["sh", "-c", line])
}

/// The `PATH` of a container. Its pods see the programs of this machine: an installed `plimsoll` would be used.
pub fn search_path(path: &str) -> Value {
    json!([{ "name": "PATH", "value": path }])
}

pub fn output(key: &str, value: &str) -> String {
    format!("echo '###Phase-output###: {{\"key\":\"{key}\",\"value\":\"{value}\"}}'")
}

pub fn task(name: &str, line: &str) -> Value {
    json!({ "func": "KubeTask", "name": name, "args": { "image": "any", "command": shell(line) } })
}

pub fn note(name: &str, map: &str) -> Value {
    let spec = format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {map}}}}}");
    json!({ "func": "KubeOps", "name": name, "args": { "operation": "create", "namespace": "{{ .Namespace.Name }}", "spec": spec } })
}

#[tokio::test(flavor = "multi_thread")]
async fn phases_run_in_order_and_pass_on_their_output() {
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let _server = home.server();
    let gate = "until [ -e /gate/open ]; do sleep 0.05; done";
    std::fs::create_dir_all(bed.directory.path().join("gate")).unwrap();
    let hold = json!({
        "volumes": [{ "name": "gate", "hostPath": { "path": bed.directory.path().join("gate") } }],
        "containers": [{ "name": "container", "volumeMounts": [{ "name": "gate", "mountPath": "/gate" }] }],
    });
    let mut first = task("one", &format!("{gate}; echo working; {}", output("word", "hello")));
    first["args"]["podOverride"] = hold;
    // Progress in an unknown format does not fail the phase.
    let broken = "echo '###Phase-progress###:{\"version\":'";
    let second =
        task("two", &format!("{broken}; {}", output("words", "{{ .Phases.one.Output.word }} {{ .Options.whom }}")));
    let blueprint = json!({ "actions": {
        "greet": {
            "outputArtifacts": { "greeting": { "keyValue": { "text": "{{ .Phases.two.Output.words }}" } } },
            "phases": [first, second],
            "deferPhase": note("last", "was-here"),
        },
        "other": { "phases": [task("three", "true")] },
    } });
    make(&home, "Blueprint", "words", blueprint).await;
    let object = json!({ "kind": "Namespace", "name": home.namespace, "namespace": home.namespace });
    let actions = json!([
        { "name": "greet", "blueprint": "words", "object": object, "options": { "whom": "world" }, "podLabels": { "mine": "yes" } },
        { "name": "other", "blueprint": "words", "object": object },
    ]);
    make(&home, "ActionSet", "set", json!({ "spec": { "actions": actions } })).await;

    let mut seen = ProgressWatch::default();
    eventually("the other action ends while the first one waits", async || {
        let set = home.get("ActionSet", "set").await;
        seen.record(&set);
        seen.has_seen("one", "33.33") && seen.has_seen("three", "100.00")
    })
    .await;
    let set = home.get("ActionSet", "set").await;
    assert_eq!(set["status"]["progress"]["runningPhase"], "one");
    assert_eq!(set["status"]["progress"]["runningPhases"], json!(["greet/one"]));
    assert_eq!(set["status"]["progress"]["percentCompleted"], "44.44", "(33.33 + 0 + 100) / 3");
    assert_eq!(set["status"]["plimsoll"]["percent"], "44.44");
    assert_eq!(
        set["status"]["actions"][0]["artifacts"]["greeting"]["keyValue"]["text"],
        "{{ .Phases.two.Output.words }}"
    );
    let pods = home.list("Pod").await;
    let labels = pods[0].metadata.labels.clone().unwrap();
    assert_eq!((labels["mine"].as_str(), labels["createdBy"].as_str()), ("yes", "kanister"));
    let listed = home.command(&["action", "get"]).output().await.unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(["set", "running", "44.44", "one"].iter().all(|word| listed.contains(word)), "{listed}");
    let mut watching = home.command(&["action", "watch", "set"]).stdout(std::process::Stdio::null()).spawn().unwrap();
    std::fs::write(bed.directory.path().join("gate/open"), "").unwrap();

    let set = ended(&home, "set", &mut seen).await;
    assert_eq!(state(&set), "complete", "{set:#}\n{}", home.log());
    eventually("watchers see the completed set", async || {
        watching.try_wait().unwrap().inspect(|status| assert!(status.success())).is_some()
    })
    .await;
    let status = &set["status"];
    assert_eq!(status["actions"][0]["phases"][0]["output"], json!({ "word": "hello" }));
    assert_eq!(status["actions"][0]["artifacts"]["greeting"]["keyValue"]["text"], "hello world");
    assert_eq!(status["actions"][0]["deferPhase"]["state"], "complete");
    assert_eq!(
        (&status["progress"]["percentCompleted"], &status["progress"]["runningPhase"]),
        (&json!("100.00"), &json!(""))
    );
    assert_eq!(status["error"]["message"], "");
    assert_eq!(
        (condition_status(&set, "Complete"), condition_status(&set, "Progressing")),
        (Some(true), Some(false)),
        "{set:#}"
    );
    assert!(home.find("ConfigMap", "was-here").await.is_some());
    let reasons = ["Started", "StartedPhase", "EndedPhase", "StartedDeferPhase", "EndedDeferPhase", "Succeeded"];
    eventually("every step has its Event", async || {
        let events = home.events("ActionSet", "set").await;
        reasons.iter().all(|reason| events.iter().any(|known| known == reason))
    })
    .await;
    assert_eq!(home.events("Blueprint", "words").await, [] as [&str; 0], "nothing is wrong with it");
    eventually("no pod, no finalizer and no journal is left", async || {
        let set = home.get("ActionSet", "set").await;
        home.list("Pod").await.is_empty()
            && set["metadata"]["finalizers"].is_null()
            && crate::killed::has_no_open_operations(&home).await
    })
    .await;
    let printed = home.command(&["action", "logs", "set"]).output().await.unwrap();
    assert!(String::from_utf8_lossy(&printed.stdout).contains("greet/one: working"), "{printed:?}");
    let described = home.command(&["action", "describe", "set"]).output().await.unwrap();
    let described = String::from_utf8_lossy(&described.stdout).into_owned();
    assert!(described.contains("Phase one:") && described.contains("complete, 100.00%"), "{described}");
}

/// What is wrong, and what its message has to name.
fn bad_phases() -> Vec<(&'static str, Value, Vec<&'static str>)> {
    let with = |func: &str, args: Value| json!([{ "func": func, "name": "p", "args": args }]);
    let run = |line: &str| with("KubeTask", json!({ "image": "any", "command": shell(line) }));
    vec![
        ("unknown-function", with("NoSuch", json!({})), vec!["phase p", "NoSuch"]),
        ("refused-function", with("CreateRDSSnapshot", json!({})), vec!["phase p", "CreateRDSSnapshot"]),
        ("csi-function", with("CreateCSISnapshot", json!({})), vec!["phase p", "CreateCSISnapshot"]),
        ("missing-argument", with("KubeTask", json!({ "image": "any" })), vec!["phase p", "command"]),
        ("null-argument", with("KubeTask", json!({ "image": "any", "command": null })), vec!["phase p", "command"]),
        (
            "unsupported-argument",
            with("KubeTask", json!({ "image": "any", "command": ["true"], "imge": "x" })),
            vec!["phase p", "imge"],
        ),
        (
            "bad-template",
            with("KubeTask", json!({ "image": "{{ .Open", "command": ["true"] })),
            vec!["phase p", "image"],
        ),
        (
            "missing-key",
            with("KubeTask", json!({ "image": "{{ .Options.none }}", "command": ["true"] })),
            vec!["phase p", "image", "none"],
        ),
        (
            "duplicate-names",
            json!([{ "func": "KubeTask", "name": "p", "args": { "image": "i", "command": ["true"] } },
            { "func": "KubeTask", "name": "p", "args": { "image": "i", "command": ["true"] } }]),
            vec!["phase p: duplicate phase name in this action"],
        ),
        ("no-phases", json!([]), vec!["action act: at least one phase is required"]),
        ("output-not-json", run("echo '###Phase-output###: nonsense'"), vec!["phase p", "nonsense", "expected JSON"]),
        (
            "output-too-long",
            run(
                "printf '###Phase-output###: {\"key\":\"k\",\"value\":\"'; head -c 3000000 /dev/zero | tr '\\0' x; echo '\"}'",
            ),
            vec!["phase p", "exceeds"],
        ),
        (
            "output-cut",
            run("printf '###Phase-out'; sleep 0.2; printf 'put###: {\"key\":\"k\",\"val'"),
            vec!["phase p", "expected JSON"],
        ),
        (
            "exit-code",
            run("echo the disk is full >&2; exit 3"),
            vec!["phase p", "exited with code 3", "the disk is full"],
        ),
        (
            "missing-pod",
            with("KubeExec", json!({ "namespace": "default", "pod": "missing", "command": ["true"] })),
            vec!["phase p", "default/missing"],
        ),
        (
            "missing-object",
            json!([{ "func": "KubeTask", "name": "p", "objects": { "s": { "kind": "Secret", "name": "none", "namespace": "default" } },
                "args": { "image": "any", "command": ["true"] } }]),
            vec!["phase p", "secret default/none does not exist"],
        ),
        ("no-profile", with("LocationDelete", json!({ "artifact": "x" })), vec!["phase p", "no profile"]),
        (
            "wait-too-long",
            with(
                "WaitV2",
                json!({ "timeout": "1s", "conditions": { "anyOf": [{ "condition": "{{ false }}",
                "objectReference": { "apiVersion": "v1", "resource": "namespaces", "name": "default" } }] } }),
            ),
            vec!["phase p", "timed out waiting for"],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_input_fails_the_action_set_and_names_phase_and_argument() {
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let _server = home.server();
    for (name, phases, _) in bad_phases() {
        let last = if name == "exit-code" { note("last", "cleaned") } else { Value::Null };
        let mut action = json!({ "phases": phases });
        if !last.is_null() {
            action["deferPhase"] = last;
        }
        make(&home, "Blueprint", name, json!({ "actions": { "act": action } })).await;
        ask(&home, name, name, &["act"]).await;
    }
    ask(&home, "no-blueprint", "nothing", &["act"]).await;
    make(&home, "Profile", "no-bucket", json!({ "location": { "type": "s3Compliant" } })).await;
    make(
        &home,
        "ActionSet",
        "no-target",
        json!({ "spec": { "actions": [{ "name": "act", "blueprint": "exit-code",
        "object": { "kind": "StatefulSet", "name": "db", "namespace": "default" } }] } }),
    )
    .await;

    for (name, _, words) in bad_phases() {
        let set = ended(&home, name, &mut ProgressWatch::default()).await;
        assert_eq!(state(&set), "failed", "{name}: {set:#}");
        for word in words {
            assert!(message(&set).contains(word), "{name}: {:?} does not say {word:?}", message(&set));
        }
        assert!(message(&set).len() < 4000, "{name}");
    }
    let set = ended(&home, "no-blueprint", &mut ProgressWatch::default()).await;
    assert!(message(&set).contains("blueprint \"nothing\" not found"), "{}", message(&set));
    let set = ended(&home, "no-target", &mut ProgressWatch::default()).await;
    assert!(message(&set).contains("statefulsets default/db does not exist"), "{}", message(&set));
    let set = home.get("ActionSet", "exit-code").await;
    assert_eq!(set["status"]["actions"][0]["phases"][0]["state"], "failed");
    assert_eq!(set["status"]["actions"][0]["phases"][0]["progress"]["progressPercent"], "33.33");
    assert_eq!(set["status"]["actions"][0]["deferPhase"]["state"], "complete");
    assert!(home.find("ConfigMap", "cleaned").await.is_some(), "the deferPhase runs whatever happened");
    assert!(home.events("Blueprint", "unknown-function").await.contains(&"InvalidBlueprint".to_owned()));
    eventually("a profile that cannot be used says so", async || {
        home.events("Profile", "no-bucket").await.contains(&"InvalidProfile".to_owned())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_or_cancelling_a_running_action_set_still_runs_its_deferred_phase() {
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let _server = home.server();
    for name in ["delete", "cancel", "slow"] {
        let action =
            json!({ "phases": [task("long", "sleep 1000"), task("never", "true")], "deferPhase": note("last", name) });
        let annotations = if name == "slow" { json!({ "plimsoll.dev/phase-timeout": "long=1s" }) } else { json!({}) };
        let blueprint =
            json!({ "metadata": { "name": name, "annotations": annotations }, "actions": { "act": action } });
        make(&home, "Blueprint", name, blueprint).await;
        ask(&home, name, name, &["act"]).await;
    }
    let slow = ended(&home, "slow", &mut ProgressWatch::default()).await;
    assert!(
        message(&slow).contains("phase long: timed out waiting for the phase to end after 1s"),
        "{}",
        message(&slow)
    );
    for name in ["delete", "cancel"] {
        eventually("its pod runs", async || {
            home.get("ActionSet", name).await["status"]["actions"][0]["phases"][0]["progress"]["progressPercent"]
                == "33.33"
        })
        .await;
    }
    home.delete("ActionSet", "delete").await;
    eventually("the deleted set is gone", async || home.find("ActionSet", "delete").await.is_none()).await;
    let cancelled = home.command(&["action", "cancel", "cancel", "--wait"]).output().await.unwrap();
    assert!(cancelled.status.success(), "{cancelled:?}");
    let set = home.get("ActionSet", "cancel").await;
    assert_eq!((state(&set), message(&set).starts_with("Cancelled")), ("failed", true), "{set:#}");
    assert_eq!(set["status"]["actions"][0]["phases"][1]["state"], "pending");
    for name in ["delete", "cancel", "slow"] {
        assert!(home.find("ConfigMap", name).await.is_some(), "the last phase of {name} has run");
    }
    eventually("no pod is left", async || home.list("Pod").await.is_empty()).await;
}

pub async fn profile(home: &Home<'_>, server: &S3Server, bucket: &str) {
    profile_at(home, server.endpoint(), bucket).await;
}

/// The profile `s3` of an S3 server at this address.
pub async fn profile_at(home: &Home<'_>, endpoint: &str, bucket: &str) {
    make(home, "Secret", "aws", json!({ "stringData": { "id": ACCESS_KEY, "key": SECRET_KEY } })).await;
    make(
        home,
        "Profile",
        "s3",
        json!({
            "location": { "type": "s3Compliant", "bucket": bucket, "endpoint": endpoint, "region": "us-east-1" },
            "credential": { "type": "keyPair", "keyPair": { "idField": "id", "secretField": "key",
                "secret": { "apiVersion": "v1", "kind": "Secret", "name": "aws", "namespace": home.namespace } } },
            "skipSSLVerify": false,
        }),
    )
    .await;
}

/// A claim for whatever the embedded cluster has.
pub async fn claim(home: &Home<'_>, name: &str) {
    let spec = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
    make(home, "PersistentVolumeClaim", name, json!({ "spec": spec })).await;
}

/// An application that has written into its claim.
pub async fn time_logger(home: &Home<'_>, image: &str) {
    let line = "[ -e /timelog/time.log ] || { seq 20000 > /timelog/time.log; mkdir /timelog/deep; echo kept > /timelog/deep/file; }; sleep 10000";
    make(
        home,
        "Deployment",
        "time-logger",
        json!({ "spec": {
        "replicas": 1, "selector": { "matchLabels": { "app": "time-logger" } },
        "template": { "metadata": { "labels": { "app": "time-logger" } }, "spec": {
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "time-log" } }],
            "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "test-container", "image": image, "command": shell(line), "env": search_path("/usr/bin:/bin"),
                "volumeMounts": [{ "name": "data", "mountPath": "/timelog" }] }],
        } },
    } }),
    )
    .await;
}

pub fn time_log_blueprint(image: &str) -> Value {
    let scale = |name: &str, replicas: u32| {
        json!({ "func": "ScaleWorkload", "name": name, "args": {
        "namespace": "{{ .Deployment.Namespace }}", "name": "{{ .Deployment.Name }}", "kind": "Deployment", "replicas": replicas } })
    };
    json!({ "actions": {
        "backup": {
            "outputArtifacts": {
                "timeLog": { "keyValue": { "path": "{{ .Profile.Location.Bucket }}/time-log" } },
                "backupIdentifier": { "keyValue": { "id": "{{ .Phases.backupToS3.Output.backupID }}" } },
            },
            "phases": [{ "func": "BackupData", "name": "backupToS3", "args": {
                "namespace": "{{ .Deployment.Namespace }}", "pod": "{{ index .Deployment.Pods 0 }}", "container": "test-container",
                "includePath": "/timelog", "backupArtifactPrefix": "{{ .Profile.Location.Bucket }}/time-log" } }],
        },
        "restore": {
            "phases": [
                scale("shutdownPod", 0),
                { "func": "RestoreData", "name": "restoreFromS3", "args": {
                    "namespace": "{{ .Deployment.Namespace }}", "pod": "{{ index .Deployment.Pods 0 }}", "image": image,
                    "backupArtifactPrefix": "{{ .ArtifactsIn.timeLog.KeyValue.path }}",
                    "backupIdentifier": "{{ .ArtifactsIn.backupIdentifier.KeyValue.id }}" } },
                scale("bringupPod", 1),
            ],
        },
        "delete": { "phases": [{ "func": "LocationDelete", "name": "deleteFromS3",
            "args": { "artifact": "{{ .ArtifactsIn.timeLog.KeyValue.path }}" } }] },
    } })
}

/// Runs a command of the command line that waits, and returns the set it made.
pub async fn act(home: &Home<'_>, arguments: &[&str]) -> Value {
    let name = format!(
        "set-{}",
        arguments.iter().filter(|word| !word.starts_with('-')).copied().collect::<Vec<_>>().join("-").replace('/', "-")
    );
    let all = [&["action", "create", "--wait", "--name", &name], arguments].concat();
    let output = home.command(&all).output().await.unwrap();
    let set = home.get("ActionSet", &name).await;
    assert!(output.status.success(), "{output:?}\n{set:#}\n{}", home.log());
    set
}

/// The progress of an ended phase that uploaded files of this size. Less is uploaded where the repository has some of it.
pub fn assert_uploaded(phase: &Value, size: u64) {
    let bytes = |field: &str| phase["progress"][field].as_u64().unwrap_or_else(|| panic!("no {field}: {phase:#}"));
    let (uploaded, estimated) = (bytes("sizeUploadedB"), bytes("estimatedUploadSizeB"));
    assert!(uploaded <= estimated, "{phase:#}");
    assert_eq!(uploaded == 0, phase["output"]["phySize"] == "0 B", "{phase:#}");
    assert!((size..size + 4096).contains(&estimated), "files of {size} bytes: {phase:#}");
}

/// Files of an application, whose directory is `volume`, are backed up, lost, restored, compared, and their backup deleted.
pub async fn round_trip_files(home: &Home<'_>, bucket: &Path, volume: &Path) {
    eventually("the application runs", async || {
        home.get("Deployment", "time-logger").await["status"]["readyReplicas"] == 1
    })
    .await;
    eventually("its data is there", async || volume.join("deep/file").exists()).await;
    let before = std::fs::read(volume.join("time.log")).unwrap();

    let target = format!("{}/time-logger", home.namespace);
    let backup =
        act(home, &["--action", "backup", "--blueprint", "time-log", "--deployment", &target, "--profile", "s3"]).await;
    let phase = &backup["status"]["actions"][0]["phases"][0];
    assert_eq!(phase["output"]["fileCount"], "2", "{phase:#}");
    assert_uploaded(phase, before.len() as u64 + 5);
    assert!(bucket.join("time-log/config").exists());
    let name = backup["metadata"]["name"].as_str().unwrap().to_owned();

    std::fs::write(volume.join("time.log"), "lost").unwrap();
    std::fs::remove_dir_all(volume.join("deep")).unwrap();
    let restore = act(home, &["--action", "restore", "--from", &name]).await;
    assert_eq!(std::fs::read(volume.join("time.log")).unwrap(), before);
    assert_eq!(std::fs::read_to_string(volume.join("deep/file")).unwrap(), "kept\n");
    let phases = &restore["status"]["actions"][0]["phases"];
    assert_eq!(phases[0]["output"]["originalReplicaCount"], 1);
    assert_eq!(phases[1]["progress"]["sizeDownloadedB"], before.len() as u64 + 5, "{phases:#}");
    assert_eq!(home.get("Deployment", "time-logger").await["status"]["readyReplicas"], 1);
    assert!(!home.log().contains(SECRET_KEY), "a secret stands in the log");

    act(home, &["--action", "delete", "--from", &name]).await;
    assert!(!bucket.join("time-log/config").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_backed_up_restored_and_deleted_by_a_blueprint() {
    let bed = Bed::local_with_pods().await;
    let s3 = S3Server::start("127.0.0.1").unwrap();
    let bucket = s3.create_bucket("kanister").unwrap();
    let home = bed.home("home").await;
    let _server = home.server();
    profile(&home, &s3, "kanister").await;
    claim(&home, "time-log").await;
    time_logger(&home, "any").await;
    make(&home, "Blueprint", "time-log", time_log_blueprint("any")).await;
    let volume = volume_of(&home, "time-log").await;
    round_trip_files(&home, &bucket, &volume).await;
    let refused =
        home.command(&["action", "create", "--action", "restore", "--from", "nothing"]).output().await.unwrap();
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("actionsets.cr.kanister.io \"nothing\" not found"),
        "{refused:?}"
    );
}

/// The directory of a claim of the embedded cluster.
pub async fn volume_of(home: &Home<'_>, claim: &str) -> PathBuf {
    let mut name = String::new();
    eventually("the claim is bound", async || {
        let found = home.get("PersistentVolumeClaim", claim).await;
        found["spec"]["volumeName"].as_str().unwrap_or_default().clone_into(&mut name);
        !name.is_empty()
    })
    .await;
    home.bed.volume(&name).await
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_awaited_changed_and_removed_and_commands_run_in_running_pods() {
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let _server = home.server();
    make(&home, "ConfigMap", "settings", json!({ "data": { "colour": "red" } })).await;
    make(
        &home,
        "StatefulSet",
        "db",
        json!({ "spec": { "replicas": 2, "serviceName": "db", "podManagementPolicy": "Parallel",
        "selector": { "matchLabels": { "app": "db" } },
        "template": { "metadata": { "labels": { "app": "db" } }, "spec": { "containers": [
            { "name": "db", "image": "any", "command": shell("exec sleep 10000") }] } } } }),
    )
    .await;
    eventually("the pods run", async || home.get("StatefulSet", "db").await["status"]["readyReplicas"] == 2).await;
    let reference = json!({ "apiVersion": "v1", "resource": "configmaps", "name": "settings", "namespace": "{{ .StatefulSet.Namespace }}" });
    let wait = |func: &str, name: &str, condition: &str| {
        json!({ "func": func, "name": name, "args": { "timeout": "20s",
        "conditions": { "allOf": [{ "condition": condition, "objectReference": reference }] } } })
    };
    let namespace = "{{ .StatefulSet.Namespace }}";
    let phases = json!([
        { "func": "KubeExec", "name": "exec", "args": { "namespace": namespace, "pod": "{{ index .StatefulSet.Pods 1 }}",
            "container": "db", "command": shell("echo noise; echo '###Phase-output###: {\"key\":\"host\",\"value\":\"'$HOSTNAME'\"}'") } },
        { "func": "KubeExecAll", "name": "all", "args": { "namespace": namespace, "pods": "{{ range .StatefulSet.Pods }} {{ . }}{{ end }}",
            "containers": "db", "command": shell(&output("done", "yes")) } },
        { "func": "KubeOps", "name": "patch", "args": { "operation": "patch", "objectReference": reference, "spec": "{data: {colour: blue}}" } },
        wait("Wait", "wait", "{{ if eq \"{ $.data.colour }\" \"blue\" }}true{{ else }}false{{ end }}"),
        wait("WaitV2", "wait2", "{{ if eq .data.colour \"blue\" }}true{{ else }}false{{ end }}"),
        { "func": "MultiContainerRun", "name": "pair", "args": { "namespace": namespace, "backgroundImage": "a",
            "backgroundCommand": shell("echo from-background > /shared/file"), "outputImage": "b", "sharedVolumeDir": "/shared",
            "outputCommand": shell("until [ -s /shared/file ]; do sleep 0.05; done; echo \"###Phase-output###: {\\\"key\\\":\\\"word\\\",\\\"value\\\":\\\"$(cat /shared/file)\\\"}\"") } },
        { "func": "KubeOps", "name": "delete", "args": { "operation": "delete", "objectReference": reference } },
        { "func": "ScaleWorkload", "name": "down", "args": { "replicas": "0" } },
    ]);
    make(&home, "Blueprint", "ops", json!({ "actions": { "act": { "phases": phases } } })).await;
    make(
        &home,
        "ActionSet",
        "set",
        json!({ "spec": { "actions": [{ "name": "act", "blueprint": "ops",
        "object": { "kind": "StatefulSet", "name": "db", "namespace": home.namespace } }] } }),
    )
    .await;
    let set = completed(&home, "set").await;
    let phases = &set["status"]["actions"][0]["phases"];
    assert_eq!(phases[0]["output"], json!({ "host": "db-1" }));
    assert_eq!(phases[1]["output"], json!({ "done": "yes" }));
    assert_eq!(phases[2]["output"]["name"], "settings");
    assert_eq!(phases[5]["output"], json!({ "word": "from-background" }));
    assert_eq!(phases[7]["output"], json!({ "originalReplicaCount": 2 }));
    assert!(home.find("ConfigMap", "settings").await.is_none());
    assert_eq!(home.get("StatefulSet", "db").await["spec"]["replicas"], 0);
    assert!(home.list("Pod").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn uninstalling_removes_our_finalizers() {
    let bed = Bed::local().await;
    let (home, other) = (bed.home("home").await, bed.home("other").await);
    let ours = "actionsets.plimsoll.dev/running";
    let restores = "restores.velero.io/external-resources-finalizer";
    for home in [&home, &other] {
        let held =
            |name: &str, ours: &str| json!({ "name": name, "finalizers": [ours, "example.com/other-controller"] });
        make(home, "ActionSet", "set", json!({ "metadata": held("set", ours), "spec": { "actions": [] } })).await;
        let restore =
            json!({ "apiVersion": "velero.io/v1", "kind": "Restore", "metadata": held("r", restores), "spec": {} });
        home.create(restore).await.unwrap();
    }
    let uninstalled = home.command(&["uninstall", "--confirm"]).output().await.unwrap();
    assert!(uninstalled.status.success(), "{uninstalled:?}");
    for (kind, name) in [("ActionSet", "set"), ("Restore", "r")] {
        let finalizers = home.get(kind, name).await["metadata"]["finalizers"].clone();
        assert_eq!(finalizers, json!(["example.com/other-controller"]), "{kind}");
        let finalizers = other.get(kind, name).await["metadata"]["finalizers"].clone();
        assert_eq!(finalizers.as_array().map(Vec::len), Some(2), "{kind} of another server");
    }
    let uninstalled = home.command(&["uninstall", "--confirm", "--crds"]).output().await.unwrap();
    assert!(uninstalled.status.success(), "{uninstalled:?}");
    assert!(
        String::from_utf8_lossy(&uninstalled.stdout).contains("ActionSet set: finalizer removed"),
        "{uninstalled:?}"
    );
}
