//! From an HTTP request to what it asks for.

use crate::{
    Core,
    answer::{self, Answer, Body},
    delete::Deletion,
    discovery,
    failure::Failure,
    key::Key,
    kind::Kind,
    negotiate::{self, Form},
    patch::Patch,
    scale,
    target::{Query, Target},
    write::{self, Change, Part},
};
use bytes::Bytes;
use http::{Method, Request, Response, header, request::Parts};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use std::sync::Arc;

/// Bodies above this are refused, as the real server does.
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

    async fn route<B>(self: &Arc<Self>, request: Request<B>) -> Result<Response<Body>, Failure>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        if matches!(path, "/healthz" | "/livez" | "/readyz") {
            return Ok(answer::plain("ok"));
        }
        // A document of nothing, in protobuf: for lists in a file kubectl asks for this before it leaves checks to us.
        if path == "/openapi/v2" {
            return Ok(answer::plain(""));
        }
        let Some(target) = Target::parse(path) else { return self.discover(&parts) };
        let found = self.registry().find(&target.group, &target.version, &target.plural);
        let kind = found.ok_or_else(Failure::no_such_path)?;
        let body = collect(body).await?;
        let query = Query::parse(parts.uri.query().unwrap_or_default())?;
        let form = Form::wanted(&parts.headers, &query)?;
        Call { core: self, kind, target, query, form, parts: &parts, body }.run().await
    }

    fn discover(&self, parts: &Parts) -> Result<Response<Body>, Failure> {
        let found = discovery::answer(&self.registry(), parts.uri.path()).ok_or_else(Failure::no_such_path)?;
        if parts.method != Method::GET {
            return Err(Failure::method_not_allowed());
        }
        Ok(Answer::json(&found).into_response())
    }
}

async fn collect<B>(body: B) -> Result<Bytes, Failure>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match Limited::new(body, BODY_LIMIT).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Failure::too_large(BODY_LIMIT)),
        Err(error) => Err(Failure::bad_request(format!("the body could not be read: {error}"))),
    }
}

/// A request for objects of a kind that exists.
struct Call<'a> {
    core: &'a Arc<Core>,
    kind: Arc<Kind>,
    target: Target,
    query: Query,
    form: Form,
    parts: &'a Parts,
    body: Bytes,
}

impl Call<'_> {
    async fn run(self) -> Result<Response<Body>, Failure> {
        if self.kind.namespaced && self.target.namespace.is_none() && self.target.name.is_some() {
            return Err(Failure::no_such_path());
        }
        if !self.kind.namespaced && self.target.namespace.is_some() {
            return Err(Failure::no_such_path());
        }
        match (&self.target.name, self.target.subresource.as_deref()) {
            (None, _) => self.on_collection().await,
            (Some(_), None) => self.on_object(Part::Main).await,
            (Some(_), Some("status")) if self.kind.status => self.on_object(Part::Status).await,
            (Some(_), Some("finalize")) if self.kind.is("namespaces") => self.on_object(Part::Finalize).await,
            (Some(_), Some("scale")) if self.kind.scale => self.on_scale().await,
            (Some(_), Some("log")) if self.kind.is("pods") => self.core.log(&self.key(), &self.query).await,
            (Some(_), Some("exec")) if self.kind.is("pods") => self.core.exec(&self.key(), &self.query, self.parts),
            (Some(_), Some(known @ ("attach" | "portforward" | "proxy" | "eviction" | "binding" | "token"))) => {
                Err(Failure::not_implemented(&format!("{}/{known}", self.kind.plural)))
            }
            _ => Err(Failure::no_such_path()),
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

    fn finish(&self, answer: Answer) -> Result<Response<Body>, Failure> {
        Ok(answer.shaped(&self.kind, self.form)?.into_response())
    }

    async fn on_collection(self) -> Result<Response<Body>, Failure> {
        let placeless = self.kind.namespaced && self.namespace().is_none();
        match self.parts.method {
            Method::GET if self.query.watch => self.core.watch(self.kind(), self.namespace(), &self.query, self.form),
            Method::GET => {
                let namespace = self.target.namespace.clone();
                Ok(self.core.list(self.kind(), namespace, self.query, self.form).await?.into_response())
            }
            Method::POST if !placeless => {
                self.check_json()?;
                let created = self.core.create(self.kind(), self.namespace(), &self.body, &self.query).await?;
                self.finish(created)
            }
            Method::DELETE if !placeless => {
                let deletion = Deletion::parse(&self.body, &self.query)?;
                let deleted = self.core.delete_collection(self.kind(), self.namespace(), &self.query, deletion).await?;
                Ok(deleted.into_response())
            }
            _ => Err(Failure::method_not_allowed()),
        }
    }

    async fn on_object(self, part: Part) -> Result<Response<Body>, Failure> {
        match self.parts.method {
            Method::GET if part != Part::Finalize => self.finish(self.core.get(&self.kind, &self.key())?),
            Method::PUT => {
                let change = self.replacement()?;
                self.finish(self.core.update(self.kind(), self.key(), part, change, &self.query).await?)
            }
            Method::PATCH if part != Part::Finalize => {
                let change = self.patch()?;
                self.finish(self.core.update(self.kind(), self.key(), part, change, &self.query).await?)
            }
            Method::DELETE if part == Part::Main => {
                let deletion = Deletion::parse(&self.body, &self.query)?;
                Ok(self.core.delete(self.kind(), self.key(), deletion).await?.into_response())
            }
            _ => Err(Failure::method_not_allowed()),
        }
    }

    async fn on_scale(self) -> Result<Response<Body>, Failure> {
        let change: Change = match self.parts.method {
            Method::GET => return Ok(scale::show(self.core.get(&self.kind, &self.key())?)?.into_response()),
            Method::PUT => {
                let body = serde_json::from_slice(&self.body);
                let wanted = body.map_err(|error| Failure::bad_request(format!("couldn't read a Scale: {error}")))?;
                Box::new(move |object| scale::apply(object, &wanted))
            }
            Method::PATCH => {
                let patch = self.read_patch()?;
                Box::new(move |object| scale::apply(object, &patch.apply(&scale::of(object))?))
            }
            _ => return Err(Failure::method_not_allowed()),
        };
        let updated = self.core.update(self.kind(), self.key(), Part::Main, change, &self.query).await?;
        Ok(scale::show(updated)?.into_response())
    }

    /// Bodies are JSON; without a content type they are taken for it.
    fn check_json(&self) -> Result<(), Failure> {
        match negotiate::content_type(&self.parts.headers) {
            "" | "application/json" => Ok(()),
            _ => Err(Failure::unsupported_media_type(&["application/json"])),
        }
    }

    fn replacement(&self) -> Result<Change, Failure> {
        self.check_json()?;
        let mut object = write::decode(&self.kind, &self.body)?;
        write::place(&self.kind, self.namespace(), &mut object)?;
        let name = self.target.name.as_deref().unwrap_or_default();
        let given = crate::object::text(&object, "/metadata/name");
        if given.is_empty() {
            return Err(Failure::bad_request("the name of the object must be set in the body of an update"));
        }
        if given != name {
            let message = format!("the name of the object ({given}) does not match the name on the URL ({name})");
            return Err(Failure::bad_request(message));
        }
        Ok(Box::new(move |_| Ok(object)))
    }

    fn patch(&self) -> Result<Change, Failure> {
        let patch = self.read_patch()?;
        Ok(Box::new(move |object| patch.apply(object)))
    }

    fn read_patch(&self) -> Result<Patch, Failure> {
        Patch::parse(negotiate::content_type(&self.parts.headers), &self.kind, &self.body)
    }
}

fn bearer_token(headers: &http::HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

impl Core {
    /// Whether a request to the listener may proceed: with its token, or with one of a pod. The in-process client needs none.
    pub fn is_authorized(&self, headers: &http::HeaderMap, token: &str) -> bool {
        let Some(given) = bearer_token(headers) else { return false };
        same(given.as_bytes(), token.as_bytes())
            || self.accepts_token(given).unwrap_or_else(|failure| {
                tracing::warn!(error = failure.message, "cannot check a token");
                false
            })
    }
}

/// Compares in a time that does not depend on where the difference is.
fn same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}
