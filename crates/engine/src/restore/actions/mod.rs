//! Built-in restore item actions, with the names that Velero uses.
//!
//! Most are fallible_action functions on JSON. Those that read from the cluster do so once for each restore or namespace, never for each
//! item. The crate `volumes` registers `velero.io/pod-volume-restore`.

mod admission_webhooks;
mod configuration;
mod custom_resource_definition;
mod image_name;
mod init_hook;
mod job;
mod persistent_volume_claim;
mod pod;
mod role_binding;
mod secret;
mod service;
mod service_account;
mod storage_class;

use std::sync::Arc;

use futures::future::BoxFuture;
use plimsoll_api::velero::v1::Restore;
use plimsoll_select::resources::ResourceMapper;
use serde_json::{Map, Value};

pub use self::configuration::configuration;

use super::action::{AdditionalResources, ItemId, RestoreActionInput, RestoreActionOutput, RestoreItemAction};
use super::hooks::RestoreHooks;
use crate::Error;
use crate::cluster::Cluster;
use crate::registry::{AppliesTo, Registry, Source};

/// The restore item actions.
pub type Actions = Registry<dyn RestoreItemAction>;

/// Dependencies of the built-in actions.
pub struct ActionContext<'a> {
    /// The target cluster.
    pub cluster: &'a Cluster,
    /// The namespace of the Restore and of the ConfigMaps of the actions.
    pub namespace: &'a str,
    /// The Restore.
    pub restore: &'a Restore,
    /// The compiled hooks.
    pub hooks: Arc<RestoreHooks>,
}

/// Registers the built-in actions and reads their ConfigMaps.
pub async fn register_built_ins(
    actions: &mut Actions,
    context: &ActionContext<'_>,
    mapper: &(impl ResourceMapper + ?Sized),
) -> Result<(), Error> {
    let spec = &context.restore.spec;
    let mapping = Arc::new(spec.namespace_mapping.clone());
    let mut register = |name: &str, applies: AppliesTo, action: Arc<dyn RestoreItemAction>| {
        actions.register(Source::BuiltIn(1), name, &applies, mapper, action)
    };
    let only = |name: &str| AppliesTo::resources([name]);
    register("velero.io/job", only("jobs.batch"), infallible_action(AdditionalResources::None, job::apply))?;
    register("velero.io/pod", only("pods"), infallible_action(pod::ADDS, pod::apply))?;
    register("velero.io/add-pvc-from-pod", only("pods"), infallible_action(pod::ADDS_CLAIMS, pod::add_claims))?;
    register(
        "velero.io/pvc",
        only("persistentvolumeclaims"),
        infallible_action(persistent_volume_claim::ADDS, persistent_volume_claim::apply),
    )?;
    register(
        "velero.io/service-account",
        only("serviceaccounts"),
        infallible_action(AdditionalResources::None, service_account::apply),
    )?;
    register(
        "velero.io/crd-preserve-fields",
        only("customresourcedefinitions.apiextensions.k8s.io"),
        infallible_action(AdditionalResources::None, custom_resource_definition::apply),
    )?;
    register(
        "velero.io/apiservice",
        only("apiservices.apiregistration.k8s.io").with_labels(AUTOMANAGED),
        infallible_action(AdditionalResources::None, skip_item),
    )?;
    register(
        "velero.io/admission-webhook-configuration",
        AppliesTo::resources([
            "mutatingwebhookconfigurations.admissionregistration.k8s.io",
            "validatingwebhookconfigurations.admissionregistration.k8s.io",
        ]),
        infallible_action(AdditionalResources::None, admission_webhooks::apply),
    )?;
    let preserve = spec.preserve_node_ports == Some(true);
    register(
        "velero.io/service",
        only("services"),
        fallible_action(AdditionalResources::None, move |item, _| service::apply(item, preserve)),
    )?;
    for (name, resource) in [("role-bindings", "rolebindings"), ("cluster-role-bindings", "clusterrolebindings")] {
        let mapping = Arc::clone(&mapping);
        register(
            &format!("velero.io/{name}"),
            only(&format!("{resource}.rbac.authorization.k8s.io")),
            infallible_action(AdditionalResources::None, move |item, _| role_binding::apply(item, &mapping)),
        )?;
    }
    let hooks = Arc::clone(&context.hooks);
    register(
        "velero.io/init-restore-hook",
        only("pods"),
        fallible_action(AdditionalResources::None, move |item, _| init_hook::apply(item, &hooks)),
    )?;
    let secrets = secret::SecretAction::new(context.cluster.clone(), mapping);
    register("velero.io/secret", only("secrets"), Arc::new(secrets))?;
    if let Some(action) = image_name::ImageNames::read(context).await? {
        register(
            "velero.io/change-image-name",
            AppliesTo::resources(image_name::RESOURCES),
            infallible_action(AdditionalResources::None, move |item, _| action.apply(item)),
        )?;
    }
    if let Some(action) = storage_class::StorageClasses::read(context).await? {
        register("velero.io/change-storage-class", AppliesTo::resources(storage_class::RESOURCES), Arc::new(action))?;
    }
    Ok(())
}

/// Label of API services that the API server creates.
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

fn skip_item(_: &mut Value, _: &Value) -> ActionEffect {
    ActionEffect { skip: true, ..ActionEffect::default() }
}

/// Additional result of an action on JSON.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ActionEffect {
    additional: Vec<ItemId>,
    skip: bool,
}

/// An action that is a function of the item and of the item in the backup.
struct FunctionAction<F> {
    adds: AdditionalResources,
    apply: F,
}

fn fallible_action<F>(adds: AdditionalResources, apply: F) -> Arc<dyn RestoreItemAction>
where
    F: Fn(&mut Value, &Value) -> Result<ActionEffect, String> + Send + Sync + 'static,
{
    Arc::new(FunctionAction { adds, apply })
}

/// An action that cannot fail.
fn infallible_action<F>(adds: AdditionalResources, apply: F) -> Arc<dyn RestoreItemAction>
where
    F: Fn(&mut Value, &Value) -> ActionEffect + Send + Sync + 'static,
{
    fallible_action(adds, move |item, from_backup| Ok(apply(item, from_backup)))
}

impl<F> RestoreItemAction for FunctionAction<F>
where
    F: Fn(&mut Value, &Value) -> Result<ActionEffect, String> + Send + Sync,
{
    fn execute<'a>(&'a self, input: RestoreActionInput<'a>) -> BoxFuture<'a, Result<RestoreActionOutput, String>> {
        let RestoreActionInput { mut item, from_backup, .. } = input;
        let effect = (self.apply)(&mut item, from_backup);
        Box::pin(async move {
            effect.map(|ActionEffect { additional, skip }| RestoreActionOutput {
                additional,
                skip,
                ..RestoreActionOutput::of(item)
            })
        })
    }

    fn additional_resources(&self) -> AdditionalResources {
        self.adds
    }
}

/// The string at a pointer; empty if there is none.
fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The map at a pointer.
fn map_at<'a>(value: &'a mut Value, pointer: &str) -> Option<&'a mut Map<String, Value>> {
    value.pointer_mut(pointer).and_then(Value::as_object_mut)
}

/// The list at a pointer; empty if there is none.
fn list_at<'a>(value: &'a mut Value, pointer: &str) -> &'a mut [Value] {
    value.pointer_mut(pointer).and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}

/// Removes keys of a map, and the map itself if it becomes empty.
fn remove_keys(value: &mut Value, parent: &str, field: &str, keys: &[&str]) {
    let Some(parent) = map_at(value, parent) else { return };
    if let Some(map) = parent.get_mut(field).and_then(Value::as_object_mut) {
        map.retain(|key, _| !keys.contains(&key.as_str()));
        if map.is_empty() {
            parent.remove(field);
        }
    }
}

/// The item after an action that reads nothing else.
#[cfg(test)]
fn applied(action: impl Fn(&mut Value, &Value) -> ActionEffect, mut item: Value) -> Value {
    action(&mut item, &Value::Null);
    item
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn automanaged_api_services_are_skipped() {
        assert!(skip_item(&mut json!({}), &json!({})).skip);
    }

    #[test]
    fn an_empty_map_is_removed() {
        let mut item = json!({"metadata": {"annotations": {"a": "1"}, "name": "x"}});
        remove_keys(&mut item, "/metadata", "annotations", &["a"]);
        assert_eq!(item, json!({"metadata": {"name": "x"}}));
    }
}
