//! The ConfigMap of Velero's node agents (`--node-agent-configmap`): one key, whose value is JSON.
//!
//! ```text
//!  loadConcurrency.globalConfig, .perNodeConfig ──▶ the agent of each node: how many transfers run
//!  loadConcurrency.prepareQueueLength           ──▶ the server: how many volumes are exposed at the same time
//!  loadAffinity, backupPVC, priorityClassName,  ──▶ the server: the pods and claims that hold the volumes of
//!  podLabels, podAnnotations, restorePVC            DataUploads and DataDownloads
//! ```
//!
//! Settings of pods that move data have no meaning here, because node agents move it. They are refused by name.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::{Api, Client, ResourceExt};
use plimsoll_select::labels::{LabelSelector, Selector};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Why the ConfigMap cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NodeAgentConfigError {
    /// It cannot be read.
    #[error("cannot read ConfigMap {namespace}/{name}")]
    Read {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Why.
        source: kube::Error,
    },
    /// Its content is not usable.
    #[error("ConfigMap {name}: {problem}")]
    Invalid {
        /// Its name.
        name: String,
        /// What is wrong.
        problem: String,
    },
}

/// The content of the ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeAgentConfig {
    load_concurrency: LoadConcurrency,
    load_affinity: Vec<LoadAffinity>,
    #[serde(rename = "backupPVC")]
    backup_pvc: BTreeMap<String, BackupPvc>,
    #[serde(rename = "restorePVC")]
    restore_pvc: Option<RestorePvc>,
    priority_class_name: String,
    pod_labels: BTreeMap<String, String>,
    pod_annotations: BTreeMap<String, String>,
    pod_resources: Option<Value>,
    #[serde(rename = "cachePVC")]
    cache_pvc: Option<Value>,
    privileged_fs_backup: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct LoadConcurrency {
    global_config: usize,
    per_node_config: Vec<NodeConcurrency>,
    prepare_queue_length: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NodeConcurrency {
    node_selector: LabelSelector,
    number: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LoadAffinity {
    node_selector: LabelSelector,
    #[serde(default)]
    storage_class: String,
}

/// Settings of the claim of a snapshot, by the StorageClass of its volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct BackupPvc {
    /// Another StorageClass.
    pub storage_class: String,
    /// Whether the volume is only read.
    pub read_only: bool,
    /// Whether the files of a volume that is only read keep their SELinux labels.
    #[serde(rename = "spcNoRelabeling")]
    pub spc_no_relabeling: bool,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    secret_names: Vec<String>,
    config_map_names: Vec<String>,
}

impl BackupPvc {
    /// What the driver needs beside the claim.
    pub fn driver_objects(&self) -> DriverObjects {
        DriverObjects { secret_names: self.secret_names.clone(), config_map_names: self.config_map_names.clone() }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RestorePvc {
    /// A volume is always provisioned without waiting for the restored pod.
    #[serde(rename = "ignoreDelayBinding")]
    _ignore_delay_binding: bool,
    secret_names: Vec<String>,
    config_map_names: Vec<String>,
}

/// Names of objects in the namespace of an application that its driver reads in the namespace of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DriverObjects {
    /// Secrets.
    pub secret_names: Vec<String>,
    /// ConfigMaps.
    pub config_map_names: Vec<String>,
}

/// Keys whose settings have no meaning here, and what to use.
const REFUSED: [(&str, &str); 3] = [
    ("podResources", "node agents move the data: install them with --agent-cpu-request and --agent-mem-request"),
    ("cachePVC", "node agents have the cache: --agent-argument=--cache-limit limits it"),
    ("privilegedFsBackup", "install the node agents with --privileged-node-agent"),
];

impl NodeAgentConfig {
    /// Reads the ConfigMap.
    pub async fn read(client: &Client, namespace: &str, name: &str) -> Result<Self, NodeAgentConfigError> {
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let found = api.get(name).await.map_err(|source| NodeAgentConfigError::Read {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            source,
        })?;
        let invalid = |problem| NodeAgentConfigError::Invalid { name: name.to_owned(), problem };
        Self::parse(&found.data.unwrap_or_default()).map_err(invalid)
    }

    fn parse(data: &BTreeMap<String, String>) -> Result<Self, String> {
        let [text] = data.values().collect::<Vec<_>>()[..] else {
            return Err(format!("want exactly one key, found {}", data.len()));
        };
        let config: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let set = [config.pod_resources.is_some(), config.cache_pvc.is_some(), config.privileged_fs_backup];
        if let Some((_, (key, instead))) = set.into_iter().zip(REFUSED).find(|(set, _)| *set) {
            return Err(format!("{key} is not supported: {instead}"));
        }
        for rule in &config.load_concurrency.per_node_config {
            if rule.number == 0 {
                return Err("loadConcurrency.perNodeConfig: number must be at least 1".to_owned());
            }
            Selector::new(&rule.node_selector).map_err(|error| format!("loadConcurrency.perNodeConfig: {error}"))?;
        }
        Ok(config)
    }

    /// About how many transfers run on a node, for estimates: what is set for all of them.
    pub fn transfers_on_a_node(&self) -> usize {
        self.load_concurrency.global_config.max(1)
    }

    /// How many transfers run on a node, if that is set: the smallest number of the rules that fit.
    pub async fn concurrency_of(&self, client: &Client, node: &str) -> Result<Option<usize>, kube::Error> {
        if self.load_concurrency.per_node_config.is_empty() {
            return Ok(self.concurrency(&BTreeMap::new()));
        }
        let nodes: Api<Node> = Api::all(client.clone());
        Ok(self.concurrency(nodes.get(node).await?.labels()))
    }

    fn concurrency(&self, node_labels: &BTreeMap<String, String>) -> Option<usize> {
        let fits = |rule: &&NodeConcurrency| {
            Selector::new(&rule.node_selector).is_ok_and(|selector| selector.matches(node_labels))
        };
        let rules = self.load_concurrency.per_node_config.iter().filter(fits);
        let global = Some(self.load_concurrency.global_config).filter(|number| *number > 0);
        rules.map(|rule| rule.number).min().or(global)
    }

    /// How many volumes are exposed at the same time; `None` for no limit.
    pub(crate) fn prepare_queue_length(&self) -> Option<usize> {
        Some(self.load_concurrency.prepare_queue_length).filter(|length| *length > 0)
    }

    /// The settings of the claim of a snapshot.
    pub(crate) fn backup_pvc(&self, storage_class: &str) -> BackupPvc {
        self.backup_pvc.get(storage_class).cloned().unwrap_or_default()
    }

    /// What drivers need beside the claim of a restored volume.
    pub(crate) fn restored_driver_objects(&self) -> DriverObjects {
        let names = self.restore_pvc.clone().unwrap_or_default();
        DriverObjects { secret_names: names.secret_names, config_map_names: names.config_map_names }
    }

    /// Adds what pods that hold volumes have in common. `storage_class` is that of the volume.
    pub(crate) fn configure_pod(&self, pod: &mut Value, storage_class: &str) {
        add_texts(&mut pod["metadata"]["labels"], &self.pod_labels);
        add_texts(&mut pod["metadata"]["annotations"], &self.pod_annotations);
        if !self.priority_class_name.is_empty() {
            pod["spec"]["priorityClassName"] = json!(self.priority_class_name);
        }
        let affinities = || self.load_affinity.iter();
        let own = affinities().find(|affinity| affinity.storage_class == storage_class && !storage_class.is_empty());
        if let Some(affinity) = own.or_else(|| affinities().find(|affinity| affinity.storage_class.is_empty())) {
            pod["spec"]["affinity"] = node_affinity(&affinity.node_selector);
        }
    }
}

/// Adds entries to a map of a pod. Entries of our own stay.
pub(crate) fn add_texts(map: &mut Value, more: &BTreeMap<String, String>) {
    let mut all: Map<String, Value> = more.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    all.extend(map.as_object().cloned().unwrap_or_default());
    if !all.is_empty() {
        *map = Value::Object(all);
    }
}

fn node_affinity(selector: &LabelSelector) -> Value {
    let labels = selector.match_labels.iter().flatten();
    let labels = labels.map(|(key, value)| json!({ "key": key, "operator": "In", "values": [value] }));
    let expressions = selector.match_expressions.iter().flatten().map(|expression| json!(expression));
    let terms: Vec<Value> = labels.chain(expressions).collect();
    json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchExpressions": terms }] } } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "what json! makes is given away")]
    fn parse(content: Value) -> Result<NodeAgentConfig, String> {
        NodeAgentConfig::parse(&[("node-agent-config.json".to_owned(), content.to_string())].into())
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_smallest_number_of_the_rules_that_fit_is_the_concurrency_of_a_node() {
        let rule =
            |key: &str, number: u32| json!({ "nodeSelector": { "matchLabels": { key: "yes" } }, "number": number });
        let config = parse(json!({ "loadConcurrency": { "globalConfig": 2, "prepareQueueLength": 8,
            "perNodeConfig": [rule("big", 9), rule("slow", 5)] } }))
        .unwrap();
        assert_eq!(config.concurrency(&labels(&[])), Some(2));
        assert_eq!(config.concurrency(&labels(&[("big", "yes")])), Some(9));
        assert_eq!(config.concurrency(&labels(&[("big", "yes"), ("slow", "yes")])), Some(5));
        assert_eq!(config.prepare_queue_length(), Some(8));
        let empty = parse(json!({})).unwrap();
        assert_eq!((empty.concurrency(&labels(&[])), empty.prepare_queue_length()), (None, None));
    }

    #[test]
    fn pods_get_labels_annotations_priority_and_the_nodes_for_their_storage_class() {
        let affinity = |zone: &str, class: &str| json!({ "nodeSelector": { "matchLabels": { "zone": zone } }, "storageClass": class });
        let config = parse(json!({ "podLabels": { "team": "shop", "own": "no" }, "podAnnotations": { "note": "x" },
            "priorityClassName": "low", "loadAffinity": [affinity("a", ""), affinity("b", "fast")] }))
        .unwrap();
        let pod = |class: &str| {
            let mut pod = json!({ "metadata": { "labels": { "own": "yes" } }, "spec": {} });
            config.configure_pod(&mut pod, class);
            pod
        };
        let fast = pod("fast");
        assert_eq!(fast["metadata"]["labels"], json!({ "team": "shop", "own": "yes" }), "our labels stay");
        assert_eq!(fast["metadata"]["annotations"], json!({ "note": "x" }));
        assert_eq!(fast["spec"]["priorityClassName"], "low");
        let zone = |pod: &Value| {
            let terms = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
            pod.pointer(terms).unwrap()[0]["matchExpressions"][0]["values"][0].clone()
        };
        assert_eq!((zone(&fast), zone(&pod("slow"))), (json!("b"), json!("a")));
        let mut plain = json!({ "metadata": {}, "spec": {} });
        NodeAgentConfig::default().configure_pod(&mut plain, "fast");
        assert_eq!(plain["spec"], json!({}));
    }

    #[test]
    fn what_has_no_meaning_here_is_refused_by_name() {
        for (content, expected) in [
            (
                json!({ "podResources": { "cpuLimit": "1" } }),
                "podResources is not supported: node agents move the data",
            ),
            (json!({ "cachePVC": { "thresholdInGB": 1 } }), "cachePVC is not supported: node agents have the cache"),
            (
                json!({ "privilegedFsBackup": true }),
                "privilegedFsBackup is not supported: install the node agents with",
            ),
            (json!({ "loadConcurrent": {} }), "unknown field `loadConcurrent`"),
            (json!({ "backupPVC": { "fast": { "readonly": true } } }), "unknown field `readonly`"),
            (
                json!({ "loadConcurrency": { "perNodeConfig": [{ "nodeSelector": {}, "number": 0 }] } }),
                "number must be at least 1",
            ),
            (json!([1]), "invalid type"),
        ] {
            let error = parse(content).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert!(NodeAgentConfig::parse(&BTreeMap::new()).unwrap_err().contains("exactly one key"));
        let known = json!({ "restorePVC": { "ignoreDelayBinding": true }, "privilegedFsBackup": false,
            "backupPVC": { "fast": { "storageClass": "fast-copy", "readOnly": true, "spcNoRelabeling": true } } });
        assert!(parse(known).unwrap().backup_pvc("fast").read_only);
    }

    #[test]
    fn the_objects_that_a_driver_needs_are_those_of_its_storage_class_or_of_all_restores() {
        let names = json!({ "secretNames": ["token"], "configMapNames": ["kms"] });
        let config = parse(json!({ "backupPVC": { "encrypted": names }, "restorePVC": names })).unwrap();
        let expected =
            DriverObjects { secret_names: vec!["token".to_owned()], config_map_names: vec!["kms".to_owned()] };
        assert_eq!(config.backup_pvc("encrypted").driver_objects(), expected);
        assert_eq!(config.backup_pvc("plain").driver_objects(), DriverObjects::default());
        assert_eq!(config.restored_driver_objects(), expected);
    }
}
