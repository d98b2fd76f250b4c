//! Answers, each with the headers that keep a browser from doing what it should not.

use std::convert::Infallible;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use serde::Serialize;

/// What goes out.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;
/// An answer.
pub type Answer = Response<Body>;

/// On every answer: whoever asks through a proxy knows by it that the proxy itself did not answer.
pub const OURS: HeaderName = HeaderName::from_static("x-plimsoll");

/// Only what this server itself sends is run, drawn or asked; nobody frames it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// An answer with a body of a kind.
pub fn answer(status: StatusCode, kind: &'static str, body: Body) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let headers: [(HeaderName, &'static str); 7] = [
        (OURS, "1"),
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in headers {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// All of it at once.
pub fn whole(kind: &'static str, bytes: impl Into<Bytes>) -> Answer {
    answer(StatusCode::OK, kind, full(bytes))
}

fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A value.
pub fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    let text = serde_json::to_vec(value).unwrap_or_default();
    answer(status, "application/json", full(text))
}

/// Why not.
pub fn problem(status: StatusCode, reason: &str, message: &str) -> Answer {
    json(status, &serde_json::json!({ "reason": reason, "message": message }))
}

/// Events, as they come.
pub fn events(stream: impl Stream<Item = Bytes> + Send + 'static) -> Answer {
    let body = StreamBody::new(stream.map(|piece| Ok::<_, Infallible>(Frame::data(piece)))).boxed_unsync();
    answer(StatusCode::OK, "text/event-stream", body)
}
