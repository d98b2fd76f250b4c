//! Responses of the API and their HTTP form.

use crate::{kind::Kind, negotiate::Form, status_error::StatusError, table};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use serde_json::{Value, json};
use std::convert::Infallible;

/// The body of a response: whole, or a stream of watch events.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The response to a request, before it becomes HTTP.
pub(crate) struct ApiResponse {
    pub code: u16,
    pub bytes: Bytes,
    pub warnings: Vec<String>,
}

impl ApiResponse {
    pub fn ok(bytes: Bytes) -> Self {
        Self { code: 200, bytes, warnings: Vec::new() }
    }

    pub fn json(value: &Value) -> Self {
        Self::ok(value.to_string().into())
    }

    /// Converts the object to the form that the client requested.
    pub fn render(mut self, kind: &Kind, form: Form) -> Result<Self, StatusError> {
        self.bytes = render_object(kind, form, self.bytes)?;
        Ok(self)
    }

    pub fn into_response(self) -> Response<Body> {
        let mut response = respond(self.code, Full::new(self.bytes).boxed_unsync());
        for warning in self.warnings {
            let text = format!("299 - \"{}\"", warning.replace('\\', "\\\\").replace('"', "\\\""));
            if let Ok(value) = HeaderValue::from_str(&text) {
                response.headers_mut().append(header::WARNING, value);
            }
        }
        response
    }
}

/// Converts one object to a form.
pub(crate) fn render_object(kind: &Kind, form: Form, object: Bytes) -> Result<Bytes, StatusError> {
    let parse = |bytes: &Bytes| serde_json::from_slice::<Value>(bytes);
    Ok(match form {
        Form::Object => object,
        Form::Metadata => table::only_metadata(&parse(&object)?).to_string().into(),
        Form::Table(include) => {
            let object = parse(&object)?;
            let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
            table::render(&kind.columns, &[object], include, &metadata).to_string().into()
        }
    })
}

impl StatusError {
    pub fn into_response(self) -> Response<Body> {
        respond(self.code, Full::new(self.status().to_string().into()).boxed_unsync())
    }
}

/// A stream of lines.
pub(crate) fn stream(lines: impl Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    let frames = lines.map(|bytes| Ok::<_, Infallible>(Frame::data(bytes)));
    respond(200, StreamBody::new(frames).boxed_unsync())
}

fn respond(code: u16, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Plain text, for the health endpoints.
pub(crate) fn plain_text(text: &'static str) -> Response<Body> {
    let mut response = respond(200, Full::new(Bytes::from_static(text.as_bytes())).boxed_unsync());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
