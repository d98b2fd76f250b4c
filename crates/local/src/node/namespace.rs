//! The objects that every namespace has: the service account `default` and the ConfigMap with the CA certificate.

use super::downward_api::DEFAULT_SERVICE_ACCOUNT;
use crate::{
    Core,
    key::Key,
    object::{is_terminating, text},
    status_error::StatusError,
};
use serde_json::{Value, json};

const ROOT_CA_CONFIG_MAP: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints \
    such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of \
    Kubernetes clusters.";

/// Whether a change of this object can leave a namespace without them.
pub(super) fn is_relevant(key: &Key) -> bool {
    match &*key.resource {
        "namespaces" => true,
        "configmaps" => key.name == ROOT_CA_CONFIG_MAP,
        "serviceaccounts" => key.name == DEFAULT_SERVICE_ACCOUNT,
        _ => false,
    }
}

/// Creates missing objects and corrects the CA certificate, which differs after a restore from another cluster.
pub(super) async fn reconcile(core: &Core) -> Result<(), StatusError> {
    let ca_data = core.endpoint.borrow().as_ref().map(|endpoint| json!({"ca.crt": endpoint.ca_certificate}));
    for namespace in core.list_all("namespaces")?.iter().filter(|namespace| !is_terminating(namespace)) {
        let name = text(namespace, "/metadata/name");
        let created = create_missing(core, name, ca_data.as_ref()).await;
        // A namespace that is deleted meanwhile rejects both.
        if let Err(failure) = created
            && ![403, 404].contains(&failure.code)
        {
            return Err(failure);
        }
    }
    Ok(())
}

async fn create_missing(core: &Core, namespace: &str, ca_data: Option<&Value>) -> Result<(), StatusError> {
    let metadata = |name: &str| json!({"name": name, "namespace": namespace});
    if core.read_object("serviceaccounts", namespace, DEFAULT_SERVICE_ACCOUNT)?.is_none() {
        core.create_if_absent("serviceaccounts", json!({"metadata": metadata(DEFAULT_SERVICE_ACCOUNT)})).await?;
    }
    let Some(ca_data) = ca_data.cloned() else { return Ok(()) };
    match core.read_object("configmaps", namespace, ROOT_CA_CONFIG_MAP)? {
        None => {
            let mut metadata = metadata(ROOT_CA_CONFIG_MAP);
            metadata["annotations"] = json!({"kubernetes.io/description": DESCRIPTION});
            core.create_if_absent("configmaps", json!({"metadata": metadata, "data": ca_data})).await
        }
        Some(published) if published["data"] == ca_data => Ok(()),
        Some(_) => {
            let key = Key::new(&"configmaps".into(), namespace, ROOT_CA_CONFIG_MAP);
            core.modify(&key, move |published| published["data"] = ca_data).await
        }
    }
}
