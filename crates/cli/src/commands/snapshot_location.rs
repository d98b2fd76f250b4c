//! `plimsoll snapshot-location create`, `get` and `set`.

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::SecretKeySelector;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use plimsoll_api::velero::v1::{VolumeSnapshotLocation, VolumeSnapshotLocationSpec};
use serde_json::json;

use super::create::{metadata, pairs};
use crate::args::Global;
use crate::args::create::Marks;
use crate::args::plugins::{CreateSnapshotLocation, GetSnapshotLocations, SetSnapshotLocation, SnapshotLocation};
use crate::exit::{Outcome, Usage};
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
    let marks = Marks { labels: options.labels, ..Marks::default() };
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
    match api(global).await?.create(&PostParams::default(), &object).await {
        Ok(_) => output::line(format!("snapshot-location {} is made", options.name)),
        Err(kube::Error::Api(status)) if status.code == 409 => {
            bail!("snapshot-location {} exists already: choose another name", options.name)
        }
        Err(error) => return Err(error).with_context(|| format!("cannot make snapshot-location {}", options.name)),
    }
    Ok(())
}

fn credential(pair: &str) -> anyhow::Result<SecretKeySelector> {
    let Some((name, key)) = pair.split_once('=') else {
        bail!(Usage(format!("credential {pair:?} is not of the form SECRET=KEY")))
    };
    Ok(SecretKeySelector { name: name.to_owned(), key: key.to_owned(), optional: None })
}

async fn get(global: &Global, options: &GetSnapshotLocations) -> anyhow::Result<()> {
    let found = api(global).await?.list(&ListParams::default()).await.context("cannot list snapshot locations")?;
    let mut found = found.items;
    if let Some(missing) = options.names.iter().find(|name| !found.iter().any(|known| known.name_any() == **name)) {
        bail!("there is no snapshot-location {missing}");
    }
    found.retain(|known| options.names.is_empty() || options.names.contains(&known.name_any()));
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
    let changed = api(global).await?.patch(&options.name, &PatchParams::default(), &Patch::Merge(patch)).await;
    changed.with_context(|| format!("cannot change snapshot-location {}", options.name))?;
    output::line(format!("snapshot-location {} is changed", options.name));
    Ok(())
}
