//! Finds credentials that a template would expose.

use std::collections::BTreeSet;

use super::Findings;
use crate::template::Template;

pub(super) fn check(findings: &mut Findings, location: &str, templates: &[Template]) {
    let paths: BTreeSet<String> =
        templates.iter().flat_map(Template::references).filter_map(|path| exposed(&path)).collect();
    for path in paths {
        let message = format!(
            "{path} exposes a credential in the command of a pod to all users who can read pods; use a Secret in the environment or a \
             volume of the pod (podOverride)"
        );
        findings.warning(location, "CredentialInCommand", message);
    }
}

/// The credential that a path exposes, if any.
fn exposed(path: &[String]) -> Option<String> {
    let parts: Vec<&str> = path.iter().map(String::as_str).collect();
    let secret = match parts.as_slice() {
        ["Profile"] | ["Profile", "Credential", ..] => true,
        ["Secrets", rest @ ..]
        | ["Phases", _, "Secrets", rest @ ..]
        | ["CurrentPhase" | "DeferPhase", "Secrets", rest @ ..] => is_content(rest),
        _ => false,
    };
    secret.then(|| format!(".{}", parts.join(".")))
}

/// A whole Secret or its data, not its name.
fn is_content(path: &[&str]) -> bool {
    matches!(path, [] | [_] | [_, "Data" | "StringData", ..])
}
