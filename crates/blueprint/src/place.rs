//! A Profile with its credentials: where phases keep data, for templates, for object storage and for restic.
//!
//! ```text
//!  Profile + Secret ──resolve──▶ what templates see: .Profile ──read──▶ Place ──▶ Location (store), environment (restic)
//!                                        toJson │                        ▲
//!                                               └── kando --profile ─────┘
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
pub use resolve::{resolve, secret_of};

/// S3 needs one for its signatures, whether or not the server cares.
const NO_REGION: &str = "us-east-1";
/// What the key of a storage account is called in its credentials.
const AZURE_KEY: &str = "AZURE_STORAGE_ACCOUNT_ACCESS_KEY";

type Result<T> = std::result::Result<T, ProfileError>;

/// What kind of store it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    S3,
    Gcs,
    Azure,
    Directory,
}

/// A place and how to get in.
#[derive(Clone)]
pub struct Place {
    written: Value,
    kind: Kind,
    bucket: String,
    endpoint: String,
    prefix: String,
    region: String,
    /// Whether certificates are not checked.
    pub skip_verification: bool,
    id: String,
    key: SecretString,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("kind", &self.kind).field("bucket", &self.bucket).finish_non_exhaustive()
    }
}

impl Place {
    /// Reads the JSON that `toJson .Profile` gives. Go takes its keys in any case, so this does too.
    pub fn from_json(text: &str) -> Result<Self> {
        // serde's errors name the place, never the text.
        let json: Value = serde_json::from_str(text).map_err(|error| {
            ProfileError::invalid(format!("it is not JSON (line {}, column {})", error.line(), error.column()))
        })?;
        Self::from_value(json)
    }

    /// The same from JSON that is parsed already.
    pub fn from_value(written: Value) -> Result<Self> {
        let profile = written.as_object().ok_or_else(|| ProfileError::invalid("it is not a JSON object"))?;
        let place = object(profile, "Location").ok_or_else(|| ProfileError::invalid("it has no Location"))?;
        let empty = Map::new();
        let credential = object(profile, "Credential").unwrap_or(&empty);
        let kind = kind(&text(place, "type"))?;
        let (id, key) = keys(credential, kind)?;
        let bucket = text(place, "bucket");
        if bucket.is_empty() {
            return Err(ProfileError::invalid("its location has no bucket"));
        }
        Ok(Self {
            kind,
            bucket,
            endpoint: text(place, "endpoint"),
            prefix: cleaned(&text(place, "prefix")),
            region: text(place, "region"),
            skip_verification: find(profile, "SkipSSLVerify").and_then(Value::as_bool).unwrap_or(false),
            id,
            key: key.into(),
            written,
        })
    }

    /// As templates see it: `.Profile`.
    pub fn params(&self) -> Value {
        self.written.clone()
    }

    /// As object storage sees it, with the profile's own prefix.
    pub fn location(&self) -> Location {
        let key = self.key.expose_secret();
        let mut location = Location { bucket: self.bucket.clone(), prefix: self.prefix.clone(), ..Location::default() };
        let mut set = |name: &str, value: &str| location.config.insert(name.to_owned(), value.to_owned());
        let (provider, credentials) = match self.kind {
            Kind::Gcs => ("gcp", key.to_owned()),
            Kind::Directory => ("directory", String::new()),
            Kind::Azure => {
                set("storageAccount", &self.id);
                set("storageAccountKeyEnvVar", AZURE_KEY);
                if !self.endpoint.is_empty() {
                    set("storageAccountURI", &self.endpoint);
                }
                ("azure", format!("{AZURE_KEY}={key}\n"))
            }
            Kind::S3 => {
                set("region", if self.region.is_empty() { NO_REGION } else { &self.region });
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

    /// Kanister takes an endpoint without a scheme for HTTPS.
    fn address(&self) -> String {
        let scheme = if self.endpoint.is_empty() || self.endpoint.contains("://") { "" } else { "https://" };
        format!("{scheme}{}", self.endpoint)
    }

    /// A path with the bucket in front, where it is not there already.
    pub fn with_bucket(&self, path: &str) -> String {
        let path = path.trim_matches('/');
        let first = path.split('/').next().unwrap_or_default();
        if first == self.bucket { path.to_owned() } else { format!("{}/{path}", self.bucket) }
    }

    /// A path without the bucket in front.
    pub fn without_bucket<'a>(&self, path: &'a str) -> &'a str {
        let path = path.trim_start_matches('/');
        path.strip_prefix(&self.bucket).and_then(|rest| rest.strip_prefix('/')).unwrap_or(path)
    }

    /// A repository at `path` of the bucket, as object storage sees it. The profile's own prefix is not part of its address:
    /// Kanister leaves it out there.
    pub fn repository(&self, path: &str) -> Location {
        Location { prefix: cleaned(self.without_bucket(path)), ..self.location() }
    }

    /// The environment restic needs for a repository at `path`. All of it is secret.
    pub fn restic(&self, path: &str, password: &str) -> Result<Vec<(&'static str, String)>> {
        let key = self.key.expose_secret().to_owned();
        let below = self.without_bucket(path).trim_matches('/').to_owned();
        let mut variables = match self.kind {
            Kind::S3 => {
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
            Kind::Azure => vec![
                ("RESTIC_REPOSITORY", format!("azure:{}:/{below}", self.bucket)),
                ("AZURE_ACCOUNT_NAME", self.id.clone()),
                ("AZURE_ACCOUNT_KEY", key),
            ],
            other @ (Kind::Gcs | Kind::Directory) => {
                return Err(ProfileError::unsupported(format!(
                    "a repository of restic in a place of kind {other:?} (s3Compliant and azure are)"
                )));
            }
        };
        variables.push(("RESTIC_PASSWORD", password.to_owned()));
        Ok(variables)
    }

    /// What must not appear in any log.
    pub fn secrets(&self) -> Vec<String> {
        vec![self.key.expose_secret().to_owned()]
    }
}

fn kind(written: &str) -> Result<Kind> {
    match written {
        "s3Compliant" => Ok(Kind::S3),
        "gcs" => Ok(Kind::Gcs),
        "azure" => Ok(Kind::Azure),
        "filestore" | "directory" => Ok(Kind::Directory),
        "kopia" => Err(ProfileError::unsupported("a profile whose location is a kopia server")),
        other => Err(ProfileError::invalid(format!("its location type {other:?} is not s3Compliant, gcs or azure"))),
    }
}

/// What proves who we are: a name and a secret.
fn keys(credential: &Map<String, Value>, kind: Kind) -> Result<(String, String)> {
    let part = |name: &str| {
        object(credential, name).ok_or_else(|| ProfileError::invalid(format!("its Credential has no {name}")))
    };
    match text(credential, "Type").as_str() {
        "keyPair" => part("KeyPair").map(|pair| (text(pair, "ID"), text(pair, "Secret"))),
        "secret" => of_secret(&data(part("Secret")?)?, kind),
        "kopia" => Err(ProfileError::unsupported("a credential of a kopia server")),
        "" => Ok((String::new(), String::new())),
        other => Err(ProfileError::invalid(format!("its credential type {other:?} is not keyPair or secret"))),
    }
}

/// Kanister's own types of Secrets.
fn of_secret(data: &BTreeMap<String, String>, kind: Kind) -> Result<(String, String)> {
    let value = |key: &str| {
        let found = data.get(key).filter(|value| !value.is_empty()).cloned();
        found.ok_or_else(|| ProfileError::invalid(format!("its secret has no key {key:?}")))
    };
    match kind {
        Kind::S3 if data.get("role").is_some_and(|role| !role.is_empty()) => {
            Err(ProfileError::unsupported("a credential with a role to assume"))
        }
        Kind::S3 => Ok((value("aws_access_key_id")?, value("aws_secret_access_key")?)),
        Kind::Azure => Ok((value("azure_storage_account_id")?, value("azure_storage_key")?)),
        // The key of a service account is the one that is JSON.
        Kind::Gcs | Kind::Directory => {
            let key = data.values().find(|text| text.trim_start().starts_with('{')).cloned();
            let key = key.ok_or_else(|| ProfileError::invalid("its secret holds no key of a service account"))?;
            Ok((String::new(), key))
        }
    }
}

/// A Secret's data, which JSON has in base64.
fn data(secret: &Map<String, Value>) -> Result<BTreeMap<String, String>> {
    let Some(data) = object(secret, "data") else { return Ok(BTreeMap::new()) };
    let decode = |value: &Value| String::from_utf8(BASE64_STANDARD.decode(value.as_str()?).ok()?).ok();
    let one = |(key, value): (&String, &Value)| {
        let text = decode(value).ok_or_else(|| ProfileError::invalid(format!("{key} of its secret is not base64")))?;
        Ok((key.clone(), text.trim_end_matches('\n').to_owned()))
    };
    data.iter().map(one).collect()
}

/// Slashes between the parts only.
fn cleaned(prefix: &str) -> String {
    prefix.split('/').filter(|part| !part.is_empty() && *part != ".").collect::<Vec<_>>().join("/")
}

fn find<'a>(fields: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    let loosely = || fields.iter().find(|(other, _)| other.eq_ignore_ascii_case(key)).map(|(_, value)| value);
    fields.get(key).or_else(loosely)
}

fn object<'a>(fields: &'a Map<String, Value>, key: &str) -> Option<&'a Map<String, Value>> {
    find(fields, key).and_then(Value::as_object)
}

fn text(fields: &Map<String, Value>, key: &str) -> String {
    find(fields, key).and_then(Value::as_str).unwrap_or_default().to_owned()
}
