//! What every namespace of a cluster has: the service account `default` and the authority behind the API's certificate.

use super::downward_api::DEFAULT_ACCOUNT;
use crate::{
    Core,
    failure::Failure,
    key::Key,
    object::{is_terminating, text},
};
use serde_json::{Value, json};

const ROOT_AUTHORITY: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints \
    such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of \
    Kubernetes clusters.";

/// Whether a change of such an object can leave a namespace without them.
pub(super) fn is_concern(key: &Key) -> bool {
    match &*key.resource {
        "namespaces" => true,
        "configmaps" => key.name == ROOT_AUTHORITY,
        "serviceaccounts" => key.name == DEFAULT_ACCOUNT,
        _ => false,
    }
}

/// Creates what is missing, and puts right what says something else, as after a restore from another cluster.
pub(super) async fn reconcile(core: &Core) -> Result<(), Failure> {
    let authority = core.listener.borrow().as_ref().map(|listener| json!({"ca.crt": listener.authority}));
    for namespace in core.all("namespaces")?.iter().filter(|namespace| !is_terminating(namespace)) {
        let name = text(namespace, "/metadata/name");
        let completed = complete(core, name, authority.as_ref()).await;
        // A namespace that goes meanwhile refuses both.
        if let Err(failure) = completed
            && ![403, 404].contains(&failure.code)
        {
            return Err(failure);
        }
    }
    Ok(())
}

async fn complete(core: &Core, namespace: &str, authority: Option<&Value>) -> Result<(), Failure> {
    let metadata = |name: &str| json!({"name": name, "namespace": namespace});
    if core.read("serviceaccounts", namespace, DEFAULT_ACCOUNT)?.is_none() {
        core.make("serviceaccounts", json!({"metadata": metadata(DEFAULT_ACCOUNT)})).await?;
    }
    let Some(authority) = authority.cloned() else { return Ok(()) };
    match core.read("configmaps", namespace, ROOT_AUTHORITY)? {
        None => {
            let mut metadata = metadata(ROOT_AUTHORITY);
            metadata["annotations"] = json!({"kubernetes.io/description": DESCRIPTION});
            core.make("configmaps", json!({"metadata": metadata, "data": authority})).await
        }
        Some(published) if published["data"] == authority => Ok(()),
        Some(_) => {
            let key = Key::new(&"configmaps".into(), namespace, ROOT_AUTHORITY);
            core.alter(&key, move |published| published["data"] = authority).await
        }
    }
}
