//! A restore names what it waits for, and stops waiting after a timeout.

use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use plimsoll_testkit::proxy::{Fault, Requests};
use plimsoll_testkit::{Proxy, require};
use serde_json::{Value, json};

use crate::bed::{Bed, Home, eventually, on_both_clusters};
use crate::planted::{Planted, assert_restored, config_map, create, objects, read, restored_file};

on_both_clusters! {
    a_restore_into_a_terminating_namespace_fails_after_the_timeout,
    a_restore_resumes_once_the_terminating_namespace_is_deleted,
}

async fn waits_for(home: &Home<'_>, words: &[&str]) {
    let mut last = String::new();
    eventually(&format!("the operation says {words:?}"), async || {
        last = home.list("Operation").await.iter().map(|operation| operation.data.to_string()).collect();
        words.iter().all(|word| last.contains(word))
    })
    .await;
}

async fn a_restore_into_a_terminating_namespace_fails_after_the_timeout(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server_through(&bed.kubeconfig, &["--terminating-resource-timeout", "6s"], &[]);
    bed.hold_namespace("stuck").await;
    let (stuck, free) = (bed.ns("stuck"), bed.ns("free"));
    Planted::new()
        .object("configmaps", &config_map(&stuck, "one", "1"))
        .object("configmaps", &config_map(&stuck, "two", "1"))
        .object("configmaps", &config_map(&free, "three", "1"))
        .plant(&home, "b")
        .await;
    home.restore("r", json!({ "backupName": "b" })).await;
    waits_for(&home, &["waiting for the deletion of namespace", &stuck]).await;
    let restore = home.ended("Restore", "r").await;
    assert_restored(&home, &restore, ("PartiallyFailed", [3, 1, 0, 2]));
    let errors = restored_file(&home, "r", "results.gz")["errors"].to_string();
    assert!(errors.contains(&format!("namespace {stuck} is still being deleted after 6s")), "{errors}");
    assert!(read(bed, "v1", "ConfigMap", Some(&free), "three").await.is_some(), "others do not wait for it");
}

async fn a_restore_resumes_once_the_terminating_namespace_is_deleted(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    bed.hold_namespace("going").await;
    let going = bed.ns("going");
    Planted::new().object("configmaps", &config_map(&going, "one", "1")).plant(&home, "b").await;
    home.restore("r", json!({ "backupName": "b" })).await;
    waits_for(&home, &["waiting for the deletion of namespace", &going]).await;
    let maps: Api<ConfigMap> = Api::namespaced(bed.client.clone(), &going);
    let release = kube::api::Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    maps.patch("held", &kube::api::PatchParams::default(), &release).await.unwrap();
    let restore = home.ended("Restore", "r").await;
    assert_restored(&home, &restore, ("Completed", [1, 1, 0, 0]));
}

fn definition(group: &str, plural: &str, kind: &str) -> Value {
    json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": { "group": group, "scope": "Namespaced", "names": { "plural": plural, "singular": kind.to_lowercase(), "kind": kind },
            "versions": [{ "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }] } })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crd_is_established_before_its_objects_and_one_that_never_is_fails_by_name() {
    let bed = Bed::real(require!(plimsoll_testkit::cluster().await)).await;
    let home = bed.home("home").await;
    let _server = home.server_through(&bed.kubeconfig, &["--resource-timeout", "3s"], &[]);
    let shop = bed.ns("shop");
    let group = format!("{}example.com", bed.ns("").replace('-', "x"));
    create(&bed, &definition(&group, "gears", "Gear")).await;
    // A second definition of the same kind is never established: its names are taken.
    let taken = definition(&group, "cogs", "Gear");
    let object = |plural: &str, kind: &str| {
        (
            format!("{plural}.{group}"),
            json!({ "apiVersion": format!("{group}/v1"), "kind": kind, "metadata": { "name": "x", "namespace": shop }, "spec": { "a": 1 } }),
        )
    };
    let ((cogs, cog), (wheels, wheel)) = (object("cogs", "Gear"), object("wheels", "Wheel"));
    Planted::new()
        .object("customresourcedefinitions.apiextensions.k8s.io", &taken)
        .object("customresourcedefinitions.apiextensions.k8s.io", &definition(&group, "wheels", "Wheel"))
        .object(&cogs, &cog)
        .object(&wheels, &wheel)
        .plant(&home, "b")
        .await;
    home.restore("r", json!({ "backupName": "b" })).await;
    let restore = home.ended("Restore", "r").await;
    assert_restored(&home, &restore, ("PartiallyFailed", [4, 2, 0, 2]));
    let errors = restored_file(&home, "r", "results.gz")["errors"].to_string();
    assert!(errors.contains(&format!("cogs.{group}: not established after 3s")), "{errors}");
    assert!(errors.contains("is a CustomResourceDefinition missing?"), "{errors}");
    assert!(read(&bed, &format!("{group}/v1"), "Wheel", Some(&shop), "x").await.is_some());
    let definitions = objects(&bed, "apiextensions.k8s.io/v1", "CustomResourceDefinition", None);
    for plural in ["gears", "cogs", "wheels"] {
        let _ = definitions.delete(&format!("{plural}.{group}"), &DeleteParams::default()).await;
    }
    bed.clear().await;
}

/// A policy that the API server enforces takes the place of a webhook that refuses.
fn refusing_policy(name: &str, namespace: &str) -> [Value; 2] {
    let resources =
        json!([{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"] }]);
    let selector = json!({ "matchLabels": { "kubernetes.io/metadata.name": namespace } });
    [
        json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": { "name": name },
            "spec": { "failurePolicy": "Fail", "matchConstraints": { "resourceRules": resources },
                "validations": [{ "expression": "object.metadata.name != 'refused'", "message": "no such thing here" }] } }),
        json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": { "name": name },
            "spec": { "policyName": name, "validationActions": ["Deny"], "matchResources": { "namespaceSelector": selector } } }),
    ]
}

fn unreachable_webhook(name: &str, namespace: &str) -> Value {
    json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": { "name": name },
        "webhooks": [{ "name": "policy.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
            "clientConfig": { "url": "https://127.0.0.1:1/refused" },
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"] }] }] })
}

#[tokio::test(flavor = "multi_thread")]
async fn admission_errors_are_reported_and_an_unreachable_webhook_is_awaited_once() {
    let bed = Bed::real(require!(plimsoll_testkit::cluster().await)).await;
    let home = bed.home("home").await;
    let _server = home.server();
    let shop = bed.application("shop", 0).await;
    let name = bed.ns("policy");
    for object in refusing_policy(&name, &shop).iter().chain([&unreachable_webhook(&name, &shop)]) {
        create(&bed, object).await;
    }
    let probe = objects(&bed, "v1", "ConfigMap", Some(&shop));
    eventually("the policy is enforced", async || {
        let refused = serde_json::from_value(config_map(&shop, "refused", "probe")).unwrap();
        let dry = kube::api::PostParams { dry_run: true, ..kube::api::PostParams::default() };
        probe.create(&dry, &refused).await.is_err()
    })
    .await;
    let secret = |name: &str| json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": shop }, "data": {} });
    Planted::new()
        .object("configmaps", &config_map(&shop, "refused", "1"))
        .object("configmaps", &config_map(&shop, "welcome", "1"))
        .object("secrets", &secret("one"))
        .object("secrets", &secret("two"))
        .plant(&home, "b")
        .await;
    home.restore("r", json!({ "backupName": "b" })).await;
    let restore = home.ended("Restore", "r").await;
    assert_restored(&home, &restore, ("PartiallyFailed", [4, 1, 0, 3]));
    let errors = restored_file(&home, "r", "results.gz")["errors"].to_string();
    assert!(errors.contains("no such thing here"), "{errors}");
    assert!(errors.contains("cannot call admission webhook") && errors.contains("policy.example.com"), "{errors}");
    for kind in ["ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy", "ValidatingWebhookConfiguration"] {
        let _ =
            objects(&bed, "admissionregistration.k8s.io/v1", kind, None).delete(&name, &DeleteParams::default()).await;
    }
    bed.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreliable_api_server_delays_operations_but_does_not_fail_them() {
    let cluster = require!(plimsoll_testkit::cluster().await);
    let bed = Bed::real(cluster).await;
    let home = bed.home("home").await;
    let proxy = Proxy::for_api_server(cluster).await.unwrap();
    let _server = home.server_through(proxy.kubeconfig().unwrap(), &["--lease-duration", "1m"], &[]);
    let shop = bed.ns("shop");
    let mut planted = Planted::new();
    for number in 0..60 {
        planted = planted.object("configmaps", &config_map(&shop, &format!("map-{number}"), "1"));
    }
    planted.plant(&home, "b").await;
    let creates = || Requests::with_method(Method::POST).containing(format!("/namespaces/{shop}/configmaps"));
    let lost = proxy.inject(creates().first(5), Fault::DropResponse);
    home.restore("lost", json!({ "backupName": "b" })).await;
    let restore = home.ended("Restore", "lost").await;
    assert_restored(&home, &restore, ("Completed", [60, 60, 0, 0]));
    assert_eq!(lost.hits(), 5, "a create whose answer is lost is known again as our own");
    drop(lost);

    let copy = bed.ns("copy");
    let creates = Requests::with_method(Method::POST).containing(format!("/namespaces/{copy}/configmaps"));
    let busy = proxy.inject(creates.clone().first(40), Fault::Status(429));
    home.restore("busy", json!({ "backupName": "b", "namespaceMapping": { shop.clone(): copy } })).await;
    eventually("some creates were refused", async || busy.hits() >= 10).await;
    proxy.close();
    let refused = proxy.count_requests(&Requests::all());
    proxy.open();
    eventually("it retries", async || proxy.count_requests(&Requests::all()) > refused).await;
    let restore = home.ended("Restore", "busy").await;
    assert_restored(&home, &restore, ("Completed", [60, 60, 0, 0]));
    let found = objects(&bed, "v1", "ConfigMap", Some(&copy))
        .list(&ListParams::default().labels("velero.io/restore-name=busy"))
        .await;
    assert_eq!(found.unwrap().items.len(), 60);
    bed.clear().await;
}
