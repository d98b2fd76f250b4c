//! The embedded node: pods, workloads and claims, as `kubectl` and the processes see them.

use crate::{
    conformance::eventually,
    embedded::Embedded,
    kubectl::{Kubectl, find, skip, text, write},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use plimsoll_local::{Api, HttpsServer};
use serde_json::{Value, json};
use std::{os::unix::fs::MetadataExt, path::PathBuf, process::Stdio};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

pub struct Cluster {
    pub embedded: Embedded,
    pub server: HttpsServer,
    pub kubectl: Kubectl,
}

impl Cluster {
    pub async fn start() -> Option<Self> {
        let Some(program) = find() else {
            skip("the tests of the node", "no kubectl in PLIMSOLL_KUBECTL, the cache or PATH");
            return None;
        };
        Some(Self::open(Embedded::open().await, program).await)
    }

    async fn open(embedded: Embedded, program: PathBuf) -> Self {
        let directory = embedded.directory.path();
        let server = embedded.api.serve("127.0.0.1:0".parse().unwrap(), &directory.join("credentials")).await.unwrap();
        let kubeconfig = server.kubeconfig_path().to_owned();
        let kubectl = Kubectl { program, kubeconfig, cache: directory.join("cache") };
        embedded.api.run_pods(directory, vec![("FROM_THE_NODE".to_owned(), "yes".to_owned())]).await.unwrap();
        Self { embedded, server, kubectl }
    }

    /// Shuts down and starts again with the same data.
    async fn restart(self) -> Self {
        let Self { embedded, server, kubectl } = self;
        server.shutdown().await;
        Self::open(embedded.reopen().await, kubectl.program).await
    }

    pub async fn apply(&self, manifest: &str) {
        let file = write(self.embedded.directory.path(), "manifest.yaml", manifest);
        self.kubectl.run(&format!("apply -f {file}")).await;
    }

    /// Waits until a JSONPath of an object has a value.
    pub async fn wait_for_value(&self, what: &str, path: &str, value: &str) {
        let arguments = format!("get {what} -o jsonpath={path}");
        let reached = || async {
            let output = self.kubectl.output(&arguments).await;
            (text(&output.stdout) == value).then_some(())
        };
        eventually(&format!("{what} {path} is {value}"), reached).await;
    }

    pub async fn json(&self, what: &str) -> Value {
        serde_json::from_str(&self.kubectl.run(&format!("get {what} -o json")).await).unwrap()
    }

    pub async fn shut_down(self) {
        self.server.shutdown().await;
        self.embedded.api.close().await;
    }

    pub fn pod_directory(&self, pod: &Value) -> PathBuf {
        self.embedded.directory.path().join("pods").join(pod["metadata"]["uid"].as_str().unwrap())
    }
}

/// A pod with one container that runs a line of shell.
pub fn pod(name: &str, more: &str, line: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{{more} containers: [{{name: main, image: any, \
         command: [sh, -c, '{line}']}}]}}}}"
    )
}

pub const SLEEP: &str = "exec sleep 1000";

const RICH: &str = r"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: red, shape: round}
---
apiVersion: v1
kind: Secret
metadata: {name: key}
stringData: {password: hunter2}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: rich}
spec:
  volumes:
  - {name: scratch, emptyDir: {}}
  - {name: config, configMap: {name: settings, items: [{key: colour, path: deep/colour}]}}
  - {name: secret, secret: {secretName: key, defaultMode: 256}}
  - {name: data, persistentVolumeClaim: {claimName: data}}
  initContainers:
  - name: first
    image: any
    command: [sh, -c, 'echo one > /scratch/order']
    volumeMounts: [{name: scratch, mountPath: /scratch}]
  - name: second
    image: any
    command: [sh, -c, 'echo two >> /scratch/order']
    volumeMounts: [{name: scratch, mountPath: /scratch}]
  containers:
  - name: main
    image: any
    command: [sh, -c]
    args: ['echo started $(COLOUR); echo complaint >&2; exec sleep 1000']
    workingDir: /srv/app
    env:
    - {name: PLAIN, value: text}
    - {name: COLOUR, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}
    - {name: PASSWORD, valueFrom: {secretKeyRef: {name: key, key: password}}}
    - {name: ME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    volumeMounts:
    - {name: scratch, mountPath: /scratch}
    - {name: config, mountPath: /etc/app, readOnly: true}
    - {name: secret, mountPath: /var/run/secret}
    - {name: data, mountPath: /var/lib/thing, subPath: inner}
";

/// A pod that finishes while others are started is not started again as an interrupted one.
#[tokio::test(flavor = "multi_thread")]
async fn pods_that_finish_while_others_start_succeed() {
    let Some(cluster) = Cluster::start().await else { return };
    for round in 0..3 {
        let pods: Vec<_> =
            (0..25).map(|one| pod(&format!("short-{round}-{one}"), "restartPolicy: Never,", "exit 0")).collect();
        cluster.apply(&pods.join("\n---\n")).await;
    }
    let phases = "get pods -o jsonpath={.items[*].status.phase}";
    let all_ended = || async {
        let phases = cluster.kubectl.run(phases).await;
        phases.split_whitespace().all(|phase| phase == "Succeeded" || phase == "Failed").then_some(())
    };
    eventually("all pods have ended", all_ended).await;
    // A second runner of a finished pod would write its status now.
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let statuses = cluster
        .kubectl
        .run("get pods -o jsonpath={.items[*].status.containerStatuses[*].state.terminated.reason}")
        .await;
    assert!(statuses.split_whitespace().all(|reason| reason == "Completed"), "{statuses}");
    cluster.shut_down().await;
}

#[tokio::test]
async fn a_pod_gets_its_volumes_environment_and_order() {
    let Some(cluster) = Cluster::start().await else { return };
    let kubectl = &cluster.kubectl;
    cluster.apply(RICH).await;
    kubectl.run("wait --for=condition=Ready pod/rich --timeout=180s").await;
    let exec = |line: &'static str| async move { kubectl.run(&format!("exec rich -c main -- {line}")).await };
    assert_eq!(exec("cat /scratch/order").await, "one\ntwo\n");
    assert_eq!(exec("cat /etc/app/deep/colour").await, "red");
    assert_eq!(exec("cat /var/run/secret/password").await, "hunter2");
    assert_eq!(exec("stat -L -c %a /run/secret/password").await, "400\n");
    assert_eq!(exec("printenv PLAIN COLOUR PASSWORD ME FROM_THE_NODE").await, "text\nred\nhunter2\nrich\nyes\n");
    assert_eq!(exec("pwd").await, "/srv/app\n");
    exec("touch /var/lib/thing/kept /tmp/private /scratch/shared").await;
    // What is the host's cannot be changed, what is mounted read-only neither; other processes are not seen.
    for line in ["touch /usr/x", "touch /home/x", "touch /etc/app/x", "rm /etc/hostname"] {
        let output_text = kubectl.fail(&format!("exec rich -c main -- {line}")).await;
        assert!(output_text.contains("Read-only") || output_text.contains("busy"), "{line}: {output_text}");
    }
    assert!(!std::path::Path::new("/tmp/private").exists());
    assert!(exec("ls /proc").await.lines().filter(|name| name.parse::<u32>().is_ok()).count() < 8);
    let shown = cluster.json("pod rich").await;
    let directory = cluster.pod_directory(&shown);
    assert!(directory.join("volumes/kubernetes.io~empty-dir/scratch/shared").exists());
    let volume = cluster.json("pvc data").await["spec"]["volumeName"].as_str().unwrap().to_owned();
    assert!(directory.join("volumes/kubernetes.io~local-volume").join(&volume).join("inner/kept").exists());
    let logs = kubectl.run("logs rich -c main").await;
    assert!(logs.contains("started red\n") && logs.contains("complaint\n"), "{logs}");
    assert_eq!(kubectl.run("logs rich -c main --tail=1").await.lines().count(), 1);
    assert!(kubectl.run("get nodes").await.contains("Ready"));
    kubectl.run("delete pod rich --timeout=30s").await;
    assert!(!directory.exists(), "a deleted pod leaves nothing");
    cluster.shut_down().await;
}

#[tokio::test]
async fn claims_become_directories_that_outlive_pods_and_go_with_the_claim() {
    let Some(cluster) = Cluster::start().await else { return };
    let kubectl = &cluster.kubectl;
    let claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], \
                 resources: {requests: {storage: 1Gi}}}}";
    cluster.apply(claim).await;
    cluster.wait_for_value("pvc/data", "{.status.phase}", "Bound").await;
    let volumes = cluster.json("pv").await;
    let volume = &volumes["items"][0];
    assert_eq!((&volume["status"]["phase"], &volume["spec"]["claimRef"]["name"]), (&"Bound".into(), &"data".into()));
    let path = PathBuf::from(volume["spec"]["local"]["path"].as_str().unwrap());
    let using = "volumes: [{name: data, persistentVolumeClaim: {claimName: data}}], restartPolicy: Never,";
    let writer = pod("writer", using, "echo precious > /data/file")
        .replace("image: any,", "image: any, volumeMounts: [{name: data, mountPath: /data}],");
    cluster.apply(&writer).await;
    cluster.wait_for_value("pod/writer", "{.status.phase}", "Succeeded").await;
    assert_eq!(std::fs::read_to_string(path.join("file")).unwrap(), "precious\n");
    let holder = pod("holder", using, SLEEP)
        .replace("image: any,", "image: any, volumeMounts: [{name: data, mountPath: /data}],");
    cluster.apply(&holder).await;
    kubectl.run("wait --for=condition=Ready pod/holder --timeout=180s").await;
    kubectl.run("delete pvc data --wait=false").await;
    assert_eq!(kubectl.run("exec holder -- cat /data/file").await, "precious\n");
    kubectl.run("delete pod holder writer --timeout=30s").await;
    kubectl.run("wait --for=delete pvc/data --timeout=30s").await;
    eventually("the directory is removed", || async { (!path.exists()).then_some(()) }).await;
    cluster.shut_down().await;
}

#[tokio::test]
async fn containers_restart_as_their_policy_says_and_status_tells_it() {
    let Some(cluster) = Cluster::start().await else { return };
    let kubectl = &cluster.kubectl;
    cluster.apply(&pod("done", "restartPolicy: Never,", "exit 0")).await;
    cluster.apply(&pod("broken", "restartPolicy: Never,", "exit 3")).await;
    cluster
        .apply(
            &pod("stubborn", "restartPolicy: OnFailure,", "test $(ls /logs/main | wc -l) -ge 3 || exit 4")
                .replace("image: any,", "image: any, volumeMounts: [{name: logs, mountPath: /logs}],")
                .replace("restartPolicy", "volumes: [{name: logs, emptyDir: {}}], restartPolicy")
                .replace("test", "mkdir -p /logs/main; mktemp -p /logs/main; test"),
        )
        .await;
    cluster.apply(&pod("looping", "", "echo again; exit 7")).await;
    cluster.wait_for_value("pod/done", "{.status.phase}", "Succeeded").await;
    cluster.wait_for_value("pod/broken", "{.status.phase}", "Failed").await;
    cluster.wait_for_value("pod/stubborn", "{.status.phase}", "Succeeded").await;
    let broken = &cluster.json("pod broken").await["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&broken["exitCode"], &broken["reason"]), (&3.into(), &"Error".into()));
    assert!(broken["startedAt"].is_string() && broken["finishedAt"].is_string());
    assert_eq!(cluster.json("pod stubborn").await["status"]["containerStatuses"][0]["restartCount"], 2);
    cluster
        .wait_for_value("pod/looping", "{.status.containerStatuses[0].state.waiting.reason}", "CrashLoopBackOff")
        .await;
    let looping = cluster.json("pod looping").await;
    assert_eq!(looping["status"]["phase"], "Running");
    assert_eq!(looping["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 7);
    assert!(kubectl.run("get pods").await.contains("CrashLoopBackOff"));
    kubectl.run("delete pod looping --timeout=30s").await;
    cluster.shut_down().await;
}

#[tokio::test]
async fn unsupported_pods_are_rejected_with_a_message() {
    let Some(cluster) = Cluster::start().await else { return };
    let kubectl = &cluster.kubectl;
    let without_command =
        "{apiVersion: v1, kind: Pod, metadata: {name: silent}, spec: {containers: [{name: main, image: any}]}}";
    cluster.apply(without_command).await;
    let nfs = pod("far", "volumes: [{name: share, nfs: {server: nas, path: /}}],", SLEEP)
        .replace("image: any,", "image: any, volumeMounts: [{name: share, mountPath: /share}],");
    cluster.apply(&nfs).await;
    let env = pod("env", "", SLEEP).replace("image: any,", "image: any, envFrom: [{configMapRef: {name: later}}],");
    cluster.apply(&env).await;
    let lost = |name: &str, policy: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{restartPolicy: {policy}, containers: \
             [{{name: main, image: any, command: [/nowhere/program]}}]}}}}"
        )
    };
    cluster.apply(&lost("lost", "Always")).await;
    cluster.apply(&lost("once", "Never")).await;
    let reason = "{.status.containerStatuses[0].state.waiting.reason}";
    cluster.wait_for_value("pod/lost", reason, "CrashLoopBackOff").await;
    cluster.wait_for_value("pod/once", "{.status.phase}", "Failed").await;
    let once = &cluster.json("pod once").await["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&once["exitCode"], &once["reason"]), (&128.into(), &"StartError".into()), "{once}");
    assert!(once["message"].as_str().unwrap().contains("\"/nowhere/program\": no such file"), "{once}");
    cluster.wait_for_value("pod/silent", reason, "CreateContainerError").await;
    cluster.wait_for_value("pod/far", reason, "CreateContainerError").await;
    cluster.wait_for_value("pod/env", reason, "CreateContainerConfigError").await;
    let described = kubectl.run("describe pod far").await;
    assert!(described.contains("volume share: the embedded node does not support nfs volumes"), "{described}");
    // A missing object can be created later.
    cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: later}, data: {LATE: 'yes'}}").await;
    kubectl.run("wait --for=condition=Ready pod/env --timeout=180s").await;
    assert_eq!(kubectl.run("exec env -- printenv LATE").await, "yes\n");
    cluster.shut_down().await;
}

#[tokio::test]
async fn logs_exec_and_cp_work_as_on_any_cluster() {
    let Some(cluster) = Cluster::start().await else { return };
    let kubectl = &cluster.kubectl;
    cluster
        .apply(
            &pod("busy", "", "for i in 1 2 3; do echo line $i; read -t 1 x < /dev/zero; done; echo end")
                .replace("read -t 1 x < /dev/zero", "sleep 0.3")
                .replace("spec: {", "spec: {restartPolicy: Never, "),
        )
        .await;
    cluster.apply(&pod("idle", "", SLEEP)).await;
    kubectl.run("wait --for=condition=Ready pod/idle --timeout=180s").await;
    cluster.wait_for_value("pod/busy", "{.status.phase}", "Succeeded").await;
    assert_eq!(kubectl.run("logs busy").await, "line 1\nline 2\nline 3\nend\n");
    assert_eq!(kubectl.run("logs -f busy --tail=2").await, "line 3\nend\n");
    let timed = kubectl.run("logs busy --timestamps").await;
    let times: Vec<(Timestamp, &str)> = timed
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(time, text)| (time.parse().unwrap(), text))
        .collect();
    assert!(times.is_sorted_by_key(|(time, _)| *time), "{timed}");
    assert_eq!(
        times.iter().map(|(_, text)| *text).collect::<Vec<_>>(),
        ["line 1", "line 2", "line 3", "end"],
        "{timed}"
    );
    assert_eq!(kubectl.run("logs busy --since=1h --tail=1").await, "end\n");
    assert_eq!(kubectl.run("logs busy --since-time=2999-01-01T00:00:00Z").await, "");
    // A followed log shows new lines and ends with the container.
    cluster
        .apply(
            &pod("talker", "", "while test ! -e /tmp/stop; do sleep 0.1; done; echo stopped")
                .replace("spec: {", "spec: {restartPolicy: Never, ")
                .replace("while", "echo begin; while"),
        )
        .await;
    kubectl.run("wait --for=condition=Ready pod/talker --timeout=180s").await;
    let mut following = kubectl.command("logs -f talker").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("begin"));
    kubectl.run("exec talker -- touch /tmp/stop").await;
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("stopped"));
    assert_eq!(lines.next_line().await.unwrap(), None);
    assert!(following.wait().await.unwrap().success());
    let failed = kubectl.output("exec idle -- sh -c exit${IFS}5").await;
    assert_eq!(failed.status.code(), Some(5), "{}", text(&failed.stderr));
    let mut counting =
        kubectl.command("exec -i idle -- wc -c").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = counting.stdin.take().unwrap();
    let megabytes = vec![7; 3 << 20];
    input.write_all(&megabytes).await.unwrap();
    drop(input);
    assert_eq!(text(&counting.wait_with_output().await.unwrap().stdout).trim(), (3 << 20).to_string());
    let directory = cluster.embedded.directory.path();
    let (there, back) = (write(directory, "there", &"x".repeat(2 << 20)), directory.join("back").display().to_string());
    kubectl.run(&format!("cp {there} idle:/tmp/copied")).await;
    let output_text = kubectl.output(&format!("cp idle:/tmp/copied {back}")).await;
    assert!(output_text.status.success(), "{}", text(&output_text.stderr));
    assert_eq!(std::fs::read(&there).unwrap(), std::fs::read(&back).unwrap());
    cluster.shut_down().await;
}

#[tokio::test]
async fn a_program_below_tmp_is_seen_by_the_container_that_runs_it_and_nothing_beside_it() {
    let Some(cluster) = Cluster::start().await else { return };
    let kubectl = &cluster.kubectl;
    let folder = tempfile::Builder::new().prefix("plimsoll-program-").tempdir_in("/tmp").unwrap();
    let program = folder.path().join("deep/program");
    std::fs::create_dir(folder.path().join("deep")).unwrap();
    std::fs::write(&program, "#!/bin/sh\necho ran as $0 with $1; ls ${0%/*}; exec sleep 1000\n").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(folder.path().join("deep/beside"), "").unwrap();
    // By way of a link, too: a clone may lie behind one.
    let link = tempfile::Builder::new().prefix("plimsoll-link-").tempdir_in("/var/tmp").unwrap();
    std::os::unix::fs::symlink(folder.path(), link.path().join("clone")).unwrap();
    let named = [("straight", program.clone()), ("linked", link.path().join("clone/deep/program"))];
    for (name, path) in &named {
        let path = path.display();
        let pod = pod(name, "", "").replace("command: [sh, -c, '']", &format!("command: ['{path}', word]"));
        cluster.apply(&pod).await;
    }
    kubectl.run("wait --for=condition=Ready pod/straight pod/linked --timeout=60s").await;
    for (name, path) in &named {
        cluster.wait_for_value(&format!("pod/{name}"), "{.status.containerStatuses[0].restartCount}", "0").await;
        let output_text = || async {
            let output_text = kubectl.run(&format!("logs {name}")).await;
            (output_text == format!("ran as {} with word\nprogram\n", path.display())).then_some(())
        };
        eventually(&format!("{name} reports its node"), output_text).await;
    }
    let kept = kubectl.fail(&format!("exec straight -- touch {}", program.display())).await;
    assert!(kept.contains("Read-only"), "{kept}");
    cluster.shut_down().await;
}

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 5
      containers: [{name: main, image: 'web:1', command: [sleep, '1000']}]
";

#[tokio::test]
async fn deployments_keep_their_pods_scale_and_roll() {
    let Some(cluster) = Cluster::start().await else { return };
    let kubectl = &cluster.kubectl;
    cluster.apply(DEPLOYMENT).await;
    kubectl.run("rollout status deployment/web --timeout=180s").await;
    assert!(kubectl.run("get deploy web").await.contains("2/2"));
    kubectl.run("scale deployment web --replicas=3").await;
    kubectl.run("rollout status deployment/web --timeout=180s").await;
    let pods = cluster.json("pods").await;
    assert_eq!(pods["items"].as_array().unwrap().len(), 3);
    // One that is deleted is replaced.
    let name = pods["items"][0]["metadata"]["name"].as_str().unwrap();
    kubectl.run(&format!("delete pod {name} --timeout=30s")).await;
    cluster.wait_for_value("deployment/web", "{.status.readyReplicas}", "3").await;
    kubectl.run("set image deployment/web main=web:2").await;
    kubectl.run("rollout status deployment/web --timeout=180s").await;
    let settled = || async {
        let pods = cluster.json("pods").await;
        let pods = pods["items"].as_array().unwrap();
        let new = |pod: &Value| pod["spec"]["containers"][0]["image"] == "web:2";
        (pods.len() == 3 && pods.iter().all(new)).then_some(())
    };
    eventually("the old pods go", settled).await;
    kubectl.run("scale deployment web --replicas=0").await;
    eventually("all pods go", || async {
        cluster.json("pods").await["items"].as_array().unwrap().is_empty().then_some(())
    })
    .await;
    kubectl.run("delete deployment web --timeout=30s").await;
    eventually("its sets go", || async {
        cluster.json("rs").await["items"].as_array().unwrap().is_empty().then_some(())
    })
    .await;
    cluster.shut_down().await;
}

const STATEFUL: &str = "
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: main
        image: db
        command: [sh, -c, 'hostname=$HOSTNAME; echo $hostname >> /data/starts; exec sleep 1000']
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
";

#[tokio::test]
async fn members_of_stateful_sets_have_stable_names_and_keep_their_volumes() {
    let Some(cluster) = Cluster::start().await else { return };
    let kubectl = &cluster.kubectl;
    cluster.apply(STATEFUL).await;
    kubectl.run("rollout status statefulset/db --timeout=180s").await;
    assert_eq!(kubectl.run("get pods -o name").await, "pod/db-0\npod/db-1\n");
    kubectl.run("delete pod db-1 --timeout=30s").await;
    cluster.wait_for_value("statefulset/db", "{.status.readyReplicas}", "2").await;
    assert_eq!(kubectl.run("exec db-1 -- cat /data/starts").await, "db-1\ndb-1\n");
    kubectl.run("scale statefulset db --replicas=1").await;
    kubectl.run("wait --for=delete pod/db-1 --timeout=30s").await;
    assert_eq!(kubectl.run("get pvc -o name").await.lines().count(), 2, "claims stay");
    cluster.shut_down().await;
}

#[tokio::test]
async fn jobs_run_to_completion_and_daemon_sets_have_one_pod() {
    let Some(cluster) = Cluster::start().await else { return };
    let spec = "restartPolicy: Never, containers: [{name: main, image: any, command: [sh, -c, exit 0]}]";
    cluster.apply(&format!("{{apiVersion: batch/v1, kind: Job, metadata: {{name: work}}, spec: {{completions: 2, template: {{spec: {{{spec}}}}}}}}}")).await;
    cluster.kubectl.run("wait --for=condition=Complete job/work --timeout=180s").await;
    assert_eq!(cluster.json("job work").await["status"]["succeeded"], 2);
    let daemon = DEPLOYMENT.replace("Deployment", "DaemonSet").replace("  replicas: 2\n", "");
    cluster.apply(&daemon).await;
    cluster.wait_for_value("daemonset/web", "{.status.numberReady}", "1").await;
    cluster.shut_down().await;
}

#[tokio::test]
async fn deleting_asks_then_kills_the_whole_tree() {
    let Some(cluster) = Cluster::start().await else { return };
    let kubectl = &cluster.kubectl;
    let polite = pod(
        "polite",
        "volumes: [{name: out, hostPath: {path: OUT}}],",
        "trap \"echo asked > /out/asked; exit 0\" TERM; echo; while :; do sleep 0.1; done",
    )
    .replace("image: any,", "image: any, volumeMounts: [{name: out, mountPath: /out}],");
    let out = cluster.embedded.directory.path().join("out");
    std::fs::create_dir(&out).unwrap();
    cluster.apply(&polite.replace("OUT", &out.display().to_string())).await;
    let deaf =
        pod("deaf", "terminationGracePeriodSeconds: 1,", "trap \"\" TERM; sleep 1234.5 & echo; wait; sleep 1000");
    cluster.apply(&deaf).await;
    kubectl.run("wait --for=condition=Ready pod/polite pod/deaf --timeout=180s").await;
    for name in ["polite", "deaf"] {
        let output_text = || async { (!kubectl.run(&format!("logs {name}")).await.is_empty()).then_some(()) };
        eventually("it has set its trap", output_text).await;
    }
    kubectl.run("delete pod polite deaf --timeout=30s").await;
    assert_eq!(std::fs::read_to_string(out.join("asked")).unwrap(), "asked\n");
    eventually("nothing of it is left", || async { (!runs("1234.5")).then_some(()) }).await;
    cluster.shut_down().await;
}

/// Whether a process with this argument exists.
fn runs(argument: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    lines.into_iter().any(|line| text(&line).split('\0').any(|word| word == argument))
}

#[tokio::test]
async fn pods_end_with_the_api_and_start_again_with_it() {
    let Some(cluster) = Cluster::start().await else { return };
    cluster.apply(&pod("lasting", "", "exec sleep 4321.5")).await;
    cluster.apply(&pod("once", "restartPolicy: Never,", "exec sleep 4322.5")).await;
    cluster.kubectl.run("wait --for=condition=Ready pod/lasting pod/once --timeout=180s").await;
    assert!(runs("4321.5"));
    let cluster = cluster.restart().await;
    cluster.wait_for_value("pod/lasting", "{.status.containerStatuses[0].restartCount}", "1").await;
    cluster.wait_for_value("pod/once", "{.status.phase}", "Failed").await;
    cluster.kubectl.run("wait --for=condition=Ready pod/lasting --timeout=180s").await;
    cluster.shut_down().await;
    eventually("everything ends", || async { (!runs("4321.5") && !runs("4322.5")).then_some(()) }).await;
}

const KILLED: &str = "PLIMSOLL_NODE_DIRECTORY";

/// Not a test by itself: the process that is killed.
#[tokio::test(flavor = "multi_thread")]
async fn runs_a_pod_until_it_is_killed() {
    let Some(directory) = std::env::var_os(KILLED).map(PathBuf::from) else { return };
    let api = Api::open(&directory).await.unwrap();
    api.run_pods(&directory, Vec::new()).await.unwrap();
    let pods: kube::Api<Pod> = kube::Api::namespaced(api.client("default"), "default");
    let tree = "trap \"\" TERM HUP; setsid sleep 5432.5 & sleep 5433.5; sleep 5434.5";
    let spec = json!({"containers": [{"name": "main", "image": "any", "command": ["sh", "-c", tree]}]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tree"}, "spec": spec});
    pods.create(&kube::api::PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn nothing_outlives_a_node_that_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    // Below nohup, SIGHUP is ignored.
    let mut child = tokio::process::Command::new("nohup")
        .arg(std::env::current_exe().unwrap())
        .args(["node::runs_a_pod_until_it_is_killed", "--exact"])
        .env(KILLED, directory.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the tree runs", || async { (runs("5432.5") && runs("5433.5")).then_some(()) }).await;
    child.kill().await.unwrap();
    eventually("the process tree is killed", || async { (!runs("5432.5") && !runs("5433.5")).then_some(()) }).await;
}

const DATA_DIRECTORY: &str = "PLIMSOLL_TEST_DATA_DIRECTORY";

/// Not a test by itself: the process that cannot create mount namespaces.
#[tokio::test]
async fn run_pods_without_mount_namespaces() {
    let Some(directory) = std::env::var_os(DATA_DIRECTORY).map(PathBuf::from) else { return };
    let api = Api::open(&directory).await.unwrap();
    let error = api.run_pods(&directory, Vec::new()).await.unwrap_err();
    let words = "cannot run pods: cannot create namespaces and mounts: unshare";
    assert!(error.reason() == "SandboxRefused" && error.to_string().starts_with(words), "{error}");
    let nodes: kube::Api<Node> = kube::Api::all(api.client("default"));
    let nodes = nodes.list(&kube::api::ListParams::default()).await.unwrap();
    assert!(nodes.items.is_empty(), "no node is registered");
    api.close().await;
}

#[tokio::test]
async fn without_mount_namespaces_the_node_reports_an_error_and_does_not_start() {
    let directory = tempfile::tempdir().unwrap();
    // Root without CAP_SYS_ADMIN; another user becomes root in a user namespace first.
    let is_root = directory.path().metadata().unwrap().uid() == 0;
    let root: &[&str] = if is_root { &[] } else { &["unshare", "--user", "--map-root-user"] };
    let output = tokio::process::Command::new("env")
        .args(root)
        .args(["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"])
        .arg(std::env::current_exe().unwrap())
        .args(["node::run_pods_without_mount_namespaces", "--exact"])
        .env(DATA_DIRECTORY, directory.path())
        .output()
        .await
        .unwrap();
    let output_text = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && output_text.contains("1 passed"), "{output_text}");
}
