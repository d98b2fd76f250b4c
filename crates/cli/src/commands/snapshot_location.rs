//! `plimsoll snapshot-location create`, `get` and `set`.

use anyhow::bail;
use k8s_openapi::api::core::v1::SecretKeySelector;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use plimsoll_api::velero::v1::{VolumeSnapshotLocation, VolumeSnapshotLocationSpec};
use serde_json::json;

use super::create::{metadata, pairs};
use crate::args::Global;
use crate::args::create::MetadataOptions;
use crate::args::plugins::{CreateSnapshotLocation, GetSnapshotLocations, SetSnapshotLocation, SnapshotLocation};
use crate::errors::UsageError;
use crate::exit::Outcome;
use crate::{connect, output};

/// Carries out a verb.
pub async fn run(global: &Global, verb: SnapshotLocation) -> anyhow::Result<Outcome> {
    match verb {
        SnapshotLocation::Create(options) => create(global, options).await?,
        SnapshotLocation::Get(options) => get(global, &options).await?,
        SnapshotLocation::Set(options) => set(global, &options).await?,
    }
    Ok(Outcome::Success)
}

async fn api(global: &Global) -> anyhow::Result<Api<VolumeSnapshotLocation>> {
    Ok(Api::namespaced(connect::client(global).await?, &global.namespace))
}

async fn create(global: &Global, options: CreateSnapshotLocation) -> anyhow::Result<()> {
    let marks = MetadataOptions { labels: options.labels, ..MetadataOptions::default() };
    let spec = VolumeSnapshotLocationSpec {
        provider: Some(options.provider),
        config: pairs("setting", &options.config)?,
        credential: options.credential.as_deref().map(credential).transpose()?,
        ..VolumeSnapshotLocationSpec::default()
    };
    let object = VolumeSnapshotLocation { metadata: metadata(global, &options.name, &marks)?, spec, status: None };
    if let Some(format) = options.output {
        return output::object(&object, format);
    }
    api(global).await?.create(&PostParams::default(), &object).await?;
    output::line(format!("snapshot-location/{} created", options.name));
    Ok(())
}

fn credential(pair: &str) -> anyhow::Result<SecretKeySelector> {
    let Some((name, key)) = pair.split_once('=') else {
        bail!(UsageError(format!("invalid --credential {pair:?}: expected SECRET=KEY")))
    };
    Ok(SecretKeySelector { name: name.to_owned(), key: key.to_owned(), optional: None })
}

/// The locations with these names, or all of them.
async fn read(api: &Api<VolumeSnapshotLocation>, names: &[String]) -> Result<Vec<VolumeSnapshotLocation>, kube::Error> {
    if names.is_empty() {
        return Ok(api.list(&ListParams::default()).await?.items);
    }
    let mut found = Vec::new();
    for name in names {
        found.push(api.get(name).await?);
    }
    Ok(found)
}

async fn get(global: &Global, options: &GetSnapshotLocations) -> anyhow::Result<()> {
    let found = read(&api(global).await?, &options.names).await?;
    if let Some(format) = options.output {
        return match found.as_slice() {
            [one] if options.names.len() == 1 => output::object(one, format),
            all => output::object(&json!({ "apiVersion": "v1", "kind": "List", "items": all }), format),
        };
    }
    let row = |location: &VolumeSnapshotLocation| {
        vec![location.name_any(), location.spec.provider.clone().unwrap_or_default()]
    };
    let rows: Vec<_> = found.iter().map(row).collect();
    output::table(&["NAME".into(), "PROVIDER".into()], &rows).iter().for_each(output::line);
    Ok(())
}

async fn set(global: &Global, options: &SetSnapshotLocation) -> anyhow::Result<()> {
    let patch = json!({ "spec": { "credential": credential(&options.credential)? } });
    api(global).await?.patch(&options.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    output::line(format!("snapshot-location/{} configured", options.name));
    Ok(())
}
