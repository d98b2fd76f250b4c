//! Responses: errors as JSON, server-sent events, and the headers that every response carries.

use std::time::Duration;

use axum::Json;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::Stream;
use http::StatusCode;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use serde_json::json;

/// On every response: a client behind a proxy can tell our response from one of the proxy itself.
pub const SERVER_HEADER: HeaderName = HeaderName::from_static("x-plimsoll");

/// The page loads, runs and calls only what this server sends, and no other page may frame it.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const STANDARD_HEADERS: [(HeaderName, &str); 6] = [
    (SERVER_HEADER, "1"),
    (CONTENT_SECURITY_POLICY, CONTENT_POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-store"),
];

/// A heartbeat while nothing changes: proxies and readers close a silent stream.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// Adds the headers that restrict what a browser does with a response.
pub async fn add_standard_headers(mut response: Response) -> Response {
    for (name, value) in STANDARD_HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// A refused or failed request: `{"reason": …, "message": …}`.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    reason: &'static str,
    message: String,
}

impl Problem {
    /// A problem with its HTTP status and stable reason.
    pub fn new(status: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { status, reason, message: message.into() }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.status, Json(json!({ "reason": self.reason, "message": self.message }))).into_response()
    }
}

/// A stream of events with heartbeats.
pub fn event_stream<S>(events: S) -> Response
where
    S: Stream<Item = Result<Event, axum::Error>> + Send + 'static,
{
    let heartbeat = KeepAlive::new().interval(HEARTBEAT_INTERVAL).event(Event::default().event("beat").data("{}"));
    Sse::new(events).keep_alive(heartbeat).into_response()
}
