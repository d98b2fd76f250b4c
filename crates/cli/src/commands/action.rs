//! `plimsoll action create|watch|logs`.

use std::collections::BTreeMap;

use anyhow::bail;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ApiResource, DynamicObject, ListParams, ObjectMeta};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use plimsoll_api::kanister::v1alpha1::{
    ActionSet, ActionSetSpec, ActionSpec, ActionState, Artifact, Blueprint, ObjectReference, Profile,
};
use plimsoll_api::plimsoll::v1alpha1::LogTail;
use plimsoll_blueprint::params;

use super::create::{pairs, reference, send};
use super::logs;
use crate::args::Global;
use crate::args::action::{CreateAction, LogsAction, WatchAction};
use crate::args::names::{Reference, ResourceKind};
use crate::args::options::ObjectFormat;
use crate::errors::UsageError;
use crate::exit::Outcome;
use crate::{connect, output, subjects, wait};

/// Creates an ActionSet, or prints it.
pub async fn create(global: &Global, options: CreateAction) -> anyhow::Result<Outcome> {
    let client = connect::client(global).await?;
    let parent = match &options.from {
        Some(name) => Some(parent(&client, &global.namespace, name).await?),
        None => None,
    };
    let set = build(&client, global, &options, parent.as_ref()).await?;
    if options.dry_run {
        output::object(&set, ObjectFormat::Yaml)?;
        return Ok(Outcome::Success);
    }
    if !options.skip_validation {
        check(&client, &global.namespace, &set).await?;
    }
    let reference = reference(ResourceKind::Action, &set.name_any());
    send(&client, &global.namespace, &set, &reference).await?;
    if options.wait || options.events.is_some() {
        return wait::until_ended(&client, &global.namespace, &reference, options.events).await;
    }
    output::line(format!(
        "actionset/{name} created; follow it with `plimsoll watch actionset/{name}`",
        name = set.name_any()
    ));
    Ok(Outcome::Success)
}

async fn parent(client: &Client, namespace: &str, name: &str) -> anyhow::Result<ActionSet> {
    let api: Api<ActionSet> = Api::namespaced(client.clone(), namespace);
    let found = api.get(name).await?;
    let state = found.status.as_ref().and_then(|status| status.state.clone()).unwrap_or_default();
    if state != ActionState::Complete {
        bail!("ActionSet {name} is {state}; only a complete one can be the parent of another");
    }
    Ok(found)
}

async fn build(
    client: &Client,
    global: &Global,
    options: &CreateAction,
    parent: Option<&ActionSet>,
) -> anyhow::Result<ActionSet> {
    let targets = targets(client, options).await?;
    let actions = match parent {
        Some(parent) => from_parent(options, parent, &targets, global)?,
        None => from_scratch(options, &targets, global)?,
    };
    if actions.is_empty() {
        bail!(UsageError(
            "no target: pass --deployment, --statefulset, --pvc, --namespacetargets, --objects, --selector or --from"
                .into()
        ));
    }
    let labels = pairs("label", &options.labels)?;
    let metadata = ObjectMeta {
        name: Some(
            options.name.clone().unwrap_or_else(|| generate_name(options.action.as_deref(), options.from.as_deref())),
        ),
        namespace: Some(global.namespace.clone()),
        labels: Some(labels).filter(|labels| !labels.is_empty()),
        ..ObjectMeta::default()
    };
    Ok(ActionSet { metadata, spec: ActionSetSpec { actions, ..ActionSetSpec::default() }, status: None })
}

/// Action, parent and five random characters.
fn generate_name(action: Option<&str>, parent: Option<&str>) -> String {
    let random = uuid::Uuid::new_v4().simple().to_string();
    let parts = [action.map(str::to_lowercase), parent.map(str::to_owned), Some(random[..5].to_owned())];
    parts.into_iter().flatten().collect::<Vec<_>>().join("-")
}

fn common(options: &CreateAction, global: &Global) -> anyhow::Result<ActionSpec> {
    let named = |kind: &str, text: &String| {
        let (namespace, name) = text.split_once('/').unwrap_or((&global.namespace, text));
        object(kind, namespace, name)
    };
    Ok(ActionSpec {
        name: options.action.clone(),
        blueprint: options.blueprint.clone(),
        profile: options.profile.as_ref().map(|text| named("Profile", text)),
        repository_server: options.repository_server.as_ref().map(|text| named("RepositoryServer", text)),
        options: pairs("option", &options.options)?,
        secrets: references("Secret", &options.secrets)?,
        config_maps: references("ConfigMap", &options.config_maps)?,
        pod_labels: pairs("label", &options.podlabels)?,
        pod_annotations: pairs("annotation", &options.podannotations)?,
        ..ActionSpec::default()
    })
}

fn from_scratch(
    options: &CreateAction,
    targets: &[ObjectReference],
    global: &Global,
) -> anyhow::Result<Vec<ActionSpec>> {
    if options.action.is_none() {
        bail!(UsageError("--action is required without --from".into()));
    }
    if options.blueprint.is_none() {
        bail!(UsageError("--blueprint is required without --from".into()));
    }
    let common = common(options, global)?;
    Ok(targets.iter().map(|target| ActionSpec { object: Some(target.clone()), ..common.clone() }).collect())
}

/// Omitted fields are inherited from the parent: action, object, blueprint, profile, secrets, options, and always its artifacts.
fn from_parent(
    options: &CreateAction,
    parent: &ActionSet,
    targets: &[ObjectReference],
    global: &Global,
) -> anyhow::Result<Vec<ActionSpec>> {
    let status = parent.status.clone().unwrap_or_default();
    let mut specs = Vec::new();
    for (index, old) in parent.spec.actions.iter().enumerate() {
        let artifacts: BTreeMap<String, Artifact> =
            status.actions.get(index).map(|done| done.artifacts.clone()).unwrap_or_default();
        let given = common(options, global)?;
        let merged = ActionSpec {
            name: given.name.clone().or_else(|| old.name.clone()),
            blueprint: given.blueprint.clone().or_else(|| old.blueprint.clone()),
            profile: given.profile.clone().or_else(|| old.profile.clone()),
            repository_server: given.repository_server.clone().or_else(|| old.repository_server.clone()),
            options: old.options.clone().into_iter().chain(given.options.clone()).collect(),
            secrets: if given.secrets.is_empty() { old.secrets.clone() } else { given.secrets.clone() },
            config_maps: if given.config_maps.is_empty() { old.config_maps.clone() } else { given.config_maps.clone() },
            pod_override: old.pod_override.clone(),
            artifacts,
            ..given
        };
        let own = old.object.clone().into_iter().collect::<Vec<_>>();
        let objects = if targets.is_empty() { &own } else { targets };
        specs.extend(objects.iter().map(|target| ActionSpec { object: Some(target.clone()), ..merged.clone() }));
    }
    Ok(specs)
}

fn object(kind: &str, namespace: &str, name: &str) -> ObjectReference {
    ObjectReference {
        kind: Some(kind.to_owned()),
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ObjectReference::default()
    }
}

fn references(kind: &str, words: &[String]) -> anyhow::Result<BTreeMap<String, ObjectReference>> {
    let one = |(alias, path): (String, String)| {
        let (namespace, name) = split(&path)?;
        anyhow::Ok((alias, object(kind, &namespace, &name)))
    };
    pairs("reference", words)?.into_iter().map(one).collect()
}

fn split(path: &str) -> anyhow::Result<(String, String)> {
    match path.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => bail!(UsageError(format!("invalid reference {path:?}: expected NAMESPACE/NAME"))),
    }
}

async fn targets(client: &Client, options: &CreateAction) -> anyhow::Result<Vec<ObjectReference>> {
    let mut all = Vec::new();
    let named = [
        ("deployment", &options.deployment),
        ("statefulset", &options.statefulset),
        ("deploymentconfig", &options.deploymentconfig),
        ("pvc", &options.pvc),
    ];
    for (kind, paths) in named {
        for path in paths {
            let (namespace, name) = split(path)?;
            all.push(object(kind, &namespace, &name));
        }
    }
    all.extend(options.namespacetargets.iter().map(|name| object("namespace", name, name)));
    for path in &options.objects {
        all.push(parse_object_reference(path)?);
    }
    if let Some(selector) = &options.selector {
        for one in selected(client, options, selector).await? {
            if !all.contains(&one) {
                all.push(one);
            }
        }
    }
    Ok(all)
}

/// `group/version/resource/namespace/name`; the core group has none.
fn parse_object_reference(path: &str) -> anyhow::Result<ObjectReference> {
    let parts: Vec<_> = path.split('/').collect();
    let (group, rest) = match parts.as_slice() {
        [group, rest @ ..] if rest.len() == 4 => (*group, rest),
        rest if rest.len() == 4 => ("", rest),
        _ => bail!(UsageError(format!("invalid object {path:?}: expected GROUP/VERSION/RESOURCE/NAMESPACE/NAME"))),
    };
    Ok(ObjectReference {
        group: Some(group.to_owned()),
        api_version: Some(rest[0].to_owned()),
        resource: Some(rest[1].to_owned()),
        namespace: Some(rest[2].to_owned()),
        name: Some(rest[3].to_owned()),
        ..ObjectReference::default()
    })
}

async fn selected(client: &Client, options: &CreateAction, selector: &str) -> anyhow::Result<Vec<ObjectReference>> {
    const NAMESPACE: &str = "namespace";
    const KINDS: [(&str, &str, &str); 5] = [
        ("deployment", "apps", "Deployment"),
        ("deploymentconfig", "apps.openshift.io", "DeploymentConfig"),
        ("statefulset", "apps", "StatefulSet"),
        ("pvc", "", "PersistentVolumeClaim"),
        (NAMESPACE, "", "Namespace"),
    ];
    let wanted = options.kind.to_lowercase();
    if wanted != "all" && !KINDS.iter().any(|(word, ..)| *word == wanted) {
        bail!(UsageError(format!(
            "invalid --kind {wanted:?}: expected all, deployment, deploymentconfig, statefulset, pvc or namespace"
        )));
    }
    let is_wanted = |word: &str| if wanted == "all" { word != NAMESPACE } else { wanted == word };
    let mut found = Vec::new();
    for (word, group, kind) in KINDS.iter().filter(|(word, ..)| is_wanted(word)) {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let api: Api<DynamicObject> = match &options.selector_namespace {
            Some(namespace) if *word != NAMESPACE => Api::namespaced_with(client.clone(), namespace, &resource),
            _ => Api::all_with(client.clone(), &resource),
        };
        let list = match api.list(&ListParams::default().labels(selector)).await {
            // Only OpenShift knows it.
            Err(kube::Error::Api(status)) if status.code == 404 && wanted == "all" => continue,
            list => list?,
        };
        // A namespace is its own namespace.
        let place = |one: &DynamicObject| one.namespace().unwrap_or_else(|| one.name_any());
        found.extend(list.iter().map(|one| object(word, &place(one), &one.name_any())));
    }
    if found.is_empty() {
        bail!("no object matches selector {selector}");
    }
    Ok(found)
}

/// Reports immediately what is certain to fail.
async fn check(client: &Client, namespace: &str, set: &ActionSet) -> anyhow::Result<()> {
    for action in &set.spec.actions {
        let name = action.blueprint.clone().unwrap_or_default();
        let api: Api<Blueprint> = Api::namespaced(client.clone(), namespace);
        let blueprint = api.get(&name).await?;
        let wanted = action.name.clone().unwrap_or_default();
        if !blueprint.spec.actions.contains_key(&wanted) {
            let known: Vec<_> = blueprint.spec.actions.keys().cloned().collect();
            bail!("blueprint {name} has no action {wanted:?}; it has {}", known.join(", "));
        }
        if let Some(profile) = &action.profile {
            let (place, name) =
                (profile.namespace.clone().unwrap_or_default(), profile.name.clone().unwrap_or_default());
            let api: Api<Profile> = Api::namespaced(client.clone(), &place);
            api.get(&name).await?;
        }
        let plain = |kind: &str, reference: &ObjectReference| ObjectReference {
            api_version: Some("v1".into()),
            resource: Some(format!("{}s", kind.to_lowercase())),
            ..reference.clone()
        };
        let needed = action.object.iter().cloned();
        let needed = needed.chain(action.secrets.values().map(|secret| plain("Secret", secret)));
        for reference in needed.chain(action.config_maps.values().map(|map| plain("ConfigMap", map))) {
            require(client, &reference).await?;
        }
    }
    Ok(())
}

/// The server may read objects that its user may not read.
async fn require(client: &Client, reference: &ObjectReference) -> anyhow::Result<()> {
    match params::read_reference(client, reference).await {
        Err(error) if error.code() == Some(403) => Ok(()),
        answer => answer.map(|_| ()).map_err(Into::into),
    }
}

/// Shows it until it has ended.
pub async fn watch(global: &Global, options: WatchAction) -> anyhow::Result<Outcome> {
    let client = connect::client(global).await?;
    let reference = reference(ResourceKind::Action, &options.name);
    subjects::read(&client, &global.namespace, &reference).await?;
    wait::until_ended(&client, &global.namespace, &reference, options.events).await
}

/// Prints what its phases have printed.
pub async fn logs(global: &Global, options: LogsAction) -> anyhow::Result<Outcome> {
    let client = connect::client(global).await?;
    let reference = reference(ResourceKind::Action, &options.name);
    let subject = subjects::read(&client, &global.namespace, &reference).await?;
    let mut printed = logs::LogPosition::default();
    if subject.outcome().is_none() {
        if !options.follow {
            let tail = subject.operation.and_then(|operation| operation.status?.log?.text);
            output::text(tail.as_deref().unwrap_or_default());
            return Ok(Outcome::Success);
        }
        printed = logs::follow(&client, &global.namespace, &reference).await?;
    }
    let ended = subjects::read(&client, &global.namespace, &reference).await?;
    let attempt = ended.operation.and_then(|operation| operation.status?.attempt);
    let kept = kept_log(&client, &global.namespace, &reference).await?;
    let (lost, rest) = printed.remaining(attempt, &kept);
    if lost > 0 {
        tracing::warn!("the first {lost} bytes of this log were not kept");
    }
    output::text(&rest);
    Ok(Outcome::Success)
}

/// The log of one that has ended. Only the end of a long one is kept.
pub async fn kept_log(client: &Client, namespace: &str, reference: &Reference) -> anyhow::Result<LogTail> {
    let name = format!("{}-log", subjects::operation_name(reference));
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let found = api.get_opt(&name).await?;
    let mut kept = found.and_then(|map| map.data).unwrap_or_default();
    let Some(text) = kept.remove("log") else {
        bail!("actionset {} has no log: it failed validation, or another program ran it", reference.name)
    };
    let offset = kept.remove("offset").and_then(|offset| offset.parse().ok());
    Ok(LogTail { offset, text: Some(text), ..LogTail::default() })
}
