//! Combines a Profile and its Secret into the template parameter `.Profile`.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use plimsoll_api::kanister::v1alpha1 as api;
use serde_json::{Value, json};

use super::{ProfileError, Result};

/// Namespace and name of the Secret of a Profile.
pub fn secret_reference(profile: &api::Profile) -> Result<(Option<String>, String)> {
    let credential = profile.spec.credential.clone().unwrap_or_default();
    let reference = match credential.type_.as_deref() {
        Some("keyPair") => credential.key_pair.and_then(|pair| pair.secret),
        Some("secret") => credential.secret,
        Some("kopia") => return Err(ProfileError::unsupported("a credential of a Kopia server")),
        other => {
            let other = other.unwrap_or_default();
            return Err(ProfileError::invalid(format!("credential type {other:?}, expected keyPair or secret")));
        }
    };
    let reference = reference.unwrap_or_default();
    let name = reference.name.filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| ProfileError::invalid("credential has no secret"))?;
    Ok((reference.namespace.filter(|namespace| !namespace.is_empty()), name))
}

/// The template parameter `.Profile`.
pub fn resolve(profile: &api::Profile, secret: &BTreeMap<String, Vec<u8>>) -> Result<Value> {
    let location = profile.spec.location.clone().unwrap_or_default();
    let credential = profile.spec.credential.clone().unwrap_or_default();
    let pair = match credential.key_pair.filter(|_| credential.type_.as_deref() == Some("keyPair")) {
        Some(pair) => Some(key_pair(&pair, secret)?),
        None => None,
    };
    let secret_json = (credential.type_.as_deref() == Some("secret")).then(|| {
        let data: BTreeMap<_, _> = secret.iter().map(|(key, value)| (key, BASE64_STANDARD.encode(value))).collect();
        let kind = match location.type_.as_deref() {
            Some("azure") => "azure",
            Some("gcs") => "gcp",
            _ => "aws",
        };
        json!({ "data": data, "type": format!("secrets.kanister.io/{kind}") })
    });
    let text = |field: Option<String>| field.unwrap_or_default();
    Ok(json!({
        "Location": {
            "type": text(location.type_), "bucket": text(location.bucket), "endpoint": text(location.endpoint),
            "prefix": text(location.prefix), "region": text(location.region),
        },
        "Credential": { "Type": text(credential.type_), "KeyPair": pair, "Secret": secret_json, "KopiaServerSecret": null },
        "SkipSSLVerify": profile.spec.skip_ssl_verify.unwrap_or(false),
    }))
}

fn key_pair(pair: &api::KeyPair, secret: &BTreeMap<String, Vec<u8>>) -> Result<Value> {
    let text = |field: &Option<String>| {
        let field = field.clone().unwrap_or_default();
        let value = secret.get(&field);
        let value = value.ok_or_else(|| ProfileError::invalid(format!("secret has no key {field:?}")))?;
        Ok(String::from_utf8_lossy(value).trim_end_matches('\n').to_owned())
    };
    Ok(json!({ "ID": text(&pair.id_field)?, "Secret": text(&pair.secret_field)? }))
}
