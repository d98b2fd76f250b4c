//! BackupStorageLocation: whether it can be used, and how to open it.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Secret, SecretKeySelector};
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use plimsoll_api::go::GoDuration;
use plimsoll_api::velero::v1::{AccessMode, BackupStorageLocation, LocationPhase, VolumeSnapshotLocation};
use plimsoll_archive::layout;
use plimsoll_engine::{Error, kill};
use plimsoll_operations::EventType;
use plimsoll_plugin::Catalog;
use plimsoll_store::{Location, Store, Tuning};
use serde_json::json;
use tracing::warn;

use crate::context::Context;
use crate::plugins;

const CHECK_EVERY: Duration = Duration::from_mins(1);
/// Where Velero's install keeps the credentials of locations that name none.
const DEFAULT_SECRET: &str = "cloud-credentials";
const DEFAULT_KEY: &str = "cloud";

/// Runs the controller until the future is dropped.
pub async fn control(context: Arc<Context>) {
    let api: Api<BackupStorageLocation> = Api::namespaced(context.leader.client.clone(), &context.leader.namespace);
    Controller::new(api, watcher::Config::default())
        .run(
            reconcile,
            |_, error, _| {
                warn!("checking a location: {error}");
                Action::requeue(Duration::from_secs(5))
            },
            context,
        )
        .for_each(|_| async {})
        .await;
}

async fn reconcile(location: Arc<BackupStorageLocation>, context: Arc<Context>) -> Result<Action, Error> {
    let every = location.spec.validation_frequency.as_ref().and_then(GoDuration::as_std).unwrap_or(CHECK_EVERY);
    let status = location.status.clone().unwrap_or_default();
    let due = status.last_validation_time.as_ref().is_none_or(|last| is_due(last.0, every));
    // Its own status write wakes this up again: a check that has just been made is not made anew.
    if due || status.phase.is_none() {
        write_verdict(&location, &context, check(&location, &context).await).await?;
    }
    Ok(if every.is_zero() { Action::await_change() } else { Action::requeue(every) })
}

fn is_due(last: Timestamp, every: Duration) -> bool {
    let age = Timestamp::now().duration_since(last);
    !every.is_zero() && Duration::try_from(age).is_ok_and(|age| age + Duration::from_secs(1) >= every)
}

/// Opens the location and looks at it. `Err` is what its user should know.
async fn check(location: &BackupStorageLocation, context: &Context) -> Result<(), String> {
    let store = open_hastily(location, context).await.map_err(|e| e.to_string())?;
    let directories = store.list_directories("").await.map_err(|e| e.to_string())?;
    layout::check_top_level(directories.iter().map(String::as_str)).map_err(|e| e.to_string())
}

async fn write_verdict(
    location: &BackupStorageLocation,
    context: &Context,
    verdict: Result<(), String>,
) -> Result<(), Error> {
    context.leader.fence.check()?;
    tell(location, context, &verdict).await;
    let name = location.name_any();
    let api: Api<BackupStorageLocation> = Api::namespaced(context.leader.client.clone(), &context.leader.namespace);
    let phase = if verdict.is_ok() { LocationPhase::Available } else { LocationPhase::Unavailable };
    let status = json!({
        "phase": phase.as_str(),
        "message": verdict.err().or_else(|| context.sync_warnings.of(&name)),
        "lastValidationTime": format!("{:.0}", Timestamp::now()),
    });
    kill::point("location.status.before");
    api.patch(&name, &PatchParams::default(), &Patch::Merge(json!({ "status": status })))
        .await
        .map_err(|e| Error::api(format!("write status of location {name}"), e))?;
    Ok(())
}

/// An Event whenever a location becomes usable or unusable.
async fn tell(location: &BackupStorageLocation, context: &Context, verdict: &Result<(), String>) {
    let known = location.status.as_ref().and_then(|status| status.phase.clone());
    let about = location.object_ref(&());
    match verdict {
        Ok(()) if known != Some(LocationPhase::Available) => {
            context.leader.events.record(&about, EventType::Normal, "Available", "the location can be used").await;
        }
        Err(why) if known != Some(LocationPhase::Unavailable) => {
            context.leader.events.record(&about, EventType::Warning, "Unavailable", why).await;
        }
        _ => {}
    }
}

/// Opens the store behind a location.
pub async fn open(location: &BackupStorageLocation, context: &Context) -> Result<Store, Error> {
    let tuning = Tuning { idle: context.settings.store_idle, ..Tuning::default() };
    open_with(context.leader.client.clone(), &context.leader.namespace, location, tuning, Some(&context.plugins)).await
}

/// The same for whoever comes again soon anyway, and rather says what is wrong than waits.
pub async fn open_hastily(location: &BackupStorageLocation, context: &Context) -> Result<Store, Error> {
    let tuning = Tuning {
        idle: context.settings.store_idle.min(Duration::from_secs(15)),
        retries: 3,
        give_up: Duration::from_secs(20),
        ..Tuning::default()
    };
    open_with(context.leader.client.clone(), &context.leader.namespace, location, tuning, Some(&context.plugins)).await
}

/// The same without a leader's context.
pub async fn open_with(
    client: Client,
    namespace: &str,
    location: &BackupStorageLocation,
    tuning: Tuning,
    plugins: Option<&Catalog>,
) -> Result<Store, Error> {
    Ok(plugins::open_store(&place(client, namespace, location, tuning).await?, plugins)?)
}

/// Where a location is and what opens it.
pub async fn place(
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

/// What opens a snapshot location: its own credentials or, for the providers whose plugins all take a file, those of
/// Velero's own install.
pub async fn snapshot_credentials(
    context: &Context,
    location: &VolumeSnapshotLocation,
) -> Result<Option<Vec<u8>>, Error> {
    let secrets: Api<Secret> = Api::namespaced(context.leader.client.clone(), &context.leader.namespace);
    let provider = plimsoll_plugin::qualified_name(location.spec.provider.as_deref().unwrap_or_default());
    match &location.spec.credential {
        Some(selector) => secret_value(&secrets, selector).await.map(Some),
        None if ["velero.io/aws", "velero.io/gcp", "velero.io/azure"].contains(&provider.as_str()) => {
            default_credentials(&secrets).await
        }
        None => Ok(None),
    }
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
    value.map(|bytes| bytes.0).ok_or(Error::Answer { what, detail: format!("it has no key {}", selector.key) })
}

/// What a subject may find where it looks for its location.
pub enum Found {
    /// It can be used.
    Usable(Box<BackupStorageLocation>),
    /// It will not become usable by waiting.
    Unusable(String),
    /// Nobody has looked at it yet.
    Unchecked(String),
}

/// The location of this name, or the default one.
pub async fn find(context: &Context, name: Option<&str>) -> Result<Found, Error> {
    let api: Api<BackupStorageLocation> = Api::namespaced(context.leader.client.clone(), &context.leader.namespace);
    let found = match name.filter(|name| !name.is_empty()) {
        Some(name) => api.get_opt(name).await.map_err(|e| Error::api(format!("read location {name}"), e))?,
        None => default_of(api.list(&ListParams::default()).await.map_err(|e| Error::api("list locations", e))?.items),
    };
    let Some(location) = found else {
        return Ok(Found::Unusable(match name.filter(|name| !name.is_empty()) {
            Some(name) => format!("spec.storageLocation: there is no BackupStorageLocation {name}"),
            None => "spec.storageLocation: none is given, and there is no default BackupStorageLocation".into(),
        }));
    };
    let status = location.status.clone().unwrap_or_default();
    Ok(match status.phase {
        Some(LocationPhase::Available) => Found::Usable(Box::new(location)),
        Some(_) => Found::Unusable(format!(
            "BackupStorageLocation {} is unavailable: {}",
            location.name_any(),
            status.message.unwrap_or_else(|| "no reason is given".into())
        )),
        None => Found::Unchecked(format!("location {} to be checked", location.name_any())),
    })
}

/// The one that says so, otherwise the one of that name. Of several that say so the first by name counts.
fn default_of(mut locations: Vec<BackupStorageLocation>) -> Option<BackupStorageLocation> {
    locations.sort_by_key(ResourceExt::name_any);
    let marked = locations.iter().position(|location| location.spec.default == Some(true));
    let named = || locations.iter().position(|location| location.name_any() == "default");
    let place = marked.or_else(named)?;
    Some(locations.swap_remove(place))
}

/// Whether backups may be written there.
pub fn is_read_only(location: &BackupStorageLocation) -> bool {
    location.spec.access_mode == Some(AccessMode::ReadOnly)
}

#[cfg(test)]
mod tests {
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
            default_of(locations).map(|location| location.name_any())
        };
        assert_eq!(chosen(&[("default", false), ("b", true)]).as_deref(), Some("b"));
        assert_eq!(chosen(&[("b", true), ("a", true)]).as_deref(), Some("a"));
        assert_eq!(chosen(&[("x", false), ("default", false)]).as_deref(), Some("default"));
        assert_eq!(chosen(&[("x", false)]), None);
    }
}
