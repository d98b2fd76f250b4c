//! What a container gets: command, environment, and what is behind its mounts, laid out as a kubelet does it.

use super::{
    environment::{environment, expand},
    payload::{self, Sources},
    pod::items,
    sandbox::{Mount, Plan},
    snapshot::DRIVER,
    unavailable::{Unavailable, unsupported},
};
use crate::{Core, failure::Failure, object::text};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::symlink,
    path::{Component, Path, PathBuf},
};

/// The directory, or the host's file, behind each volume of a pod that a container mounts.
pub(super) type Volumes = BTreeMap<String, PathBuf>;

/// Everything that is needed to start a container for the `count`th time, or what is missing.
pub(super) fn plan(
    core: &Core,
    pod: &Value,
    container: &Value,
    volumes: &Volumes,
    directory: &Path,
    count: u64,
) -> Result<Plan, Failure> {
    let name = text(container, "/name");
    if items(container, "/command").next().is_none() {
        return Err(unsupported(format!("container {name} needs a command: an image is only a name here")));
    }
    if !container["restartPolicy"].is_null() {
        return Err(unsupported(format!("container {name} has a restartPolicy of its own, which is not supported")));
    }
    let environment = environment(core, pod, container)?;
    let words = items(container, "/command").chain(items(container, "/args"));
    let mounts = items(container, "/volumeMounts").map(|mount| mounted(pod, mount, volumes));
    let (root, logs) = (directory.join("root").join(name), directory.join("logs").join(name));
    for needed in [&root, &logs] {
        fs::create_dir_all(needed).map_err(|error| unsupported(unusable(needed, &error)))?;
    }
    // The log of the run before this one can still be asked for, older ones cannot.
    let _ = fs::remove_file(logs.join(format!("{}.log", count.wrapping_sub(2))));
    Ok(Plan {
        root,
        log: logs.join(format!("{count}.log")),
        work: Some(text(container, "/workingDir")).filter(|work| !work.is_empty()).unwrap_or("/").to_owned(),
        command: words.map(|word| expand(word.as_str().unwrap_or_default(), &environment)).collect(),
        mounts: mounts.collect::<Result<_, _>>()?,
        environment,
    })
}

fn unusable(path: &Path, error: &io::Error) -> String {
    format!("cannot use {}: {error}", path.display())
}

fn mounted(pod: &Value, mount: &Value, volumes: &Volumes) -> Result<Mount, Failure> {
    let name = text(mount, "/name");
    let volume = items(pod, "/spec/volumes").find(|volume| volume["name"] == name);
    let found = volume.zip(volumes.get(name));
    let (volume, source) = found.ok_or_else(|| unsupported(format!("there is no volume {name}")))?;
    let inner = Path::new(text(mount, "/subPath"));
    if !inner.components().all(|part| matches!(part, Component::Normal(_))) || !mount["subPathExpr"].is_null() {
        return Err(unsupported(format!("the subPath of volume {name} must lead into it and cannot be an expression")));
    }
    // Joined with nothing, the path of a file would end like that of a directory.
    let source = if inner.as_os_str().is_empty() { source.clone() } else { source.join(inner) };
    if !source.exists() {
        fs::create_dir_all(&source).map_err(|error| unsupported(unusable(&source, &error)))?;
    }
    let read_only = mount["readOnly"] == true
        || payload::plugin(kind(volume)).is_some()
        || volume.pointer("/persistentVolumeClaim/readOnly") == Some(&true.into());
    Ok(Mount { source, path: text(mount, "/mountPath").into(), read_only })
}

/// What a volume is, by the name of its field.
fn kind(volume: &Value) -> &str {
    let fields = volume.as_object().into_iter().flatten();
    fields
        .filter(|(_, value)| !value.is_null())
        .map(|(kind, _)| kind.as_str())
        .find(|kind| *kind != "name")
        .unwrap_or("emptyDir")
}

/// The volumes of a pod that one of its containers mounts. As with a kubelet, the others need not be there.
fn needed(pod: &Value) -> impl Iterator<Item = &Value> {
    let is_mounted = move |volume: &&Value| {
        let mut containers = items(pod, "/spec/initContainers").chain(items(pod, "/spec/containers"));
        containers.any(|container| items(container, "/volumeMounts").any(|mount| mount["name"] == volume["name"]))
    };
    items(pod, "/spec/volumes").filter(is_mounted)
}

/// Makes the volumes of a pod ready, or says which of them waits for what.
pub(super) fn set_up(core: &Core, pod: &Value, directory: &Path) -> Result<Volumes, Failure> {
    let ready = |volume: &Value| -> Result<(String, PathBuf), Failure> {
        let name = text(volume, "/name");
        let source = source(core, pod, volume, directory).map_err(|why| why.for_volume(name))?;
        Ok((name.to_owned(), source))
    };
    needed(pod).map(ready).collect()
}

/// Whether a pod has volumes whose files change with the objects that they are made from.
pub(super) fn is_refreshable(pod: &Value) -> bool {
    needed(pod).any(|volume| payload::plugin(kind(volume)).is_some())
}

/// Brings the files in the volumes of a running pod up to date. What cannot be had any more stays as it was.
pub(super) fn refresh(core: &Core, pod: &Value, directory: &Path) -> Vec<Failure> {
    let written = needed(pod).filter(|volume| payload::plugin(kind(volume)).is_some());
    let refreshed = written.map(|volume| {
        let name = text(volume, "/name");
        source(core, pod, volume, directory).map_err(|why| why.for_volume(name))
    });
    refreshed.filter_map(Result::err).collect()
}

/// Makes one volume ready.
fn source(core: &Core, pod: &Value, volume: &Value, directory: &Path) -> Result<PathBuf, Unavailable> {
    let (name, kind) = (text(volume, "/name"), kind(volume));
    let place = |plugin: &str| directory.join("volumes").join(format!("kubernetes.io~{plugin}")).join(name);
    if let Some(plugin) = payload::plugin(kind) {
        let place = place(plugin);
        let payload = Sources { core, pod, directory: &place }.collect(kind, &volume[kind])?;
        payload::write(&place, &payload).map_err(|error| Unavailable::Missing(unusable(&place, &error)))?;
        return Ok(place);
    }
    match kind {
        "emptyDir" => Ok(place("empty-dir")),
        "persistentVolumeClaim" => claimed(core, pod, text(volume, "/persistentVolumeClaim/claimName"), directory),
        "hostPath" => {
            let path = PathBuf::from(text(volume, "/hostPath/path"));
            if text(volume, "/hostPath/type") == "DirectoryOrCreate" || path.exists() {
                Ok(path)
            } else {
                Err(Unavailable::Missing(format!("hostPath {} is not there", path.display())))
            }
        }
        other => Err(Unavailable::Unsupported(format!("the local node has no {other} volumes"))),
    }
}

/// The directory of a claim's volume. The kubelet's place for it leads there.
fn claimed(core: &Core, pod: &Value, name: &str, directory: &Path) -> Result<PathBuf, Unavailable> {
    let claim = core.read("persistentvolumeclaims", text(pod, "/metadata/namespace"), name)?;
    let claim = claim.filter(|claim| claim.pointer("/status/phase") == Some(&"Bound".into()));
    let claim = claim.ok_or_else(|| Unavailable::Missing(format!("claim {name} is not bound")))?;
    let volume = text(&claim, "/spec/volumeName");
    let object = core.read("persistentvolumes", "", volume)?.unwrap_or_default();
    let driver = if text(&object, "/spec/csi/driver") == DRIVER { text(&object, "/spec/csi/volumeHandle") } else { "" };
    let path = [text(&object, "/spec/local/path"), text(&object, "/spec/hostPath/path"), driver].concat();
    if path.is_empty() || claim["spec"]["volumeMode"] == "Block" {
        let message = format!("volume {volume} of claim {name} is no directory of this machine");
        return Err(Unavailable::Unsupported(message));
    }
    let place = directory.join("volumes/kubernetes.io~local-volume");
    fs::create_dir_all(&place).map_err(|error| Unavailable::Missing(unusable(&place, &error)))?;
    // From the second start on it is there.
    let _ = symlink(&path, place.join(volume));
    Ok(path.into())
}
