//! A Kubernetes namespace for one test.

use anyhow::Result;
use k8s_openapi::api::core::v1::{Namespace as KubernetesNamespace, ServiceAccount};
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::{Api, Client, Config};

use crate::wait;

/// A namespace that is deleted when this is dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    config: Config,
}

impl Namespace {
    /// Creates a namespace with a unique name and waits until pods can be created in it.
    pub(crate) async fn create(config: Config, prefix: &str) -> Result<Self> {
        let client = Client::try_from(config.clone())?;
        let metadata = ObjectMeta { generate_name: Some(format!("{prefix}-")), ..ObjectMeta::default() };
        let wanted = KubernetesNamespace { metadata, ..KubernetesNamespace::default() };
        let created = Api::all(client.clone()).create(&PostParams::default(), &wanted).await?;
        let namespace = Self { name: created.metadata.name.unwrap_or_default(), config };
        // The API server rejects pods without the default service account.
        let accounts: Api<ServiceAccount> = Api::namespaced(client, &namespace.name);
        wait::until("the default account", wait::WAIT_TIMEOUT, || accounts.get_opt("default")).await?;
        Ok(namespace)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Namespace {
    /// Requests its deletion without waiting for it.
    fn drop(&mut self) {
        let (name, config) = (self.name.clone(), self.config.clone());
        let _ = crate::blocking::run(async move {
            let namespaces: Api<KubernetesNamespace> = Api::all(Client::try_from(config)?);
            Ok(namespaces.delete(&name, &DeleteParams::default()).await.map(|_| ())?)
        });
    }
}
