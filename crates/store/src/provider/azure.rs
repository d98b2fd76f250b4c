//! Azure Blob Storage, with the settings of Velero's Azure plugin.

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::azure::MicrosoftAzureBuilder;
use secrecy::{ExposeSecret, SecretString};

use super::{assemble, client, credentials_text};
use crate::{AzureAccount, AzureIdentity, Location, Result, Store};

const KNOWN_SETTINGS: &[&str] = &[
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
    location.reject_unknown_settings(KNOWN_SETTINGS)?;
    let account = account_name(location)?;
    let client = client(location, false)?;
    let mut builder = MicrosoftAzureBuilder::from_env().with_account(account).with_container_name(&location.bucket);
    if let Some(endpoint) = location.setting("storageAccountURI") {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
    }
    if let Some(authority) = location.setting("activeDirectoryAuthorityURI") {
        builder = builder.with_authority_host(authority);
    }
    builder = match identity(location)? {
        AzureIdentity::Machine => builder,
        AzureIdentity::Key(key) => builder.with_access_key(key.expose_secret()),
        AzureIdentity::Principal { tenant, client, secret } => {
            builder.with_client_secret_authorization(client, secret.expose_secret(), tenant)
        }
    };
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

fn account_name(location: &Location) -> Result<&str> {
    location.setting("storageAccount").ok_or_else(|| location.invalid("config storageAccount is missing"))
}

/// The account as external movers address it.
pub(crate) fn account(location: &Location) -> Result<AzureAccount> {
    let name = account_name(location)?;
    let domain = match location.setting("storageAccountURI") {
        None => None,
        Some(address) => {
            let domain = address.strip_prefix("https://").and_then(|rest| rest.strip_prefix(name)?.strip_prefix('.'));
            let domain = domain.map(|domain| domain.trim_end_matches('/')).filter(|domain| !domain.contains('/'));
            let invalid = || location.invalid(format!("config storageAccountURI is not https://{name}.DOMAIN"));
            Some(domain.ok_or_else(invalid)?.to_owned())
        }
    };
    Ok(AzureAccount { name: name.to_owned(), domain, identity: identity(location)? })
}

fn identity(location: &Location) -> Result<AzureIdentity> {
    let Some(text) = credentials_text(location)? else { return Ok(AzureIdentity::Machine) };
    let values = variables(text.expose_secret());
    let value = |name: &str| values.get(name).map(ExposeSecret::expose_secret);
    if matches!(value("AZURE_CLOUD_NAME"), Some(cloud) if cloud != "AzurePublicCloud")
        && location.setting("storageAccountURI").is_none()
    {
        return Err(location.invalid("clouds other than AzurePublicCloud require config storageAccountURI"));
    }
    if let Some(variable) = location.setting("storageAccountKeyEnvVar") {
        let key = value(variable).ok_or_else(|| location.invalid(format!("no {variable} in the credentials")))?;
        return Ok(AzureIdentity::Key(key.into()));
    }
    match (value("AZURE_TENANT_ID"), value("AZURE_CLIENT_ID"), value("AZURE_CLIENT_SECRET")) {
        (Some(tenant), Some(client), Some(secret)) => {
            Ok(AzureIdentity::Principal { tenant: tenant.into(), client: client.into(), secret: secret.into() })
        }
        _ => match value("AZURE_STORAGE_ACCOUNT_ACCESS_KEY") {
            Some(key) => Ok(AzureIdentity::Key(key.into())),
            None => Ok(AzureIdentity::Machine),
        },
    }
}

fn variables(text: &str) -> BTreeMap<String, SecretString> {
    let pairs = text.lines().filter_map(|line| line.trim().split_once('='));
    let unquoted = |value: &str| SecretString::from(value.trim().trim_matches('"').to_owned());
    pairs.map(|(name, value)| (name.trim().trim_start_matches("export ").to_owned(), unquoted(value))).collect()
}
