//! `plimsoll install`: everything that a cluster needs, applied on the server's side, so that doing it again is an upgrade.

mod blueprint_policy;
mod carry_over;
mod objects;
mod protection;
mod ready;

use anyhow::Context;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use plimsoll_api::velero::v1::{BackupRepository, UploaderType};
use plimsoll_progress::{Clock, Operation, Task, Total, Unit};
use serde_json::Value;

use crate::args::Global;
use crate::args::install::{Install, Uploader};
use crate::args::options::ObjectFormat;
use crate::exit::Outcome;
use crate::progress_display::ProgressDisplay;
use crate::{connect, output};

use self::carry_over::carry_over;
pub use self::objects::{PLUGINS, PLUGINS_DIRECTORY, SERVER_CONTAINER, all, object, removable};

/// The field manager of server-side apply.
const MANAGER: &str = "plimsoll-install";

/// Printed where the API server is too old for our policies.
const NO_ADMISSION_POLICIES: &str = "This API server has no ValidatingAdmissionPolicy (Kubernetes 1.30 and later): the agents are \
    not bound to the transfers of their own nodes, and a Blueprint is validated only when it runs.";

fn is_admission_policy(object: &Value) -> bool {
    object["kind"].as_str().is_some_and(|kind| kind.starts_with("ValidatingAdmissionPolicy"))
}

async fn serves_admission_policies(client: &Client) -> anyhow::Result<bool> {
    match client.list_api_group_resources("admissionregistration.k8s.io/v1").await {
        Ok(list) => Ok(list.resources.iter().any(|resource| resource.kind == "ValidatingAdmissionPolicy")),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error).context("cannot read the kinds of admissionregistration.k8s.io/v1"),
    }
}

/// Installs, or prints what would be installed.
pub async fn run(global: &Global, options: &Install) -> anyhow::Result<Outcome> {
    let requested = carry_over(&options.velero.arguments(), &options.server_arguments);
    let options = &with_arguments(options, requested.arguments);
    // Also for its errors, before the cluster is asked.
    let requested_objects = all(&global.namespace, options)?;
    if options.dry_run {
        return print(&requested_objects, options.output);
    }
    let client = connect::client(global).await?;
    let velero = carry_over(&velero_arguments(&client, &global.namespace).await?, &own_arguments(options));
    let carried = carried_over_text(&velero.arguments);
    let mut options = with_arguments(options, velero.arguments);
    if options.node_agent_configmap.is_none() {
        options.node_agent_configmap = velero_agent_configmap(&client, &global.namespace).await?;
    }
    let options = &options;
    let mut all = all(&global.namespace, options)?;
    if !serves_admission_policies(&client).await? {
        all.retain(|object| !is_admission_policy(object));
        output::line(NO_ADMISSION_POLICIES);
    }
    let operation = Operation::new("installing", Clock::system());
    let root = operation.root();
    let applied = apply_all(&client, &all, &root);
    ProgressDisplay::on_terminal_only().show_while(&operation, applied).await?;
    output::line(format!("{} objects applied in namespace {}", all.len(), global.namespace));
    if !options.crds_only {
        advice(options).into_iter().for_each(output::line);
        if options.uploader_type == Uploader::Auto && has_kopia_repositories(&client, &global.namespace).await {
            output::line(needs_kopia(&options.image));
        }
        carried.into_iter().for_each(output::line);
        for dropped in requested.dropped.iter().chain(&velero.dropped) {
            output::line(format!("Not carried over from Velero: {dropped}"));
        }
        if options.wait {
            return ready::wait(&client, &global.namespace, options).await;
        }
    }
    Ok(Outcome::Success)
}

fn print(all: &[Value], format: Option<ObjectFormat>) -> anyhow::Result<Outcome> {
    match format {
        None => all.iter().for_each(|object| output::line(name_of(object))),
        Some(ObjectFormat::Json) => {
            let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": all });
            output::object(&list, ObjectFormat::Json)?;
        }
        Some(ObjectFormat::Yaml) => {
            for object in all {
                output::line("---");
                output::object(object, ObjectFormat::Yaml)?;
            }
        }
    }
    Ok(Outcome::Success)
}

/// The name of an object in messages.
pub fn name_of(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (kind, name) = (text("/kind"), text("/metadata/name"));
    match text("/metadata/namespace") {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

/// The API of an object, by its apiVersion, kind and namespace.
pub fn api_of(client: &Client, object: &Value) -> Api<DynamicObject> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("/apiVersion").split_once('/').unwrap_or(("", text("/apiVersion")));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("/kind")));
    match text("/metadata/namespace") {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    }
}

async fn apply_all(client: &Client, all: &[Value], task: &Task) -> anyhow::Result<()> {
    let meter = task.meter(Unit::Items);
    meter.set_total(Total::Final(all.len() as u64));
    for object in all {
        let name = name_of(object);
        task.say(&name);
        apply(client, object, task).await.with_context(|| format!("cannot apply {name}"))?;
        meter.add(1);
    }
    Ok(())
}

/// Applies an object. A definition that was just applied is not served at once: a 404 is retried for a while.
async fn apply(client: &Client, object: &Value, task: &Task) -> kube::Result<()> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let parameters = PatchParams::apply(MANAGER).force();
    let mut tries = 0_u32;
    loop {
        match api_of(client, object).patch(name, &parameters, &Patch::Apply(object)).await {
            Err(kube::Error::Api(status)) if status.code == 404 && tries < 120 => {
                let _waiting =
                    task.wait(format!("waiting for the API server to serve the kind of {}", name_of(object)));
                tokio::time::sleep(std::time::Duration::from_millis(250)).await;
                tries += 1;
            }
            answer => return answer.map(|_| ()),
        }
    }
}

/// The consequences of the options.
fn advice(options: &Install) -> Vec<String> {
    let mut lines = vec![uploader_advice(options.uploader_type).to_owned()];
    if !options.use_node_agent {
        lines.push(
            "No node agents run: volume data is not backed up, and backups that request it end with errors.".into(),
        );
    }
    if options.no_default_backup_location || options.provider.is_none() {
        lines.push("No backup location exists; create one with `plimsoll backup-location create`.".into());
    }
    lines.push(
        "The Secret velero-repo-credentials, created with the first volume, decrypts every volume backup; keep a copy outside the cluster."
            .into(),
    );
    lines
}

/// The consequences of an uploader.
fn uploader_advice(uploader: Uploader) -> &'static str {
    match uploader {
        Uploader::Auto => {
            "Volume data: kopia if this cluster has kopia repositories of Velero, so that Velero can still restore them (kopia \
             must be in the image then), else the built-in mover, which writes restic's format. Set it with --uploader-type."
        }
        Uploader::BuiltIn => {
            "Volume data: the built-in mover. It needs no other program and preserves all metadata. It writes restic's format, \
             which restic reads and Velero 1.17 and later does not write."
        }
        Uploader::Restic => {
            "Volume data: restic, which must be in the image. Velero 1.17 and later does not write its repositories."
        }
        Uploader::Kopia => {
            "Volume data: kopia, which must be in the image. Velero can restore it, and Plimsoll restores that of Velero; hard \
             links and extended attributes are not preserved."
        }
    }
}

/// Whether `auto` selects kopia here. Best effort: the advice explains both cases.
async fn has_kopia_repositories(client: &Client, namespace: &str) -> bool {
    let repositories: Api<BackupRepository> = Api::namespaced(client.clone(), namespace);
    let is_kopia = |one: &BackupRepository| one.spec.repository_type == Some(UploaderType::Kopia);
    let found = repositories.list(&ListParams::default()).await;
    found.is_ok_and(|found| found.items.iter().any(is_kopia))
}

/// The options with more arguments of the server. They come before those of the user.
fn with_arguments(options: &Install, more: Vec<String>) -> Install {
    let mut options = options.clone();
    options.server_arguments.splice(0..0, more);
    options
}

/// The arguments of the new server that the user decides about.
fn own_arguments(options: &Install) -> Vec<String> {
    let mut own = options.server_arguments.clone();
    if options.default_volumes_to_fs_backup || !options.use_node_agent {
        own.push("--default-volumes-to-fs-backup".into());
    }
    if options.uploader_type != Uploader::Auto {
        own.push("--uploader-type".into());
    }
    own
}

/// The arguments of Velero's server here, running or scaled down.
async fn velero_arguments(client: &Client, namespace: &str) -> anyhow::Result<Vec<String>> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let velero = deployments.get_opt("velero").await.context("cannot read the Deployment of Velero")?;
    Ok(velero.as_ref().map(server_arguments).unwrap_or_default())
}

/// The ConfigMap of Velero's node agents here.
async fn velero_agent_configmap(client: &Client, namespace: &str) -> anyhow::Result<Option<String>> {
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), namespace);
    let velero = sets.get_opt("node-agent").await.context("cannot read the node agents of Velero")?;
    let pod = velero.and_then(|velero| velero.spec.template.spec);
    let mut arguments = pod.into_iter().flat_map(|pod| pod.containers).flat_map(|one| one.args.unwrap_or_default());
    Ok(arguments.find_map(|argument| argument.strip_prefix("--node-agent-configmap=").map(str::to_owned)))
}

fn server_arguments(deployment: &Deployment) -> Vec<String> {
    let containers = deployment.spec.template.spec.as_ref().into_iter().flat_map(|pod| &pod.containers);
    let mut servers = containers.filter(|container| container.name == SERVER_CONTAINER);
    servers.next().and_then(|server| server.args.clone()).unwrap_or_default()
}

/// Settings of Velero's server for the new server.
fn carried_over_text(arguments: &[String]) -> Option<String> {
    (!arguments.is_empty()).then(|| format!("Carried over from Velero's server: {}", arguments.join(" ")))
}

fn needs_kopia(image: &str) -> String {
    format!(
        "This cluster has kopia repositories: unless kopia is in image {image}, volume backups fail with \
         MoverProgramMissing. --uploader-type=built-in needs no other program."
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::json;

    use super::*;
    use crate::args::{Arguments, Command};

    fn install(text: &str) -> Install {
        let words = ["plimsoll", "install", "--image", "x:1"].into_iter().chain(text.split_whitespace());
        let Command::Install(options) = Arguments::try_parse_from(words).unwrap().command else {
            panic!("it is `install`")
        };
        *options
    }

    /// The Deployment that these options make in a cluster with a Velero that has these arguments.
    fn installed(options: &str, velero: &[&str]) -> Value {
        let pod =
            json!({ "containers": [{ "name": "sidecar", "args": ["--x"] }, { "name": "velero", "args": velero }] });
        let deployment = json!({ "spec": { "selector": {}, "template": { "spec": pod } } });
        let velero = server_arguments(&serde_json::from_value(deployment).unwrap());
        let options = install(options);
        let requested = carry_over(&options.velero.arguments(), &options.server_arguments);
        let options = with_arguments(&options, requested.arguments);
        let carried = carry_over(&velero, &own_arguments(&options));
        let all = all("velero", &with_arguments(&options, carried.arguments)).unwrap();
        all.into_iter().find(|object| object["kind"] == "Deployment").unwrap()
    }

    /// The arguments that do not come from the installer.
    fn extra_arguments(deployment: &Value) -> Vec<String> {
        let arguments = deployment.pointer("/spec/template/spec/containers/0/args").and_then(Value::as_array).unwrap();
        arguments.iter().skip(6).map(|word| word.as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_arguments_of_velero_are_those_of_the_new_server() {
        let velero = ["server", "--features=", "--default-volumes-to-fs-backup=true", "--default-backup-ttl=48h"];
        let found = extra_arguments(&installed("", &velero));
        assert_eq!(found, ["--default-volumes-to-fs-backup=true", "--default-backup-ttl=48h"]);
        let found = extra_arguments(&installed("--default-volumes-to-fs-backup --default-snapshot-move-data", &velero));
        let expected =
            ["--default-volumes-to-fs-backup=true", "--default-backup-ttl=48h", "--default-snapshot-move-data"];
        assert_eq!(found, expected, "each once");
        assert_eq!(extra_arguments(&installed("--use-node-agent=false", &velero)), ["--default-backup-ttl=48h"]);
    }

    #[test]
    fn an_existing_install_command_of_velero_makes_the_same_pods() {
        let command = "--provider aws --bucket b --no-secret --plugins velero/velero-plugin-for-aws:v1 \
            --velero-pod-cpu-limit 1 --velero-pod-mem-request 64Mi --node-agent-pod-mem-limit 1Gi --features=EnableCSI \
            --pod-annotations a=b --service-account-name velero --snapshot-location-config region=eu \
            --backup-location-config region=eu --use-node-agent --wait --concurrent-backups=2 --item-block-worker-count 4 \
            --server-priority-class-name high --use-volume-snapshots=true --prefix p";
        let deployment = installed(&command.replace('\\', " "), &[]);
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(pod["serviceAccountName"], "velero");
        assert_eq!(pod["priorityClassName"], "high");
        assert_eq!(pod["initContainers"][0]["image"], "velero/velero-plugin-for-aws:v1");
        let resources = json!({ "requests": { "cpu": "100m", "memory": "64Mi" }, "limits": { "cpu": "1" } });
        assert_eq!(pod["containers"][0]["resources"], resources);
        let expected = ["--concurrency=2", "--features=EnableCSI", "--item-block-worker-count=4"];
        assert_eq!(extra_arguments(&deployment), expected);
        let options = install(&command.replace('\\', " "));
        let all = all("velero", &options).unwrap();
        let named = |kind: &str| all.iter().find(|object| object["kind"] == kind);
        assert_eq!(
            named("VolumeSnapshotLocation").unwrap()["spec"],
            json!({ "provider": "aws", "config": { "region": "eu" } })
        );
        assert!(named("ServiceAccount").is_none(), "it exists");
        let policies: Vec<_> = all.iter().filter(|object| object["kind"] == "ValidatingAdmissionPolicy").collect();
        let names: Vec<_> = policies.iter().map(|policy| &policy["metadata"]["name"]).collect();
        assert_eq!(names, ["plimsoll-blueprints-velero"], "that of agents would bind the server to one node");
        assert_eq!(named("RoleBinding").unwrap()["subjects"][0]["name"], "velero");
        let limits = &named("DaemonSet").unwrap()["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"];
        assert_eq!(*limits, json!({ "memory": "1Gi" }));
    }

    #[test]
    fn what_velero_installs_and_plimsoll_does_not_support_is_refused_by_name() {
        for (flag, why) in [("--use-node-agent-windows", "Windows"), ("--node-agent-disable-host-path", "kubelet")] {
            let error = Arguments::try_parse_from(["plimsoll", "install", flag]).unwrap_err().to_string();
            assert!(error.contains(flag) && error.contains(why), "{error}");
        }
    }

    #[test]
    fn an_uploader_that_needs_a_program_is_announced_with_it() {
        for uploader in [Uploader::Auto, Uploader::Restic, Uploader::Kopia] {
            assert!(uploader_advice(uploader).contains("must be in the image"), "{uploader:?}");
        }
        assert!(!uploader_advice(Uploader::BuiltIn).contains("in the image"));
        assert!(needs_kopia("registry.example/plimsoll:1").contains("is in image registry.example/plimsoll:1, "));
    }
}
