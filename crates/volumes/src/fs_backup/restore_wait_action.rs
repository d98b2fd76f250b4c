//! The first container of a restored pod: it waits for the data of the pod's volumes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use kube::Client;
use plimsoll_api::velero::v1::PodVolumeBackup;
use plimsoll_engine::RetryPolicy;
use plimsoll_engine::restore::action::{
    AdditionalResources, RestoreActionInput, RestoreActionOutput, RestoreItemAction,
};
use plimsoll_engine::restore::actions::configuration;
use plimsoll_progress::Task;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::backup_content::is_restorable;
use super::restore_wait_container::WaitContainer;
use crate::transfer::RESTORE_WAIT;

/// The name of the action, by which users configure it.
pub(super) const ACTION: &str = "velero.io/pod-volume-restore";
/// Older name, from when there was only restic.
const OLD_NAME: &str = "restic-wait";

/// The program that waits.
#[derive(Clone, Debug)]
pub struct RestoreHelper {
    /// Its image.
    pub image: String,
    /// The command in it; the uid of the Restore is its last argument.
    pub command: Vec<String>,
}

/// The restored pods, and the backups of their volumes. A pod waits for those that can be restored.
pub(super) type Expected = Arc<Mutex<HashMap<(String, String), Vec<PodVolumeBackup>>>>;

/// Inserts the wait container before the others.
pub(super) struct RestoreWaitAction {
    pub pods: Pods,
    pub restore_uid: String,
    pub configured: WaitContainerConfig,
}

/// The pods of a restore that wait.
pub(super) struct Pods {
    /// By namespace and name of the pod in the backup.
    pub backups: HashMap<(String, String), Vec<PodVolumeBackup>>,
    pub namespaces: BTreeMap<String, String>,
    pub expected: Expected,
}

impl Pods {
    /// The volumes that a pod must wait for. Removes the wait container of an earlier restore.
    fn wait(&self, pod: &mut Value) -> Vec<String> {
        let text = |place: &str| pod.pointer(place).and_then(Value::as_str).unwrap_or_default().to_owned();
        let key = (text("/metadata/namespace"), text("/metadata/name"));
        strip(pod);
        let backups = self.backups.get(&key).into_iter().flatten();
        let here: Vec<PodVolumeBackup> = backups.filter(|backup| has(pod, backup)).cloned().collect();
        if here.is_empty() {
            return Vec::new();
        }
        let restorable = here.iter().filter(|backup| is_restorable(backup));
        let names: Vec<String> = restorable.filter_map(|backup| backup.spec.volume.clone()).collect();
        let target = (self.namespaces.get(&key.0).cloned().unwrap_or(key.0), key.1);
        self.expected.lock().unwrap_or_else(PoisonError::into_inner).insert(target, here);
        names
    }
}

/// Settings of the container, read once for each restore.
pub(super) struct WaitContainerConfig {
    pub client: Client,
    /// The server's, where the ConfigMap is.
    pub namespace: String,
    pub helper: RestoreHelper,
    /// Shows that the API server is waited for.
    pub task: Task,
    pub waiter: OnceCell<WaitContainer>,
}

impl WaitContainerConfig {
    /// The container and, for the first caller, the warnings about the ConfigMap.
    async fn read(&self) -> Result<(&WaitContainer, Vec<String>), String> {
        let mut warnings = Vec::new();
        let found = &mut warnings;
        let initialize = move || async move {
            let read = || configuration(&self.client, &self.namespace, ACTION);
            let config = RetryPolicy::default().run(&self.task, read).await.map_err(|error| error.to_string())?;
            let (waiter, invalid) = WaitContainer::read(&self.helper, &config.unwrap_or_default());
            *found = invalid;
            Ok::<_, String>(waiter)
        };
        let waiter = self.waiter.get_or_try_init(initialize).await?;
        Ok((waiter, warnings))
    }
}

/// Whether a pod still has the volume, and it is one that can be restored into.
fn has(pod: &Value, backup: &PodVolumeBackup) -> bool {
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
    let name = backup.spec.volume.as_deref().unwrap_or_default();
    let found = volumes.into_iter().flatten().find(|volume| volume["name"] == name);
    found.is_some_and(|volume| volume.get("projected").is_none() && volume.get("downwardAPI").is_none())
}

/// Removes the wait container of an earlier restore, which a backed-up pod may have: it would wait forever.
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

impl RestoreItemAction for RestoreWaitAction {
    fn execute<'a>(&'a self, input: RestoreActionInput<'a>) -> BoxFuture<'a, Result<RestoreActionOutput, String>> {
        Box::pin(async move {
            let mut pod = input.item;
            let volumes = self.pods.wait(&mut pod);
            if volumes.is_empty() {
                return Ok(RestoreActionOutput::of(pod));
            }
            let (waiter, warnings) = self.configured.read().await?;
            let container = waiter.container(&pod, &volumes, &self.restore_uid);
            insert(&mut pod, container);
            Ok(RestoreActionOutput { warnings, ..RestoreActionOutput::of(pod) })
        })
    }

    fn additional_resources(&self) -> AdditionalResources {
        AdditionalResources::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pod, as it is restored.
    fn act(pods: &Pods, mut pod: Value) -> Value {
        let helper =
            RestoreHelper { image: "plimsoll:1".into(), command: vec!["/plimsoll".into(), "restore-wait".into()] };
        let volumes = pods.wait(&mut pod);
        if !volumes.is_empty() {
            let container = WaitContainer::read(&helper, &BTreeMap::new()).0.container(&pod, &volumes, "uid");
            insert(&mut pod, container);
        }
        pod
    }

    fn waiting() -> Pods {
        waiting_for(&[("data", "Completed")])
    }

    fn waiting_for(volumes: &[(&str, &str)]) -> Pods {
        let backup = |(volume, phase): &(&str, &str)| -> PodVolumeBackup {
            let object = json!({"apiVersion": "velero.io/v1", "kind": "PodVolumeBackup", "metadata": {"name": volume},
                "spec": {"volume": volume}, "status": {"phase": phase, "snapshotID": "1234"}});
            serde_json::from_value(object).unwrap()
        };
        Pods {
            backups: HashMap::from([(("old".into(), "db".into()), volumes.iter().map(backup).collect())]),
            namespaces: BTreeMap::from([("old".into(), "new".into())]),
            expected: Arc::default(),
        }
    }

    #[test]
    fn a_pod_with_volume_backups_waits_for_them_first_and_once() {
        let action = waiting();
        let pod = json!({"metadata": {"namespace": "old", "name": "db"}, "spec": {"volumes": [{"name": "data"}],
            "initContainers": [{"name": "restic-wait"}, {"name": "restore-wait"}, {"name": "own"}]}});
        let pod = act(&action, pod);
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
            assert_eq!(act(&action, pod.clone())["spec"]["initContainers"][0]["volumeMounts"], mounts);
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
        assert_eq!(act(&action, pod(json!([old, own])))["spec"]["initContainers"], json!([own]));
        assert!(act(&action, pod(json!([old])))["spec"].get("initContainers").is_none());
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
            assert_eq!(act(&action, pod.clone()), pod);
        }
    }
}
