//! `plimsoll install`: everything that a cluster needs, applied on the server's side, so that doing it again is an upgrade.

mod objects;
mod protection;
mod ready;

use anyhow::Context;
use k8s_openapi::api::apps::v1::Deployment;
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

pub use self::objects::{PLUGINS, PLUGINS_DIRECTORY, SERVER_CONTAINER, all, object, removable};

/// The field manager of server-side apply.
const MANAGER: &str = "plimsoll-install";

/// The argument of servers, Velero's and ours, that has all volumes backed up by default.
const ALL_VOLUMES: &str = "--default-volumes-to-fs-backup";

/// Printed where the Velero server has that argument and this one does not.
const FS_BACKUP_DEFAULT_WARNING: &str = "The Velero server here backs up the files of all volumes (--default-volumes-to-fs-backup). This \
    server does not, unless a backup requests it; install it with the same flag.";

/// Printed where the API server is too old for the policy that binds agents to their nodes.
const NO_ADMISSION_POLICIES: &str = "This API server has no ValidatingAdmissionPolicy (Kubernetes 1.30 and later): the agents are \
    not bound to the transfers of their own nodes.";

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
    let mut all = all(&global.namespace, options)?;
    if options.dry_run {
        return print(&all, options.output);
    }
    let client = connect::client(global).await?;
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
        if !options.default_volumes_to_fs_backup && backs_up_all_volumes(&client, &global.namespace).await {
            output::line(FS_BACKUP_DEFAULT_WARNING);
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

/// Whether Velero's server here, running or scaled down, has all volumes backed up by default.
async fn backs_up_all_volumes(client: &Client, namespace: &str) -> bool {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let velero = deployments.get_opt("velero").await;
    velero.ok().flatten().is_some_and(|velero| is_told_to_back_up_all_volumes(&velero))
}

fn is_told_to_back_up_all_volumes(deployment: &Deployment) -> bool {
    let pod = deployment.spec.template.spec.as_ref();
    let containers = pod.into_iter().flat_map(|pod| &pod.containers);
    let mut arguments = containers.flat_map(|container| container.args.iter().flatten());
    arguments.any(|argument| *argument == ALL_VOLUMES || *argument == format!("{ALL_VOLUMES}=true"))
}

fn needs_kopia(image: &str) -> String {
    format!(
        "This cluster has kopia repositories: unless kopia is in image {image}, volume backups fail with \
         MoverProgramMissing. --uploader-type=built-in needs no other program."
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_velero_that_backs_up_all_volumes_is_recognized_by_its_arguments() {
        let is_enabled = |arguments: &[&str]| {
            let pod = json!({ "containers": [{ "name": "velero", "args": arguments }] });
            let deployment = json!({ "spec": { "selector": {}, "template": { "spec": pod } } });
            is_told_to_back_up_all_volumes(&serde_json::from_value(deployment).unwrap())
        };
        assert!(is_enabled(&["server", "--default-volumes-to-fs-backup=true"]));
        assert!(is_enabled(&["server", "--default-volumes-to-fs-backup", "--uploader-type=kopia"]));
        assert!(!is_enabled(&["server", "--default-volumes-to-fs-backup=false"]) && !is_enabled(&["server"]));
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
