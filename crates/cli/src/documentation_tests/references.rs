//! Versions, tests and limits in the pages of the reference are those of the sources.

use std::path::{Path, PathBuf};

use super::workspace;

/// The cells of the rows of the tables of a page.
fn rows(page: &str) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(workspace().join("docs/reference").join(page)).unwrap();
    let rows = text.lines().filter(|line| line.starts_with('|') && !line.starts_with("|-"));
    rows.map(|row| row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// The file and the name in inline code such as `cli/tests/it/x.rs::name`.
fn source(cell: &str) -> Option<(PathBuf, &str)> {
    let (path, name) = cell.strip_prefix('`')?.strip_suffix('`')?.split_once("::")?;
    Some((workspace().join("crates").join(path), name))
}

/// The version that the tests install of a program.
fn pinned(program: &str) -> Option<String> {
    let module = match program {
        "Kubernetes" => "kubernetes".to_owned(),
        "Velero" => "velero".to_owned(),
        other => other.to_lowercase(),
    };
    let text = std::fs::read_to_string(workspace().join("hack/tools").join(module).join("go.mod")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("require ").filter(|rest| !rest.starts_with('(')));
    Some(line?.split(" v").nth(1)?.to_owned())
}

/// The value of a constant, as the page writes it.
fn constant(path: &Path, name: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let line = text.lines().find(|line| line.contains(&format!("const {name}: ")));
    let line = line.unwrap_or_else(|| panic!("{} has no constant {name}", path.display()));
    let value = line.split(" = ").nth(1).unwrap().trim_end_matches(';');
    let unit = |shift| match shift {
        "10" => "KiB",
        "20" => "MiB",
        "30" => "GiB",
        _ => panic!("{line}"),
    };
    if let Some((number, shift)) = value.split_once(" << ") {
        return format!("{number} {}", unit(shift));
    }
    if let Some(number) = value.strip_suffix(" * 1024") {
        return format!("{number} KiB");
    }
    if let Some(minutes) = value.strip_prefix("Duration::from_mins(") {
        return format!("{} min", minutes.trim_end_matches(')'));
    }
    with_separators(value.replace('_', "").parse().unwrap())
}

fn with_separators(number: u64) -> String {
    if number < 1000 { number.to_string() } else { format!("{},{:03}", with_separators(number / 1000), number % 1000) }
}

#[test]
fn the_versions_of_the_compatibility_page_are_those_of_the_tests() {
    let rows = rows("compatibility.md");
    let found: Vec<_> = rows.iter().filter_map(|row| Some((row, pinned(&row[0])?))).collect();
    // A program is in two tables: with its version in the tests, and with what it needs.
    let tested: Vec<_> = found.iter().filter(|(row, _)| row.len() == 3).collect();
    assert!(tested.len() >= 8, "{tested:#?}");
    for (row, version) in tested {
        assert!(row[1].split(", ").any(|shown| shown == version), "{}: {} is pinned, not {}", row[0], version, row[1]);
    }
}

#[test]
fn every_test_of_the_compatibility_page_exists() {
    let rows = rows("compatibility.md");
    let proofs: Vec<_> = rows.iter().filter_map(|row| source(row.last()?)).collect();
    assert!(proofs.len() >= 20, "{proofs:#?}");
    for (path, name) in proofs {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(text.contains(&format!("fn {name}(")), "{} has no test {name}", path.display());
    }
}

#[test]
fn every_limit_is_the_one_in_the_sources() {
    let rows = rows("limits.md");
    let limits: Vec<_> = rows.iter().filter_map(|row| Some((row, source(row.last()?)?))).collect();
    assert!(limits.len() >= 30, "{limits:#?}");
    for (row, (path, name)) in limits {
        assert_eq!(row[2], constant(&path, name), "{}", row[0]);
    }
}
