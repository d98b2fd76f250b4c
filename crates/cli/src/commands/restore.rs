//! `plimsoll restore create`.

use anyhow::bail;
use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{
    Backup, BackupPhase, Restore, RestoreSpec, RestoreStatusSpec, UploaderConfigForRestore,
};

use super::create::{
    config_map, create, metadata, name_with_time, or_everything, or_selectors, reference, selector, separated,
};
use super::preview;
use crate::args::Global;
use crate::args::create::{CreateRestore, ExistingResourcePolicy};
use crate::args::names::ResourceKind;
use crate::connect;
use crate::exit::Outcome;
use crate::subjects::read;

/// Creates a restore, prints it, or shows what it would do.
pub async fn run(global: &Global, options: CreateRestore) -> anyhow::Result<Outcome> {
    let source = options.from_backup.as_ref().or(options.from_schedule.as_ref()).cloned().unwrap_or_default();
    let name = options.name.clone().unwrap_or_else(|| name_with_time(&source, Timestamp::now()));
    let mut object = build(global, &options, &name)?;
    let partial = options.allow_partially_failed == Some(true);
    // The server looks for the backup itself, unless it is to be content with less; a dry run has no server.
    if let Some(schedule) = options.from_schedule.as_deref().filter(|_| partial || options.creation.dry_run) {
        let client = connect::client(global).await?;
        object.spec.backup_name = Some(latest(&client, &global.namespace, schedule, partial).await?);
        object.spec.schedule_name = None;
    }
    if options.creation.dry_run {
        return Box::pin(preview::run(global, object, options.creation.output)).await;
    }
    if let Some(backup) = options.from_backup.as_deref().filter(|_| options.creation.output.is_none()) {
        let client = connect::client(global).await?;
        read(&client, &global.namespace, &reference(ResourceKind::Backup, backup)).await?;
    }
    create(global, &object, &reference(ResourceKind::Restore, &name), &options.creation).await
}

fn build(global: &Global, options: &CreateRestore, name: &str) -> anyhow::Result<Restore> {
    let filters = &options.filters;
    let spec = RestoreSpec {
        backup_name: options.from_backup.clone(),
        schedule_name: options.from_schedule.clone(),
        included_namespaces: or_everything(&filters.include_namespaces),
        excluded_namespaces: filters.exclude_namespaces.clone(),
        included_resources: filters.include_resources.clone(),
        excluded_resources: filters.exclude_resources.clone(),
        label_selector: filters.selector.as_deref().map(selector).transpose()?,
        or_label_selectors: or_selectors(filters.or_selector.as_deref())?,
        include_cluster_resources: filters.include_cluster_resources,
        namespace_mapping: separated("mapping", ':', options.namespace_mappings.iter().map(String::as_str))?,
        existing_resource_policy: options.existing_resource_policy.map(|policy| policy_name(policy).to_owned()),
        restore_status: statuses(options),
        restore_pvs: options.restore_volumes,
        preserve_node_ports: options.preserve_nodeports,
        resource_modifier: config_map(options.resource_modifier_configmap.as_ref()),
        resource_policy: config_map(filters.resource_policies_configmap.as_ref()),
        item_operation_timeout: filters.item_operation_timeout.map(Into::into),
        uploader_config: uploader(options),
        ..RestoreSpec::default()
    };
    Ok(Restore { metadata: metadata(global, name, &options.metadata)?, spec, status: None })
}

fn policy_name(policy: ExistingResourcePolicy) -> &'static str {
    match policy {
        ExistingResourcePolicy::None => "none",
        ExistingResourcePolicy::Update => "update",
    }
}

fn statuses(options: &CreateRestore) -> Option<RestoreStatusSpec> {
    let (included, excluded) = (&options.status_include_resources, &options.status_exclude_resources);
    (!included.is_empty() || !excluded.is_empty()).then(|| RestoreStatusSpec {
        included_resources: included.clone(),
        excluded_resources: excluded.clone(),
        ..RestoreStatusSpec::default()
    })
}

fn uploader(options: &CreateRestore) -> Option<UploaderConfigForRestore> {
    let parallel = options.parallel_files_download.filter(|number| *number > 0).map(Into::into);
    (parallel.is_some() || options.write_sparse_files.is_some()).then(|| UploaderConfigForRestore {
        write_sparse_files: options.write_sparse_files,
        parallel_files_download: parallel,
        ..UploaderConfigForRestore::default()
    })
}

/// The latest backup of a schedule that ended with something in it.
async fn latest(client: &Client, namespace: &str, schedule: &str, partial: bool) -> anyhow::Result<String> {
    let api: Api<Backup> = Api::namespaced(client.clone(), namespace);
    let mine = format!("{}={}", labels::SCHEDULE_NAME, labels::valid_name(schedule));
    let backups = api.list(&ListParams::default().labels(&mine)).await?;
    let usable = |backup: &&Backup| match backup.phase() {
        BackupPhase::Completed => true,
        BackupPhase::PartiallyFailed => partial,
        _ => false,
    };
    let started = |backup: &&Backup| backup.status.as_ref().and_then(|status| Some(status.start_timestamp.clone()?.0));
    let Some(found) = backups.items.iter().filter(usable).max_by_key(started) else {
        bail!("schedule {schedule} has no usable backup; list its backups with `plimsoll get backups -l {mine}`")
    };
    Ok(found.name_any())
}
