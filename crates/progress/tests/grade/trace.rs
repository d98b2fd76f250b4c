//! Runs that were recorded: one line for each reading, `<milliseconds> <settled> <total> <signs of life>`, with `~` after a total
//! that may still change. `cargo run -p plimsoll-progress --example record` writes them.

use std::path::Path;

use super::{Reading, Run};

/// What the recorded runs were moved by: the first word of the name of each.
pub const MOVERS: [&str; 4] = ["built-in", "kopia", "objects", "restic"];

/// All runs in `tests/traces`, by their names.
pub fn recorded() -> Vec<Run> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    let mut files: Vec<_> =
        std::fs::read_dir(directory).expect("the traces").flatten().map(|file| file.path()).collect();
    files.sort();
    files.iter().map(|file| read(file)).collect()
}

fn read(file: &Path) -> Run {
    let name = file.file_stem().and_then(|name| name.to_str()).unwrap_or_default().replace('_', " ");
    let text = std::fs::read_to_string(file).expect("a trace");
    let readings = text.lines().filter(|line| !line.starts_with('#')).map(reading).collect();
    Run { name, readings, hung: None }
}

fn reading(line: &str) -> Reading {
    let mut words = line.split_whitespace();
    let mut word = || words.next().unwrap_or_default();
    let (at, settled, total, signs) = (word(), word(), word(), word());
    let number = |text: &str| text.parse().expect("a reading of a trace is made of numbers");
    let growing = total.ends_with('~');
    Reading {
        at: number(at),
        settled: number(settled),
        total: number(total.trim_end_matches('~')),
        growing,
        signs: signs.parse().unwrap_or(0),
        ..Reading::default()
    }
}
