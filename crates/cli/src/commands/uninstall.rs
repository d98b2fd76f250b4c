//! `plimsoll uninstall`: what `install` put there goes; what users made stays unless they say otherwise.

use anyhow::Context;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use plimsoll_api::labels::RESTORE_FINALIZER;
use plimsoll_api::velero::v1::Restore;
use serde_json::json;

use super::delete::ask;
use super::install::{api_of, name_of, object, removable};
use crate::args::Global;
use crate::args::install::Uninstall;
use crate::exit::Outcome;
use crate::{connect, output};

/// Takes it out.
pub async fn run(global: &Global, options: &Uninstall) -> anyhow::Result<Outcome> {
    let namespace = &global.namespace;
    if !options.confirm && !ask(&consequence(namespace, options))? {
        return Ok(Outcome::Success);
    }
    let client = connect::client(global).await?;
    for one in removable(namespace) {
        remove(&client, &one).await?;
    }
    if options.crds {
        // With the server gone nobody would ever let them go, and their definition would wait for them.
        release_restores(&client).await?;
        for definition in plimsoll_api::crds() {
            remove(
                &client,
                &object("apiextensions.k8s.io/v1", "CustomResourceDefinition", &definition.name_any(), None),
            )
            .await?;
        }
    }
    if options.delete_namespace {
        remove(&client, &object("v1", "Namespace", namespace, None)).await?;
    }
    output::line("plimsoll is uninstalled; what is in object storage stays");
    Ok(Outcome::Success)
}

fn consequence(namespace: &str, options: &Uninstall) -> String {
    let mut text = format!("This stops the server and the agents in namespace {namespace}.");
    if options.crds {
        text += " It deletes all Backups, Restores and Schedules of the cluster.";
    }
    if options.delete_namespace {
        text += &format!(" It deletes namespace {namespace} and everything in it, the repositories' password too.");
    }
    text
}

async fn remove(client: &Client, one: &serde_json::Value) -> anyhow::Result<()> {
    let name = one["metadata"]["name"].as_str().unwrap_or_default();
    match api_of(client, one).delete(name, &DeleteParams::background()).await {
        Ok(_) => output::line(format!("{} is deleted", name_of(one))),
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => return Err(error).with_context(|| format!("cannot delete {}", name_of(one))),
    }
    Ok(())
}

async fn release_restores(client: &Client) -> anyhow::Result<()> {
    let all: Api<Restore> = Api::all(client.clone());
    let found = match all.list(&ListParams::default()).await {
        Ok(found) => found.items,
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        Err(error) => return Err(error).context("cannot list restores"),
    };
    for restore in found.iter().filter(|restore| restore.finalizers().iter().any(|name| name == RESTORE_FINALIZER)) {
        let kept: Vec<_> = restore.finalizers().iter().filter(|name| *name != RESTORE_FINALIZER).collect();
        let api: Api<Restore> = Api::namespaced(client.clone(), &restore.namespace().unwrap_or_default());
        let patch = Patch::Merge(json!({ "metadata": { "finalizers": kept } }));
        let released = api.patch(&restore.name_any(), &PatchParams::default(), &patch).await;
        released.with_context(|| format!("cannot release restore {}", restore.name_any()))?;
    }
    Ok(())
}
