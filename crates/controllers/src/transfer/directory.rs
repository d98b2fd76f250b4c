//! Where a pod's volume lies on its node: below the kubelet's directory of the pod, or where a local volume is.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Volume};
use kube::{Api, Client, ResourceExt};

use super::error::TransferError;
use crate::Error;

/// What the kubelet calls a volume, and where else it may be.
#[derive(Debug, Default, PartialEq, Eq)]
struct Known {
    name: String,
    local: Option<PathBuf>,
}

/// The directory of a pod's volume on this node.
pub(super) async fn find(
    client: &Client,
    pods_directory: &Path,
    pod: &Pod,
    volume: &str,
) -> Result<PathBuf, TransferError> {
    let refused = |cause: String| TransferError::Volume {
        volume: volume.to_owned(),
        pod: format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any()),
        cause,
    };
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    let found = volumes.into_iter().flatten().find(|known| known.name == volume);
    let found = found.ok_or_else(|| refused("the pod has no such volume".into()))?;
    let known = match claim_name(pod, found) {
        None => Known { name: volume.to_owned(), local: None },
        Some(claim) => of_claim(client, &pod.namespace().unwrap_or_default(), &claim).await?.map_err(&refused)?,
    };
    let uid = pod.uid().unwrap_or_default();
    look(&pods_directory.join(uid).join("volumes"), &known).map_err(refused)
}

/// The claim behind a volume, if there is one.
fn claim_name(pod: &Pod, volume: &Volume) -> Option<String> {
    let ephemeral = || volume.ephemeral.as_ref().map(|_| format!("{}-{}", pod.name_any(), volume.name));
    volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.clone()).or_else(ephemeral)
}

/// The volume of a claim; the inner error says what is wrong with it.
async fn of_claim(client: &Client, namespace: &str, name: &str) -> Result<Result<Known, String>, TransferError> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let claim = claims.get_opt(name).await.map_err(|e| Error::api(format!("read claim {namespace}/{name}"), e))?;
    let Some(spec) = claim.and_then(|claim| claim.spec) else {
        return Ok(Err(format!("there is no claim {name}")));
    };
    if spec.volume_mode.as_deref() == Some("Block") {
        return Ok(Err(format!("claim {name} is a block device (volumeMode: Block), which has no files to move")));
    }
    let Some(volume) = spec.volume_name.filter(|name| !name.is_empty()) else {
        return Ok(Err(format!("claim {name} is not bound")));
    };
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let found = volumes.get_opt(&volume).await.map_err(|e| Error::api(format!("read volume {volume}"), e))?;
    let local = found.and_then(|volume| volume.spec?.local).map(|local| PathBuf::from(local.path));
    Ok(Ok(Known { name: volume, local }))
}

/// One directory for each plugin, in it one for each volume; CSI drivers mount one below.
fn look(volumes: &Path, known: &Known) -> Result<PathBuf, String> {
    let plugins = volumes.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = plugins.map(|plugin| plugin.join(&known.name)).filter(|path| path.exists()).collect();
    found.sort();
    let place = match (found.as_slice(), &known.local) {
        ([one], _) if is_csi(one) => one.join("mount"),
        ([one], _) => one.clone(),
        ([], Some(local)) if local.is_dir() => local.clone(),
        ([], _) => return Err(format!("{}/*/{} is not there on this node", volumes.display(), known.name)),
        (several, _) => return Err(format!("{} directories below {} have its name", several.len(), volumes.display())),
    };
    place.canonicalize().map_err(|error| format!("{}: {error}", place.display()))
}

fn is_csi(path: &Path) -> bool {
    path.parent().and_then(Path::file_name).is_some_and(|plugin| plugin == "kubernetes.io~csi")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str) -> Known {
        Known { name: name.into(), local: None }
    }

    #[test]
    fn a_volume_is_found_below_any_plugin_and_one_deeper_below_csi() {
        let root = tempfile::tempdir().unwrap();
        for path in ["kubernetes.io~empty-dir/cache", "kubernetes.io~csi/pvc-1/mount"] {
            std::fs::create_dir_all(root.path().join(path)).unwrap();
        }
        let real = root.path().canonicalize().unwrap();
        assert_eq!(look(root.path(), &known("cache")), Ok(real.join("kubernetes.io~empty-dir/cache")));
        assert_eq!(look(root.path(), &known("pvc-1")), Ok(real.join("kubernetes.io~csi/pvc-1/mount")));
        assert!(look(root.path(), &known("other")).unwrap_err().contains("is not there on this node"));
    }

    #[test]
    fn a_local_volume_is_its_own_directory_and_two_of_one_name_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let local = tempfile::tempdir().unwrap();
        let volume = Known { name: "pv".into(), local: Some(local.path().to_owned()) };
        assert_eq!(look(root.path(), &volume), Ok(local.path().canonicalize().unwrap()));
        for plugin in ["a", "b"] {
            std::fs::create_dir_all(root.path().join(plugin).join("pv")).unwrap();
        }
        assert!(look(root.path(), &volume).unwrap_err().starts_with("2 directories"));
    }
}
