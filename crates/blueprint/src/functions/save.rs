//! One path of a running container into a repository, by whatever can: our own program in the container, the container's
//! restic, the agent of its node.

use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};

use super::call::{Call, Direction, Moved};
use super::exec::Exec;
use super::location_delete::place;
use super::movers::{Repository, Transfer};
use super::restic::{Restic, Saved, default_password, size};
use super::{data, own};
use crate::Error;

/// A path of a container.
pub struct Source<'a> {
    /// The pod's namespace.
    pub namespace: &'a str,
    /// The pod.
    pub pod: &'a str,
    /// The container.
    pub container: &'a str,
    /// The path.
    pub path: &'a str,
}

/// Backs it up into the repository at `prefix`: the snapshot and its tag.
pub async fn save(call: &Call, source: &Source<'_>, prefix: &str) -> Result<(Saved, String), Error> {
    let Source { namespace, pod, container, path } = *source;
    Exec::new(namespace, pod, Some(container), Vec::new()).check(&call.client).await?;
    call.gauge.moved(pod, Moved { direction: Direction::Up, ..Moved::default() });
    let tag = data::fresh_tag();
    let repository = repository(call, prefix)?;
    if let Some(saved) = own::save(call, (namespace, pod, container), &repository, (path, &tag)).await? {
        return Ok(told(call, pod, saved, tag));
    }
    let restic = Restic::new(call, (namespace, pod, Some(container)), prefix)?;
    if restic.is_there().await? {
        return data::with_restic(call, &restic, path, pod).await;
    }
    let (saved, tag) = transfer(call, source, repository, &tag).await?;
    Ok(told(call, pod, saved, tag))
}

fn told(call: &Call, pod: &str, saved: Saved, tag: String) -> (Saved, String) {
    call.gauge.moved(pod, saved.moved());
    call.log(&format!("snapshot {} saved: {} files, {}", saved.id, saved.files, size(saved.size)));
    (saved, tag)
}

fn repository(call: &Call, prefix: &str) -> Result<Repository, Error> {
    let place = place(call)?;
    let password = call.arguments.optional_text("encryptionKey")?.unwrap_or_else(default_password);
    let mut location = place.repository(prefix);
    if call.arguments.flag("insecureTLS", false)? {
        location.config.insert("insecureSkipTLSVerify".into(), "true".into());
    }
    Ok(Repository { location, password: password.into() })
}

/// The agent of its node reads what lies in a claim.
async fn transfer(
    call: &Call,
    source: &Source<'_>,
    repository: Repository,
    tag: &str,
) -> Result<(Saved, String), Error> {
    let Source { namespace, pod: name, container, path } = *source;
    let api: Api<Pod> = Api::namespaced(call.client.clone(), namespace);
    let pod = api.get(name).await.map_err(|e| Error::api(format!("read pod {namespace}/{name}"), e))?;
    let refused = |why: &str| {
        Error::Unsupported(format!(
            "container {container} of pod {namespace}/{name} has neither plimsoll nor restic, and {why}: use an image that has \
             restic, or a sidecar"
        ))
    };
    let movers = call.movers.as_deref().ok_or_else(|| refused("there are no agents"))?;
    let in_claim = in_claim(&pod, container, Path::new(path));
    let (volume, inner) =
        in_claim.ok_or_else(|| refused(&format!("{path} lies in no claim that an agent could read")))?;
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    let wanted = Transfer {
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
    movers.transfer(call, &wanted).await.map_err(|error| match error {
        Error::Missing(why) => refused(&why),
        error => error,
    })
}

/// The volume of a claim in which a path lies, and where below it.
fn in_claim(pod: &Pod, container: &str, path: &Path) -> Option<(String, PathBuf)> {
    let spec = pod.spec.as_ref()?;
    let container = spec.containers.iter().find(|one| one.name == container)?;
    let around = container.volume_mounts.iter().flatten().filter(|mount| path.starts_with(&mount.mount_path));
    // The innermost one is what the container sees there.
    let mount = around.max_by_key(|mount| Path::new(&mount.mount_path).components().count())?;
    let volume = spec.volumes.iter().flatten().find(|volume| volume.name == mount.name)?;
    let claimed = volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some();
    let rest = path.strip_prefix(&mount.mount_path).ok()?;
    // Put together anew, because what is joined with nothing ends with a slash.
    let inner: PathBuf = Path::new(mount.sub_path.as_deref().unwrap_or_default()).join(rest).components().collect();
    let plain = inner.components().all(|part| matches!(part, Component::Normal(_)));
    (claimed && plain && mount.sub_path_expr.is_none()).then(|| (volume.name.clone(), inner))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_lies_in_the_innermost_mount_around_it_if_that_is_a_claim() {
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
        assert_eq!(found("/data/cache/x"), None, "what lies in no claim is gone with its pod");
        assert_eq!(found("/data/../etc"), None);
        assert_eq!(found("/database"), None);
    }
}
