//! The output of the pods of a blueprint: the outputs do not depend on where it was split, and stay within their limits.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use plimsoll_blueprint::output::{Line, MAX_OUTPUT_BYTES, OutputReader};

type Read = (Vec<Line>, BTreeMap<String, String>);

fn read<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Option<Read> {
    let (mut reader, mut lines) = (OutputReader::default(), Vec::new());
    for chunk in chunks {
        lines.extend(reader.push(chunk).ok()?);
    }
    let (last, outputs) = reader.finish().ok()?;
    lines.extend(last);
    Some((lines, outputs))
}

fuzz_target!(|input: (u8, &[u8])| {
    let (size, output) = input;
    let whole = read(std::iter::once(output));
    let pieces = read(output.chunks(usize::from(size).max(1)));
    assert_eq!(whole, pieces);
    if let Some((_, outputs)) = whole {
        assert!(outputs.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() <= MAX_OUTPUT_BYTES);
    }
});
