//! The directory of a pod's volume on its node: below the kubelet's directory of the pod, or that of a local volume.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Volume};
use kube::{Api, Client, ResourceExt};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;

use plimsoll_engine::Error;
use plimsoll_volumes::transfer::{TransferError, VolumePath};

use crate::volume_io::on_volume;

/// The names under which the kubelet may have the directory of a volume.
#[derive(Debug, Default, PartialEq, Eq)]
struct VolumeName {
    name: String,
    local: Option<PathBuf>,
}

/// The directory of a pod's volume on this node.
pub(crate) async fn find(
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
        None => VolumeName { name: volume.to_owned(), local: None },
        Some(claim) => {
            volume_of_claim(client, &pod.namespace().unwrap_or_default(), &claim).await?.map_err(&refused)?
        }
    };
    let uid = pod.uid().unwrap_or_default();
    let volumes = pods_directory.join(uid).join("volumes");
    let found = on_volume(move || {
        let place = find_directory(&volumes, &known)?;
        let is_mounted = !place.should_be_mounted || is_mount(&place.path);
        Ok((place, is_mounted))
    });
    let (place, is_mounted) = found.await?.map_err(refused)?;
    if !is_mounted {
        let pod = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
        return Err(TransferError::NotMounted { volume: volume.to_owned(), pod });
    }
    Ok(place.path)
}

/// The claim behind a volume, if there is one.
fn claim_name(pod: &Pod, volume: &Volume) -> Option<String> {
    let ephemeral = || volume.ephemeral.as_ref().map(|_| format!("{}-{}", pod.name_any(), volume.name));
    volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.clone()).or_else(ephemeral)
}

/// The volume of a claim; the inner error says what is wrong with it.
async fn volume_of_claim(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Result<VolumeName, String>, TransferError> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let claim = claims.get_opt(name).await.map_err(|e| Error::api(format!("read claim {namespace}/{name}"), e))?;
    let Some(spec) = claim.and_then(|claim| claim.spec) else {
        return Ok(Err(format!("claim {name} not found")));
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
    Ok(Ok(VolumeName { name: volume, local }))
}

/// The directory of a volume. After the restart of a node the directory of a CSI driver's volume is there before the driver has mounted
/// anything: it reads as an empty volume, and what is written into it is hidden by the mount that follows.
#[derive(Debug, PartialEq, Eq)]
struct VolumeDirectory {
    path: PathBuf,
    should_be_mounted: bool,
}

/// Whether something is mounted there. Kernels before 5.8 do not report it: then it counts as mounted.
fn is_mount(path: &Path) -> bool {
    let status = statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS);
    status.is_ok_and(|status| {
        let root = StatxAttributes::MOUNT_ROOT;
        !status.stx_attributes_mask.contains(root) || status.stx_attributes.contains(root)
    })
}

/// One directory for each plugin, in it one for each volume; CSI drivers mount one below.
fn find_directory(volumes: &Path, known: &VolumeName) -> Result<VolumeDirectory, String> {
    let plugins = volumes.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = plugins.map(|plugin| plugin.join(&known.name)).filter(|path| path.exists()).collect();
    found.sort();
    let (place, should_be_mounted) = match (found.as_slice(), &known.local) {
        ([one], _) if is_csi(one) => (one.join("mount"), true),
        ([one], _) => (one.clone(), false),
        ([], Some(local)) if local.is_dir() => (local.clone(), false),
        ([], _) => return Err(format!("{}/*/{} is not there on this node", volumes.display(), known.name)),
        (several, _) => return Err(format!("{} directories below {} have its name", several.len(), volumes.display())),
    };
    let path = place.canonicalize().map_err(|error| format!("{}: {error}", place.display()))?;
    Ok(VolumeDirectory { path, should_be_mounted })
}

fn is_csi(path: &Path) -> bool {
    path.parent().and_then(Path::file_name).is_some_and(|plugin| plugin == "kubernetes.io~csi")
}

/// Opens a path of a volume. The content is its owner's, who may put a link there at any moment, while the agent that reads it
/// here may read everything on the node: the directory is opened once, without leaving the volume, and found by that opening.
pub(crate) fn inside(volume: &Path, inner: Option<&Path>) -> Result<VolumePath, TransferError> {
    let Some(inner) = inner.filter(|inner| !inner.as_os_str().is_empty()) else {
        return Ok(VolumePath { path: volume.to_owned(), only: None, directory: None });
    };
    let wrong = |why: String| TransferError::Invalid(format!("{} of the volume: {why}", inner.display()));
    enter(volume, inner)
        .map_err(|error| wrong(path_error_text(error)))?
        .ok_or_else(|| wrong("it is no file and no directory".into()))
}

fn enter(volume: &Path, inner: &Path) -> Result<Option<VolumePath>, Errno> {
    let root = open(CWD, volume, ResolveFlags::empty())?;
    let below = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let found = open(&root, inner, below)?;
    match FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) {
        FileType::Directory => Ok(Some(held(found, None))),
        FileType::RegularFile => {
            let (Some(above), Some(name)) = (inner.parent(), inner.file_name()) else { return Ok(None) };
            let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
            Ok(Some(held(open(&root, above, below)?, Some(name.into()))))
        }
        _ => Ok(None),
    }
}

fn open(at: impl AsFd, path: &Path, resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(at, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// With a dot at the end, so that it is not taken for the link that it is.
fn held(directory: OwnedFd, only: Option<PathBuf>) -> VolumePath {
    let path = format!("/proc/{}/fd/{}/.", std::process::id(), directory.as_raw_fd());
    VolumePath { path: path.into(), only, directory: Some(directory) }
}

fn path_error_text(error: Errno) -> String {
    match error {
        Errno::XDEV | Errno::LOOP => "it leads out of the volume".into(),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_a_volume_is_held_and_never_leads_out_of_it() {
        let volume = tempfile::tempdir().unwrap();
        let root = volume.path();
        std::fs::create_dir_all(root.join("in/deep")).unwrap();
        std::fs::write(root.join("in/deep/file"), "x").unwrap();
        std::os::unix::fs::symlink("/etc", root.join("out")).unwrap();
        std::os::unix::fs::symlink("in/deep", root.join("link")).unwrap();
        assert_eq!(inside(root, None).unwrap().path, root);
        for inner in ["in/deep", "link"] {
            let found = inside(root, Some(Path::new(inner))).unwrap();
            assert_eq!(std::fs::read_to_string(found.path.join("file")).unwrap(), "x", "{inner}");
            assert_eq!(found.only, None);
        }
        let file = inside(root, Some(Path::new("in/deep/file"))).unwrap();
        assert_eq!(file.only, Some("file".into()));
        // The owner of the volume cannot lead the reader elsewhere afterwards.
        std::fs::rename(root.join("in"), root.join("moved")).unwrap();
        std::os::unix::fs::symlink("/etc", root.join("in")).unwrap();
        assert_eq!(std::fs::read_to_string(file.path.join("file")).unwrap(), "x");
        for wrong in ["out", "out/passwd", "in", "../..", "/etc", "missing"] {
            assert!(inside(root, Some(Path::new(wrong))).is_err(), "{wrong}");
        }
    }

    fn known(name: &str) -> VolumeName {
        VolumeName { name: name.into(), local: None }
    }

    #[test]
    fn a_volume_is_found_below_any_plugin_and_one_deeper_below_csi() {
        let root = tempfile::tempdir().unwrap();
        for path in ["kubernetes.io~empty-dir/cache", "kubernetes.io~csi/pvc-1/mount"] {
            std::fs::create_dir_all(root.path().join(path)).unwrap();
        }
        let real = root.path().canonicalize().unwrap();
        let found = |path: &str, should_be_mounted| Ok(VolumeDirectory { path: real.join(path), should_be_mounted });
        assert_eq!(find_directory(root.path(), &known("cache")), found("kubernetes.io~empty-dir/cache", false));
        assert_eq!(find_directory(root.path(), &known("pvc-1")), found("kubernetes.io~csi/pvc-1/mount", true));
        assert!(find_directory(root.path(), &known("other")).unwrap_err().contains("is not there on this node"));
    }

    #[test]
    fn a_directory_is_not_taken_for_what_should_be_mounted_on_it() {
        let directory = tempfile::tempdir().unwrap();
        assert!(is_mount(Path::new("/proc")));
        assert!(!is_mount(directory.path()) && !is_mount(&directory.path().join("missing")));
    }

    #[test]
    fn a_local_volume_is_its_own_directory_and_two_of_one_name_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let local = tempfile::tempdir().unwrap();
        let volume = VolumeName { name: "pv".into(), local: Some(local.path().to_owned()) };
        assert_eq!(find_directory(root.path(), &volume).unwrap().path, local.path().canonicalize().unwrap());
        for plugin in ["a", "b"] {
            std::fs::create_dir_all(root.path().join(plugin).join("pv")).unwrap();
        }
        assert!(find_directory(root.path(), &volume).unwrap_err().starts_with("2 directories"));
    }
}
