//! What a container gets: environment, command, and the directories behind its mounts, laid out as a kubelet does it.

use super::{
    pod::items,
    sandbox::{Mount, Plan},
    snapshot::DRIVER,
};
use crate::{Core, failure::Failure, object::text};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Component, Path, PathBuf},
};

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

type Variables = Vec<(String, String)>;
type Contents = BTreeMap<String, Vec<u8>>;

/// Everything that is needed to start a container for the `count`th time, or what is missing.
pub(super) fn plan(core: &Core, pod: &Value, container: &Value, directory: &Path, count: u64) -> Result<Plan, Failure> {
    let name = text(container, "/name");
    if items(container, "/command").next().is_none() {
        return Err(refuse(format!("container {name} needs a command: an image is only a name here")));
    }
    if !container["restartPolicy"].is_null() {
        return Err(refuse(format!("container {name} has a restartPolicy of its own, which is not supported")));
    }
    let environment = environment(core, pod, container)?;
    let words = items(container, "/command").chain(items(container, "/args"));
    let mounts = items(container, "/volumeMounts").map(|mount| mounted(core, pod, mount, directory));
    let (root, logs) = (directory.join("root").join(name), directory.join("logs").join(name));
    for needed in [&root, &logs] {
        fs::create_dir_all(needed).map_err(|error| unusable(needed, &error))?;
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

fn refuse(message: impl Into<String>) -> Failure {
    Failure::new(400, "CreateContainerError", message)
}

fn missing(message: impl Into<String>) -> Failure {
    Failure::new(400, "CreateContainerConfigError", message)
}

fn unusable(path: &Path, error: &std::io::Error) -> Failure {
    refuse(format!("cannot use {}: {error}", path.display()))
}

fn expand(word: &str, known: &Variables) -> String {
    known.iter().fold(word.to_owned(), |word, (name, value)| word.replace(&format!("$({name})"), value))
}

fn environment(core: &Core, pod: &Value, container: &Value) -> Result<Variables, Failure> {
    let own = [("PATH", PATH), ("HOME", "/tmp"), ("HOSTNAME", text(pod, "/metadata/name"))];
    let own = own.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let given = core.node.get().into_iter().flat_map(|node| node.environment.iter().cloned());
    let mut found: Variables = own.chain(given).collect();
    for source in items(container, "/envFrom") {
        for (resource, field) in [("configmaps", "configMapRef"), ("secrets", "secretRef")] {
            let contents = contents(core, pod, resource, source.get(field))?.unwrap_or_default();
            found
                .extend(contents.into_iter().map(|(name, value)| (name, String::from_utf8_lossy(&value).into_owned())));
        }
    }
    for variable in items(container, "/env") {
        let value = match variable.get("valueFrom") {
            None => Some(expand(text(variable, "/value"), &found)),
            Some(source) => referred(core, pod, source)?,
        };
        found.extend(value.map(|value| (text(variable, "/name").to_owned(), value)));
    }
    Ok(found)
}

fn referred(core: &Core, pod: &Value, source: &Value) -> Result<Option<String>, Failure> {
    for (resource, field) in [("configmaps", "configMapKeyRef"), ("secrets", "secretKeyRef")] {
        if let Some(reference) = source.get(field) {
            let key = text(reference, "/key");
            let value = contents(core, pod, resource, Some(reference))?.and_then(|mut contents| contents.remove(key));
            if value.is_none() && reference["optional"] != true {
                return Err(missing(format!("couldn't find key {key} in {resource} {}", reference["name"])));
            }
            return Ok(value.map(|value| String::from_utf8_lossy(&value).into_owned()));
        }
    }
    let field = text(source, "/fieldRef/fieldPath");
    let value = pod.pointer(&format!("/{}", field.replace('.', "/"))).and_then(Value::as_str);
    value.map(|value| Some(value.to_owned())).ok_or_else(|| refuse(format!("valueFrom {source} is not supported")))
}

/// What is in a `ConfigMap` or Secret that a pod refers to; nothing if it may be absent and is.
fn contents(core: &Core, pod: &Value, resource: &str, from: Option<&Value>) -> Result<Option<Contents>, Failure> {
    let Some(from) = from else { return Ok(None) };
    let name = Some(text(from, "/name")).filter(|name| !name.is_empty()).unwrap_or(text(from, "/secretName"));
    let Some(object) = core.read(resource, text(pod, "/metadata/namespace"), name)? else {
        let absent = missing(format!("{resource} \"{name}\" not found"));
        return if from["optional"] == true { Ok(None) } else { Err(absent) };
    };
    let encoded = if resource == "secrets" { "data" } else { "binaryData" };
    let decode = |field: &str, value: &Value| {
        let value = value.as_str().unwrap_or_default();
        if field == encoded { BASE64_STANDARD.decode(value).unwrap_or_default() } else { value.as_bytes().to_vec() }
    };
    let of =
        |field| object[field].as_object().into_iter().flatten().map(move |(key, value)| (key, decode(field, value)));
    let contents = of("data").chain(of("binaryData")).map(|(key, value)| (key.clone(), value)).collect();
    Ok(Some(contents))
}

fn mounted(core: &Core, pod: &Value, mount: &Value, directory: &Path) -> Result<Mount, Failure> {
    let name = text(mount, "/name");
    let volume = items(pod, "/spec/volumes").find(|volume| volume["name"] == name);
    let volume = volume.ok_or_else(|| refuse(format!("there is no volume {name}")))?;
    let inner = Path::new(text(mount, "/subPath"));
    if !inner.components().all(|part| matches!(part, Component::Normal(_))) || !mount["subPathExpr"].is_null() {
        return Err(refuse(format!("the subPath of volume {name} must lead into it and cannot be an expression")));
    }
    let source = source(core, pod, volume, directory)?;
    // Joined with nothing, the path of a file would end like that of a directory.
    let source = if inner.as_os_str().is_empty() { source } else { source.join(inner) };
    if !source.exists() {
        fs::create_dir_all(&source).map_err(|error| unusable(&source, &error))?;
    }
    let read_only =
        mount["readOnly"] == true || volume.pointer("/persistentVolumeClaim/readOnly") == Some(&true.into());
    Ok(Mount { source, path: text(mount, "/mountPath").into(), read_only })
}

/// The directory, or the host's file, that a volume is.
fn source(core: &Core, pod: &Value, volume: &Value, directory: &Path) -> Result<PathBuf, Failure> {
    let name = text(volume, "/name");
    let place = |plugin: &str| directory.join("volumes").join(format!("kubernetes.io~{plugin}")).join(name);
    let kind = volume.as_object().into_iter().flatten().map(|(kind, _)| kind.as_str()).find(|kind| *kind != "name");
    let of = kind.map_or(&Value::Null, |kind| &volume[kind]);
    match kind.unwrap_or("emptyDir") {
        "emptyDir" => Ok(place("empty-dir")),
        "configMap" => spread(place("configmap"), contents(core, pod, "configmaps", Some(of))?.unwrap_or_default(), of),
        "secret" => spread(place("secret"), contents(core, pod, "secrets", Some(of))?.unwrap_or_default(), of),
        "persistentVolumeClaim" => claimed(core, pod, text(of, "/claimName"), directory),
        "hostPath" => {
            let path = PathBuf::from(text(of, "/path"));
            let made = text(of, "/type") == "DirectoryOrCreate";
            if made || path.exists() {
                Ok(path)
            } else {
                Err(missing(format!("hostPath {} is not there", path.display())))
            }
        }
        other => Err(refuse(format!("volume {name}: the local node has no {other} volumes"))),
    }
}

/// Writes the files of a volume: all of them, or those that are listed.
fn spread(directory: PathBuf, mut contents: Contents, of: &Value) -> Result<PathBuf, Failure> {
    if of["items"].is_array() {
        let listed = items(of, "/items").map(|item| (text(item, "/path"), contents.get(text(item, "/key"))));
        let listed = listed.map(|(path, value)| Some((path.to_owned(), value?.clone())));
        contents =
            listed.collect::<Option<_>>().ok_or_else(|| missing(format!("a key of {} is not there", of["items"])))?;
    }
    let mode = of["defaultMode"].as_u64().and_then(|mode| u32::try_from(mode).ok()).unwrap_or(0o644);
    let write = |path: &Path, value: &[u8]| {
        fs::create_dir_all(path.parent().unwrap_or(&directory))?;
        fs::write(path, value)?;
        fs::set_permissions(path, Permissions::from_mode(mode))
    };
    for (name, value) in &contents {
        let path = directory.join(name);
        write(&path, value).map_err(|error| unusable(&path, &error))?;
    }
    Ok(directory)
}

/// The directory of a claim's volume. The kubelet's place for it leads there.
fn claimed(core: &Core, pod: &Value, name: &str, directory: &Path) -> Result<PathBuf, Failure> {
    let claim = core.read("persistentvolumeclaims", text(pod, "/metadata/namespace"), name)?;
    let claim = claim.filter(|claim| claim.pointer("/status/phase") == Some(&"Bound".into()));
    let claim = claim.ok_or_else(|| Failure::new(400, "ContainerCreating", format!("claim {name} is not bound")))?;
    let volume = text(&claim, "/spec/volumeName");
    let object = core.read("persistentvolumes", "", volume)?.unwrap_or_default();
    let driver = if text(&object, "/spec/csi/driver") == DRIVER { text(&object, "/spec/csi/volumeHandle") } else { "" };
    let path = [text(&object, "/spec/local/path"), text(&object, "/spec/hostPath/path"), driver].concat();
    if path.is_empty() || claim["spec"]["volumeMode"] == "Block" {
        return Err(refuse(format!("volume {volume} of claim {name} is no directory of this machine")));
    }
    let place = directory.join("volumes/kubernetes.io~local-volume");
    fs::create_dir_all(&place).map_err(|error| unusable(&place, &error))?;
    // From the second start on it is there.
    let _ = symlink(&path, place.join(volume));
    Ok(path.into())
}
