//! Functions that back up and restore volume data with restic: in the container of the application, or in a pod that mounts its
//! claims.

use std::collections::BTreeMap;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use rand::Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::backup_path::{ContainerPath, backup_path};
use super::call::Call;
use super::commands::merge_outputs;
use super::location_delete::profile;
use super::phase_meters::{Direction, TransferProgress};
use super::pods::{CONTAINER, PodHandle, PodRequest};
use super::restic::{BackupSummary, RepositoryError, Restic, Snapshot, size};
use crate::Error;
use crate::params::claims_of;
use crate::percent::Step;
use crate::results::Outputs;

/// The version of the functions in their outputs.
const VERSION: &str = "v0.0.0";

/// An entry of `BackupAllInfo`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BackupInfo {
    pod_name: String,
    #[serde(rename = "BackupID")]
    backup_id: String,
    backup_tag: String,
}

pub(super) fn outputs(fields: Value) -> Outputs {
    match fields {
        Value::Object(fields) => fields,
        _ => Outputs::new(),
    }
}

/// A random tag, in Kanister's format.
pub fn random_tag() -> String {
    let mut random = rand::rng();
    (0..10).map(|_| char::from(random.random_range(b'a'..=b'z'))).collect()
}

/// Backs up a path with restic; returns the snapshot and its tag.
pub async fn backup_with_restic(
    call: &Call,
    restic: &Restic<'_>,
    path: &str,
    mover: &str,
) -> Result<(BackupSummary, String), Error> {
    restic.ensure().await?;
    let tag = random_tag();
    call.meters.report(mover, TransferProgress { direction: Direction::Upload, ..TransferProgress::default() });
    call.host.kill_point("phase.backup.before");
    let saved = restic.backup(path, &tag, mover).await?;
    call.host.kill_point("phase.backup.after");
    call.log(&format!("snapshot {} saved: {} files, {}", saved.id, saved.files, size(saved.size)));
    Ok((saved, tag))
}

/// Backs up a path of a running container.
pub async fn backup_data(call: &Call) -> Result<Outputs, Error> {
    let arguments = &call.arguments;
    let (namespace, pod, container) =
        (arguments.text("namespace")?, arguments.text("pod")?, arguments.text("container")?);
    let path = arguments.text("includePath")?;
    let source = ContainerPath { namespace: &namespace, pod: &pod, container: &container, path: &path };
    let (saved, tag) = backup_path(call, &source, &arguments.text("backupArtifactPrefix")?).await?;
    Ok(outputs(json!({
        "backupID": saved.id, "backupTag": tag, "fileCount": saved.files.to_string(), "size": size(saved.size),
        "phySize": size(saved.added), "version": VERSION,
    })))
}

/// The pods in the arguments, or all pods of the workload.
fn pods(call: &Call) -> Result<Vec<String>, Error> {
    if call.arguments.has("pods") {
        return call.arguments.words("pods");
    }
    let pods = call.params.workload.as_ref().map(|workload| workload.pods.clone()).unwrap_or_default();
    if pods.is_empty() {
        return Err(Error::argument("pods", "missing, and the object of the action has no running pods"));
    }
    Ok(pods)
}

/// Backs up a path of a container in several pods.
pub async fn backup_data_all(call: &Call) -> Result<Outputs, Error> {
    let arguments = &call.arguments;
    let (namespace, container) = (arguments.text("namespace")?, arguments.text("container")?);
    let (path, prefix) = (arguments.text("includePath")?, arguments.text("backupArtifactPrefix")?);
    let (namespace, container, path, prefix) = (&namespace, &container, &path, &prefix);
    let one = |pod: String| async move {
        let below = format!("{}/{pod}", prefix.trim_end_matches('/'));
        let (saved, tag) = backup_path(call, &ContainerPath { namespace, pod: &pod, container, path }, &below).await?;
        let info = BackupInfo { pod_name: pod.clone(), backup_id: saved.id, backup_tag: tag };
        Ok(outputs(json!({ pod: info })))
    };
    let infos = merge_outputs(join_all(pods(call)?.into_iter().map(one)).await)?;
    Ok(outputs(json!({ "BackupAllInfo": Value::Object(infos).to_string(), "version": VERSION })))
}

fn image(call: &Call) -> Result<String, Error> {
    let default = || call.pod_settings.environment.tools_image.clone();
    Ok(call.arguments.optional_text("image")?.unwrap_or_else(default))
}

/// Creates an idle pod for commands.
pub(super) async fn idle(
    call: &Call,
    prefix: &'static str,
    namespace: String,
    claims: &BTreeMap<String, String>,
    part: &str,
) -> Result<PodHandle, Error> {
    let mut request = PodRequest::idle(prefix, namespace, &image(call)?, claims);
    request.part = part.to_owned();
    call.start_pod(&request, true).await
}

fn restic_in<'a>(call: &'a Call, handle: &PodHandle, prefix: &str) -> Result<Restic<'a>, Error> {
    Restic::new(call, (&handle.namespace, &handle.name, Some(CONTAINER)), prefix)
}

/// Backs up a whole claim.
pub async fn copy_volume_data(call: &Call) -> Result<Outputs, Error> {
    let arguments = &call.arguments;
    let (namespace, volume) = (arguments.text("namespace")?, arguments.text("volume")?);
    let mount = arguments.optional_text("mountPath")?.unwrap_or_else(|| format!("/mnt/vol_data/{volume}"));
    let prefix = profile(call)?.with_bucket(&arguments.text("dataArtifactPrefix")?);
    let claims = [(volume.clone(), mount.clone())].into();
    let handle = idle(call, "copy-vol-data-", namespace, &claims, "").await?;
    let (saved, tag) = backup_with_restic(call, &restic_in(call, &handle, &prefix)?, &mount, &volume).await?;
    Ok(outputs(json!({
        "backupID": saved.id, "backupRoot": mount, "backupArtifactLocation": prefix, "backupTag": tag,
        "fileCount": saved.files.to_string(), "size": size(saved.size), "phySize": size(saved.added), "version": VERSION,
    })))
}

/// The claims to restore to: those of a pod, which may no longer exist, or those in the arguments.
pub(super) async fn claims(call: &Call, namespace: &str, pod: Option<&str>) -> Result<BTreeMap<String, String>, Error> {
    let Some(pod) = pod else { return call.arguments.map("volumes") };
    let known = call.params.workload.as_ref().and_then(|workload| workload.persistent_volume_claims.get(pod));
    if let Some(known) = known.filter(|known| !known.is_empty()) {
        return Ok(known.clone());
    }
    let api: Api<Pod> = Api::namespaced(call.client.clone(), namespace);
    let found = api.get_opt(pod).await.map_err(|e| Error::api(format!("read pod {namespace}/{pod}"), e))?;
    let claims = found.as_ref().map(claims_of).unwrap_or_default();
    if claims.is_empty() {
        return Err(Error::argument("pod", format!("{namespace}/{pod} has no claims to restore to")));
    }
    Ok(claims)
}

/// The source and target of a restore.
struct RestoreRequest<'a> {
    namespace: &'a str,
    prefix: &'a str,
    claims: BTreeMap<String, String>,
    selection: Selection,
    part: &'a str,
}

enum Selection {
    Id(String),
    Tag(String),
}

async fn restore(call: &Call, request: RestoreRequest<'_>) -> Result<Outputs, Error> {
    let target = call.arguments.optional_text("restorePath")?.unwrap_or_else(|| "/".into());
    let handle = idle(call, "restore-data-", request.namespace.to_owned(), &request.claims, request.part).await?;
    let restic = restic_in(call, &handle, request.prefix)?;
    let found = match &request.selection {
        Selection::Id(id) => restic.snapshots(&[id]).await?,
        Selection::Tag(tag) => restic.snapshots(&["--tag", tag, "--latest", "1"]).await?,
    };
    let snapshot = found.into_iter().next_back();
    let snapshot = snapshot.ok_or_else(|| Error::Missing(format!("no matching snapshot in {}", request.prefix)))?;
    let mover = if request.part.is_empty() { "restore" } else { request.part };
    let (total, _) = restic.stats(&snapshot.id, "restore-size").await?;
    call.meters.report(
        mover,
        TransferProgress { direction: Direction::Download, total: Some(total), ..TransferProgress::default() },
    );
    call.host.kill_point("phase.restore.before");
    match call.arguments.optional_text("backupPath")? {
        Some(inner) => restic.restore(&format!("{}:{inner}", snapshot.id), &[], &target, mover).await?,
        None => restore_paths(&restic, &snapshot, &target, mover).await?,
    }
    call.host.kill_point("phase.restore.after");
    let done = TransferProgress {
        direction: Direction::Download,
        read: total,
        total: Some(total),
        sent: Some(total),
        seconds_left: None,
    };
    call.meters.report(mover, done);
    call.log(&format!("snapshot {} restored: {}", snapshot.id, size(total)));
    Ok(Outputs::new())
}

/// Restores each path into its directory, where restic supports it: parent directories belong to the image.
async fn restore_paths(restic: &Restic<'_>, snapshot: &Snapshot, target: &str, mover: &str) -> Result<(), Error> {
    let supports_subfolders = restic.supports_subfolders().await?;
    for path in &snapshot.paths {
        let into = format!("{}/{}", target.trim_end_matches('/'), path.trim_start_matches('/'));
        let folder = format!("{}:{path}", snapshot.id);
        // Fails if the path is a single file.
        if supports_subfolders && restic.restore(&folder, &[], &into, mover).await.is_ok() {
            continue;
        }
        restic.restore(&snapshot.id, std::slice::from_ref(path), target, mover).await?;
    }
    Ok(())
}

/// Restores to the claims of a pod.
pub async fn restore_data(call: &Call) -> Result<Outputs, Error> {
    let arguments = &call.arguments;
    let (namespace, prefix) = (arguments.text("namespace")?, arguments.text("backupArtifactPrefix")?);
    let pod = arguments.optional_text("pod")?;
    let selection = match (arguments.optional_text("backupIdentifier")?, arguments.optional_text("backupTag")?) {
        (Some(id), None) => Selection::Id(id),
        (None, Some(tag)) => Selection::Tag(tag),
        _ => {
            return Err(Error::argument(
                "backupIdentifier",
                "exactly one of backupIdentifier and backupTag is required",
            ));
        }
    };
    if pod.is_some() == arguments.has("volumes") {
        return Err(Error::argument("pod", "exactly one of pod and volumes is required"));
    }
    let claims = claims(call, &namespace, pod.as_deref()).await?;
    restore(call, RestoreRequest { namespace: &namespace, prefix: &prefix, claims, selection, part: "" }).await
}

fn backup_infos(call: &Call) -> Result<BTreeMap<String, BackupInfo>, Error> {
    let text = call.arguments.text("backupInfo")?;
    serde_json::from_str(&text)
        .map_err(|error| Error::argument("backupInfo", format!("not an output of BackupDataAll: {error}")))
}

/// Restores to the claims of several pods.
pub async fn restore_data_all(call: &Call) -> Result<Outputs, Error> {
    let arguments = &call.arguments;
    let (namespace, prefix) = (arguments.text("namespace")?, arguments.text("backupArtifactPrefix")?);
    let infos = backup_infos(call)?;
    let named = if arguments.has("pods") { Some(arguments.words("pods")?) } else { None };
    let infos: Vec<_> =
        infos.into_values().filter(|info| named.as_ref().is_none_or(|named| named.contains(&info.pod_name))).collect();
    let (namespace, prefix) = (&namespace, &prefix);
    let one = |info: BackupInfo| async move {
        let below = format!("{}/{}", prefix.trim_end_matches('/'), info.pod_name);
        let claims = claims(call, namespace, Some(&info.pod_name)).await?;
        let selection = Selection::Id(info.backup_id);
        restore(call, RestoreRequest { namespace, prefix: &below, claims, selection, part: &info.pod_name }).await
    };
    merge_outputs(join_all(infos.into_iter().map(one)).await)
}

async fn forget(call: &Call, restic: &Restic<'_>, id: Option<String>, tag: Option<String>) -> Result<(), Error> {
    let ids = match (id, tag) {
        (Some(id), _) => vec![id],
        (None, Some(tag)) => {
            restic.snapshots(&["--tag", &tag]).await?.into_iter().map(|snapshot| snapshot.id).collect()
        }
        (None, None) => {
            return Err(Error::argument("backupID", "exactly one of backupID and backupTag is required"));
        }
    };
    call.host.kill_point("phase.forget.before");
    for id in ids {
        restic.forget(&id).await?;
    }
    call.host.kill_point("phase.forget.after");
    Ok(())
}

async fn reclaim(call: &Call, restic: &Restic<'_>) -> Result<u64, Error> {
    if call.arguments.flag("reclaimSpace", false)? { restic.prune().await } else { Ok(0) }
}

/// Deletes a backup.
pub async fn delete_data(call: &Call) -> Result<Outputs, Error> {
    let arguments = &call.arguments;
    let prefix = arguments.text("backupArtifactPrefix")?;
    let handle = idle(call, "delete-data-", arguments.text("namespace")?, &BTreeMap::new(), "").await?;
    call.meters.reach(Step::Execution);
    let restic = restic_in(call, &handle, &prefix)?;
    forget(call, &restic, arguments.optional_text("backupID")?, arguments.optional_text("backupTag")?).await?;
    let freed = reclaim(call, &restic).await?;
    Ok(outputs(json!({ "spaceFreed": format!("{freed} B") })))
}

/// Deletes the backups of several pods.
pub async fn delete_data_all(call: &Call) -> Result<Outputs, Error> {
    let arguments = &call.arguments;
    let prefix = arguments.text("backupArtifactPrefix")?;
    let infos = backup_infos(call)?;
    let handle = idle(call, "delete-data-", arguments.text("namespace")?, &BTreeMap::new(), "").await?;
    call.meters.reach(Step::Execution);
    let mut freed = 0;
    for info in infos.into_values() {
        let restic = restic_in(call, &handle, &format!("{}/{}", prefix.trim_end_matches('/'), info.pod_name))?;
        forget(call, &restic, Some(info.backup_id), None).await?;
        freed += reclaim(call, &restic).await?;
    }
    Ok(outputs(json!({ "spaceFreed": format!("{freed} B") })))
}

/// Size of a backup.
pub async fn backup_data_stats(call: &Call) -> Result<Outputs, Error> {
    let arguments = &call.arguments;
    let mode = arguments.optional_text("statsMode")?.unwrap_or_else(|| "restore-size".into());
    let prefix = arguments.text("backupArtifactPrefix")?;
    let handle = idle(call, "backup-stats-", arguments.text("namespace")?, &BTreeMap::new(), "").await?;
    call.meters.reach(Step::Execution);
    let (bytes, files) = restic_in(call, &handle, &prefix)?.stats(&arguments.text("backupID")?, &mode).await?;
    Ok(outputs(json!({ "mode": mode, "fileCount": files.to_string(), "size": size(bytes), "version": VERSION })))
}

/// Checks a repository.
pub async fn check_repository(call: &Call) -> Result<Outputs, Error> {
    let prefix = call.arguments.text("backupArtifactPrefix")?;
    let handle = idle(call, "check-repository-", call.server_namespace.clone(), &BTreeMap::new(), "").await?;
    call.meters.reach(Step::Execution);
    let repository_error = restic_in(call, &handle, &prefix)?.repository_error().await?;
    let is = |request: RepositoryError| (repository_error == Some(request)).to_string();
    Ok(outputs(
        json!({ "passwordIncorrect": is(RepositoryError::WrongPassword), "repoUnavailable": is(RepositoryError::NotFound), "version": VERSION }),
    ))
}
