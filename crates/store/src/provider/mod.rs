//! Opens the store that a location's settings describe.

mod aws;
mod azure;
mod gcp;

use std::path::Path;
use std::sync::Arc;

use object_store::signer::Signer;
use object_store::{BackoffConfig, Certificate, ClientOptions, ObjectStore, RetryConfig};
use secrecy::{ExposeSecret, SecretString};

use crate::http_client::{HttpClientOptions, StoreHttpClient};
use crate::store::Inner;
use crate::watchdog::{Observers, WatchedConnector};
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
        other => Err(location.invalid(format!("unknown provider {other:?}; use aws, gcp, azure or directory"))),
    }
}

fn open_directory(location: &Location) -> Result<Store> {
    location.reject_unknown_settings(&["path"])?;
    let path = location.path().ok_or_else(|| location.invalid("the path of the directory is missing"))?;
    if !Path::new(&path).is_absolute() {
        return Err(location.invalid(format!("path {path:?} is not absolute")));
    }
    // A missing directory is usually a missing mount: creating it would fill the wrong disk.
    if !Path::new(&path).is_dir() {
        return Err(location.invalid("directory not found; create it or mount its volume"));
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
    // The watchdog limits idle time; a limit on the whole request would cancel large objects on slow links.
    let mut options = ClientOptions::new()
        .with_timeout_disabled()
        .with_connect_timeout(tuning.connect_timeout)
        .with_allow_http(true)
        .with_allow_invalid_certificates(skip_tls_verify);
    let pem = location.ca_cert.as_deref().unwrap_or_default();
    for certificate in certificates(location, Certificate::from_pem_bundle(pem))? {
        options = options.with_root_certificate(certificate);
    }
    let client_options = HttpClientOptions {
        connect_timeout: tuning.connect_timeout,
        certificates: certificates(location, reqwest::Certificate::from_pem_bundle(pem))?,
        skip_tls_verify,
    };
    let client = StoreHttpClient::new(&client_options)
        .map_err(|error| location.invalid(format!("cannot create an HTTP client: {error}")))?;
    let retry = RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: tuning.max_retries,
        retry_timeout: tuning.retry_timeout,
    };
    let name = location.display_name();
    let connector = WatchedConnector {
        name,
        idle_timeout: tuning.idle_timeout,
        observers: observers.clone(),
        client,
        options: options.clone(),
    };
    Ok(Client { options, retry, observers, connector })
}

/// A store of objects that the client has opened, with the settings that all locations share.
fn assemble(
    location: &Location,
    objects: Arc<dyn ObjectStore>,
    signer: Arc<dyn Signer>,
    observers: Arc<Observers>,
) -> Result<Store> {
    let inner = Inner { signer: Some(signer), observers, ..Inner::new(objects, location.display_name()) };
    Store::assemble(Inner { tuning: location.tuning.clone(), ..inner }, &location.prefix)
}

fn certificates<T, E>(location: &Location, parsed: std::result::Result<Vec<T>, E>) -> Result<Vec<T>> {
    match parsed {
        _ if location.ca_cert.is_none() => Ok(Vec::new()),
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(location.invalid("the CA certificate is not valid PEM")),
    }
}

fn credentials_text(location: &Location) -> Result<Option<SecretString>> {
    let Some(secret) = &location.credentials else { return Ok(None) };
    match std::str::from_utf8(secret.expose_secret()) {
        Ok(text) => Ok(Some(SecretString::from(text.to_owned()))),
        Err(_) => Err(location.invalid("the credentials are not valid UTF-8")),
    }
}
