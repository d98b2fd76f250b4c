//! A backup's archive: whatever is in one, reading it answers, goes on behind a bad entry, ends, and names nothing outside.
#![no_main]

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use libfuzzer_sys::fuzz_target;
use plimsoll_archive::tarball::{Limits, Reader};

fuzz_target!(|input: (bool, Vec<u8>)| {
    let (packed, bytes) = input;
    // Random bytes are hardly ever a gzip stream: most of the time they are what is in one.
    let stream = if packed { bytes } else { pack(&bytes) };
    let limits = Limits { entry_bytes: 1 << 16, total_bytes: 1 << 20, entries: 1000, ratio: 300 };
    let mut reader = Reader::with_limits(stream.as_slice(), limits);
    let mut items = 0;
    loop {
        match reader.next_item() {
            Ok(Some(item)) => {
                items += 1;
                let parts = [Some(&item.group_resource), item.namespace.as_ref(), Some(&item.name)];
                assert!(parts.into_iter().flatten().all(|part| part != ".." && !part.contains('/')), "{item:?}");
            }
            Err(error) if error.is_entry() => {}
            Ok(None) | Err(_) => break,
        }
    }
    assert_eq!(reader.counts().items, items);
    assert!(matches!(reader.next_item(), Ok(None)), "nothing comes after the end");
});

fn pack(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    let _ = gzip.write_all(bytes);
    gzip.finish().unwrap_or_default()
}
