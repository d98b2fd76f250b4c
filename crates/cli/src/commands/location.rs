//! `plimsoll backup-location create` and `set`.

use anyhow::{Context, bail};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::SecretKeySelector;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use plimsoll_api::velero::v1::{AccessMode, BackupStorageLocation, BackupStorageLocationSpec, ObjectStorageLocation};
use serde_json::json;

use super::create::{metadata, pairs, reference, send};
use crate::args::Global;
use crate::args::create::{AccessModeOption, CreateLocation, LocationAccess, MetadataOptions, SetLocation};
use crate::args::names::{ResourceKind, Targets};
use crate::args::options::GetOptions;
use crate::errors::UsageError;
use crate::exit::Outcome;
use crate::subjects::{self, Subject};
use crate::{connect, output};

/// Creates a location, or prints it.
pub async fn create(global: &Global, options: CreateLocation) -> anyhow::Result<Outcome> {
    let object = build(global, &options)?;
    if let Some(format) = options.output {
        output::object(&object, format)?;
        return Ok(Outcome::Success);
    }
    let client = connect::client(global).await?;
    if options.default {
        only_default(&client, &global.namespace, &options.name).await?;
    }
    let name = &options.name;
    send(&client, &global.namespace, &object, &reference(ResourceKind::Location, name)).await?;
    output::line(format!(
        "backup-location/{name} created; check its phase with `plimsoll describe backup-location/{name}`"
    ));
    Ok(Outcome::Success)
}

fn build(global: &Global, options: &CreateLocation) -> anyhow::Result<BackupStorageLocation> {
    let marks = MetadataOptions { labels: options.labels.clone(), ..MetadataOptions::default() };
    let spec = BackupStorageLocationSpec {
        provider: Some(options.provider.clone()),
        config: pairs("setting", &options.config)?,
        credential: credential(&options.access)?,
        object_storage: Some(ObjectStorageLocation {
            bucket: Some(options.bucket.clone()),
            prefix: options.prefix.clone(),
            ca_cert: certificates(&options.access)?,
            ..ObjectStorageLocation::default()
        }),
        default: options.default.then_some(true),
        access_mode: Some(match options.access_mode {
            AccessModeOption::ReadWrite => AccessMode::ReadWrite,
            AccessModeOption::ReadOnly => AccessMode::ReadOnly,
        }),
        backup_sync_period: options.backup_sync_period.map(Into::into),
        validation_frequency: options.validation_frequency.map(Into::into),
        ..BackupStorageLocationSpec::default()
    };
    Ok(BackupStorageLocation { metadata: metadata(global, &options.name, &marks)?, spec, status: None })
}

fn credential(access: &LocationAccess) -> anyhow::Result<Option<SecretKeySelector>> {
    let Some(pair) = &access.credential else { return Ok(None) };
    let Some((name, key)) = pair.split_once('=') else {
        bail!(UsageError(format!("invalid --credential {pair:?}: expected SECRET=KEY")))
    };
    Ok(Some(SecretKeySelector { name: name.to_owned(), key: key.to_owned(), optional: None }))
}

fn certificates(access: &LocationAccess) -> anyhow::Result<Option<ByteString>> {
    let Some(path) = &access.cacert else { return Ok(None) };
    let bytes = std::fs::read(path).with_context(|| format!("cannot read certificates {}", path.display()))?;
    Ok(Some(ByteString(bytes)))
}

/// Lists locations, or only the default one.
pub async fn get(
    global: &Global,
    targets: &Targets,
    options: &GetOptions,
    only_default: bool,
) -> anyhow::Result<Outcome> {
    let client = connect::client(global).await?;
    let mut subject = subjects::list(&client, &global.namespace, targets, options.selector.as_deref()).await?;
    subject.retain(|subject| !only_default || is_default(subject));
    super::get::print(&subject, targets, options)
}

fn is_default(subject: &Subject) -> bool {
    subject.object.pointer("/spec/default").and_then(serde_json::Value::as_bool) == Some(true)
}

/// Changes a location.
pub async fn set(global: &Global, options: SetLocation) -> anyhow::Result<Outcome> {
    let name = &options.name;
    let mut spec = json!({});
    if let Some(default) = options.default {
        spec["default"] = json!(default);
    }
    if let Some(selector) = credential(&options.access)? {
        spec["credential"] = serde_json::to_value(selector)?;
    }
    if let Some(bytes) = certificates(&options.access)? {
        // A reference would win over what is given here.
        spec["objectStorage"] = json!({ "caCert": bytes, "caCertRef": null });
    }
    if spec.as_object().is_some_and(serde_json::Map::is_empty) {
        bail!(UsageError("nothing to change: pass --default, --credential or --cacert".into()));
    }
    let client = connect::client(global).await?;
    subjects::read(&client, &global.namespace, &reference(ResourceKind::Location, name)).await?;
    if options.default == Some(true) {
        only_default(&client, &global.namespace, name).await?;
    }
    patch(&client, &global.namespace, name, &json!({ "spec": spec })).await?;
    output::line(format!("backup-location/{name} configured"));
    Ok(Outcome::Success)
}

async fn patch(client: &Client, namespace: &str, name: &str, patch: &serde_json::Value) -> anyhow::Result<()> {
    let api: Api<BackupStorageLocation> = Api::namespaced(client.clone(), namespace);
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// There is one default: the others are none any more.
async fn only_default(client: &Client, namespace: &str, name: &str) -> anyhow::Result<()> {
    let all = Targets { kind: ResourceKind::Location, names: Vec::new() };
    for other in subjects::list(client, namespace, &all, None).await? {
        if is_default(&other) && other.name() != name {
            patch(client, namespace, other.name(), &json!({ "spec": { "default": false } })).await?;
        }
    }
    Ok(())
}
