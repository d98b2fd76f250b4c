//! A Profile with its credentials: where phases keep data, for templates, for object storage and for restic.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use plimsoll_api::kanister::v1alpha1 as api;
use plimsoll_store::Location;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use crate::Error;

/// Names of the fields of `secrets.kanister.io/aws`.
const AWS_FIELDS: (&str, &str) = ("aws_access_key_id", "aws_secret_access_key");
/// Names of the fields of `secrets.kanister.io/azure`.
const AZURE_FIELDS: (&str, &str) = ("azure_storage_account_id", "azure_storage_key");

/// A place and how to get in.
#[derive(Clone, Default)]
pub struct Place {
    /// `s3Compliant`, `gcs` or `azure`.
    pub kind: String,
    /// Bucket or container.
    pub bucket: String,
    /// Address of the store, if it is not the provider's own.
    pub endpoint: String,
    /// Everything lies below this.
    pub prefix: String,
    /// Region of the store.
    pub region: String,
    /// Whether certificates are not checked.
    pub skip_verification: bool,
    credential: Credential,
}

#[derive(Clone, Default)]
struct Credential {
    kind: String,
    id: String,
    key: SecretString,
    secret: Option<Value>,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("kind", &self.kind).field("bucket", &self.bucket).finish_non_exhaustive()
    }
}

/// The Secret a Profile names: namespace and name.
pub fn secret_of(profile: &api::Profile) -> Result<(Option<String>, String), Error> {
    let credential = profile.spec.credential.clone().unwrap_or_default();
    let reference = match credential.type_.as_deref() {
        Some("keyPair") => credential.key_pair.and_then(|pair| pair.secret),
        Some("secret") => credential.secret,
        other => return Err(Error::Missing(format!("profile: credential type {other:?} is not keyPair or secret"))),
    };
    let reference = reference.unwrap_or_default();
    let name = reference.name.filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| Error::Missing("profile: its credential names no secret".into()))?;
    Ok((reference.namespace.filter(|namespace| !namespace.is_empty()), name))
}

impl Place {
    /// A Profile together with the data of its Secret.
    pub fn new(profile: &api::Profile, secret: &BTreeMap<String, Vec<u8>>) -> Result<Self, Error> {
        let fields = &profile.spec;
        let location = fields.location.clone().unwrap_or_default();
        let kind = location.type_.unwrap_or_default();
        if !["s3Compliant", "gcs", "azure"].contains(&kind.as_str()) {
            return Err(Error::Missing(format!("profile: location type {kind:?} is not s3Compliant, gcs or azure")));
        }
        let bucket = location.bucket.filter(|bucket| !bucket.is_empty());
        Ok(Self {
            credential: credential(&kind, fields.credential.as_ref(), secret)?,
            kind,
            bucket: bucket.ok_or_else(|| Error::Missing("profile: its location has no bucket".into()))?,
            endpoint: location.endpoint.unwrap_or_default(),
            prefix: location.prefix.unwrap_or_default(),
            region: location.region.unwrap_or_default(),
            skip_verification: fields.skip_ssl_verify.unwrap_or(false),
        })
    }

    /// As templates see it: `.Profile`.
    pub fn params(&self) -> Value {
        let Credential { kind, id, key, secret } = &self.credential;
        let pair = (kind == "keyPair").then(|| json!({ "ID": id, "Secret": key.expose_secret() }));
        json!({
            "Location": {
                "type": self.kind, "bucket": self.bucket, "endpoint": self.endpoint, "prefix": self.prefix,
                "region": self.region,
            },
            "Credential": { "Type": kind, "KeyPair": pair, "Secret": secret, "KopiaServerSecret": null },
            "SkipSSLVerify": self.skip_verification,
        })
    }

    /// As object storage sees it, without the profile's own prefix.
    pub fn location(&self) -> Location {
        let Credential { id, key, .. } = &self.credential;
        let key = key.expose_secret();
        let mut config = BTreeMap::new();
        let mut set = |name: &str, value: &str| {
            if !value.is_empty() {
                config.insert(name.to_owned(), value.to_owned());
            }
        };
        let (provider, credentials) = match self.kind.as_str() {
            "gcs" => ("gcp", key.to_owned()),
            "azure" => {
                set("storageAccount", id);
                set("storageAccountURI", &self.endpoint);
                ("azure", format!("AZURE_STORAGE_ACCOUNT_ACCESS_KEY={key}\n"))
            }
            _ => {
                set("region", if self.region.is_empty() { "us-east-1" } else { &self.region });
                set("s3Url", &self.address());
                set("s3ForcePathStyle", if self.endpoint.is_empty() { "" } else { "true" });
                set("insecureSkipTLSVerify", if self.skip_verification { "true" } else { "" });
                ("aws", format!("[default]\naws_access_key_id={id}\naws_secret_access_key={key}\n"))
            }
        };
        if self.kind == "azure" {
            set("storageAccountKeyEnvVar", "AZURE_STORAGE_ACCOUNT_ACCESS_KEY");
        }
        Location {
            provider: provider.into(),
            bucket: self.bucket.clone(),
            config,
            credentials: Some(credentials.into_bytes().into()),
            ..Location::default()
        }
    }

    /// Kanister takes an endpoint without a scheme for HTTPS.
    fn address(&self) -> String {
        match self.endpoint.as_str() {
            "" => String::new(),
            endpoint if endpoint.contains("://") => endpoint.to_owned(),
            endpoint => format!("https://{endpoint}"),
        }
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

    /// The environment restic needs for a repository at `path`, whose first segment is the bucket. All of it is secret.
    pub fn restic(&self, path: &str, password: &str) -> Result<Vec<(&'static str, String)>, Error> {
        let Credential { id, key, .. } = &self.credential;
        let key = key.expose_secret().to_owned();
        let below = self.without_bucket(path).trim_matches('/').to_owned();
        let mut variables = match self.kind.as_str() {
            "s3Compliant" => {
                let address = self.address();
                let address = if address.is_empty() { "s3.amazonaws.com" } else { address.trim_end_matches('/') };
                let repository = format!("s3:{address}/{}/{below}", self.bucket);
                let mut all = vec![("RESTIC_REPOSITORY", repository), ("AWS_ACCESS_KEY_ID", id.clone())];
                all.push(("AWS_SECRET_ACCESS_KEY", key));
                if !self.region.is_empty() {
                    all.push(("AWS_DEFAULT_REGION", self.region.clone()));
                }
                all
            }
            "azure" => vec![
                ("RESTIC_REPOSITORY", format!("azure:{}:/{below}", self.bucket)),
                ("AZURE_ACCOUNT_NAME", id.clone()),
                ("AZURE_ACCOUNT_KEY", key),
            ],
            other => {
                return Err(Error::Unsupported(format!(
                    "restic functions know s3Compliant and azure profiles, not {other}"
                )));
            }
        };
        variables.push(("RESTIC_PASSWORD", password.to_owned()));
        Ok(variables)
    }

    /// What must not appear in any log.
    pub fn secrets(&self) -> Vec<String> {
        vec![self.credential.key.expose_secret().to_owned()]
    }
}

fn credential(
    location: &str,
    credential: Option<&api::Credential>,
    secret: &BTreeMap<String, Vec<u8>>,
) -> Result<Credential, Error> {
    let given = credential.cloned().unwrap_or_default();
    let text = |field: &str| -> Result<String, Error> {
        let value =
            secret.get(field).ok_or_else(|| Error::Missing(format!("profile: its secret has no key {field:?}")))?;
        Ok(String::from_utf8_lossy(value).trim_end_matches('\n').to_owned())
    };
    let kind = given.type_.unwrap_or_default();
    let pair = given.key_pair.unwrap_or_default();
    let (id, key) = match (kind.as_str(), location) {
        ("keyPair", _) => (pair.id_field.unwrap_or_default(), pair.secret_field.unwrap_or_default()),
        ("secret", "azure") => (AZURE_FIELDS.0.to_owned(), AZURE_FIELDS.1.to_owned()),
        ("secret", "s3Compliant") => (AWS_FIELDS.0.to_owned(), AWS_FIELDS.1.to_owned()),
        (kind, location) => {
            return Err(Error::Missing(format!(
                "profile: credential type {kind:?} is not supported with location {location}"
            )));
        }
    };
    let whole = (kind == "secret").then(|| {
        let data: BTreeMap<_, _> = secret.iter().map(|(key, value)| (key, BASE64_STANDARD.encode(value))).collect();
        json!({ "data": data, "type": format!("secrets.kanister.io/{}", if location == "azure" { "azure" } else { "aws" }) })
    });
    Ok(Credential { id: text(&id)?, key: text(&key)?.into(), secret: whole, kind })
}
