//! The actions that are part of this program, by the names users know.
//!
//! Each is a small pure function on JSON where it can be; those that must look at the cluster look once for a restore, or once
//! for a namespace, never once for an item. `velero.io/pod-volume-restore` belongs to whoever moves the data of volumes: it
//! registers itself under that name, and the order of names puts it in its place.

mod admission_webhooks;
mod claim;
mod configuration;
mod definition;
mod image_name;
mod init_hook;
mod job;
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

use super::action::{Adds, Identifier, Input, Output, RestoreItemAction};
use super::hooks::RestoreHooks;
use crate::Error;
use crate::cluster::Cluster;
use crate::registry::{AppliesTo, Registry, Source};

/// The actions of restores.
pub type Actions = Registry<dyn RestoreItemAction>;

/// What the built-in actions need to know.
pub struct Surroundings<'a> {
    /// The cluster that is restored into.
    pub cluster: &'a Cluster,
    /// The namespace of the Restore, where the actions' ConfigMaps are.
    pub home: &'a str,
    /// The Restore.
    pub restore: &'a Restore,
    /// Its hooks, compiled.
    pub hooks: Arc<RestoreHooks>,
}

/// Registers the built-in actions. Reads the ConfigMaps that some of them are configured by.
pub async fn register_built_ins(
    actions: &mut Actions,
    surroundings: &Surroundings<'_>,
    mapper: &(impl ResourceMapper + ?Sized),
) -> Result<(), Error> {
    let spec = &surroundings.restore.spec;
    let mapping = Arc::new(spec.namespace_mapping.clone());
    let mut register = |name: &str, applies: AppliesTo, action: Arc<dyn RestoreItemAction>| {
        actions.register(Source::BuiltIn(1), name, &applies, mapper, action)
    };
    let only = |name: &str| AppliesTo::resources([name]);
    register("velero.io/job", only("jobs.batch"), sure(Adds::Nothing, job::act))?;
    register("velero.io/pod", only("pods"), sure(pod::ADDS, pod::act))?;
    register("velero.io/add-pvc-from-pod", only("pods"), sure(pod::ADDS_CLAIMS, pod::add_claims))?;
    register("velero.io/pvc", only("persistentvolumeclaims"), sure(claim::ADDS, claim::act))?;
    register("velero.io/service-account", only("serviceaccounts"), sure(Adds::Nothing, service_account::act))?;
    register(
        "velero.io/crd-preserve-fields",
        only("customresourcedefinitions.apiextensions.k8s.io"),
        sure(Adds::Nothing, definition::act),
    )?;
    register(
        "velero.io/apiservice",
        only("apiservices.apiregistration.k8s.io").labelled(AUTOMANAGED),
        sure(Adds::Nothing, leave_out),
    )?;
    register(
        "velero.io/admission-webhook-configuration",
        AppliesTo::resources([
            "mutatingwebhookconfigurations.admissionregistration.k8s.io",
            "validatingwebhookconfigurations.admissionregistration.k8s.io",
        ]),
        sure(Adds::Nothing, admission_webhooks::act),
    )?;
    let preserve = spec.preserve_node_ports == Some(true);
    register("velero.io/service", only("services"), pure(Adds::Nothing, move |item, _| service::act(item, preserve)))?;
    for (name, resource) in [("role-bindings", "rolebindings"), ("cluster-role-bindings", "clusterrolebindings")] {
        let mapping = Arc::clone(&mapping);
        register(
            &format!("velero.io/{name}"),
            only(&format!("{resource}.rbac.authorization.k8s.io")),
            sure(Adds::Nothing, move |item, _| role_binding::act(item, &mapping)),
        )?;
    }
    let hooks = Arc::clone(&surroundings.hooks);
    register(
        "velero.io/init-restore-hook",
        only("pods"),
        pure(Adds::Nothing, move |item, _| init_hook::act(item, &hooks)),
    )?;
    let secrets = secret::SecretAction::new(surroundings.cluster.clone(), mapping);
    register("velero.io/secret", only("secrets"), Arc::new(secrets))?;
    if let Some(action) = image_name::ImageNames::read(surroundings).await? {
        register(
            "velero.io/change-image-name",
            AppliesTo::resources(image_name::RESOURCES),
            sure(Adds::Nothing, move |item, _| action.act(item)),
        )?;
    }
    if let Some(action) = storage_class::StorageClasses::read(surroundings).await? {
        register("velero.io/change-storage-class", AppliesTo::resources(storage_class::RESOURCES), Arc::new(action))?;
    }
    Ok(())
}

/// API services that the API server makes by itself.
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

fn leave_out(_: &mut Value, _: &Value) -> Said {
    Said { skip: true, ..Said::default() }
}

/// What a pure action says beside changing the object.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    additional: Vec<Identifier>,
    skip: bool,
}

/// An action that is a function of the object, and of the object as it lies in the backup.
struct Pure<F> {
    adds: Adds,
    act: F,
}

fn pure<F>(adds: Adds, act: F) -> Arc<dyn RestoreItemAction>
where
    F: Fn(&mut Value, &Value) -> Result<Said, String> + Send + Sync + 'static,
{
    Arc::new(Pure { adds, act })
}

/// One that cannot fail.
fn sure<F>(adds: Adds, act: F) -> Arc<dyn RestoreItemAction>
where
    F: Fn(&mut Value, &Value) -> Said + Send + Sync + 'static,
{
    pure(adds, move |item, from_backup| Ok(act(item, from_backup)))
}

impl<F> RestoreItemAction for Pure<F>
where
    F: Fn(&mut Value, &Value) -> Result<Said, String> + Send + Sync,
{
    fn execute<'a>(&'a self, input: Input<'a>) -> BoxFuture<'a, Result<Output, String>> {
        let Input { mut item, from_backup, .. } = input;
        let said = (self.act)(&mut item, from_backup);
        Box::pin(async move { said.map(|Said { additional, skip }| Output { additional, skip, ..Output::of(item) }) })
    }

    fn adds(&self) -> Adds {
        self.adds
    }
}

/// The text at a place, empty if there is none.
fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The map at a place.
fn map_at<'a>(value: &'a mut Value, pointer: &str) -> Option<&'a mut Map<String, Value>> {
    value.pointer_mut(pointer).and_then(Value::as_object_mut)
}

/// The list at a place, to be changed; nothing if there is none.
fn list_at<'a>(value: &'a mut Value, pointer: &str) -> &'a mut [Value] {
    value.pointer_mut(pointer).and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}

/// Takes entries off the map at a place, and the map itself if nothing is left of it.
fn remove_keys(value: &mut Value, parent: &str, field: &str, keys: &[&str]) {
    let Some(parent) = map_at(value, parent) else { return };
    if let Some(map) = parent.get_mut(field).and_then(Value::as_object_mut) {
        map.retain(|key, _| !keys.contains(&key.as_str()));
        if map.is_empty() {
            parent.remove(field);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_api_service_that_the_api_server_makes_by_itself_is_left_out() {
        assert!(leave_out(&mut json!({}), &json!({})).skip);
    }

    #[test]
    fn a_map_that_loses_its_last_key_goes_too() {
        let mut item = json!({"metadata": {"annotations": {"a": "1"}, "name": "x"}});
        remove_keys(&mut item, "/metadata", "annotations", &["a"]);
        assert_eq!(item, json!({"metadata": {"name": "x"}}));
    }
}
