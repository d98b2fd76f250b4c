//! Storage locations: the settings of a BackupStorageLocation, without Kubernetes.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use secrecy::{SecretSlice, SecretString};

use crate::{Result, StoreError};

/// A bucket or directory with its settings, in the spelling of Velero's BackupStorageLocation.
#[derive(Clone, Default)]
pub struct Location {
    /// `aws`, `gcp`, `azure`, `directory` (or `local`); a prefix such as `velero.io/` or `plimsoll.dev/` is ignored.
    pub provider: String,
    /// Bucket or container; for a directory its path, or a folder below `config["path"]`.
    pub bucket: String,
    /// The prefix of all keys; may be empty.
    pub prefix: String,
    /// The provider's settings as in Velero, for example `region`, `s3Url`, `s3ForcePathStyle`.
    pub config: BTreeMap<String, String>,
    /// The content of the credentials file: AWS shared credentials, a GCP service account key or an Azure environment file.
    pub credentials: Option<SecretSlice<u8>>,
    /// CA certificates in PEM that are trusted in addition to the system's.
    pub ca_cert: Option<Vec<u8>>,
    /// Time limits and retries.
    pub tuning: Tuning,
}

impl fmt::Debug for Location {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Location")
            .field("provider", &self.provider)
            .field("bucket", &self.bucket)
            .field("prefix", &self.prefix)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// S3 credentials.
#[derive(Clone, Debug)]
pub struct AwsKeys {
    /// The access key ID, which is not secret.
    pub id: String,
    /// The secret access key.
    pub secret: SecretString,
    /// The session token of temporary credentials.
    pub token: Option<SecretString>,
}

/// An Azure storage account and its credentials.
#[derive(Clone, Debug)]
pub struct AzureAccount {
    /// The storage account's name, which is not secret.
    pub name: String,
    /// The domain of the account's address if it is not `blob.core.windows.net`.
    pub domain: Option<String>,
    /// The identity that signs requests.
    pub identity: AzureIdentity,
}

/// The identity that signs requests to Azure.
#[derive(Clone, Debug)]
pub enum AzureIdentity {
    /// The managed identity of the machine.
    Machine,
    /// The storage account's access key.
    Key(SecretString),
    /// A service principal.
    Principal {
        /// Its tenant ID.
        tenant: String,
        /// Its client ID.
        client: String,
        /// Its client secret.
        secret: SecretString,
    },
}

/// Time limits and retries of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// A request that moves no bytes for this long is cancelled and retried.
    pub idle_timeout: Duration,
    /// The time limit for establishing a connection.
    pub connect_timeout: Duration,
    /// The maximum number of retries of one request.
    pub max_retries: usize,
    /// No retry starts once the idle time of all attempts together reaches this.
    pub retry_timeout: Duration,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            idle_timeout: Duration::from_mins(1),
            connect_timeout: Duration::from_secs(10),
            max_retries: 10,
            retry_timeout: Duration::from_mins(3),
        }
    }
}

impl Location {
    /// A local directory.
    pub fn directory(path: impl Into<String>, prefix: impl Into<String>) -> Self {
        Self { provider: "directory".into(), bucket: path.into(), prefix: prefix.into(), ..Self::default() }
    }

    /// The name in messages: scheme, bucket and prefix.
    pub fn display_name(&self) -> String {
        let root = match self.kind() {
            "aws" => format!("s3://{}", self.bucket),
            "gcp" => format!("gs://{}", self.bucket),
            "azure" => format!("azure://{}", self.bucket),
            "directory" | "local" => self.path().unwrap_or_else(|| self.bucket.clone()),
            other => format!("{other}://{}", self.bucket),
        };
        match self.prefix.trim_matches('/') {
            "" => root,
            prefix => format!("{}/{prefix}", root.trim_end_matches('/')),
        }
    }

    /// The provider without a prefix such as `velero.io/`.
    pub fn kind(&self) -> &str {
        match self.provider.rsplit_once('/') {
            Some((_, kind)) => kind,
            None => &self.provider,
        }
    }

    /// The S3 keys of the credentials, for external movers that open the same location.
    pub fn aws_keys(&self) -> Result<Option<AwsKeys>> {
        crate::provider::aws_keys(self)
    }

    /// The Azure account, for external movers. They address accounts only as `https://ACCOUNT.DOMAIN`.
    pub fn azure_account(&self) -> Result<AzureAccount> {
        crate::provider::azure_account(self)
    }

    /// The Google service account key in JSON, for external movers.
    pub fn google_key(&self) -> Result<Option<SecretString>> {
        crate::provider::google_key(self)
    }

    /// The directory path: `config["path"]` joined with `bucket`.
    pub fn path(&self) -> Option<String> {
        match self.config.get("path") {
            Some(root) if self.bucket.is_empty() => Some(root.clone()),
            Some(root) => Some(format!("{}/{}", root.trim_end_matches('/'), self.bucket)),
            None if self.bucket.is_empty() => None,
            None => Some(self.bucket.clone()),
        }
    }

    /// A provider setting, if it is present and not empty.
    pub fn setting(&self, key: &str) -> Option<&str> {
        self.config.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A boolean provider setting.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        match self.setting(key) {
            None => Ok(None),
            Some("1" | "t" | "T" | "true" | "True" | "TRUE") => Ok(Some(true)),
            Some("0" | "f" | "F" | "false" | "False" | "FALSE") => Ok(Some(false)),
            Some(other) => Err(self.invalid(format!("config {key} must be true or false, not {other:?}"))),
        }
    }

    pub(crate) fn require_bucket(&self) -> Result<()> {
        if self.bucket.is_empty() { Err(self.invalid("the bucket name is missing")) } else { Ok(()) }
    }

    /// Rejects unknown settings: a typing error must not be a silent default.
    pub(crate) fn reject_unknown_settings(&self, known: &[&str]) -> Result<()> {
        match self.config.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(self.invalid(format!("unknown config {key} for provider {}", self.provider))),
            None => Ok(()),
        }
    }

    pub(crate) fn invalid(&self, cause: impl Into<String>) -> StoreError {
        StoreError::InvalidLocation { location: self.display_name(), cause: cause.into() }
    }
}
