//! The location of a repository, serializable for another process.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use plimsoll_store::Location;
use secrecy::{ExposeSecret, SecretSlice};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Secret bytes without a readable `Debug` form. They are serialized only for the pipe to the mover process.
#[derive(Clone)]
pub struct Secret(SecretSlice<u8>);

impl Secret {
    /// Wraps these bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(SecretSlice::from(bytes.into()))
    }

    pub(crate) fn expose(&self) -> &[u8] {
        self.0.expose_secret()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(…)")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(self.expose()))
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        // The error does not contain the text: it is most of a secret.
        STANDARD.decode(text).map(Self::new).map_err(|_| serde::de::Error::custom("a secret is not valid base64"))
    }
}

/// The setting with the path of the customer-provided key (SSE-C).
const CUSTOMER_KEY: &str = "customerKeyEncryptionFile";

/// A bucket or directory, with the fields of a BackupStorageLocation; `prefix` is the repository's.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RepositoryLocation {
    /// `aws`, `directory` and so on.
    pub provider: String,
    /// Bucket, or the directory's path.
    pub bucket: String,
    /// The prefix of the repository.
    pub prefix: String,
    /// The provider's settings.
    pub config: BTreeMap<String, String>,
    /// The content of the credentials file.
    pub credentials: Option<Secret>,
    /// CA certificates in PEM that are trusted in addition to the system's.
    pub ca_cert: Option<Secret>,
}

impl RepositoryLocation {
    /// A local directory.
    pub fn directory(path: impl Into<String>, prefix: impl Into<String>) -> Self {
        Self { provider: "directory".into(), bucket: path.into(), prefix: prefix.into(), ..Self::default() }
    }

    /// Converts to a location of `plimsoll_store`.
    pub fn location(&self) -> Location {
        Location {
            provider: self.provider.clone(),
            bucket: self.bucket.clone(),
            prefix: self.prefix.clone(),
            config: self.config.clone(),
            credentials: self.credentials.as_ref().map(|secret| secret.expose().to_vec().into()),
            ca_cert: self.ca_cert.as_ref().map(|pem| pem.expose().to_vec()),
            ..Location::default()
        }
    }

    /// The location for restic and kopia. They do not support SSE-C and write without the key, and a store rejects reads with a
    /// key of objects that were written without one.
    pub(crate) fn without_customer_key(mut self) -> Self {
        self.config.remove(CUSTOMER_KEY);
        self
    }

    /// The name in messages.
    pub fn name(&self) -> String {
        self.location().display_name()
    }
}

impl From<&Location> for RepositoryLocation {
    fn from(location: &Location) -> Self {
        Self {
            provider: location.provider.clone(),
            bucket: location.bucket.clone(),
            prefix: location.prefix.clone(),
            config: location.config.clone(),
            credentials: location.credentials.as_ref().map(|bytes| Secret::new(bytes.expose_secret())),
            ca_cert: location.ca_cert.as_ref().map(|pem| Secret::new(pem.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_in_debug_output_and_survives_the_pipe() {
        let location = RepositoryLocation {
            credentials: Some(Secret::new("hush hush")),
            ..RepositoryLocation::directory("/d", "p")
        };
        assert!(!format!("{location:?}").contains("hush"));
        let text = serde_json::to_string(&location).expect("writes");
        let back: RepositoryLocation = serde_json::from_str(&text).expect("reads");
        assert_eq!(back.credentials.expect("credentials").expose(), b"hush hush");
    }

    #[test]
    fn an_invalid_secret_is_not_in_the_error() {
        let error = serde_json::from_str::<Secret>("\"hush!\"").expect_err("not base64");
        assert!(!error.to_string().contains("hush"));
    }
}
