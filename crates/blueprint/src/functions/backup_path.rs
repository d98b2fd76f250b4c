//! Backs up a path of a running container to a repository: with `plimsoll` or restic in the container, or with the node agent.

use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};

use super::call::Call;
use super::data_movers::{Repository, VolumeTransfer};
use super::exec::Exec;
use super::location_delete::profile;
use super::phase_meters::{Direction, TransferProgress};
use super::restic::{BackupSummary, Restic, default_password, size};
use super::{container_mover, volume_data};
use crate::Error;

/// A path of a container.
pub struct ContainerPath<'a> {
    /// The pod's namespace.
    pub namespace: &'a str,
    /// The pod.
    pub pod: &'a str,
    /// The container.
    pub container: &'a str,
    /// The path.
    pub path: &'a str,
}

/// Backs up the path to the repository at `prefix`; returns the snapshot and its tag.
pub async fn backup_path(
    call: &Call,
    source: &ContainerPath<'_>,
    prefix: &str,
) -> Result<(BackupSummary, String), Error> {
    let ContainerPath { namespace, pod, container, path } = *source;
    Exec::new(namespace, pod, Some(container), Vec::new()).check(&call.client).await?;
    call.meters.report(pod, TransferProgress { direction: Direction::Upload, ..TransferProgress::default() });
    let tag = volume_data::random_tag();
    let repository = repository(call, prefix)?;
    if let Some(saved) = container_mover::backup(call, (namespace, pod, container), &repository, (path, &tag)).await? {
        return Ok(report_summary(call, pod, saved, tag));
    }
    let restic = Restic::new(call, (namespace, pod, Some(container)), prefix)?;
    if restic.is_available().await? {
        return volume_data::backup_with_restic(call, &restic, path, pod).await;
    }
    let (saved, tag) = transfer(call, source, repository, &tag).await?;
    Ok(report_summary(call, pod, saved, tag))
}

fn report_summary(call: &Call, pod: &str, saved: BackupSummary, tag: String) -> (BackupSummary, String) {
    call.meters.report(pod, saved.progress());
    call.log(&format!("snapshot {} saved: {} files, {}", saved.id, saved.files, size(saved.size)));
    (saved, tag)
}

fn repository(call: &Call, prefix: &str) -> Result<Repository, Error> {
    let profile = profile(call)?;
    let password = call.arguments.optional_text("encryptionKey")?.unwrap_or_else(default_password);
    let mut location = profile.repository(prefix);
    if call.arguments.flag("insecureTLS", false)? {
        location.config.insert("insecureSkipTLSVerify".into(), "true".into());
    }
    Ok(Repository { location, password: password.into() })
}

/// Backs up a path in a claim with the agent of the node.
async fn transfer(
    call: &Call,
    source: &ContainerPath<'_>,
    repository: Repository,
    tag: &str,
) -> Result<(BackupSummary, String), Error> {
    let ContainerPath { namespace, pod: name, container, path } = *source;
    let api: Api<Pod> = Api::namespaced(call.client.clone(), namespace);
    let pod = api.get(name).await.map_err(|e| Error::api(format!("read pod {namespace}/{name}"), e))?;
    let unsupported = |cause: &str| {
        Error::Unsupported(format!(
            "container {container} of pod {namespace}/{name} has neither plimsoll nor restic, and {cause}: use an image with restic, \
             or a sidecar"
        ))
    };
    let data_movers = call.data_movers.as_deref().ok_or_else(|| unsupported("no node agents are available"))?;
    let in_claim = in_claim(&pod, container, Path::new(path));
    let (volume, inner) =
        in_claim.ok_or_else(|| unsupported(&format!("{path} is not in a claim that a node agent can read")))?;
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    let request = VolumeTransfer {
        namespace,
        pod: name,
        uid: pod.uid().unwrap_or_default(),
        node,
        volume,
        inner: inner.display().to_string(),
        path,
        repository,
        tag,
    };
    data_movers.transfer(call, &request).await.map_err(|error| match error {
        Error::Missing(cause) => unsupported(&cause),
        error => error,
    })
}

/// The volume of the claim that contains a path, and the path in the volume.
fn in_claim(pod: &Pod, container: &str, path: &Path) -> Option<(String, PathBuf)> {
    let spec = pod.spec.as_ref()?;
    let container = spec.containers.iter().find(|one| one.name == container)?;
    let around = container.volume_mounts.iter().flatten().filter(|mount| path.starts_with(&mount.mount_path));
    // The innermost mount is the one that the container sees.
    let mount = around.max_by_key(|mount| Path::new(&mount.mount_path).components().count())?;
    let volume = spec.volumes.iter().flatten().find(|volume| volume.name == mount.name)?;
    let claimed = volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some();
    let rest = path.strip_prefix(&mount.mount_path).ok()?;
    // Rebuilt from components: joining an empty path adds a trailing slash.
    let inner: PathBuf = Path::new(mount.sub_path.as_deref().unwrap_or_default()).join(rest).components().collect();
    let plain = inner.components().all(|part| matches!(part, Component::Normal(_)));
    (claimed && plain && mount.sub_path_expr.is_none()).then(|| (volume.name.clone(), inner))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_belongs_to_its_innermost_mount_if_that_is_a_claim() {
        let pod: Pod = serde_json::from_value(json!({ "spec": {
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "c" } }, { "name": "cache", "emptyDir": {} }],
            "containers": [{ "name": "db", "volumeMounts": [
                { "name": "data", "mountPath": "/data", "subPath": "pg/16" }, { "name": "cache", "mountPath": "/data/cache" }] }],
        } }))
        .unwrap();
        let found =
            |path: &str| in_claim(&pod, "db", Path::new(path)).map(|(name, inner)| (name, inner.display().to_string()));
        assert_eq!(found("/data"), Some(("data".into(), "pg/16".into())));
        assert_eq!(found("/data/wal/0"), Some(("data".into(), "pg/16/wal/0".into())));
        assert_eq!(found("/data/cache/x"), None, "not in a claim");
        assert_eq!(found("/data/../etc"), None);
        assert_eq!(found("/database"), None);
    }
}
