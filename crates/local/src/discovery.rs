//! Discovery of groups, versions and resources, and as much OpenAPI as `kubectl` needs to leave validation to the
//! server.

use crate::{kind::Kind, kind::join_version, registry::Registry};
use serde_json::{Map, Value, json};

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const SUBRESOURCE_VERBS: [&str; 3] = ["get", "patch", "update"];

/// The document at a discovery path, if it exists.
pub(crate) fn document(registry: &Registry, path: &str) -> Option<Value> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        [] => Some(
            json!({"paths": ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]}),
        ),
        ["api"] => Some(json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}],
        })),
        ["apis"] => Some(groups(registry)),
        ["apis", group] => {
            let versions = registry.groups().remove(*group)?;
            let mut found = group_entry(group, &versions);
            found["kind"] = json!("APIGroup");
            found["apiVersion"] = json!("v1");
            Some(found)
        }
        ["api", version] => resources(registry, "", version),
        ["apis", group, version] => resources(registry, group, version),
        ["version"] => Some(version()),
        ["openapi", "v3"] => Some(open_api_index(registry)),
        ["openapi", "v3", "api", version] => open_api(registry, "", version),
        ["openapi", "v3", "apis", group, version] => open_api(registry, group, version),
        _ => None,
    }
}

fn groups(registry: &Registry) -> Value {
    let groups: Vec<Value> = registry.groups().iter().map(|(group, versions)| group_entry(group, versions)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn group_entry(group: &str, versions: &[String]) -> Value {
    let entry = |version: &String| json!({"groupVersion": join_version(group, version), "version": version});
    let entries: Vec<Value> = versions.iter().map(entry).collect();
    json!({"name": group, "preferredVersion": entries.first(), "versions": entries})
}

fn resources(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let kinds = registry.in_version(group, version);
    if kinds.is_empty() {
        return None;
    }
    let resources: Vec<Value> = kinds.iter().flat_map(|kind| entries(kind)).collect();
    let group_version = join_version(group, version);
    Some(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}))
}

fn entries(kind: &Kind) -> Vec<Value> {
    let mut main = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind, "verbs": VERBS,
    });
    for (field, values) in [("shortNames", &kind.short_names), ("categories", &kind.categories)] {
        if !values.is_empty() {
            main[field] = json!(values);
        }
    }
    let subresource = |name: &str, kind_name: &str| {
        json!({
            "name": format!("{}/{name}", kind.plural), "singularName": "", "namespaced": kind.namespaced,
            "kind": kind_name, "verbs": SUBRESOURCE_VERBS,
        })
    };
    let mut all = vec![main];
    all.extend(kind.status.then(|| subresource("status", &kind.kind)));
    all.extend(kind.scale.then(|| {
        let mut scale = subresource("scale", "Scale");
        scale["group"] = json!("autoscaling");
        scale["version"] = json!("v1");
        scale
    }));
    all
}

/// The release whose behaviour this API follows.
fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": concat!("v1.36.0+plimsoll-", env!("CARGO_PKG_VERSION")),
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "rustc", "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

fn open_api_index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    let groups = registry.groups();
    let grouped = groups.iter().flat_map(|(group, versions)| versions.iter().map(move |v| format!("apis/{group}/{v}")));
    for path in std::iter::once("api/v1".to_owned()).chain(grouped) {
        let url = format!("/openapi/v3/{path}");
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

/// A document without schemas. It declares for each kind that the server supports `fieldValidation`.
fn open_api(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let kinds = registry.in_version(group, version);
    if kinds.is_empty() {
        return None;
    }
    let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let parameters: Vec<Value> = ["dryRun", "fieldManager", "fieldValidation", "force"]
        .iter()
        .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}}))
        .collect();
    let mut paths = Map::new();
    for kind in kinds {
        let scope = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
        let gvk = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
        let operation = json!({"parameters": parameters, "x-kubernetes-group-version-kind": gvk, "responses": {}});
        paths.insert(format!("{root}{scope}/{}/{{name}}", kind.plural), json!({"patch": operation}));
    }
    let info = json!({"title": "Kubernetes", "version": "v1.36.0"});
    Some(json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": {}}}))
}
