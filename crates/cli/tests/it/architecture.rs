//! docs/explanation/architecture.md is true: its table of dependencies and its walks. And the modules of the server's crates have no cycles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

type Table = BTreeMap<String, BTreeSet<String>>;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn declared() -> Table {
    let text = std::fs::read_to_string(workspace().join("docs/explanation/architecture.md")).unwrap();
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
fn every_crate_uses_only_the_dependencies_of_the_table() {
    let (declared, actual) = (declared(), actual());
    assert_eq!(declared.keys().collect::<Vec<_>>(), actual.keys().collect::<Vec<_>>(), "crates in the table");
    for (name, uses) in &actual {
        let extra: Vec<_> = uses.difference(&declared[name]).collect();
        assert!(extra.is_empty(), "{name} uses {extra:?}, which docs/explanation/architecture.md does not allow");
    }
}

#[test]
fn the_walks_name_functions_that_exist_in_at_most_fifteen_steps() {
    let text = std::fs::read_to_string(workspace().join("docs/explanation/architecture.md")).unwrap();
    let walks: Vec<_> = text.split("\n### ").skip(1).collect();
    assert_eq!(walks.len(), 3, "an item, a byte and a phase");
    for walk in walks {
        let steps: Vec<_> = walk.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | `")).collect();
        assert!((1..=15).contains(&steps.len()), "{} steps in {walk}", steps.len());
        for (function, rest) in steps {
            let file = rest.split('`').next().unwrap();
            let source = std::fs::read_to_string(workspace().join("crates").join(file)).expect(file);
            let is_there = [format!("fn {function}("), format!("fn {function}<")].iter().any(|it| source.contains(it));
            assert!(is_there, "{file} has no function {function}");
        }
    }
}

/// The crates that the server and the agent are made of.
const LAYERED: [&str; 4] = ["operations", "volumes", "agent", "controllers"];

#[test]
fn the_top_level_modules_of_the_server_and_the_agent_have_no_cycles() {
    for name in LAYERED {
        let sources = workspace().join("crates").join(name).join("src");
        let uses = module_uses(&sources);
        assert!(uses.len() > 3, "{name}: its modules were not found");
        assert_eq!(find_cycle(&uses), None, "{name}: top-level modules that use each other");
    }
}

/// The top-level modules of a crate, and those that each of them uses by `crate::…`, tests left out.
fn module_uses(sources: &Path) -> Table {
    let root = std::fs::read_to_string(sources.join("lib.rs")).unwrap();
    let declared =
        root.lines().filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'));
    let modules: BTreeSet<String> = declared.map(str::to_owned).collect();
    let of_module = |module: &String| {
        let mut text = String::new();
        read_sources(&sources.join(module), &mut text);
        let file = std::fs::read_to_string(sources.join(module).with_extension("rs"));
        text += &production_code(&file.unwrap_or_default());
        let used = crate_paths(&text).filter(|used| used != module && modules.contains(used)).collect();
        (module.clone(), used)
    };
    modules.iter().map(of_module).collect()
}

fn read_sources(directory: &Path, text: &mut String) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            read_sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            *text += &production_code(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// Without comments, and without the unit tests at the end of the file.
fn production_code(text: &str) -> String {
    let before_tests = text.split("\n#[cfg(test)]").next().unwrap_or_default();
    before_tests.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect()
}

/// The first names of all paths that begin with `crate::`, those in braces included.
fn crate_paths(text: &str) -> impl Iterator<Item = String> + '_ {
    let name = |path: &str| path.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    text.split("crate::").skip(1).flat_map(move |rest| match rest.strip_prefix('{') {
        Some(list) => list.split('}').next().unwrap_or_default().split(',').map(name).collect::<Vec<_>>(),
        None => vec![name(rest)],
    })
}

/// A module from which a path of uses leads back to itself, with that path.
fn find_cycle(uses: &Table) -> Option<Vec<String>> {
    uses.keys().find_map(|module| find_path(uses, module, module, &mut BTreeSet::new()))
}

fn find_path(uses: &Table, from: &str, to: &str, seen: &mut BTreeSet<String>) -> Option<Vec<String>> {
    uses.get(from)?.iter().find_map(|next| {
        if next == to {
            return Some(vec![from.to_owned(), to.to_owned()]);
        }
        let rest = seen.insert(next.clone()).then(|| find_path(uses, next, to, seen)).flatten()?;
        Some([from.to_owned()].into_iter().chain(rest).collect())
    })
}

#[test]
fn a_cycle_is_found_from_every_start() {
    let table = |rows: &[(&str, &[&str])]| -> Table {
        rows.iter().map(|(name, uses)| ((*name).to_owned(), uses.iter().map(|u| (*u).to_owned()).collect())).collect()
    };
    assert_eq!(find_cycle(&table(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])), None);
    let cycle = find_cycle(&table(&[("a", &["b"]), ("b", &["c"]), ("c", &["d"]), ("d", &["b"])]));
    assert_eq!(cycle.unwrap(), ["b", "c", "d", "b"]);
    assert_eq!(crate_paths("use crate::{a, b::C}; fn f() -> crate::d::E").collect::<Vec<_>>(), ["a", "b", "d"]);
}
