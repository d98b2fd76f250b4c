//! A Kanister Profile with its credentials resolved, as templates write it with `toJson .Profile`.

use std::collections::BTreeMap;

use base64::Engine;
use plimsoll_store::Location;
use serde_json::{Map, Value};

use super::{KandoError, Result};

/// S3 needs one for its signatures, whether or not the server cares.
const NO_REGION: &str = "us-east-1";

/// Where a phase keeps its data, and with which credentials.
#[derive(Clone, Debug)]
pub struct Profile {
    location: Location,
}

impl Profile {
    /// Reads the JSON. Go takes its keys in any case, so this does too.
    pub fn from_json(text: &str) -> Result<Self> {
        // serde's errors name the place, never the text.
        let json: Value = serde_json::from_str(text).map_err(|error| {
            KandoError::profile(format!("it is not JSON (line {}, column {})", error.line(), error.column()))
        })?;
        Self::from_value(&json)
    }

    /// The same from JSON that is parsed already.
    pub fn from_value(json: &Value) -> Result<Self> {
        let Value::Object(profile) = json else { return Err(KandoError::profile("it is not a JSON object")) };
        let place = object(profile, "Location").ok_or_else(|| KandoError::profile("it has no Location"))?;
        let empty = Map::new();
        let credential = object(profile, "Credential").unwrap_or(&empty);
        let skips_verification = find(profile, "SkipSSLVerify").and_then(Value::as_bool).unwrap_or(false);
        let location = match text(place, "type").as_str() {
            "s3Compliant" => s3(place, &Keys::of(credential, "aws")?, skips_verification),
            "gcs" => gcs(place, &Keys::of(credential, "gcp")?),
            "azure" => azure(place, &Keys::of(credential, "azure")?),
            "filestore" | "directory" => directory(place),
            "kopia" => {
                return Err(KandoError::Unsupported { what: "a profile whose location is a kopia server".into() });
            }
            other => return Err(KandoError::profile(format!("its location type {other:?} is not known"))),
        };
        if location.bucket.is_empty() {
            return Err(KandoError::profile("its Location has no bucket"));
        }
        Ok(Self { location })
    }

    /// The location with its credentials.
    pub fn location(&self) -> &Location {
        &self.location
    }
}

/// What proves who we are: a name and a secret.
struct Keys {
    id: String,
    secret: String,
}

impl Keys {
    fn of(credential: &Map<String, Value>, kind: &str) -> Result<Self> {
        match text(credential, "Type").as_str() {
            "keyPair" => {
                let pair = object(credential, "KeyPair")
                    .ok_or_else(|| KandoError::profile("its Credential has no KeyPair"))?;
                Ok(Self { id: text(pair, "ID"), secret: text(pair, "Secret") })
            }
            "secret" => {
                let secret =
                    object(credential, "Secret").ok_or_else(|| KandoError::profile("its Credential has no Secret"))?;
                Self::of_secret(&data(secret)?, kind)
            }
            "kopia" => Err(KandoError::Unsupported { what: "a credential of a kopia server".into() }),
            "" => Ok(Self { id: String::new(), secret: String::new() }),
            other => Err(KandoError::profile(format!("its credential type {other:?} is not known"))),
        }
    }

    /// Kanister's own types of Secrets.
    fn of_secret(data: &BTreeMap<String, String>, kind: &str) -> Result<Self> {
        let value = |key: &str| data.get(key).cloned().unwrap_or_default();
        match kind {
            "aws" if !value("role").is_empty() => {
                Err(KandoError::Unsupported { what: "a credential with a role to assume".into() })
            }
            "aws" => Ok(Self { id: value("aws_access_key_id"), secret: value("aws_secret_access_key") }),
            "azure" => Ok(Self { id: value("azure_storage_account_id"), secret: value("azure_storage_key") }),
            // The key of a service account is the one that is JSON.
            _ => {
                let key = data.values().find(|text| text.trim_start().starts_with('{')).cloned();
                let secret = key.ok_or_else(|| KandoError::profile("its Secret holds no key of a service account"))?;
                Ok(Self { id: String::new(), secret })
            }
        }
    }
}

/// A Secret's data, which JSON has in base64.
fn data(secret: &Map<String, Value>) -> Result<BTreeMap<String, String>> {
    let Some(data) = object(secret, "data") else { return Ok(BTreeMap::new()) };
    let decode = |value: &Value| {
        let bytes = base64::engine::general_purpose::STANDARD.decode(value.as_str().unwrap_or_default()).ok()?;
        String::from_utf8(bytes).ok()
    };
    data.iter()
        .map(|(key, value)| {
            let text =
                decode(value).ok_or_else(|| KandoError::profile(format!("{key} of its Secret is not base64")))?;
            Ok((key.clone(), text))
        })
        .collect()
}

fn common(place: &Map<String, Value>, provider: &str) -> Location {
    Location {
        provider: provider.into(),
        bucket: text(place, "bucket"),
        prefix: cleaned(&text(place, "prefix")),
        ..Location::default()
    }
}

/// Slashes between the parts only.
fn cleaned(prefix: &str) -> String {
    prefix.split('/').filter(|part| !part.is_empty() && *part != ".").collect::<Vec<_>>().join("/")
}

fn s3(place: &Map<String, Value>, keys: &Keys, skips_verification: bool) -> Location {
    let mut location = common(place, "aws");
    let mut set = |key: &str, value: &str| location.config.insert(key.to_owned(), value.to_owned());
    let (region, endpoint) = (text(place, "region"), text(place, "endpoint"));
    set("region", if region.is_empty() { NO_REGION } else { &region });
    if !endpoint.is_empty() {
        let scheme = if endpoint.contains("://") { "" } else { "https://" };
        set("s3Url", &format!("{scheme}{endpoint}"));
        set("s3ForcePathStyle", "true");
    }
    if skips_verification {
        set("insecureSkipTLSVerify", "true");
    }
    if !keys.id.is_empty() {
        let text = format!("[default]\naws_access_key_id={}\naws_secret_access_key={}\n", keys.id, keys.secret);
        location.credentials = Some(text.into_bytes().into());
    }
    location
}

fn gcs(place: &Map<String, Value>, keys: &Keys) -> Location {
    let mut location = common(place, "gcp");
    if !keys.secret.is_empty() {
        location.credentials = Some(keys.secret.clone().into_bytes().into());
    }
    location
}

fn azure(place: &Map<String, Value>, keys: &Keys) -> Location {
    let mut location = common(place, "azure");
    location.config.insert("storageAccount".into(), keys.id.clone());
    let endpoint = text(place, "endpoint");
    if !endpoint.is_empty() {
        location.config.insert("storageAccountURI".into(), endpoint);
    }
    if !keys.secret.is_empty() {
        let text = format!("AZURE_STORAGE_ACCOUNT_ACCESS_KEY={}\n", keys.secret);
        location.credentials = Some(text.into_bytes().into());
    }
    location
}

fn directory(place: &Map<String, Value>) -> Location {
    common(place, "directory")
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
