//! Finds and opens BackupStorageLocations.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Secret, SecretKeySelector};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use plimsoll_api::velero::v1::{AccessMode, BackupStorageLocation, LocationPhase, VolumeSnapshotLocation};
use plimsoll_engine::Error;
use plimsoll_plugin::{PluginKind, PluginRegistry, TracingLogSink, USE_PLUGIN_CONFIG_KEY};
use plimsoll_store::{Location, Store, StoreError, Tuning};

/// The Secret in which Velero's install keeps the credentials of locations that name none.
const DEFAULT_SECRET: &str = "cloud-credentials";
const DEFAULT_KEY: &str = "cloud";
/// The providers that need no plugin.
const BUILT_IN: [&str; 5] = ["aws", "gcp", "azure", "directory", "local"];

/// Opens the BackupStorageLocations of a namespace.
pub struct StorageLocations {
    client: Client,
    namespace: String,
    /// A request that moves no bytes for this long is retried.
    idle_timeout: Duration,
    plugins: PluginRegistry,
    /// The name of the default location, where none says that it is.
    default: String,
}

impl StorageLocations {
    /// The locations of a namespace; `plugins` open those whose provider is not built in.
    pub fn new(client: Client, namespace: &str, idle_timeout: Duration, plugins: PluginRegistry) -> Self {
        Self { client, namespace: namespace.to_owned(), idle_timeout, plugins, default: "default".to_owned() }
    }

    /// Another name for the default location, where none says that it is.
    #[must_use]
    pub fn with_default(self, name: &str) -> Self {
        Self { default: name.to_owned(), ..self }
    }

    /// Opens the store behind a location.
    pub async fn open(&self, location: &BackupStorageLocation) -> Result<Store, Error> {
        self.open_with(location, Tuning { idle_timeout: self.idle_timeout, ..Tuning::default() }).await
    }

    /// The same for a caller that tries again soon anyway, and rather reports an error than waits.
    pub async fn open_quickly(&self, location: &BackupStorageLocation) -> Result<Store, Error> {
        let tuning = Tuning {
            idle_timeout: self.idle_timeout.min(Duration::from_secs(15)),
            max_retries: 3,
            retry_timeout: Duration::from_secs(20),
            ..Tuning::default()
        };
        self.open_with(location, tuning).await
    }

    /// Opens a location with other retries and timeouts.
    pub async fn open_with(&self, location: &BackupStorageLocation, tuning: Tuning) -> Result<Store, Error> {
        open_location(self.client.clone(), &self.namespace, location, tuning, Some(&self.plugins)).await
    }

    /// The plugins that open locations and snapshot locations.
    pub fn plugins(&self) -> &PluginRegistry {
        &self.plugins
    }

    /// The location of this name, or the default one.
    pub async fn find(&self, name: Option<&str>) -> Result<LocationLookup, Error> {
        find(Api::namespaced(self.client.clone(), &self.namespace), name, &self.default).await
    }

    /// The credentials of a snapshot location: its own or, for the providers whose plugins all take a file, those of Velero's own
    /// install.
    pub async fn snapshot_credentials(&self, location: &VolumeSnapshotLocation) -> Result<Option<Vec<u8>>, Error> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let provider = plimsoll_plugin::qualified_name(location.spec.provider.as_deref().unwrap_or_default());
        match &location.spec.credential {
            Some(selector) => secret_value(&secrets, selector).await.map(Some),
            None if ["velero.io/aws", "velero.io/gcp", "velero.io/azure"].contains(&provider.as_str()) => {
                default_credentials(&secrets).await
            }
            None => Ok(None),
        }
    }
}

/// Opens the store behind a location, without a leader.
pub async fn open_location(
    client: Client,
    namespace: &str,
    location: &BackupStorageLocation,
    tuning: Tuning,
    plugins: Option<&PluginRegistry>,
) -> Result<Store, Error> {
    Ok(open_store(&object_store_location(client, namespace, location, tuning).await?, plugins)?)
}

/// Opens a location: with a plugin if its config says so, or if its provider is not built in and a plugin has it.
fn open_store(place: &Location, plugins: Option<&PluginRegistry>) -> Result<Store, StoreError> {
    let mut own = place.clone();
    let use_plugin = place.flag(USE_PLUGIN_CONFIG_KEY)?;
    own.config.remove(USE_PLUGIN_CONFIG_KEY);
    let none = PluginRegistry::default();
    let registry = plugins.unwrap_or(&none);
    let foreign = !BUILT_IN.contains(&place.kind()) && registry.find(PluginKind::ObjectStore, &place.provider).is_ok();
    if use_plugin == Some(true) || foreign {
        return plimsoll_plugin::open_store(registry, &own, Arc::new(TracingLogSink));
    }
    Store::open(&own)
}

/// Address and credentials of a location.
pub async fn object_store_location(
    client: Client,
    namespace: &str,
    location: &BackupStorageLocation,
    tuning: Tuning,
) -> Result<Location, Error> {
    let secrets: Api<Secret> = Api::namespaced(client, namespace);
    let spec = &location.spec;
    let storage = spec.object_storage.clone().unwrap_or_default();
    let credentials = match &spec.credential {
        Some(selector) => Some(secret_value(&secrets, selector).await?),
        None => default_credentials(&secrets).await?,
    };
    let ca_cert = match &storage.ca_cert_ref {
        Some(selector) => Some(secret_value(&secrets, selector).await?),
        None => storage.ca_cert.map(|pem| pem.0),
    };
    Ok(Location {
        provider: spec.provider.clone().unwrap_or_default(),
        bucket: storage.bucket.unwrap_or_default(),
        prefix: storage.prefix.unwrap_or_default(),
        config: spec.config.clone(),
        credentials: credentials.map(Into::into),
        ca_cert,
        tuning,
    })
}

/// The Secret of Velero's own install; without it the platform's identity is used.
async fn default_credentials(secrets: &Api<Secret>) -> Result<Option<Vec<u8>>, Error> {
    let found = secrets.get_opt(DEFAULT_SECRET).await;
    let found = found.map_err(|e| Error::api(format!("read secret {DEFAULT_SECRET}"), e))?;
    Ok(found.and_then(|secret| secret.data?.remove(DEFAULT_KEY)).map(|value| value.0))
}

async fn secret_value(secrets: &Api<Secret>, selector: &SecretKeySelector) -> Result<Vec<u8>, Error> {
    let what = format!("read secret {}", selector.name);
    let secret = secrets.get(&selector.name).await.map_err(|e| Error::api(what.clone(), e))?;
    let value = secret.data.and_then(|mut data| data.remove(&selector.key));
    value.map(|bytes| bytes.0).ok_or(Error::InvalidResponse { what, detail: format!("it has no key {}", selector.key) })
}

/// The result of looking for a location.
pub enum LocationLookup {
    /// It can be used.
    Usable(Box<BackupStorageLocation>),
    /// It will not become usable by waiting.
    Unusable(String),
    /// It has not been checked yet.
    Unchecked(String),
}

async fn find(api: Api<BackupStorageLocation>, name: Option<&str>, default: &str) -> Result<LocationLookup, Error> {
    let found = if let Some(name) = name.filter(|name| !name.is_empty()) {
        api.get_opt(name).await.map_err(|e| Error::api(format!("read location {name}"), e))?
    } else {
        let all = api.list(&ListParams::default()).await.map_err(|e| Error::api("list locations", e))?;
        default_of(all.items, default)
    };
    let Some(location) = found else {
        return Ok(LocationLookup::Unusable(match name.filter(|name| !name.is_empty()) {
            Some(name) => format!("spec.storageLocation: BackupStorageLocation {name} not found"),
            None => "spec.storageLocation: it is not set, and no BackupStorageLocation is the default".into(),
        }));
    };
    let status = location.status.clone().unwrap_or_default();
    Ok(match status.phase {
        Some(LocationPhase::Available) => LocationLookup::Usable(Box::new(location)),
        Some(_) => LocationLookup::Unusable(format!(
            "BackupStorageLocation {} is unavailable: {}",
            location.name_any(),
            status.message.unwrap_or_else(|| "no reason is given".into())
        )),
        None => LocationLookup::Unchecked(format!("location {} to be checked", location.name_any())),
    })
}

/// The one that says so, otherwise the one of this name. Of several that say so the first by name counts.
fn default_of(mut locations: Vec<BackupStorageLocation>, default: &str) -> Option<BackupStorageLocation> {
    locations.sort_by_key(ResourceExt::name_any);
    let marked = locations.iter().position(|location| location.spec.default == Some(true));
    let named = || locations.iter().position(|location| location.name_any() == default);
    let place = marked.or_else(named)?;
    Some(locations.swap_remove(place))
}

/// Whether backups may be written there.
pub fn is_read_only(location: &BackupStorageLocation) -> bool {
    location.spec.access_mode == Some(AccessMode::ReadOnly)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    fn location(name: &str, default: bool) -> BackupStorageLocation {
        let mut location = BackupStorageLocation::fixture();
        location.metadata.name = Some(name.to_owned());
        location.spec.default = default.then_some(true);
        location
    }

    #[test]
    fn the_default_location_is_the_marked_one_or_the_one_of_that_name() {
        let chosen = |locations: &[(&str, bool)]| {
            let locations = locations.iter().map(|(name, default)| location(name, *default)).collect();
            default_of(locations, "default").map(|location| location.name_any())
        };
        assert_eq!(chosen(&[("default", false), ("b", true)]).as_deref(), Some("b"));
        assert_eq!(chosen(&[("b", true), ("a", true)]).as_deref(), Some("a"));
        assert_eq!(chosen(&[("x", false), ("default", false)]).as_deref(), Some("default"));
        assert_eq!(chosen(&[("x", false)]), None);
    }

    #[test]
    fn a_location_that_requires_a_plugin_does_not_get_anything_else() {
        let mut place = Location { provider: "aws".into(), bucket: "b".into(), ..Location::default() };
        place.config.insert("region".into(), "here".into());
        assert!(open_store(&place, None).is_ok());
        place.config.insert(USE_PLUGIN_CONFIG_KEY.into(), "false".into());
        assert!(open_store(&place, None).is_ok(), "a setting of ours is no unknown one");
        place.config.insert(USE_PLUGIN_CONFIG_KEY.into(), "true".into());
        let refused = open_store(&place, Some(&PluginRegistry::default())).unwrap_err().to_string();
        assert!(refused.contains("ObjectStore plugin \"velero.io/aws\" not found"), "{refused}");
    }

    /// A cluster in which every Secret has the two keys.
    fn cluster_of_secrets() -> Client {
        let answer = |request: http::Request<kube::client::Body>| async move {
            let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            let data = serde_json::json!({ "cloud": ByteString(format!("{name}/cloud").into_bytes()),
                "pem": ByteString(format!("{name}/pem").into_bytes()) });
            let secret =
                serde_json::json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "data": data });
            let body = kube::client::Body::from(secret.to_string().into_bytes());
            Ok::<_, std::convert::Infallible>(http::Response::new(body))
        };
        Client::new(tower::service_fn(answer), "velero")
    }

    #[tokio::test]
    async fn a_location_is_opened_with_the_secrets_that_it_names() {
        let selector = |name: &str, key: &str| {
            Some(SecretKeySelector { name: name.to_owned(), key: key.to_owned(), optional: None })
        };
        let mut location = location("x", false);
        location.spec.credential = selector("keys", "cloud");
        location.spec.object_storage.get_or_insert_default().ca_cert_ref = selector("authority", "pem");
        let read = async |location: &BackupStorageLocation| {
            object_store_location(cluster_of_secrets(), "velero", location, Tuning::default()).await
        };
        let found = read(&location).await.unwrap();
        assert_eq!(found.ca_cert.as_deref(), Some(b"authority/pem".as_slice()));
        assert!(found.credentials.is_some());
        location.spec.credential = selector("keys", "absent");
        let error = read(&location).await.unwrap_err().to_string();
        assert!(error.contains("secret keys") && error.contains("absent"), "{error}");
    }
}
