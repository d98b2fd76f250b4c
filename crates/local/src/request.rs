//! The path and the query of a request.

use crate::status_error::StatusError;
use jiff::{SignedDuration, Timestamp};

/// The parts of a path below `/api` or `/apis`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestInfo {
    pub group: String,
    pub version: String,
    pub plural: String,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub subresource: Option<String>,
}

impl RequestInfo {
    /// `None` for paths that are not those of objects.
    pub fn parse(path: &str) -> Option<Self> {
        let decoded: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(decode).collect();
        let parts: Vec<&str> = decoded.iter().map(String::as_str).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, rest) = split_namespace(rest);
        let (plural, rest) = rest.split_first()?;
        let owned = |part: Option<&&str>| part.map(|part| (*part).to_owned());
        Some(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: (*plural).to_owned(),
            namespace: namespace.map(str::to_owned),
            name: owned(rest.first()),
            subresource: (rest.len() > 1).then(|| rest[1..].join("/")),
        })
    }
}

/// `namespaces/x/pods` is in a namespace, `namespaces/x` and `namespaces/x/status` are the namespace itself.
fn split_namespace<'a, 'b>(parts: &'a [&'b str]) -> (Option<&'b str>, &'a [&'b str]) {
    match parts {
        ["namespaces", _, "status" | "finalize"] => (None, parts),
        ["namespaces", namespace, _, ..] => (Some(namespace), &parts[2..]),
        _ => (None, parts),
    }
}

fn decode(part: &str) -> String {
    // A `+` in a path is a plus.
    let escaped = part.replace('+', "%2B");
    url::form_urlencoded::parse(escaped.as_bytes()).next().map_or_else(String::new, |(name, value)| {
        if part.contains('=') { format!("{name}={value}") } else { name.into_owned() }
    })
}

/// The supported query parameters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    pub labels: String,
    pub fields: String,
    pub limit: usize,
    pub token: String,
    pub revision: String,
    pub revision_match: String,
    pub watch: bool,
    pub bookmarks: bool,
    pub initial_events: Option<bool>,
    pub timeout: Option<u64>,
    pub dry_run: bool,
    pub validation: Validation,
    pub include_object: String,
    /// `DeleteOptions` may come as parameters too.
    pub propagation: Option<String>,
    pub grace: Option<u64>,
    /// Of logs and commands in containers.
    pub container: String,
    pub command: Vec<String>,
    pub tail: Option<usize>,
    pub since: Option<Timestamp>,
    /// The parameters that were given as true.
    pub flags: Vec<String>,
}

/// How fields that the schema does not contain are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Validation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

impl Query {
    pub fn parse(raw: &str) -> Result<Self, StatusError> {
        let mut query = Self::default();
        for (name, value) in url::form_urlencoded::parse(raw.as_bytes()) {
            query.set(&name, value.into_owned())?;
        }
        Ok(query)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), StatusError> {
        match name {
            "labelSelector" => self.labels = value,
            "fieldSelector" => self.fields = value,
            "limit" => self.limit = parse_number(name, &value)?,
            "continue" => self.token = value,
            "resourceVersion" => self.revision = value,
            "resourceVersionMatch" => self.revision_match = value,
            "watch" => self.watch = parse_bool(&value),
            "allowWatchBookmarks" => self.bookmarks = parse_bool(&value),
            "sendInitialEvents" => self.initial_events = Some(parse_bool(&value)),
            "timeoutSeconds" => self.timeout = Some(parse_number(name, &value)?),
            "dryRun" => self.dry_run = dry_run(&value)?,
            "fieldValidation" => self.validation = Validation::parse(&value)?,
            "includeObject" => self.include_object = value,
            "gracePeriodSeconds" => self.grace = Some(parse_number(name, &value)?),
            "propagationPolicy" => self.propagation = Some(value),
            "container" => self.container = value,
            "command" => self.command.push(value),
            "tailLines" => self.tail = Some(parse_number(name, &value)?),
            "sinceTime" => self.since = Some(parse_time(name, &value)?),
            "sinceSeconds" => self.since = Some(seconds_ago(parse_number(name, &value)?)),
            _ if matches!(value.as_str(), "true" | "1") => self.flags.push(name.to_owned()),
            _ => {}
        }
        Ok(())
    }

    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|given| given == flag)
    }

    /// The resource version as a number; empty counts as none.
    pub fn revision(&self) -> Result<Option<u64>, StatusError> {
        if self.revision.is_empty() {
            return Ok(None);
        }
        let parsed = self.revision.parse();
        parsed.map(Some).map_err(|_| StatusError::bad_request(format!("invalid resource version: {:?}", self.revision)))
    }
}

impl Validation {
    fn parse(value: &str) -> Result<Self, StatusError> {
        match value {
            "Ignore" => Ok(Self::Ignore),
            "" | "Warn" => Ok(Self::Warn),
            "Strict" => Ok(Self::Strict),
            _ => Err(invalid_option(&format!(
                "fieldValidation: Unsupported value: {value:?}: supported values: \"Ignore\", \"Strict\", \"Warn\""
            ))),
        }
    }
}

/// Kubernetes supports only `All`.
pub(crate) fn dry_run(value: &str) -> Result<bool, StatusError> {
    match value {
        "" => Ok(false),
        "All" => Ok(true),
        _ => Err(invalid_option(&format!("dryRun: Unsupported value: {value:?}: supported values: \"All\""))),
    }
}

fn invalid_option(message: &str) -> StatusError {
    StatusError::new(422, "Invalid", format!("Options.meta.k8s.io \"\" is invalid: {message}"))
}

fn parse_bool(value: &str) -> bool {
    !matches!(value, "0" | "false" | "False" | "FALSE" | "f" | "F")
}

fn parse_number<T: std::str::FromStr + Default>(name: &str, value: &str) -> Result<T, StatusError> {
    if value.is_empty() {
        return Ok(T::default());
    }
    value.parse().map_err(|_| StatusError::bad_request(format!("parameter {name} is not a number: {value:?}")))
}

fn parse_time(name: &str, value: &str) -> Result<Timestamp, StatusError> {
    value.parse().map_err(|_| StatusError::bad_request(format!("parameter {name} is not a time: {value:?}")))
}

fn seconds_ago(seconds: u32) -> Timestamp {
    Timestamp::now().checked_sub(SignedDuration::from_secs(seconds.into())).unwrap_or(Timestamp::MIN)
}
