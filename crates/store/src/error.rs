//! Errors of a store. They name the key and the location and never contain a credential.

use std::error::Error as _;

/// The result of a store operation.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// An error of a store operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no object under this key.
    #[error("object {key} not found in {location}")]
    NotFound {
        /// The requested key.
        key: String,
        /// The store's name.
        location: String,
    },
    /// The key exists already.
    #[error("object {key} already exists in {location}")]
    AlreadyExists {
        /// The requested key.
        key: String,
        /// The store's name.
        location: String,
    },
    /// The credentials are missing, wrong or expired.
    #[error("credentials rejected for {key} in {location}: {cause}")]
    Unauthenticated {
        /// The requested key.
        key: String,
        /// The store's name.
        location: String,
        /// The response of the store.
        cause: String,
    },
    /// The credentials are valid but do not permit this operation.
    #[error("access denied to {key} in {location}: {cause}")]
    PermissionDenied {
        /// The requested key.
        key: String,
        /// The store's name.
        location: String,
        /// The response of the store.
        cause: String,
    },
    /// The file system is full.
    #[error("failed to write {key} to {location}: no space left")]
    NoSpace {
        /// The requested key.
        key: String,
        /// The store's name.
        location: String,
    },
    /// The key is empty or has empty, `.` or `..` parts.
    #[error("invalid object key {key:?} in {location}: {cause}")]
    InvalidKey {
        /// The requested key.
        key: String,
        /// The store's name.
        location: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The settings of the location are invalid.
    #[error("invalid storage location {location}: {cause}")]
    InvalidLocation {
        /// The store's name.
        location: String,
        /// Which setting, and why.
        cause: String,
    },
    /// The store does not support this operation.
    #[error("unsupported operation on {key} in {location}: {cause}")]
    Unsupported {
        /// The requested key.
        key: String,
        /// The store's name.
        location: String,
        /// What is not supported.
        cause: String,
    },
    /// The object is larger than its reader accepts.
    #[error("object {key} in {location} has {size} bytes, which exceeds the limit of {limit} bytes")]
    TooLarge {
        /// The requested key.
        key: String,
        /// The store's name.
        location: String,
        /// Its size, or what was received before the read was given up.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The store is unreachable or failed until the retries were exhausted.
    #[error("request failed for {key} in {location}: {cause}")]
    Unavailable {
        /// The requested key.
        key: String,
        /// The store's name.
        location: String,
        /// The last failure.
        cause: String,
    },
}

impl StoreError {
    /// A stable reason for conditions, metric labels and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "ObjectNotFound",
            Self::AlreadyExists { .. } => "ObjectAlreadyExists",
            Self::Unauthenticated { .. } => "StoreCredentialsRejected",
            Self::PermissionDenied { .. } => "StoreAccessDenied",
            Self::NoSpace { .. } => "StoreFull",
            Self::InvalidKey { .. } => "InvalidObjectKey",
            Self::InvalidLocation { .. } => "InvalidStorageLocation",
            Self::Unsupported { .. } => "StoreOperationUnsupported",
            Self::TooLarge { .. } => "ObjectTooLarge",
            Self::Unavailable { .. } => "StoreUnavailable",
        }
    }

    /// Whether the same call may succeed later without a change of the configuration.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// Whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    pub(crate) fn from_provider(error: &object_store::Error, key: &str, location: &str) -> Self {
        use object_store::Error as E;
        let key = if key.is_empty() { "the object list".to_owned() } else { key.to_owned() };
        let (location, cause) = (location.to_owned(), describe(error));
        match error {
            E::NotFound { .. } => Self::NotFound { key, location },
            // Azure responds with 409 Conflict: without this a denied write would be reported as an existing object.
            _ if is_protected(&cause) => Self::PermissionDenied { key, location, cause },
            E::AlreadyExists { .. } | E::Precondition { .. } => Self::AlreadyExists { key, location },
            E::Unauthenticated { .. } => Self::Unauthenticated { key, location, cause },
            E::PermissionDenied { .. } => Self::PermissionDenied { key, location, cause },
            E::InvalidPath { .. } => Self::InvalidKey { key, location, cause },
            E::NotSupported { .. } | E::NotImplemented { .. } => Self::Unsupported { key, location, cause },
            E::UnknownConfigurationKey { .. } => Self::InvalidLocation { location, cause },
            _ if is_credentials_error(&cause) => Self::Unauthenticated { key, location, cause },
            _ if is_access_error(&cause) => Self::PermissionDenied { key, location, cause },
            _ => Self::from_io_kind(io_kind(error), key, location, cause),
        }
    }

    /// Adds the number of attempts to an error after retries.
    pub(crate) fn after_attempts(self, attempts: Option<usize>) -> Self {
        match (self, attempts) {
            (Self::Unavailable { key, location, cause }, Some(attempts)) => Self::Unavailable {
                key,
                location,
                cause: format!("failed after {attempts} attempts; last error: {cause}"),
            },
            (error, _) => error,
        }
    }

    pub(crate) fn from_io(error: &std::io::Error, key: &str, location: &str) -> Self {
        Self::from_io_kind(Some(error.kind()), key.to_owned(), location.to_owned(), error.to_string())
    }

    fn from_io_kind(kind: Option<std::io::ErrorKind>, key: String, location: String, cause: String) -> Self {
        use std::io::ErrorKind;
        match kind {
            Some(ErrorKind::NotFound) => Self::NotFound { key, location },
            Some(ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => {
                Self::PermissionDenied { key, location, cause }
            }
            Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => Self::NoSpace { key, location },
            _ => Self::Unavailable { key, location, cause },
        }
    }
}

/// The error of a rejected list is available as text only, and S3 responds to wrong keys with 403 as well.
fn is_credentials_error(cause: &str) -> bool {
    let codes = ["InvalidAccessKeyId", "SignatureDoesNotMatch", "NotSignedUp", "ExpiredToken", "InvalidToken"];
    cause.contains("401 Unauthorized") || codes.iter().any(|code| cause.contains(code))
}

/// The same applies to each key of a bulk delete, which is how every delete is sent: S3 reports its code there, Azure the
/// status.
fn is_access_error(cause: &str) -> bool {
    let codes = ["AccessDenied", "AuthorizationPermissionMismatch", "AuthorizationFailure", "403"];
    cause.contains("403 Forbidden") || codes.iter().any(|code| cause.contains(&format!("(code: {code})")))
}

/// Whether a retention policy or a legal hold protects the object, in the wording of any provider.
fn is_protected(cause: &str) -> bool {
    let markers = ["BlobImmutable", "the blob is immutable due to", "ObjectLocked", "Object is WORM protected"];
    markers.iter().any(|marker| cause.contains(marker))
}

fn io_kind(error: &object_store::Error) -> Option<std::io::ErrorKind> {
    let mut source = error.source();
    while let Some(inner) = source {
        if let Some(io) = inner.downcast_ref::<std::io::Error>() {
            return Some(io.kind());
        }
        source = inner.source();
    }
    None
}

/// The provider's error text without secrets: error responses of S3 repeat the signed request with the access key, so only
/// the code and message of an XML response are kept.
fn describe(error: &object_store::Error) -> String {
    let text = match error.source() {
        Some(source) => source.to_string(),
        None => error.to_string(),
    };
    let Some(start) = text.find("<?xml").or_else(|| text.find("<Error>")) else {
        return shorten(&with_root_cause(text, error));
    };
    let code = element(&text, "Code").unwrap_or("unknown error");
    let message = element(&text, "Message").unwrap_or_default();
    shorten(&format!("{}{code}: {message}", &text[..start]))
}

/// Appends the root cause. HTTP clients report "error sending request" and hide that the certificate is invalid.
fn with_root_cause(text: String, error: &object_store::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause: &&(dyn std::error::Error + 'static)| (*cause).source());
    match causes.last().map(ToString::to_string) {
        Some(cause) if !text.contains(&cause) => format!("{text}: {cause}"),
        _ => text,
    }
}

fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let after = xml.split_once(&format!("<{name}>"))?.1;
    after.split_once(&format!("</{name}>")).map(|(value, _)| value)
}

fn shorten(text: &str) -> String {
    const MAX_LENGTH: usize = 400;
    let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match one_line.char_indices().nth(MAX_LENGTH) {
        Some((end, _)) => format!("{}…", &one_line[..end]),
        None => one_line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> object_store::Error {
        object_store::Error::Generic { store: "S3", source: text.to_owned().into() }
    }

    #[test]
    fn a_rejected_list_reports_whether_the_keys_are_wrong() {
        let rejected = |text| StoreError::from_provider(&generic(text), "", "s3://b");
        let wrong = rejected("Server returned non-2xx status code: 403 Forbidden: InvalidAccessKeyId: no such key");
        assert_eq!((wrong.reason(), wrong.is_retryable()), ("StoreCredentialsRejected", false));
        assert_eq!(
            rejected("Server returned non-2xx status code: 403 Forbidden: AccessDenied").reason(),
            "StoreAccessDenied"
        );
        assert_eq!(rejected("Server returned non-2xx status code: 500 Oops").reason(), "StoreUnavailable");
    }

    #[test]
    fn a_denied_delete_is_not_retryable_with_any_provider() {
        for text in [
            "DeleteObjects request failed for key locks/1: Access Denied (code: AccessDenied)",
            "DeleteObjects request failed for key locks/1: Object is WORM protected and cannot be overwritten (code: InvalidRequest)",
            "Bulk delete request failed for key locks/1: This request is not authorized to perform this operation using this permission. (code: 403)",
            "Bulk delete request failed for key locks/1: refused (code: AuthorizationPermissionMismatch)",
            "Bulk delete request failed for key locks/1: This operation is not permitted as the blob is immutable due to a policy. (code: 409)",
        ] {
            let error = StoreError::from_provider(&generic(text), "locks/1", "s3://b");
            assert_eq!((error.reason(), error.is_retryable()), ("StoreAccessDenied", false), "{text}");
        }
        let conflict = object_store::Error::AlreadyExists {
            path: "locks/1".into(),
            source: "409 Conflict: <?xml?><Error><Code>BlobImmutableDueToPolicy</Code><Message>no</Message></Error>"
                .into(),
        };
        assert_eq!(StoreError::from_provider(&conflict, "locks/1", "azure").reason(), "StoreAccessDenied");
        let slow = "DeleteObjects request failed for key locks/AccessDenied: Please reduce your rate (code: SlowDown)";
        assert!(StoreError::from_provider(&generic(slow), "locks/1", "s3://b").is_retryable());
    }

    #[test]
    fn a_response_that_repeats_the_access_key_is_reduced_to_code_and_message() {
        let error = generic(
            "Server returned 403: <?xml version=\"1.0\"?><Error><Code>SignatureDoesNotMatch</Code><Message>check your \
             key</Message><AWSAccessKeyId>AKIASECRET</AWSAccessKeyId></Error>",
        );
        let text = StoreError::from_provider(&error, "a/b", "s3://bucket").to_string();
        assert_eq!(
            text,
            "credentials rejected for a/b in s3://bucket: Server returned 403: SignatureDoesNotMatch: check your key"
        );
    }

    #[test]
    fn a_full_disk_has_its_own_reason_and_is_not_retryable() {
        let io = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let error = object_store::Error::Generic { store: "LocalFileSystem", source: Box::new(io) };
        let error = StoreError::from_provider(&error, "k", "/data");
        assert_eq!((error.reason(), error.is_retryable()), ("StoreFull", false));
    }
}
