//! Bad input.

use super::{Scope, config_map, create, refusal};
use http::{Method, Request};
use kube::{api::PostParams, client::Body};
use serde_json::json;

pub async fn bad_requests_get_code_and_reason_of_kubernetes(scope: &Scope) {
    create(&scope.config_maps(), &config_map("there", "value")).await;
    let (maps, there) = (scope.path("configmaps"), scope.path("configmaps/there"));
    let json = "application/json";
    let merge = "application/merge-patch+json";
    let body = json!({"metadata": {"name": "new"}}).to_string();
    let other_kind = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "new"}}).to_string();
    let other_place = json!({"metadata": {"name": "new", "namespace": "elsewhere"}}).to_string();
    let other_name = json!({"metadata": {"name": "other"}}).to_string();
    let (get, post, put, patch, delete) = (Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE);
    let missing_namespace = "/api/v1/namespaces/no-such-namespace/configmaps".to_owned();
    let cases: Vec<(&Method, String, &str, &str, u16, &str)> = vec![
        // Unknown paths.
        (&get, "/api/v1/nonsense".into(), json, "", 404, "NotFound"),
        (&get, scope.path("configmaps/absent"), json, "", 404, "NotFound"),
        (&get, scope.path("configmaps/there/nonsense"), json, "", 404, "NotFound"),
        (&post, missing_namespace, json, &body, 404, "NotFound"),
        // Bodies that cannot be parsed.
        (&post, maps.clone(), json, "{\"metadata\": ", 400, "BadRequest"),
        (&post, maps.clone(), json, "[]", 400, "BadRequest"),
        (&post, maps.clone(), json, &other_kind, 400, "BadRequest"),
        (&post, maps.clone(), json, &other_place, 400, "BadRequest"),
        (&put, there.clone(), json, &other_name, 400, "BadRequest"),
        (&post, maps.clone(), json, "{\"metadata\": {\"name\": \"new\", \"labels\": {\"a\": 1}}}", 400, "BadRequest"),
        // Unknown media types.
        (&post, maps.clone(), "text/plain", &body, 415, "UnsupportedMediaType"),
        (&put, there.clone(), "text/plain", &body, 415, "UnsupportedMediaType"),
        (&patch, there.clone(), "application/json", "{}", 415, "UnsupportedMediaType"),
        (&patch, there.clone(), "text/plain", "{}", 415, "UnsupportedMediaType"),
        // Unsupported methods.
        (&put, maps.clone(), json, &body, 405, "MethodNotAllowed"),
        (&patch, maps.clone(), merge, "{}", 405, "MethodNotAllowed"),
        (&post, there.clone(), json, &body, 405, "MethodNotAllowed"),
        (&post, "/api/v1/configmaps".into(), json, &body, 405, "MethodNotAllowed"),
        // Invalid patches.
        (&patch, there.clone(), merge, "{\"data\": ", 400, "BadRequest"),
        (&patch, there.clone(), "application/json-patch+json", "{}", 400, "BadRequest"),
        // Invalid queries.
        (&get, format!("{maps}?labelSelector=a%20b%20c"), json, "", 400, "BadRequest"),
        (&get, format!("{maps}?fieldSelector=nonsense"), json, "", 400, "BadRequest"),
        (&get, format!("{maps}?continue=nonsense&limit=1"), json, "", 400, "BadRequest"),
        (&delete, there.clone(), json, "{\"propagationPolicy\": \"Sideways\"}", 422, "Invalid"),
        (&post, format!("{maps}?dryRun=Some"), json, &body, 422, "Invalid"),
        (&post, format!("{maps}?fieldValidation=Maybe"), json, &body, 422, "Invalid"),
    ];
    for (method, path, content_type, body, code, reason) in cases {
        let (actual, status) = scope.raw(method.clone(), &path, content_type, body).await;
        assert_eq!((actual, status["reason"].as_str()), (code, Some(reason)), "{method} {path} {body}: {status}");
        assert_eq!((&status["kind"], &status["status"]), (&json!("Status"), &json!("Failure")), "{method} {path}");
    }
    // For an unknown group or version Kubernetes responds in plain text, before it negotiates the form of the response.
    for path in ["/apis/nonsense.example.com/v1/things", "/apis/apps/v9/deployments", "/nonsense"] {
        assert_eq!(scope.raw(Method::GET, path, json, "").await.0, 404, "{path}");
    }
    let request = Request::get(&maps).header("accept", "text/html").body(Body::empty()).unwrap();
    assert_eq!(scope.send(request).await.0, 406);
}

pub async fn invalid_objects_are_unprocessable(scope: &Scope) {
    let cases = [
        (json!({"name": "Upper"}), "metadata.name"),
        (json!({"name": "under_score"}), "metadata.name"),
        (json!({"name": "-dash"}), "metadata.name"),
        (json!({"name": "a".repeat(254)}), "metadata.name"),
        (json!({}), "metadata.name"),
        (json!({"name": "ok", "labels": {"a b": "x"}}), "metadata.labels"),
        (json!({"name": "ok", "labels": {"a": "x y"}}), "metadata.labels"),
        (json!({"name": "ok", "annotations": {"a b": "x"}}), "metadata.annotations"),
        (json!({"name": "ok", "annotations": {"big": "x".repeat(300_000)}}), "metadata.annotations"),
        (
            json!({"name": "ok", "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "", "uid": "u"}]}),
            "metadata.ownerReferences.name",
        ),
    ];
    for (metadata, field) in cases {
        let body = json!({"metadata": metadata}).to_string();
        let (code, status) = scope.raw(Method::POST, &scope.path("configmaps"), "application/json", body).await;
        let shown = &metadata.to_string()[..metadata.to_string().len().min(80)];
        assert_eq!((code, status["reason"].as_str()), (422, Some("Invalid")), "{shown}: {status}");
        let causes = status["details"]["causes"].as_array().unwrap();
        assert!(causes.iter().any(|cause| cause["field"] == field), "{shown}: {status}");
    }
}

pub async fn a_body_above_three_mebibytes_is_too_large(scope: &Scope) {
    let body = json!({"metadata": {"name": "huge"}, "data": {"key": "x".repeat(3 * 1024 * 1024)}}).to_string();
    let (code, status) = scope.raw(Method::POST, &scope.path("configmaps"), "application/json", body).await;
    assert_eq!((code, &status["reason"]), (413, &json!("RequestEntityTooLarge")));
}

pub async fn creating_twice_is_rejected(scope: &Scope) {
    let api = scope.config_maps();
    create(&api, &config_map("once", "value")).await;
    let twice = api.create(&PostParams::default(), &config_map("once", "other")).await;
    assert_eq!(refusal(twice), (409, "AlreadyExists".to_owned()));
}
