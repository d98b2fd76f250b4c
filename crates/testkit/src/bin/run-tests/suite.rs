//! The test binaries that a build made.

use std::path::PathBuf;

use serde::Deserialize;

/// The longest suites start first, so that none of them runs alone at the end.
const LONGEST_FIRST: [&str; 5] = ["cli it", "testkit it", "mover it", "repository it", "local it"];

/// One test binary.
#[derive(Debug, Clone)]
pub struct Suite {
    /// The crate's directory and the target: `cli it`, `progress lib`.
    pub name: String,
    pub executable: PathBuf,
    /// Where cargo would run it.
    pub directory: PathBuf,
}

/// One line of what cargo prints about a build.
#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// The test binaries among the artifacts, in the order in which they start.
pub fn find_suites(artifacts: &str) -> Vec<Suite> {
    let mut suites: Vec<Suite> = artifacts.lines().filter_map(find_suite).collect();
    suites.sort_by_key(|suite| {
        let longest = LONGEST_FIRST.iter().position(|name| *name == suite.name);
        (longest.unwrap_or(LONGEST_FIRST.len()), suite.name.clone())
    });
    suites
}

fn find_suite(line: &str) -> Option<Suite> {
    let artifact: Artifact = serde_json::from_str(line).ok()?;
    let executable = artifact.executable.filter(|_| artifact.profile.test)?;
    let directory = artifact.manifest_path.parent()?.to_owned();
    let package = directory.file_name()?.to_string_lossy().into_owned();
    let target = match artifact.target.kind.first()?.as_str() {
        "lib" => "lib".to_owned(),
        _ => artifact.target.name,
    };
    Some(Suite { name: format!("{package} {target}"), executable, directory })
}

#[cfg(test)]
mod tests {
    use super::find_suite;

    #[test]
    fn only_test_binaries_are_suites() {
        let artifact = |test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/cli/Cargo.toml",
                "target":{{"kind":["test"],"name":"it"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let suite = find_suite(&artifact(true, r#""/t/it-1""#)).unwrap();
        assert_eq!((suite.name.as_str(), suite.directory.to_str()), ("cli it", Some("/w/crates/cli")));
        assert!(find_suite(&artifact(false, r#""/t/plimsoll""#)).is_none());
        assert!(find_suite(&artifact(true, "null")).is_none());
    }
}
