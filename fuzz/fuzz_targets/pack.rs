//! Pack headers: parsing never panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_repository::format::crypto::Key;
use plimsoll_repository::format::pack;

fuzz_target!(|input: (u64, Vec<u8>)| {
    let (size, plain) = input;
    let Some(key) = Key::new([1; 32], [2; 16], [3; 16]) else { return };
    let _ = pack::header_size(&plain, size);
    let _ = pack::parse_header(&plain, size, &key);
    let mut tail = Vec::new();
    key.encrypt(&plain, &mut tail);
    let length = tail.len() as u32;
    tail.extend_from_slice(&length.to_le_bytes());
    if let Ok(blobs) = pack::parse_header(&tail, size, &key) {
        assert_eq!(pack::file_size_of(&blobs), size);
    }
});
