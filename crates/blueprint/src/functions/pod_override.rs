//! The `podOverride` of an action, for pods with several containers.

use serde_json::{Value, json};

use super::pods::CONTAINER;

/// The names of all containers of a spec.
pub(super) fn container_names(spec: &Value) -> Vec<String> {
    let all = ["containers", "initContainers"].iter().flat_map(|list| names(&spec[*list]));
    all.map(str::to_owned).collect()
}

fn names(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(|container| container["name"].as_str())
}

/// Spreads the override of the container `container` over the containers of a pod that has none of this name, as Kanister does
/// for MultiContainerRun. An override of a container itself takes its place.
pub(super) fn spread(patch: &Value, spec: &Value) -> Value {
    let generic = patch["containers"].as_array().into_iter().flatten().find(|one| one["name"] == CONTAINER);
    let has_it = names(&spec["containers"]).any(|name| name == CONTAINER);
    let Some(generic) = generic.filter(|_| !has_it) else { return patch.clone() };
    let mut patch = patch.clone();
    for list in ["containers", "initContainers"] {
        let mut kept: Vec<Value> = patch[list].as_array().cloned().unwrap_or_default();
        kept.retain(|one| one["name"] != CONTAINER);
        for name in names(&spec[list]) {
            if !kept.iter().any(|one| one["name"] == name) {
                let mut one = generic.clone();
                one["name"] = json!(name);
                kept.push(one);
            }
        }
        patch[list] = json!(kept);
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> Value {
        json!({ "containers": [{ "name": "output" }, { "name": "background" }], "initContainers": [{ "name": "init" }] })
    }

    #[test]
    fn the_override_of_the_container_is_spread_over_the_containers_of_a_pod_with_several() {
        let patch = json!({ "nodeSelector": { "a": "b" },
            "containers": [{ "name": CONTAINER, "env": [1] }, { "name": "output", "env": [2] }, { "name": "more" }] });
        assert_eq!(
            spread(&patch, &shared()),
            json!({ "nodeSelector": { "a": "b" },
                "containers": [{ "name": "output", "env": [2] }, { "name": "more" }, { "name": "background", "env": [1] }],
                "initContainers": [{ "name": "init", "env": [1] }] })
        );
    }

    #[test]
    fn other_overrides_and_other_pods_are_left_alone() {
        let named = json!({ "containers": [{ "name": "output" }] });
        assert_eq!(spread(&named, &shared()), named);
        let generic = json!({ "containers": [{ "name": CONTAINER }] });
        assert_eq!(spread(&generic, &json!({ "containers": [{ "name": CONTAINER }] })), generic);
    }

    #[test]
    fn a_pod_without_an_init_container_gets_none() {
        let generic = json!({ "containers": [{ "name": CONTAINER, "env": [1] }] });
        let spread = spread(&generic, &json!({ "containers": [{ "name": "output" }] }));
        assert_eq!(spread["initContainers"], json!([]));
    }
}
