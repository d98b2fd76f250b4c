//! Where objects are kept: what a BackupStorageLocation says, without Kubernetes.

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
    /// Everything lies below this; may be empty.
    pub prefix: String,
    /// Velero's keys of the provider, for example `region`, `s3Url`, `s3ForcePathStyle`.
    pub config: BTreeMap<String, String>,
    /// The content of the credentials file: AWS's shared credentials, a GCP key, Azure's environment file.
    pub credentials: Option<SecretSlice<u8>>,
    /// Certificates in PEM that are trusted beside those of the system.
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

/// What S3 asks for.
#[derive(Clone, Debug)]
pub struct AwsKeys {
    /// The access key's name, which is no secret.
    pub id: String,
    /// The secret key.
    pub secret: SecretString,
    /// The token of a session, where there is one.
    pub token: Option<SecretString>,
}

/// What Azure asks for.
#[derive(Clone, Debug)]
pub struct AzureAccount {
    /// The storage account's name, which is no secret.
    pub name: String,
    /// What follows the name in its address, where that is not Azure's own: `blob.core.windows.net`.
    pub domain: Option<String>,
    /// Who asks.
    pub identity: AzureIdentity,
}

/// Who asks Azure for something.
#[derive(Clone, Debug)]
pub enum AzureIdentity {
    /// The machine's own identity.
    Machine,
    /// Whoever has the account's key.
    Key(SecretString),
    /// A service principal.
    Principal {
        /// Its tenant.
        tenant: String,
        /// Its name.
        client: String,
        /// Its secret.
        secret: SecretString,
    },
}

/// Time limits and retries of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// A request that moves no bytes for this long is cancelled and tried again.
    pub idle: Duration,
    /// A connection must be made within this time.
    pub connect: Duration,
    /// How often one request is tried again.
    pub retries: usize,
    /// No retry is started once no bytes have moved for so long, in all tries together.
    pub give_up: Duration,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            idle: Duration::from_mins(1),
            connect: Duration::from_secs(10),
            retries: 10,
            give_up: Duration::from_mins(3),
        }
    }
}

impl Location {
    /// A directory of this machine.
    pub fn directory(path: impl Into<String>, prefix: impl Into<String>) -> Self {
        Self { provider: "directory".into(), bucket: path.into(), prefix: prefix.into(), ..Self::default() }
    }

    /// How messages call this place: scheme, bucket and prefix.
    pub fn display_name(&self) -> String {
        let place = match self.kind() {
            "aws" => format!("s3://{}", self.bucket),
            "gcp" => format!("gs://{}", self.bucket),
            "azure" => format!("azure://{}", self.bucket),
            "directory" | "local" => self.path().unwrap_or_else(|| self.bucket.clone()),
            other => format!("{other}://{}", self.bucket),
        };
        match self.prefix.trim_matches('/') {
            "" => place,
            prefix => format!("{}/{prefix}", place.trim_end_matches('/')),
        }
    }

    /// The provider without a prefix such as `velero.io/`.
    pub fn kind(&self) -> &str {
        match self.provider.rsplit_once('/') {
            Some((_, kind)) => kind,
            None => &self.provider,
        }
    }

    /// The keys for S3 that the credentials hold, for programs that open the same place by themselves.
    pub fn aws_keys(&self) -> Result<Option<AwsKeys>> {
        crate::provider::aws_keys(self)
    }

    /// The same for Azure. Other programs know accounts only as `https://ACCOUNT.DOMAIN`.
    pub fn azure_account(&self) -> Result<AzureAccount> {
        crate::provider::azure_account(self)
    }

    /// The same for Google Cloud Storage: the key of a service account, in JSON.
    pub fn google_key(&self) -> Result<Option<SecretString>> {
        crate::provider::google_key(self)
    }

    /// The directory that `bucket` and `config["path"]` mean together.
    pub fn path(&self) -> Option<String> {
        match self.config.get("path") {
            Some(root) if self.bucket.is_empty() => Some(root.clone()),
            Some(root) => Some(format!("{}/{}", root.trim_end_matches('/'), self.bucket)),
            None if self.bucket.is_empty() => None,
            None => Some(self.bucket.clone()),
        }
    }

    /// A setting of the provider, if it is given and not empty.
    pub fn setting(&self, key: &str) -> Option<&str> {
        self.config.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A setting of the provider that is true or false.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        match self.setting(key) {
            None => Ok(None),
            Some("1" | "t" | "T" | "true" | "True" | "TRUE") => Ok(Some(true)),
            Some("0" | "f" | "F" | "false" | "False" | "FALSE") => Ok(Some(false)),
            Some(other) => Err(self.unusable(format!("config {key} must be true or false, not {other:?}"))),
        }
    }

    pub(crate) fn require_bucket(&self) -> Result<()> {
        if self.bucket.is_empty() { Err(self.unusable("the bucket has no name")) } else { Ok(()) }
    }

    /// Refuses settings nobody here knows: a typing error must not be a silent default.
    pub(crate) fn refuse_unknown(&self, known: &[&str]) -> Result<()> {
        match self.config.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(self.unusable(format!("config {key} is not known for provider {}", self.provider))),
            None => Ok(()),
        }
    }

    pub(crate) fn unusable(&self, cause: impl Into<String>) -> StoreError {
        StoreError::InvalidLocation { location: self.display_name(), cause: cause.into() }
    }
}
