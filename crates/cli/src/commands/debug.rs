//! `plimsoll debug`: a bundle for a bug report. It contains no Secret, and no value of an environment variable.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Context;
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, ListParams, LogParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use plimsoll_progress::{Clock, Operation, Task};
use serde_json::{Value, json};

use super::version;
use crate::args::Global;
use crate::args::client::Debug;
use crate::exit::Outcome;
use crate::progress_display::ProgressDisplay;
use crate::{connect, output};

/// The kinds that are listed in the namespace: group, version, kind.
const KINDS: [(&str, &str, &str); 19] = [
    ("velero.io", "v1", "Backup"),
    ("velero.io", "v1", "Restore"),
    ("velero.io", "v1", "Schedule"),
    ("velero.io", "v1", "BackupStorageLocation"),
    ("velero.io", "v1", "VolumeSnapshotLocation"),
    ("velero.io", "v1", "BackupRepository"),
    ("velero.io", "v1", "PodVolumeBackup"),
    ("velero.io", "v1", "PodVolumeRestore"),
    ("velero.io", "v1", "DeleteBackupRequest"),
    ("velero.io", "v1", "VolumePluginBackup"),
    ("velero.io", "v1", "VolumePluginRestore"),
    ("velero.io", "v2alpha1", "DataUpload"),
    ("velero.io", "v2alpha1", "DataDownload"),
    ("plimsoll.dev", "v1alpha1", "Operation"),
    ("cr.kanister.io", "v1alpha1", "ActionSet"),
    ("coordination.k8s.io", "v1", "Lease"),
    ("apps", "v1", "Deployment"),
    ("apps", "v1", "DaemonSet"),
    ("", "v1", "Event"),
];

/// Kinds whose objects belong to a Backup or a Restore.
const TRANSFERS: [&str; 4] = ["PodVolumeBackup", "PodVolumeRestore", "DataUpload", "DataDownload"];

/// Writes the bundle.
pub async fn run(global: &Global, options: &Debug) -> anyhow::Result<Outcome> {
    let client = connect::client(global).await?;
    let path = options.output.clone().unwrap_or_else(default_path);
    let file = File::create_new(&path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut bundle =
        Bundle { archive: tar::Builder::new(GzEncoder::new(file, Compression::default())), problems: Vec::new() };
    let operation = Operation::new("collecting", Clock::system());
    let root = operation.root();
    let collecting = Box::pin(bundle.collect(&client, global, options, &root));
    ProgressDisplay::on_terminal_only().show_while(&operation, collecting).await?;
    bundle.finish(&path)?;
    output::line(format!("{} written. Secrets and values of environment variables are not in it.", path.display()));
    Ok(Outcome::Success)
}

fn default_path() -> PathBuf {
    PathBuf::from(format!("bundle-{}.tar.gz", Timestamp::now().strftime("%Y-%m-%d-%H-%M-%S")))
}

struct Bundle {
    archive: tar::Builder<GzEncoder<File>>,
    /// Objects that could not be read.
    problems: Vec<String>,
}

impl Bundle {
    async fn collect(&mut self, client: &Client, global: &Global, options: &Debug, task: &Task) -> anyhow::Result<()> {
        let namespace = &global.namespace;
        self.add("version.txt", version_text(client, namespace).await.as_bytes())?;
        for (group, version, kind) in KINDS {
            task.say(format!("reading {kind}"));
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
            match api.list(&ListParams::default()).await {
                Ok(all) => {
                    let chosen = all.items.into_iter().filter(|object| is_chosen(kind, object, options));
                    let objects: Vec<Value> = chosen.map(|object| without_secrets(json!(object))).collect();
                    self.add(&format!("objects/{}.yaml", resource.plural), yaml(&objects)?.as_bytes())?;
                }
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => self.problems.push(format!("{}: {error}", resource.plural)),
            }
        }
        self.logs(client, namespace, options.lines, task).await
    }

    /// The logs of the containers of the namespace.
    async fn logs(&mut self, client: &Client, namespace: &str, lines: i64, task: &Task) -> anyhow::Result<()> {
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let all = pods.list(&ListParams::default()).await.context("cannot list pods")?;
        for pod in all.items {
            let name = pod.name_any();
            task.say(format!("reading the log of {name}"));
            let object = yaml(&[without_secrets(json!(pod))])?;
            self.add(&format!("pods/{name}.yaml"), object.as_bytes())?;
            for container in pod.spec.into_iter().flat_map(|spec| spec.containers) {
                for previous in [false, true] {
                    let parameters = LogParams {
                        container: Some(container.name.clone()),
                        tail_lines: Some(lines),
                        previous,
                        ..LogParams::default()
                    };
                    let suffix = if previous { "-previous" } else { "" };
                    match pods.logs(&name, &parameters).await {
                        Ok(log) => self.add(&format!("logs/{name}-{}{suffix}.log", container.name), log.as_bytes())?,
                        // Most containers have not restarted.
                        Err(_) if previous => {}
                        Err(error) => self.problems.push(format!("log of {name}, {}: {error}", container.name)),
                    }
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, name: &str, content: &[u8]) -> anyhow::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        self.archive.append_data(&mut header, name, content).context("cannot write the bundle")
    }

    fn finish(mut self, path: &Path) -> anyhow::Result<()> {
        if !self.problems.is_empty() {
            let text = std::mem::take(&mut self.problems).join("\n");
            self.add("not-readable.txt", text.as_bytes())?;
        }
        let finished = self.archive.into_inner().and_then(GzEncoder::finish);
        finished.map(drop).with_context(|| format!("cannot write {}", path.display()))
    }
}

async fn version_text(client: &Client, namespace: &str) -> String {
    let own = env!("CARGO_PKG_VERSION");
    let cluster = client.apiserver_version().await.map_or_else(|error| error.to_string(), |found| found.git_version);
    let server = match version::server(client, namespace, std::time::Duration::from_secs(5)).await {
        Ok(status) => status.server_version.unwrap_or_default(),
        Err(error) => format!("{error:#}"),
    };
    format!("plimsoll {own}\nKubernetes {cluster}\nserver {server}\nnamespace {namespace}\n")
}

/// Transfers are those of the Backup and the Restore, if any is named.
fn is_chosen(kind: &str, object: &DynamicObject, options: &Debug) -> bool {
    if !TRANSFERS.contains(&kind) || (options.backup.is_none() && options.restore.is_none()) {
        return true;
    }
    let label = |name: &str| object.labels().get(name).map(String::as_str);
    let is = |wanted: &Option<String>, name: &str| {
        wanted.as_deref().is_some_and(|wanted| label(name) == Some(&*plimsoll_api::labels::valid_name(wanted)))
    };
    is(&options.backup, plimsoll_api::labels::BACKUP_NAME) || is(&options.restore, plimsoll_api::labels::RESTORE_NAME)
}

/// An object without what may be secret: values of environment variables, and the copy that `kubectl apply` keeps.
fn without_secrets(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
    redact_environments(&mut object);
    object
}

fn redact_environments(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                match field.as_array_mut().filter(|_| name == "env") {
                    Some(variables) => variables.iter_mut().for_each(redact_variable),
                    None => redact_environments(field),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact_environments),
        _ => {}
    }
}

fn redact_variable(variable: &mut Value) {
    if variable.get("value").is_some() {
        variable["value"] = json!("(not shown)");
    }
}

fn yaml(objects: &[Value]) -> anyhow::Result<String> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(object).context("cannot write an object as YAML")?);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_environment_variables_are_not_shown() {
        let container = json!({ "name": "velero", "args": ["server"], "env": [
            { "name": "AWS_SECRET_ACCESS_KEY", "value": "s3cr3t" },
            { "name": "POD_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
        ] });
        let applied = json!({ "kubectl.kubernetes.io/last-applied-configuration": "s3cr3t", "note": "x" });
        let object = without_secrets(json!({ "metadata": { "annotations": applied, "managedFields": [] },
            "spec": { "template": { "spec": { "containers": [container], "initContainers": [container] } } } }));
        let text = object.to_string();
        assert!(!text.contains("s3cr3t") && text.contains("AWS_SECRET_ACCESS_KEY"), "{text}");
        assert!(text.contains("metadata.name") && text.contains("server") && text.contains("note"), "{text}");
    }

    #[test]
    fn no_kind_that_holds_secrets_is_collected() {
        assert!(KINDS.iter().all(|(_, _, kind)| !["Secret", "ConfigMap", "Profile"].contains(kind)));
    }

    #[test]
    fn only_the_transfers_of_the_named_operation_are_chosen() {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("velero.io", "v1", "PodVolumeBackup"));
        let transfer = DynamicObject::new("t", &resource);
        let mut own = transfer.clone();
        own.metadata.labels = Some([("velero.io/backup-name".to_owned(), "nightly".to_owned())].into());
        let options =
            |backup: Option<&str>| Debug { backup: backup.map(str::to_owned), restore: None, output: None, lines: 1 };
        assert!(is_chosen("PodVolumeBackup", &own, &options(Some("nightly"))));
        assert!(!is_chosen("PodVolumeBackup", &transfer, &options(Some("nightly"))));
        assert!(is_chosen("PodVolumeBackup", &transfer, &options(None)));
        assert!(is_chosen("Backup", &transfer, &options(Some("nightly"))));
    }
}
