//! `plimsoll client config`: the file that `velero client config` writes, `~/.config/velero/config.json`.
//!
//! Only the namespace has a meaning here. It is the default of `--namespace`, as in Velero.

use std::path::PathBuf;

use anyhow::{Context, bail};
use serde_json::{Map, Value};

use crate::args::client::{ClientCommand, ConfigCommand};
use crate::errors::UsageError;
use crate::exit::Outcome;
use crate::output;

const NAMESPACE: &str = "namespace";

/// Carries out a verb.
pub fn run(command: ClientCommand) -> anyhow::Result<Outcome> {
    let ClientCommand::Config(command) = command;
    let path = path().context("no home directory: set HOME")?;
    match command {
        ConfigCommand::Get { keys } => {
            let config = read(&path)?;
            let shown = |key: &&String| keys.is_empty() || keys.contains(key);
            for (key, value) in config.iter().filter(|(key, _)| shown(key)) {
                output::line(format!("{key}: {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
            }
        }
        ConfigCommand::Set { pairs } => {
            let mut config = read(&path)?;
            for pair in &pairs {
                set(&mut config, pair)?;
            }
            write(&path, &config)?;
        }
    }
    Ok(Outcome::Success)
}

/// The namespace of the file. A file that cannot be read is reported by the commands that are about it.
pub fn namespace() -> Option<String> {
    let config = read(&path()?).ok()?;
    config.get(NAMESPACE)?.as_str().filter(|name| !name.is_empty()).map(str::to_owned)
}

fn path() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
    Some(PathBuf::from(home).join(".config/velero/config.json"))
}

fn read(path: &PathBuf) -> anyhow::Result<Map<String, Value>> {
    match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| format!("cannot read {}", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Map::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn write(path: &PathBuf, config: &Map<String, Value>) -> anyhow::Result<()> {
    let what = || format!("cannot write {}", path.display());
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).with_context(what)?;
    }
    std::fs::write(path, serde_json::to_vec_pretty(config)?).with_context(what)
}

/// Sets a key; an empty value removes it.
fn set(config: &mut Map<String, Value>, pair: &str) -> anyhow::Result<()> {
    let Some((key, value)) = pair.split_once('=') else {
        bail!(UsageError(format!("invalid setting {pair:?}: want KEY=VALUE, e.g. namespace=velero")));
    };
    if value.is_empty() {
        config.remove(key);
        return Ok(());
    }
    let instead = match key {
        NAMESPACE => {
            config.insert(key.to_owned(), value.into());
            return Ok(());
        }
        "cacert" => "pass --cacert to the command",
        "features" => "no feature has to be enabled",
        "colorized" => "set the environment variable NO_COLOR",
        _ => "unknown key; want namespace",
    };
    bail!(UsageError(format!("setting {key} is not supported: {instead}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_is_kept_and_other_settings_are_refused_by_name() {
        let mut config = serde_json::from_str(r#"{"features": "EnableCSI"}"#).unwrap();
        set(&mut config, "namespace=backup").unwrap();
        assert_eq!(Value::from(config.clone()), serde_json::json!({ "features": "EnableCSI", "namespace": "backup" }));
        set(&mut config, "features=").unwrap();
        set(&mut config, "namespace=").unwrap();
        assert!(config.is_empty());
        for (pair, expected) in [
            ("namespace", "want KEY=VALUE"),
            ("cacert=/x", "pass --cacert"),
            ("colorized=false", "NO_COLOR"),
            ("colour=x", "unknown key"),
        ] {
            let error = set(&mut config, pair).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_file_that_does_not_exist_is_empty_and_a_written_one_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("velero/config.json");
        assert!(read(&path).unwrap().is_empty());
        let config = [("namespace".to_owned(), Value::from("backup"))].into_iter().collect();
        write(&path, &config).unwrap();
        assert_eq!(read(&path).unwrap(), config);
        std::fs::write(&path, "{").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("config.json"));
    }
}
