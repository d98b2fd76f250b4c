//! Combines a Profile and its Secret into the template parameter `.Profile`.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use plimsoll_api::kanister::v1alpha1 as api;
use serde_json::{Value, json};

use super::{ProfileError, Result};

/// Namespace, if it is given, and name of a Secret.
pub type SecretReference = (Option<String>, String);
/// The data of Secrets.
pub type Secrets = BTreeMap<SecretReference, BTreeMap<String, Vec<u8>>>;

/// Namespaces and names of the Secrets of a Profile.
pub fn secret_references(profile: &api::Profile) -> Result<Vec<SecretReference>> {
    let credential = profile.spec.credential.clone().unwrap_or_default();
    let references = match credential.type_.as_deref() {
        Some("keyPair") => vec![credential.key_pair.and_then(|pair| pair.secret)],
        Some("secret") => vec![credential.secret],
        Some("kopia") => {
            let server = credential.kopia_server_secret.unwrap_or_default();
            let secret = |key: Option<api::KopiaServerSecretKey>| key.and_then(|key| key.secret);
            vec![secret(server.user_passphrase), secret(server.tls_cert)]
        }
        other => {
            let other = other.unwrap_or_default();
            return Err(ProfileError::invalid(format!("credential type {other:?}, expected keyPair, secret or kopia")));
        }
    };
    references.into_iter().map(reference).collect()
}

fn reference(reference: Option<api::ObjectReference>) -> Result<SecretReference> {
    let reference = reference.unwrap_or_default();
    let name = reference.name.filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| ProfileError::invalid("credential has no secret"))?;
    Ok((reference.namespace.filter(|namespace| !namespace.is_empty()), name))
}

/// The template parameter `.Profile`.
pub fn resolve(profile: &api::Profile, secrets: &Secrets) -> Result<Value> {
    let location = profile.spec.location.clone().unwrap_or_default();
    let credential = profile.spec.credential.clone().unwrap_or_default();
    let is = |kind: &str| credential.type_.as_deref() == Some(kind);
    let data = |secret: Option<&api::ObjectReference>| {
        let found = reference(secret.cloned()).ok().and_then(|reference| secrets.get(&reference));
        found.cloned().unwrap_or_default()
    };
    let pair = match credential.key_pair.as_ref().filter(|_| is("keyPair")) {
        Some(pair) => Some(key_pair(pair, &data(pair.secret.as_ref()))?),
        None => None,
    };
    let secret_json = is("secret").then(|| {
        let secret = data(credential.secret.as_ref());
        let data: BTreeMap<_, _> = secret.iter().map(|(key, value)| (key, BASE64_STANDARD.encode(value))).collect();
        let kind = match location.type_.as_deref() {
            Some("azure") => "azure",
            Some("gcs") => "gcp",
            _ => "aws",
        };
        json!({ "data": data, "type": format!("secrets.kanister.io/{kind}") })
    });
    let kopia = match credential.kopia_server_secret.as_ref().filter(|_| is("kopia")) {
        Some(server) => {
            let value = |key: Option<&api::KopiaServerSecretKey>| {
                let key = key.cloned().unwrap_or_default();
                field_text(key.key.as_ref(), &data(key.secret.as_ref()))
            };
            Some(json!({
                "Username": server.username.clone().unwrap_or_default(),
                "Hostname": server.hostname.clone().unwrap_or_default(),
                "Password": value(server.user_passphrase.as_ref())?,
                "Cert": value(server.tls_cert.as_ref())?,
                "ConnectOptions": server.connect_options,
            }))
        }
        None => None,
    };
    let text = |field: Option<String>| field.unwrap_or_default();
    Ok(json!({
        "Location": {
            "type": text(location.type_), "bucket": text(location.bucket), "endpoint": text(location.endpoint),
            "prefix": text(location.prefix), "region": text(location.region),
        },
        "Credential": { "Type": text(credential.type_), "KeyPair": pair, "Secret": secret_json, "KopiaServerSecret": kopia },
        "SkipSSLVerify": profile.spec.skip_ssl_verify.unwrap_or(false),
    }))
}

fn key_pair(pair: &api::KeyPair, secret: &BTreeMap<String, Vec<u8>>) -> Result<Value> {
    let text = |field: &Option<String>| field_text(field.as_ref(), secret);
    Ok(json!({ "ID": text(&pair.id_field)?, "Secret": text(&pair.secret_field)? }))
}

fn field_text(field: Option<&String>, secret: &BTreeMap<String, Vec<u8>>) -> Result<String> {
    let field = field.cloned().unwrap_or_default();
    let value = secret.get(&field);
    let value = value.ok_or_else(|| ProfileError::invalid(format!("secret has no key {field:?}")))?;
    Ok(String::from_utf8_lossy(value).trim_end_matches('\n').to_owned())
}
