//! Secrets: tokens of service accounts, which the cluster creates.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::Value;
use tokio::sync::OnceCell;

use super::super::action::{AdditionalResources, RestoreActionInput, RestoreActionOutput, RestoreItemAction};
use super::{remove_keys, text};
use crate::cluster::Cluster;

const TOKEN: &str = "kubernetes.io/service-account-token";

type Accounts = Arc<OnceCell<Vec<String>>>;

pub(super) struct SecretAction {
    cluster: Cluster,
    mapping: Arc<BTreeMap<String, String>>,
    /// Names of service accounts by namespace: read once, at the first token of a namespace.
    accounts: Mutex<HashMap<String, Accounts>>,
}

impl SecretAction {
    pub(super) fn new(cluster: Cluster, mapping: Arc<BTreeMap<String, String>>) -> Self {
        Self { cluster, mapping, accounts: Mutex::default() }
    }

    async fn accounts(&self, namespace: &str) -> Result<Vec<String>, String> {
        let cell = {
            let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(accounts.entry(namespace.to_owned()).or_default())
        };
        let read = || async {
            let api: Api<ServiceAccount> = Api::namespaced(self.cluster.client().clone(), namespace);
            let found = api.list(&ListParams::default()).await;
            let found =
                found.map_err(|error| format!("failed to list service accounts of namespace {namespace}: {error}"))?;
            Ok(found.iter().map(ResourceExt::name_any).collect())
        };
        cell.get_or_try_init(read).await.cloned()
    }
}

impl RestoreItemAction for SecretAction {
    fn execute<'a>(&'a self, input: RestoreActionInput<'a>) -> BoxFuture<'a, Result<RestoreActionOutput, String>> {
        Box::pin(async move {
            let mut output = RestoreActionOutput::of(input.item);
            if text(&output.item, "/type") != TOKEN {
                return Ok(output);
            }
            // Accounts are restored before secrets, so those of the target namespace decide.
            let namespace = text(&output.item, "/metadata/namespace").to_owned();
            let namespace = self.mapping.get(&namespace).unwrap_or(&namespace);
            let accounts = self.accounts(namespace).await?;
            output.skip = is_generated_token(text(&output.item, "/metadata/name"), &accounts);
            remove_token(&mut output.item);
            Ok(output)
        })
    }

    fn additional_resources(&self) -> AdditionalResources {
        AdditionalResources::None
    }
}

fn is_generated_token(secret: &str, accounts: &[String]) -> bool {
    accounts.iter().any(|account| secret.strip_prefix(account.as_str()).is_some_and(|rest| rest.starts_with("-token-")))
}

/// The API server rejects a secret with an old token.
fn remove_token(item: &mut Value) {
    remove_keys(item, "/metadata", "annotations", &["kubernetes.io/service-account.uid"]);
    remove_keys(item, "", "data", &["token", "ca.crt"]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn generated_tokens_are_recognized_by_name() {
        let accounts = ["default".to_owned(), "robot".to_owned()];
        assert!(is_generated_token("default-token-sfafa", &accounts));
        assert!(!is_generated_token("my-token", &accounts));
        assert!(!is_generated_token("robots-token-sfafa", &accounts));
    }

    #[test]
    fn the_old_token_is_removed() {
        let mut secret = json!({"type": TOKEN, "data": {"token": "x", "ca.crt": "y", "namespace": "z"},
            "metadata": {"annotations": {"kubernetes.io/service-account.uid": "u", "kubernetes.io/service-account.name": "n"}}});
        remove_token(&mut secret);
        assert_eq!(secret["data"], json!({"namespace": "z"}));
        assert_eq!(secret["metadata"]["annotations"], json!({"kubernetes.io/service-account.name": "n"}));
    }
}
