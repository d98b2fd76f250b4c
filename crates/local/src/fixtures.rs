//! What tests of other crates need of a cluster: definitions, namespaces, and waiting for what the cluster does in its own time.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::Instant;

/// Only a test that fails waits this long.
const EVENTUALLY_TIMEOUT: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Opens the API in a directory, with these definitions and namespaces.
///
/// # Panics
/// If that fails.
pub async fn open_api(
    directory: &Path,
    definitions: impl IntoIterator<Item = CustomResourceDefinition>,
    namespaces: &[&str],
) -> crate::Api {
    let api = crate::Api::open(directory).await.expect("the directory can be written");
    let created = create_definitions_and_namespaces(&api.client("default"), definitions, namespaces).await;
    created.expect("a new API has neither the definitions nor the namespaces");
    api
}

async fn create_definitions_and_namespaces(
    client: &Client,
    definitions: impl IntoIterator<Item = CustomResourceDefinition>,
    namespaces: &[&str],
) -> kube::Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in definitions {
        api.create(&PostParams::default(), &definition).await?;
    }
    for name in namespaces {
        create_namespace(client, name).await?;
    }
    Ok(())
}

/// The definitions of VolumeSnapshots, their contents and classes, without their schemas.
pub fn snapshot_definitions() -> impl Iterator<Item = CustomResourceDefinition> {
    let kinds =
        [("VolumeSnapshot", "Namespaced"), ("VolumeSnapshotContent", "Cluster"), ("VolumeSnapshotClass", "Cluster")];
    kinds.into_iter().map(|(kind, scope)| {
        let singular = kind.to_lowercase();
        let plural = if kind.ends_with('s') { format!("{singular}es") } else { format!("{singular}s") };
        let definition = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.snapshot.storage.k8s.io") },
            "spec": { "group": "snapshot.storage.k8s.io", "scope": scope,
                "names": { "kind": kind, "plural": plural, "singular": singular, "listKind": format!("{kind}List") },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema":
                    { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }] } });
        serde_json::from_value(definition).expect("every field is of the type that the definition wants")
    })
}

/// Creates a namespace.
pub async fn create_namespace(client: &Client, name: &str) -> kube::Result<()> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.map(|_| ())
}

/// Waits until `read` returns a value; panics after a minute.
pub async fn eventually<T>(what: &str, mut read: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + EVENTUALLY_TIMEOUT;
    loop {
        if let Some(value) = read().await {
            return value;
        }
        assert!(Instant::now() < deadline, "not within {EVENTUALLY_TIMEOUT:?}: {what}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
