//! `kubectl` itself, against the listener.

use crate::{conformance::eventually, embedded::Embedded};
use std::{
    path::{Path, PathBuf},
    process::{Output, Stdio},
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
};

/// Finds `kubectl`: in the environment, the cache or `PATH`.
pub fn find() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cache = std::env::var_os("PLIMSOLL_CACHE").map_or_else(|| home.join(".cache/plimsoll"), PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::var_os("PLIMSOLL_KUBECTL")
        .map(PathBuf::from)
        .into_iter()
        .chain([cache.join("bin/kubectl")])
        .chain(std::env::split_paths(&path).map(|directory| directory.join("kubectl")))
        .find(|candidate| candidate.is_file())
}

/// Reports a skipped test; fails where skipping is not permitted.
pub fn skip(name: &str, reason: &str) {
    let required = ["CI", "PLIMSOLL_REQUIRE_ALL"]
        .iter()
        .any(|name| std::env::var(name).is_ok_and(|value| matches!(value.as_str(), "true" | "1")));
    assert!(!required, "{name} cannot be skipped here: {reason}");
    eprintln!("skipped {name}: {reason}");
}

pub struct Kubectl {
    pub program: PathBuf,
    pub kubeconfig: PathBuf,
    pub cache: PathBuf,
}

impl Kubectl {
    pub fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig).arg("--cache-dir").arg(&self.cache);
        command.args(arguments.split_whitespace()).kill_on_drop(true).stdin(Stdio::null());
        command
    }

    pub async fn output(&self, arguments: &str) -> Output {
        self.command(arguments).output().await.unwrap()
    }

    /// Runs a command that must succeed with empty stderr, and returns its output.
    pub async fn run(&self, arguments: &str) -> String {
        let output = self.output(arguments).await;
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success() && err.is_empty(), "kubectl {arguments}\n{out}\n{err}");
        out
    }

    /// Runs a command that must fail, and returns its error output.
    pub async fn fail(&self, arguments: &str) -> String {
        let output = self.output(arguments).await;
        assert!(!output.status.success(), "kubectl {arguments} succeeded: {}", text(&output.stdout));
        text(&output.stderr)
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn write(directory: &Path, name: &str, content: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, content).unwrap();
    path.display().to_string()
}

const WORKLOAD: &str = r"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: web}}
data: {colour: red}
---
apiVersion: v1
kind: Secret
metadata: {name: key}
stringData: {password: hunter2}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: 'web:1'}
      - {name: side, image: 'side:1'}
";

fn config_map(name: &str, metadata: &str) -> String {
    format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}{metadata}}}, data: {{a: b}}}}")
}

const DEFINITION: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat, shortNames: [bt], categories: [fleet]}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              draught: {type: integer}
    additionalPrinterColumns:
    - {name: Draught, type: integer, jsonPath: .spec.draught}
";

const BOAT: &str = "
apiVersion: example.com/v1
kind: Boat
metadata: {name: lightning}
spec: {draught: 7}
";

#[tokio::test]
async fn kubectl_works_as_on_any_cluster() {
    let Some(program) = find() else {
        return skip("kubectl_works_as_on_any_cluster", "no kubectl in PLIMSOLL_KUBECTL, the cache or PATH");
    };
    let embedded = Embedded::open().await;
    let directory = embedded.directory.path();
    let served = embedded.api.serve("127.0.0.1:0".parse().unwrap(), &directory.join("credentials")).await.unwrap();
    let kubeconfig = served.kubeconfig_path().to_owned();
    let kubectl = Kubectl { program, kubeconfig, cache: directory.join("cache") };
    let version = kubectl.output("version --client -o json").await;
    let version: serde_json::Value = serde_json::from_slice(&version.stdout).unwrap_or_default();
    let minor = version["clientVersion"]["minor"].as_str().unwrap_or_default().trim_end_matches('+').parse::<u32>();
    if minor.unwrap_or_default() < 31 {
        return skip("kubectl_works_as_on_any_cluster", "the kubectl that was found is older than 1.31");
    }
    apply_and_get(&kubectl, directory).await;
    apply_a_list(&kubectl, directory).await;
    change(&kubectl, directory).await;
    custom_resources(&kubectl, directory).await;
    watch_and_wait(&kubectl, directory).await;
    rejected_requests(&kubectl, directory).await;
    served.shutdown().await;
}

async fn apply_a_list(kubectl: &Kubectl, directory: &Path) {
    let item =
        |name: &str| format!("- {{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: default}}}}\n");
    let list = format!("apiVersion: v1\nkind: List\nitems:\n{}{}", item("one"), item("two"));
    let file = write(directory, "list.yaml", &list);
    let made = kubectl.run(&format!("apply -f {file}")).await;
    assert!(made.contains("configmap/one created") && made.contains("configmap/two created"), "{made}");
    kubectl.run(&format!("delete -f {file}")).await;
}

async fn apply_and_get(kubectl: &Kubectl, directory: &Path) {
    let workload = write(directory, "workload.yaml", WORKLOAD);
    let made = kubectl.run(&format!("apply -f {workload}")).await;
    for line in ["configmap/settings created", "secret/key created", "deployment.apps/web created"] {
        assert!(made.contains(line), "{made}");
    }
    let again = kubectl.run(&format!("apply -f {workload}")).await;
    assert!(
        again.contains("configmap/settings unchanged") && again.contains("deployment.apps/web unchanged"),
        "{again}"
    );
    let listed = kubectl.run("get configmaps").await;
    let mut lines = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    assert_eq!(lines.next().unwrap(), ["NAME", "DATA", "AGE"]);
    assert_eq!(lines.next().unwrap()[..2], ["settings", "1"]);
    let deployment = kubectl.run("get deploy web -o wide --show-labels").await;
    assert!(deployment.contains("0/2") && deployment.contains("app=web"), "{deployment}");
    assert_eq!(kubectl.run("get secret key -o jsonpath={.data.password}").await, "aHVudGVyMg==");
    assert!(kubectl.run("get all").await.contains("deployment.apps/web"));
    let described = kubectl.run("describe deployment web").await;
    assert!(described.contains("Image:        web:1") && described.contains("2 desired"), "{described}");
    assert!(kubectl.run("describe configmap settings").await.contains("colour:"));
    assert!(kubectl.run("describe namespace default").await.contains("Status:       Active"));
    let resources = kubectl.run("api-resources").await;
    assert!(resources.contains("deployments") && resources.contains("customresourcedefinitions"), "{resources}");
    assert!(kubectl.run("api-versions").await.contains("apps/v1"));
    assert!(kubectl.run("version").await.contains("Server Version: v1.36"));
    assert!(kubectl.run("get ns -o name").await.contains("namespace/kube-system"));
}

async fn change(kubectl: &Kubectl, directory: &Path) {
    kubectl.run("label configmap settings tier=front").await;
    kubectl.run("annotate configmap settings note=hello").await;
    assert!(kubectl.run("get cm -l tier=front -o name").await.contains("configmap/settings"));
    assert!(kubectl.run("get cm --field-selector metadata.name=other -o name").await.is_empty());
    kubectl.run(r#"patch configmap settings -p {"data":{"colour":"green"}}"#).await;
    kubectl.run(r#"patch configmap settings --type=merge -p {"data":{"more":"yes"}}"#).await;
    kubectl.run(r#"patch configmap settings --type=json -p [{"op":"remove","path":"/data/more"}]"#).await;
    assert_eq!(kubectl.run("get cm settings -o jsonpath={.data}").await, r#"{"colour":"green"}"#);
    kubectl.run("set image deployment/web side=side:2").await;
    let images = kubectl.run("get deploy web -o jsonpath={.spec.template.spec.containers[*].image}").await;
    assert_eq!(images, "web:1 side:2");
    // Applying the file again overwrites the fields that it contains.
    let changed = write(directory, "changed.yaml", &WORKLOAD.replace("red", "blue").replace("web:1", "web:3"));
    let applied = kubectl.run(&format!("apply -f {changed}")).await;
    assert!(applied.contains("configmap/settings configured"), "{applied}");
    assert_eq!(kubectl.run("get cm settings -o jsonpath={.data.colour}").await, "blue");
    let images = kubectl.run("get deploy web -o jsonpath={.spec.template.spec.containers[*].image}").await;
    assert_eq!(images, "web:3 side:1");
    kubectl.run("scale deployment web --replicas=5").await;
    assert_eq!(kubectl.run("get deploy web -o jsonpath={.spec.replicas}").await, "5");
    let planned = write(directory, "planned.yaml", &config_map("planned", ""));
    kubectl.run(&format!("create -f {planned} --dry-run=server")).await;
    assert!(kubectl.fail("get configmap planned").await.contains("NotFound"));
}

async fn custom_resources(kubectl: &Kubectl, directory: &Path) {
    kubectl.run(&format!("apply -f {}", write(directory, "definition.yaml", DEFINITION))).await;
    kubectl.run("wait --for condition=established --timeout=30s crd/boats.example.com").await;
    kubectl.run(&format!("apply -f {}", write(directory, "boat.yaml", BOAT))).await;
    let listed = kubectl.run("get bt").await;
    let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((rows[0].as_slice(), rows[1].as_slice()), (&["NAME", "DRAUGHT"][..], &["lightning", "7"][..]));
    assert!(kubectl.run("get fleet -o name").await.contains("boat.example.com/lightning"));
    assert!(kubectl.run("describe boat lightning").await.contains("Draught:  7"));
    let changed = kubectl.run(&format!("apply -f {}", write(directory, "boat.yaml", &BOAT.replace('7', "8")))).await;
    assert!(changed.contains("configured"), "{changed}");
    let odd = write(directory, "odd.yaml", &BOAT.replace("draught: 7", "draught: 7, mast: 2"));
    let refused = kubectl.fail(&format!("apply -f {odd}")).await;
    assert!(refused.contains("unknown field \"spec.mast\""), "{refused}");
}

async fn watch_and_wait(kubectl: &Kubectl, directory: &Path) {
    let mut watching = kubectl.command("get configmaps -w -o name").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("configmap/settings"));
    kubectl.run(&format!("create -f {}", write(directory, "later.yaml", &config_map("later", "")))).await;
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("configmap/later"));
    let mut table = kubectl.command("get configmaps -w").stdout(Stdio::piped()).spawn().unwrap();
    let mut rows = BufReader::new(table.stdout.take().unwrap()).lines();
    let header = rows.next_line().await.unwrap().unwrap();
    assert!(header.starts_with("NAME"), "{header}");
    for expected in ["later", "settings"] {
        assert!(rows.next_line().await.unwrap().unwrap().starts_with(expected));
    }
    kubectl.run(r#"patch configmap later -p {"data":{"c":"d"}}"#).await;
    let row = rows.next_line().await.unwrap().unwrap();
    assert_eq!(row.split_whitespace().take(2).collect::<Vec<_>>(), ["later", "2"]);
    let mut waiting = kubectl.command("wait --for=delete configmap/later --timeout=30s").spawn().unwrap();
    let deleted = kubectl.run("delete configmap later").await;
    assert!(deleted.contains("configmap \"later\" deleted"), "{deleted}");
    assert!(waiting.wait().await.unwrap().success());
    watching.kill().await.unwrap();
    table.kill().await.unwrap();
    let namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: short}}";
    kubectl.run(&format!("create -f {}", write(directory, "short.yaml", namespace))).await;
    let inside = write(directory, "inside.yaml", &config_map("inside", ", namespace: short"));
    kubectl.run(&format!("create -f {inside}")).await;
    kubectl.run("delete namespace short --timeout=30s").await;
    assert!(kubectl.fail("get namespace short").await.contains("NotFound"));
    kubectl.run("delete deployment web --cascade=foreground --timeout=30s").await;
    kubectl.run("delete crd boats.example.com --timeout=30s").await;
    let fails = || async { (!kubectl.output("get boats").await.status.success()).then_some(()) };
    eventually("the kind is removed", fails).await;
}

async fn rejected_requests(kubectl: &Kubectl, directory: &Path) {
    let server_side =
        kubectl.fail(&format!("apply --server-side -f {}", write(directory, "again.yaml", WORKLOAD))).await;
    assert!(server_side.contains("Server-side apply not available on the server"), "{server_side}");
    let upper = write(directory, "upper.yaml", &config_map("Upper", ""));
    assert!(kubectl.fail(&format!("create -f {upper}")).await.contains("metadata.name: Invalid value"));
    let lost = write(directory, "lost.yaml", &config_map("lost", ", namespace: nowhere"));
    assert!(kubectl.fail(&format!("create -f {lost}")).await.contains("namespaces \"nowhere\" not found"));
    assert!(kubectl.fail("logs web").await.contains("not found"));
    assert!(kubectl.fail("delete namespace default").await.contains("Forbidden"));
    assert!(kubectl.fail("get nonsense").await.contains("doesn't have a resource type"));
    assert!(kubectl.fail("--token=wrong get pods").await.contains("Unauthorized"));
}
