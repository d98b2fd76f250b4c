//! Disables the default ignore rules of kopia: directories with a `CACHEDIR.TAG`, and the rules of `.kopiaignore` files. A backup
//! must be complete, so the rules are disabled in the global policy of new repositories, and in the policy of the backup's source
//! elsewhere, as in Velero's repositories.

use serde::Deserialize;

use super::client::{Client, IDENTITY};
use crate::program::truncate;
use crate::{MoverError, Result};

/// Includes the content of cache directories.
const INCLUDE_CACHES: &str = "--ignore-cache-dirs=false";

/// The only name in the list of ignore files. An empty list means kopia's default, so the list has one name of 256 bytes: one more
/// than a file name can have.
fn impossible_file_name() -> String {
    "no-file-has-so-long-a-name-".repeat(10)[..256].to_owned()
}

/// The options of `policy set` for the global policy of a new repository, which has kopia's defaults.
pub(super) fn disable_ignores_arguments() -> Vec<String> {
    FilesPolicy { ignore_files: vec![".kopiaignore".into()], ..FilesPolicy::default() }.missing()
}

/// The effective policy of a source.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Policy {
    files: FilesPolicy,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct FilesPolicy {
    /// The names of ignore files.
    #[serde(rename = "ignoreDotFiles")]
    ignore_files: Vec<String>,
    ignore_cache_dirs: Option<bool>,
    ignore: Vec<String>,
    max_file_size: u64,
    one_file_system: bool,
}

impl FilesPolicy {
    /// The options that are not set yet.
    fn missing(&self) -> Vec<String> {
        let own = impossible_file_name();
        let caches = (self.ignore_cache_dirs != Some(false)).then(|| INCLUDE_CACHES.to_owned());
        // A non-empty list hides the inherited one. Clearing it would drop names that are added in the same command.
        let ours = (self.ignore_files != [own.clone()]).then(|| format!("--add-dot-ignore={own}"));
        let others = self.ignore_files.iter().filter(|name| **name != own);
        let others = others.map(|name| format!("--remove-dot-ignore={name}"));
        caches.into_iter().chain(ours).chain(others).collect()
    }

    /// Warns about ignore rules that are not kopia's defaults. They are applied.
    fn warning(&self) -> Option<String> {
        let settings = [
            (!self.ignore.is_empty(), "ignore rules"),
            (self.max_file_size > 0, "a maximum file size"),
            (self.one_file_system, "one file system only"),
        ];
        let active: Vec<&str> = settings.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name).collect();
        (!active.is_empty()).then(|| format!("the repository's policy ignores files: {}", active.join(", ")))
    }
}

/// The effective policy of a backup.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct EffectivePolicy {
    /// Whether kopia still applies its default ignore rules.
    pub ignores_files: bool,
    /// A warning for the owner of the repository.
    pub warning: Option<String>,
}

/// Disables the default ignore rules for this source. The policies of other sources and the global policy stay unchanged.
pub(super) fn disable_ignores(client: &Client<'_>, path: &str) -> Result<EffectivePolicy> {
    client.session.task.say("checking the policy");
    match try_disable_ignores(client, path) {
        // kopia rejected the policy. The backup continues and reports the ignored files.
        Err(error @ (MoverError::ProgramFailed { .. } | MoverError::UnexpectedOutput { .. })) => {
            tracing::warn!("failed to set kopia's policy for {path}: {error}");
            Ok(EffectivePolicy { ignores_files: true, warning: None })
        }
        policy => policy,
    }
}

fn try_disable_ignores(client: &Client<'_>, path: &str) -> Result<EffectivePolicy> {
    let source = format!("{IDENTITY}@{IDENTITY}:{path}");
    let output = client.execute(&["policy", "show", "--json", &source])?;
    let invalid = |_| MoverError::UnexpectedOutput { program: "kopia".into(), output: truncate(&output) };
    let Policy { files } = serde_json::from_str(output.trim()).map_err(invalid)?;
    let missing = files.missing();
    if !missing.is_empty() {
        let arguments =
            ["policy", "set"].into_iter().chain(missing.iter().map(String::as_str)).chain([source.as_str()]);
        client.execute(&arguments.collect::<Vec<_>>())?;
    }
    Ok(EffectivePolicy { ignores_files: false, warning: files.warning() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(json: &str) -> FilesPolicy {
        serde_json::from_str::<Policy>(json).expect("a policy").files
    }

    #[test]
    fn only_missing_options_are_set() {
        let name = impossible_file_name();
        let (caches, others) = (INCLUDE_CACHES.to_owned(), "--remove-dot-ignore=.kopiaignore".to_owned());
        let ours = format!("--add-dot-ignore={name}");
        // kopia's default.
        let default = files(r#"{"files":{"ignoreDotFiles":[".kopiaignore"]}}"#).missing();
        assert_eq!(default, [caches.clone(), ours.clone(), others.clone()]);
        assert_eq!(default, disable_ignores_arguments());
        assert_eq!(files("{}").missing(), [caches, ours.clone()]);
        let settled = format!(r#"{{"files":{{"ignoreDotFiles":["{name}"],"ignoreCacheDirs":false}}}}"#);
        assert_eq!(files(&settled).missing(), Vec::<String>::new());
        let more = format!(r#"{{"files":{{"ignoreDotFiles":[".kopiaignore","{name}"],"ignoreCacheDirs":false}}}}"#);
        assert_eq!(files(&more).missing(), [ours, others], "the list may be inherited");
    }

    #[test]
    fn custom_ignore_rules_are_a_warning() {
        assert_eq!(files("{}").warning(), None);
        let warning = files(r#"{"files":{"ignore":["*.tmp"],"maxFileSize":5}}"#).warning().expect("a warning");
        assert!(warning.ends_with("ignore rules, a maximum file size"), "{warning}");
    }
}
