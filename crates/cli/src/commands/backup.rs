//! `plimsoll backup`.

use kube::api::ObjectMeta;
use plimsoll_api::velero::v1::{Backup as BackupObject, BackupSpec};

use super::create::{create, labels, or_selectors, selector};
use crate::args::{Backup, CreateBackup, Describe, Get, Global, Kind, ListKind, Reference};
use crate::exit::Outcome;

/// Carries out one of its commands.
pub async fn run(global: &Global, verb: Backup) -> anyhow::Result<Outcome> {
    match verb {
        Backup::Create(options) => {
            let object = build(global, &options)?;
            let reference = Reference { kind: Kind::Backup, name: options.name };
            create(global, &object, reference, &options.following).await
        }
        Backup::Get(named) => super::get::run(global, Get { kind: ListKind::Backups, named }).await,
        Backup::Describe(one) => {
            let reference = Reference { kind: Kind::Backup, name: one.name };
            super::describe::run(global, Describe { reference, output: one.output }).await
        }
    }
}

fn build(global: &Global, options: &CreateBackup) -> anyhow::Result<BackupObject> {
    let filters = &options.filters;
    let spec = BackupSpec {
        included_namespaces: filters.include_namespaces.clone(),
        excluded_namespaces: filters.exclude_namespaces.clone(),
        included_resources: filters.include_resources.clone(),
        excluded_resources: filters.exclude_resources.clone(),
        label_selector: filters.selector.as_deref().map(selector).transpose()?,
        or_label_selectors: or_selectors(filters.or_selector.as_deref())?,
        include_cluster_resources: filters.include_cluster_resources,
        ttl: options.ttl.map(Into::into),
        storage_location: options.storage_location.clone(),
        ..BackupSpec::default()
    };
    let metadata = ObjectMeta {
        name: Some(options.name.clone()),
        namespace: Some(global.namespace.clone()),
        labels: Some(labels(&filters.labels)?).filter(|labels| !labels.is_empty()),
        ..ObjectMeta::default()
    };
    Ok(BackupObject { metadata, spec, status: None })
}
