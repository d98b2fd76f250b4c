//! `plimsoll backup create`.

use jiff::Timestamp;
use kube::api::ObjectMeta;
use kube::{Api, Client};
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{Backup, BackupSpec, Schedule, UploaderConfigForBackup};

use super::create::{
    config_map, create, metadata, name_with_time, or_everything, or_selectors, pairs, reference, selector, separated,
};
use super::plan;
use crate::args::Global;
use crate::args::create::{BackupTemplate, CreateBackup, MetadataOptions};
use crate::args::names::ResourceKind;
use crate::connect;
use crate::errors::UsageError;
use crate::exit::Outcome;

/// Creates a backup, prints it, or shows what it would hold.
pub async fn run(global: &Global, options: CreateBackup) -> anyhow::Result<Outcome> {
    let object = match &options.from_schedule {
        Some(schedule) => {
            let client = connect::client(global).await?;
            from_schedule(&client, global, schedule, &options).await?
        }
        None => build(global, &options)?,
    };
    if options.creation.dry_run {
        return Box::pin(plan::backup(global, &object.spec, options.creation.output)).await;
    }
    let name = object.metadata.name.clone().unwrap_or_default();
    create(global, &object, &reference(ResourceKind::Backup, &name), &options.creation).await
}

fn build(global: &Global, options: &CreateBackup) -> anyhow::Result<Backup> {
    let name = options.name.clone().unwrap_or_default();
    let metadata = metadata(global, &name, &options.metadata)?;
    Ok(Backup { metadata, spec: spec(&options.template)?, status: None })
}

/// The spec of a new backup.
pub fn spec(template: &BackupTemplate) -> anyhow::Result<BackupSpec> {
    let filters = &template.filters;
    Ok(BackupSpec {
        included_namespaces: or_everything(&filters.include_namespaces),
        excluded_namespaces: filters.exclude_namespaces.clone(),
        included_resources: filters.include_resources.clone(),
        excluded_resources: filters.exclude_resources.clone(),
        included_cluster_scoped_resources: template.include_cluster_scoped_resources.clone(),
        excluded_cluster_scoped_resources: template.exclude_cluster_scoped_resources.clone(),
        included_namespace_scoped_resources: template.include_namespace_scoped_resources.clone(),
        excluded_namespace_scoped_resources: template.exclude_namespace_scoped_resources.clone(),
        label_selector: filters.selector.as_deref().map(selector).transpose()?,
        or_label_selectors: or_selectors(filters.or_selector.as_deref())?,
        include_cluster_resources: filters.include_cluster_resources,
        ttl: template.ttl.map(Into::into),
        storage_location: template.storage_location.clone(),
        volume_snapshot_locations: template.volume_snapshot_locations.clone(),
        snapshot_volumes: template.snapshot_volumes,
        snapshot_move_data: template.snapshot_move_data,
        data_mover: template.data_mover.clone(),
        default_volumes_to_fs_backup: template.default_volumes_to_fs_backup,
        ordered_resources: ordered(template.ordered_resources.as_deref())?,
        csi_snapshot_timeout: template.csi_snapshot_timeout.map(Into::into),
        item_operation_timeout: filters.item_operation_timeout.map(Into::into),
        resource_policy: config_map(filters.resource_policies_configmap.as_ref()),
        uploader_config: template.parallel_files_upload.filter(|number| *number > 0).map(|number| {
            UploaderConfigForBackup { parallel_files_upload: Some(number.into()), ..UploaderConfigForBackup::default() }
        }),
        ..BackupSpec::default()
    })
}

/// `pods=a/b,a/c;persistentvolumes=x`.
fn ordered(text: Option<&str>) -> anyhow::Result<std::collections::BTreeMap<String, String>> {
    separated("order", '=', text.into_iter().flat_map(|text| text.split(';')).filter(|part| !part.trim().is_empty()))
}

/// The backup that a schedule would make now.
async fn from_schedule(client: &Client, global: &Global, name: &str, options: &CreateBackup) -> anyhow::Result<Backup> {
    if spec(&options.template)? != spec(&BackupTemplate::default())? {
        anyhow::bail!(UsageError(
            "--from-schedule takes filters and settings from the schedule; remove the other ones".into()
        ));
    }
    let api: Api<Schedule> = Api::namespaced(client.clone(), &global.namespace);
    let schedule = api.get(name).await?;
    let backup = options.name.clone().unwrap_or_else(|| name_with_time(name, Timestamp::now()));
    instance(&schedule, global, name, &backup, &options.metadata)
}

fn instance(
    schedule: &Schedule,
    global: &Global,
    name: &str,
    backup: &str,
    marks: &MetadataOptions,
) -> anyhow::Result<Backup> {
    let template = schedule.spec.template.clone().unwrap_or_default();
    let own = template.metadata.as_ref().map(|metadata| metadata.labels.clone()).filter(|labels| !labels.is_empty());
    let mut all = own.or_else(|| schedule.metadata.labels.clone()).unwrap_or_default();
    all.insert(labels::SCHEDULE_NAME.to_owned(), labels::valid_name(name));
    all.extend(pairs("label", &marks.labels)?);
    let mut annotations = schedule.metadata.annotations.clone().unwrap_or_default();
    annotations.extend(pairs("annotation", &marks.annotations)?);
    let metadata = ObjectMeta {
        name: Some(backup.to_owned()),
        namespace: Some(global.namespace.clone()),
        labels: Some(all),
        annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
        ..ObjectMeta::default()
    };
    Ok(Backup { metadata, spec: template, status: None })
}
