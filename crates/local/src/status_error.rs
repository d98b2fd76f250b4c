//! Errors of requests. Each becomes a `Status` object with the code and reason that kube-apiserver uses, because
//! clients decide by those two.

pub(crate) use plimsoll_select::schema::StatusCause;
use serde_json::{Value, json};

/// The error of a request.
#[derive(Clone, Debug)]
pub(crate) struct StatusError {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    pub details: Value,
    /// Continue token for an expired list that may be continued inconsistently.
    pub continue_token: Option<String>,
}

/// The object that an error is about, for `details`.
#[derive(Clone, Copy)]
pub(crate) struct StatusDetails<'a> {
    pub group: &'a str,
    /// The plural; for an invalid object the kind.
    pub kind: &'a str,
    pub name: &'a str,
}

impl StatusDetails<'_> {
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

impl StatusError {
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: json!({}), continue_token: None }
    }

    fn with_details(mut self, object: StatusDetails<'_>) -> Self {
        self.details = object.details();
        self
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// No resource or endpoint has this path.
    pub fn unknown_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    pub fn not_found(object: StatusDetails<'_>) -> Self {
        Self::new(404, "NotFound", format!("{} \"{}\" not found", object.qualified(), object.name)).with_details(object)
    }

    pub fn already_exists(object: StatusDetails<'_>, being_deleted: bool) -> Self {
        let prefix = if being_deleted { "object is being deleted: " } else { "" };
        let message = format!("{prefix}{} \"{}\" already exists", object.qualified(), object.name);
        Self::new(409, "AlreadyExists", message).with_details(object)
    }

    pub fn conflict(object: StatusDetails<'_>, cause: impl AsRef<str>) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} \"{}\": {}", object.qualified(), object.name, cause.as_ref());
        Self::new(409, "Conflict", message).with_details(object)
    }

    pub fn forbidden(object: StatusDetails<'_>, cause: impl AsRef<str>) -> Self {
        let message = format!("{} \"{}\" is forbidden: {}", object.qualified(), object.name, cause.as_ref());
        Self::new(403, "Forbidden", message).with_details(object)
    }

    pub fn namespace_terminating(object: StatusDetails<'_>, namespace: &str) -> Self {
        let cause = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut failure = Self::forbidden(object, cause);
        failure.details["causes"] = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]);
        failure
    }

    /// `object.kind` is the kind here, not the plural, as the real server has it.
    pub fn invalid(object: StatusDetails<'_>, causes: &[StatusCause]) -> Self {
        let texts: Vec<String> = causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect();
        let list = if texts.len() == 1 { texts.concat() } else { format!("[{}]", texts.join(", ")) };
        let mut failure =
            Self::new(422, "Invalid", format!("{} \"{}\" is invalid: {list}", object.qualified(), object.name))
                .with_details(object);
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
    pub fn revision_too_old(requested: u64, oldest: u64) -> Self {
        Self::expired(format!("too old resource version: {requested} ({oldest})"))
    }

    pub fn revision_in_future(requested: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {requested}, current: {current}");
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

    pub fn not_implemented(feature: &str) -> Self {
        Self::new(501, "NotImplemented", format!("the embedded API does not implement {feature}"))
    }

    /// The body of the response.
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
        if let Some(token) = &self.continue_token {
            status["metadata"]["continue"] = json!(token);
        }
        status
    }
}

impl From<redb::StorageError> for StatusError {
    fn from(error: redb::StorageError) -> Self {
        Self::internal(format!("database: {error}"))
    }
}

impl From<serde_json::Error> for StatusError {
    fn from(error: serde_json::Error) -> Self {
        Self::internal(format!("stored object is not JSON: {error}"))
    }
}
