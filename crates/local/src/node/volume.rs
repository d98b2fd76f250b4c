//! The volumes of a pod and the sandbox of its containers, in the directory layout of the kubelet.

use super::{
    environment::{environment, expand},
    payload::{self, PayloadBuilder},
    pod::items,
    sandbox::{Mount, SandboxConfig},
    snapshot::DRIVER,
    unavailable::{Unavailable, unsupported},
};
use crate::{Core, object::text, status_error::StatusError};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::symlink,
    path::{Component, Path, PathBuf},
};

/// The directory, or the host's file, of each volume of a pod that a container mounts.
pub(super) type Volumes = BTreeMap<String, PathBuf>;

/// The configuration to start a container after `count` restarts.
pub(super) fn sandbox_config(
    core: &Core,
    pod: &Value,
    container: &Value,
    volumes: &Volumes,
    directory: &Path,
    count: u64,
) -> Result<SandboxConfig, StatusError> {
    let name = text(container, "/name");
    if items(container, "/command").next().is_none() {
        return Err(unsupported(format!("container {name} needs a command: the embedded node has no images")));
    }
    if !container["restartPolicy"].is_null() {
        return Err(unsupported(format!("container {name}: restartPolicy of a container is not supported")));
    }
    let environment = environment(core, pod, container)?;
    let words = items(container, "/command").chain(items(container, "/args"));
    let mounts = items(container, "/volumeMounts").map(|mount| resolve_mount(pod, mount, volumes));
    let (root, logs) = (directory.join("root").join(name), directory.join("logs").join(name));
    for directory in [&root, &logs] {
        fs::create_dir_all(directory).map_err(|error| unsupported(file_error(directory, &error)))?;
    }
    // `kubectl logs --previous` needs the log of the previous run only.
    let _ = fs::remove_file(logs.join(format!("{}.log", count.wrapping_sub(2))));
    Ok(SandboxConfig {
        root,
        log: logs.join(format!("{count}.log")),
        working_directory: Some(text(container, "/workingDir"))
            .filter(|path| !path.is_empty())
            .unwrap_or("/")
            .to_owned(),
        command: words.map(|word| expand(word.as_str().unwrap_or_default(), &environment)).collect(),
        mounts: mounts.collect::<Result<_, _>>()?,
        environment,
    })
}

fn file_error(path: &Path, error: &io::Error) -> String {
    format!("cannot use {}: {error}", path.display())
}

fn resolve_mount(pod: &Value, mount: &Value, volumes: &Volumes) -> Result<Mount, StatusError> {
    let name = text(mount, "/name");
    let volume = items(pod, "/spec/volumes").find(|volume| volume["name"] == name);
    let found = volume.zip(volumes.get(name));
    let (volume, source) = found.ok_or_else(|| unsupported(format!("volume {name} not found")))?;
    let sub_path = Path::new(text(mount, "/subPath"));
    if !sub_path.components().all(|part| matches!(part, Component::Normal(_))) || !mount["subPathExpr"].is_null() {
        return Err(unsupported(format!(
            "the subPath of volume {name} must be a path inside it; subPathExpr is not supported"
        )));
    }
    // Joining an empty path would append a slash.
    let source = if sub_path.as_os_str().is_empty() { source.clone() } else { source.join(sub_path) };
    if !source.exists() {
        fs::create_dir_all(&source).map_err(|error| unsupported(file_error(&source, &error)))?;
    }
    let read_only = mount["readOnly"] == true
        || payload::plugin_name(kind(volume)).is_some()
        || volume.pointer("/persistentVolumeClaim/readOnly") == Some(&true.into());
    Ok(Mount { source, path: text(mount, "/mountPath").into(), read_only })
}

/// The type of a volume: the name of its field.
fn kind(volume: &Value) -> &str {
    let fields = volume.as_object().into_iter().flatten();
    fields
        .filter(|(_, value)| !value.is_null())
        .map(|(kind, _)| kind.as_str())
        .find(|kind| *kind != "name")
        .unwrap_or("emptyDir")
}

/// The volumes of a pod that one of its containers mounts. As with the kubelet, the others need not exist.
fn mounted_volumes(pod: &Value) -> impl Iterator<Item = &Value> {
    let is_mounted = move |volume: &&Value| {
        let mut containers = items(pod, "/spec/initContainers").chain(items(pod, "/spec/containers"));
        containers.any(|container| items(container, "/volumeMounts").any(|mount| mount["name"] == volume["name"]))
    };
    items(pod, "/spec/volumes").filter(is_mounted)
}

/// Sets up the volumes of a pod.
pub(super) fn set_up(core: &Core, pod: &Value, directory: &Path) -> Result<Volumes, StatusError> {
    let set_up_volume = |volume: &Value| -> Result<(String, PathBuf), StatusError> {
        let name = text(volume, "/name");
        let volume_path = volume_path(core, pod, volume, directory).map_err(|why| why.for_volume(name))?;
        Ok((name.to_owned(), volume_path))
    };
    mounted_volumes(pod).map(set_up_volume).collect()
}

/// Whether a pod has volumes whose files change with the objects that they are made from.
pub(super) fn is_refreshable(pod: &Value) -> bool {
    mounted_volumes(pod).any(|volume| payload::plugin_name(kind(volume)).is_some())
}

/// Updates the files in the volumes of a running pod. Files whose source is missing stay unchanged.
pub(super) fn refresh(core: &Core, pod: &Value, directory: &Path) -> Vec<StatusError> {
    let written = mounted_volumes(pod).filter(|volume| payload::plugin_name(kind(volume)).is_some());
    let refreshed = written.map(|volume| {
        let name = text(volume, "/name");
        volume_path(core, pod, volume, directory).map_err(|why| why.for_volume(name))
    });
    refreshed.filter_map(Result::err).collect()
}

/// Sets up one volume and returns its path.
fn volume_path(core: &Core, pod: &Value, volume: &Value, directory: &Path) -> Result<PathBuf, Unavailable> {
    let (name, kind) = (text(volume, "/name"), kind(volume));
    let volume_directory = |plugin: &str| directory.join("volumes").join(format!("kubernetes.io~{plugin}")).join(name);
    if let Some(plugin) = payload::plugin_name(kind) {
        let volume_directory = volume_directory(plugin);
        let payload = PayloadBuilder { core, pod, directory: &volume_directory }.collect(kind, &volume[kind])?;
        payload::write(&volume_directory, &payload)
            .map_err(|error| Unavailable::Missing(file_error(&volume_directory, &error)))?;
        return Ok(volume_directory);
    }
    match kind {
        "emptyDir" => Ok(volume_directory("empty-dir")),
        "persistentVolumeClaim" => {
            claim_directory(core, pod, text(volume, "/persistentVolumeClaim/claimName"), directory)
        }
        "hostPath" => {
            let path = PathBuf::from(text(volume, "/hostPath/path"));
            if text(volume, "/hostPath/type") == "DirectoryOrCreate" || path.exists() {
                Ok(path)
            } else {
                Err(Unavailable::Missing(format!("hostPath {} does not exist", path.display())))
            }
        }
        other => Err(Unavailable::Unsupported(format!("the embedded node does not support {other} volumes"))),
    }
}

/// The directory of the volume of a claim. The kubelet's directory for the volume links to it.
fn claim_directory(core: &Core, pod: &Value, name: &str, directory: &Path) -> Result<PathBuf, Unavailable> {
    let claim = core.read_object("persistentvolumeclaims", text(pod, "/metadata/namespace"), name)?;
    let claim = claim.filter(|claim| claim.pointer("/status/phase") == Some(&"Bound".into()));
    let claim = claim.ok_or_else(|| Unavailable::Missing(format!("claim {name} is not bound")))?;
    let volume = text(&claim, "/spec/volumeName");
    let object = core.read_object("persistentvolumes", "", volume)?.unwrap_or_default();
    let driver = if text(&object, "/spec/csi/driver") == DRIVER { text(&object, "/spec/csi/volumeHandle") } else { "" };
    let path = [text(&object, "/spec/local/path"), text(&object, "/spec/hostPath/path"), driver].concat();
    if path.is_empty() || claim["spec"]["volumeMode"] == "Block" {
        let message = format!("volume {volume} of claim {name} is not a directory of this machine");
        return Err(Unavailable::Unsupported(message));
    }
    let volume_directory = directory.join("volumes/kubernetes.io~local-volume");
    fs::create_dir_all(&volume_directory)
        .map_err(|error| Unavailable::Missing(file_error(&volume_directory, &error)))?;
    // It exists after the first start.
    let _ = symlink(&path, volume_directory.join(volume));
    Ok(path.into())
}
