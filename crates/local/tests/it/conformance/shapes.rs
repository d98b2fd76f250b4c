//! Discovery, and objects in other forms.

use super::{Scope, config_map, create, eventually};
use http::{Method, Request};
use kube::{client::Body, discovery::Discovery};
use serde_json::{Value, json};

async fn get(scope: &Scope, path: &str, accept: &str) -> Value {
    let request = Request::builder().method(Method::GET).uri(path).header("accept", accept);
    let (code, body) = scope.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(code, 200, "{path}: {body}");
    body
}

pub async fn discovery_lists_groups_and_resources(scope: &Scope) {
    // It asks group by group, and another case may just be removing its own.
    let ask = || async { Discovery::new(scope.client.clone()).run().await.ok() };
    let discovery = eventually("discovery", ask).await;
    let expected = [
        ("", "Pod"),
        ("", "Secret"),
        ("", "PersistentVolumeClaim"),
        ("apps", "Deployment"),
        ("batch", "CronJob"),
        ("rbac.authorization.k8s.io", "ClusterRole"),
        ("storage.k8s.io", "StorageClass"),
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
        ("coordination.k8s.io", "Lease"),
    ];
    for (group, kind) in expected {
        let found = discovery.get(group).and_then(|group| group.recommended_kind(kind));
        assert!(found.is_some(), "{group}/{kind}");
    }
    let core = get(scope, "/api/v1", "application/json").await;
    let resources = core["resources"].as_array().unwrap();
    let find = |name: &str| resources.iter().find(|resource| resource["name"] == name).unwrap();
    assert_eq!(find("pods")["shortNames"], json!(["po"]));
    assert_eq!((&find("pods")["namespaced"], &find("nodes")["namespaced"]), (&json!(true), &json!(false)));
    assert_eq!(find("pods/status")["kind"], "Pod");
    let version = scope.client.apiserver_version().await.unwrap();
    assert_eq!(version.major, "1");
}

pub async fn a_table_has_columns_and_rows(scope: &Scope) {
    create(&scope.config_maps(), &config_map("shown", "value")).await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let path = format!("{}?fieldSelector=metadata.name%3Dshown", scope.path("configmaps"));
    for path in [path, scope.path("configmaps/shown")] {
        let table = get(scope, &path, accept).await;
        assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
        let columns = table["columnDefinitions"].as_array().unwrap();
        let titles: Vec<&str> = columns.iter().filter_map(|column| column["name"].as_str()).collect();
        assert_eq!(titles, ["Name", "Data", "Age"]);
        let rows = table["rows"].as_array().unwrap();
        assert_eq!((rows.len(), &rows[0]["cells"][0]), (1, &json!("shown")));
        assert_eq!(rows[0]["object"]["kind"], "PartialObjectMetadata");
    }
}

pub async fn metadata_can_be_requested_alone(scope: &Scope) {
    let made = create(&scope.config_maps(), &config_map("bare", "value")).await;
    let api: kube::Api<kube::core::PartialObjectMeta<k8s_openapi::api::core::v1::ConfigMap>> =
        kube::Api::namespaced(scope.client.clone(), &scope.namespace);
    let bare = api.get_metadata("bare").await.unwrap();
    assert_eq!(bare.metadata.uid, made.metadata.uid);
    let list =
        get(scope, &scope.path("configmaps"), "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io").await;
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert!(list["items"].as_array().unwrap().iter().all(|item| item.get("data").is_none()));
}
