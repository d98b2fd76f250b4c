//! Reading any archive terminates, continues after a bad entry, and yields no path outside the archive.
#![no_main]

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use libfuzzer_sys::fuzz_target;
use plimsoll_archive::tarball::{Reader, ReaderLimits};

fuzz_target!(|input: (bool, Vec<u8>)| {
    let (packed, bytes) = input;
    // Random bytes are rarely a gzip stream: compress them unless told otherwise.
    let stream = if packed { bytes } else { pack(&bytes) };
    let limits = ReaderLimits { entry_bytes: 1 << 16, total_bytes: 1 << 20, entries: 1000, ratio: 300 };
    let mut reader = Reader::with_limits(stream.as_slice(), limits);
    let mut items = 0;
    loop {
        match reader.next_item() {
            Ok(Some(item)) => {
                items += 1;
                let parts = [Some(&item.group_resource), item.namespace.as_ref(), Some(&item.name)];
                assert!(parts.into_iter().flatten().all(|part| part != ".." && !part.contains('/')), "{item:?}");
            }
            Err(error) if error.is_entry_error() => {}
            Ok(None) | Err(_) => break,
        }
    }
    assert_eq!(reader.counts().items, items);
    assert!(matches!(reader.next_item(), Ok(None)), "no item after the end");
});

fn pack(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    let _ = gzip.write_all(bytes);
    gzip.finish().unwrap_or_default()
}
