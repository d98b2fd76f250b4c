//! ServiceAccounts: adds their ClusterRoleBindings and ClusterRoles.

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use plimsoll_progress::{Clock, Operation};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::OnceCell;

use super::{BackupActionOutput, BackupItemAction, ItemId};
use crate::Error;
use crate::cluster::{Cluster, PageQuery, Resource, list_pages};

const BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";
const ROLES: &str = "clusterroles.rbac.authorization.k8s.io";

/// Reads bindings once for each backup, at the first account, and indexes them by `namespace/name` of the account.
pub(super) struct ServiceAccountAction {
    cluster: Cluster,
    by_account: OnceCell<BTreeMap<String, Vec<ItemId>>>,
}

impl ServiceAccountAction {
    pub(super) fn new(cluster: Cluster) -> Self {
        Self { cluster, by_account: OnceCell::new() }
    }

    async fn find_roles(&self, account: &Value) -> Result<BackupActionOutput, Error> {
        let text = |path: &str| account.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let key = format!("{}/{}", text("/metadata/namespace"), text("/metadata/name"));
        let by_account = self.by_account.get_or_try_init(|| read_bindings(&self.cluster)).await?;
        Ok(BackupActionOutput {
            additional: by_account.get(&key).cloned().unwrap_or_default(),
            ..BackupActionOutput::default()
        })
    }
}

impl BackupItemAction for ServiceAccountAction {
    fn execute<'a>(&'a self, item: &'a Value, _: &'a Value) -> BoxFuture<'a, Result<BackupActionOutput, Error>> {
        self.find_roles(item).boxed()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Binding {
    metadata: BindingMetadata,
    role_ref: Reference,
    #[serde(default)]
    subjects: Vec<Reference>,
}

#[derive(Deserialize)]
struct BindingMetadata {
    name: String,
}

#[derive(Deserialize)]
struct Reference {
    kind: String,
    name: String,
    #[serde(default)]
    namespace: String,
}

async fn read_bindings(cluster: &Cluster) -> Result<BTreeMap<String, Vec<ItemId>>, Error> {
    let resource = Resource {
        group: "rbac.authorization.k8s.io".into(),
        version: "v1".into(),
        plural: "clusterrolebindings".into(),
        kind: "ClusterRoleBinding".into(),
        namespaced: false,
        aliases: Vec::new(),
    };
    let hidden = Operation::new("cluster role bindings", Clock::system());
    let task = hidden.root();
    let query = PageQuery { limit: 500, ..PageQuery::default() };
    let mut found = std::pin::pin!(list_pages(cluster, &resource, query, &task, &|| {}));
    let mut by_account = BTreeMap::new();
    while let Some(page) = found.next().await {
        match page {
            // The cluster has no RBAC API.
            Err(error) if error.code() == Some(404) => break,
            page => page?.items.iter().for_each(|item| index_binding(&mut by_account, item)),
        }
    }
    Ok(by_account)
}

fn index_binding(by_account: &mut BTreeMap<String, Vec<ItemId>>, binding: &[u8]) {
    let Ok(binding) = serde_json::from_slice::<Binding>(binding) else { return };
    for account in binding.subjects.iter().filter(|subject| subject.kind == "ServiceAccount") {
        let items = by_account.entry(format!("{}/{}", account.namespace, account.name)).or_default();
        let needed = [(BINDINGS, &binding.metadata.name), (ROLES, &binding.role_ref.name)];
        for item in needed.map(|(resource, name)| ItemId::new(resource, None, name)) {
            if (item.group_resource == BINDINGS || binding.role_ref.kind == "ClusterRole") && !items.contains(&item) {
                items.push(item);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_adds_its_bindings_and_roles_once() {
        let mut by_account = BTreeMap::new();
        let binding = |name: &str| {
            format!(
                r#"{{"metadata":{{"name":"{name}"}},"roleRef":{{"kind":"ClusterRole","name":"admin"}},
                   "subjects":[{{"kind":"ServiceAccount","namespace":"shop","name":"deployer"}},{{"kind":"User","name":"x"}}]}}"#
            )
        };
        index_binding(&mut by_account, binding("one").as_bytes());
        index_binding(&mut by_account, binding("two").as_bytes());
        let expected = [(BINDINGS, "one"), (ROLES, "admin"), (BINDINGS, "two")]
            .map(|(resource, name)| ItemId::new(resource, None, name));
        assert_eq!(by_account["shop/deployer"], expected);
        assert_eq!(by_account.len(), 1);
    }
}
