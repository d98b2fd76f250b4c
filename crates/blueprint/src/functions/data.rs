//! Functions that move the data of volumes with restic: in the application's own container, or in a pod that mounts its claims.

use std::collections::BTreeMap;

use futures::future::{BoxFuture, join_all};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use rand::Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::call::{Again, Call, Direction, Function, Moved};
use super::location_delete::place;
use super::pods::{CONTAINER, Made, Wanted};
use super::restic::{Restic, Saved, Snapshot, Trouble, size};
use super::save::{self, Source};
use super::tasks::together;
use crate::Error;
use crate::board::Outputs;
use crate::params::claims_of;
use crate::percent::Step;

/// The version of the functions, as their output names it.
const VERSION: &str = "v0.0.0";
/// An image with restic, where a blueprint names none.
const TOOLS_IMAGE: &str = "ghcr.io/kanisterio/kanister-tools:0.119.0";

/// A path of a running container.
pub struct BackupData;
/// A path of a container of several pods.
pub struct BackupDataAll;
/// How large a backup is.
pub struct BackupDataStats;
/// Into the claims of a pod.
pub struct RestoreData;
/// Into the claims of several pods.
pub struct RestoreDataAll;
/// The whole of a claim.
pub struct CopyVolumeData;
/// Forgets a backup.
pub struct DeleteData;
/// Forgets the backups of several pods.
pub struct DeleteDataAll;
/// Whether a repository can be used.
pub struct CheckRepository;

/// Every one of them may be run again: a second snapshot, a second restore of the same files.
macro_rules! functions {
    ($($name:ident => $run:ident,)*) => {$(
        impl Function for $name {
            fn again(&self) -> Again {
                Again::Repeat
            }

            fn run<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Outputs, Error>> {
                Box::pin($run(call))
            }
        }
    )*};
}

functions! {
    BackupData => backup_data,
    BackupDataAll => backup_data_all,
    BackupDataStats => backup_data_stats,
    RestoreData => restore_data,
    RestoreDataAll => restore_data_all,
    CopyVolumeData => copy_volume_data,
    DeleteData => delete_data,
    DeleteDataAll => delete_data_all,
    CheckRepository => check_repository,
}

/// One pod's part of `BackupAllInfo`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BackupInfo {
    pod_name: String,
    #[serde(rename = "BackupID")]
    backup_id: String,
    backup_tag: String,
}

fn outputs(fields: Value) -> Outputs {
    match fields {
        Value::Object(fields) => fields,
        _ => Outputs::new(),
    }
}

/// A tag as Kanister makes them.
pub fn fresh_tag() -> String {
    let mut random = rand::rng();
    (0..10).map(|_| char::from(random.random_range(b'a'..=b'z'))).collect()
}

/// Backs up a path with restic: the snapshot and its tag.
pub async fn with_restic(call: &Call, restic: &Restic<'_>, path: &str, mover: &str) -> Result<(Saved, String), Error> {
    restic.ensure().await?;
    let tag = fresh_tag();
    call.gauge.moved(mover, Moved { direction: Direction::Up, ..Moved::default() });
    call.host.point("phase.backup.before");
    let saved = restic.backup(path, &tag, mover).await?;
    call.host.point("phase.backup.after");
    call.log(&format!("snapshot {} saved: {} files, {}", saved.id, saved.files, size(saved.size)));
    Ok((saved, tag))
}

async fn backup_data(call: &Call) -> Result<Outputs, Error> {
    let arguments = &call.arguments;
    let (namespace, pod, container) =
        (arguments.text("namespace")?, arguments.text("pod")?, arguments.text("container")?);
    let path = arguments.text("includePath")?;
    let source = Source { namespace: &namespace, pod: &pod, container: &container, path: &path };
    let (saved, tag) = save::save(call, &source, &arguments.text("backupArtifactPrefix")?).await?;
    Ok(outputs(json!({
        "backupID": saved.id, "backupTag": tag, "fileCount": saved.files.to_string(), "size": size(saved.size),
        "phySize": size(saved.added), "version": VERSION,
    })))
}

/// The pods that are named, or all of the workload.
fn pods(call: &Call) -> Result<Vec<String>, Error> {
    if call.arguments.has("pods") {
        return call.arguments.words("pods");
    }
    let pods = call.params.workload.as_ref().map(|workload| workload.pods.clone()).unwrap_or_default();
    if pods.is_empty() {
        return Err(Error::argument("pods", "is missing, and the object of the action has no running pods"));
    }
    Ok(pods)
}

async fn backup_data_all(call: &Call) -> Result<Outputs, Error> {
    let arguments = &call.arguments;
    let (namespace, container) = (arguments.text("namespace")?, arguments.text("container")?);
    let (path, prefix) = (arguments.text("includePath")?, arguments.text("backupArtifactPrefix")?);
    let (namespace, container, path, prefix) = (&namespace, &container, &path, &prefix);
    let one = |pod: String| async move {
        let below = format!("{}/{pod}", prefix.trim_end_matches('/'));
        let (saved, tag) = save::save(call, &Source { namespace, pod: &pod, container, path }, &below).await?;
        let info = BackupInfo { pod_name: pod.clone(), backup_id: saved.id, backup_tag: tag };
        Ok(outputs(json!({ pod: info })))
    };
    let infos = together(join_all(pods(call)?.into_iter().map(one)).await)?;
    Ok(outputs(json!({ "BackupAllInfo": Value::Object(infos).to_string(), "version": VERSION })))
}

fn image(call: &Call) -> Result<String, Error> {
    let default = std::env::var("KANISTER_TOOLS").unwrap_or_else(|_| TOOLS_IMAGE.into());
    Ok(call.arguments.optional_text("image")?.unwrap_or(default))
}

/// A pod that waits for commands.
async fn idle(
    call: &Call,
    prefix: &'static str,
    namespace: String,
    claims: &BTreeMap<String, String>,
    part: &str,
) -> Result<Made, Error> {
    let mut wanted = Wanted::idle(prefix, namespace, &image(call)?, claims);
    wanted.part = part.to_owned();
    let made = call.make(&wanted, true).await?;
    call.started(&made).await?;
    Ok(made)
}

fn restic_in<'a>(call: &'a Call, made: &Made, prefix: &str) -> Result<Restic<'a>, Error> {
    Restic::new(call, (&made.namespace, &made.name, Some(CONTAINER)), prefix)
}

async fn copy_volume_data(call: &Call) -> Result<Outputs, Error> {
    let arguments = &call.arguments;
    let (namespace, volume) = (arguments.text("namespace")?, arguments.text("volume")?);
    let mount = arguments.optional_text("mountPath")?.unwrap_or_else(|| format!("/mnt/vol_data/{volume}"));
    let prefix = place(call)?.with_bucket(&arguments.text("dataArtifactPrefix")?);
    let claims = [(volume.clone(), mount.clone())].into();
    let made = idle(call, "copy-vol-data-", namespace, &claims, "").await?;
    let (saved, tag) = with_restic(call, &restic_in(call, &made, &prefix)?, &mount, &volume).await?;
    Ok(outputs(json!({
        "backupID": saved.id, "backupRoot": mount, "backupArtifactLocation": prefix, "backupTag": tag,
        "fileCount": saved.files.to_string(), "size": size(saved.size), "phySize": size(saved.added), "version": VERSION,
    })))
}

/// The claims a restore writes to: those of a pod, which may be gone by now, or those that are listed.
async fn claims(call: &Call, namespace: &str, pod: Option<&str>) -> Result<BTreeMap<String, String>, Error> {
    let Some(pod) = pod else { return call.arguments.map("volumes") };
    let known = call.params.workload.as_ref().and_then(|workload| workload.persistent_volume_claims.get(pod));
    if let Some(known) = known.filter(|known| !known.is_empty()) {
        return Ok(known.clone());
    }
    let api: Api<Pod> = Api::namespaced(call.client.clone(), namespace);
    let found = api.get_opt(pod).await.map_err(|e| Error::api(format!("read pod {namespace}/{pod}"), e))?;
    let claims = found.as_ref().map(claims_of).unwrap_or_default();
    if claims.is_empty() {
        return Err(Error::argument("pod", format!("{namespace}/{pod} has no claims to restore into")));
    }
    Ok(claims)
}

/// What to restore, and from where.
struct Restore<'a> {
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

async fn restore(call: &Call, wanted: Restore<'_>) -> Result<Outputs, Error> {
    let target = call.arguments.optional_text("restorePath")?.unwrap_or_else(|| "/".into());
    let made = idle(call, "restore-data-", wanted.namespace.to_owned(), &wanted.claims, wanted.part).await?;
    let restic = restic_in(call, &made, wanted.prefix)?;
    let found = match &wanted.selection {
        Selection::Id(id) => restic.snapshots(&[id]).await?,
        Selection::Tag(tag) => restic.snapshots(&["--tag", tag, "--latest", "1"]).await?,
    };
    let snapshot = found.into_iter().next_back();
    let snapshot = snapshot.ok_or_else(|| Error::Missing(format!("no snapshot in {} fits", wanted.prefix)))?;
    let mover = if wanted.part.is_empty() { "restore" } else { wanted.part };
    let (total, _) = restic.stats(&snapshot.id, "restore-size").await?;
    call.gauge.moved(mover, Moved { direction: Direction::Down, total: Some(total), ..Moved::default() });
    call.host.point("phase.restore.before");
    match call.arguments.optional_text("backupPath")? {
        Some(inner) => restic.restore(&format!("{}:{inner}", snapshot.id), &[], &target, mover).await?,
        None => restore_paths(&restic, &snapshot, &target, mover).await?,
    }
    call.host.point("phase.restore.after");
    let done =
        Moved { direction: Direction::Down, read: total, total: Some(total), sent: Some(total), seconds_left: None };
    call.gauge.moved(mover, done);
    call.log(&format!("snapshot {} restored: {}", snapshot.id, size(total)));
    Ok(Outputs::new())
}

/// Directories above what was backed up are not touched, where restic can be told so: they belong to the image.
async fn restore_paths(restic: &Restic<'_>, snapshot: &Snapshot, target: &str, mover: &str) -> Result<(), Error> {
    let knows_folders = restic.knows_folders().await?;
    for path in &snapshot.paths {
        let into = format!("{}/{}", target.trim_end_matches('/'), path.trim_start_matches('/'));
        let folder = format!("{}:{path}", snapshot.id);
        // What was backed up may be a single file.
        if knows_folders && restic.restore(&folder, &[], &into, mover).await.is_ok() {
            continue;
        }
        restic.restore(&snapshot.id, std::slice::from_ref(path), target, mover).await?;
    }
    Ok(())
}

async fn restore_data(call: &Call) -> Result<Outputs, Error> {
    let arguments = &call.arguments;
    let (namespace, prefix) = (arguments.text("namespace")?, arguments.text("backupArtifactPrefix")?);
    let pod = arguments.optional_text("pod")?;
    let selection = match (arguments.optional_text("backupIdentifier")?, arguments.optional_text("backupTag")?) {
        (Some(id), None) => Selection::Id(id),
        (None, Some(tag)) => Selection::Tag(tag),
        _ => {
            return Err(Error::argument(
                "backupIdentifier",
                "exactly one of backupIdentifier and backupTag has to be there",
            ));
        }
    };
    if pod.is_some() == arguments.has("volumes") {
        return Err(Error::argument("pod", "exactly one of pod and volumes has to be there"));
    }
    let claims = claims(call, &namespace, pod.as_deref()).await?;
    restore(call, Restore { namespace: &namespace, prefix: &prefix, claims, selection, part: "" }).await
}

fn backup_infos(call: &Call) -> Result<BTreeMap<String, BackupInfo>, Error> {
    let text = call.arguments.text("backupInfo")?;
    serde_json::from_str(&text)
        .map_err(|error| Error::argument("backupInfo", format!("is not what BackupDataAll returned: {error}")))
}

async fn restore_data_all(call: &Call) -> Result<Outputs, Error> {
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
        restore(call, Restore { namespace, prefix: &below, claims, selection, part: &info.pod_name }).await
    };
    together(join_all(infos.into_iter().map(one)).await)
}

async fn forget(call: &Call, restic: &Restic<'_>, id: Option<String>, tag: Option<String>) -> Result<(), Error> {
    let ids = match (id, tag) {
        (Some(id), _) => vec![id],
        (None, Some(tag)) => {
            restic.snapshots(&["--tag", &tag]).await?.into_iter().map(|snapshot| snapshot.id).collect()
        }
        (None, None) => {
            return Err(Error::argument("backupID", "exactly one of backupID and backupTag has to be there"));
        }
    };
    call.host.point("phase.forget.before");
    for id in ids {
        restic.forget(&id).await?;
    }
    call.host.point("phase.forget.after");
    Ok(())
}

async fn reclaim(call: &Call, restic: &Restic<'_>) -> Result<u64, Error> {
    if call.arguments.flag("reclaimSpace", false)? { restic.prune().await } else { Ok(0) }
}

async fn delete_data(call: &Call) -> Result<Outputs, Error> {
    let arguments = &call.arguments;
    let prefix = arguments.text("backupArtifactPrefix")?;
    let made = idle(call, "delete-data-", arguments.text("namespace")?, &BTreeMap::new(), "").await?;
    call.gauge.reach(Step::Execution);
    let restic = restic_in(call, &made, &prefix)?;
    forget(call, &restic, arguments.optional_text("backupID")?, arguments.optional_text("backupTag")?).await?;
    let freed = reclaim(call, &restic).await?;
    call.gauge.reach(Step::Cleanup);
    Ok(outputs(json!({ "spaceFreed": format!("{freed} B") })))
}

async fn delete_data_all(call: &Call) -> Result<Outputs, Error> {
    let arguments = &call.arguments;
    let prefix = arguments.text("backupArtifactPrefix")?;
    let infos = backup_infos(call)?;
    let made = idle(call, "delete-data-", arguments.text("namespace")?, &BTreeMap::new(), "").await?;
    call.gauge.reach(Step::Execution);
    let mut freed = 0;
    for info in infos.into_values() {
        let restic = restic_in(call, &made, &format!("{}/{}", prefix.trim_end_matches('/'), info.pod_name))?;
        forget(call, &restic, Some(info.backup_id), None).await?;
        freed += reclaim(call, &restic).await?;
    }
    call.gauge.reach(Step::Cleanup);
    Ok(outputs(json!({ "spaceFreed": format!("{freed} B") })))
}

async fn backup_data_stats(call: &Call) -> Result<Outputs, Error> {
    let arguments = &call.arguments;
    let mode = arguments.optional_text("statsMode")?.unwrap_or_else(|| "restore-size".into());
    let prefix = arguments.text("backupArtifactPrefix")?;
    let made = idle(call, "backup-stats-", arguments.text("namespace")?, &BTreeMap::new(), "").await?;
    call.gauge.reach(Step::Execution);
    let (bytes, files) = restic_in(call, &made, &prefix)?.stats(&arguments.text("backupID")?, &mode).await?;
    call.gauge.reach(Step::Cleanup);
    Ok(outputs(json!({ "mode": mode, "fileCount": files.to_string(), "size": size(bytes), "version": VERSION })))
}

async fn check_repository(call: &Call) -> Result<Outputs, Error> {
    let prefix = call.arguments.text("backupArtifactPrefix")?;
    let made = idle(call, "check-repository-", call.home.clone(), &BTreeMap::new(), "").await?;
    call.gauge.reach(Step::Execution);
    let trouble = restic_in(call, &made, &prefix)?.trouble().await?;
    call.gauge.reach(Step::Cleanup);
    let is = |wanted: Trouble| (trouble == Some(wanted)).to_string();
    Ok(outputs(
        json!({ "passwordIncorrect": is(Trouble::Password), "repoUnavailable": is(Trouble::Absent), "version": VERSION }),
    ))
}
