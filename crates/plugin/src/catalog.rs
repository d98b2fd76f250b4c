//! What the binaries in the plugin directory offer.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::launch::Launch;
use crate::logs::{LogSink, Tracing};
use crate::session::{Prime, Session};
use crate::text::bounded;
use crate::wire::{Empty, ForPlugin, LIST_PLUGINS, ListPluginsResponse, PluginIdentifier};
use crate::{Error, Result};

/// How long a binary may take to list what it offers.
const LISTING: Duration = Duration::from_secs(30);
/// No binary offers more.
const MOST_OFFERS: usize = 256;
/// How deep the directory is searched.
const DEPTH: usize = 8;

/// What a plugin can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Keeps objects.
    ObjectStore,
    /// Takes snapshots of volumes.
    VolumeSnapshotter,
    /// Sees items on their way into a backup.
    BackupItemAction,
    /// The same, with work that goes on in the background.
    BackupItemActionV2,
    /// Sees items on their way back.
    RestoreItemAction,
    /// The same, with work that goes on in the background.
    RestoreItemActionV2,
    /// Sees the items of a backup that is deleted.
    DeleteItemAction,
    /// Says which items belong together.
    ItemBlockAction,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::ObjectStore,
        Self::VolumeSnapshotter,
        Self::BackupItemAction,
        Self::BackupItemActionV2,
        Self::RestoreItemAction,
        Self::RestoreItemActionV2,
        Self::DeleteItemAction,
        Self::ItemBlockAction,
    ];

    /// Its name in the protocol, and in `plugin get`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ObjectStore => "ObjectStore",
            Self::VolumeSnapshotter => "VolumeSnapshotter",
            Self::BackupItemAction => "BackupItemAction",
            Self::BackupItemActionV2 => "BackupItemActionV2",
            Self::RestoreItemAction => "RestoreItemAction",
            Self::RestoreItemActionV2 => "RestoreItemActionV2",
            Self::DeleteItemAction => "DeleteItemAction",
            Self::ItemBlockAction => "ItemBlockAction",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Something a binary offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What it is.
    pub kind: Kind,
    /// Its registered name, `domain/name`.
    pub name: String,
    /// Who offers it.
    pub binary: PathBuf,
}

/// What all binaries offer, in the order of their paths.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    offers: Vec<Offer>,
    problems: Vec<Error>,
    launch: Launch,
}

impl Catalog {
    /// Asks every executable below a directory what it offers. One that cannot be used is a problem of the catalog, not its
    /// end; a directory that is not there is an empty one.
    pub async fn discover(directory: &Path, launch: Launch) -> Self {
        let mut catalog = Self { launch, ..Self::default() };
        let mut binaries = Vec::new();
        executables(directory, DEPTH, &mut binaries);
        binaries.sort();
        for binary in binaries {
            if let Err(problem) = catalog.ask(&binary).await {
                tracing::error!("{problem}");
                catalog.problems.push(problem);
            }
        }
        catalog
    }

    /// Everything on offer.
    pub fn offers(&self) -> &[Offer] {
        &self.offers
    }

    /// What is wrong with binaries that offer nothing therefore.
    pub fn problems(&self) -> &[Error] {
        &self.problems
    }

    /// Who offers this. A name without a domain means Velero's own, as in a location's `provider: aws`.
    pub fn find(&self, kind: Kind, name: &str) -> Result<&Offer> {
        let name = qualified_name(name);
        let found = self.offers.iter().find(|offer| offer.kind == kind && offer.name == name);
        found.ok_or(Error::NotFound { kind, name })
    }

    /// What one binary offers of some kinds.
    pub(crate) fn of_kinds<'a>(&'a self, kinds: &'a [Kind]) -> impl Iterator<Item = &'a Offer> {
        self.offers.iter().filter(move |offer| kinds.contains(&offer.kind))
    }

    pub(crate) fn session(&self, binary: &Path, logs: Arc<dyn LogSink>, primes: Vec<Prime>) -> Arc<Session> {
        Session::new(binary, &self.launch, logs, primes)
    }

    async fn ask(&mut self, binary: &Path) -> Result<()> {
        let session = self.session(binary, Arc::new(Tracing), Vec::new());
        let answer = session.call(LIST_PLUGINS, Empty {}, LISTING).await;
        session.close().await;
        self.add(session.name(), binary, answer?)
    }

    /// Takes a binary's whole list, or nothing of it.
    fn add(&mut self, plugin: &str, binary: &Path, answer: ListPluginsResponse) -> Result<()> {
        let refused = |detail: String| Error::ListInvalid { plugin: plugin.to_owned(), detail };
        if answer.plugins.len() > MOST_OFFERS {
            return Err(refused(format!("it offers {} things, {MOST_OFFERS} are allowed", answer.plugins.len())));
        }
        let mut taken = Vec::new();
        for PluginIdentifier { kind, name, .. } in answer.plugins {
            let Some(kind) = Kind::parse(&kind) else {
                tracing::warn!("plugin {plugin}: {} is of no kind this server knows", bounded(&name, 100));
                continue;
            };
            check_name(&name).map_err(|fault| refused(format!("{kind} {:?}: {fault}", bounded(&name, 100))))?;
            let same = |offer: &Offer| offer.kind == kind && offer.name == name;
            if let Some(other) = self.offers.iter().chain(&taken).find(|offer| same(offer)) {
                return Err(refused(format!("{kind} {name} is offered by {} already", other.binary.display())));
            }
            taken.push(Offer { kind, name, binary: binary.to_owned() });
        }
        taken.sort_by(|one, other| (one.kind, &one.name).cmp(&(other.kind, &other.name)));
        self.offers.extend(taken);
        Ok(())
    }
}

impl ForPlugin for Empty {
    fn plugin(&self) -> &'static str {
        "(any)"
    }
}

/// `aws` is short for `velero.io/aws`.
pub fn qualified_name(name: &str) -> String {
    if name.contains('/') { name.to_owned() } else { format!("velero.io/{name}") }
}

/// A DNS subdomain, a slash, and something.
fn check_name(name: &str) -> Result<(), &'static str> {
    let Some((domain, rest)) = name.split_once('/') else { return Err("a name has the form domain/name") };
    let label = |label: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty() && label.chars().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    if domain.len() > 253 || !domain.split('.').all(label) {
        return Err("what comes before the slash is no DNS name");
    }
    let fits = !rest.is_empty() && rest.len() <= 253 && !rest.contains('/') && !rest.contains(char::is_control);
    if fits { Ok(()) } else { Err("what comes after the slash is not one usable word") }
}

/// Every executable file below a directory; links to files count, links to directories do not.
fn executables(directory: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if depth > 0 {
                executables(&path, depth - 1, found);
            }
        } else if std::fs::metadata(&path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0) {
            found.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(plugins: &[(&str, &str)]) -> ListPluginsResponse {
        let identifier = |(kind, name): &(&str, &str)| PluginIdentifier {
            command: "x".into(),
            kind: (*kind).into(),
            name: (*name).into(),
        };
        ListPluginsResponse { plugins: plugins.iter().map(identifier).collect() }
    }

    #[test]
    fn a_provider_without_a_domain_is_veleros() {
        let mut catalog = Catalog::default();
        catalog.add("aws", Path::new("/p/aws"), list(&[("ObjectStore", "velero.io/aws")])).unwrap();
        assert_eq!(catalog.find(Kind::ObjectStore, "aws").unwrap().binary, Path::new("/p/aws"));
        assert_eq!(
            catalog.find(Kind::VolumeSnapshotter, "aws").unwrap_err().to_string(),
            "no plugin offers VolumeSnapshotter \"velero.io/aws\": add its image with `plimsoll plugin add`"
        );
    }

    #[test]
    fn a_second_offer_of_one_name_a_bad_name_or_too_many_are_refused_whole() {
        let mut catalog = Catalog::default();
        catalog.add("a", Path::new("/p/a"), list(&[("ObjectStore", "x.io/a"), ("FutureKind", "x.io/f")])).unwrap();
        let again = catalog.add("b", Path::new("/p/b"), list(&[("ObjectStore", "x.io/b"), ("ObjectStore", "x.io/a")]));
        assert_eq!(again.unwrap_err().to_string(), "plugin b: ObjectStore x.io/a is offered by /p/a already");
        for bad in ["plain", "Upper.io/x", "/x", "x.io/", "x.io/a/b", "x..io/a", "-x.io/a"] {
            assert!(catalog.add("c", Path::new("/p/c"), list(&[("ObjectStore", bad)])).is_err(), "{bad}");
        }
        let many: Vec<_> = (0..300).map(|_| ("ObjectStore", "x.io/many")).collect();
        assert!(catalog.add("d", Path::new("/p/d"), list(&many)).is_err());
        assert_eq!(catalog.offers().len(), 1);
    }

    #[test]
    fn only_executables_are_asked_at_any_depth() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("deep");
        std::fs::create_dir(&deep).unwrap();
        for (path, mode) in [(deep.join("plugin"), 0o755), (directory.path().join("readme"), 0o644)] {
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let mut found = Vec::new();
        executables(directory.path(), DEPTH, &mut found);
        assert_eq!(found, [deep.join("plugin")]);
    }
}
