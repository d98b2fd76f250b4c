//! Answers of the API and their HTTP form.

use crate::{failure::Failure, kind::Kind, negotiate::Form, table};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use serde_json::{Value, json};
use std::convert::Infallible;

/// The body of a response: whole, or a stream of watch events.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What a request leads to.
pub(crate) struct Answer {
    pub code: u16,
    pub bytes: Bytes,
    pub warnings: Vec<String>,
}

impl Answer {
    pub fn ok(bytes: Bytes) -> Self {
        Self { code: 200, bytes, warnings: Vec::new() }
    }

    pub fn json(value: &Value) -> Self {
        Self::ok(value.to_string().into())
    }

    /// One object, in the form the client asked for.
    pub fn shaped(mut self, kind: &Kind, form: Form) -> Result<Self, Failure> {
        self.bytes = shape(kind, form, self.bytes)?;
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

/// One object in another form.
pub(crate) fn shape(kind: &Kind, form: Form, object: Bytes) -> Result<Bytes, Failure> {
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

impl Failure {
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
pub(crate) fn plain(text: &'static str) -> Response<Body> {
    let mut response = respond(200, Full::new(Bytes::from_static(text.as_bytes())).boxed_unsync());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
