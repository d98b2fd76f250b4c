//! Google Cloud Storage, with the settings of Velero's GCP plugin.

use std::sync::Arc;

use object_store::gcp::GoogleCloudStorageBuilder;
use secrecy::{ExposeSecret, SecretString};

use super::{assemble, client, credentials_text};
use crate::{Location, Result, Store};

pub(super) fn open(location: &Location) -> Result<Store> {
    location.require_bucket()?;
    location.reject_unknown_settings(&["serviceAccount", "kmsKeyName", "storeEndpoint", "universeDomain"])?;
    for key in ["kmsKeyName", "universeDomain"] {
        if location.setting(key).is_some() {
            return Err(location.invalid(format!("config {key} is not supported")));
        }
    }
    let client = client(location, false)?;
    let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(&location.bucket);
    if let Some(endpoint) = location.setting("storeEndpoint") {
        builder = builder.with_base_url(endpoint);
    }
    if let Some(key) = key(location)? {
        builder = builder.with_service_account_key(key.expose_secret());
    }
    let observers = client.observers.clone();
    let objects = builder
        .with_client_options(client.options)
        .with_retry(client.retry)
        .with_http_connector(client.connector)
        .build()
        .map_err(|error| location.invalid(error.to_string()))?;
    let objects = Arc::new(objects);
    let signer = objects.clone();
    assemble(location, objects, signer, observers)
}

/// The service account key of the credentials; `None` to use the instance identity.
pub(crate) fn key(location: &Location) -> Result<Option<SecretString>> {
    let Some(text) = credentials_text(location)? else { return Ok(None) };
    require_service_account(location, text.expose_secret())?;
    Ok(Some(text))
}

fn require_service_account(location: &Location, text: &str) -> Result<()> {
    let kind =
        serde_json::from_str::<serde_json::Value>(text).ok().and_then(|key| Some(key["type"].as_str()?.to_owned()));
    match kind.as_deref() {
        Some("service_account") => Ok(()),
        Some(other) => Err(location.invalid(format!("credentials of type {other:?} are not supported"))),
        None => Err(location.invalid("the credentials are not a service account key")),
    }
}
