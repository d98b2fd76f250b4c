//! Routes an HTTP request to the operation on its resource.

use crate::{
    Core,
    delete::Deletion,
    discovery,
    key::Key,
    kind::Kind,
    negotiate::{self, Form},
    patch::Patch,
    request::{Query, RequestInfo},
    response::{self, ApiResponse, Body},
    scale,
    status_error::StatusError,
    write::{self, Change, UpdateScope},
};
use bytes::Bytes;
use http::{Method, Request, Response, header, request::Parts};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use std::sync::Arc;

/// Larger bodies are rejected, as kube-apiserver does.
pub(crate) const BODY_LIMIT: usize = 3 * 1024 * 1024;

impl Core {
    pub async fn handle<B>(self: Arc<Self>, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        match self.route(request).await {
            Ok(response) => response,
            Err(failure) => failure.into_response(),
        }
    }

    async fn route<B>(self: &Arc<Self>, request: Request<B>) -> Result<Response<Body>, StatusError>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        if matches!(path, "/healthz" | "/livez" | "/readyz") {
            return Ok(response::plain_text("ok"));
        }
        // An empty protobuf document. For a list in a file, kubectl requests this before it relies on server validation.
        if path == "/openapi/v2" {
            return Ok(response::plain_text(""));
        }
        let Some(target) = RequestInfo::parse(path) else { return self.discover(&parts) };
        let found = self.registry().find(&target.group, &target.version, &target.plural);
        let kind = found.ok_or_else(StatusError::unknown_path)?;
        let body = read_body(body).await?;
        let query = Query::parse(parts.uri.query().unwrap_or_default())?;
        let form = Form::negotiate(&parts.headers, &query)?;
        ResourceRequest { core: self, kind, target, query, form, parts: &parts, body }.run().await
    }

    fn discover(&self, parts: &Parts) -> Result<Response<Body>, StatusError> {
        let found = discovery::document(&self.registry(), parts.uri.path()).ok_or_else(StatusError::unknown_path)?;
        if parts.method != Method::GET {
            return Err(StatusError::method_not_allowed());
        }
        Ok(ApiResponse::json(&found).into_response())
    }
}

async fn read_body<B>(body: B) -> Result<Bytes, StatusError>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match Limited::new(body, BODY_LIMIT).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(StatusError::too_large(BODY_LIMIT)),
        Err(error) => Err(StatusError::bad_request(format!("the body could not be read: {error}"))),
    }
}

/// A request for objects of a kind that exists.
struct ResourceRequest<'a> {
    core: &'a Arc<Core>,
    kind: Arc<Kind>,
    target: RequestInfo,
    query: Query,
    form: Form,
    parts: &'a Parts,
    body: Bytes,
}

impl ResourceRequest<'_> {
    async fn run(self) -> Result<Response<Body>, StatusError> {
        if self.kind.namespaced && self.target.namespace.is_none() && self.target.name.is_some() {
            return Err(StatusError::unknown_path());
        }
        if !self.kind.namespaced && self.target.namespace.is_some() {
            return Err(StatusError::unknown_path());
        }
        match (&self.target.name, self.target.subresource.as_deref()) {
            (None, _) => self.handle_collection().await,
            (Some(_), None) => self.handle_object(UpdateScope::Main).await,
            (Some(_), Some("status")) if self.kind.status => self.handle_object(UpdateScope::Status).await,
            (Some(_), Some("finalize")) if self.kind.is("namespaces") => {
                self.handle_object(UpdateScope::Finalize).await
            }
            (Some(_), Some("scale")) if self.kind.scale => self.handle_scale().await,
            (Some(_), Some("log")) if self.kind.is("pods") => self.core.log(&self.key(), &self.query).await,
            (Some(_), Some("exec")) if self.kind.is("pods") => self.core.exec(&self.key(), &self.query, self.parts),
            (Some(_), Some(known @ ("attach" | "portforward" | "proxy" | "eviction" | "binding" | "token"))) => {
                Err(StatusError::not_implemented(&format!("{}/{known}", self.kind.plural)))
            }
            _ => Err(StatusError::unknown_path()),
        }
    }

    fn namespace(&self) -> Option<&str> {
        self.target.namespace.as_deref()
    }

    fn key(&self) -> Key {
        self.kind.key(self.namespace().unwrap_or_default(), self.target.name.as_deref().unwrap_or_default())
    }

    fn kind(&self) -> Arc<Kind> {
        Arc::clone(&self.kind)
    }

    fn finish(&self, response: ApiResponse) -> Result<Response<Body>, StatusError> {
        Ok(response.render(&self.kind, self.form)?.into_response())
    }

    async fn handle_collection(self) -> Result<Response<Body>, StatusError> {
        let lacks_namespace = self.kind.namespaced && self.namespace().is_none();
        match self.parts.method {
            Method::GET if self.query.watch => self.core.watch(self.kind(), self.namespace(), &self.query, self.form),
            Method::GET => {
                let namespace = self.target.namespace.clone();
                Ok(self.core.list(self.kind(), namespace, self.query, self.form).await?.into_response())
            }
            Method::POST if !lacks_namespace => {
                self.check_json()?;
                let created = self.core.create(self.kind(), self.namespace(), &self.body, &self.query).await?;
                self.finish(created)
            }
            Method::DELETE if !lacks_namespace => {
                let deletion = Deletion::parse(&self.body, &self.query)?;
                let deleted = self.core.delete_collection(self.kind(), self.namespace(), &self.query, deletion).await?;
                Ok(deleted.into_response())
            }
            _ => Err(StatusError::method_not_allowed()),
        }
    }

    async fn handle_object(self, scope: UpdateScope) -> Result<Response<Body>, StatusError> {
        match self.parts.method {
            Method::GET if scope != UpdateScope::Finalize => self.finish(self.core.get(&self.kind, &self.key())?),
            Method::PUT => {
                let change = self.replacement()?;
                self.finish(self.core.update(self.kind(), self.key(), scope, change, &self.query).await?)
            }
            Method::PATCH if scope != UpdateScope::Finalize => {
                let change = self.patch()?;
                self.finish(self.core.update(self.kind(), self.key(), scope, change, &self.query).await?)
            }
            Method::DELETE if scope == UpdateScope::Main => {
                let deletion = Deletion::parse(&self.body, &self.query)?;
                Ok(self.core.delete(self.kind(), self.key(), deletion).await?.into_response())
            }
            _ => Err(StatusError::method_not_allowed()),
        }
    }

    async fn handle_scale(self) -> Result<Response<Body>, StatusError> {
        let change: Change = match self.parts.method {
            Method::GET => return Ok(scale::to_scale(self.core.get(&self.kind, &self.key())?)?.into_response()),
            Method::PUT => {
                let body = serde_json::from_slice(&self.body);
                let wanted =
                    body.map_err(|error| StatusError::bad_request(format!("couldn't read a Scale: {error}")))?;
                Box::new(move |object| scale::apply(object, &wanted))
            }
            Method::PATCH => {
                let patch = self.read_patch()?;
                Box::new(move |object| scale::apply(object, &patch.apply(&scale::from_object(object))?))
            }
            _ => return Err(StatusError::method_not_allowed()),
        };
        let updated = self.core.update(self.kind(), self.key(), UpdateScope::Main, change, &self.query).await?;
        Ok(scale::to_scale(updated)?.into_response())
    }

    /// Bodies are JSON; a body without a content type is treated as JSON.
    fn check_json(&self) -> Result<(), StatusError> {
        match negotiate::content_type(&self.parts.headers) {
            "" | "application/json" => Ok(()),
            _ => Err(StatusError::unsupported_media_type(&["application/json"])),
        }
    }

    fn replacement(&self) -> Result<Change, StatusError> {
        self.check_json()?;
        let mut object = write::decode(&self.kind, &self.body)?;
        write::set_namespace(&self.kind, self.namespace(), &mut object)?;
        let name = self.target.name.as_deref().unwrap_or_default();
        let given = crate::object::text(&object, "/metadata/name");
        if given.is_empty() {
            return Err(StatusError::bad_request("the name of the object must be set in the body of an update"));
        }
        if given != name {
            let message = format!("the name of the object ({given}) does not match the name on the URL ({name})");
            return Err(StatusError::bad_request(message));
        }
        Ok(Box::new(move |_| Ok(object)))
    }

    fn patch(&self) -> Result<Change, StatusError> {
        let patch = self.read_patch()?;
        Ok(Box::new(move |object| patch.apply(object)))
    }

    fn read_patch(&self) -> Result<Patch, StatusError> {
        Patch::parse(negotiate::content_type(&self.parts.headers), &self.kind, &self.body)
    }
}

fn bearer_token(headers: &http::HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

impl Core {
    /// Whether the bearer token of a request is the server's or one of a pod. The in-process client needs none.
    pub fn is_authorized(&self, headers: &http::HeaderMap, token: &str) -> bool {
        let Some(given) = bearer_token(headers) else { return false };
        constant_time_eq(given.as_bytes(), token.as_bytes())
            || self.accepts_token(given).unwrap_or_else(|failure| {
                tracing::warn!(error = failure.message, "cannot check a token");
                false
            })
    }
}

/// Compares in a time that does not depend on the position of the first difference.
fn constant_time_eq(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}
