//! ConfigMaps that a spec refers to: what they say, or why that cannot be used.

use k8s_openapi::api::core::v1::{ConfigMap, TypedLocalObjectReference};
use kube::Api;
use plimsoll_engine::Error;
use plimsoll_select::resource_policies::ResourcePolicies;

use crate::context::Context;

/// The data of a ConfigMap that `field` refers to; the inner error is the user's.
pub async fn config_map(
    context: &Context,
    field: &str,
    reference: &TypedLocalObjectReference,
) -> Result<Result<std::collections::BTreeMap<String, String>, String>, Error> {
    let name = &reference.name;
    if !reference.kind.eq_ignore_ascii_case("configmap") {
        return Ok(Err(format!("{field}: kind {:?} is not supported, only \"configmap\" is", reference.kind)));
    }
    let api: Api<ConfigMap> = Api::namespaced(context.leader.client.clone(), &context.leader.namespace);
    let found = api.get_opt(name).await.map_err(|e| Error::api(format!("read ConfigMap {name}"), e))?;
    Ok(match found {
        Some(found) => Ok(found.data.unwrap_or_default()),
        None => Err(format!("{field}: ConfigMap {name} not found in namespace {}", context.leader.namespace)),
    })
}

/// The reference to a ConfigMap that an option of the server names.
pub fn config_map_reference(name: &str) -> TypedLocalObjectReference {
    TypedLocalObjectReference { api_group: None, kind: "configmap".to_owned(), name: name.to_owned() }
}

/// The policies of a Backup, followed by the volume policies of the server; the inner error is the user's.
pub async fn backup_policies(
    context: &Context,
    reference: Option<&TypedLocalObjectReference>,
) -> Result<Result<Option<ResourcePolicies>, String>, Error> {
    const FLAG: &str = "--global-backup-volume-policies-configmap";
    let own = match policies(context, reference).await? {
        Ok(own) => own,
        Err(fault) => return Ok(Err(fault)),
    };
    let Some(name) = &context.settings.defaults.volume_policies else { return Ok(Ok(own)) };
    let data = config_map(context, FLAG, &config_map_reference(name)).await?;
    Ok(data.and_then(|data| {
        let read = ResourcePolicies::from_config_map(&data);
        let global = read.map_err(|error| format!("{FLAG}: ConfigMap {name}: {error}"))?;
        Ok(Some(own.unwrap_or_default().with_fallback(&global)))
    }))
}

/// The policies of a `resourcePolicy`; the inner error is the user's.
pub async fn policies(
    context: &Context,
    reference: Option<&TypedLocalObjectReference>,
) -> Result<Result<Option<ResourcePolicies>, String>, Error> {
    const FIELD: &str = "spec.resourcePolicy";
    let Some(reference) = reference else { return Ok(Ok(None)) };
    let data = config_map(context, FIELD, reference).await?;
    Ok(data.and_then(|data| {
        let read = ResourcePolicies::from_config_map(&data);
        read.map(Some).map_err(|error| format!("{FIELD}: ConfigMap {}: {error}", reference.name))
    }))
}
