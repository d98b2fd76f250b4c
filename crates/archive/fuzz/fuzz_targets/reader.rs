//! Fuzz target of the archive reader: `cargo +nightly fuzz run reader`.
//!
//! The input is read as an archive, and again as the tar inside a valid gzip stream, because a fuzzer rarely gets past the
//! checksum. Every object returned must match its path.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_archive::codec;
use plimsoll_archive::tarball::{Reader, ReaderLimits};

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    if let Ok(packed) = codec::gzip(bytes) {
        read(&packed);
    }
});

fn read(archive: &[u8]) {
    let limits = ReaderLimits { entry_bytes: 1 << 20, total_bytes: 8 << 20, entries: 10_000, ratio: 300 };
    for item in Reader::with_limits(archive, limits).flatten() {
        let object: serde_json::Value = serde_json::from_slice(&item.json).expect("an item is JSON");
        assert_eq!(object["metadata"]["name"].as_str(), Some(item.name.as_str()));
        assert!(!item.name.contains('/') && item.name != "..");
        assert!(item.namespace.is_none_or(|namespace| !namespace.contains('/') && namespace != ".."));
    }
}
