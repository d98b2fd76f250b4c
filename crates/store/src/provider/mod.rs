//! From a location's settings to a connection.

mod aws;
mod azure;
mod gcp;

use std::path::Path;
use std::sync::Arc;

use object_store::{BackoffConfig, Certificate, ClientOptions, RetryConfig};
use secrecy::{ExposeSecret, SecretString};

use crate::line::{Line, LineOptions};
use crate::watch::{Observers, WatchedConnector};
use crate::{Location, Result, Store};

pub(crate) use aws::keys_of as aws_keys;
pub(crate) use azure::account as azure_account;
pub(crate) use gcp::key as google_key;

pub(crate) fn open(location: &Location) -> Result<Store> {
    match location.kind() {
        "aws" => aws::open(location),
        "gcp" => gcp::open(location),
        "azure" => azure::open(location),
        "directory" | "local" => open_directory(location),
        other => Err(location.unusable(format!("provider {other:?} is not one of aws, gcp, azure, directory"))),
    }
}

fn open_directory(location: &Location) -> Result<Store> {
    location.refuse_unknown(&["path"])?;
    let path = location.path().ok_or_else(|| location.unusable("the directory has no path"))?;
    if !Path::new(&path).is_absolute() {
        return Err(location.unusable(format!("the path {path:?} is not absolute")));
    }
    // A missing directory is a missing mount more often than not: making it would fill the wrong disk.
    if !Path::new(&path).is_dir() {
        return Err(location.unusable("there is no such directory; make it, or mount what belongs there"));
    }
    Store::directory(path, &location.prefix)
}

/// The settings every HTTP provider shares.
struct Client {
    options: ClientOptions,
    retry: RetryConfig,
    observers: Arc<Observers>,
    connector: WatchedConnector,
}

fn client(location: &Location, skip_tls_verify: bool) -> Result<Client> {
    let tuning = &location.tuning;
    let observers = Arc::<Observers>::default();
    // The watchdog bounds silence; a limit on the whole request would kill large objects on slow links.
    let mut options = ClientOptions::new()
        .with_timeout_disabled()
        .with_connect_timeout(tuning.connect)
        .with_allow_http(true)
        .with_allow_invalid_certificates(skip_tls_verify);
    let pem = location.ca_cert.as_deref().unwrap_or_default();
    for certificate in certificates(location, Certificate::from_pem_bundle(pem))? {
        options = options.with_root_certificate(certificate);
    }
    let line = LineOptions {
        connect: tuning.connect,
        certificates: certificates(location, reqwest::Certificate::from_pem_bundle(pem))?,
        skip_tls_verify,
    };
    let line = Line::new(&line).map_err(|error| location.unusable(format!("no HTTP client can be made: {error}")))?;
    let retry =
        RetryConfig { backoff: BackoffConfig::default(), max_retries: tuning.retries, retry_timeout: tuning.give_up };
    let name = location.display_name();
    let connector =
        WatchedConnector { name, idle: tuning.idle, observers: observers.clone(), line, options: options.clone() };
    Ok(Client { options, retry, observers, connector })
}

fn certificates<T, E>(location: &Location, parsed: std::result::Result<Vec<T>, E>) -> Result<Vec<T>> {
    match parsed {
        _ if location.ca_cert.is_none() => Ok(Vec::new()),
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(location.unusable("the CA certificate is not PEM")),
    }
}

fn credentials_text(location: &Location) -> Result<Option<SecretString>> {
    let Some(secret) = &location.credentials else { return Ok(None) };
    match std::str::from_utf8(secret.expose_secret()) {
        Ok(text) => Ok(Some(SecretString::from(text.to_owned()))),
        Err(_) => Err(location.unusable("the credentials are not text")),
    }
}
