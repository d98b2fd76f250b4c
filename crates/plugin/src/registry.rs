//! The plugins that the binaries in the plugin directory implement.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::launch_config::LaunchConfig;
use crate::log_sink::{LogSink, TracingLogSink};
use crate::sanitize::sanitize_to;
use crate::session::{InitCall, Session};
use crate::wire::{Empty, LIST_PLUGINS, ListPluginsResponse, PluginIdentifier, PluginRequest};
use crate::{Error, Result};

/// Timeout of `ListPlugins`.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of plugins of one binary.
const MAX_PLUGINS: usize = 256;
/// Maximum depth of the directory search.
const MAX_DIRECTORY_DEPTH: usize = 8;

/// The kinds of plugins, as in Velero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PluginKind {
    /// An object store.
    ObjectStore,
    /// Creates and deletes volume snapshots, and restores volumes from them.
    VolumeSnapshotter,
    /// Processes items of a backup.
    BackupItemAction,
    /// The same, with asynchronous operations.
    BackupItemActionV2,
    /// Processes items of a restore.
    RestoreItemAction,
    /// The same, with asynchronous operations.
    RestoreItemActionV2,
    /// Processes items of a backup that is deleted.
    DeleteItemAction,
    /// Groups related items.
    ItemBlockAction,
}

impl PluginKind {
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

    /// The name in the protocol and in `plimsoll plugin get`.
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

impl fmt::Display for PluginKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A plugin that a binary implements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredPlugin {
    /// The kind.
    pub kind: PluginKind,
    /// The registered name, `domain/name`.
    pub name: String,
    /// The binary.
    pub binary: PathBuf,
}

/// The plugins of all binaries, in the order of their paths.
#[derive(Clone, Debug, Default)]
pub struct PluginRegistry {
    plugins: Vec<RegisteredPlugin>,
    errors: Vec<Error>,
    launch_config: LaunchConfig,
}

impl PluginRegistry {
    /// Lists the plugins of every executable in a directory tree. A binary that fails is recorded in [`PluginRegistry::errors`];
    /// a missing directory is treated as empty.
    pub async fn discover(directory: &Path, launch_config: LaunchConfig) -> Self {
        let mut registry = Self { launch_config, ..Self::default() };
        let mut binaries = Vec::new();
        find_executables(directory, MAX_DIRECTORY_DEPTH, &mut binaries);
        binaries.sort();
        for binary in binaries {
            if let Err(error) = registry.list_plugins(&binary).await {
                tracing::error!("{error}");
                registry.errors.push(error);
            }
        }
        registry
    }

    /// All plugins.
    pub fn plugins(&self) -> &[RegisteredPlugin] {
        &self.plugins
    }

    /// The errors of binaries that could not be used.
    pub fn errors(&self) -> &[Error] {
        &self.errors
    }

    /// Finds a plugin. A name without a domain means `velero.io/`, as in `provider: aws` of a location.
    pub fn find(&self, kind: PluginKind, name: &str) -> Result<&RegisteredPlugin> {
        let name = qualified_name(name);
        let found = self.plugins.iter().find(|plugin| plugin.kind == kind && plugin.name == name);
        found.ok_or(Error::NotFound { kind, name })
    }

    /// The plugins of some kinds.
    pub(crate) fn of_kinds<'a>(&'a self, kinds: &'a [PluginKind]) -> impl Iterator<Item = &'a RegisteredPlugin> {
        self.plugins.iter().filter(move |plugin| kinds.contains(&plugin.kind))
    }

    pub(crate) fn session(&self, binary: &Path, logs: Arc<dyn LogSink>, init_calls: Vec<InitCall>) -> Arc<Session> {
        Session::new(binary, &self.launch_config, logs, init_calls)
    }

    async fn list_plugins(&mut self, binary: &Path) -> Result<()> {
        let session = self.session(binary, Arc::new(TracingLogSink), Vec::new());
        let answer = session.call(LIST_PLUGINS, Empty {}, LIST_TIMEOUT).await;
        session.close().await;
        self.register(session.name(), binary, answer?)
    }

    /// Registers all plugins of a binary, or none if one is invalid.
    fn register(&mut self, plugin: &str, binary: &Path, answer: ListPluginsResponse) -> Result<()> {
        let invalid = |detail: String| Error::ListInvalid { plugin: plugin.to_owned(), detail };
        if answer.plugins.len() > MAX_PLUGINS {
            return Err(invalid(format!("{} plugins, at most {MAX_PLUGINS} are allowed", answer.plugins.len())));
        }
        let mut accepted = Vec::new();
        for PluginIdentifier { kind, name, .. } in answer.plugins {
            let Some(kind) = PluginKind::parse(&kind) else {
                tracing::warn!("plugin {plugin}: ignoring {}: unknown kind", sanitize_to(&name, 100));
                continue;
            };
            validate_name(&name)
                .map_err(|cause| invalid(format!("invalid name of {kind} {:?}: {cause}", sanitize_to(&name, 100))))?;
            let same = |plugin: &RegisteredPlugin| plugin.kind == kind && plugin.name == name;
            if let Some(other) = self.plugins.iter().chain(&accepted).find(|plugin| same(plugin)) {
                return Err(invalid(format!("{kind} {name} is already registered by {}", other.binary.display())));
            }
            accepted.push(RegisteredPlugin { kind, name, binary: binary.to_owned() });
        }
        accepted.sort_by(|one, other| (one.kind, &one.name).cmp(&(other.kind, &other.name)));
        self.plugins.extend(accepted);
        Ok(())
    }
}

impl PluginRequest for Empty {
    fn plugin(&self) -> &'static str {
        "(any)"
    }
}

/// `aws` is short for `velero.io/aws`.
pub fn qualified_name(name: &str) -> String {
    if name.contains('/') { name.to_owned() } else { format!("velero.io/{name}") }
}

/// Checks a name: a DNS subdomain, a slash and a name.
fn validate_name(name: &str) -> Result<(), &'static str> {
    let Some((domain, rest)) = name.split_once('/') else { return Err("expected domain/name") };
    let label = |label: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty() && label.chars().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    if domain.len() > 253 || !domain.split('.').all(label) {
        return Err("domain is not a DNS subdomain");
    }
    let valid = !rest.is_empty() && rest.len() <= 253 && !rest.contains('/') && !rest.contains(char::is_control);
    if valid { Ok(()) } else { Err("name after the slash is empty, too long or has invalid characters") }
}

/// Finds every executable file in a directory tree; follows links to files, not links to directories.
fn find_executables(directory: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if depth > 0 {
                find_executables(&path, depth - 1, found);
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
    fn a_provider_without_a_domain_has_veleros_domain() {
        let mut registry = PluginRegistry::default();
        registry.register("aws", Path::new("/p/aws"), list(&[("ObjectStore", "velero.io/aws")])).unwrap();
        assert_eq!(registry.find(PluginKind::ObjectStore, "aws").unwrap().binary, Path::new("/p/aws"));
        assert_eq!(
            registry.find(PluginKind::VolumeSnapshotter, "aws").unwrap_err().to_string(),
            "VolumeSnapshotter plugin \"velero.io/aws\" not found: add its image with `plimsoll plugin add`"
        );
    }

    #[test]
    fn a_duplicate_name_an_invalid_name_or_too_many_plugins_reject_the_binary() {
        let mut registry = PluginRegistry::default();
        registry
            .register("a", Path::new("/p/a"), list(&[("ObjectStore", "x.io/a"), ("FutureKind", "x.io/f")]))
            .unwrap();
        let again =
            registry.register("b", Path::new("/p/b"), list(&[("ObjectStore", "x.io/b"), ("ObjectStore", "x.io/a")]));
        assert_eq!(
            again.unwrap_err().to_string(),
            "invalid plugin list of b: ObjectStore x.io/a is already registered by /p/a"
        );
        for bad in ["plain", "Upper.io/x", "/x", "x.io/", "x.io/a/b", "x..io/a", "-x.io/a"] {
            assert!(registry.register("c", Path::new("/p/c"), list(&[("ObjectStore", bad)])).is_err(), "{bad}");
        }
        let many: Vec<_> = (0..300).map(|_| ("ObjectStore", "x.io/many")).collect();
        assert!(registry.register("d", Path::new("/p/d"), list(&many)).is_err());
        assert_eq!(registry.plugins().len(), 1);
    }

    #[test]
    fn executables_are_found_at_any_depth() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("deep");
        std::fs::create_dir(&deep).unwrap();
        for (path, mode) in [(deep.join("plugin"), 0o755), (directory.path().join("readme"), 0o644)] {
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let mut found = Vec::new();
        find_executables(directory.path(), MAX_DIRECTORY_DEPTH, &mut found);
        assert_eq!(found, [deep.join("plugin")]);
    }
}
