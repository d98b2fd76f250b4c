//! The three kinds of patches.

use super::{Scope, config_map, create, refusal};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

async fn patch(api: &Api<ConfigMap>, name: &str, patch: Patch<Value>) -> Result<ConfigMap, kube::Error> {
    api.patch(name, &PatchParams::default(), &patch).await
}

pub async fn a_merge_patch_sets_and_removes(scope: &Scope) {
    let api = scope.config_maps();
    create(&api, &config_map("merged", "value")).await;
    let change = json!({"data": {"key": null, "other": "new"}, "metadata": {"labels": {"a": "b"}}});
    let patched = patch(&api, "merged", Patch::Merge(change)).await.unwrap();
    assert_eq!(patched.data, Some([("other".to_owned(), "new".to_owned())].into()));
    assert_eq!(patched.labels()["a"], "b");
    assert_eq!(refusal(patch(&api, "absent", Patch::Merge(json!({}))).await), (404, "NotFound".to_owned()));
}

pub async fn a_json_patch_applies_all_or_nothing(scope: &Scope) {
    let api = scope.config_maps();
    let made = create(&api, &config_map("stepwise", "value")).await;
    let steps = |steps: Value| Patch::Json::<Value>(serde_json::from_value(steps).unwrap());
    let failing = json!([
        {"op": "replace", "path": "/data/key", "value": "changed"},
        {"op": "test", "path": "/data/key", "value": "something else"},
    ]);
    let (code, _) = refusal(patch(&api, "stepwise", steps(failing)).await);
    assert_eq!(code, 422);
    assert_eq!(api.get("stepwise").await.unwrap(), made);
    let good = json!([
        {"op": "test", "path": "/data/key", "value": "value"},
        {"op": "add", "path": "/metadata/labels", "value": {"a~b": "c"}},
        {"op": "remove", "path": "/data/key"},
    ]);
    assert_eq!(refusal(patch(&api, "stepwise", steps(good)).await).0, 422, "the label's key is not valid");
    let good = json!([{"op": "add", "path": "/data/other", "value": "x"}, {"op": "remove", "path": "/data/key"}]);
    let patched = patch(&api, "stepwise", steps(good)).await.unwrap();
    assert_eq!(patched.data, Some([("other".to_owned(), "x".to_owned())].into()));
}

pub async fn a_strategic_patch_merges_lists_by_key(scope: &Scope) {
    scope.make_service_account().await;
    let api: Api<Pod> = Api::namespaced(scope.client.clone(), &scope.namespace);
    let pod = serde_json::from_value(json!({
        "metadata": {"name": "two"},
        "spec": {"containers": [{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]},
    }));
    api.create(&PostParams::default(), &pod.unwrap()).await.unwrap();
    let change = Patch::Strategic(json!({"spec": {"containers": [{"name": "b", "image": "b:2"}]}}));
    let patched = api.patch("two", &PatchParams::default(), &change).await.unwrap();
    let images: Vec<_> = patched.spec.unwrap().containers.into_iter().filter_map(|container| container.image).collect();
    assert_eq!(images, ["a:1", "b:2"]);
}

pub async fn a_patch_with_a_stale_resource_version_is_a_conflict(scope: &Scope) {
    let api = scope.config_maps();
    let made = create(&api, &config_map("guarded", "value")).await;
    let seen = made.resource_version().unwrap();
    let guarded = |value: &str| json!({"metadata": {"resourceVersion": seen}, "data": {"key": value}});
    patch(&api, "guarded", Patch::Merge(guarded("two"))).await.unwrap();
    assert_eq!(refusal(patch(&api, "guarded", Patch::Merge(guarded("three"))).await), (409, "Conflict".to_owned()));
}
