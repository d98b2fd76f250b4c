//! Content negotiation: the form of the response and the type of the request body.

use crate::{request::Query, status_error::StatusError, table::Include};
use http::{HeaderMap, header};

/// The form of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Object,
    Table(Include),
    Metadata,
}

impl Form {
    /// The first supported form in the `Accept` header.
    pub fn negotiate(headers: &HeaderMap, query: &Query) -> Result<Self, StatusError> {
        let Some(accept) = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()) else {
            return Ok(Self::Object);
        };
        let include = Include::parse(&query.include_object);
        accept.split(',').find_map(|clause| Self::parse_clause(clause, include)).ok_or_else(StatusError::not_acceptable)
    }

    fn parse_clause(clause: &str, include: Include) -> Option<Self> {
        let mut parts = clause.split(';').map(str::trim);
        if !matches!(parts.next()?, "application/json" | "application/*" | "*/*" | "") {
            return None;
        }
        let parameters: Vec<&str> = parts.collect();
        let requested = parameters.iter().find_map(|parameter| parameter.strip_prefix("as="));
        let version = parameters.iter().find_map(|parameter| parameter.strip_prefix("v=")).unwrap_or("v1");
        match requested {
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
