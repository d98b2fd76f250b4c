//! Azure Blob Storage, with the settings of Velero's Azure plugin.

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::azure::MicrosoftAzureBuilder;
use secrecy::{ExposeSecret, SecretString};

use super::{client, credentials_text};
use crate::store::Inner;
use crate::{Location, Result, Store};

const KNOWN: &[&str] = &[
    "resourceGroup",
    "storageAccount",
    "subscriptionId",
    "storageAccountKeyEnvVar",
    "storageAccountURI",
    "useAAD",
    "activeDirectoryAuthorityURI",
    "blockSizeInBytes",
];

pub(super) fn open(location: &Location) -> Result<Store> {
    location.require_bucket()?;
    location.refuse_unknown(KNOWN)?;
    let account =
        location.setting("storageAccount").ok_or_else(|| location.unusable("config storageAccount is missing"))?;
    let client = client(location, false)?;
    let mut builder = MicrosoftAzureBuilder::from_env().with_account(account).with_container_name(&location.bucket);
    if let Some(endpoint) = location.setting("storageAccountURI") {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
    }
    if let Some(authority) = location.setting("activeDirectoryAuthorityURI") {
        builder = builder.with_authority_host(authority);
    }
    builder = identity(location, builder)?;
    let observers = client.observers.clone();
    let objects = builder
        .with_client_options(client.options)
        .with_retry(client.retry)
        .with_http_connector(client.connector)
        .build()
        .map_err(|error| location.unusable(error.to_string()))?;
    let objects = Arc::new(objects);
    let mut inner = Inner::new(objects.clone(), location.display_name());
    inner.signer = Some(objects);
    inner.observers = observers;
    Store::assemble(inner, &location.prefix)
}

fn identity(location: &Location, builder: MicrosoftAzureBuilder) -> Result<MicrosoftAzureBuilder> {
    let Some(text) = credentials_text(location)? else { return Ok(builder) };
    let values = variables(text.expose_secret());
    let value = |name: &str| values.get(name).map(ExposeSecret::expose_secret);
    if matches!(value("AZURE_CLOUD_NAME"), Some(cloud) if cloud != "AzurePublicCloud")
        && location.setting("storageAccountURI").is_none()
    {
        return Err(location.unusable("another cloud than AzurePublicCloud needs config storageAccountURI"));
    }
    if let Some(variable) = location.setting("storageAccountKeyEnvVar") {
        let key = value(variable).ok_or_else(|| location.unusable(format!("the credentials have no {variable}")))?;
        return Ok(builder.with_access_key(key));
    }
    match (value("AZURE_TENANT_ID"), value("AZURE_CLIENT_ID"), value("AZURE_CLIENT_SECRET")) {
        (Some(tenant), Some(id), Some(secret)) => Ok(builder.with_client_secret_authorization(id, secret, tenant)),
        _ => match value("AZURE_STORAGE_ACCOUNT_ACCESS_KEY") {
            Some(key) => Ok(builder.with_access_key(key)),
            None => Ok(builder),
        },
    }
}

fn variables(text: &str) -> BTreeMap<String, SecretString> {
    let pairs = text.lines().filter_map(|line| line.trim().split_once('='));
    let unquoted = |value: &str| SecretString::from(value.trim().trim_matches('"').to_owned());
    pairs.map(|(name, value)| (name.trim().trim_start_matches("export ").to_owned(), unquoted(value))).collect()
}
