//! `plimsoll install`: everything that a cluster needs, applied on the server's side, so that doing it again is an upgrade.

mod objects;
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
use crate::picture::Picture;
use crate::{connect, output};

pub use self::objects::{PLUGINS, PLUGINS_DIRECTORY, SERVER_CONTAINER, all, object, removable};

/// Whose fields these are, for the API server.
const MANAGER: &str = "plimsoll-install";

/// The argument of servers, Velero's and ours, that has all volumes backed up by default.
const ALL_VOLUMES: &str = "--default-volumes-to-fs-backup";

/// What becomes of volumes where Velero's server had that argument and ours does not.
const FEWER_VOLUMES: &str = "Velero's server here backs up the files of all volumes (--default-volumes-to-fs-backup). This one \
    does not, unless a backup says so: install it with the same flag.";

/// Installs, or prints what would be installed.
pub async fn run(global: &Global, options: &Install) -> anyhow::Result<Outcome> {
    let all = all(&global.namespace, options)?;
    if options.dry_run {
        return print(&all, options.output);
    }
    let client = connect::client(global).await?;
    let operation = Operation::new("installing", Clock::system());
    let root = operation.root();
    let applied = apply_all(&client, &all, &root);
    Picture::on_terminal_only().of(&operation, applied).await?;
    output::line(format!("{} objects are applied in namespace {}", all.len(), global.namespace));
    if !options.crds_only {
        advice(options).into_iter().for_each(output::line);
        if options.uploader_type == Uploader::Auto && has_kopia_repositories(&client, &global.namespace).await {
            output::line(needs_kopia(&options.image));
        }
        if !options.default_volumes_to_fs_backup && backs_up_all_volumes(&client, &global.namespace).await {
            output::line(FEWER_VOLUMES);
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

/// How messages call it.
pub fn name_of(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (kind, name) = (text("/kind"), text("/metadata/name"));
    match text("/metadata/namespace") {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

/// Access to an object, by what it says of itself.
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

/// A definition that was just applied is not served at once: what is of its kind is tried again for a while.
async fn apply(client: &Client, object: &Value, task: &Task) -> kube::Result<()> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let parameters = PatchParams::apply(MANAGER).force();
    let mut tries = 0_u32;
    loop {
        match api_of(client, object).patch(name, &parameters, &Patch::Apply(object)).await {
            Err(kube::Error::Api(status)) if status.code == 404 && tries < 120 => {
                let _waiting = task.wait(format!("waiting for the API server to know {}", name_of(object)));
                tokio::time::sleep(std::time::Duration::from_millis(250)).await;
                tries += 1;
            }
            answer => return answer.map(|_| ()),
        }
    }
}

/// What the choices mean, for whoever reads it later.
fn advice(options: &Install) -> Vec<String> {
    let mut lines = vec![mover_means(options.uploader_type).to_owned()];
    if !options.use_node_agent {
        lines.push("No agents run: volume data is not backed up, and backups that ask for it end with errors.".into());
    }
    if options.no_default_backup_location || options.provider.is_none() {
        lines.push("There is no backup location yet: `plimsoll backup-location create` makes one.".into());
    }
    lines.push(
        "The Secret velero-repo-credentials, made with the first volume, opens every backup of volumes: keep a copy elsewhere."
            .into(),
    );
    lines
}

/// What choosing a mover means.
fn mover_means(uploader: Uploader) -> &'static str {
    match uploader {
        Uploader::Auto => {
            "Volume data: kopia where this cluster has kopia repositories (Velero's), so that there is a way back to Velero: \
             the program must be in the image then; the built-in mover (restic's format) otherwise. --uploader-type decides \
             it for good."
        }
        Uploader::BuiltIn => {
            "Volume data: the built-in mover. It needs no other program and keeps everything; its repositories are restic's, \
             which restic reads and Velero from 1.17 on does not write."
        }
        Uploader::Restic => {
            "Volume data: the program restic, which must be in the image. Velero from 1.17 on does not write its repositories."
        }
        Uploader::Kopia => {
            "Volume data: the program kopia, which must be in the image. Velero can restore it, and we restore Velero's; hard \
             links and extended attributes are not kept."
        }
    }
}

/// Whether the automatic choice takes kopia here. Best effort: the advice has said what that means.
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
        "There are kopia repositories here: unless kopia is in image {image}, backups of volumes fail with \
         MoverProgramMissing. --uploader-type=built-in does without it."
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_velero_that_backs_up_all_volumes_is_known_by_its_arguments() {
        let told = |arguments: &[&str]| {
            let pod = json!({ "containers": [{ "name": "velero", "args": arguments }] });
            let deployment = json!({ "spec": { "selector": {}, "template": { "spec": pod } } });
            is_told_to_back_up_all_volumes(&serde_json::from_value(deployment).unwrap())
        };
        assert!(told(&["server", "--default-volumes-to-fs-backup=true"]));
        assert!(told(&["server", "--default-volumes-to-fs-backup", "--uploader-type=kopia"]));
        assert!(!told(&["server", "--default-volumes-to-fs-backup=false"]) && !told(&["server"]));
    }

    #[test]
    fn whoever_may_need_a_program_reads_that_it_must_be_in_the_image() {
        for uploader in [Uploader::Auto, Uploader::Restic, Uploader::Kopia] {
            assert!(mover_means(uploader).contains("must be in the image"), "{uploader:?}");
        }
        assert!(!mover_means(Uploader::BuiltIn).contains("in the image"));
        assert!(needs_kopia("registry.example/plimsoll:1").contains("is in image registry.example/plimsoll:1, "));
    }
}
