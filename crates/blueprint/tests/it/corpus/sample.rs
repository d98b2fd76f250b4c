//! Parameters for a blueprint of another author: everything that its templates name exists and has a plain value.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use plimsoll_api::kanister::v1alpha1::ActionSpec;
use plimsoll_blueprint::params::{ParamParts, Params, PhaseParams, Workload, assemble};
use plimsoll_blueprint::profile::ResolvedProfile;
use regex::Regex;
use serde_json::{Map, Value, json};

const NAMESPACE: &str = "shop";

/// The parameters of one action.
pub struct Sample {
    /// The text of the blueprint.
    text: String,
    /// The kind that the action is written for.
    kind: &'static str,
}

impl Sample {
    pub fn of(text: &str, action: &Value) -> Self {
        let source = action.to_string();
        let kinds = [
            (".StatefulSet", "statefulset"),
            (".DeploymentConfig", "deploymentconfig"),
            (".Deployment.", "deployment"),
            (".PVC", "pvc"),
        ];
        let kind = kinds.iter().find(|(root, _)| source.contains(root)).map_or("namespace", |(_, kind)| *kind);
        Self { text: text.to_owned(), kind }
    }

    pub fn params(&self, artifacts: &Map<String, Value>) -> Params {
        let options: Map<String, Value> =
            self.names(r"\.Options\.(\w+)").map(|name| (name, json!("2026-11-16T03:00:00Z"))).collect();
        let spec: ActionSpec = serde_json::from_value(json!({
            "name": "act", "artifacts": artifacts, "options": options,
            "object": { "kind": self.kind, "name": "app", "namespace": NAMESPACE },
        }))
        .unwrap();
        let aliases = |root: &str| self.names(&format!(r"[^\w]\.{root}\.(\w+)")).collect::<Vec<_>>();
        let secrets = aliases("Secrets").into_iter().map(|alias| (alias.clone(), self.secret(&alias))).collect();
        let config_maps = aliases("ConfigMaps").into_iter().map(|alias| (alias.clone(), self.config_map(&alias)));
        assemble(ParamParts {
            spec: &spec,
            kind: self.kind,
            target: self.target(),
            workload: Some(workload()),
            profile: Some(profile()),
            repository_server: None,
            secrets,
            config_maps: config_maps.collect(),
            time: "2026-11-16T03:00:00.123456789Z",
        })
    }

    /// The objects of a phase.
    pub fn objects(&self, references: &Value) -> PhaseParams {
        let (mut secrets, mut config_maps) = (Map::new(), Map::new());
        for (alias, reference) in references.as_object().into_iter().flatten() {
            match reference["kind"].as_str().unwrap_or_default().to_ascii_lowercase().as_str() {
                "secret" => drop(secrets.insert(alias.clone(), self.secret(alias))),
                "configmap" => drop(config_maps.insert(alias.clone(), self.config_map(alias))),
                _ => {}
            }
        }
        PhaseParams::new(secrets, config_maps)
    }

    /// What a pattern finds in the text of the blueprint.
    fn names(&self, pattern: &str) -> impl Iterator<Item = String> {
        let pattern = Regex::new(pattern).unwrap();
        pattern.captures_iter(&self.text).map(|found| found[1].to_owned()).collect::<Vec<_>>().into_iter()
    }

    /// The keys of the data that templates read after this path.
    fn keys(&self, path: &str) -> Vec<String> {
        self.names(&format!(r#"{path} "([^"]+)""#)).chain(self.names(&format!(r"{path}\.(\w+)"))).collect()
    }

    fn secret(&self, alias: &str) -> Value {
        let keys = self.keys(&format!(r"\.Secrets\.{alias}\.Data"));
        let data: Map<String, Value> = keys.into_iter().map(|key| (key, json!(encode("secret")))).collect();
        json!({ "metadata": { "name": alias, "namespace": NAMESPACE }, "type": "Opaque", "data": data })
    }

    fn config_map(&self, alias: &str) -> Value {
        let keys = self.keys(&format!(r"\.ConfigMaps\.{alias}\.Data"));
        let data: Map<String, Value> = keys.into_iter().map(|key| (key, json!("value"))).collect();
        json!({ "metadata": { "name": alias, "namespace": NAMESPACE }, "data": data })
    }

    /// The object of the action, with the fields of all operators' resources.
    fn target(&self) -> Value {
        let data: Map<String, Value> =
            self.keys(r"\.Object\.data").into_iter().map(|key| (key, json!(encode("value")))).collect();
        json!({
            "metadata": { "name": "app", "namespace": NAMESPACE, "uid": "2a1b", "labels": {
                "app": "app", "release": "app", "app.kubernetes.io/instance": "app", "app.kubernetes.io/component": "db" } },
            "spec": {
                "clusterName": "cluster", "serviceName": "app", "replicas": 3,
                "security": { "adminSecret": "admin" },
                "nodeSets": [{ "name": "default", "count": 3 }],
                "template": { "spec": { "volumes": [{ "persistentVolumeClaim": { "claimName": "data-app-0" } }] } },
            },
            "data": data,
        })
    }
}

fn encode(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}

fn workload() -> Workload {
    let pods = ["app-0", "app-1"].map(str::to_owned).to_vec();
    let claims = |pod: &String| (pod.clone(), BTreeMap::from([(format!("data-{pod}"), "/data".to_owned())]));
    Workload {
        name: "app".into(),
        namespace: NAMESPACE.into(),
        containers: pods.iter().map(|_| vec!["db".to_owned()]).collect(),
        persistent_volume_claims: pods.iter().map(claims).collect(),
        pods,
    }
}

fn profile() -> ResolvedProfile {
    let data = ["aws_access_key_id", "aws_secret_access_key"].map(|key| (key.to_owned(), json!(encode("key"))));
    ResolvedProfile::from_value(json!({
        "Location": { "type": "s3Compliant", "bucket": "data", "endpoint": "http://127.0.0.1:9", "prefix": "", "region": "eu-1" },
        "Credential": { "Type": "keyPair", "KeyPair": { "ID": "me", "Secret": "hidden" },
            "Secret": { "data": Map::from_iter(data), "type": "secrets.kanister.io/aws" }, "KopiaServerSecret": null },
        "SkipSSLVerify": false,
    }))
    .unwrap()
}

/// The artifacts that an action which is refused would have made.
pub fn artifacts(text: &str) -> Map<String, Value> {
    let pattern = Regex::new(r"\.ArtifactsIn\.(\w+)\.KeyValue\.(\w+)").unwrap();
    let mut artifacts = Map::new();
    for found in pattern.captures_iter(text) {
        let artifact = artifacts.entry(&found[1]).or_insert_with(|| json!({ "keyValue": {} }));
        artifact["keyValue"][&found[2]] = json!("value");
    }
    artifacts
}

/// An output of a function.
pub fn output(key: &str) -> Value {
    match key {
        "originalReplicaCount" => json!(3),
        "restoreSize" => json!("1Gi"),
        _ => json!(format!("some-{key}")),
    }
}

/// Outputs that the programs of an image write: no command of the blueprint shows them.
const OUTPUTS_OF_IMAGES: [(&str, &[&str]); 1] = [("kafka-adobe-s3-sink-connector", &["s3path", "backupDetail"])];

/// The outputs that the commands of a phase write.
pub fn outputs_of_commands(arguments: &Value) -> impl Iterator<Item = (String, Value)> {
    let text = arguments.to_string();
    let pattern = Regex::new(r#"(?:kando output|--output-name) *\\?"?(\w+)"#).unwrap();
    let of_images = OUTPUTS_OF_IMAGES.iter().filter(|(image, _)| text.contains(image)).flat_map(|(_, keys)| *keys);
    let mut keys: Vec<_> = of_images.map(|key| (*key).to_owned()).collect();
    keys.extend(pattern.captures_iter(&text).map(|found| found[1].to_owned()));
    keys.into_iter().map(|key| (key.clone(), output(&key)))
}

/// An object in the state that conditions ask for.
pub fn ready() -> Value {
    json!({ "status": {
        "phase": "Running", "health": "green", "finishTime": "2026-11-16T03:00:00Z", "finished": ["dc1-rack1"], "restoreKey": "k",
        "conditions": [{ "type": "Ready", "status": "True" }, { "type": "ContainersReady", "status": "True" }],
        "containerStatuses": [{ "ready": true }],
    } })
}
