//! `plimsoll plugin get`, `add` and `remove`.

use anyhow::bail;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::install::{PLUGINS as VOLUME, PLUGINS_DIRECTORY as DIRECTORY, SERVER_CONTAINER};
use super::version;
use crate::args::Global;
use crate::args::plugins::{AddPlugin, GetPlugins, Plugin, RemovePlugin};
use crate::exit::Outcome;
use crate::{connect, output};

/// The directory into which the images of plugins copy their binaries.
const TARGET: &str = "/target";

/// Carries out a verb.
pub async fn run(global: &Global, verb: Plugin) -> anyhow::Result<Outcome> {
    let client = connect::client(global).await?;
    match verb {
        Plugin::Get(options) => get(global, &client, &options).await?,
        Plugin::Add(options) => add(global, &client, &options).await?,
        Plugin::Remove(options) => remove(global, &client, &options).await?,
    }
    Ok(Outcome::Success)
}

async fn get(global: &Global, client: &Client, options: &GetPlugins) -> anyhow::Result<()> {
    let status = version::server(client, &global.namespace, options.timeout).await?;
    if let Some(format) = options.output {
        return output::object(&status.plugins, format);
    }
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let rows: Vec<_> = status.plugins.iter().map(|plugin| vec![text(&plugin.name), text(&plugin.kind)]).collect();
    output::table(&["NAME".into(), "KIND".into()], &rows).iter().for_each(output::line);
    Ok(())
}

async fn add(global: &Global, client: &Client, options: &AddPlugin) -> anyhow::Result<()> {
    let (api, deployment) = deployment(client, &global.namespace).await?;
    let name = container_name(&options.image);
    if containers(&deployment, "initContainers").any(|known| known["name"] == name.as_str()) {
        bail!("plugin {name} is installed already; remove it first with `plimsoll plugin remove {name}`");
    }
    let patch = adding(&deployment, &name, options);
    let server = deployment_name(&deployment);
    api.patch(&server, &PatchParams::default(), &Patch::Strategic(patch)).await?;
    output::line(format!("plugin/{name} added; Deployment {server} restarts"));
    Ok(())
}

async fn remove(global: &Global, client: &Client, options: &RemovePlugin) -> anyhow::Result<()> {
    let (api, deployment) = deployment(client, &global.namespace).await?;
    let wanted = |container: &&Value| {
        [&container["name"], &container["image"]].iter().any(|field| field.as_str() == Some(options.name.as_str()))
    };
    let Some(found) = containers(&deployment, "initContainers").find(wanted).cloned() else {
        let there: Vec<_> = containers(&deployment, "initContainers").filter_map(|c| c["name"].as_str()).collect();
        bail!("plugin {:?} is not installed; installed are: {}", options.name, there.join(", "));
    };
    let name = found["name"].as_str().unwrap_or_default();
    let gone = json!({ "$patch": "delete", "name": name });
    let patch = json!({ "spec": { "template": { "spec": { "initContainers": [gone] } } } });
    let server = deployment_name(&deployment);
    api.patch(&server, &PatchParams::default(), &Patch::Strategic(patch)).await?;
    output::line(format!("plugin/{name} removed; Deployment {server} restarts"));
    Ok(())
}

/// The Deployment of the server, as JSON.
async fn deployment(client: &Client, namespace: &str) -> anyhow::Result<(Api<Deployment>, Value)> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let all = api.list(&ListParams::default()).await?;
    let is_server = |deployment: &&Deployment| server_container(&json!(deployment)).is_some();
    let Some(found) = all.items.iter().find(is_server) else {
        bail!("no Deployment in namespace {namespace} runs the server; pass its namespace with -n");
    };
    tracing::debug!("the server is Deployment {}", found.name_any());
    let found = json!(found);
    Ok((api, found))
}

fn deployment_name(deployment: &Value) -> String {
    deployment.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn containers<'a>(deployment: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    let list = deployment.pointer(&format!("/spec/template/spec/{field}")).and_then(Value::as_array);
    list.into_iter().flatten()
}

/// The container of the server: named like the program, or with the argument `server`.
fn server_container(deployment: &Value) -> Option<&Value> {
    let says_server = |container: &Value| {
        let words = ["args", "command"].into_iter().filter_map(|field| container[field].as_array()).flatten();
        words.filter_map(Value::as_str).any(|word| word == "server")
    };
    let is_named = |container: &Value| {
        container["name"].as_str().is_some_and(|name| ["plimsoll", SERVER_CONTAINER].contains(&name))
    };
    containers(deployment, "containers").find(|container| is_named(container) && says_server(container))
}

/// The change that brings a plugin: an init container that copies it, and the volume both see.
fn adding(deployment: &Value, name: &str, options: &AddPlugin) -> Value {
    let container = init_container(name, &options.image, &options.image_pull_policy);
    let mut spec = json!({ "initContainers": [container] });
    let volumes = containers(deployment, "volumes");
    if !volumes.into_iter().any(|volume| volume["name"] == VOLUME) {
        spec["volumes"] = json!([{ "name": VOLUME, "emptyDir": {} }]);
    }
    if let Some(server) = server_container(deployment) {
        let mounts = server["volumeMounts"].as_array().into_iter().flatten();
        if !mounts.into_iter().any(|mount| mount["name"] == VOLUME) {
            let mount = json!({ "name": VOLUME, "mountPath": DIRECTORY });
            spec["containers"] = json!([{ "name": server["name"], "volumeMounts": [mount] }]);
        }
    }
    json!({ "spec": { "template": { "spec": spec } } })
}

/// The init container that copies the plugin of an image to where the server looks for it.
pub fn plugin_container(image: &str, image_pull_policy: &str) -> Value {
    init_container(&container_name(image), image, image_pull_policy)
}

fn init_container(name: &str, image: &str, image_pull_policy: &str) -> Value {
    json!({
        "name": name,
        "image": image,
        "imagePullPolicy": image_pull_policy,
        "volumeMounts": [{ "name": VOLUME, "mountPath": TARGET }],
    })
}

/// A container's name, made from an image's: without registry, tag and digest, in letters that are allowed.
fn container_name(image: &str) -> String {
    let image = image.split('@').next().unwrap_or(image);
    let image = match image.rsplit_once(':') {
        Some((before, tag)) if !tag.contains('/') => before,
        _ => image,
    };
    let path = match image.split_once('/') {
        Some((registry, path)) if registry.contains(['.', ':']) || registry == "localhost" => path,
        _ => image,
    };
    let allowed = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = path.chars().map(allowed).take(63).collect();
    name.trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Arguments, Command};

    #[test]
    fn a_container_is_named_after_its_image_without_registry_and_tag() {
        for (image, name) in [
            ("velero/velero-plugin-for-aws:v1.14.3", "velero-velero-plugin-for-aws"),
            ("registry.example.com:5000/team/My_Plugin@sha256:abc", "team-my-plugin"),
            ("localhost/plugin:1", "plugin"),
            ("plugin", "plugin"),
        ] {
            assert_eq!(container_name(image), name);
        }
    }

    #[test]
    fn a_plugin_brings_the_volume_and_its_mount_where_they_are_missing() {
        let options = AddPlugin { image: "x/y:1".into(), image_pull_policy: "Always".into() };
        let server = json!({ "name": "velero", "args": ["server"] });
        let bare = json!({ "spec": { "template": { "spec": { "containers": [server] } } } });
        let patch = adding(&bare, "x-y", &options);
        let spec = &patch["spec"]["template"]["spec"];
        assert_eq!(spec["initContainers"][0]["volumeMounts"], json!([{ "name": "plugins", "mountPath": "/target" }]));
        assert_eq!(spec["volumes"], json!([{ "name": "plugins", "emptyDir": {} }]));
        assert_eq!(spec["containers"][0]["volumeMounts"], json!([{ "name": "plugins", "mountPath": "/plugins" }]));
        let server = json!({ "name": "velero", "args": ["server"], "volumeMounts": [{ "name": "plugins" }] });
        let volumes = json!([{ "name": "plugins" }]);
        let whole = json!({ "spec": { "template": { "spec": { "containers": [server], "volumes": volumes } } } });
        let patch = adding(&whole, "x-y", &options);
        assert_eq!(patch["spec"]["template"]["spec"].as_object().unwrap().len(), 1);
    }

    #[test]
    fn a_sidecar_or_an_agent_is_not_the_server() {
        let with = |container| json!({ "spec": { "template": { "spec": { "containers": [container] } } } });
        assert!(server_container(&with(json!({ "name": "plimsoll", "command": ["plimsoll", "server"] }))).is_some());
        assert!(server_container(&with(json!({ "name": "plimsoll", "args": ["node-agent"] }))).is_none());
        assert!(server_container(&with(json!({ "name": "other", "args": ["server"] }))).is_none());
        assert!(server_container(&with(json!({ "name": "server", "args": ["server"] }))).is_none());
    }

    #[test]
    fn the_installed_server_is_found_and_has_the_plugin_volume() {
        let typed = Arguments::try_parse_from(["plimsoll", "install", "--image", "x:1"]).unwrap();
        let Command::Install(options) = typed.command else { panic!("it is `install`") };
        let all = crate::commands::install::all("velero", &options).unwrap();
        let found: Vec<_> = all.iter().filter(|object| server_container(object).is_some()).collect();
        assert_eq!(found.iter().map(|object| &object["kind"]).collect::<Vec<_>>(), ["Deployment"]);
        let add = AddPlugin { image: "x/y:1".into(), image_pull_policy: "Always".into() };
        let patch = adding(found[0], "x-y", &add);
        let fields = patch["spec"]["template"]["spec"].as_object().unwrap().keys();
        assert_eq!(fields.collect::<Vec<_>>(), ["initContainers"], "all else is there");
    }
}
