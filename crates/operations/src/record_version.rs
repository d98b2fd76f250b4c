//! The version of what a leader keeps about an operation: its Operation and its journal.
//!
//! A record of a newer version is left as it is. The operation then waits for a server that knows it, for example after a downgrade.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plimsoll_engine::Error;

/// The version that this program writes. It grows only when an older program would misread a record; new fields do not need it.
pub const RECORD_VERSION: u32 = 1;
/// Records without this annotation have version 1.
pub const RECORD_VERSION_ANNOTATION: &str = "plimsoll.dev/record-version";

/// Notes our version.
pub(crate) fn mark(metadata: &mut ObjectMeta) {
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(RECORD_VERSION_ANNOTATION.to_owned(), RECORD_VERSION.to_string());
}

/// Refuses a record of a version that this program does not know.
pub(crate) fn check(what: &str, metadata: &ObjectMeta) -> Result<(), Error> {
    let version = metadata.annotations.as_ref().and_then(|annotations| annotations.get(RECORD_VERSION_ANNOTATION));
    match version {
        None => Ok(()),
        Some(version) if version.parse().is_ok_and(|version: u32| version <= RECORD_VERSION) => Ok(()),
        Some(version) => {
            Err(Error::NewerRecord { what: what.to_owned(), version: version.clone(), known: RECORD_VERSION })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_and_older_versions_are_accepted_and_all_others_refused() {
        let record = |version: Option<&str>| ObjectMeta {
            annotations: version.map(|version| [(RECORD_VERSION_ANNOTATION.to_owned(), version.to_owned())].into()),
            ..ObjectMeta::default()
        };
        let mut own = ObjectMeta::default();
        mark(&mut own);
        assert!(check("x", &own).is_ok() && check("x", &record(None)).is_ok());
        for version in ["2", "1.5", "v1", "", "-1"] {
            let error = check("operation backup-x", &record(Some(version))).unwrap_err();
            assert_eq!((error.reason(), error.is_retryable()), ("RecordVersionUnknown", false), "{version}");
            assert!(error.to_string().starts_with("operation backup-x has version "), "{error}");
        }
    }
}
