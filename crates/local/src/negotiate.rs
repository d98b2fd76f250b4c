//! Which form a client wants and which form its body has.

use crate::{failure::Failure, table::Include, target::Query};
use http::{HeaderMap, header};

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Object,
    Table(Include),
    Metadata,
}

impl Form {
    /// The first form in the `Accept` header that we have.
    pub fn wanted(headers: &HeaderMap, query: &Query) -> Result<Self, Failure> {
        let Some(accept) = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()) else {
            return Ok(Self::Object);
        };
        let include = Include::parse(&query.include_object);
        accept.split(',').find_map(|clause| Self::of_clause(clause, include)).ok_or_else(Failure::not_acceptable)
    }

    fn of_clause(clause: &str, include: Include) -> Option<Self> {
        let mut parts = clause.split(';').map(str::trim);
        if !matches!(parts.next()?, "application/json" | "application/*" | "*/*" | "") {
            return None;
        }
        let parameters: Vec<&str> = parts.collect();
        let as_what = parameters.iter().find_map(|parameter| parameter.strip_prefix("as="));
        let version = parameters.iter().find_map(|parameter| parameter.strip_prefix("v=")).unwrap_or("v1");
        match as_what {
            None => Some(Self::Object),
            Some("Table") if version == "v1" => Some(Self::Table(include)),
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") if version == "v1" => Some(Self::Metadata),
            Some(_) => None,
        }
    }
}

/// The content type without its parameters.
pub(crate) fn content_type(headers: &HeaderMap) -> &str {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}
