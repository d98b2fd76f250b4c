//! Errors of the Kubernetes client as text, worded as `kubectl` words them.
//!
//! The client's own text of an error appends the `Debug` form of the API server's status. Every text that reaches a user, a log
//! or a status therefore goes through this module.

use std::error::Error;

use kube::core::Status;

/// The text of a client error, as `kubectl` prints it.
pub fn client_error_text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status_text(status),
        kube::Error::Service(cause) => connection_text(cause.as_ref()),
        kube::Error::HyperError(cause) => connection_text(cause),
        other => other.to_string(),
    }
}

/// The text of a status that the API server answered with.
pub fn status_text(status: &Status) -> String {
    match status.reason.as_str() {
        "Invalid" => invalid_text(status),
        "Unauthorized" => format!("You must be logged in to the server ({})", status.message),
        "" => format!("Error from server: {}", status.message),
        reason => format!("Error from server ({reason}): {}", status.message),
    }
}

/// `The Backup "UPPER" is invalid: metadata.name: Invalid value: …`, with one line for each cause where there are several.
fn invalid_text(status: &Status) -> String {
    let Some(details) = &status.details else { return format!("The request is invalid: {}", status.message) };
    let subject = match (details.kind.as_str(), details.name.as_str()) {
        ("", "") => "The request is invalid".to_owned(),
        (kind, name) => format!("The {kind} {name:?} is invalid"),
    };
    let causes: Vec<_> = details.causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    match causes.as_slice() {
        [] => format!("{subject}: {}", status.message),
        [cause] => format!("{subject}: {cause}"),
        causes => format!("{subject}:\n* {}", causes.join("\n* ")),
    }
}

/// A request that got no response. The client's own errors do not say from which server.
#[derive(Debug, thiserror::Error)]
#[error("no response from {server}")]
pub struct UnreachableServer {
    /// The URL of the server.
    pub server: String,
    /// The error of the client.
    #[source]
    pub source: Box<kube::Error>,
}

/// The innermost cause says what happened; the layers above it only say where in the client.
fn connection_text(error: &(dyn Error + 'static)) -> String {
    let chain = || std::iter::successors(Some(error), |error| (**error).source());
    let innermost = chain().last().unwrap_or(error);
    match chain().find_map(|error| error.downcast_ref::<UnreachableServer>()) {
        Some(UnreachableServer { server, .. }) => format!("Unable to connect to the server {server}: {innermost}"),
        None => format!("Unable to connect to the server: {innermost}"),
    }
}

/// The text of an error and its causes, each said once. A client error anywhere among them reads as [`client_error_text`] words it.
pub fn error_text(error: &(dyn Error + 'static)) -> String {
    let chain = || std::iter::successors(Some(error), |error| (**error).source());
    let client_error = chain().find_map(as_client_error);
    let mut text = String::new();
    for cause in chain() {
        let own = match client_error {
            Some(client_error) => {
                cause.to_string().replace(&client_error.to_string(), &client_error_text(client_error))
            }
            None => cause.to_string(),
        };
        // Many errors repeat their source in their own text.
        if text.is_empty() {
            text = own;
        } else if !text.contains(&own) {
            text = format!("{text}: {own}");
        }
        // Its sources are part of its text.
        if as_client_error(cause).is_some() {
            break;
        }
    }
    text
}

fn as_client_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a kube::Error> {
    let boxed = || error.downcast_ref::<Box<kube::Error>>().map(AsRef::as_ref);
    error.downcast_ref::<kube::Error>().or_else(boxed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn api_error(status: serde_json::Value) -> kube::Error {
        let status: Status = serde_json::from_value(status).unwrap();
        kube::Error::Api(status.boxed())
    }

    fn not_found() -> kube::Error {
        api_error(json!({ "code": 404, "reason": "NotFound", "message": "backups.velero.io \"x\" not found" }))
    }

    #[derive(Debug, thiserror::Error)]
    #[error("failed to {what}: {source}")]
    struct Wrapped {
        what: &'static str,
        #[source]
        source: Box<kube::Error>,
    }

    #[test]
    fn an_api_error_reads_as_kubectl_prints_it() {
        let forbidden =
            json!({ "code": 403, "reason": "Forbidden", "message": "pods is forbidden: User \"a\" cannot list" });
        let cause = |field: &str| json!({ "field": field, "message": "Invalid value: \"UPPER\": must be lower case" });
        let invalid = |causes: &[serde_json::Value]| {
            json!({ "code": 422, "reason": "Invalid", "message": "Backup.velero.io \"UPPER\" is invalid: …",
                "details": { "kind": "Backup", "group": "velero.io", "name": "UPPER", "causes": causes } })
        };
        let cases = [
            (not_found(), "Error from server (NotFound): backups.velero.io \"x\" not found"),
            (api_error(forbidden), "Error from server (Forbidden): pods is forbidden: User \"a\" cannot list"),
            (
                api_error(invalid(&[cause("metadata.name")])),
                "The Backup \"UPPER\" is invalid: metadata.name: Invalid value: \"UPPER\": must be lower case",
            ),
            (
                api_error(invalid(&[cause("a"), cause("b")])),
                "The Backup \"UPPER\" is invalid:\n* a: Invalid value: \"UPPER\": must be lower case\n\
                 * b: Invalid value: \"UPPER\": must be lower case",
            ),
            (
                api_error(json!({ "code": 401, "reason": "Unauthorized", "message": "Unauthorized" })),
                "You must be logged in to the server (Unauthorized)",
            ),
            (api_error(json!({ "code": 500, "message": "boom" })), "Error from server: boom"),
        ];
        for (error, text) in cases {
            assert_eq!(client_error_text(&error), text);
        }
    }

    #[test]
    fn a_connection_that_fails_is_told_by_its_innermost_cause() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let error = kube::Error::Service(Box::new(refused));
        assert_eq!(client_error_text(&error), "Unable to connect to the server: connection refused");
        let named = UnreachableServer { server: "https://10.0.0.1:6443".into(), source: Box::new(error) };
        let text = "Unable to connect to the server https://10.0.0.1:6443: connection refused";
        assert_eq!(client_error_text(&kube::Error::Service(Box::new(named))), text);
    }

    #[test]
    fn an_error_that_repeats_its_source_is_told_once_and_never_in_its_debug_form() {
        let error = Wrapped { what: "read backup x", source: Box::new(not_found()) };
        let text = "failed to read backup x: Error from server (NotFound): backups.velero.io \"x\" not found";
        assert_eq!(error_text(&error), text);
        assert!(error.to_string().contains("Status {"), "this is why: {error}");
    }
}
