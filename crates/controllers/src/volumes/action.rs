//! The first container of a restored pod: it waits for the data of the pod's volumes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use plimsoll_api::velero::v1::PodVolumeBackup;
use plimsoll_engine::restore::action::{Adds, Input, Output, RestoreItemAction};
use serde_json::{Value, json};

use super::restore::is_restorable;
use crate::transfer::kind::RESTORE_WAIT;

/// What it was called when there was only restic.
const OLD_NAME: &str = "restic-wait";

/// The program that waits.
#[derive(Clone, Debug)]
pub struct Helper {
    /// Its image.
    pub image: String,
    /// The command in it; the uid of the Restore is its last argument.
    pub command: Vec<String>,
}

/// Where pods go, and the backups of their volumes: a pod waits for those that can be restored.
pub(super) type Expected = Arc<Mutex<HashMap<(String, String), Vec<PodVolumeBackup>>>>;

/// Puts the container that waits in front of the others.
pub(super) struct Waiting {
    /// By namespace and name of the pod in the backup.
    pub backups: HashMap<(String, String), Vec<PodVolumeBackup>>,
    pub helper: Helper,
    pub restore_uid: String,
    pub namespaces: BTreeMap<String, String>,
    pub expected: Expected,
}

impl Waiting {
    fn act(&self, mut pod: Value) -> Value {
        let text = |place: &str| pod.pointer(place).and_then(Value::as_str).unwrap_or_default().to_owned();
        let key = (text("/metadata/namespace"), text("/metadata/name"));
        strip(&mut pod);
        let backups = self.backups.get(&key).into_iter().flatten();
        let here: Vec<PodVolumeBackup> = backups.filter(|backup| has(&pod, backup)).cloned().collect();
        if here.is_empty() {
            return pod;
        }
        let restorable = here.iter().filter(|backup| is_restorable(backup));
        let names: Vec<String> = restorable.filter_map(|backup| backup.spec.volume.clone()).collect();
        let target = (self.namespaces.get(&key.0).cloned().unwrap_or(key.0), key.1);
        self.expected.lock().unwrap_or_else(PoisonError::into_inner).insert(target, here);
        if !names.is_empty() {
            insert(&mut pod, self.container(&names));
        }
        pod
    }

    fn container(&self, volumes: &[String]) -> Value {
        let mounts = volumes.iter().map(|name| json!({ "name": name, "mountPath": format!("/restores/{name}") }));
        json!({
            "name": RESTORE_WAIT,
            "image": self.helper.image,
            "command": self.helper.command,
            "args": [self.restore_uid],
            "volumeMounts": mounts.collect::<Vec<_>>(),
            "resources": { "requests": { "cpu": "10m", "memory": "32Mi" } },
            "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
                "seccompProfile": { "type": "RuntimeDefault" } },
        })
    }
}

/// Whether a pod still has the volume, and it is one that can be restored into.
fn has(pod: &Value, backup: &PodVolumeBackup) -> bool {
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
    let name = backup.spec.volume.as_deref().unwrap_or_default();
    let found = volumes.into_iter().flatten().find(|volume| volume["name"] == name);
    found.is_some_and(|volume| volume.get("projected").is_none() && volume.get("downwardAPI").is_none())
}

/// A pod that was backed up while it waited, or after it had waited, brings along a container that waits for a restore of
/// long ago: nobody would ever tell it that the data is there.
fn strip(pod: &mut Value) {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let Some(containers) = spec.get_mut("initContainers").and_then(Value::as_array_mut) else { return };
    containers.retain(|known| known["name"] != RESTORE_WAIT && known["name"] != OLD_NAME);
    if containers.is_empty() {
        spec.remove("initContainers");
    }
}

fn insert(pod: &mut Value, container: Value) {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    match spec.get_mut("initContainers").and_then(Value::as_array_mut) {
        Some(containers) => containers.insert(0, container),
        None => {
            spec.insert("initContainers".into(), json!([container]));
        }
    }
}

impl RestoreItemAction for Waiting {
    fn execute<'a>(&'a self, input: Input<'a>) -> BoxFuture<'a, Result<Output, String>> {
        Box::pin(async move { Ok(Output::of(self.act(input.item))) })
    }

    fn adds(&self) -> Adds {
        Adds::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting() -> Waiting {
        waiting_for(&[("data", "Completed")])
    }

    fn waiting_for(volumes: &[(&str, &str)]) -> Waiting {
        let backup = |(volume, phase): &(&str, &str)| -> PodVolumeBackup {
            let object = json!({"apiVersion": "velero.io/v1", "kind": "PodVolumeBackup", "metadata": {"name": volume},
                "spec": {"volume": volume}, "status": {"phase": phase, "snapshotID": "1234"}});
            serde_json::from_value(object).unwrap()
        };
        Waiting {
            backups: HashMap::from([(("old".into(), "db".into()), volumes.iter().map(backup).collect())]),
            helper: Helper { image: "plimsoll:1".into(), command: vec!["/plimsoll".into(), "restore-wait".into()] },
            restore_uid: "uid".into(),
            namespaces: BTreeMap::from([("old".into(), "new".into())]),
            expected: Arc::default(),
        }
    }

    #[test]
    fn a_pod_with_volume_backups_waits_for_them_first_and_once() {
        let action = waiting();
        let pod = json!({"metadata": {"namespace": "old", "name": "db"}, "spec": {"volumes": [{"name": "data"}],
            "initContainers": [{"name": "restic-wait"}, {"name": "restore-wait"}, {"name": "own"}]}});
        let pod = action.act(pod);
        let names: Vec<_> = pod["spec"]["initContainers"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
        assert_eq!(names, ["restore-wait", "own"]);
        let first = &pod["spec"]["initContainers"][0];
        assert_eq!(first["args"], json!(["uid"]));
        assert_eq!(first["volumeMounts"], json!([{"name": "data", "mountPath": "/restores/data"}]));
        assert!(action.expected.lock().unwrap().contains_key(&("new".to_owned(), "db".to_owned())));
    }

    #[test]
    fn a_pod_does_not_wait_for_data_that_is_lost_but_it_is_remembered() {
        let pod = json!({"metadata": {"namespace": "old", "name": "db"}, "spec": {"volumes": [{"name": "data"},
            {"name": "scratch"}]}});
        let cases: [(&[(&str, &str)], Value); 2] = [
            (&[("scratch", "Failed")], Value::Null),
            (&[("data", "Completed"), ("scratch", "Failed")], json!([{"name": "data", "mountPath": "/restores/data"}])),
        ];
        for (volumes, mounts) in cases {
            let action = waiting_for(volumes);
            assert_eq!(action.act(pod.clone())["spec"]["initContainers"][0]["volumeMounts"], mounts);
            let expected = action.expected.lock().unwrap();
            assert_eq!(expected[&("new".to_owned(), "db".to_owned())].len(), volumes.len());
        }
    }

    #[test]
    fn a_pod_without_volume_backups_no_longer_waits_for_a_restore_of_long_ago() {
        let action = waiting();
        let old = json!({"name": "restore-wait", "args": ["uid of another restore"]});
        let pod = |containers: Value| {
            json!({"metadata": {"namespace": "old", "name": "web"}, "spec": {"volumes": [{"name": "data"}],
                "initContainers": containers}})
        };
        let own = json!({"name": "own"});
        assert_eq!(action.act(pod(json!([old, own])))["spec"]["initContainers"], json!([own]));
        assert!(action.act(pod(json!([old])))["spec"].get("initContainers").is_none());
        assert!(action.expected.lock().unwrap().is_empty());
    }

    #[test]
    fn other_pods_and_pods_without_the_volume_stay_as_they_are() {
        let action = waiting();
        for pod in [
            json!({"metadata": {"namespace": "old", "name": "web"}, "spec": {"volumes": [{"name": "data"}]}}),
            json!({"metadata": {"namespace": "old", "name": "db"}, "spec": {"volumes": [{"name": "other"}]}}),
            json!({"metadata": {"namespace": "old", "name": "db"}, "spec": {"volumes": [{"name": "data", "projected": {}}]}}),
        ] {
            assert_eq!(action.act(pod.clone()), pod);
        }
    }
}
