//! Patches: merge, JSON and strategic.

use crate::{kind::Kind, status_error::StatusError};
use plimsoll_select::strategic_merge_patch;
use serde_json::Value;

const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// A parsed patch.
#[derive(Debug)]
pub(crate) enum Patch {
    Merge(Value),
    Json(json_patch::Patch),
    Strategic(Value, strategic_merge_patch::PatchSchema),
}

impl Patch {
    pub fn parse(content_type: &str, kind: &Kind, body: &[u8]) -> Result<Self, StatusError> {
        match content_type {
            MERGE => Ok(Self::Merge(parse_object(body)?)),
            JSON => serde_json::from_slice(body).map(Self::Json).map_err(|error| decode_error(&error)),
            STRATEGIC => {
                let patch_schema = patch_schema(kind).ok_or_else(|| unsupported(kind))?;
                Ok(Self::Strategic(parse_object(body)?, patch_schema))
            }
            _ => Err(unsupported(kind)),
        }
    }

    pub fn apply(self, target: &Value) -> Result<Value, StatusError> {
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
                    StatusError::new(
                        422,
                        "Invalid",
                        format!("the server rejected our request due to an error in our request: {error}"),
                    )
                })?;
                Ok(patched)
            }
            Self::Strategic(patch, patch_schema) => strategic_merge_patch::merge(target, &patch, patch_schema)
                .map_err(|error| StatusError::bad_request(error.to_string())),
        }
    }
}

fn patch_schema(kind: &Kind) -> Option<strategic_merge_patch::PatchSchema> {
    if kind.is_custom() { None } else { strategic_merge_patch::PatchSchema::kind(&kind.group, &kind.kind) }
}

fn parse_object(body: &[u8]) -> Result<Value, StatusError> {
    let patch: Value = serde_json::from_slice(body).map_err(|error| decode_error(&error))?;
    if patch.is_object() { Ok(patch) } else { Err(StatusError::bad_request("a merge patch must be a JSON object")) }
}

fn decode_error(error: &serde_json::Error) -> StatusError {
    StatusError::bad_request(format!("error decoding patch: {error}"))
}

/// Server-side apply is rejected like any unknown type; the message lists the accepted types.
fn unsupported(kind: &Kind) -> StatusError {
    if patch_schema(kind).is_some() {
        StatusError::unsupported_media_type(&[JSON, MERGE, STRATEGIC])
    } else {
        StatusError::unsupported_media_type(&[JSON, MERGE])
    }
}
