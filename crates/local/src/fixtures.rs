//! What tests of other crates need of a cluster: definitions, namespaces, and waiting for what the cluster does in its own time.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::time::Instant;

/// Only a test that fails waits this long.
const EVENTUALLY_TIMEOUT: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Creates CustomResourceDefinitions, then namespaces.
pub async fn create_definitions_and_namespaces(
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
