//! The ConfigMaps that a Restore refers to, read and compiled.

use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use plimsoll_api::velero::v1::RestoreSpec;
use plimsoll_engine::Error;
use plimsoll_engine::item_filter::ItemFilter;
use plimsoll_engine::restore::ResolvedSpec;
use plimsoll_engine::restore::hooks::RestoreHooks;
use plimsoll_select::resource_modifiers::ResourceModifiers;
use plimsoll_select::resource_policies::ResourcePolicies;

use crate::context::Context;
use crate::resource_policy::{self, config_map_reference};

/// Reads what a Restore refers to; the inner error is the user's.
pub(super) async fn resolve_spec(context: &Context, spec: &RestoreSpec) -> Result<Result<ResolvedSpec, String>, Error> {
    let policies = match resource_policy::policies(context, spec.resource_policy.as_ref()).await? {
        Ok(policies) => policies,
        Err(fault) => return Ok(Err(fault)),
    };
    if let Some(Err(error)) = policies.as_ref().map(ResourcePolicies::validate_for_restore) {
        return Ok(Err(format!("spec.resourcePolicy: {error}")));
    }
    let (modifiers, warning) = match modifiers(context, spec).await? {
        Ok(modifiers) => modifiers,
        Err(fault) => return Ok(Err(fault)),
    };
    let warnings = warning.into_iter().collect();
    Ok(match (RestoreHooks::new(spec), ItemFilter::for_restore(spec, policies.as_ref(), &[])) {
        (Ok(hooks), Ok(_)) => Ok(ResolvedSpec { policies, modifiers, hooks, warnings }),
        (Err(error), _) | (_, Err(error)) => Err(error.to_string()),
    })
}

/// The rules of a restore, and a warning.
type Modifiers = (Option<ResourceModifiers>, Option<String>);

/// The rules of `resourceModifier`, or else those of the server; the inner error is the user's. A restore goes on without rules
/// of the server that cannot be used, with a warning, as in Velero: it may be the restore that brings them back.
async fn modifiers(context: &Context, spec: &RestoreSpec) -> Result<Result<Modifiers, String>, Error> {
    const FIELD: &str = "spec.resourceModifier";
    const FLAG: &str = "--default-resource-modifier-configmap";
    if let Some(reference) = &spec.resource_modifier {
        return Ok(read_modifiers(context, FIELD, reference).await?.map(|modifiers| (Some(modifiers), None)));
    }
    let Some(name) = &context.settings.defaults.resource_modifier else { return Ok(Ok((None, None))) };
    Ok(Ok(match read_modifiers(context, FLAG, &config_map_reference(name)).await? {
        Ok(modifiers) => (Some(modifiers), None),
        Err(fault) => (None, Some(format!("the default resource modifier is not applied: {fault}"))),
    }))
}

async fn read_modifiers(
    context: &Context,
    field: &str,
    reference: &TypedLocalObjectReference,
) -> Result<Result<ResourceModifiers, String>, Error> {
    let data = resource_policy::config_map(context, field, reference).await?;
    Ok(data.and_then(|data| {
        let read = ResourceModifiers::from_config_map(&data);
        read.map_err(|error| format!("{field}: ConfigMap {}: {error}", reference.name))
    }))
}
