//! Credentials that a template would put where others can read them.

use std::collections::BTreeSet;

use super::Findings;
use crate::template::Template;

pub(super) fn check(findings: &mut Findings, place: &str, templates: &[Template]) {
    let paths: BTreeSet<String> =
        templates.iter().flat_map(Template::references).filter_map(|path| exposed(&path)).collect();
    for path in paths {
        let message = format!(
            "{path} puts a credential into the command of a pod, where everybody who may read pods sees it; a Secret in \
             the pod's environment or a volume (podOverride) keeps it out of there"
        );
        findings.warning(place, "CredentialInCommand", message);
    }
}

/// What a path lays open, if it does.
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

/// A Secret as a whole or its data, not its name.
fn is_content(below: &[&str]) -> bool {
    matches!(below, [] | [_] | [_, "Data" | "StringData", ..])
}
