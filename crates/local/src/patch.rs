//! Patches: merge, JSON and strategic.

use crate::{failure::Failure, kind::Kind};
use plimsoll_select::strategic_merge_patch;
use serde_json::Value;

const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// A patch that could be read.
#[derive(Debug)]
pub(crate) enum Patch {
    Merge(Value),
    Json(json_patch::Patch),
    Strategic(Value, strategic_merge_patch::PatchSchema),
}

impl Patch {
    pub fn parse(content_type: &str, kind: &Kind, body: &[u8]) -> Result<Self, Failure> {
        match content_type {
            MERGE => Ok(Self::Merge(object(body)?)),
            JSON => serde_json::from_slice(body).map(Self::Json).map_err(|error| unreadable(&error)),
            STRATEGIC => {
                let hint = hint(kind).ok_or_else(|| unsupported(kind))?;
                Ok(Self::Strategic(object(body)?, hint))
            }
            _ => Err(unsupported(kind)),
        }
    }

    pub fn apply(self, target: &Value) -> Result<Value, Failure> {
        match self {
            Self::Merge(patch) => {
                let mut patched = target.clone();
                json_patch::merge(&mut patched, &patch);
                Ok(patched)
            }
            Self::Json(patch) => {
                let mut patched = target.clone();
                let applied = json_patch::patch(&mut patched, &patch);
                applied.map_err(|error| {
                    Failure::new(
                        422,
                        "Invalid",
                        format!("the server rejected our request due to an error in our request: {error}"),
                    )
                })?;
                Ok(patched)
            }
            Self::Strategic(patch, hint) => strategic_merge_patch::merge(target, &patch, hint)
                .map_err(|error| Failure::bad_request(error.to_string())),
        }
    }
}

fn hint(kind: &Kind) -> Option<strategic_merge_patch::PatchSchema> {
    if kind.is_custom() { None } else { strategic_merge_patch::PatchSchema::kind(&kind.group, &kind.kind) }
}

fn object(body: &[u8]) -> Result<Value, Failure> {
    let patch: Value = serde_json::from_slice(body).map_err(|error| unreadable(&error))?;
    if patch.is_object() { Ok(patch) } else { Err(Failure::bad_request("a merge patch must be a JSON object")) }
}

fn unreadable(error: &serde_json::Error) -> Failure {
    Failure::bad_request(format!("error decoding patch: {error}"))
}

/// Server-side apply is refused like any other type we do not know; the text says what is left.
fn unsupported(kind: &Kind) -> Failure {
    if hint(kind).is_some() {
        Failure::unsupported_media_type(&[JSON, MERGE, STRATEGIC])
    } else {
        Failure::unsupported_media_type(&[JSON, MERGE])
    }
}
