//! Where a repository is, in a form that travels to another process.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use plimsoll_store::Location;
use secrecy::{ExposeSecret, SecretSlice};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes that are shown nowhere. They are written into one place only: the pipe to the mover's process.
#[derive(Clone)]
pub struct Secret(SecretSlice<u8>);

impl Secret {
    /// Keeps these bytes.
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
        // The text is not repeated in the error: it is most of a secret.
        STANDARD.decode(text).map(Self::new).map_err(|_| serde::de::Error::custom("a secret is not base64"))
    }
}

/// The setting that names the file with the customer's own key.
const CUSTOMER_KEY: &str = "customerKeyEncryptionFile";

/// A bucket or directory, with the fields of a BackupStorageLocation; `prefix` is the repository's own.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Place {
    /// `aws`, `directory` and so on.
    pub provider: String,
    /// Bucket, or the directory's path.
    pub bucket: String,
    /// Where in it the repository lies.
    pub prefix: String,
    /// Settings of the provider.
    pub config: BTreeMap<String, String>,
    /// The content of the credentials file.
    pub credentials: Option<Secret>,
    /// Certificates in PEM that are trusted beside those of the system.
    pub ca_cert: Option<Secret>,
}

impl Place {
    /// A directory of this machine.
    pub fn directory(path: impl Into<String>, prefix: impl Into<String>) -> Self {
        Self { provider: "directory".into(), bucket: path.into(), prefix: prefix.into(), ..Self::default() }
    }

    /// The same place for `plimsoll_store`.
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

    /// The same place as restic and kopia see it: they do not know the customer's own key (SSE-C) and write without it,
    /// and a store refuses to give what was written without a key to somebody who sends one.
    pub(crate) fn without_customer_key(mut self) -> Self {
        self.config.remove(CUSTOMER_KEY);
        self
    }

    /// How messages call it.
    pub fn name(&self) -> String {
        self.location().display_name()
    }
}

impl From<&Location> for Place {
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
    fn a_secret_shows_in_no_debug_output_and_survives_the_pipe() {
        let place = Place { credentials: Some(Secret::new("hush hush")), ..Place::directory("/d", "p") };
        assert!(!format!("{place:?}").contains("hush"));
        let text = serde_json::to_string(&place).expect("writes");
        let back: Place = serde_json::from_str(&text).expect("reads");
        assert_eq!(back.credentials.expect("is there").expose(), b"hush hush");
    }

    #[test]
    fn a_broken_secret_is_not_repeated_in_the_error() {
        let error = serde_json::from_str::<Secret>("\"hush!\"").expect_err("not base64");
        assert!(!error.to_string().contains("hush"));
    }
}
