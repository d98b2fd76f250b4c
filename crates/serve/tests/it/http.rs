//! Routes, tokens and changes over HTTP.

use plimsoll_observe::Kind;
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};

use crate::test_bed::{TestBed, eventually};

async fn ask(bed: &TestBed, method: Method, path: &str, token: Option<&str>) -> (StatusCode, String) {
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
async fn everything_but_the_page_needs_the_token_and_changes_are_off_by_default() {
    let bed = TestBed::new(false).await;
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
    let body: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &body["news"]["rows"][0]["key"]), (StatusCode::OK, &json!("backup/velero/broken")), "{text}");
    assert_eq!(ask(&bed, Method::GET, "/api/operations/backup/velero/none", token).await.0, StatusCode::NOT_FOUND);
    let (status, text) = ask(&bed, Method::POST, "/api/operations/backup/velero/broken/retry", token).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{text}");
    let page = Client::new().get(bed.url("/")).send().await.unwrap();
    let policy = page.headers()["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
}

/// Method, path, status without the token, status with it.
const ROUTES: [(&str, &str, u16, u16); 19] = [
    ("GET", "/", 200, 200),
    ("GET", "/index.html", 200, 200),
    ("GET", "/views.js", 200, 200),
    ("GET", "/mark.svg", 200, 200),
    ("GET", "/healthz", 200, 200),
    ("GET", "/metrics", 200, 200),
    ("GET", "/api/facts", 401, 200),
    ("GET", "/api/overview", 401, 200),
    ("GET", "/api/operations/backup/velero/broken", 401, 200),
    ("GET", "/api/operations/backup/velero/none", 401, 404),
    ("GET", "/api/operations/backup/velero", 401, 404),
    ("GET", "/api/operations/backup/velero/broken/cancel", 401, 404),
    ("GET", "/api/operations/backup/velero/broken/events/more", 401, 404),
    ("POST", "/api/operations/backup/velero/broken/cancel", 401, 403),
    ("POST", "/api/operations/backup/velero/broken", 401, 404),
    ("POST", "/api/overview", 401, 404),
    ("DELETE", "/api/trees", 401, 404),
    ("GET", "/api/nothing", 401, 404),
    ("GET", "/nothing", 401, 404),
];

/// On every response, whatever its status.
const HEADERS: [(&str, &str); 6] = [
    ("x-plimsoll", "1"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_route_has_its_status_and_every_response_the_headers_that_restrict_a_browser() {
    let bed = TestBed::new(false).await;
    bed.create(Kind::Backup, json!({ "metadata": { "name": "broken" }, "status": { "phase": "Failed" } })).await;
    for (method, path, without, with) in ROUTES {
        for (token, wanted) in [(None, without), (Some(bed.token.reveal()), with)] {
            let mut request = Client::new().request(method.parse().unwrap(), bed.url(path));
            if let Some(token) = token {
                request = request.bearer_auth(token);
            }
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), wanted, "{method} {path}, token: {}", token.is_some());
            for (name, value) in HEADERS {
                assert_eq!(response.headers()[name], value, "{method} {path}: {name}");
            }
            let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
            let text = response.text().await.unwrap();
            if wanted >= 400 {
                let problem: Value = serde_json::from_str(&text).unwrap();
                assert_eq!(kind, "application/json", "{method} {path}");
                assert!(problem["reason"].is_string() && problem["message"].is_string(), "{method} {path}: {text}");
            }
        }
    }
    let types = [
        ("/", "text/html; charset=utf-8"),
        ("/app.js", "text/javascript; charset=utf-8"),
        ("/style.css", "text/css; charset=utf-8"),
        ("/mark.svg", "image/svg+xml"),
        ("/healthz", "text/plain; charset=utf-8"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
        ("/api/events", "text/event-stream"),
        ("/api/trees", "text/event-stream"),
    ];
    for (path, wanted) in types {
        let request = Client::new().get(bed.url(path)).header("X-Plimsoll-Token", bed.token.reveal());
        assert_eq!(request.send().await.unwrap().headers()["content-type"], wanted, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stream_of_events_begins_with_everything_and_has_the_fields_of_the_protocol() {
    let bed = TestBed::new(false).await;
    bed.create(Kind::Backup, json!({ "metadata": { "name": "nightly" }, "status": { "phase": "InProgress" } })).await;
    let request = Client::new().get(bed.url("/api/events")).header("X-Plimsoll-Token", bed.token.reveal());
    let mut response = request.send().await.unwrap();
    let mut text = String::new();
    while !text.contains("\n\n") {
        text += &String::from_utf8_lossy(&response.chunk().await.unwrap().unwrap());
    }
    let lines: Vec<&str> = text.split("\n\n").next().unwrap().lines().collect();
    assert_eq!(lines[0], "event: news", "{text}");
    let id = lines[1].strip_prefix("id: ").unwrap();
    let news: Value = serde_json::from_str(lines[2].strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!((&news["full"], news["rows"].as_array().unwrap().len()), (&json!(true), 1), "{text}");
    let again = Client::new().get(bed.url("/api/events")).header("Last-Event-ID", id);
    let mut again = again.header("X-Plimsoll-Token", bed.token.reveal()).send().await.unwrap();
    let missed = String::from_utf8_lossy(&again.chunk().await.unwrap().unwrap()).into_owned();
    assert!(missed.contains("\"full\":false"), "{missed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_it_is_allowed_running_operations_are_cancelled_and_failed_ones_retried() {
    let bed = TestBed::new(true).await;
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
        let body: Value = serde_json::from_str(&text).unwrap_or_default();
        let rows = body["news"]["rows"].as_array().cloned().unwrap_or_default();
        rows.iter().any(|row| row["canCancel"] == json!(true)) && rows.iter().any(|row| row["canRetry"] == json!(true))
    })
    .await;
    let (status, text) = post("broken/retry").await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let names = bed.names(Kind::Backup).await;
    let again = names.iter().find(|name| name.starts_with("broken-retry-")).unwrap_or_else(|| panic!("{names:?}"));
    assert_eq!(bed.get(Kind::Backup, again).await["spec"]["includedNamespaces"], json!(["shop"]));
    let (status, text) = post("running/cancel").await;
    assert_eq!(status, StatusCode::OK, "{text}");
    assert_eq!(bed.get(Kind::Operation, "backup-running").await["spec"]["cancel"], json!(true));
    assert_eq!(post("running/retry").await.0, StatusCode::CONFLICT);
    assert_eq!(post("broken/cancel").await.0, StatusCode::CONFLICT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dashboard_behind_a_leader_changes_with_its_own_rights_and_never_with_the_leaders() {
    // The leader allows what the reader's own dashboard does not, and the other way round.
    for allowed_here in [false, true] {
        let bed = TestBed::new(!allowed_here).await;
        bed.create(Kind::Backup, json!({ "metadata": { "name": "broken" }, "status": { "phase": "Failed" } })).await;
        let (ui, token) = bed.ui(allowed_here).await;
        let token = Some(token.reveal());
        let url = |path: &str| format!("http://{}{path}", ui.address);
        let (status, text) = ask_at(url("/api/overview"), Method::GET, token).await;
        let body: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((status, &body["facts"]["mayChange"]), (StatusCode::OK, &json!(allowed_here)), "{text}");
        assert_eq!(body["news"]["rows"][0]["key"], "backup/velero/broken", "{text}");
        let (status, text) = ask_at(url("/api/operations/backup/velero/broken/retry"), Method::POST, token).await;
        let wanted = if allowed_here { StatusCode::OK } else { StatusCode::FORBIDDEN };
        assert_eq!(status, wanted, "{text}");
        assert_eq!(bed.names(Kind::Backup).await.len(), if allowed_here { 2 } else { 1 });
    }
}
