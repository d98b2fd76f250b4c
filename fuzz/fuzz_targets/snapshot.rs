//! Snapshots, plain and in the sealed form in which they are stored.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_repository::format::crypto::Key;
use plimsoll_repository::format::snapshot::Snapshot;
use plimsoll_repository::format::unpacked;

fuzz_target!(|bytes: &[u8]| {
    let _ = Snapshot::parse(bytes);
    let Some(key) = Key::new([1; 32], [2; 16], [3; 16]) else { return };
    let mut sealed = Vec::new();
    key.seal(bytes, &mut sealed);
    let _ = unpacked::open(bytes, &key);
    if let Ok(json) = unpacked::open(&sealed, &key) {
        let _ = Snapshot::parse(&json);
    }
});
