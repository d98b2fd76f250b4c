//! The ConfigMaps that users configure built-in actions by.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use crate::Error;

/// The data of the ConfigMap in namespace `home` that an action is configured by, to be read once for a restore; nothing if
/// there is none or it is empty.
pub async fn configuration(
    client: &Client,
    home: &str,
    action: &str,
) -> Result<Option<BTreeMap<String, String>>, Error> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), home);
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
                "item action {action} has more than one ConfigMap ({}): leave the labels {selector} on one of them",
                names.join(", ")
            )))
        }
    }
}
