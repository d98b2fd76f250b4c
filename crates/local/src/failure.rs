//! Refusals: everything that goes wrong in a request becomes a `Status` object with the code and reason that a
//! Kubernetes API server would use, because clients decide by those two.

pub(crate) use plimsoll_select::schema::StatusCause;
use serde_json::{Value, json};

/// A refused request.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    pub details: Value,
    /// Continue token for a list that may go on, inconsistently.
    pub resume: Option<String>,
}

/// What a refusal is about, as `details` shows it.
#[derive(Clone, Copy)]
pub(crate) struct About<'a> {
    pub group: &'a str,
    /// The plural, except in an invalid object's refusal, which names the kind.
    pub kind: &'a str,
    pub name: &'a str,
}

impl About<'_> {
    fn qualified(&self) -> String {
        if self.group.is_empty() { self.kind.to_owned() } else { format!("{}.{}", self.kind, self.group) }
    }

    fn details(&self) -> Value {
        let mut details = json!({});
        for (key, value) in [("name", self.name), ("group", self.group), ("kind", self.kind)] {
            if !value.is_empty() {
                details[key] = json!(value);
            }
        }
        details
    }
}

impl Failure {
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: json!({}), resume: None }
    }

    fn about(mut self, about: About<'_>) -> Self {
        self.details = about.details();
        self
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// The path leads nowhere.
    pub fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    pub fn not_found(about: About<'_>) -> Self {
        Self::new(404, "NotFound", format!("{} \"{}\" not found", about.qualified(), about.name)).about(about)
    }

    pub fn already_exists(about: About<'_>, being_deleted: bool) -> Self {
        let prefix = if being_deleted { "object is being deleted: " } else { "" };
        let message = format!("{prefix}{} \"{}\" already exists", about.qualified(), about.name);
        Self::new(409, "AlreadyExists", message).about(about)
    }

    pub fn conflict(about: About<'_>, why: impl AsRef<str>) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} \"{}\": {}", about.qualified(), about.name, why.as_ref());
        Self::new(409, "Conflict", message).about(about)
    }

    pub fn forbidden(about: About<'_>, why: impl AsRef<str>) -> Self {
        let message = format!("{} \"{}\" is forbidden: {}", about.qualified(), about.name, why.as_ref());
        Self::new(403, "Forbidden", message).about(about)
    }

    pub fn namespace_terminating(about: About<'_>, namespace: &str) -> Self {
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut failure = Self::forbidden(about, why);
        failure.details["causes"] = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]);
        failure
    }

    /// `about.kind` is the kind here, not the plural, as the real server has it.
    pub fn invalid(about: About<'_>, causes: &[StatusCause]) -> Self {
        let texts: Vec<String> = causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect();
        let list = if texts.len() == 1 { texts.concat() } else { format!("[{}]", texts.join(", ")) };
        let mut failure =
            Self::new(422, "Invalid", format!("{} \"{}\" is invalid: {list}", about.qualified(), about.name))
                .about(about);
        failure.details["causes"] = causes
            .iter()
            .map(|c| json!({"reason": c.reason, "message": c.message, "field": c.field}))
            .collect::<Vec<_>>()
            .into();
        failure
    }

    pub fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    }

    pub fn not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json, application/json;stream=watch";
        Self::new(406, "NotAcceptable", message)
    }

    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub fn too_large(limit: usize) -> Self {
        Self::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {limit}"))
    }

    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// A watch that starts before the retained history, or fell behind it.
    pub fn too_old(asked: u64, oldest: u64) -> Self {
        Self::expired(format!("too old resource version: {asked} ({oldest})"))
    }

    pub fn revision_in_future(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let mut failure = Self::new(504, "Timeout", message);
        failure.details = json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        });
        failure
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {}", message.into()))
    }

    pub fn not_implemented(what: &str) -> Self {
        Self::new(501, "NotImplemented", format!("the local API does not implement {what}"))
    }

    /// The body of the answer.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Failure", "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if self.details.as_object().is_some_and(|details| !details.is_empty()) {
            status["details"] = self.details.clone();
        }
        if let Some(token) = &self.resume {
            status["metadata"]["continue"] = json!(token);
        }
        status
    }
}

impl From<redb::StorageError> for Failure {
    fn from(error: redb::StorageError) -> Self {
        Self::internal(format!("database: {error}"))
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::internal(format!("stored object is not JSON: {error}"))
    }
}
