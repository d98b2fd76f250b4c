//! Snapshots, plain and in the encrypted form in which they are stored.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_repository::format::crypto::Key;
use plimsoll_repository::format::snapshot::Snapshot;
use plimsoll_repository::format::unpacked;

fuzz_target!(|bytes: &[u8]| {
    let _ = Snapshot::parse(bytes);
    let Some(key) = Key::new([1; 32], [2; 16], [3; 16]) else { return };
    let mut encrypted = Vec::new();
    key.encrypt(bytes, &mut encrypted);
    let _ = unpacked::decode(bytes, &key);
    if let Ok(json) = unpacked::decode(&encrypted, &key) {
        let _ = Snapshot::parse(&json);
    }
});
