//! What kopia leaves out unless it is told otherwise: the content of every directory with a `CACHEDIR.TAG`, and whatever a
//! `.kopiaignore` in the volume names. A backup leaves nothing out, so it is told otherwise: in the global policy of a
//! repository that we make, and in the policy of the backup's own source wherever that is not so, as in Velero's repositories.

use serde::Deserialize;

use super::client::{Client, IDENTITY};
use crate::tool::cut;
use crate::{MoverError, Result};

/// Keeps the content of directories that call themselves caches.
const KEEP_CACHES: &str = "--ignore-cache-dirs=false";

/// What a file would have to be called for kopia to obey it. An empty list means kopia's default, so there is one name in it,
/// of 256 bytes: one more than a file's name can have.
fn no_file() -> String {
    "no-file-has-so-long-a-name-".repeat(10)[..256].to_owned()
}

/// The options of `policy set` for the policy of all sources, which a new repository has with kopia's defaults in it.
pub(super) fn leave_nothing_out() -> Vec<String> {
    Files { obeyed: vec![".kopiaignore".into()], ..Files::default() }.missing()
}

/// What holds for a source, wherever it is set.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Policy {
    files: Files,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Files {
    /// The names of files that kopia obeys.
    #[serde(rename = "ignoreDotFiles")]
    obeyed: Vec<String>,
    ignore_cache_dirs: Option<bool>,
    ignore: Vec<String>,
    max_file_size: u64,
    one_file_system: bool,
}

impl Files {
    /// The options that are missing.
    fn missing(&self) -> Vec<String> {
        let own = no_file();
        let caches = (self.ignore_cache_dirs != Some(false)).then(|| KEEP_CACHES.to_owned());
        // A list that is not empty hides the one it would inherit. Clearing it would leave out what is added in the same breath.
        let ours = (self.obeyed != [own.clone()]).then(|| format!("--add-dot-ignore={own}"));
        let others = self.obeyed.iter().filter(|name| **name != own);
        let others = others.map(|name| format!("--remove-dot-ignore={name}"));
        caches.into_iter().chain(ours).chain(others).collect()
    }

    /// What somebody wants left out. That is no default of kopia's: it is obeyed, and told.
    fn warning(&self) -> Option<String> {
        let named = [
            (!self.ignore.is_empty(), "ignore rules"),
            (self.max_file_size > 0, "a largest size of files"),
            (self.one_file_system, "one file system only"),
        ];
        let words: Vec<&str> = named.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name).collect();
        (!words.is_empty()).then(|| format!("the repository's policy leaves files out: {}", words.join(", ")))
    }
}

/// How a source was found, or made.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Settled {
    /// Whether kopia still leaves out what calls itself a cache and what a `.kopiaignore` names.
    pub leaves_out: bool,
    /// What else the owner of the repository should know.
    pub warning: Option<String>,
}

/// Sees that kopia leaves nothing of this source out. The policies of other sources, and the one of all, stay as they are.
pub(super) fn settle(client: &Client<'_>, path: &str) -> Result<Settled> {
    client.session.task.say("looking at the policy");
    match try_settle(client, path) {
        // kopia itself does not want to. The backup need not fail for that, if it tells what is missing.
        Err(error @ (MoverError::ProgramFailed { .. } | MoverError::Answer { .. })) => {
            tracing::warn!("kopia's policy for {path} cannot be set: {error}");
            Ok(Settled { leaves_out: true, warning: None })
        }
        settled => settled,
    }
}

fn try_settle(client: &Client<'_>, path: &str) -> Result<Settled> {
    let source = format!("{IDENTITY}@{IDENTITY}:{path}");
    let said = client.ask(&["policy", "show", "--json", &source])?;
    let wrong = |_| MoverError::Answer { program: "kopia".into(), answer: cut(&said) };
    let Policy { files } = serde_json::from_str(said.trim()).map_err(wrong)?;
    let missing = files.missing();
    if !missing.is_empty() {
        let words = ["policy", "set"].into_iter().chain(missing.iter().map(String::as_str)).chain([source.as_str()]);
        client.ask(&words.collect::<Vec<_>>())?;
    }
    Ok(Settled { leaves_out: false, warning: files.warning() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(json: &str) -> Files {
        serde_json::from_str::<Policy>(json).expect("a policy").files
    }

    #[test]
    fn only_what_is_not_so_yet_is_set() {
        let name = no_file();
        let (caches, others) = (KEEP_CACHES.to_owned(), "--remove-dot-ignore=.kopiaignore".to_owned());
        let ours = format!("--add-dot-ignore={name}");
        // As kopia's own default has it.
        let default = files(r#"{"files":{"ignoreDotFiles":[".kopiaignore"]}}"#).missing();
        assert_eq!(default, [caches.clone(), ours.clone(), others.clone()]);
        assert_eq!(default, leave_nothing_out());
        assert_eq!(files("{}").missing(), [caches, ours.clone()]);
        let settled = format!(r#"{{"files":{{"ignoreDotFiles":["{name}"],"ignoreCacheDirs":false}}}}"#);
        assert_eq!(files(&settled).missing(), Vec::<String>::new());
        let more = format!(r#"{{"files":{{"ignoreDotFiles":[".kopiaignore","{name}"],"ignoreCacheDirs":false}}}}"#);
        assert_eq!(files(&more).missing(), [ours, others], "it may be inherited");
    }

    #[test]
    fn what_somebody_wants_left_out_is_told() {
        assert_eq!(files("{}").warning(), None);
        let words = files(r#"{"files":{"ignore":["*.tmp"],"maxFileSize":5}}"#).warning().expect("is told");
        assert!(words.ends_with("ignore rules, a largest size of files"), "{words}");
    }
}
