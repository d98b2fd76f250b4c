//! A release of the Helm chart in a real cluster. The embedded API is not enough: Helm applies on the server's side, and waits for
//! pods that pass their probes and for the job that updates the definitions.

use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use plimsoll_testkit::peers::plimsoll_pods::{IMAGE, load_image};
use plimsoll_testkit::{cache, require};
use serde_json::{Value, json};

use crate::bed::{Bed, Home, eventually, phase};

struct Helm {
    program: PathBuf,
    kubeconfig: PathBuf,
    namespace: String,
    home: tempfile::TempDir,
}

impl Helm {
    fn run(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(&self.program);
        command.args(arguments).env("HOME", self.home.path()).env("KUBECONFIG", &self.kubeconfig);
        let output = command.env("HELM_NAMESPACE", &self.namespace).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(output.status.success(), "helm {arguments:?}: {text}\n{}", self.states());
        text
    }

    /// The pods and events, for a test that fails.
    fn states(&self) -> String {
        let Ok(kubectl) = cache::program("kubectl") else { return String::new() };
        let mut command = Command::new(kubectl);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args([
            "--namespace",
            &self.namespace,
            "get",
            "pods,jobs,events",
        ]);
        command.output().map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
    }
}

/// A location in a volume that needs no store, and a schedule that does not run.
fn values() -> Value {
    let (repository, tag) = IMAGE.rsplit_once(':').unwrap();
    json!({
        "image": { "repository": repository, "tag": tag, "pullPolicy": "Never" },
        "deployNodeAgent": false,
        "resources": { "requests": { "cpu": "1m" } },
        "configuration": { "backupStorageLocation": [
            { "provider": "directory", "bucket": "/backups", "volume": { "emptyDir": {} } },
        ] },
        "schedules": { "daily": { "schedule": "0 1 * * *", "paused": true, "template": { "ttl": "24h" } } },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_installed_upgraded_rolled_back_and_uninstalled() {
    let cluster = require!(plimsoll_testkit::cluster().await);
    let program = require!(cache::program("helm"));
    load_image(cluster, Path::new(env!("CARGO_BIN_EXE_plimsoll"))).unwrap();
    let bed = Bed::real(cluster).await;
    let namespace = cluster.namespace("chart").await.unwrap();
    let home = Home { bed: &bed, namespace: namespace.name().to_owned(), bucket: PathBuf::new() };
    let helm = Helm {
        program,
        kubeconfig: cluster.kubeconfig().to_owned(),
        namespace: namespace.name().to_owned(),
        home: tempfile::tempdir().unwrap(),
    };
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/charts/plimsoll");
    let file = bed.directory.path().join("values.json");
    std::fs::write(&file, values().to_string()).unwrap();
    let wait = ["--wait", "--timeout", "3m"];

    let notes = helm.run(&[&["install", "velero", chart, "--values", file.to_str().unwrap()], &wait[..]].concat());
    assert!(notes.contains("No node agents run") && !notes.contains("no effect"), "{notes}");
    assert_eq!(home.get("Schedule", "velero-daily").await["spec"]["paused"], true);
    bed.application("shop", 5).await;
    back_up(&helm, &bed.ns("shop"));
    assert_eq!(phase(&home.get("Backup", "b").await), "Completed");

    let deployments: Api<Deployment> = Api::namespaced(bed.client.clone(), namespace.name());
    let replicas = async || deployments.get("plimsoll").await.unwrap().status.unwrap().ready_replicas;
    let settings = ["--reuse-values", "--set", "replicas=2,podDisruptionBudget.enabled=true"];
    helm.run(&[&["upgrade", "velero", chart], &settings[..], &wait[..]].concat());
    assert_eq!(replicas().await, Some(2));
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(bed.client.clone(), namespace.name());
    assert!(budgets.get_opt("plimsoll").await.unwrap().is_some());

    helm.run(&[&["rollback", "velero", "1"], &wait[..]].concat());
    eventually("one server is left", async || replicas().await == Some(1)).await;
    assert!(budgets.get_opt("plimsoll").await.unwrap().is_none());

    helm.run(&["uninstall", "velero", "--wait", "--timeout", "3m"]);
    assert!(deployments.get_opt("plimsoll").await.unwrap().is_none());
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", "ClusterRole"));
    let roles: Api<DynamicObject> = Api::all_with(bed.client.clone(), &resource);
    assert!(roles.get_opt(&format!("plimsoll-{}", namespace.name())).await.unwrap().is_none());
    assert_eq!(phase(&home.get("Backup", "b").await), "Completed", "backups and their definitions stay");

    assert_velero_release_is_taken_over(&helm, &home, chart).await;
    bed.clear().await;
}

/// A release of another chart with Velero's values and a schedule is upgraded to this chart: the schedule stays the same object.
async fn assert_velero_release_is_taken_over(helm: &Helm, home: &Home<'_>, chart: &str) {
    let velero = home.bed.directory.path().join("velero");
    std::fs::create_dir_all(velero.join("templates")).unwrap();
    std::fs::write(velero.join("Chart.yaml"), "{apiVersion: v2, name: velero, version: 12.1.0}").unwrap();
    std::fs::write(velero.join("values.yaml"), include_str!("chart/velero.yaml")).unwrap();
    let schedule = json!({ "apiVersion": "velero.io/v1", "kind": "Schedule", "metadata": { "name": "velero-daily" },
        "spec": { "schedule": "0 2 * * *", "paused": true, "template": {} } });
    std::fs::write(velero.join("templates/schedule.yaml"), schedule.to_string()).unwrap();
    helm.run(&["install", "velero", velero.to_str().unwrap()]);
    let before = home.get("Schedule", "velero-daily").await;

    let (repository, tag) = IMAGE.rsplit_once(':').unwrap();
    let image = format!("image.repository={repository},image.tag={tag},image.pullPolicy=Never");
    let notes = helm.run(&["upgrade", "velero", chart, "--reuse-values", "--set-string", &image]);
    assert!(!notes.contains("no effect"), "{notes}");
    let after = home.get("Schedule", "velero-daily").await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["spec"]["schedule"], "0 1 * * *");
    helm.run(&["uninstall", "velero", "--wait", "--timeout", "3m"]);
}

/// A backup with the rights that the chart gives.
fn back_up(helm: &Helm, namespace: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(["backup", "create", "b", "--include-namespaces", namespace, "--wait", "-n", &helm.namespace]);
    let output = command.arg("--kubeconfig").arg(&helm.kubeconfig).output().unwrap();
    assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stderr), helm.states());
}
