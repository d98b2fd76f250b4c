//! `plimsoll restore`.

use std::collections::BTreeMap;

use anyhow::Context;
use jiff::{Timestamp, tz::TimeZone};
use kube::api::ObjectMeta;
use plimsoll_api::velero::v1::{Restore as RestoreObject, RestoreSpec};

use super::create::{create, labels, or_selectors, selector};
use crate::args::{CreateRestore, Describe, Get, Global, Kind, ListKind, Reference, Restore};
use crate::exit::Outcome;

/// Carries out one of its commands.
pub async fn run(global: &Global, verb: Restore) -> anyhow::Result<Outcome> {
    match verb {
        Restore::Create(options) => {
            let name = options.name.clone().unwrap_or_else(|| default_name(&options.from_backup, Timestamp::now()));
            let object = build(global, &options, &name)?;
            create(global, &object, Reference { kind: Kind::Restore, name }, &options.following).await
        }
        Restore::Get(named) => super::get::run(global, Get { kind: ListKind::Restores, named }).await,
        Restore::Describe(one) => {
            let reference = Reference { kind: Kind::Restore, name: one.name };
            super::describe::run(global, Describe { reference, output: one.output }).await
        }
    }
}

/// The backup's name and the time, as Velero's command line names restores.
fn default_name(backup: &str, now: Timestamp) -> String {
    format!("{backup}-{}", now.to_zoned(TimeZone::UTC).strftime("%Y%m%d%H%M%S"))
}

fn build(global: &Global, options: &CreateRestore, name: &str) -> anyhow::Result<RestoreObject> {
    let filters = &options.filters;
    let spec = RestoreSpec {
        backup_name: Some(options.from_backup.clone()),
        included_namespaces: filters.include_namespaces.clone(),
        excluded_namespaces: filters.exclude_namespaces.clone(),
        included_resources: filters.include_resources.clone(),
        excluded_resources: filters.exclude_resources.clone(),
        label_selector: filters.selector.as_deref().map(selector).transpose()?,
        or_label_selectors: or_selectors(filters.or_selector.as_deref())?,
        include_cluster_resources: filters.include_cluster_resources,
        namespace_mapping: mappings(&options.namespace_mappings)?,
        ..RestoreSpec::default()
    };
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(global.namespace.clone()),
        labels: Some(labels(&filters.labels)?).filter(|labels| !labels.is_empty()),
        ..ObjectMeta::default()
    };
    Ok(RestoreObject { metadata, spec, status: None })
}

fn mappings(pairs: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    pairs
        .iter()
        .map(|pair| {
            let (old, new) = pair.split_once(':').with_context(|| format!("mapping {pair:?} is not OLD:NEW"))?;
            Ok((old.to_owned(), new.to_owned()))
        })
        .collect()
}
