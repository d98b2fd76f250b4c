//! ConfigMaps of built-in actions.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use crate::Error;

/// Reads the ConfigMap of an action; `None` if it does not exist or is empty. To be called once for each restore.
pub async fn configuration(
    client: &Client,
    namespace: &str,
    action: &str,
) -> Result<Option<BTreeMap<String, String>>, Error> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let selector = format!("velero.io/plugin-config,{action}=RestoreItemAction");
    let found = maps.list(&ListParams::default().labels(&selector)).await;
    let found =
        found.map_err(|error| Error::api(format!("read the configuration of item action {action}"), error))?.items;
    match found.as_slice() {
        [] => Ok(None),
        [one] => Ok(one.data.clone().filter(|data| !data.is_empty())),
        several => {
            let names: Vec<String> = several.iter().map(ResourceExt::name_any).collect();
            Err(Error::Selection(format!(
                "item action {action} has more than one ConfigMap ({}); remove the labels {selector} from all but one",
                names.join(", ")
            )))
        }
    }
}
