//! Opens a location with a plugin: its config and its credentials.

use std::io::Write;
use std::sync::Arc;

use plimsoll_store::{Location, Store, StoreError};
use secrecy::ExposeSecret;
use tempfile::NamedTempFile;

use super::{Inner, PluginObjectStore};
use crate::log_sink::LogSink;
use crate::registry::{PluginKind, PluginRegistry};
use crate::session::InitCall;
use crate::wire::{INIT_STORE, InitRequest};

/// Key in the config of a location: `true` uses the plugin of the provider instead of the built-in object store.
pub const USE_PLUGIN_CONFIG_KEY: &str = "plimsoll.dev/object-store-plugin";

/// Opens a location with the plugin of its provider. The process starts with the first request.
pub fn open_store(registry: &PluginRegistry, location: &Location, logs: Arc<dyn LogSink>) -> Result<Store, StoreError> {
    let invalid = |cause: String| StoreError::InvalidLocation { location: location.display_name(), cause };
    let plugin_info =
        registry.find(PluginKind::ObjectStore, &location.provider).map_err(|error| invalid(error.to_string()))?;
    let secret = location.credentials.as_ref().map(ExposeSecret::expose_secret);
    let credentials = secret
        .map(credentials_file)
        .transpose()
        .map_err(|error| invalid(format!("failed to write credentials: {error}")))?;
    let init = InitRequest { plugin: plugin_info.name.clone(), config: plugin_config(location, credentials.as_ref()) };
    let session = registry.session(&plugin_info.binary, logs, vec![InitCall::Init(INIT_STORE, init)]);
    let objects = PluginObjectStore(Arc::new(Inner {
        session,
        plugin: plugin_info.name.clone(),
        bucket: location.bucket.clone(),
        idle: location.tuning.idle_timeout,
        _credentials: credentials,
    }));
    Store::from_signing_objects(Arc::new(objects), location.display_name(), &location.prefix)
}

/// The config of the plugin: that of the location, with bucket, prefix, credentials and certificate.
fn plugin_config(
    location: &Location,
    credentials: Option<&NamedTempFile>,
) -> std::collections::HashMap<String, String> {
    let own = location.config.iter().filter(|(key, _)| *key != USE_PLUGIN_CONFIG_KEY);
    let mut config: std::collections::HashMap<_, _> = own.map(|(key, value)| (key.clone(), value.clone())).collect();
    config.insert("bucket".to_owned(), location.bucket.clone());
    config.insert("prefix".to_owned(), location.prefix.clone());
    if let Some(file) = credentials {
        config.insert("credentialsFile".to_owned(), file.path().display().to_string());
    }
    if let Some(certificates) = &location.ca_cert {
        config.insert("caCert".to_owned(), String::from_utf8_lossy(certificates).into_owned());
    }
    config
}

/// Writes credentials to a file, readable only by the user of this process and deleted on drop.
pub(crate) fn credentials_file(secret: &[u8]) -> std::io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix(&crate::stale_files::credentials_prefix()).tempfile()?;
    file.write_all(secret)?;
    file.flush()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_config_has_bucket_prefix_and_credentials_but_not_the_plugin_key() {
        let mut location =
            Location { provider: "aws".into(), bucket: "b".into(), prefix: "p".into(), ..Location::default() };
        location.config.insert(USE_PLUGIN_CONFIG_KEY.into(), "true".into());
        location.config.insert("region".into(), "here".into());
        location.credentials = Some(b"secret".to_vec().into());
        let file = Some(credentials_file(b"secret").unwrap());
        let config = plugin_config(&location, file.as_ref());
        let mut keys: Vec<_> = config.keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["bucket", "credentialsFile", "prefix", "region"]);
        assert_eq!(std::fs::read(&config["credentialsFile"]).unwrap(), b"secret");
    }
}
