//! What creating a backup and creating a restore have in common.

use std::collections::BTreeMap;
use std::fmt::Debug;

use anyhow::{Context, bail};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::PostParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::args::{Following, Global, Reference};
use crate::exit::Outcome;
use crate::{connect, output, wait};

/// Creates the object, or prints it; and waits if asked to.
pub async fn create<K>(
    global: &Global,
    object: &K,
    reference: Reference,
    following: &Following,
) -> anyhow::Result<Outcome>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Serialize,
{
    if let Some(format) = following.output {
        output::object(object, format)?;
        return Ok(Outcome::Success);
    }
    let (kind, name) = (reference.kind.word(), reference.name.clone());
    let client = connect::client(global).await?;
    let api: Api<K> = Api::namespaced(client.clone(), &global.namespace);
    match api.create(&PostParams::default(), object).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => {
            bail!(
                "{kind} {name} exists already: choose another name, or look at it with `plimsoll describe {kind}/{name}`"
            )
        }
        Err(kube::Error::Api(status)) if status.code == 404 => bail!(
            "namespace {} or the definition of {kind}s is missing: `plimsoll crds apply` installs the definitions ({})",
            global.namespace,
            status.message
        ),
        Err(error) => return Err(error).with_context(|| format!("cannot create {kind} {name}")),
    }
    if following.wait {
        return wait::until_ended(&client, &global.namespace, &reference).await;
    }
    output::line(format!("{kind} {name} is asked for. `plimsoll describe {kind}/{name}` shows how far it is."));
    Ok(Outcome::Success)
}

/// `a=b,c!=d` as the selector of a spec.
pub fn selector(text: &str) -> anyhow::Result<LabelSelector> {
    let parsed = plimsoll_select::labels::parse(text).with_context(|| format!("selector {text:?}"))?;
    Ok(serde_json::from_value(serde_json::to_value(parsed)?)?)
}

/// `a=b or c=d` as selectors, of which any may choose.
pub fn or_selectors(text: Option<&str>) -> anyhow::Result<Vec<LabelSelector>> {
    text.map_or_else(|| Ok(Vec::new()), |text| text.split(" or ").map(|part| selector(part.trim())).collect())
}

/// `a=b` as a map.
pub fn labels(pairs: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    pairs
        .iter()
        .map(|pair| {
            let (key, value) = pair.split_once('=').with_context(|| format!("label {pair:?} is not KEY=VALUE"))?;
            Ok((key.to_owned(), value.to_owned()))
        })
        .collect()
}
