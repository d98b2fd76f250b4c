//! A Profile with its credentials, for templates, object storage and restic.
//!
//! ```text
//!  Profile + Secret ──resolve──▶ .Profile of templates ──parse──▶ ResolvedProfile ──▶ Location (store), environment (restic)
//!                                  toJson │                         ▲
//!                                         └── kando --profile ──────┘
//! ```

mod azure;
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
pub use resolve::{SecretReference, Secrets, resolve, secret_references};

use crate::kopia_server::{KopiaServer, fingerprint};

/// S3 signatures need a region, even if the server ignores it.
const DEFAULT_REGION: &str = "us-east-1";
/// The name of the storage account key in the credentials.
const AZURE_KEY_VARIABLE: &str = "AZURE_STORAGE_ACCOUNT_ACCESS_KEY";

/// The variable with the key of a service account, which [`crate::functions`] writes to a file for restic.
pub(crate) const GOOGLE_KEY: &str = "PLIMSOLL_GOOGLE_KEY";

type Result<T> = std::result::Result<T, ProfileError>;

/// The type of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreType {
    S3,
    Gcs,
    Azure,
    Directory,
    KopiaServer,
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
    /// The role that restic assumes.
    role: String,
    /// The cloud of Azure, if it is not the public one.
    azure_cloud: Option<azure::Cloud>,
    kopia_server: Option<KopiaServer>,
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
        let Keys { id, key, role, azure_cloud } = keys(credential, kind)?;
        let kopia_server = match kind {
            StoreType::KopiaServer => Some(kopia_server(location, credential)?),
            _ => None,
        };
        let bucket = text(location, "bucket");
        if bucket.is_empty() && kopia_server.is_none() {
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
            role,
            azure_cloud,
            kopia_server,
            json,
        })
    }

    /// The template parameter `.Profile`.
    pub fn params(&self) -> Value {
        self.json.clone()
    }

    /// The Kopia server, if this is a profile of one.
    pub fn kopia_server(&self) -> Option<&KopiaServer> {
        self.kopia_server.as_ref()
    }

    /// Fails unless this is a profile of object storage.
    pub fn require_store(&self) -> Result<&Self> {
        match self.kopia_server {
            Some(_) => Err(ProfileError::unsupported("object storage in a profile of a Kopia server")),
            None => Ok(self),
        }
    }

    /// The location for object storage, with the prefix of the profile.
    pub fn location(&self) -> Location {
        let key = self.key.expose_secret();
        let mut location = Location { bucket: self.bucket.clone(), prefix: self.prefix.clone(), ..Location::default() };
        let mut set = |name: &str, value: &str| location.config.insert(name.to_owned(), value.to_owned());
        let (provider, credentials) = match self.kind {
            StoreType::Gcs => ("gcp", key.to_owned()),
            StoreType::Directory | StoreType::KopiaServer => ("directory", String::new()),
            StoreType::Azure => {
                set("storageAccount", &self.id);
                set("storageAccountKeyEnvVar", AZURE_KEY_VARIABLE);
                let of_cloud = self.azure_cloud.map(|cloud| cloud.account_uri(&self.id));
                if let Some(uri) = Some(self.endpoint.clone()).filter(|endpoint| !endpoint.is_empty()).or(of_cloud) {
                    set("storageAccountURI", &uri);
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
                if !self.role.is_empty() {
                    all.push(("RESTIC_AWS_ASSUME_ROLE_ARN", self.role.clone()));
                }
                all
            }
            StoreType::Azure => {
                let repository = format!("azure:{}:/{below}", self.bucket);
                let mut all = vec![("RESTIC_REPOSITORY", repository), ("AZURE_ACCOUNT_NAME", self.id.clone())];
                // Without a key restic uses the identity of its pod.
                all.extend((!key.is_empty()).then_some(("AZURE_ACCOUNT_KEY", key)));
                all.extend(self.azure_cloud.map(|cloud| ("AZURE_ENDPOINT_SUFFIX", cloud.suffix().to_owned())));
                all
            }
            StoreType::Gcs => {
                let repository = format!("gs:{}:/{below}", self.bucket);
                vec![
                    ("RESTIC_REPOSITORY", repository),
                    ("GOOGLE_PROJECT_ID", self.id.clone()),
                    (GOOGLE_KEY, one_line(&key)),
                ]
            }
            other @ (StoreType::Directory | StoreType::KopiaServer) => {
                return Err(ProfileError::unsupported(format!(
                    "a restic repository in a location of type {other:?} (s3Compliant, gcs and azure are supported)"
                )));
            }
        };
        variables.push(("RESTIC_PASSWORD", password.to_owned()));
        Ok(variables)
    }

    /// Values that must not appear in a log.
    pub fn secrets(&self) -> Vec<String> {
        let password = self.kopia_server.as_ref().map(|server| server.password().to_owned());
        std::iter::once(self.key.expose_secret().to_owned()).chain(password).collect()
    }
}

/// JSON without line breaks. Other texts are left to restic.
fn one_line(key: &str) -> String {
    serde_json::from_str::<Value>(key).map_or_else(|_| key.to_owned(), |key| key.to_string())
}

fn kind(json: &str) -> Result<StoreType> {
    match json {
        "s3Compliant" => Ok(StoreType::S3),
        "gcs" => Ok(StoreType::Gcs),
        "azure" => Ok(StoreType::Azure),
        "filestore" | "directory" => Ok(StoreType::Directory),
        "kopia" => Ok(StoreType::KopiaServer),
        other => {
            Err(ProfileError::invalid(format!("location type {other:?}, expected s3Compliant, gcs, azure or kopia")))
        }
    }
}

/// The credentials.
#[derive(Default)]
struct Keys {
    id: String,
    key: String,
    role: String,
    azure_cloud: Option<azure::Cloud>,
}

impl Keys {
    fn pair(id: String, key: String) -> Self {
        Self { id, key, ..Self::default() }
    }
}

fn keys(credential: &Map<String, Value>, kind: StoreType) -> Result<Keys> {
    let part =
        |name: &str| object(credential, name).ok_or_else(|| ProfileError::invalid(format!("Credential has no {name}")));
    match text(credential, "Type").as_str() {
        "keyPair" => part("KeyPair").map(|pair| Keys::pair(text(pair, "ID"), text(pair, "Secret"))),
        "secret" => keys_of_secret(&data(part("Secret")?)?, kind),
        "" => Ok(Keys::default()),
        "kopia" if kind == StoreType::KopiaServer => Ok(Keys::default()),
        "kopia" => Err(ProfileError::invalid("a credential of type kopia requires location type kopia")),
        other => Err(ProfileError::invalid(format!("credential type {other:?}, expected keyPair, secret or kopia"))),
    }
}

/// The server of a profile of type `kopia`, whose user is in the credential.
fn kopia_server(location: &Map<String, Value>, credential: &Map<String, Value>) -> Result<KopiaServer> {
    let user = object(credential, "KopiaServerSecret")
        .ok_or_else(|| ProfileError::invalid("location type kopia requires a credential of type kopia"))?;
    let required = |fields: &Map<String, Value>, name: &str| {
        let value = text(fields, name);
        if value.is_empty() {
            Err(ProfileError::invalid(format!("{name} of the Kopia server is missing")))
        } else {
            Ok(value)
        }
    };
    let options = find(user, "ConnectOptions").and_then(|options| serde_json::from_value(options.clone()).ok());
    let (content_cache_mb, metadata_cache_mb) = KopiaServer::cache_sizes(&options.unwrap_or_default());
    let fingerprint = fingerprint(&required(user, "Cert")?);
    Ok(KopiaServer {
        url: required(location, "endpoint")?,
        fingerprint: fingerprint.ok_or_else(|| ProfileError::invalid("Cert of the Kopia server is no certificate"))?,
        username: required(user, "Username")?,
        hostname: required(user, "Hostname")?,
        password: required(user, "Password")?.into(),
        content_cache_mb,
        metadata_cache_mb,
    })
}

/// The credentials in a Secret of Kanister's types.
fn keys_of_secret(data: &BTreeMap<String, String>, kind: StoreType) -> Result<Keys> {
    let optional = |key: &str| data.get(key).cloned().unwrap_or_default();
    let value = |key: &str| match optional(key) {
        found if found.is_empty() => Err(ProfileError::invalid(format!("secret has no key {key:?}"))),
        found => Ok(found),
    };
    match kind {
        StoreType::S3 => Ok(Keys {
            role: optional("role"),
            ..Keys::pair(value("aws_access_key_id")?, value("aws_secret_access_key")?)
        }),
        // Without a key the identity of the machine is used: a managed or a federated one.
        StoreType::Azure => Ok(Keys {
            azure_cloud: azure::Cloud::parse(&optional("azure_storage_environment"))?,
            ..Keys::pair(value("azure_storage_account_id")?, optional("azure_storage_key"))
        }),
        // The service account key is the value that is JSON.
        StoreType::Gcs | StoreType::Directory | StoreType::KopiaServer => {
            let key = data.values().find(|text| text.trim_start().starts_with('{')).cloned();
            let key = key.ok_or_else(|| ProfileError::invalid("secret has no service account key"))?;
            let project = data.iter().find(|(name, _)| name.contains("project")).map(|(_, project)| project.clone());
            Ok(Keys::pair(project.unwrap_or_default(), key))
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
