//! What can go wrong with a store, in words that name the key and the place and never a credential.

use std::error::Error as _;

/// The result of anything a store does.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Why a store could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no object under this key.
    #[error("{key} does not exist in {location}")]
    NotFound {
        /// The key that was asked for.
        key: String,
        /// The store's name.
        location: String,
    },
    /// There is an object under this key, and there must not be.
    #[error("{key} already exists in {location}")]
    AlreadyExists {
        /// The key that was asked for.
        key: String,
        /// The store's name.
        location: String,
    },
    /// The credentials are missing, wrong or expired.
    #[error("{location} does not accept the credentials, for {key}: {cause}")]
    Unauthenticated {
        /// The key that was asked for.
        key: String,
        /// The store's name.
        location: String,
        /// What the store answered.
        cause: String,
    },
    /// The credentials are good but do not allow this.
    #[error("{location} does not allow access to {key}: {cause}")]
    PermissionDenied {
        /// The key that was asked for.
        key: String,
        /// The store's name.
        location: String,
        /// What the store answered.
        cause: String,
    },
    /// The file system is full.
    #[error("no space left in {location} for {key}")]
    NoSpace {
        /// The key that was asked for.
        key: String,
        /// The store's name.
        location: String,
    },
    /// A key that no store can hold: empty, or with empty, `.` or `..` parts.
    #[error("{key:?} is not a usable key in {location}: {cause}")]
    InvalidKey {
        /// The key that was asked for.
        key: String,
        /// The store's name.
        location: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The location's settings cannot be used as they are.
    #[error("{location} is not usable: {cause}")]
    InvalidLocation {
        /// The store's name.
        location: String,
        /// Which setting, and why.
        cause: String,
    },
    /// The store does not know this operation.
    #[error("{location} does not support this for {key}: {cause}")]
    Unsupported {
        /// The key that was asked for.
        key: String,
        /// The store's name.
        location: String,
        /// What is not supported.
        cause: String,
    },
    /// The store could not be reached, or went on failing until the retries were used up.
    #[error("{location} failed for {key}: {cause}")]
    Unavailable {
        /// The key that was asked for.
        key: String,
        /// The store's name.
        location: String,
        /// The last failure.
        cause: String,
    },
}

impl StoreError {
    /// A stable word for conditions, metric labels and events.
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
            Self::Unavailable { .. } => "StoreUnavailable",
        }
    }

    /// Whether the same call may succeed later without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// Whether this says that the object is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    pub(crate) fn from_provider(error: &object_store::Error, key: &str, location: &str) -> Self {
        use object_store::Error as E;
        let key = if key.is_empty() { "its list".to_owned() } else { key.to_owned() };
        let (location, cause) = (location.to_owned(), describe(error));
        match error {
            E::NotFound { .. } => Self::NotFound { key, location },
            // Azure answers with the status of a conflict: without this a refusal would pass for something that exists.
            _ if is_protected(&cause) => Self::PermissionDenied { key, location, cause },
            E::AlreadyExists { .. } | E::Precondition { .. } => Self::AlreadyExists { key, location },
            E::Unauthenticated { .. } => Self::Unauthenticated { key, location, cause },
            E::PermissionDenied { .. } => Self::PermissionDenied { key, location, cause },
            E::InvalidPath { .. } => Self::InvalidKey { key, location, cause },
            E::NotSupported { .. } | E::NotImplemented { .. } => Self::Unsupported { key, location, cause },
            E::UnknownConfigurationKey { .. } => Self::InvalidLocation { location, cause },
            _ if refuses_credentials(&cause) => Self::Unauthenticated { key, location, cause },
            _ if refuses_access(&cause) => Self::PermissionDenied { key, location, cause },
            _ => Self::from_io_kind(io_kind(error), key, location, cause),
        }
    }

    /// The same, where it was tried so often.
    pub(crate) fn after(self, tries: Option<usize>) -> Self {
        match (self, tries) {
            (Self::Unavailable { key, location, cause }, Some(tries)) => Self::Unavailable {
                key,
                location,
                cause: format!("given up after {tries} tries, the last one: {cause}"),
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

/// A list's refusal reaches us as text only, and S3 answers wrong keys with 403 as well.
fn refuses_credentials(cause: &str) -> bool {
    let codes = ["InvalidAccessKeyId", "SignatureDoesNotMatch", "NotSignedUp", "ExpiredToken", "InvalidToken"];
    cause.contains("401 Unauthorized") || codes.iter().any(|code| cause.contains(code))
}

/// So does the refusal of each key in a bulk delete, which is how every delete is sent: S3 gives its code there, Azure the
/// status.
fn refuses_access(cause: &str) -> bool {
    let codes = ["AccessDenied", "AuthorizationPermissionMismatch", "AuthorizationFailure", "403"];
    cause.contains("403 Forbidden") || codes.iter().any(|code| cause.contains(&format!("(code: {code})")))
}

/// Whether an object may not change because of a retention policy or a legal hold, in any store's words.
fn is_protected(cause: &str) -> bool {
    let words = ["BlobImmutable", "the blob is immutable due to", "ObjectLocked", "Object is WORM protected"];
    words.iter().any(|word| cause.contains(word))
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

/// The provider's words without what does not belong into an error text: answers of S3 repeat the signed request with
/// the access key in it, so of an XML answer only its code and message are kept.
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

/// Clients say "error sending request" and keep to themselves that it was the certificate.
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
    const LONGEST: usize = 400;
    let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match one_line.char_indices().nth(LONGEST) {
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
    fn a_list_that_is_refused_says_whether_the_keys_are_wrong() {
        let refused = |text| StoreError::from_provider(&generic(text), "", "s3://b");
        let wrong = refused("Server returned non-2xx status code: 403 Forbidden: InvalidAccessKeyId: no such key");
        assert_eq!((wrong.reason(), wrong.is_retryable()), ("StoreCredentialsRejected", false));
        assert_eq!(
            refused("Server returned non-2xx status code: 403 Forbidden: AccessDenied").reason(),
            "StoreAccessDenied"
        );
        assert_eq!(refused("Server returned non-2xx status code: 500 Oops").reason(), "StoreUnavailable");
    }

    #[test]
    fn a_delete_that_is_refused_is_not_tried_again_whoever_refuses_it() {
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
    fn an_answer_that_repeats_the_access_key_is_cut_to_code_and_message() {
        let error = generic(
            "Server returned 403: <?xml version=\"1.0\"?><Error><Code>SignatureDoesNotMatch</Code><Message>check your \
             key</Message><AWSAccessKeyId>AKIASECRET</AWSAccessKeyId></Error>",
        );
        let text = StoreError::from_provider(&error, "a/b", "s3://bucket").to_string();
        assert_eq!(
            text,
            "s3://bucket does not accept the credentials, for a/b: Server returned 403: SignatureDoesNotMatch: check your key"
        );
    }

    #[test]
    fn a_full_disk_is_told_apart_and_not_retried() {
        let io = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let error = object_store::Error::Generic { store: "LocalFileSystem", source: Box::new(io) };
        let error = StoreError::from_provider(&error, "k", "/data");
        assert_eq!((error.reason(), error.is_retryable()), ("StoreFull", false));
    }
}
