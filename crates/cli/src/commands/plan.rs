//! `plimsoll backup create --dry-run`: what a backup would hold.

use std::collections::BTreeMap;

use anyhow::Context;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, TypedLocalObjectReference};
use kube::{Api, Client};
use plimsoll_api::labels::{DEFAULT_SNAPSHOT_MOVE_DATA, DEFAULT_VOLUMES_TO_FS_BACKUP};
use plimsoll_api::velero::v1::BackupSpec;
use plimsoll_controllers::{Error, LEASE};
use plimsoll_engine::backup::{self, BackupPlan, PlannedResource};
use plimsoll_engine::cluster::Cluster;
use plimsoll_engine::item_filter::ItemFilter;
use plimsoll_progress::{Clock, Operation};
use plimsoll_select::resource_policies::ResourcePolicies;
use plimsoll_volumes::fs_backup::FsBackupPolicy;
use plimsoll_volumes::volume_plan::{Method, PlannedVolume, SnapshotRequest, plan as plan_volumes};

use crate::args::Global;
use crate::args::options::ObjectFormat;
use crate::exit::Outcome;
use crate::progress_display::ProgressDisplay;
use crate::{connect, output};

/// Shows what a backup would hold. Reads with the user's own rights; counts, and lists nothing but pods and claims, for their
/// volumes.
pub async fn backup(global: &Global, spec: &BackupSpec, format: Option<ObjectFormat>) -> anyhow::Result<Outcome> {
    let client = connect::client(global).await?;
    let policies = policies(&client, &global.namespace, spec.resource_policy.as_ref()).await?;
    let (server, unknown) = server_defaults(&client, &global.namespace).await?;
    let snapshots = SnapshotRequest {
        wanted: spec.snapshot_volumes,
        moves_data: spec.snapshot_move_data.unwrap_or(server.moves_data),
    };
    let (cluster, operation) = (Cluster::new(client), Operation::new("planning", Clock::system()));
    let root = operation.root();
    let select =
        |resources: &[_], namespaces: &[_]| ItemFilter::for_backup(spec, policies.as_ref(), resources, namespaces);
    let work = async {
        let (mut plan, item_filter) = backup::plan(&cluster, select, &root).await?;
        plan.warnings.extend(unknown);
        let policy = FsBackupPolicy::of(spec, policies.clone(), &item_filter, server.all_volumes);
        match plan_volumes(&cluster, &plan, &item_filter, &policy, snapshots, &global.namespace, &root).await {
            Ok(volumes) => Ok::<_, Error>((plan, volumes)),
            Err(error) if error.code() == Some(403) => {
                plan.warnings.push(format!("cannot plan the volumes: {error}"));
                Ok((plan, Vec::new()))
            }
            Err(error) => Err(error),
        }
    };
    let (mut plan, volumes) = ProgressDisplay::on_terminal_only()
        .show_while(&operation, Box::pin(work))
        .await
        .context("cannot plan the backup")?;
    count_selected_namespaces(&mut plan);
    match format {
        Some(format) => {
            let mut value = serde_json::to_value(&plan)?;
            value["expectedItems"] = serde_json::to_value(plan.expected())?;
            value["volumes"] = serde_json::to_value(&volumes)?;
            output::object(&value, format)?;
        }
        None => text(&plan, &volumes).into_iter().for_each(output::line),
    }
    Ok(Outcome::Success)
}

/// Defaults of the server that leads, or led last.
#[derive(Clone, Copy, Default)]
struct ServerDefaults {
    /// The files of all volumes are backed up.
    all_volumes: bool,
    /// The data of snapshots is moved.
    moves_data: bool,
}

/// The defaults of the server, and a warning where they may not be read.
async fn server_defaults(client: &Client, namespace: &str) -> anyhow::Result<(ServerDefaults, Option<String>)> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    match leases.get_opt(LEASE).await {
        Ok(lease) => {
            let annotations = lease.and_then(|lease| lease.metadata.annotations).unwrap_or_default();
            let is_true = |name: &str| annotations.get(name).is_some_and(|value| value == "true");
            let (all_volumes, moves_data) =
                (is_true(DEFAULT_VOLUMES_TO_FS_BACKUP), is_true(DEFAULT_SNAPSHOT_MOVE_DATA));
            Ok((ServerDefaults { all_volumes, moves_data }, None))
        }
        Err(kube::Error::Api(status)) if status.code == 403 => {
            let what = "cannot read the defaults of the server for volumes";
            Ok((ServerDefaults::default(), Some(format!("{what}: {}", status.message))))
        }
        Err(error) => Err(error.into()),
    }
}

/// The resource policies of a ConfigMap.
pub async fn policies(
    client: &Client,
    namespace: &str,
    reference: Option<&TypedLocalObjectReference>,
) -> anyhow::Result<Option<ResourcePolicies>> {
    let Some((name, data)) = config_map(client, namespace, reference).await? else { return Ok(None) };
    Ok(Some(ResourcePolicies::from_config_map(&data).with_context(|| format!("ConfigMap {name}"))?))
}

/// A ConfigMap that a spec refers to: its name and its data.
pub async fn config_map(
    client: &Client,
    namespace: &str,
    reference: Option<&TypedLocalObjectReference>,
) -> anyhow::Result<Option<(String, BTreeMap<String, String>)>> {
    let Some(name) = reference.map(|reference| &reference.name) else { return Ok(None) };
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let found = api.get(name).await?;
    Ok(Some((name.clone(), found.data.unwrap_or_default())))
}

/// All namespaces are read, but only the selected ones are kept.
fn count_selected_namespaces(plan: &mut BackupPlan) {
    let Some(selected) = plan.namespaces.as_ref().map(|names| names.len() as u64) else { return };
    for planned in plan.resources.iter_mut().filter(|planned| planned.resource.group_resource() == "namespaces") {
        planned.expected = planned.expected.map(|count| count.min(selected));
    }
}

fn text(plan: &BackupPlan, volumes: &[PlannedVolume]) -> Vec<String> {
    let namespaces = plan.namespaces.as_ref().map_or_else(
        || "all".to_owned(),
        |names| format!("{}: {}", names.len(), names.iter().cloned().collect::<Vec<_>>().join(", ")),
    );
    let mut lines = vec![format!("Namespaces:  {namespaces}")];
    if let Some(selector) = &plan.label_selector {
        lines.push(format!("Labels:      {selector}"));
    }
    let held = |planned: &&PlannedResource| planned.expected != Some(0);
    let row = |planned: &PlannedResource| {
        let count = planned.expected.map_or_else(|| "?".to_owned(), |count| count.to_string());
        vec![planned.resource.group_resource(), planned.resource.kind.clone(), count]
    };
    let rows: Vec<_> = plan.resources.iter().filter(held).map(row).collect();
    let header = ["RESOURCE", "KIND", "ITEMS"].map(str::to_owned);
    lines.push(String::new());
    lines.extend(output::table(&header, &rows));
    lines.push(String::new());
    lines.push(match plan.expected() {
        Some(total) => format!("About {total} items of {} resources would be backed up.", rows.len()),
        None => format!("Items of {} resources would be backed up; their number is unknown.", rows.len()),
    });
    let empty = plan.resources.len() - rows.len();
    if empty > 0 {
        lines.push(format!("{empty} more resources are selected and have no items."));
    }
    lines.extend(volumes_text(volumes));
    lines.extend(plan.errors.iter().map(|error| format!("Error: {error}")));
    lines.extend(plan.warnings.iter().map(|warning| format!("Warning: {warning}")));
    lines
}

/// `namespace/pod/volume`, or the claim.
fn volume_name(planned: &PlannedVolume) -> String {
    match (&planned.pod, &planned.volume, &planned.claim) {
        (Some(pod), Some(volume), _) => format!("{pod}/{volume}"),
        (_, _, claim) => format!("claim {}", claim.as_deref().unwrap_or_default()),
    }
}

fn volumes_text(volumes: &[PlannedVolume]) -> Vec<String> {
    if volumes.is_empty() {
        return Vec::new();
    }
    let row = |planned: &PlannedVolume| {
        let method = match planned.method {
            Method::FsBackup => "fs-backup",
            Method::Snapshot => "snapshot",
            Method::Moved => "moved",
            Method::None => "none",
            Method::Skipped => "skipped",
            Method::Refused => "refused",
        };
        let why = planned.reason.clone().unwrap_or_default();
        vec![volume_name(planned), method.to_owned(), why]
    };
    let header = ["VOLUME", "METHOD", "WHY"].map(str::to_owned);
    let mut lines = vec![String::new()];
    lines.extend(output::table(&header, &volumes.iter().map(row).collect::<Vec<_>>()));
    lines
}
