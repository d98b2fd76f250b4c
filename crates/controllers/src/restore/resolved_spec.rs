//! The ConfigMaps that a Restore refers to, read and compiled.

use plimsoll_api::velero::v1::RestoreSpec;
use plimsoll_engine::Error;
use plimsoll_engine::item_filter::ItemFilter;
use plimsoll_engine::restore::ResolvedSpec;
use plimsoll_engine::restore::hooks::RestoreHooks;
use plimsoll_select::resource_modifiers::ResourceModifiers;
use plimsoll_select::resource_policies::ResourcePolicies;

use crate::context::Context;
use crate::resource_policy;

/// Reads what a Restore refers to; the inner error is the user's.
pub(super) async fn resolve_spec(context: &Context, spec: &RestoreSpec) -> Result<Result<ResolvedSpec, String>, Error> {
    let policies = match resource_policy::policies(context, spec.resource_policy.as_ref()).await? {
        Ok(policies) => policies,
        Err(fault) => return Ok(Err(fault)),
    };
    if let Some(Err(error)) = policies.as_ref().map(ResourcePolicies::validate_for_restore) {
        return Ok(Err(format!("spec.resourcePolicy: {error}")));
    }
    let modifiers = match modifiers(context, spec).await? {
        Ok(modifiers) => modifiers,
        Err(fault) => return Ok(Err(fault)),
    };
    Ok(match (RestoreHooks::new(spec), ItemFilter::for_restore(spec, policies.as_ref(), &[])) {
        (Ok(hooks), Ok(_)) => Ok(ResolvedSpec { policies, modifiers, hooks }),
        (Err(error), _) | (_, Err(error)) => Err(error.to_string()),
    })
}

/// The rules of `resourceModifier`; the inner error is the user's.
async fn modifiers(context: &Context, spec: &RestoreSpec) -> Result<Result<Option<ResourceModifiers>, String>, Error> {
    const FIELD: &str = "spec.resourceModifier";
    let Some(reference) = &spec.resource_modifier else { return Ok(Ok(None)) };
    let data = resource_policy::config_map(context, FIELD, reference).await?;
    Ok(data.and_then(|data| {
        let read = ResourceModifiers::from_config_map(&data);
        read.map(Some).map_err(|error| format!("{FIELD}: ConfigMap {}: {error}", reference.name))
    }))
}
