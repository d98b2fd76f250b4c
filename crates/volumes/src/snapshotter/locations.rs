//! VolumeSnapshotLocations: which of them a backup uses, and how they are opened.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use kube::ResourceExt;
use kube::api::ListParams;
use plimsoll_api::velero::v1::{BackupSpec, VolumeSnapshotLocation};
use plimsoll_engine::Error;
use plimsoll_plugin::{LogSink, VolumeSnapshotterClient, qualified_name};

use super::SnapshotServices;

/// The locations that a backup's snapshots go to, one for each provider.
#[derive(Clone, Debug, Default)]
pub struct ChosenLocations(pub Vec<VolumeSnapshotLocation>);

impl ChosenLocations {
    /// Their names.
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(ResourceExt::name_any).collect()
    }
}

/// Chooses them as Velero does; the inner error is the user's.
pub async fn choose(services: &SnapshotServices, spec: &BackupSpec) -> Result<Result<ChosenLocations, String>, Error> {
    if spec.snapshot_volumes == Some(false) {
        return Ok(Ok(ChosenLocations::default()));
    }
    let all = services.leader.api::<VolumeSnapshotLocation>().list(&ListParams::default()).await;
    let all = all.map_err(|e| Error::api("list VolumeSnapshotLocations", e))?.items;
    Ok(pick(all, &spec.volume_snapshot_locations, &services.defaults))
}

/// Those that are named, and of every other provider the only one, or its default.
fn pick(
    all: Vec<VolumeSnapshotLocation>,
    named: &[String],
    defaults: &BTreeMap<String, String>,
) -> Result<ChosenLocations, String> {
    const FIELD: &str = "spec.volumeSnapshotLocations";
    const FLAG: &str = "--default-volume-snapshot-locations";
    if let Some(absent) = named.iter().find(|name| !all.iter().any(|one| one.name_any() == **name)) {
        return Err(format!("{FIELD}: VolumeSnapshotLocation {absent} not found"));
    }
    let mut providers: BTreeMap<String, Vec<VolumeSnapshotLocation>> = BTreeMap::new();
    for location in all {
        let provider = qualified_name(location.spec.provider.as_deref().unwrap_or_default());
        providers.entry(provider).or_default().push(location);
    }
    let default_of = |provider: &str| {
        let mut all = defaults.iter();
        all.find(|(name, _)| qualified_name(name) == provider).map(|(_, location)| location.as_str())
    };
    let mut chosen = Vec::new();
    for (provider, mut locations) in providers {
        let mut wanted: Vec<_> =
            locations.iter().filter(|location| named.contains(&location.name_any())).cloned().collect();
        if wanted.is_empty()
            && locations.len() > 1
            && let Some(default) = default_of(&provider)
        {
            let known = locations.iter().find(|location| location.name_any() == default);
            let absent = || format!("{FLAG}: provider {provider} has no VolumeSnapshotLocation {default}");
            wanted.push(known.cloned().ok_or_else(absent)?);
        }
        let Some(first) = wanted.pop().or_else(|| locations.pop().filter(|_| locations.is_empty())) else {
            return Err(format!("{FIELD}: provider {provider} has more than one location: name the one to use"));
        };
        if let Some(second) = wanted.pop() {
            let (one, two) = (second.name_any(), first.name_any());
            return Err(format!("{FIELD}: {one} and {two} are both of provider {provider}: name one of them"));
        }
        chosen.push(first);
    }
    chosen.sort_by_key(ResourceExt::name_any);
    Ok(ChosenLocations(chosen))
}

/// Opens snapshotters, each once.
pub(super) struct SnapshotLocations {
    services: Arc<SnapshotServices>,
    logs: Arc<dyn LogSink>,
    open: Mutex<HashMap<String, Arc<VolumeSnapshotterClient>>>,
}

impl SnapshotLocations {
    pub fn new(services: &Arc<SnapshotServices>, logs: Arc<dyn LogSink>) -> Self {
        Self { services: Arc::clone(services), logs, open: Mutex::default() }
    }

    /// The snapshotter of a location.
    pub async fn snapshotter(&self, location: &VolumeSnapshotLocation) -> Result<Arc<VolumeSnapshotterClient>, Error> {
        let name = location.name_any();
        if let Some(known) = self.open.lock().unwrap_or_else(PoisonError::into_inner).get(&name) {
            return Ok(Arc::clone(known));
        }
        let (services, spec) = (&self.services, &location.spec);
        let provider = spec.provider.clone().unwrap_or_default();
        let secret = services.storage.snapshot_credentials(location).await?;
        let opened = VolumeSnapshotterClient::open_with_credentials(
            services.storage.plugins(),
            &provider,
            &spec.config,
            secret.as_deref(),
            Arc::clone(&self.logs),
        );
        let opened = Arc::new(opened.map_err(|error| plugin_error(&error))?);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(open.entry(name).or_insert(opened)))
    }

    /// The snapshotter of the location of this name; the inner error says why there is none.
    pub async fn by_name(&self, name: &str) -> Result<Result<Arc<VolumeSnapshotterClient>, String>, Error> {
        let found = self.services.leader.api::<VolumeSnapshotLocation>().get_opt(name).await;
        let found = found.map_err(|e| Error::api(format!("read VolumeSnapshotLocation {name}"), e))?;
        let Some(location) = found else {
            return Ok(Err(format!("VolumeSnapshotLocation {name} not found")));
        };
        match self.snapshotter(&location).await {
            Ok(snapshotter) => Ok(Ok(snapshotter)),
            Err(error @ Error::Plugin { .. }) => Ok(Err(error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// Ends their processes.
    pub async fn close(&self) {
        let open: Vec<_> = self.open.lock().unwrap_or_else(PoisonError::into_inner).drain().collect();
        for (_, snapshotter) in open {
            snapshotter.session().close().await;
        }
    }
}

/// A plugin's failure, as the engine knows it.
pub(super) fn plugin_error(error: &plimsoll_plugin::Error) -> Error {
    Error::Plugin { reason: error.reason(), message: error.to_string() }
}

#[cfg(test)]
mod tests {
    use plimsoll_api::velero::v1::VolumeSnapshotLocationSpec;

    use super::*;

    fn location(name: &str, provider: &str) -> VolumeSnapshotLocation {
        let spec =
            VolumeSnapshotLocationSpec { provider: Some(provider.into()), ..VolumeSnapshotLocationSpec::default() };
        VolumeSnapshotLocation::new(name, spec)
    }

    #[test]
    fn the_only_location_of_a_provider_is_used_and_of_several_the_one_that_is_named() {
        let all = || vec![location("a", "aws"), location("b", "velero.io/aws"), location("g", "gcp")];
        let picked = |all: Vec<_>, named: &[&str]| {
            let named: Vec<_> = named.iter().map(|&name| name.to_owned()).collect();
            pick(all, &named, &BTreeMap::new()).map(|chosen| chosen.names())
        };
        assert_eq!(picked(vec![location("g", "gcp")], &[]), Ok(vec!["g".to_owned()]));
        assert_eq!(picked(all(), &["b"]), Ok(vec!["b".to_owned(), "g".to_owned()]));
        assert!(picked(all(), &[]).unwrap_err().contains("provider velero.io/aws has more than one"));
        assert!(picked(all(), &["a", "b"]).unwrap_err().contains("both of provider velero.io/aws"));
        assert!(picked(all(), &["none"]).unwrap_err().contains("VolumeSnapshotLocation none not found"));
    }

    #[test]
    fn the_default_of_a_provider_is_used_where_none_is_named() {
        let picked = |named: &[&str], default: (&str, &str)| {
            let all = vec![location("a", "aws"), location("b", "velero.io/aws"), location("g", "gcp")];
            let named: Vec<_> = named.iter().map(|&name| name.to_owned()).collect();
            let defaults = [(default.0.to_owned(), default.1.to_owned())].into();
            pick(all, &named, &defaults).map(|chosen| chosen.names())
        };
        assert_eq!(picked(&[], ("aws", "b")), Ok(vec!["b".to_owned(), "g".to_owned()]));
        assert_eq!(picked(&["a"], ("aws", "b")), Ok(vec!["a".to_owned(), "g".to_owned()]), "a name comes first");
        let absent = picked(&[], ("velero.io/aws", "c")).unwrap_err();
        assert!(absent.contains("--default-volume-snapshot-locations") && absent.contains("VolumeSnapshotLocation c"));
    }
}
