//! Runs that were recorded: one line for each reading, `<milliseconds> <settled> <total> <signs of life>`, with `~` after a total
//! that may still change. `cargo run -p plimsoll-progress --example record` writes them.

use std::path::Path;

use super::{Reading, Run};

/// All runs in `tests/traces`: first those whose time left is graded, then those that are for stalls alone, because nobody could
/// have told it: how fast other programs let one work, or how much of a small volume is on its way through a slow line.
pub fn recorded() -> Vec<Run> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    let files = |directory: &Path| {
        let found = std::fs::read_dir(directory).expect("the traces").flatten().map(|file| file.path());
        let mut files: Vec<_> = found.filter(|path| path.is_file()).collect();
        files.sort();
        files
    };
    let for_stalls = files(&directory.join("stalls-alone"));
    files(&directory)
        .iter()
        .map(|file| read(file, false))
        .chain(for_stalls.iter().map(|file| read(file, true)))
        .collect()
}

fn read(file: &Path, for_stalls: bool) -> Run {
    let name = file.file_stem().and_then(|name| name.to_str()).unwrap_or_default().replace('_', " ");
    let text = std::fs::read_to_string(file).expect("a trace");
    let readings = text.lines().filter(|line| !line.starts_with('#')).map(reading).collect();
    let name = if for_stalls { format!("{name} (stalls alone)") } else { name };
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
