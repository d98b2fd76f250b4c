//! The table of dependencies in docs/architecture.md is true.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

type Table = BTreeMap<String, BTreeSet<String>>;

fn workspace() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn declared() -> Table {
    let text = std::fs::read_to_string(workspace().join("docs/architecture.md")).unwrap();
    let rows = text.lines().skip_while(|line| !line.starts_with("| crate | is for |")).skip(2);
    rows.take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
            let uses = cells[2].split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
            (cells[0].to_owned(), uses.collect())
        })
        .collect()
}

fn actual() -> Table {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(workspace())
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let short = |name: &Value| name.as_str().unwrap().strip_prefix("plimsoll-").map(str::to_owned);
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .filter_map(|package| {
            let dependencies = package["dependencies"].as_array().unwrap().iter();
            let ours = dependencies.filter(|dependency| dependency["kind"].is_null());
            Some((short(&package["name"])?, ours.filter_map(|dependency| short(&dependency["name"])).collect()))
        })
        .collect()
}

#[test]
fn every_crate_uses_only_what_the_table_allows_and_the_table_promises_nothing_else() {
    let (declared, actual) = (declared(), actual());
    assert_eq!(declared.keys().collect::<Vec<_>>(), actual.keys().collect::<Vec<_>>(), "crates in the table");
    for (name, uses) in &actual {
        let extra: Vec<_> = uses.difference(&declared[name]).collect();
        assert!(extra.is_empty(), "{name} uses {extra:?}, which docs/architecture.md does not allow");
    }
}
