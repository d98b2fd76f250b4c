//! Who gets what over HTTP.

use plimsoll_observe::Kind;
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};

use crate::bed::{Bed, eventually};

async fn ask(bed: &Bed, method: Method, path: &str, token: Option<&str>) -> (StatusCode, String) {
    ask_at(bed.url(path), method, token).await
}

async fn ask_at(url: String, method: Method, token: Option<&str>) -> (StatusCode, String) {
    let mut request = Client::new().request(method, url);
    if let Some(token) = token {
        request = request.header("X-Plimsoll-Token", token);
    }
    let answer = request.send().await.unwrap();
    (answer.status(), answer.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_but_the_page_needs_the_token_and_nothing_may_be_changed_unasked() {
    let bed = Bed::new(false).await;
    bed.create(Kind::Backup, json!({ "metadata": { "name": "broken" }, "status": { "phase": "Failed" } })).await;
    let token = Some(bed.token.reveal());
    for path in ["/", "/app.js", "/style.css", "/healthz", "/metrics"] {
        assert_eq!(ask(&bed, Method::GET, path, None).await.0, StatusCode::OK, "{path}");
    }
    for path in ["/api/overview", "/api/events", "/api/trees", "/api/operations/backup/velero/broken", "/nothing"] {
        assert_eq!(ask(&bed, Method::GET, path, None).await.0, StatusCode::UNAUTHORIZED, "{path}");
        assert_eq!(ask(&bed, Method::GET, path, Some("wrong")).await.0, StatusCode::UNAUTHORIZED, "{path}");
    }
    let (status, text) = ask(&bed, Method::GET, "/api/overview", token).await;
    let told: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &told["news"]["rows"][0]["key"]), (StatusCode::OK, &json!("backup/velero/broken")), "{text}");
    assert_eq!(ask(&bed, Method::GET, "/api/operations/backup/velero/none", token).await.0, StatusCode::NOT_FOUND);
    let (status, text) = ask(&bed, Method::POST, "/api/operations/backup/velero/broken/retry", token).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{text}");
    let page = Client::new().get(bed.url("/")).send().await.unwrap();
    let policy = page.headers()["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_it_is_allowed_what_runs_is_cancelled_and_what_failed_is_done_again() {
    let bed = Bed::new(true).await;
    let token = Some(bed.token.reveal());
    let spec = json!({ "includedNamespaces": ["shop"] });
    let failed = json!({ "metadata": { "name": "broken" }, "spec": spec, "status": { "phase": "Failed" } });
    bed.create(Kind::Backup, failed).await;
    let uid = bed
        .create(Kind::Backup, json!({ "metadata": { "name": "running" }, "status": { "phase": "InProgress" } }))
        .await;
    let operation = json!({ "metadata": { "name": "backup-running" }, "spec": { "verb": "backup",
        "subject": { "apiVersion": "velero.io/v1", "kind": "Backup", "name": "running", "uid": uid } } });
    bed.create(Kind::Operation, operation).await;
    let post =
        async |path: &str| ask(&bed, Method::POST, &format!("/api/operations/backup/velero/{path}"), token).await;
    eventually("both are seen, and whose they are", async || {
        let text = ask(&bed, Method::GET, "/api/overview", token).await.1;
        let told: Value = serde_json::from_str(&text).unwrap_or_default();
        let rows = told["news"]["rows"].as_array().cloned().unwrap_or_default();
        rows.iter().any(|row| row["canCancel"] == json!(true)) && rows.iter().any(|row| row["canRetry"] == json!(true))
    })
    .await;
    let (status, text) = post("broken/retry").await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let names = bed.names(Kind::Backup).await;
    let again = names.iter().find(|name| name.starts_with("broken-again-")).unwrap_or_else(|| panic!("{names:?}"));
    assert_eq!(bed.get(Kind::Backup, again).await["spec"]["includedNamespaces"], json!(["shop"]));
    let (status, text) = post("running/cancel").await;
    assert_eq!(status, StatusCode::OK, "{text}");
    assert_eq!(bed.get(Kind::Operation, "backup-running").await["spec"]["cancel"], json!(true));
    assert_eq!(post("running/retry").await.0, StatusCode::CONFLICT);
    assert_eq!(post("broken/cancel").await.0, StatusCode::CONFLICT);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_looks_through_the_leader_changes_with_own_rights_and_never_with_the_leaders() {
    // The leader allows what the reader's own dashboard does not, and the other way round.
    for allowed_here in [false, true] {
        let bed = Bed::new(!allowed_here).await;
        bed.create(Kind::Backup, json!({ "metadata": { "name": "broken" }, "status": { "phase": "Failed" } })).await;
        let (ui, token) = bed.ui(allowed_here).await;
        let token = Some(token.reveal());
        let url = |path: &str| format!("http://{}{path}", ui.address);
        let (status, text) = ask_at(url("/api/overview"), Method::GET, token).await;
        let told: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((status, &told["facts"]["mayChange"]), (StatusCode::OK, &json!(allowed_here)), "{text}");
        assert_eq!(told["news"]["rows"][0]["key"], "backup/velero/broken", "{text}");
        let (status, text) = ask_at(url("/api/operations/backup/velero/broken/retry"), Method::POST, token).await;
        let wanted = if allowed_here { StatusCode::OK } else { StatusCode::FORBIDDEN };
        assert_eq!(status, wanted, "{text}");
        assert_eq!(bed.names(Kind::Backup).await.len(), if allowed_here { 2 } else { 1 });
    }
}
