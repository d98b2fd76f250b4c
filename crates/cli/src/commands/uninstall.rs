//! `plimsoll uninstall`: removes what `install` created. Objects of users stay, unless flags say otherwise.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use plimsoll_api::kanister::v1alpha1::ActionSet;
use plimsoll_api::labels::RESTORE_FINALIZER;
use plimsoll_api::velero::v1::Restore;
use plimsoll_controllers::ACTION_SET_FINALIZER;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::delete::ask_to_continue;
use super::install::{api_of, name_of, object, removable};
use crate::args::Global;
use crate::args::install::Uninstall;
use crate::exit::Outcome;
use crate::{connect, output};

/// The pods of the server and the agents.
const PODS: &str = "app.kubernetes.io/part-of=plimsoll";
/// How long they may take to terminate.
const POD_TIMEOUT: Duration = Duration::from_mins(1);

/// Uninstalls the server and the node agents.
pub async fn run(global: &Global, options: &Uninstall) -> anyhow::Result<Outcome> {
    let namespace = &global.namespace;
    if !options.confirm && !ask_to_continue(&consequence(namespace, options))? {
        return Ok(Outcome::Success);
    }
    let client = connect::client(global).await?;
    for one in removable(namespace) {
        remove(&client, &one).await?;
    }
    wait_for_pods(&client, namespace).await;
    remove_finalizers(&client, Some(namespace.as_str()).filter(|_| !options.crds)).await?;
    if options.crds {
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
    output::line("plimsoll uninstalled; backups in object storage stay");
    Ok(Outcome::Success)
}

fn consequence(namespace: &str, options: &Uninstall) -> String {
    let mut text = format!("This removes the server and the node agents from namespace {namespace}.");
    if options.crds {
        text += " It deletes all Backups, Restores, Schedules and ActionSets of the cluster.";
    }
    if options.delete_namespace {
        text += &format!(
            " It deletes namespace {namespace} and everything in it, including the password of the repositories."
        );
    }
    text
}

async fn remove(client: &Client, one: &serde_json::Value) -> anyhow::Result<()> {
    let name = one["metadata"]["name"].as_str().unwrap_or_default();
    match api_of(client, one).delete(name, &DeleteParams::background()).await {
        Ok(_) => output::line(format!("{} deleted", name_of(one))),
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Removes our finalizers. Without the server, deleted objects, their namespace and their definitions would terminate forever.
async fn remove_finalizers(client: &Client, namespace: Option<&str>) -> anyhow::Result<()> {
    remove_finalizer::<Restore>(client, namespace, RESTORE_FINALIZER).await?;
    remove_finalizer::<ActionSet>(client, namespace, ACTION_SET_FINALIZER).await
}

async fn remove_finalizer<K>(client: &Client, namespace: Option<&str>, finalizer: &str) -> anyhow::Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let all: Api<K> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let found = match all.list_metadata(&ListParams::default()).await {
        Ok(found) => found.items,
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for held in found.iter().filter(|held| held.finalizers().iter().any(|name| name == finalizer)) {
        let kept: Vec<_> = held.finalizers().iter().filter(|name| *name != finalizer).collect();
        let api: Api<K> = Api::namespaced(client.clone(), &held.namespace().unwrap_or_default());
        let patch = Patch::Merge(json!({ "metadata": { "finalizers": kept } }));
        match api.patch_metadata(&held.name_any(), &PatchParams::default(), &patch).await {
            Ok(_) => output::line(format!("{} {}: finalizer removed", K::kind(&()), held.name_any())),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Waits until our pods have terminated, so that none of them adds a finalizer. Bounded: a node may be unreachable.
async fn wait_for_pods(client: &Client, namespace: &str) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let ours = ListParams::default().labels(PODS);
    let gone = async {
        while pods.list_metadata(&ours).await.is_ok_and(|pods| !pods.items.is_empty()) {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    if tokio::time::timeout(POD_TIMEOUT, gone).await.is_err() {
        output::line("some pods of plimsoll are still terminating");
    }
}
