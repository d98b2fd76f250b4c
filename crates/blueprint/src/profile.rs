//! A Profile with its credentials, for templates, object storage and restic.
//!
//! ```text
//!  Profile + Secret ──resolve──▶ .Profile of templates ──parse──▶ ResolvedProfile ──▶ Location (store), environment (restic)
//!                                  toJson │                         ▲
//!                                         └── kando --profile ──────┘
//! ```

mod error;
mod resolve;

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use plimsoll_store::Location;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

pub use error::ProfileError;
pub use resolve::{resolve, secret_reference};

/// S3 signatures need a region, even if the server ignores it.
const DEFAULT_REGION: &str = "us-east-1";
/// The name of the storage account key in the credentials.
const AZURE_KEY_VARIABLE: &str = "AZURE_STORAGE_ACCOUNT_ACCESS_KEY";

type Result<T> = std::result::Result<T, ProfileError>;

/// The type of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreType {
    S3,
    Gcs,
    Azure,
    Directory,
}

/// A location and its credentials.
#[derive(Clone)]
pub struct ResolvedProfile {
    json: Value,
    kind: StoreType,
    bucket: String,
    endpoint: String,
    prefix: String,
    region: String,
    /// Whether certificates are not verified.
    pub skip_verification: bool,
    id: String,
    key: SecretString,
}

impl fmt::Debug for ResolvedProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("kind", &self.kind).field("bucket", &self.bucket).finish_non_exhaustive()
    }
}

impl ResolvedProfile {
    /// Parses the JSON of `toJson .Profile`. Keys are case-insensitive, as in Go.
    pub fn from_json(text: &str) -> Result<Self> {
        // Only the position: the message of serde could contain a credential.
        let json: Value = serde_json::from_str(text).map_err(|error| {
            ProfileError::invalid(format!("invalid JSON (line {}, column {})", error.line(), error.column()))
        })?;
        Self::from_value(json)
    }

    /// As [`Self::from_json`], from parsed JSON.
    pub fn from_value(json: Value) -> Result<Self> {
        let profile = json.as_object().ok_or_else(|| ProfileError::invalid("not a JSON object"))?;
        let location = object(profile, "Location").ok_or_else(|| ProfileError::invalid("missing Location"))?;
        let empty = Map::new();
        let credential = object(profile, "Credential").unwrap_or(&empty);
        let kind = kind(&text(location, "type"))?;
        let (id, key) = keys(credential, kind)?;
        let bucket = text(location, "bucket");
        if bucket.is_empty() {
            return Err(ProfileError::invalid("location has no bucket"));
        }
        Ok(Self {
            kind,
            bucket,
            endpoint: text(location, "endpoint"),
            prefix: normalize_prefix(&text(location, "prefix")),
            region: text(location, "region"),
            skip_verification: find(profile, "SkipSSLVerify").and_then(Value::as_bool).unwrap_or(false),
            id,
            key: key.into(),
            json,
        })
    }

    /// The template parameter `.Profile`.
    pub fn params(&self) -> Value {
        self.json.clone()
    }

    /// The location for object storage, with the prefix of the profile.
    pub fn location(&self) -> Location {
        let key = self.key.expose_secret();
        let mut location = Location { bucket: self.bucket.clone(), prefix: self.prefix.clone(), ..Location::default() };
        let mut set = |name: &str, value: &str| location.config.insert(name.to_owned(), value.to_owned());
        let (provider, credentials) = match self.kind {
            StoreType::Gcs => ("gcp", key.to_owned()),
            StoreType::Directory => ("directory", String::new()),
            StoreType::Azure => {
                set("storageAccount", &self.id);
                set("storageAccountKeyEnvVar", AZURE_KEY_VARIABLE);
                if !self.endpoint.is_empty() {
                    set("storageAccountURI", &self.endpoint);
                }
                ("azure", format!("{AZURE_KEY_VARIABLE}={key}\n"))
            }
            StoreType::S3 => {
                set("region", if self.region.is_empty() { DEFAULT_REGION } else { &self.region });
                if !self.endpoint.is_empty() {
                    set("s3Url", &self.address());
                    set("s3ForcePathStyle", "true");
                }
                if self.skip_verification {
                    set("insecureSkipTLSVerify", "true");
                }
                ("aws", format!("[default]\naws_access_key_id={}\naws_secret_access_key={key}\n", self.id))
            }
        };
        location.provider = provider.into();
        location.credentials = (!key.is_empty()).then(|| credentials.into_bytes().into());
        location
    }

    /// An endpoint without a scheme means HTTPS, as in Kanister.
    fn address(&self) -> String {
        let scheme = if self.endpoint.is_empty() || self.endpoint.contains("://") { "" } else { "https://" };
        format!("{scheme}{}", self.endpoint)
    }

    /// Prepends the bucket to a path, unless it is there already.
    pub fn with_bucket(&self, path: &str) -> String {
        let path = path.trim_matches('/');
        let first = path.split('/').next().unwrap_or_default();
        if first == self.bucket { path.to_owned() } else { format!("{}/{path}", self.bucket) }
    }

    /// Removes the bucket from a path.
    pub fn without_bucket<'a>(&self, path: &'a str) -> &'a str {
        let path = path.trim_start_matches('/');
        path.strip_prefix(&self.bucket).and_then(|rest| rest.strip_prefix('/')).unwrap_or(path)
    }

    /// The location of a repository at `path` of the bucket. As in Kanister, it does not include the prefix of the profile.
    pub fn repository(&self, path: &str) -> Location {
        Location { prefix: normalize_prefix(self.without_bucket(path)), ..self.location() }
    }

    /// The environment variables of restic for a repository at `path`. All values are secret.
    pub fn restic(&self, path: &str, password: &str) -> Result<Vec<(&'static str, String)>> {
        let key = self.key.expose_secret().to_owned();
        let below = self.without_bucket(path).trim_matches('/').to_owned();
        let mut variables = match self.kind {
            StoreType::S3 => {
                let address = self.address();
                let address = if address.is_empty() { "s3.amazonaws.com" } else { address.trim_end_matches('/') };
                let repository = format!("s3:{address}/{}/{below}", self.bucket);
                let mut all = vec![("RESTIC_REPOSITORY", repository), ("AWS_ACCESS_KEY_ID", self.id.clone())];
                all.push(("AWS_SECRET_ACCESS_KEY", key));
                if !self.region.is_empty() {
                    all.push(("AWS_DEFAULT_REGION", self.region.clone()));
                }
                all
            }
            StoreType::Azure => vec![
                ("RESTIC_REPOSITORY", format!("azure:{}:/{below}", self.bucket)),
                ("AZURE_ACCOUNT_NAME", self.id.clone()),
                ("AZURE_ACCOUNT_KEY", key),
            ],
            other @ (StoreType::Gcs | StoreType::Directory) => {
                return Err(ProfileError::unsupported(format!(
                    "a restic repository in a location of type {other:?} (s3Compliant and azure are supported)"
                )));
            }
        };
        variables.push(("RESTIC_PASSWORD", password.to_owned()));
        Ok(variables)
    }

    /// Values that must not appear in a log.
    pub fn secrets(&self) -> Vec<String> {
        vec![self.key.expose_secret().to_owned()]
    }
}

fn kind(json: &str) -> Result<StoreType> {
    match json {
        "s3Compliant" => Ok(StoreType::S3),
        "gcs" => Ok(StoreType::Gcs),
        "azure" => Ok(StoreType::Azure),
        "filestore" | "directory" => Ok(StoreType::Directory),
        "kopia" => Err(ProfileError::unsupported("a profile with a Kopia server")),
        other => Err(ProfileError::invalid(format!("location type {other:?}, expected s3Compliant, gcs or azure"))),
    }
}

/// The credentials: id and secret.
fn keys(credential: &Map<String, Value>, kind: StoreType) -> Result<(String, String)> {
    let part =
        |name: &str| object(credential, name).ok_or_else(|| ProfileError::invalid(format!("Credential has no {name}")));
    match text(credential, "Type").as_str() {
        "keyPair" => part("KeyPair").map(|pair| (text(pair, "ID"), text(pair, "Secret"))),
        "secret" => keys_of_secret(&data(part("Secret")?)?, kind),
        "kopia" => Err(ProfileError::unsupported("a credential of a Kopia server")),
        "" => Ok((String::new(), String::new())),
        other => Err(ProfileError::invalid(format!("credential type {other:?}, expected keyPair or secret"))),
    }
}

/// The credentials in a Secret of Kanister's types.
fn keys_of_secret(data: &BTreeMap<String, String>, kind: StoreType) -> Result<(String, String)> {
    let value = |key: &str| {
        let found = data.get(key).filter(|value| !value.is_empty()).cloned();
        found.ok_or_else(|| ProfileError::invalid(format!("secret has no key {key:?}")))
    };
    match kind {
        StoreType::S3 if data.get("role").is_some_and(|role| !role.is_empty()) => {
            Err(ProfileError::unsupported("a credential with a role to assume"))
        }
        StoreType::S3 => Ok((value("aws_access_key_id")?, value("aws_secret_access_key")?)),
        StoreType::Azure => Ok((value("azure_storage_account_id")?, value("azure_storage_key")?)),
        // The service account key is the value that is JSON.
        StoreType::Gcs | StoreType::Directory => {
            let key = data.values().find(|text| text.trim_start().starts_with('{')).cloned();
            let key = key.ok_or_else(|| ProfileError::invalid("secret has no service account key"))?;
            Ok((String::new(), key))
        }
    }
}

/// The decoded data of a Secret.
fn data(secret: &Map<String, Value>) -> Result<BTreeMap<String, String>> {
    let Some(data) = object(secret, "data") else { return Ok(BTreeMap::new()) };
    let decode = |value: &Value| String::from_utf8(BASE64_STANDARD.decode(value.as_str()?).ok()?).ok();
    let one = |(key, value): (&String, &Value)| {
        let text = decode(value).ok_or_else(|| ProfileError::invalid(format!("{key} of the secret is not base64")))?;
        Ok((key.clone(), text.trim_end_matches('\n').to_owned()))
    };
    data.iter().map(one).collect()
}

/// Removes leading, trailing and duplicate slashes.
fn normalize_prefix(prefix: &str) -> String {
    prefix.split('/').filter(|part| !part.is_empty() && *part != ".").collect::<Vec<_>>().join("/")
}

fn find<'a>(fields: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    let ignoring_case = || fields.iter().find(|(other, _)| other.eq_ignore_ascii_case(key)).map(|(_, value)| value);
    fields.get(key).or_else(ignoring_case)
}

fn object<'a>(fields: &'a Map<String, Value>, key: &str) -> Option<&'a Map<String, Value>> {
    find(fields, key).and_then(Value::as_object)
}

fn text(fields: &Map<String, Value>, key: &str) -> String {
    find(fields, key).and_then(Value::as_str).unwrap_or_default().to_owned()
}
