//! Creating objects of all kinds, and parsing arguments into parts of a spec.

use std::collections::BTreeMap;
use std::fmt::Debug;

use anyhow::Context;
use jiff::{Timestamp, tz::TimeZone};
use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{ObjectMeta, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::args::Global;
use crate::args::create::MetadataOptions;
use crate::args::names::{Reference, ResourceKind};
use crate::args::options::CreationOptions;
use crate::errors::{Hint, UsageError};
use crate::exit::Outcome;
use crate::{connect, output, wait};

/// Creates the object, or prints it; and waits if asked to.
pub async fn create<K>(
    global: &Global,
    object: &K,
    reference: &Reference,
    creation: &CreationOptions,
) -> anyhow::Result<Outcome>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Serialize,
{
    if let Some(format) = creation.output {
        output::object(object, format)?;
        return Ok(Outcome::Success);
    }
    let client = connect::client(global).await?;
    send(&client, &global.namespace, object, reference).await?;
    if creation.wait || creation.events.is_some() {
        return wait::until_ended(&client, &global.namespace, reference, creation.events).await;
    }
    let Reference { kind, name } = reference;
    let kind = kind.word();
    output::line(format!("{kind}/{name} created; follow it with `plimsoll watch {kind}/{name}`"));
    Ok(Outcome::Success)
}

/// Sends it to the API server.
pub async fn send<K>(client: &Client, namespace: &str, object: &K, reference: &Reference) -> anyhow::Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Serialize,
{
    let (kind, name) = (reference.kind.word(), &reference.name);
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    match api.create(&PostParams::default(), object).await {
        Ok(_) => Ok(()),
        Err(error) if is_code(&error, 409) => {
            Err(error).context(Hint(format!("choose another name, or see it with `plimsoll describe {kind}/{name}`")))
        }
        // The namespace is missing, or the definition.
        Err(error) if is_code(&error, 404) => Err(error).context(Hint(format!(
            "create namespace {namespace}, or install the definitions with `plimsoll crds apply`"
        ))),
        Err(error) => Err(error.into()),
    }
}

fn is_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// The metadata of an object that is created.
pub fn metadata(global: &Global, name: &str, marks: &MetadataOptions) -> anyhow::Result<ObjectMeta> {
    let some = |map: BTreeMap<_, _>| Some(map).filter(|map| !map.is_empty());
    Ok(ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(global.namespace.clone()),
        labels: some(pairs("label", &marks.labels)?),
        annotations: some(pairs("annotation", &marks.annotations)?),
        ..ObjectMeta::default()
    })
}

/// A name and the time, as the `velero` command line generates names.
pub fn name_with_time(name: &str, now: Timestamp) -> String {
    format!("{name}-{}", now.to_zoned(TimeZone::UTC).strftime("%Y%m%d%H%M%S"))
}

/// `a=b,c!=d` as the selector of a spec.
pub fn selector(text: &str) -> anyhow::Result<LabelSelector> {
    let parsed = plimsoll_select::labels::parse(text)
        .map_err(|error| UsageError(format!("invalid selector {text:?}: {error}")))?;
    let mut selector: LabelSelector = serde_json::from_value(serde_json::to_value(parsed)?)?;
    // In Velero's order, so that the same words make the same object.
    if let Some(expressions) = &mut selector.match_expressions {
        expressions.sort_by(|a, b| a.key.cmp(&b.key));
        expressions.iter_mut().filter_map(|expression| expression.values.as_mut()).for_each(|values| values.sort());
    }
    Ok(selector)
}

/// `a=b or c=d` as selectors, of which any may choose.
pub fn or_selectors(text: Option<&str>) -> anyhow::Result<Vec<LabelSelector>> {
    text.map_or_else(|| Ok(Vec::new()), |text| text.split(" or ").map(|part| selector(part.trim())).collect())
}

/// `a=b` as a map.
pub fn pairs(what: &str, pairs: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    separated(what, '=', pairs.iter().map(String::as_str))
}

/// `a<separator>b` as a map.
pub fn separated<'a>(
    what: &str,
    separator: char,
    pairs: impl Iterator<Item = &'a str>,
) -> anyhow::Result<BTreeMap<String, String>> {
    let split = |pair: &'a str| {
        let (key, value) = pair
            .split_once(separator)
            .ok_or_else(|| UsageError(format!("invalid {what} {pair:?}: expected KEY{separator}VALUE")))?;
        anyhow::Ok((key.trim().to_owned(), value.trim().to_owned()))
    };
    pairs.map(split).collect()
}

/// Everything, unless something is named.
pub fn or_everything(names: &[String]) -> Vec<String> {
    if names.is_empty() { vec!["*".to_owned()] } else { names.to_vec() }
}

/// A ConfigMap, as specs refer to it.
pub fn config_map(name: Option<&String>) -> Option<TypedLocalObjectReference> {
    name.map(|name| TypedLocalObjectReference { api_group: None, kind: "configmap".to_owned(), name: name.clone() })
}

/// Refers to an object of a kind.
pub fn reference(kind: ResourceKind, name: &str) -> Reference {
    Reference { kind, name: name.to_owned() }
}
