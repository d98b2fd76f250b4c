//! The objects of a transfer by a node agent: a PodVolumeBackup and the Secret with its repository.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use plimsoll_api::velero::v1::{PodVolumeBackup, PodVolumeBackupSpec, UploaderType};
use plimsoll_blueprint::Error;
use plimsoll_blueprint::functions::Call;
use plimsoll_blueprint::functions::data_movers::VolumeTransfer;
use plimsoll_mover as mover;
use plimsoll_volumes::transfer::{INNER_PATH, PLACED_AT, REPOSITORY_KEY, REPOSITORY_SECRET};
use serde_json::json;
use sha2::{Digest, Sha256};

/// Label with the identity of the phase that a transfer belongs to.
const PHASE_LABEL: &str = "plimsoll.dev/phase";

/// Checks before every effect that this process may have it.
pub type Authorize<'a> = dyn Fn() -> Result<(), String> + Sync + 'a;

/// The selector of the objects of a phase.
pub fn selector(identity: &str) -> String {
    format!("{PHASE_LABEL}={identity}")
}

/// The name of both objects: the same in every process.
pub fn name(call: &Call, pod: &str) -> String {
    let digest = Sha256::digest(pod.as_bytes());
    format!("phase-{}-{}", call.identity, hex::encode(&digest[..4]))
}

fn metadata(call: &Call, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some([(PHASE_LABEL.to_owned(), call.identity.clone())].into()),
        owner_references: Some(vec![call.owner.clone()]),
        ..ObjectMeta::default()
    }
}

/// The Secret with the repository.
pub fn repository_secret(call: &Call, name: &str, repository: &mover::Repository) -> Result<Secret, Error> {
    let content = serde_json::to_vec(repository).map_err(|error| Error::Unsupported(error.to_string()))?;
    Ok(Secret {
        metadata: metadata(call, name),
        data: Some([(REPOSITORY_KEY.to_owned(), ByteString(content))].into()),
        ..Secret::default()
    })
}

/// The transfer of a volume.
pub fn pod_volume_backup(call: &Call, name: &str, request: &VolumeTransfer<'_>) -> PodVolumeBackup {
    let pod = json!({ "kind": "Pod", "namespace": request.namespace, "name": request.pod, "uid": request.uid });
    let annotations = [(REPOSITORY_SECRET, name), (INNER_PATH, request.inner.as_str()), (PLACED_AT, request.path)];
    let annotations = annotations.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let spec = PodVolumeBackupSpec {
        node: Some(request.node.clone()),
        pod: serde_json::from_value(pod).ok(),
        volume: Some(request.volume.clone()),
        backup_storage_location: Some(String::new()),
        repo_identifier: Some(request.repository.location.display_name()),
        uploader_type: Some(UploaderType::Restic),
        tags: [(request.tag.to_owned(), String::new())].into(),
        ..PodVolumeBackupSpec::default()
    };
    let metadata = ObjectMeta { annotations: Some(annotations), ..metadata(call, name) };
    PodVolumeBackup { metadata, spec, status: None }
}

/// Creates an object, unless an earlier process has created it.
pub async fn create<K>(api: &Api<K>, object: &K, kind: &str, name: &str) -> Result<(), Error>
where
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    match api.create(&PostParams::default(), object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        answer => answer.map(|_| ()).map_err(|error| Error::api(format!("create {kind} {name}"), error)),
    }
}

/// Deletes the objects of a phase.
pub async fn delete_all<K>(authorize: &Authorize<'_>, api: &Api<K>, identity: &str) -> Result<(), String>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let params = ListParams::default().labels(&selector(identity));
    let found = api.list_metadata(&params).await.map_err(|error| error.to_string())?;
    for name in found.items.into_iter().filter_map(|object| object.metadata.name) {
        authorize()?;
        match api.delete(&name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            answer => answer.map(|_| ()).map_err(|error| error.to_string())?,
        }
    }
    Ok(())
}
