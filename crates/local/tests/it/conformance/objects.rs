//! Creating, reading and replacing.

use super::{Scope, config_map, create, refusal};
use http::Method;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Event, Pod, Secret},
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

pub async fn created_objects_get_identity_and_can_be_read(scope: &Scope) {
    let api = scope.config_maps();
    let made = create(&api, &config_map("first", "value")).await;
    assert!(made.uid().is_some() && made.creation_timestamp().is_some() && made.resource_version().is_some());
    assert_eq!(made.namespace().as_deref(), Some(scope.namespace.as_str()));
    assert_eq!(api.get("first").await.unwrap(), made);
    assert_eq!(refusal(api.get("second").await), (404, "NotFound".to_owned()));
}

pub async fn a_new_object_has_no_resource_version_or_zero(scope: &Scope) {
    let api = scope.config_maps();
    let mut zero = config_map("zero", "value");
    zero.metadata.resource_version = Some("0".into());
    assert_ne!(create(&api, &zero).await.resource_version().as_deref(), Some("0"));
    let mut set = config_map("set", "value");
    set.metadata.resource_version = Some("7".into());
    assert_eq!(refusal(api.create(&PostParams::default(), &set).await).0, 500);
}

pub async fn a_stale_update_is_a_conflict(scope: &Scope) {
    let api = scope.config_maps();
    let old = create(&api, &config_map("contended", "one")).await;
    let mut newer = old.clone();
    newer.data = Some([("key".to_owned(), "two".to_owned())].into());
    let newer = api.replace("contended", &PostParams::default(), &newer).await.unwrap();
    assert_ne!(newer.resource_version(), old.resource_version());
    assert_eq!(refusal(api.replace("contended", &PostParams::default(), &old).await), (409, "Conflict".to_owned()));
    assert_eq!(api.get("contended").await.unwrap(), newer);
    // Without a resource version a built-in kind is replaced whatever its state.
    let mut forced = old;
    forced.metadata.resource_version = None;
    api.replace("contended", &PostParams::default(), &forced).await.unwrap();
}

pub async fn an_update_without_change_keeps_the_resource_version(scope: &Scope) {
    let api = scope.config_maps();
    let made = create(&api, &config_map("same", "value")).await;
    let replaced = api.replace("same", &PostParams::default(), &made).await.unwrap();
    let patch = Patch::Merge(json!({"data": {"key": "value"}}));
    let patched = api.patch("same", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(replaced.resource_version(), made.resource_version());
    assert_eq!(patched.resource_version(), made.resource_version());
}

pub async fn generated_names_extend_the_prefix(scope: &Scope) {
    let api = scope.config_maps();
    let wanted: ConfigMap = serde_json::from_value(json!({"metadata": {"generateName": "many-"}})).unwrap();
    let (first, second) = (create(&api, &wanted).await, create(&api, &wanted).await);
    assert!(first.name_any().starts_with("many-") && first.name_any().len() == 10, "{}", first.name_any());
    assert_ne!(first.name_any(), second.name_any());
}

pub async fn a_dry_run_changes_nothing(scope: &Scope) {
    let api = scope.config_maps();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let shown = api.create(&dry, &config_map("planned", "value")).await.unwrap();
    assert!(shown.uid().is_some());
    assert_eq!(api.get_opt("planned").await.unwrap(), None);
    let made = create(&api, &config_map("planned", "value")).await;
    let patch = Patch::Merge(json!({"data": {"key": "other"}}));
    let patched = api.patch("planned", &PatchParams::default().dry_run(), &patch).await.unwrap();
    assert_eq!(patched.data.unwrap()["key"], "other");
    api.delete("planned", &kube::api::DeleteParams::default().dry_run()).await.unwrap();
    assert_eq!(api.get("planned").await.unwrap(), made);
}

fn deployment() -> Deployment {
    let labels = json!({"app": "web"});
    serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web"}]}},
        },
        "status": {"replicas": 7},
    }))
    .unwrap()
}

pub async fn the_generation_counts_changes_of_the_spec_only(scope: &Scope) {
    let api: Api<Deployment> = Api::namespaced(scope.client.clone(), &scope.namespace);
    let made = api.create(&PostParams::default(), &deployment()).await.unwrap();
    assert_eq!(made.metadata.generation, Some(1));
    let patch = |patch| Patch::Merge(patch);
    let labelled = patch(json!({"metadata": {"labels": {"tier": "front"}}}));
    let after_label = api.patch("web", &PatchParams::default(), &labelled).await.unwrap();
    assert_eq!(after_label.metadata.generation, Some(1));
    let scaled = api.patch("web", &PatchParams::default(), &patch(json!({"spec": {"replicas": 3}}))).await.unwrap();
    assert_eq!(scaled.metadata.generation, Some(2));
}

pub async fn the_status_is_only_written_through_its_subresource(scope: &Scope) {
    scope.make_service_account().await;
    let api: Api<Pod> = Api::namespaced(scope.client.clone(), &scope.namespace);
    // With a scheduler that does not exist: the default one would assign the pod to a node during the test.
    let pod = serde_json::from_value(json!({
        "metadata": {"name": "one"},
        "spec": {"schedulerName": "absent", "containers": [{"name": "main", "image": "main"}]},
        "status": {"message": "from create"},
    }));
    let made = api.create(&PostParams::default(), &pod.unwrap()).await.unwrap();
    let message = |pod: &Pod| pod.status.as_ref().and_then(|status| status.message.clone());
    assert_eq!(message(&made), None);
    assert_eq!(made.status.as_ref().and_then(|status| status.phase.clone()).as_deref(), Some("Pending"));
    let patch = Patch::Merge(json!({"status": {"message": "hello"}, "metadata": {"annotations": {"a": "b"}}}));
    let through_main = api.patch("one", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!((message(&through_main), through_main.annotations().get("a").map(String::as_str)), (None, Some("b")));
    let patch = Patch::Merge(json!({"status": {"message": "hello"}, "spec": {"nodeName": "elsewhere"}}));
    let through_status = api.patch_status("one", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(message(&through_status).as_deref(), Some("hello"));
    assert_eq!(through_status.spec.and_then(|spec| spec.node_name), None);
}

pub async fn string_data_of_a_secret_becomes_data(scope: &Scope) {
    let api: Api<Secret> = Api::namespaced(scope.client.clone(), &scope.namespace);
    let secret = serde_json::from_value(json!({"metadata": {"name": "key"}, "stringData": {"password": "hunter2"}}));
    let made = api.create(&PostParams::default(), &secret.unwrap()).await.unwrap();
    assert_eq!(made.data.unwrap()["password"].0, b"hunter2");
    assert_eq!((made.string_data, made.type_.as_deref()), (None, Some("Opaque")));
}

pub async fn an_update_with_another_uid_is_a_conflict(scope: &Scope) {
    let api = scope.config_maps();
    let mut made = create(&api, &config_map("imposter", "value")).await;
    made.metadata.uid = Some("00000000-0000-0000-0000-000000000000".to_owned());
    made.metadata.resource_version = None;
    assert_eq!(refusal(api.replace("imposter", &PostParams::default(), &made).await), (409, "Conflict".to_owned()));
}

pub async fn a_scale_changes_the_replicas(scope: &Scope) {
    let api: Api<Deployment> = Api::namespaced(scope.client.clone(), &scope.namespace);
    api.create(&PostParams::default(), &deployment()).await.unwrap();
    let shown = api.get_scale("web").await.unwrap();
    let selector = shown.status.and_then(|status| status.selector);
    assert_eq!((shown.spec.unwrap().replicas, selector.as_deref()), (Some(2), Some("app=web")));
    let patch = Patch::Merge(json!({"spec": {"replicas": 5}}));
    api.patch_scale("web", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(api.get("web").await.unwrap().spec.replicas, Some(5));
}

pub async fn old_and_new_events_are_the_same_objects(scope: &Scope) {
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "happened"},
        "eventTime": "2026-01-02T03:04:05.000006Z", "reason": "Because", "note": "it happened", "type": "Normal",
        "action": "Act", "reportingController": "test.example/controller", "reportingInstance": "one",
        "regarding": {"kind": "ConfigMap", "name": "thing", "namespace": scope.namespace},
    });
    let path = format!("/apis/events.k8s.io/v1/namespaces/{}/events", scope.namespace);
    let (code, _) = scope.raw(Method::POST, &path, "application/json", event.to_string()).await;
    assert_eq!(code, 201);
    let api: Api<Event> = Api::namespaced(scope.client.clone(), &scope.namespace);
    let core = api.get("happened").await.unwrap();
    assert_eq!((core.message.as_deref(), core.involved_object.name.as_deref()), (Some("it happened"), Some("thing")));
    let (_, new) = scope.raw(Method::GET, &format!("{path}/happened"), "", "").await;
    assert_eq!((&new["note"], &new["apiVersion"]), (&json!("it happened"), &json!("events.k8s.io/v1")));
}
