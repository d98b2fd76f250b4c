//! An embedded cluster for functions, and a host that keeps what they remember and log.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Config};
use plimsoll_api::kanister::v1alpha1::{ActionSetStatus, ActionSpec, BlueprintAction};
use plimsoll_blueprint::functions::arguments::Arguments;
use plimsoll_blueprint::functions::{self, Call, Host, PodSettings, ToolsImage, function_spec};
use plimsoll_blueprint::params::Params;
use plimsoll_blueprint::results::{ActionSetResults, Outputs, PhaseIndex, PhaseRef};
use plimsoll_blueprint::{Error, action_set_status};
use plimsoll_local::HttpsServer;
use plimsoll_local::fixtures::{create_namespace, eventually};
use plimsoll_progress::{Clock, Counts, Operation, Unit};
use serde_json::{Value, json};

/// The namespace of the server and of all objects.
pub const NAMESPACE: &str = "shop";
/// The name of our image and our program in it.
pub const TOOLS_IMAGE: (&str, &str) = ("ours", "/plimsoll");

pub struct Bed {
    pub client: Client,
    api: plimsoll_local::Api,
    server: Option<HttpsServer>,
    directory: tempfile::TempDir,
}

impl Bed {
    /// A cluster without a node: the test says what becomes of pods.
    pub async fn without_node() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let api = plimsoll_local::Api::open(&directory.path().join("api")).await.unwrap();
        let client = api.client(NAMESPACE);
        create_namespace(&client, NAMESPACE).await.unwrap();
        Self { client, api, server: None, directory }
    }

    /// A cluster that runs pods as processes, with this `PATH`.
    pub async fn with_pods(path: &str) -> Self {
        let mut bed = Self::without_node().await;
        let directory = bed.directory.path();
        let server = bed.api.serve("127.0.0.1:0".parse().unwrap(), &directory.join("credentials")).await.unwrap();
        bed.api.run_pods(directory, vec![("PATH".to_owned(), path.to_owned())]).await.unwrap();
        // Commands in pods upgrade their connection, which the in-process client cannot.
        let kubeconfig = Kubeconfig::read_from(server.kubeconfig_path()).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        bed.client = Client::try_from(config).unwrap();
        bed.server = Some(server);
        bed
    }

    pub async fn shut_down(self) {
        if let Some(server) = self.server {
            server.shutdown().await;
        }
        self.api.close().await;
    }

    /// Creates an object in the namespace, or without one if its metadata has no need of it.
    pub async fn create(&self, version: &str, kind: &str, plural: &str, object: Value) -> DynamicObject {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        let cluster_wide = ["Namespace", "CustomResourceDefinition"].contains(&kind);
        let api: Api<DynamicObject> = if cluster_wide {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), NAMESPACE, &resource)
        };
        let mut object = object;
        object["apiVersion"] = json!(resource.api_version);
        object["kind"] = json!(kind);
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
    }

    /// A call of a function.
    pub fn call(&self, function: &str, arguments: Value, params: Params) -> TestCall {
        self.call_with(function, arguments, params, Arc::new(TestHost::default()))
    }

    pub fn call_with(&self, function: &str, arguments: Value, params: Params, host: Arc<TestHost>) -> TestCall {
        let operation = Operation::new("set", Clock::system());
        // No pod of the node has our program.
        let without_node = self.server.is_none();
        let tools_image =
            without_node.then(|| ToolsImage { image: TOOLS_IMAGE.0.into(), program: TOOLS_IMAGE.1.into() });
        let call = Call::new(
            self.client.clone(),
            NAMESPACE.to_owned(),
            &[function],
            "act/p".to_owned(),
            Arguments::new(arguments.as_object().unwrap().clone()),
            params,
            PodSettings { tools_image, ..PodSettings::default() },
            OwnerReference {
                api_version: "cr.kanister.io/v1alpha1".into(),
                kind: "ActionSet".into(),
                name: "set".into(),
                uid: "no-such-uid".into(),
                ..OwnerReference::default()
            },
            operation.root().child("p"),
            function_spec::find(function).unwrap().progress,
            Arc::clone(&host) as Arc<dyn Host>,
        );
        let action: BlueprintAction =
            serde_json::from_value(json!({ "phases": [{ "name": "p", "func": function, "args": {} }] })).unwrap();
        let mut results = ActionSetResults::new([(&ActionSpec::default(), &action)]);
        let position = PhaseRef { action: 0, phase: PhaseIndex::Core(0) };
        results.start();
        results.set_task(position, call.task.path());
        results.begin(position);
        call.task.start();
        TestCall { function: functions::find(function).unwrap(), call, host, operation, results }
    }
}

/// A call, what it logs and how far it is.
pub struct TestCall {
    function: &'static functions::Function,
    pub call: Call,
    pub host: Arc<TestHost>,
    operation: Operation,
    results: ActionSetResults,
}

impl TestCall {
    /// The counts of the phase's task in a unit.
    pub fn counts(&self, unit: Unit) -> Option<Counts> {
        self.operation.snapshot().node("p")?.counts(unit).copied()
    }

    /// The progress of the phase, as it is in the status of an ActionSet.
    pub fn progress(&self) -> Value {
        let none = ActionSetStatus::default();
        let status = action_set_status(&self.operation.snapshot(), &self.results, &none, Timestamp::now());
        serde_json::to_value(&status.actions[0].phases[0].progress).unwrap()
    }

    /// Runs the function, and returns its outputs and the progress of a moment at which it was between 0 and 100 percent, with a
    /// total in these fields.
    pub async fn run_and_watch(&self, total: &str) -> (Outputs, Value) {
        let between = eventually("some of the bytes, but not all", async || {
            let progress = self.progress();
            let percent: f64 = progress["progressPercent"].as_str()?.parse().ok()?;
            (percent > 0.0 && percent < 100.0 && progress[total].as_u64().is_some()).then_some(progress)
        });
        let (outputs, progress) = tokio::join!(self.run(), between);
        (outputs.unwrap_or_else(|error| panic!("{error}\n{}", self.host.log_text())), progress)
    }

    /// Runs the function to its end, and deletes its pods.
    pub async fn run(&self) -> Result<Outputs, Error> {
        let outputs = self.function.run(&self.call).await;
        self.call.clean_up().await;
        outputs
    }
}

/// Keeps notes and the log in memory.
#[derive(Default)]
pub struct TestHost {
    notes: Mutex<BTreeMap<String, String>>,
    lines: Mutex<Vec<String>>,
}

impl TestHost {
    pub fn log_text(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }
}

impl Host for TestHost {
    fn authorize_effect(&self) -> Result<(), Error> {
        Ok(())
    }

    fn kill_point(&self, _: &'static str) {}

    fn recall(&self, key: &str) -> Option<String> {
        self.notes.lock().unwrap().get(key).cloned()
    }

    fn remember<'a>(&'a self, key: &'a str, value: String) -> BoxFuture<'a, Result<(), Error>> {
        self.notes.lock().unwrap().insert(key.to_owned(), value);
        Box::pin(async { Ok(()) })
    }

    fn log(&self, line: &str) {
        self.lines.lock().unwrap().push(line.to_owned());
    }
}

/// The search path of pods that run this program of the tests.
pub fn path_with(program: &std::path::Path) -> String {
    format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", program.parent().unwrap().display())
}

/// The pod `db-0` with the claim `data` at `/data`, once a line of shell has run in it.
pub async fn application(bed: &Bed, line: &str) {
    let claim = json!({ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "1Gi" } } } });
    bed.create("v1", "PersistentVolumeClaim", "persistentvolumeclaims", claim).await;
    let pod = json!({ "metadata": { "name": "db-0" }, "spec": {
        "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }],
        "containers": [{ "name": "db", "image": "any", "command": ["sh", "-c", format!("{line}; echo ready; exec sleep 10000")],
            "volumeMounts": [{ "name": "data", "mountPath": "/data" }] }] } });
    bed.create("v1", "Pod", "pods", pod).await;
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(bed.client.clone(), NAMESPACE);
    eventually("the data of the application", async || {
        let log = pods.logs("db-0", &kube::api::LogParams::default()).await.ok()?;
        log.contains("ready").then_some(())
    })
    .await;
}
