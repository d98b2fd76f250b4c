//! Secrets: tokens of service accounts, which the cluster fills in by itself.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::Value;
use tokio::sync::OnceCell;

use super::super::action::{Adds, Input, Output, RestoreItemAction};
use super::{remove_keys, text};
use crate::cluster::Cluster;

const TOKEN: &str = "kubernetes.io/service-account-token";

type Accounts = Arc<OnceCell<Vec<String>>>;

pub(super) struct SecretAction {
    cluster: Cluster,
    mapping: Arc<BTreeMap<String, String>>,
    /// The names of service accounts, by namespace: read once, when the first token of a namespace comes by.
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
    fn execute<'a>(&'a self, input: Input<'a>) -> BoxFuture<'a, Result<Output, String>> {
        Box::pin(async move {
            let mut output = Output::of(input.item);
            if text(&output.item, "/type") != TOKEN {
                return Ok(output);
            }
            // Accounts are restored before secrets: the ones that matter are where the secret goes.
            let namespace = text(&output.item, "/metadata/namespace").to_owned();
            let namespace = self.mapping.get(&namespace).unwrap_or(&namespace);
            let accounts = self.accounts(namespace).await?;
            output.skip = is_made_by_cluster(text(&output.item, "/metadata/name"), &accounts);
            forget_token(&mut output.item);
            Ok(output)
        })
    }

    fn adds(&self) -> Adds {
        Adds::Nothing
    }
}

fn is_made_by_cluster(secret: &str, accounts: &[String]) -> bool {
    accounts.iter().any(|account| secret.strip_prefix(account.as_str()).is_some_and(|rest| rest.starts_with("-token-")))
}

/// With an old token in it the secret would be refused.
fn forget_token(item: &mut Value) {
    remove_keys(item, "/metadata", "annotations", &["kubernetes.io/service-account.uid"]);
    remove_keys(item, "", "data", &["token", "ca.crt"]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_token_that_the_cluster_made_for_an_account_is_known_by_its_name() {
        let accounts = ["default".to_owned(), "robot".to_owned()];
        assert!(is_made_by_cluster("default-token-sfafa", &accounts));
        assert!(!is_made_by_cluster("my-token", &accounts));
        assert!(!is_made_by_cluster("robots-token-sfafa", &accounts));
    }

    #[test]
    fn a_token_that_somebody_asked_for_is_made_anew() {
        let mut secret = json!({"type": TOKEN, "data": {"token": "x", "ca.crt": "y", "namespace": "z"},
            "metadata": {"annotations": {"kubernetes.io/service-account.uid": "u", "kubernetes.io/service-account.name": "n"}}});
        forget_token(&mut secret);
        assert_eq!(secret["data"], json!({"namespace": "z"}));
        assert_eq!(secret["metadata"]["annotations"], json!({"kubernetes.io/service-account.name": "n"}));
    }
}
