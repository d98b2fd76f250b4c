//! Deletion and garbage collection.

use super::{
    Scope, config_map, create, eventually, labelled, make_namespace, names, refusal, unique, wait_until_deleted,
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::{Value, json};

fn with_metadata(name: &str, metadata: &Value) -> ConfigMap {
    let mut object = json!({"metadata": metadata});
    object["metadata"]["name"] = json!(name);
    serde_json::from_value(object).unwrap()
}

fn owned(name: &str, owners: &[&ConfigMap]) -> ConfigMap {
    let references: Vec<Value> = owners
        .iter()
        .map(|owner| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(), "uid": owner.uid().unwrap(),
                "blockOwnerDeletion": true,
            })
        })
        .collect();
    with_metadata(name, &json!({"ownerReferences": references}))
}

async fn release(api: &Api<ConfigMap>, name: &str) {
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

pub async fn a_finalizer_delays_the_removal(scope: &Scope) {
    let api = scope.config_maps();
    create(&api, &with_metadata("held", &json!({"finalizers": ["example.com/hold"]}))).await;
    let answer = api.delete("held", &DeleteParams::default()).await.unwrap();
    assert!(answer.left().is_some_and(|object| object.metadata.deletion_timestamp.is_some()));
    let marked = api.get("held").await.unwrap();
    // Neither a second deletion nor a change has an effect.
    api.delete("held", &DeleteParams::default()).await.unwrap();
    let patch = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}));
    assert_eq!(refusal(api.patch("held", &PatchParams::default(), &patch).await).0, 422);
    let patch = Patch::Merge(json!({"metadata": {"deletionTimestamp": null}, "data": {"still": "writable"}}));
    let changed = api.patch("held", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(changed.metadata.deletion_timestamp, marked.metadata.deletion_timestamp);
    let twice = api.create(&PostParams::default(), &config_map("held", "again")).await;
    assert_eq!(refusal(twice), (409, "AlreadyExists".to_owned()));
    release(&api, "held").await;
    wait_until_deleted(&api, "held").await;
}

pub async fn preconditions_guard_a_deletion(scope: &Scope) {
    let api = scope.config_maps();
    let made = create(&api, &config_map("guarded", "value")).await;
    let with = |uid: Option<&str>, resource_version: Option<&str>| {
        let own = |text: &str| text.to_owned();
        DeleteParams::default()
            .preconditions(Preconditions { uid: uid.map(own), resource_version: resource_version.map(own) })
    };
    let conflict = (409, "Conflict".to_owned());
    assert_eq!(refusal(api.delete("guarded", &with(Some("other"), None)).await), conflict);
    assert_eq!(refusal(api.delete("guarded", &with(None, Some("1"))).await), conflict);
    let (uid, seen) = (made.uid().unwrap(), made.resource_version().unwrap());
    let answer = api.delete("guarded", &with(Some(&uid), Some(&seen))).await.unwrap();
    assert!(answer.right().is_some_and(|status| status.is_success()));
    assert_eq!(refusal(api.delete("guarded", &DeleteParams::default()).await), (404, "NotFound".to_owned()));
}

pub async fn background_deletion_deletes_dependents(scope: &Scope) {
    let api = scope.config_maps();
    let owner = create(&api, &config_map("owner", "value")).await;
    let child = create(&api, &owned("child", &[&owner])).await;
    create(&api, &owned("grandchild", &[&child])).await;
    api.delete("owner", &DeleteParams::background()).await.unwrap();
    assert_eq!(api.get_opt("owner").await.unwrap(), None, "the owner is deleted immediately");
    wait_until_deleted(&api, "child").await;
    wait_until_deleted(&api, "grandchild").await;
}

pub async fn foreground_deletion_waits_for_dependents(scope: &Scope) {
    let api = scope.config_maps();
    let owner = create(&api, &config_map("owner", "value")).await;
    let mut child = owned("child", &[&owner]);
    child.metadata.finalizers = Some(vec!["example.com/hold".to_owned()]);
    create(&api, &child).await;
    api.delete("owner", &DeleteParams::foreground()).await.unwrap();
    eventually("the child is being deleted", || async { api.get("child").await.unwrap().metadata.deletion_timestamp })
        .await;
    let waiting = api.get("owner").await.unwrap();
    assert_eq!(waiting.finalizers(), ["foregroundDeletion"]);
    release(&api, "child").await;
    wait_until_deleted(&api, "child").await;
    wait_until_deleted(&api, "owner").await;
}

pub async fn orphans_survive_their_owner(scope: &Scope) {
    let api = scope.config_maps();
    let owner = create(&api, &config_map("owner", "value")).await;
    create(&api, &owned("child", &[&owner])).await;
    api.delete("owner", &DeleteParams::orphan()).await.unwrap();
    wait_until_deleted(&api, "owner").await;
    let child = api.get("child").await.unwrap();
    assert!(child.owner_references().is_empty() && child.metadata.deletion_timestamp.is_none());
}

pub async fn a_dependent_with_another_owner_stays(scope: &Scope) {
    let api = scope.config_maps();
    let (one, two) = (create(&api, &config_map("one", "x")).await, create(&api, &config_map("two", "x")).await);
    create(&api, &owned("child", &[&one, &two])).await;
    api.delete("one", &DeleteParams::background()).await.unwrap();
    let left = eventually("the owner reference of the child is removed", || async {
        let child = api.get("child").await.unwrap();
        (child.owner_references().len() == 1).then(|| child.owner_references()[0].name.clone())
    })
    .await;
    assert_eq!(left, "two");
}

pub async fn a_dependent_of_an_absent_owner_is_collected(scope: &Scope) {
    let api = scope.config_maps();
    let mut owner = config_map("never-there", "x");
    owner.metadata.uid = Some("11111111-1111-1111-1111-111111111111".to_owned());
    create(&api, &owned("stray", &[&owner])).await;
    wait_until_deleted(&api, "stray").await;
}

pub async fn a_collection_is_deleted_by_selector(scope: &Scope) {
    let api = scope.config_maps();
    for name in ["a", "b"] {
        create(&api, &labelled(name, "doomed", "yes")).await;
    }
    create(&api, &labelled("c", "doomed", "no")).await;
    let selected = ListParams::default().labels("doomed=yes");
    api.delete_collection(&DeleteParams::default(), &selected).await.unwrap();
    let left = api.list(&ListParams::default().labels("doomed")).await.unwrap();
    assert_eq!(names(&left.items), ["c"]);
}

pub async fn deleting_a_namespace_deletes_its_content(scope: &Scope) {
    let namespaces: Api<Namespace> = Api::all(scope.client.clone());
    let made = namespaces.get(&scope.namespace).await.unwrap();
    assert_eq!(made.status.unwrap().phase.as_deref(), Some("Active"));
    assert_eq!(made.metadata.labels.unwrap()["kubernetes.io/metadata.name"], scope.namespace);
    let api = scope.config_maps();
    for number in 0..20 {
        create(&api, &config_map(&format!("content-{number}"), "x")).await;
    }
    let answer = namespaces.delete(&scope.namespace, &DeleteParams::default()).await.unwrap();
    let phase = answer.left().and_then(|namespace| namespace.status).and_then(|status| status.phase);
    assert_eq!(phase.as_deref(), Some("Terminating"));
    eventually("the namespace is deleted", || async {
        namespaces.get_opt(&scope.namespace).await.unwrap().is_none().then_some(())
    })
    .await;
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 0);
}

pub async fn nothing_is_created_in_a_terminating_namespace(scope: &Scope) {
    let namespace = unique("ending");
    make_namespace(&scope.client, &namespace).await;
    let api: Api<ConfigMap> = Api::namespaced(scope.client.clone(), &namespace);
    create(&api, &with_metadata("held", &json!({"finalizers": ["example.com/hold"]}))).await;
    let namespaces: Api<Namespace> = Api::all(scope.client.clone());
    namespaces.delete(&namespace, &DeleteParams::default()).await.unwrap();
    let Err(kube::Error::Api(status)) = api.create(&PostParams::default(), &config_map("late", "x")).await else {
        panic!("created in a namespace that ends");
    };
    assert_eq!((status.code, status.reason.as_str()), (403, "Forbidden"));
    let causes: Vec<_> = status.details.clone().unwrap().causes.into_iter().map(|cause| cause.reason).collect();
    assert_eq!(causes, ["NamespaceTerminating"]);
    eventually("the content is being deleted", || async { api.get("held").await.unwrap().metadata.deletion_timestamp })
        .await;
    release(&api, "held").await;
    eventually("the namespace is deleted", || async {
        namespaces.get_opt(&namespace).await.unwrap().is_none().then_some(())
    })
    .await;
}
